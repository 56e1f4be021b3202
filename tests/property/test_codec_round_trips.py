"""Every message and record that can be built survives the way to bytes and back."""

from __future__ import annotations

import runpy
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dueq_codecs import messages as m
from dueq_codecs.frames import decode, decode_record, encode, encode_record
from dueq_codecs.layouts import LAYOUTS, Kind
from dueq_codecs.meta import Meta
from dueq_codecs.pushes import push_rows
from dueq_codecs.records import (
    ONE_ROW,
    WITH_PAYLOADS,
    JobAction,
    LogEntry,
    OnDuplicate,
    Outcome,
    Record,
    RecordKind,
    RequestRef,
)
from dueq_codecs.shape import REVOKING

plain = runpy.run_path(str(Path(__file__).resolve().parents[2] / "codecs/vectors/samples.py"))["plain"]

TARGETS = {"first": "u8", "target_sequence": "u8", "target_row": "u2", "token": "u8"}
PLACES = {"first": "u8", "target_sequence": "u8", "target_row": "u2"}
COLUMNS: dict[RecordKind, dict[str, str]] = {
    RecordKind.BARRIER: {},
    RecordKind.INSERT: {"due": "u8", "size": "u4", "crc": "u4"},
    RecordKind.LEASE: {"first": "u8", "target_sequence": "u8", "target_row": "u2"},
    RecordKind.MOVE: {**TARGETS, "due": "u8"},
    RecordKind.CANCEL: TARGETS,
    RecordKind.CHANGE: {**TARGETS, "rank": "u2"},
    RecordKind.TRIGGER: TARGETS,
    RecordKind.ACK: TARGETS,
    RecordKind.NACK: {**TARGETS, "amount_ms": "u8"},
    RecordKind.EXTEND: {**TARGETS, "amount_ms": "u8"},
    RecordKind.RELEASE: TARGETS,
    RecordKind.EXPIRE: TARGETS,
    RecordKind.JOB: {},
    RecordKind.REVEAL: {"first": "u8", "target_sequence": "u8", "target_row": "u2"},
    RecordKind.SETTINGS: {},
    RecordKind.PASS: {},
    RecordKind.GROUP: {},
    RecordKind.RECURRENCE: {},
    RecordKind.FIRE: {
        "due": "u8",
        "size": "u4",
        "crc": "u4",
        "recurrence": "u8",
        "tick": "u8",
        "following": "u8",
    },
    RecordKind.BODY: {},
    RecordKind.LAPSE: PLACES,
    RecordKind.DISCARD: PLACES,
    RecordKind.REDRIVE: {**PLACES, "due": "u8"},
}
BY_CLIENTS = sorted(
    set(RecordKind)
    - {
        RecordKind.BARRIER,
        RecordKind.LEASE,
        RecordKind.EXPIRE,
        RecordKind.REVEAL,
        RecordKind.FIRE,
        RecordKind.LAPSE,
    }
)

ids = st.binary(min_size=16, max_size=16)
bodies = st.binary(max_size=40)
hashes = st.binary(min_size=32, max_size=32)
texts = st.text(max_size=12)
rows = st.integers(0, 6)


def number(bits: int) -> st.SearchStrategy[int]:
    return st.integers(0, (1 << bits) - 1)


u8, u16, u32, u64 = number(8), number(16), number(32), number(64)
i64 = st.integers(-(1 << 63), (1 << 63) - 1)
codes = st.sampled_from(m.Code)


def column(dtype: str, length: int, largest: int | None = None) -> st.SearchStrategy[Any]:
    top = (1 << 8 * int(dtype[1:])) - 1 if largest is None else largest
    values = st.lists(st.integers(0, top), min_size=length, max_size=length)
    return values.map(lambda items: np.array(items, "<" + dtype))


def columns(dtypes: dict[str, str], length: int) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({name: column(dtype, length) for name, dtype in dtypes.items()})


@st.composite
def operations(draw: st.DrawFn, kind: RecordKind) -> tuple[dict[str, Any], bytes]:
    """The columns of one operation, and its inline payloads."""
    length = draw(rows)
    values = draw(columns(COLUMNS[kind], length))
    if kind == RecordKind.BODY:
        return draw(shared_bodies())
    if kind not in WITH_PAYLOADS:
        return values | draw(ends(kind, length)), b""
    values["size"] = draw(column("u4", length, largest=9))
    inline = int(values["size"].sum())
    if draw(st.booleans()):
        values["rank"] = draw(column("u2", length))
    if length and draw(st.booleans()):
        values["groups"] = tuple(draw(st.lists(texts, min_size=1, max_size=length)))
        values["group"] = draw(column("u2", length, largest=len(values["groups"]) - 1))
    if kind == RecordKind.FIRE and draw(st.booleans()):
        values |= {"shared": draw(hashes), "shared_size": 7}
        values["size"] = values["size"] + np.uint32(7)
    if kind == RecordKind.FIRE:
        return values, draw(st.binary(min_size=inline, max_size=inline))
    if draw(st.booleans()):
        values["upload"] = draw(column("u8", length, largest=1))
        inline = int(values["size"][values["upload"] == 0].sum())
    if draw(st.booleans()):
        values["window"] = draw(column("u4", length))
    if length and draw(st.booleans()):
        values |= draw(columns({"key_high": "u8", "key_low": "u8"}, length)) | {
            "on_duplicate": draw(st.sampled_from(list(OnDuplicate)[1:])),
            "retry": draw(st.booleans()),
            "keyed": Meta.KEY,
        }
    if length and draw(st.booleans()):
        values |= draw(columns(dict.fromkeys(("once_high", "once_low", "once_digest"), "u8"), length))
    if "upload" not in values and draw(st.booleans()):
        values |= {"shared": draw(hashes), "shared_size": 7}
        values["size"] = values["size"] + np.uint32(7)
    for name, dtype in (("expires", "u8"), ("attempts_max", "u2")):
        if draw(st.booleans()):
            values[name] = draw(column(dtype, length))
    return values, draw(st.binary(min_size=inline, max_size=inline))


@st.composite
def shared_bodies(draw: st.DrawFn) -> tuple[dict[str, Any], bytes]:
    """The columns of a BODY, and the bytes that it may bring."""
    values: dict[str, Any] = {"shared": draw(hashes), "shared_size": draw(st.integers(1, 9))}
    if draw(st.booleans()):
        values["amount_ms"] = draw(column("u8", 1))
    if draw(st.booleans()):
        return values, b""
    size = values["shared_size"]
    values |= {"size": np.array([size], "<u4"), "crc": draw(column("u4", 1))}
    return values, draw(st.binary(min_size=size, max_size=size))


@st.composite
def ends(draw: st.DrawFn, kind: RecordKind, length: int) -> dict[str, Any]:
    """The optional columns of a change: delays, fates and reasons."""
    values: dict[str, Any] = {}
    if kind in (RecordKind.RELEASE, RecordKind.EXPIRE) and draw(st.booleans()):
        values["amount_ms"] = draw(column("u8", length))
    if kind in (*REVOKING, RecordKind.DISCARD, RecordKind.REDRIVE) and draw(st.booleans()):
        values["expected"] = draw(column("u8", length))
    if kind == RecordKind.NACK and draw(st.booleans()):
        values["fate"] = draw(column("u1", length))
    if length and kind in (RecordKind.ACK, RecordKind.NACK) and draw(st.booleans()):
        values["reasons"] = tuple(draw(st.lists(texts, min_size=1, max_size=length)))
        values["reason"] = draw(column("u2", length, largest=len(values["reasons"]) - 1))
    return values


@st.composite
def jobs(draw: st.DrawFn, kind: RecordKind) -> dict[str, Any]:
    """The fields of a change about its job, its keys and its document."""
    if kind == RecordKind.JOB:
        actions = st.sampled_from([JobAction.COMMIT, JobAction.ABORT, JobAction.CANCEL])
        return {"job": draw(ids), "job_until": draw(u64), "job_action": draw(actions)}
    if kind == RecordKind.REVEAL:
        return {"job": draw(ids)}
    if kind == RecordKind.PASS:
        text = st.text(min_size=1, max_size=12)
        return {"name": draw(text), "document": draw(text)}
    if kind == RecordKind.NACK and draw(st.booleans()):
        return {"document": draw(texts)}
    if kind == RecordKind.SETTINGS:
        return {"document": draw(st.text(min_size=1, max_size=12))}
    if kind in (RecordKind.RECURRENCE, RecordKind.GROUP):
        named = {"name": draw(texts.filter(bool)), "document": draw(texts.filter(bool))}
        shares = kind == RecordKind.RECURRENCE and draw(st.booleans())
        return named | ({"shared": draw(hashes), "shared_size": 7} if shares else {})
    if kind == RecordKind.INSERT and draw(st.booleans()):
        return {"job": draw(ids), "job_until": draw(u64), "keyed": draw(st.sampled_from(Meta))}
    return {}


@st.composite
def records(draw: st.DrawFn) -> LogEntry:
    kind = draw(st.sampled_from(RecordKind))
    values, body = draw(operations(kind))
    length = 1 if kind in ONE_ROW else len(values.get("due", values.get("target_sequence", ())))
    values = draw(jobs(kind)) | values
    if kind == RecordKind.RECURRENCE:
        values |= draw(columns({"tick": "u8", "following": "u8"}, 1)) | draw(columns(TARGETS, draw(rows)))
    if kind == RecordKind.LEASE:
        consumers = draw(st.lists(ids, min_size=1, max_size=3))
        values["consumers"] = tuple(consumers)
        values["lease_ms"] = draw(column("u8", len(consumers)))
        values["consumer"] = draw(column("u2", length, largest=len(consumers) - 1))
        if draw(st.booleans()):
            values["detached"] = draw(column("u1", len(consumers), largest=1))
        if draw(st.booleans()):
            values["token"] = draw(column("u8", length))
    requests: tuple[RequestRef, ...] = ()
    if draw(st.booleans()):
        first = draw(st.integers(0, length))
        requests = tuple(
            RequestRef(draw(ids), draw(u64), draw(u64), count) for count in (first, length - first)
        )
    head = [draw(u32), draw(u64), draw(u64), draw(u64)]
    return LogEntry(Record(kind, *head, version=draw(u16), requests=requests, **values), body)


@st.composite
def changes(draw: st.DrawFn) -> tuple[m.Message, list[bytes]]:
    kind = draw(st.sampled_from(BY_CLIENTS))
    values, body = draw(operations(kind))
    if kind in (RecordKind.MOVE, RecordKind.CANCEL) and draw(st.booleans()):
        del values["token"]
    head = draw(u64), kind, draw(texts), draw(u32), draw(ids), draw(u64), draw(u64)
    values = draw(jobs(kind)) | values
    patient = kind == RecordKind.ACK and draw(st.booleans())
    return m.ChangeRequest(*head, **values, patient=patient), (
        [body] if kind == RecordKind.INSERT or body else []
    )


@st.composite
def consumer_frames(draw: st.DrawFn) -> m.ConsumerFrame:
    held = {"held_uid": "u4", "held_sequence": "u8", "held_row": "u2", "held_token": "u8"}
    action = draw(st.sampled_from(m.ConsumerAction))
    pulls = action == m.ConsumerAction.PULL
    return m.ConsumerFrame(
        action,
        draw(texts),
        draw(ids),
        *[draw(field) for field in (u64, u64, u32, u64, u64, u64)],
        leader=draw(texts),
        **draw(columns(held, draw(rows))),
        holder=draw(ids) if pulls else b"",
        wait_ms=draw(u64) if pulls else 0,
        life=draw(u64),
        detached=draw(st.booleans()),
        **(draw(waiting_pulls()) if action == m.ConsumerAction.WAITING else {}),
    )


@st.composite
def waiting_pulls(draw: st.DrawFn) -> dict[str, Any]:
    length = draw(rows)
    named = draw(st.binary(min_size=16 * length, max_size=16 * length))
    return {"pulls": named, **draw(columns({"pull_attach": "u8", "pull_wait_ms": "u4"}, length))}


@st.composite
def consumer_replies(draw: st.DrawFn) -> m.ConsumerReply:
    head = draw(texts), draw(ids), draw(u64), draw(u64), draw(codes), draw(texts), draw(u64), draw(u64)
    over = draw(columns({"over": "u4"}, draw(rows)))
    return m.ConsumerReply(*head, draw(texts), draw(u32), draw(u64), draw(u64), draw(st.booleans()), **over)


@st.composite
def pushes(draw: st.DrawFn) -> m.Push:
    names = {"uid": "u4", "first": "u8", "sequence": "u8", "row": "u2", "due": "u8", "token": "u8"}
    names |= {"attempt": "u2", "lease_left_ms": "u4", "size": "u4", "crc": "u4", "keyed": "u4"}
    head = draw(texts), draw(ids), draw(u64), draw(u64), draw(u64), draw(u64), draw(texts)
    length = draw(rows)
    push = m.Push(*head, push_rows(length, **draw(columns(names, length))))
    if length and draw(st.booleans()):
        push.shared_size = draw(column("u4", 2))
        push.shared = draw(column("u2", length, largest=2))
    return push


@st.composite
def browse_replies(draw: st.DrawFn) -> tuple[m.BrowseReply, list[bytes]]:
    names = {"wait_at": "u8", "first": "u8", "due": "u8", "sequence": "u8", "row": "u2", "size": "u4"}
    names |= {"crc": "u4", "attempt": "u2", "keyed": "u1", "upload": "u8", "of": "u8"}
    length = draw(rows)
    values = draw(columns(names, length))
    values["body_size"] = draw(column("u4", length, largest=9))
    size = int(values["body_size"].sum())
    head = draw(u64), draw(codes), draw(texts), draw(u32), draw(texts), *[draw(u64) for _ in range(4)]
    return m.BrowseReply(*head, draw(flags), **values), [draw(st.binary(min_size=size, max_size=size))]


@st.composite
def change_replies(draw: st.DrawFn) -> m.ChangeReply:
    numbers = [draw(field) for field in (u32, u64, u64, u16, u64)]
    outcomes = draw(column("u1", draw(rows), largest=max(Outcome)))
    names = {"present_first": "u8", "present_sequence": "u8", "present_row": "u2", "present_due": "u8"}
    present = draw(columns(names, draw(st.sampled_from([0, int(np.count_nonzero(outcomes))]))))
    head = draw(u64), draw(codes), draw(texts), *numbers, outcomes, draw(u32), draw(texts)
    return m.ChangeReply(*head, **present)


def some(item: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(item, max_size=3)


def tuples_of(item: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return some(item).map(tuple)


flags = st.booleans()
peer_frames = st.builds(
    m.PeerFrame,
    texts,
    u64,
    texts,
    *[u64] * 6,
    ping=flags,
    appends=some(st.builds(m.Append, u32, u64, u64, u64, u64, some(records()))),
    acks=some(st.builds(m.Ack, u32, u64, u64)),
    mismatches=some(st.builds(m.Mismatch, u32, u64, u64, u64, u64, flags)),
    vote_requests=some(st.builds(m.VoteRequest, u32, u64, u64, u64, u64)),
    votes=some(st.builds(m.Vote, u32, u64, flags, u64, u64)),
    fences=some(st.builds(m.Fence, u32, u64)),
    leaderships=some(st.builds(m.Leadership, u32, u64, flags, flags)),
    upload_acks=some(st.builds(m.UploadAck, u32, u64, u32)),
    job_asks=some(st.builds(m.JobAsk, u32, u32, u64, u64, u64)),
    job_tells=some(st.builds(m.JobTell, u32, u64, u64, u8)),
)
partitions = st.builds(m.PartitionInfo, u32, texts, u64, flags, tuples_of(texts))
metadata_replies = st.builds(
    m.MetadataReply,
    u64,
    codes,
    texts,
    tuples_of(st.builds(m.BrokerInfo, texts, texts, u64)),
    tuples_of(st.builds(m.TopicInfo, texts, texts, u32, u32, u64, u64, tuples_of(partitions), texts, u32)),
)


def alone(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return strategy.map(lambda message: (message, []))


def with_body(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.tuples(strategy, bodies.map(lambda body: [body]))


roles: st.SearchStrategy[IntEnum] = st.sampled_from(m.Role)
BETWEEN_CLIENT_AND_BROKER: dict[Kind, st.SearchStrategy[Any]] = {
    Kind.HELLO: alone(st.builds(m.Hello, roles, texts, texts, u64, u64, u8, u8, u64, texts, texts)),
    Kind.HELLO_REPLY: alone(
        st.builds(m.HelloReply, codes, texts, texts, texts, u64, u8, u32, u64, u64, u64, i64)
    ),
    Kind.METADATA_REQUEST: alone(st.builds(m.MetadataRequest, u64, texts)),
    Kind.METADATA_REPLY: alone(metadata_replies),
    Kind.CREATE_TOPIC_REQUEST: alone(
        st.builds(m.CreateTopicRequest, u64, ids, texts, texts, u32, u32, u32, u64, u64, flags, texts)
    ),
    Kind.DELETE_TOPIC_REQUEST: alone(st.builds(m.DeleteTopicRequest, u64, texts, u32)),
    Kind.UPDATE_TOPIC_REQUEST: alone(st.builds(m.UpdateTopicRequest, u64, ids, texts, u64, texts, u32, u32)),
    Kind.INSPECT_REQUEST: alone(st.builds(m.InspectRequest, u64, texts, texts, u32, texts)),
    Kind.REPLY: alone(st.builds(m.Reply, u64, codes, texts, texts, u32)),
    Kind.CHANGE_REQUEST: changes(),
    Kind.CHANGE_REPLY: alone(change_replies()),
    Kind.CHUNK_REQUEST: with_body(st.builds(m.ChunkRequest, u64, texts, u32, ids, u64, u32, u32, u64, u32)),
    Kind.CHUNK_REPLY: alone(st.builds(m.ChunkReply, u64, codes, texts, u64, u32, u32, texts)),
    Kind.CONSUMER_FRAME: alone(consumer_frames()),
    Kind.CONSUMER_REPLY: alone(consumer_replies()),
    Kind.PUSH: with_body(pushes()),
    Kind.PUSH_CHUNK: with_body(st.builds(m.PushChunk, texts, ids, u64, u32, u64, u16, u64, u32, u32, texts)),
    Kind.BROWSE_REQUEST: alone(
        st.builds(
            m.BrowseRequest,
            u64,
            texts,
            u32,
            u64,
            u64,
            u64,
            u64,
            u64,
            u32,
            payloads=flags,
            upload=u64,
            chunk=u32,
        )
    ),
    Kind.BROWSE_REPLY: browse_replies(),
    Kind.LOOK_REQUEST: alone(
        st.builds(m.LookRequest, u64, texts, u32, texts, u64, u64, u16, flags, flags, u64, u32, texts)
    ),
    Kind.LOOK_REPLY: with_body(st.builds(m.LookReply, u64, codes, texts, u32, texts, texts)),
}


@st.composite
def relays(draw: st.DrawFn) -> m.Relay:
    inner, inner_bodies = draw(st.one_of(*BETWEEN_CLIENT_AND_BROKER.values()))
    return m.Relay(draw(texts), draw(u64), draw(bodies), draw(flags), inner, inner_bodies)


MESSAGES: dict[Kind, st.SearchStrategy[Any]] = BETWEEN_CLIENT_AND_BROKER | {
    Kind.PEER_FRAME: alone(peer_frames),
    Kind.UPLOAD_CHUNK: with_body(st.builds(m.UploadChunk, texts, u64, u32, u64, u64, u32, u32, u32)),
    Kind.UPLOAD_WANTED: alone(st.builds(m.UploadWanted, texts, u64, u32, u64)),
    Kind.SNAPSHOT_REQUEST: alone(st.builds(m.SnapshotRequest, texts, u64, u32, u64, u64, u32)),
    Kind.SNAPSHOT_CHUNK: with_body(
        st.builds(m.SnapshotChunk, texts, u64, u32, u64, u64, u32, u64, u64, flags, codes)
    ),
    Kind.RELAY: alone(relays()),
}


def test_every_kind_of_message_has_a_strategy() -> None:
    assert MESSAGES.keys() == LAYOUTS.keys()


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.name.lower())
@settings(max_examples=40)
@given(data=st.data())
def test_a_message_comes_back_as_it_went(kind: Kind, data: st.DataObject) -> None:
    message, sent = data.draw(MESSAGES[kind])
    frames = encode(message, sent)
    decoded, received = decode([memoryview(bytes(frame)) for frame in frames])
    assert plain(decoded) == plain(message)
    assert [bytes(body) for body in received] == sent
    assert encode(decoded, received) == frames


@settings(max_examples=150)
@given(entry=records())
def test_a_record_comes_back_as_it_went(entry: LogEntry) -> None:
    data = encode_record(entry.record)
    decoded = decode_record(data)
    assert plain(decoded) == plain(entry.record)
    decoded.encoded = None
    assert encode_record(decoded) == data


@settings(max_examples=300)
@given(frames=st.lists(st.binary(max_size=200), max_size=4))
def test_arbitrary_frames_raise_nothing_but_frame_error(frames: list[bytes]) -> None:
    with pytest.raises(ValueError) as caught:
        decode(frames)
    assert type(caught.value).__name__ == "FrameError"
