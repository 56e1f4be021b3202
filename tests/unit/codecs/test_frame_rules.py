"""What the parts of one message must be to each other; whatever else comes is refused, and says why."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.unit.codecs.test_refused_changes import u16, u32, u64

from dueq_codecs import messages as m
from dueq_codecs.envelope import seal
from dueq_codecs.flat import Layout
from dueq_codecs.frames import FrameError, decode, decode_record, encode, encode_record
from dueq_codecs.layouts import LAYOUTS, Kind
from dueq_codecs.log import RECORD
from dueq_codecs.messages import ConsumerAction
from dueq_codecs.pushes import push_rows
from dueq_codecs.records import FEATURE_LEVEL, LogEntry, Record, RecordKind

KIND_OF = {layout.message: kind for kind, layout in LAYOUTS.items()}


def u8(*values: int) -> Any:
    return np.array(values, np.uint8)


def table(layout: Layout, **values: Any) -> bytes:
    """A table of this layout with these fields and no others, whether or not they fit each other."""
    whole = {field.name: field.absent for field in layout.fields} | values
    return Layout(SimpleNamespace, *layout.fields).write(SimpleNamespace(**whole))


def header(kind: Kind, **values: Any) -> bytes:
    return seal(kind, table(LAYOUTS[kind], **values))


def refused_both_ways(message: Any, *bodies: bytes, said: str) -> None:
    """Neither is it sent, nor believed when it comes."""
    kind = KIND_OF[type(message)]
    with pytest.raises(FrameError, match=said):
        decode([seal(kind, LAYOUTS[kind].write(message)), *bodies])
    with pytest.raises(ValueError, match=said):
        encode(message, bodies)


def arrives(message: Any, *bodies: bytes) -> None:
    decoded, held = decode(encode(message, bodies))
    assert type(decoded) is type(message)
    assert [bytes(body) for body in held] == list(bodies)


def test_a_message_has_a_frame() -> None:
    with pytest.raises(FrameError, match="a message without frames"):
        decode([])


BEAT = m.ConsumerFrame(ConsumerAction.BEAT, "t", bytes(16), 1, 1, 1, 1, 1)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"action": ConsumerAction.PULL}, "a PULL has a holder of 0 bytes"),
        ({"action": ConsumerAction.PULL, "holder": bytes(15)}, "a PULL has a holder of 15 bytes"),
        ({"holder": bytes(16)}, "a BEAT has a holder of 16 bytes"),
        ({"wait_ms": 5}, "a BEAT waits for 5 ms"),
        ({"action": ConsumerAction.WAITING, "wait_ms": 5}, "a WAITING waits for 5 ms"),
        ({"held_uid": u32(1)}, "the held columns of a ConsumerFrame"),
    ],
    ids=str,
)
def test_only_a_pull_names_a_holder_and_waits(changes: dict[str, Any], said: str) -> None:
    refused_both_ways(dataclasses.replace(BEAT, **changes), said=said)


def test_pulls_and_lists_of_them_arrive() -> None:
    arrives(dataclasses.replace(BEAT, action=ConsumerAction.PULL, holder=bytes(16), wait_ms=5))
    listed = {"pulls": bytes(32), "pull_attach": u64(1, 2), "pull_wait_ms": u32(3, 4)}
    arrives(dataclasses.replace(BEAT, action=ConsumerAction.WAITING, **listed))
    arrives(dataclasses.replace(BEAT, action=ConsumerAction.WAITING))


PRESENT = {
    "present_first": u64(1, 2), "present_sequence": u64(1, 2), "present_row": u16(1, 2), "present_due": u64(1, 2),
}  # fmt: skip


@pytest.mark.parametrize(
    "changes",
    [
        {"outcomes": u8(0, 1, 0)},
        {"outcomes": u8(1, 1, 1)},
        {"present_sequence": u64(1)},
        {"present_row": u16(1, 2, 3)},
        {"present_due": u64()},
    ],
    ids=str,
)
def test_each_message_that_is_there_already_is_that_of_a_row_without_effect(changes: dict[str, Any]) -> None:
    said = "the columns of messages that are there already do not fit"
    fields = {"outcomes": u8(1, 0, 1), **PRESENT}
    arrives(m.ChangeReply(1, m.Code.OK, **fields))
    refused_both_ways(m.ChangeReply(1, m.Code.OK, **{**fields, **changes}), said=said)


def test_outcomes_of_other_changes_come_without_messages() -> None:
    arrives(m.ChangeReply(1, m.Code.OK, outcomes=u8(1, 0, 1)))


def page(**changes: Any) -> m.BrowseReply:
    """Two messages of three and two bytes."""
    columns: dict[str, Any] = {
        "wait_at": u64(1, 2), "first": u64(1, 2), "due": u64(1, 2), "sequence": u64(1, 2), "row": u16(1, 2),
        "size": u32(3, 2), "crc": u32(1, 2), "attempt": u16(1, 1), "keyed": u8(0, 0), "upload": u64(0, 0),
        "body_size": u32(3, 2),
    }  # fmt: skip
    return m.BrowseReply(1, m.Code.OK, **(columns | changes))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"body_size": u32(3, 3)}, "the rows of a BrowseReply have 6 bytes, its body 5"),
        ({"body_size": u32(1 << 31, 1 << 31)}, "the rows of a BrowseReply have 4294967296 bytes"),
        ({"body_size": u32(5)}, "the columns of a BrowseReply are not of one length"),
        ({"wait_at": u64()}, "the columns of a BrowseReply are not of one length"),
        ({"upload": u64(0)}, "the columns of a BrowseReply are not of one length"),
        ({"reason": u16(0, 1), "reasons": ("a",)}, "names 1 of 1"),
        ({"reason": u16(0)}, "the columns of a BrowseReply of 2 rows"),
        ({"of": u64(1)}, "the columns of a BrowseReply of 2 rows"),
        ({"died_at": u64(1, 2, 3)}, "the columns of a BrowseReply of 2 rows"),
        ({"heading": u16(1, 0), "headings": ("",)}, "names 1 of 1"),
    ],
    ids=str,
)
def test_the_rows_of_a_page_are_whole_and_its_body_is_theirs(changes: dict[str, Any], said: str) -> None:
    refused_both_ways(page(**changes), b"abcde", said=said)


def test_a_page_with_reasons_and_one_that_is_a_chunk_of_a_long_payload_arrive() -> None:
    arrives(page(reason=u16(1, 0), reasons=("a", "b"), died_at=u64(1, 2)), b"abcde")
    arrives(m.BrowseReply(1, m.Code.OK), b"a chunk")


def test_a_push_names_none_but_its_own_shared_bodies() -> None:
    push = m.Push("t", bytes(16), 1, 1, 1, 1, rows=push_rows(2), shared=u16(0, 1), shared_size=u32(1))
    arrives(push, b"s")
    refused_both_ways(dataclasses.replace(push, shared=u16(0, 2)), b"s", said="names 2 of 2")
    refused_both_ways(dataclasses.replace(push, shared=u16(0)), b"s", said="of 2 rows have")


# -------------------------------------------------------------- columns that become objects

TOPIC: dict[str, Any] = {
    "topic_name": ("t",), "topic_kind": ("timeline",), "topic_replicas": (1,), "topic_min_isr": (1,),
    "topic_payload_bytes_max": (1,), "topic_horizon_ms": (1,), "topic_partitions": (1,),
    "partition_uid": (1,), "partition_leader": ("a",), "partition_epoch": (1,), "partition_serving": (True,),
    "partition_replicas": (2,), "replica": ("a", "b"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"replica": ("a",)}, "the replicas of the partitions do not add up"),
        ({"replica": ("a", "b", "c")}, "the replicas of the partitions do not add up"),
        ({"topic_partitions": (2,)}, "the partitions of the topics do not add up"),
        ({"topic_partitions": (0,)}, "the partitions of the topics do not add up"),
        ({"topic_settings": ("", "")}, "a column of topics has 2 items, not 1"),
        ({"topic_home_partitions": (1, 1)}, "a column of topics has 2 items, not 1"),
        ({"topic_kind": ()}, "the columns from topic_name on"),
        ({"partition_epoch": (1, 2)}, "the columns from partition_uid on"),
        ({"broker_id": ("a",)}, "the columns from broker_id on"),
    ],
    ids=str,
)
def test_what_is_told_of_topics_adds_up(changes: dict[str, Any], said: str) -> None:
    reply, _ = decode([header(Kind.METADATA_REPLY, **TOPIC)])
    assert isinstance(reply, m.MetadataReply)
    assert reply.topics[0].partitions == (m.PartitionInfo(1, "a", 1, True, ("a", "b")),)
    with pytest.raises(FrameError, match=said):
        decode([header(Kind.METADATA_REPLY, **(TOPIC | changes))])


def test_each_topic_has_its_own_partitions_and_each_of_them_its_own_replicas() -> None:
    def partition(uid: int, *replicas: str) -> m.PartitionInfo:
        return m.PartitionInfo(uid, replicas[0], uid, True, replicas)

    first = m.TopicInfo("a", "timeline", 1, 1, 1, 1, (partition(1, "x"), partition(2, "y", "z")))
    bare = m.TopicInfo("b", "timeline", 1, 1, 1, 1, ())
    last = m.TopicInfo("c", "fair", 1, 1, 1, 1, (partition(3, "z", "x", "y"),), "{}", 1)
    reply = m.MetadataReply(1, m.Code.OK, "", (), (first, bare, last))
    assert decode(encode(reply))[0] == reply


def test_the_columns_of_a_list_of_a_peer_are_of_one_length() -> None:
    ends: dict[str, Any] = {"sender": "a", "receiver": "b"}
    with pytest.raises(FrameError, match="the columns of acks are not of one length"):
        decode([header(Kind.PEER_FRAME, **ends, ack_uid=(1, 2), ack_epoch=(1, 2), ack_sequence=(1,))])
    with pytest.raises(FrameError, match="the columns of votes are not of one length"):
        decode([header(Kind.PEER_FRAME, **ends, vote_uid=(1,))])


@pytest.mark.parametrize("behind", [[], [b""], [b"", b"", b""]], ids=len)
def test_a_peer_brings_two_frames_for_each_entry(behind: list[bytes]) -> None:
    entry = LogEntry(Record(RecordKind.BARRIER, 1, 1, 1, 5))
    frames = encode(m.PeerFrame("a", 1, "b", 2, 3, 4, appends=[m.Append(1, 1, 0, 0, 0, [entry])]))
    with pytest.raises(FrameError, match=f"a PeerFrame of 1 entries is followed by {len(behind)} frames"):
        decode([frames[0], *behind])


def test_payloads_that_only_a_newer_build_knows_concern_their_partition_alone() -> None:
    """What is wrong with them in this build may be right in the one that has written the record."""
    for version, newer in ((FEATURE_LEVEL, False), (FEATURE_LEVEL + 1, True)):
        entry = LogEntry(Record(RecordKind.BARRIER, 1, 1, 1, 5, version=version), b"payloads")
        frames = encode(m.PeerFrame("a", 1, "b", 2, 3, 4, appends=[m.Append(1, 1, 0, 0, 0, [entry])]))
        if newer:
            frame, _ = decode(frames)
            assert isinstance(frame, m.PeerFrame)
            assert (frame.appends[0].entries, "payloads" in frame.appends[0].unreadable) == ([], True)
        else:
            with pytest.raises(FrameError, match="a BARRIER record has payloads") as caught:
                decode(frames)
            assert caught.value.code == m.Code.BAD_FRAME


def test_the_requests_of_a_record_are_in_columns_of_one_length() -> None:
    fields: dict[str, Any] = {"kind": RecordKind.BARRIER, "uid": 1, "sequence": 1, "epoch": 1, "stamp": 5}
    columns: dict[str, Any] = {
        "request_client_id": (bytes(16),), "request_sequence": (1,), "request_digest": (2,), "request_rows": (),
    }  # fmt: skip
    with pytest.raises(FrameError, match="requests are not of one length"):
        decode_record(seal(Kind.RECORD, table(RECORD, **fields, **columns)))


def test_ids_that_are_none_are_not_cut_short() -> None:
    lease = Record(RecordKind.BARRIER, 1, 1, 1, 5)
    assert decode_record(encode_record(lease)).consumers == ()
    good = table(RECORD, kind=RecordKind.BARRIER, uid=1, consumers=(bytes(16),))
    at = good.index((16).to_bytes(4, "little") + bytes(16))
    bad = good[:at] + (15).to_bytes(4, "little") + good[at + 4 :]
    with pytest.raises(FrameError, match="consumers has 15 bytes, which is no multiple of 16"):
        decode_record(seal(Kind.RECORD, bad))
    with pytest.raises(ValueError, match="an id that has not 16 bytes"):
        table(RECORD, kind=RecordKind.BARRIER, consumers=(bytes(16), bytes(15)))


def test_a_list_has_as_many_texts_as_rows_can_name() -> None:
    names = ("a", "bcd", "efgh") * 21_845 + ("last",)
    assert len(names) == 1 << 16
    reply, _ = decode(encode(m.BrowseReply(1, m.Code.OK, groups=names)))
    assert isinstance(reply, m.BrowseReply)
    assert reply.groups == names
