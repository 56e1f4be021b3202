"""The messages and records that the golden frames beside this file hold, and how to compare such things.

`scripts/generate-codecs --vectors` writes them; the tests expect them. A file is the frames of one message,
each behind its length (u32, little-endian).
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from dueq_codecs import messages as m
from dueq_codecs.meta import Meta
from dueq_codecs.pushes import push_rows
from dueq_codecs.records import (
    Fate,
    JobAction,
    JobState,
    LogEntry,
    OnDuplicate,
    Outcome,
    Record,
    RecordKind,
    RequestRef,
)
from dueq_codecs.topic_settings import TopicSettings

CLIENT = bytes(range(16))
CONSUMER = bytes(range(16, 32))
OTHER_CONSUMER = bytes(range(32, 48))
JOB = bytes(range(48, 64))
BODY = bytes(range(64, 96))
AT = 1_767_225_600_000
"""2026-01-01T00:00:00Z"""


def u8(*values: int) -> Any:
    """A column of ubyte."""
    return np.array(values, "u1")


def u16(*values: int) -> Any:
    """A column of ushort."""
    return np.array(values, "<u2")


def u32(*values: int) -> Any:
    """A column of uint."""
    return np.array(values, "<u4")


def u64(*values: int) -> Any:
    """A column of ulong."""
    return np.array(values, "<u8")


def _targets(token: int = 70) -> dict[str, Any]:
    return {
        "first": u64(AT, AT + 1),
        "target_sequence": u64(40, (1 << 40) - 1),
        "target_row": u16(0, 2047),
        "token": u64(token, token + 1 if token else 0),
    }


def _places() -> dict[str, Any]:
    targets = _targets()
    del targets["token"]
    return targets


def _change(kind: RecordKind, **columns: Any) -> m.ChangeRequest:
    return m.ChangeRequest(7, kind, "flights", 12, CLIENT, 3, 0xFEDCBA9876543210, **columns)


def _insert() -> dict[str, Any]:
    return {
        "due": u64(AT + 1000, AT + 2000, AT + 500),
        "size": u32(5, 0, 3),
        "crc": u32(0x3610A686, 0, 0xFFFFFFFF),
    }


def _insert_shared() -> dict[str, Any]:
    return _insert() | {"size": u32(20_485, 20_480, 20_483)}


def _keys() -> dict[str, Any]:
    return {
        "key_high": u64(0x2C26B46B68FFC68F, 0, (1 << 64) - 1),
        "key_low": u64(0xF99B453C1D304134, 0, 1),
        "on_duplicate": OnDuplicate.KEEP,
    }


def _record(kind: RecordKind, rows: int = 0, **columns: Any) -> Record:
    requests = (RequestRef(CLIENT, 3, 0xFEDCBA9876543210, rows),) if rows else ()
    return Record(kind, 12, 41, 5, AT, requests=requests, **columns)


_PURGE = '{"do":"purge","filter":{"state":"waiting"}}'


def _settings() -> str:
    return TopicSettings(3, CLIENT.hex(), True, AT + 60_000).encode()


def records() -> dict[str, Record]:
    """One record of each kind."""
    kind = RecordKind
    return {
        "record_barrier": _record(kind.BARRIER),
        "record_insert": _record(kind.INSERT, 3, **_insert()),
        "record_insert_uploads": dataclasses.replace(
            _record(kind.INSERT, 3, **_insert(), upload=u64(0, 5 << 32 | 9, 0)),
            requests=(RequestRef(CLIENT, 3, 1, 1), RequestRef(CONSUMER, 4, 2, 2)),
        ),
        "record_lease": _record(
            kind.LEASE,
            first=u64(AT, AT, AT - 1),
            target_sequence=u64(40, 40, 39),
            target_row=u16(0, 1, 7),
            consumer=u16(0, 1, 0),
            consumers=(CONSUMER, OTHER_CONSUMER),
            lease_ms=u64(30_000, 43_200_000),
        ),
        "record_lease_detached": _record(
            kind.LEASE,
            first=u64(AT, AT),
            target_sequence=u64(40, 39),
            target_row=u16(0, 7),
            token=u64(0, 38),
            consumer=u16(1, 0),
            consumers=(CONSUMER, OTHER_CONSUMER),
            lease_ms=u64(30_000, 5_000),
            detached=np.array([0, 1], np.uint8),
        ),
        "record_move": _record(kind.MOVE, 2, **_targets(0), due=u64(AT + 9, AT + 8)),
        "record_insert_ranks": _record(kind.INSERT, 3, **_insert(), rank=u16(0, 7, 65_535)),
        "record_insert_groups": _record(
            kind.INSERT, 3, **_insert(), group=u16(1, 0, 1), groups=("acme.reports", "")
        ),
        "record_insert_unique": dataclasses.replace(
            _record(kind.INSERT, 3, **_insert(), **_keys(), keyed=Meta.KEY, retry=True), version=2
        ),
        "record_insert_window": dataclasses.replace(
            _record(kind.INSERT, 3, **_insert(), window=u32(0, 599_000, 7)), version=2
        ),
        "record_insert_ends": _record(
            kind.INSERT, 3, **_insert(), expires=u64(0, AT + 60_000, 1), attempts_max=u16(5, 0, 65_535)
        ),
        "record_insert_shared": dataclasses.replace(
            _record(kind.INSERT, 3, **_insert_shared(), shared=BODY, shared_size=20_480), version=2
        ),
        "record_body": dataclasses.replace(
            _record(kind.BODY, 1, size=u32(5), crc=u32(0x3610A686), shared=BODY, shared_size=5), version=2
        ),
        "record_body_known": dataclasses.replace(
            _record(kind.BODY, 1, amount_ms=u64(0), shared=BODY, shared_size=5), version=2
        ),
        "record_body_ages": dataclasses.replace(_record(kind.BODY), version=2),
        "record_nack_reasons": _record(
            kind.NACK,
            2,
            **_targets(),
            amount_ms=u64(0, 5000),
            fate=u8(Fate.DEAD, Fate.DELAY),
            reason=u16(1, 0),
            reasons=("", "the card was refused: é"),
        ),
        "record_release_delay": _record(kind.RELEASE, 2, **_targets(), amount_ms=u64(0, 5000)),
        "record_expire_delay": _record(
            kind.EXPIRE,
            **_targets(),
            amount_ms=u64(0, 5000),
            reason=u16(0, 0),
            reasons=("the lease ran out",),
        ),
        "record_lapse": _record(kind.LAPSE, **_places(), reason=u16(0, 0), reasons=("expired",)),
        "record_discard": _record(kind.DISCARD, **_places(), name="p1"),
        "record_redrive": _record(kind.REDRIVE, 2, **_places(), due=u64(0, AT + 9)),
        "record_group": _record(kind.GROUP, 1, name="acme", document='{"max_unacked":50,"weight":10}'),
        "record_change": _record(kind.CHANGE, 2, **_targets(0), rank=u16(3, 65_535)),
        "record_recurrence": _record(
            kind.RECURRENCE,
            1,
            name="nightly é",
            document='{"action":"create","cron":"0 3 * * *","zone":"Europe/Berlin"}',
            tick=u64(AT),
            following=u64(AT + 3_600_000),
        ),
        "record_recurrence_withdraws": _record(
            kind.RECURRENCE,
            1,
            name="nightly é",
            document='{"action":"pause"}',
            tick=u64(0),
            following=u64(0),
            **_targets(0),
        ),
        "record_fire": _record(
            kind.FIRE,
            **(_insert() | {"due": u64(AT, AT + 7, 0)}),
            recurrence=u64(40, 41, 39),
            tick=u64(AT, AT + 5, AT + 9),
            following=u64(AT + 60_000, 0, AT + 70_000),
            rank=u16(9, 0, 0),
            group=u16(0, 1, 0),
            groups=("acme.eu", ""),
        ),
        "record_fire_asked": _record(
            kind.FIRE,
            1,
            due=u64(AT),
            size=u32(3),
            crc=u32(1),
            name="nightly é",
            recurrence=u64(40),
            tick=u64(0),
            following=u64(0),
        ),
        "record_cancel": _record(kind.CANCEL, 2, **_targets(0)),
        "record_ack": _record(kind.ACK, 2, **_targets()),
        "record_nack": _record(kind.NACK, 2, **_targets(), amount_ms=u64(0, 5000)),
        "record_extend": _record(kind.EXTEND, 2, **_targets(), amount_ms=u64(30_000, 60_000)),
        "record_release": _record(kind.RELEASE, 2, **_targets()),
        "record_expire": _record(kind.EXPIRE, **_targets()),
        "record_insert_job": _record(
            kind.INSERT, 3, **_insert(), job=JOB, job_until=AT + 60_000, keyed=Meta.KEY
        ),
        "record_job": _record(kind.JOB, 1, job=JOB, job_until=AT + 60_000, job_action=JobAction.COMMIT),
        "record_reveal": _record(
            kind.REVEAL, first=u64(AT, AT + 1), target_sequence=u64(40, 41), target_row=u16(0, 9), job=JOB
        ),
        "record_pass": dataclasses.replace(_record(kind.PASS, 1, name="p1", document=_PURGE), version=2),
        "record_move_expected": dataclasses.replace(
            _record(kind.MOVE, **_targets(0), due=u64(AT + 9, AT + 10), expected=u64(41, 0)), version=2
        ),
        "record_cancel_pass": dataclasses.replace(_record(kind.CANCEL, **_targets(0), name="p1"), version=2),
        "record_settings": dataclasses.replace(_record(kind.SETTINGS, document=_settings()), version=2),
    }


def _push(number: int, released_us: int, rows: Any, **columns: Any) -> m.Push:
    return m.Push("flights", CONSUMER, 2, number, 5, released_us, "north", rows, **columns)


def _peer_frame() -> m.PeerFrame:
    sent = records()
    return m.PeerFrame(
        "north",
        11,
        "south",
        12,
        5_000_001,
        AT * 1000,
        4_999_000,
        AT * 1000 - 900,
        AT * 1000 - 450,
        True,
        appends=[
            m.Append(
                12,
                5,
                40,
                4,
                39,
                [LogEntry(sent["record_insert"], b"helloabc"), LogEntry(sent["record_barrier"])],
            ),
            m.Append(13, 6, 1, 1, 1),
        ],
        acks=[m.Ack(14, 2, 88), m.Ack(15, 3, (1 << 40) - 1)],
        mismatches=[m.Mismatch(16, 4, 10, 3, 9, True), m.Mismatch(17, 4, 10, 3, 9)],
        vote_requests=[m.VoteRequest(18, 1, 4, 4, 77)],
        votes=[m.Vote(19, 2, True, 4, 78), m.Vote(20, 3, False, 5, 79)],
        fences=[m.Fence(21, 9)],
        leaderships=[m.Leadership(22, 9, True, False), m.Leadership(23, 8, False, False)],
        upload_acks=[m.UploadAck(24, 5 << 32 | 9, 2)],
    )


def _sessions() -> dict[str, tuple[m.Message, list[bytes]]]:
    partitions = (
        m.PartitionInfo(12, "north", 5, True, ("north", "south", "west")),
        m.PartitionInfo(13, "", 0, False, ("south",)),
    )
    topics = (
        m.TopicInfo("flights", "timeline", 3, 2, 1 << 20, 0, partitions),
        m.TopicInfo("empty", "timeline", 1, 1, 1 << 26, 86_400_000),
    )
    brokers = (
        m.BrokerInfo("north", "tcp://192.0.2.1:7411", 11),
        m.BrokerInfo("süd", "tcp://[2001:db8::1]:7411"),
    )
    return {
        "hello": (
            m.Hello(m.Role.CLIENT, CLIENT.hex(), "c-1", 3, 4, 1, 1, AT * 1000, "dueq 0.1.0", "anna"),
            [],
        ),
        "hello_reply": (
            m.HelloReply(
                m.Code.OK, "", "c-1", "north", 11, 1, 1, AT * 1000, AT * 1000 + 90, AT * 1000 + 95, -40
            ),
            [],
        ),
        "metadata_request": (m.MetadataRequest(1, "flights"), []),
        "metadata_reply": (m.MetadataReply(1, m.Code.OK, "", brokers, topics), []),
        "create_topic_request": (
            m.CreateTopicRequest(2, CLIENT, "flights", "timeline", 8, 3, 2, 1 << 20, 86_400_000, True),
            [],
        ),
        "create_topic_request_settings": (
            m.CreateTopicRequest(2, CLIENT, "flights", "priority", 1, 3, document='{"max_attempts":5}'),
            [],
        ),
        "delete_topic_request": (m.DeleteTopicRequest(3, "flights"), []),
        "update_topic_request": (
            m.UpdateTopicRequest(3, CLIENT, "flights", 2, '{"paused":true}', 12),
            [],
        ),
        "metadata_reply_settings": (
            m.MetadataReply(
                1,
                m.Code.OK,
                topics=(dataclasses.replace(topics[0], settings=_settings(), home_partitions=1),),
            ),
            [],
        ),
        "inspect_request": (m.InspectRequest(4, "forecast", "flights", 3600), []),
        "inspect_request_to_another": (m.InspectRequest(4, "status", broker="b2"), []),
        "reply": (m.Reply(4, m.Code.BUSY, "später", '{"due": [1, 2]}', 250), []),
    }


def _changes() -> dict[str, tuple[m.Message, list[bytes]]]:
    kind = RecordKind
    uploads = _insert() | {"upload": u64(0, 0, 5 << 32 | 9)}
    return {
        "change_insert": (_change(kind.INSERT, **_insert()), [b"helloabc"]),
        "change_insert_uploads": (_change(kind.INSERT, **uploads), [b"hello"]),
        "change_move": (
            dataclasses.replace(_change(kind.MOVE, **_targets(), due=u64(AT + 9, AT + 8)), token=u64()),
            [],
        ),
        "change_group": (_change(kind.GROUP, name="acme", document='{"paused":true}'), []),
        "change_cancel": (_change(kind.CANCEL, **_targets(0)), []),
        "change_ack": (_change(kind.ACK, **_targets()), []),
        "change_ack_patient": (_change(kind.ACK, **_targets(), patient=True), []),
        "change_nack": (_change(kind.NACK, **_targets(), amount_ms=u64(0, 5000)), []),
        "change_insert_ends": (
            _change(kind.INSERT, **_insert(), expires=u64(0, AT, 1), attempts_max=u16(5, 0, 65_535)),
            [b"helloabc"],
        ),
        "change_insert_shared": (
            _change(kind.INSERT, **_insert_shared(), shared=BODY, shared_size=20_480),
            [b"helloabc"],
        ),
        "change_body": (
            _change(kind.BODY, size=u32(5), crc=u32(0x3610A686), shared=BODY, shared_size=5),
            [b"hello"],
        ),
        "change_body_known": (_change(kind.BODY, amount_ms=u64(0), shared=BODY, shared_size=5), []),
        "change_nack_reasons": (
            _change(
                kind.NACK,
                **_targets(),
                amount_ms=u64(0, 0),
                fate=u8(Fate.BACK_OFF, Fate.DEAD),
                reason=u16(0, 1),
                reasons=("é", ""),
            ),
            [],
        ),
        "change_release_delay": (_change(kind.RELEASE, **_targets(), amount_ms=u64(0, 5000)), []),
        "change_discard": (_change(kind.DISCARD, **_places()), []),
        "change_redrive": (_change(kind.REDRIVE, **_places(), due=u64(0, AT + 9)), []),
        "change_extend": (_change(kind.EXTEND, **_targets(), amount_ms=u64(30_000, 60_000)), []),
        "change_insert_job": (
            _change(kind.INSERT, **_insert(), job=JOB, job_until=AT + 60_000, keyed=Meta.KEY),
            [b"helloabc"],
        ),
        "change_insert_unique": (
            _change(kind.INSERT, **_insert(), **_keys(), keyed=Meta.KEY),
            [b"\x03abc\0ab\0"],
        ),
        "change_insert_window": (
            _change(kind.INSERT, **_insert(), window=u32(600_000, 600_000, 10)),
            [b"helloabc"],
        ),
        "change_reply_window": (
            m.ChangeReply(7, m.Code.OK, uid=12, epoch=5, sequence=41, stamp=AT, window=u32(0, 599_000, 7)),
            [],
        ),
        "change_reply_unique": (
            m.ChangeReply(
                7,
                m.Code.OK,
                uid=12,
                epoch=5,
                sequence=41,
                stamp=AT,
                outcomes=np.array([Outcome.DONE, Outcome.TAKEN, Outcome.HIDDEN], "u1"),
                present_first=u64(AT, 0),
                present_sequence=u64(40, 0),
                present_row=u16(7, 0),
                present_due=u64(AT - 5, 0),
            ),
            [],
        ),
        "create_topic_unique": (
            m.CreateTopicRequest(
                2, CLIENT, "flights", replicas=3, document='{"keys":"unique","remember_ms":3600000}'
            ),
            [],
        ),
        "change_job": (_change(kind.JOB, job=JOB, job_until=AT + 60_000, job_action=JobAction.CANCEL), []),
        "change_job_grown": (
            _change(kind.JOB, job=JOB, job_action=JobAction.COMMIT, home_partitions=6),
            [],
        ),
        "change_pass": (_change(kind.PASS, name="p1", document=_PURGE), []),
        "change_settings": (_change(kind.SETTINGS, document='{"version":3}'), []),
        "change_recurrence": (
            _change(kind.RECURRENCE, name="nightly é", document='{"action":"trigger"}'),
            [],
        ),
        "change_release": (_change(kind.RELEASE, **_targets()), []),
        "change_reply": (
            m.ChangeReply(
                7,
                m.Code.OK,
                uid=12,
                epoch=5,
                sequence=41,
                row=2047,
                stamp=AT,
                outcomes=np.array(range(Outcome.UNKNOWN + 1), "u1"),
                retry_after_ms=1,
                leader="north",
            ),
            [],
        ),
        "chunk_request": (
            m.ChunkRequest(8, "flights", 12, CLIENT, 5 << 32 | 9, 1, 3, 700_000, 0xCAFE),
            [b"part"],
        ),
        "chunk_reply": (m.ChunkReply(8, m.Code.NOT_LEADER, "moved", 5 << 32 | 9, 1, 20, "south"), []),
    }


def _consumers() -> dict[str, tuple[m.Message, list[bytes]]]:
    return {
        "consumer_frame": (
            m.ConsumerFrame(
                m.ConsumerAction.ATTACH,
                "flights",
                CONSUMER,
                2,
                9,
                100,
                1 << 26,
                30_000,
                17,
                "north",
                held_uid=u32(12, 13),
                held_sequence=u64(40, 41),
                held_row=u16(0, 1),
                held_token=u64(70, 71),
            ),
            [],
        ),
        "consumer_pull": (
            m.ConsumerFrame(
                m.ConsumerAction.PULL,
                "flights",
                CONSUMER,
                2,
                9,
                100,
                1 << 26,
                30_000,
                0,
                "north",
                held_uid=u32(12),
                held_sequence=u64(40),
                held_row=u16(3),
                held_token=u64(70),
                holder=OTHER_CONSUMER,
                wait_ms=5_000,
                life=AT * 1000,
            ),
            [],
        ),
        "consumer_reply": (
            m.ConsumerReply("flights", CONSUMER, 2, 9, m.Code.OK, "", 1234, 18, "north"),
            [],
        ),
        "consumer_reply_ended": (
            m.ConsumerReply(
                "flights", CONSUMER, 2, 9, m.Code.OK, "", 0, 1, "north", incarnation=4, mono_us=77, ended=True
            ),
            [],
        ),
        "push": (
            _push(
                18,
                AT * 1000 + 700,
                push_rows(
                    2,
                    uid=12,
                    first=AT,
                    sequence=40,
                    row=[0, 1],
                    due=[AT, AT - 5],
                    token=70,
                    attempt=[1, 65_535],
                    lease_left_ms=[30_000, 29_000],
                    size=[5, 3],
                    crc=[0x3610A686, 1],
                ),
            ),
            [b"helloabc"],
        ),
        "push_chunk": (m.PushChunk("flights", CONSUMER, 2, 12, 40, 2, 70, 0, 3, "north"), [b"part"]),
    }


def _browsing() -> dict[str, tuple[m.Message, list[bytes]]]:
    reply = m.BrowseReply(
        9,
        m.Code.OK,
        leader="north",
        snapshot=6,
        epoch=5,
        applied=41,
        stamp=AT,
        last=True,
        wait_at=u64(AT, AT + 1),
        first=u64(AT, AT),
        due=u64(AT - 5, AT + 1),
        sequence=u64(40, 40),
        row=u16(0, 1),
        size=u32(5, 700_000),
        crc=u32(0x3610A686, 1),
        attempt=u16(0, 2),
        keyed=np.array([1, 0], "u1"),
        upload=u64(0, 5 << 32 | 9),
        body_size=u32(3, 0),
    )
    return {
        "browse_request": (
            m.BrowseRequest(9, "flights", 12, 6, AT, AT + 60_000, AT + 1, 40 << 16 | 1, 100, True),
            [],
        ),
        "browse_request_chunk": (m.BrowseRequest(9, "flights", 12, 6, upload=5 << 32 | 9, chunk=2), []),
        "browse_reply": (reply, [b"\x02ab"]),
        "browse_reply_ranks": (
            dataclasses.replace(reply, rank=u16(3, 65_535), version=u64(40, 77)),
            [b"\x02ab"],
        ),
        "look_request": (
            m.LookRequest(9, "flights", 12, "message", AT, 40, 1, True, True, 5 << 32 | 9, 2),
            [],
        ),
        "look_request_count": (
            m.LookRequest(9, "flights", 12, "count", document='{"filter":{"state":"waiting"}}'),
            [],
        ),
        "look_reply": (
            m.LookReply(9, m.Code.OK, leader="north", document='{"state":"waiting"}'),
            [b"\x02abhello"],
        ),
        "browse_request_class": (
            m.BrowseRequest(9, "flights", 12, after_wait_at=AT, after_key=40 << 16 | 1, after_of=8),
            [],
        ),
        "browse_reply_classes": (dataclasses.replace(reply, of=u64(7, 1 << 16 | 9)), [b"\x02ab"]),
        "browse_request_dead": (m.BrowseRequest(9, "flights", 12, dead=True), []),
        "browse_reply_dead": (
            dataclasses.replace(
                reply, expires=u64(0, AT), died_at=u64(AT, AT + 2), reason=u16(1, 0), reasons=("", "é")
            ),
            [b"\x02ab"],
        ),
        "push_expires": (
            _push(
                20,
                AT * 1000,
                push_rows(1, uid=12, first=AT, sequence=40, due=AT, token=70, attempt=1, size=5),
                expires=u64(AT + 1),
            ),
            [b"hello"],
        ),
        "push_shared": (
            _push(
                20,
                AT * 1000,
                push_rows(2, uid=12, first=AT, sequence=40, due=AT, token=70, attempt=1, size=(6, 5)),
                shared=u16(1, 1),
                shared_size=u32(5),
            ),
            [b"ahello"],
        ),
        "push_keyed": (
            _push(
                19,
                AT * 1000 + 700,
                push_rows(
                    1,
                    uid=12,
                    first=AT,
                    sequence=40,
                    row=0,
                    due=AT,
                    token=70,
                    attempt=1,
                    lease_left_ms=30_000,
                    size=5,
                    crc=0x3610A686,
                    keyed=1,
                ),
            ),
            [b"\x02abcd"],
        ),
    }


def messages() -> dict[str, tuple[m.Message, list[bytes]]]:
    """At least one message of each kind, with its bodies."""
    request, bodies = _changes()["change_insert"]
    assert isinstance(request, m.ChangeRequest)
    return {
        **_sessions(),
        **_changes(),
        **_consumers(),
        **_browsing(),
        "peer_frame": (_peer_frame(), []),
        "peer_frame_jobs": (
            m.PeerFrame(
                "north",
                11,
                "south",
                12,
                5_000_001,
                AT * 1000,
                job_asks=[m.JobAsk(12, 13, 1 << 63, 7, AT + 60_000)],
                job_tells=[m.JobTell(13, 1 << 63, 7, int(JobState.COMMITTED))],
            ),
            [],
        ),
        "peer_frame_heartbeat": (m.PeerFrame("north", 11, "south", 12, 5_000_001, AT * 1000), []),
        "upload_chunk": (m.UploadChunk("north", 11, 12, 5, 5 << 32 | 9, 0, 3, 0xCAFE), [b"part"]),
        "upload_wanted": (m.UploadWanted("south", 12, 12, 5 << 32 | 9), []),
        "snapshot_request": (m.SnapshotRequest("south", 12, 12, 5, 6, 7), []),
        "snapshot_chunk": (m.SnapshotChunk("north", 11, 12, 5, 6, 7, 41, 5, True), [b"rows"]),
        "relay": (m.Relay("south", 12, b"\0\x01\x02\x03\x04", False, request, list(bodies)), []),
        "relay_of_principal": (
            m.Relay("south", 12, b"\0\x01\x02\x03\x04", False, m.DeleteTopicRequest(4, "t"), [], "alice"),
            [],
        ),
        "relay_back": (m.Relay("north", 11, b"\0\x01\x02\x03\x04", True, m.Reply(4, m.Code.OK)), []),
    }


def pack_frames(frames: Sequence[bytes | memoryview]) -> bytes:
    """Put frames into one file."""
    return b"".join(struct.pack("<I", len(frame)) + bytes(frame) for frame in frames)


def unpack_frames(data: bytes) -> list[bytes | memoryview]:
    """Take the frames out of a file."""
    frames: list[bytes | memoryview] = []
    while data:
        end = 4 + struct.unpack_from("<I", data)[0]
        frames.append(data[4:end])
        data = data[end:]
    return frames


def plain(value: Any) -> Any:
    """Turn a message or record into nested tuples that `==` compares (and that keep types apart).

    `Record.encoded` is left out: it says how the bytes came about, not what they mean.
    """
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value) if field.name != "encoded"]
        return (type(value).__name__, *[(name, plain(getattr(value, name))) for name in names])
    if isinstance(value, np.ndarray):
        return (str(value.dtype), value.tolist())
    if isinstance(value, list | tuple):
        return (type(value).__name__, *map(plain, value))
    if isinstance(value, memoryview):
        return ("bytes", bytes(value))
    return (type(value).__name__, value)
