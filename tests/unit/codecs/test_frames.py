"""What encode and decode promise beyond the round trip."""

from __future__ import annotations

import dataclasses
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dueq_codecs import messages as m
from dueq_codecs.envelope import seal
from dueq_codecs.frames import (
    FrameError,
    bytes_beside_record,
    decode,
    decode_record,
    encode,
    encode_record,
    place_of_record,
)
from dueq_codecs.layouts import LAYOUTS, Kind
from dueq_codecs.log import RECORD
from dueq_codecs.pushes import push_rows
from dueq_codecs.records import WITH_BYTES, LogEntry, Record, RecordKind, RequestRef
from dueq_codecs.rules import inline_bytes

SAMPLES = runpy.run_path(str(Path(__file__).resolve().parents[3] / "codecs/vectors/samples.py"))
u16, u32, u64 = SAMPLES["u16"], SAMPLES["u32"], SAMPLES["u64"]


def change(name: str = "change_insert", **changes: Any) -> m.ChangeRequest:
    return dataclasses.replace(SAMPLES["messages"]()[name][0], **changes)


def sent_anyway(message: Any, *bodies: bytes) -> list[bytes | memoryview]:
    """The frames of a message that encode() would refuse."""
    kind = next(kind for kind, layout in LAYOUTS.items() if layout.message is type(message))
    return [seal(kind, LAYOUTS[kind].write(message)), *bodies]


def test_columns_are_read_only_views_of_the_frame() -> None:
    header, body = encode(change(), [b"helloabc"])
    decoded, bodies = decode([memoryview(bytearray(header)), body])
    assert isinstance(decoded, m.ChangeRequest)
    assert not decoded.due.flags.writeable
    assert decoded.due.base is not None
    assert bodies[0] is body


def test_columns_lie_aligned_in_the_frame() -> None:
    view = memoryview(encode(change(), [b"helloabc"])[0])
    decoded, _ = decode([view, b"helloabc"])
    assert isinstance(decoded, m.ChangeRequest)
    frame_at = np.frombuffer(view, np.uint8).ctypes.data
    assert (decoded.due.ctypes.data - frame_at) % 8 == 0
    assert (decoded.crc.ctypes.data - frame_at) % 8 == 0


def test_bodies_are_not_copied_by_encode() -> None:
    body = memoryview(b"helloabc")
    assert encode(change(), [body])[1] is body


def test_a_message_that_has_a_body_gets_an_empty_one() -> None:
    assert encode(change(due=u64(1), size=u32(0), crc=u32(0)))[1:] == [b""]


def test_a_message_without_columns_is_all_header() -> None:
    assert len(encode(m.MetadataRequest(1))) == 1


@pytest.mark.parametrize(
    ("message", "bodies"),
    [
        (m.MetadataRequest(1), [b"x"]),
        (change(), [b"helloabc", b""]),
        (change(), [b"hello"]),
        (change(crc=u32(1)), [b"helloabc"]),
        (change(amount_ms=u64(1, 2, 3)), [b"helloabc"]),
        (change(client_id=b"short"), [b"helloabc"]),
        (change(due=np.array([1, 2, 3], np.int64)), [b"helloabc"]),
        (change(uid=1 << 32), [b"helloabc"]),
        (change(sequence=-1), [b"helloabc"]),
        (change("change_ack", kind=RecordKind.EXPIRE), []),
        (m.PeerFrame("a", 1, "b", 2, 3, 4, acks=[m.Ack(1, 2, -3)]), []),
    ],
    ids=str,
)
def test_encode_refuses_what_no_receiver_would_accept(message: m.Message, bodies: list[bytes]) -> None:
    with pytest.raises(ValueError):
        encode(message, bodies)


@pytest.mark.parametrize(
    ("message", "bodies"),
    [
        (change(), [b"hello"]),
        (change(crc=u32(1)), [b"helloabc"]),
        (change(upload=u64(1)), [b"helloabc"]),
        (change(token=u64(1, 2, 3)), [b"helloabc"]),
        (change("change_ack", token=u64()), []),
        (change("change_ack", kind=RecordKind.LEASE), []),
        (change("change_nack", first=u64(1)), []),
        (change(patient=True), [b"helloabc"]),
    ],
    ids=str,
)
def test_a_request_with_wrong_columns_is_refused_by_its_number(
    message: m.ChangeRequest, bodies: list[bytes]
) -> None:
    with pytest.raises(FrameError) as caught:
        decode(sent_anyway(message, *bodies))
    assert caught.value.request_id == message.request_id
    assert caught.value.code == m.Code.BAD_FRAME


def test_an_id_of_another_length_is_refused_by_its_request_number() -> None:
    good = encode(m.CreateTopicRequest(5, bytes(16), "t"))[0]
    at = good.index((16).to_bytes(4, "little") + bytes(16), 16)  # type: ignore[union-attr]
    body = good[16:at] + (15).to_bytes(4, "little") + good[at + 4 :]  # type: ignore[operator]
    with pytest.raises(FrameError, match="creation_id has 15 bytes") as caught:
        decode([seal(Kind.CREATE_TOPIC_REQUEST, body)])
    assert caught.value.request_id == 5


def test_text_that_is_not_utf_8_is_refused() -> None:
    header = encode(m.DeleteTopicRequest(6, "abc"))[0]
    with pytest.raises(FrameError, match="topic is not UTF-8") as caught:
        decode([seal(Kind.DELETE_TOPIC_REQUEST, bytes(header[16:]).replace(b"abc", b"a\xffc"))])
    assert caught.value.request_id == 6


def test_unequal_columns_of_consumers_and_peers_are_refused() -> None:
    messages = SAMPLES["messages"]()
    consumer, _ = messages["consumer_frame"]
    with pytest.raises(FrameError, match="held columns"):
        decode(sent_anyway(dataclasses.replace(consumer, held_row=u16(1))))
    waiting, _ = messages["consumer_waiting"]
    for wrong in (
        {"pulls": b"x" * 31},
        {"pull_attach": u64(1)},
        {"pull_wait_ms": u32(1, 2, 3)},
        {"action": m.ConsumerAction.BEAT},
    ):
        with pytest.raises(FrameError, match="not in columns of one length"):
            decode(sent_anyway(dataclasses.replace(waiting, **wrong)))


@pytest.mark.parametrize(
    "changes",
    [
        {"rank": u16(1)}, {"version": u64(1, 2, 3)}, {"expires": u64(1)}, {"group": u16(0), "groups": ("a",)},
        {"group": u16(0, 1), "groups": ("a",)}, {"group": u16(0, 0)}, {"heading": u16(0), "headings": ("{}",)},
        {"heading": u16(0, 1), "headings": ("{}",)},
    ],
    ids=str,
)  # fmt: skip
def test_optional_columns_are_as_long_as_the_others_and_name_texts_that_are_there(
    changes: dict[str, Any],
) -> None:
    two = u64(1, 2)
    push = m.Push("t", bytes(16), 1, 1, 1, 1, rows=push_rows(2), **changes)
    page = m.BrowseReply(
        1, m.Code.OK, wait_at=two, first=two, due=two, sequence=two, row=u16(1, 2), size=u32(0, 0), crc=u32(0, 0),
        attempt=u16(1, 1), keyed=np.zeros(2, np.uint8), upload=two, body_size=u32(0, 0), **changes,
    )  # fmt: skip
    for message in (push, page):
        with pytest.raises(FrameError, match="of 2 rows"):
            decode(sent_anyway(message, b""))
        with pytest.raises(ValueError, match="of 2 rows"):
            encode(message)


def test_an_outcome_that_does_not_exist_is_refused() -> None:
    reply = m.ChangeReply(9, m.Code.OK, outcomes=np.array([0, 200], np.uint8))
    with pytest.raises(FrameError, match="outcomes holds 200"):
        decode(encode(reply))


def test_a_peer_frame_brings_its_entries_with_the_bytes_that_the_log_keeps() -> None:
    frame = SAMPLES["messages"]()["peer_frame"][0]
    frames = encode(frame)
    assert len(frames) == 5
    decoded, bodies = decode(frames)
    assert isinstance(decoded, m.PeerFrame)
    assert bodies == []
    [first, second] = decoded.appends[0].entries
    assert (first.record.encoded, first.body) == (frames[1], b"helloabc")
    assert (second.record.encoded, second.body) == (frames[3], b"")


def _frame_of(*records: list[bytes]) -> list[bytes | memoryview]:
    """A PeerFrame with an append for each list, of these records' bytes."""
    appends = [
        m.Append(uid, 1, 0, 0, 0, [LogEntry(Record(RecordKind.BARRIER, uid, 1, 1, 5)) for _ in held])
        for uid, held in enumerate(records, start=1)
    ]
    frames = encode(m.PeerFrame("b1", 1, "b2", 2, 3, 4, appends=appends))
    data = [row for held in records for row in held]
    return [frames[0], *(frame for row in data for frame in (row, b""))]


def _barrier(uid: int, sequence: int, **fields: Any) -> bytes:
    record = Record(RecordKind.BARRIER, uid, sequence, 1, 5)
    return seal(Kind.RECORD, RECORD.write(dataclasses.replace(record, **fields)))


def test_a_record_that_only_a_newer_build_can_read_concerns_its_own_partition() -> None:
    newer = _barrier(2, 2, kind=99)
    frame, _ = decode(_frame_of([_barrier(1, 1)], [_barrier(2, 1), newer, _barrier(2, 3)], [_barrier(3, 1)]))
    assert isinstance(frame, m.PeerFrame)
    first, second, third = frame.appends
    assert ([len(append.entries) for append in frame.appends], first.unreadable) == ([1, 1, 1], "")
    assert second.entries[0].record.sequence == 1
    assert "kind 99" in second.unreadable
    assert (third.unreadable, third.entries[0].record.uid) == ("", 3)


def test_a_record_of_a_later_level_may_have_another_form() -> None:
    strange = _barrier(1, 1, version=9, due=np.array([7], np.uint64))
    with pytest.raises(FrameError, match=r"feature level 9, this build has \d+: column due") as caught:
        decode_record(strange)
    assert caught.value.code == m.Code.WRONG_VERSION
    with pytest.raises(FrameError) as caught:
        decode_record(_barrier(1, 1, due=np.array([7], np.uint64)))
    assert caught.value.code == m.Code.BAD_FRAME


@pytest.mark.parametrize("name", SAMPLES["records"]())
def test_where_a_record_stands_is_read_without_its_columns(name: str) -> None:
    record = SAMPLES["records"]()[name]
    assert place_of_record(encode_record(record)) == (record.sequence, record.epoch)


def test_where_a_record_stands_is_not_read_of_what_a_newer_build_has_written() -> None:
    assert place_of_record(_barrier(1, 7, version=9)) == (7, 1)
    for strange in (_barrier(1, 7, kind=99), _barrier(1, 7, version=9, due=np.array([7], np.uint64))):
        with pytest.raises(FrameError) as caught:
            place_of_record(strange)
        assert caught.value.code == m.Code.WRONG_VERSION
    with pytest.raises(FrameError, match="is not a record"):
        place_of_record(seal(Kind.HELLO, RECORD.write(Record(RecordKind.BARRIER, 1, 7, 1, 5))))


@pytest.mark.parametrize("name", SAMPLES["records"]())
def test_how_much_lies_beside_a_record_is_read_without_its_columns(name: str) -> None:
    record = SAMPLES["records"]()[name]
    uploaded = int(record.size[record.upload != 0].sum()) if len(record.upload) else 0
    expected = int(inline_bytes(record).sum()) + uploaded if record.kind in WITH_BYTES else 0
    assert bytes_beside_record(encode_record(record)) == expected


def test_damage_behind_a_peer_frame_still_refuses_all_of_it() -> None:
    damaged = bytearray(_barrier(2, 1))
    damaged[-1] ^= 1
    with pytest.raises(FrameError, match="CRC"):
        decode(_frame_of([_barrier(1, 1)], [bytes(damaged)]))


def test_entries_whose_payloads_are_not_as_long_as_their_sizes_are_refused() -> None:
    frame = SAMPLES["messages"]()["peer_frame"][0]
    frames = encode(frame)
    with pytest.raises(FrameError, match="payloads of new messages"):
        decode([*frames[:2], b"hello", *frames[3:]])
    with pytest.raises(FrameError, match="BARRIER record has payloads"):
        decode([*frames[:4], b"x"])


def test_a_record_is_encoded_once() -> None:
    record = Record(RecordKind.BARRIER, 1, 2, 3, 4)
    data = encode_record(record)
    assert record.encoded is data
    assert encode_record(record) is data
    entry = LogEntry(record)
    append = m.Append(1, 3, 1, 3, 1, [entry])
    assert encode(m.PeerFrame("a", 1, "b", 2, 3, 4, appends=[append]))[1] is data


def test_a_decoded_record_outlives_the_buffer_it_came_in() -> None:
    buffer = bytearray(encode_record(SAMPLES["records"]()["record_ack"]))
    record = decode_record(memoryview(buffer))
    before = record.first.tolist()
    buffer[:] = bytes(len(buffer))
    assert record.first.tolist() == before


def test_a_record_of_a_later_apply_version_is_still_read() -> None:
    record = decode_record(encode_record(Record(RecordKind.BARRIER, 1, 2, 3, 4, version=9)))
    assert record.version == 9


@pytest.mark.parametrize(
    "changes",
    [
        {"requests": (RequestRef(bytes(16), 1, 2, 3),)},
        {"consumers": (bytes(16),), "lease_ms": u64(5)},
        {"kind": RecordKind.NACK},
        {"target_row": u16(1)},
        {"consumer": u16(0, 0)},
    ],
    ids=str,
)
def test_records_that_contradict_themselves_are_refused_both_ways(changes: dict[str, Any]) -> None:
    record = dataclasses.replace(SAMPLES["records"]()["record_ack"], **changes)
    with pytest.raises(ValueError):
        encode_record(record)
    with pytest.raises(FrameError):
        decode_record(seal(Kind.RECORD, RECORD.write(record)))


def test_a_lease_row_must_name_one_of_the_consumers() -> None:
    record = dataclasses.replace(SAMPLES["records"]()["record_lease"], consumer=u16(0, 2, 0))
    with pytest.raises(FrameError, match="consumer 2 of 2"):
        decode_record(seal(Kind.RECORD, RECORD.write(record)))


def test_a_body_record_has_a_size_and_a_crc_or_neither() -> None:
    record = SAMPLES["records"]()["record_body"]
    for changes in ({"crc": u32()}, {"size": u32()}):
        with pytest.raises(FrameError, match="sizes and"):
            decode_record(seal(Kind.RECORD, RECORD.write(dataclasses.replace(record, **changes))))
