"""A garbled answer or push of a broker is none: it is counted, and what waits for it still gets the right one.

Each kind of frame that a client takes is spoilt one field at a time: cut short, too long, out of range, of others.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from zlib import crc32

import numpy as np
import pytest

from dueq import limits
from dueq.client.core.ports import events
from dueq.client.core.ports.effects import Completed, Deliver, Effect, Failed, Log, Send
from dueq_codecs.fields import Column, Scalar, Structs, Text, Texts
from dueq_codecs.frames import decode, encode
from dueq_codecs.layouts import KINDS, LAYOUTS, Kind
from dueq_codecs.messages import (
    BrokerMessage,
    BrowseReply,
    BrowseRequest,
    ChangeReply,
    ChangeRequest,
    ChunkReply,
    ChunkRequest,
    Code,
    ConsumerFrame,
    ConsumerReply,
    CreateTopicRequest,
    DeleteTopicRequest,
    Hello,
    InspectRequest,
    LookReply,
    LookRequest,
    MetadataReply,
    MetadataRequest,
    PushChunk,
    Reply,
    UpdateTopicRequest,
)
from dueq_codecs.records import JobAction, Outcome, RecordKind
from tests.unit.client.stage import (
    TOPIC,
    Stage,
    attached,
    confirm,
    delivered,
    hello_reply,
    of,
    ok,
    push,
    sent,
    settle,
)

CALL = 7
PATIENCE_MS = 100_000
TEXTS = ("", "{", "[" * 100_000, "x" * 300, '{"a":[1]}', "[-1]", f"[{1 << 80}]")
MOST = {"B": 255, "H": (1 << 16) - 1, "I": (1 << 32) - 1, "Q": (1 << 64) - 1, "q": (1 << 63) - 1, "?": 1}
LONG = bytes(range(256)) * 1024 * 2 + b"end"


@dataclass
class Waiting:
    """A client on a stage that waits for a frame of broker a, and the right one.

    Attributes:
        done: whether these effects show that it was taken.
    """

    stage: Stage
    right: BrokerMessage
    body: bytes | None = None
    done: Callable[[Sequence[Effect]], bool] = field(
        default=lambda effects: bool([done for done in of(effects, Completed) if done.call == CALL])
    )

    def receive(self, message: BrokerMessage, body: bytes | None) -> list[Effect]:
        """A frame comes by wire; what is sent then goes by wire too, and results are read as callers read them."""
        effects = self.stage.receive("a", *by_wire(message, body))
        effects += self.stage.run_until(self.stage.ms + 10)
        for effect in effects:
            if isinstance(effect, Send):
                encode(effect.message, effect.bodies)
            if (
                isinstance(effect, Completed)
                and isinstance(self.right, ChangeReply)
                and effect.value is not None
            ):
                read(effect.value)
        return effects

    def receive_right(self) -> list[Effect]:
        """The right answer comes, to the newest copy of the question."""
        effects = self.stage.run_until(self.stage.ms + 300)
        asked = [effect.message for effect in self.stage.effects if isinstance(effect, Send)]
        if hasattr(self.right, "request_id"):
            numbers = {each.request_id: type(each) for each in asked if hasattr(each, "request_id")}
            kind = numbers[self.right.request_id]
            newest = max(number for number, each in numbers.items() if each is kind)
            right: Any = replace(self.right, request_id=newest)
        elif hasattr(self.right, "attach"):
            right = replace(self.right, attach=newest_attach(self.stage))
            if right.attach > self.right.attach and isinstance(right, ConsumerReply):
                right.push_sent = 0  # it was asked for what is missing, and there is nothing
        else:
            right = self.right
        return effects + self.receive(right, self.body)


def newest_attach(stage: Stage) -> int:
    return max(frame.attach for frame in sent(stage.effects, ConsumerFrame))


def read(value: Any) -> None:
    """Read what a change has brought."""
    if isinstance(value, list):
        return
    if any(part.kind is RecordKind.INSERT for part in value.parts):
        assert len(value.found()) == len(value.placed()) == value.rows
    else:
        assert len(value.outcomes()) == value.rows or not value.rows


def by_wire(message: BrokerMessage, body: bytes | None) -> tuple[BrokerMessage, bytes | None]:
    came, bodies = decode([bytes(frame) for frame in encode(message, [] if body is None else [body])])
    return came, bytes(bodies[0]) if bodies else None  # type: ignore[return-value]


def connected(**options: Any) -> Stage:
    stage = Stage(**options)
    stage.connect()
    stage.learn_topic()
    return stage


def begun(stage: Stage, event: events.Event, kind: type[Any]) -> Any:
    [request] = sent(stage.step(event), kind)
    return request


def until(stage: Stage) -> int:
    return stage.at_us(stage.ms + PATIENCE_MS)


def u64(*numbers: int) -> Any:
    return np.array(numbers, np.uint64)


# ------------------------------------------------------------------ who waits for what


def insert() -> Waiting:
    stage = connected()
    [request] = sent(stage.insert(CALL, b"x", b"yy", timeout_ms=PATIENCE_MS), ChangeRequest)
    return Waiting(stage, ok(request, 90))


def insert_in_windows() -> Waiting:
    stage = connected()
    event = events.Insert(
        CALL, until(stage), TOPIC, [b"x", b"y"], u64(5, 5), np.array([1, 1], np.uint32),
        np.array([crc32(b"x"), crc32(b"y")], np.uint32), window=np.array([10, 10], np.uint32),
    )  # fmt: skip
    return Waiting(
        stage, replace(ok(begun(stage, event, ChangeRequest), 90), window=np.array([3, 10], np.uint32))
    )


def insert_that_meets() -> Waiting:
    stage = connected()
    [request] = sent(stage.insert(CALL, b"x", b"yy", timeout_ms=PATIENCE_MS), ChangeRequest)
    met = replace(
        ok(request, 90, outcomes=[Outcome.DONE, Outcome.KEPT]), present_first=u64(5), present_sequence=u64(80),
        present_row=np.array([1], np.uint16), present_due=u64(5),
    )  # fmt: skip
    return Waiting(stage, met)


def move() -> Waiting:
    stage = connected()
    event = events.Alter(
        CALL, until(stage), RecordKind.MOVE, TOPIC, u64(5, 5), u64(1, 1), u64(50, 50), np.array([0, 1], np.uint16),
        due=u64(6, 6),
    )  # fmt: skip
    return Waiting(stage, ok(begun(stage, event, ChangeRequest), 90, outcomes=[0, 0]))


def job() -> Waiting:
    stage = connected()
    event = events.ActOnJob(CALL, until(stage), TOPIC, JobAction.COMMIT, b"j" * 16, 9_000, True)
    return Waiting(stage, ok(begun(stage, event, ChangeRequest), 90, outcomes=[0]))


def _settled(kind: RecordKind, amount_ms: int = 0) -> Waiting:
    stage = Stage()
    attached(stage)
    [request] = settle(stage, kind, *delivered(stage, "a", b"x", b"y"), call=CALL, amount_ms=amount_ms)
    return Waiting(stage, ok(request, 90, outcomes=[0, 0]))


def ack() -> Waiting:
    return _settled(RecordKind.ACK)


def extend() -> Waiting:
    return _settled(RecordKind.EXTEND, 60_000)


def upload() -> Waiting:
    stage = connected()
    [request] = sent(stage.insert(CALL, LONG, timeout_ms=PATIENCE_MS), ChunkRequest)
    safe = ChunkReply(request.request_id, Code.OK, upload=77, chunk=0)
    return Waiting(stage, safe, done=lambda effects: bool(sent(effects, ChunkRequest)))


def page() -> Waiting:
    stage = connected()
    request = begun(stage, events.Browse(CALL, until(stage), TOPIC, 0, 5, "a", limit=3), BrowseRequest)
    columns: dict[str, Any] = {
        name: np.arange(2, dtype=dtype)
        for name, dtype in (
            ("wait_at", np.uint64), ("first", np.uint64), ("due", np.uint64), ("sequence", np.uint64),
            ("row", np.uint16), ("crc", np.uint32), ("attempt", np.uint16), ("keyed", np.uint8),
            ("upload", np.uint64), ("rank", np.uint16), ("version", np.uint64), ("of", np.uint64),
            ("expires", np.uint64), ("died_at", np.uint64), ("reason", np.uint16), ("group", np.uint16),
            ("heading", np.uint16),
        )
    }  # fmt: skip
    size = np.array([1, 1], np.uint32)
    reply = BrowseReply(
        request.request_id, Code.OK, snapshot=5, leader="a", size=size, body_size=size, reasons=("", "why"),
        groups=("a", "b"), headings=("", '{"a":"b"}'), **columns,
    )  # fmt: skip
    return Waiting(stage, reply, b"xy")


def chunk_of_a_page() -> Waiting:
    stage = connected()
    event = events.Browse(CALL, until(stage), TOPIC, 0, 5, "a", payloads=True, upload=3, chunk=1)
    request = begun(stage, event, BrowseRequest)
    return Waiting(stage, BrowseReply(request.request_id, Code.OK, snapshot=5), b"piece")


def message() -> Waiting:
    stage = connected()
    request = begun(stage, events.Look(CALL, until(stage), TOPIC, 1, "message", 5, 6, 7), LookRequest)
    document = json.dumps({"upload": 0, "size": 4})
    return Waiting(stage, LookReply(request.request_id, Code.OK, document=document), b"body")


def topics() -> Waiting:
    stage = connected()
    request = begun(stage, events.FetchTopics(CALL, until(stage)), MetadataRequest)
    return Waiting(stage, stage.metadata(request.request_id))


def topic_of_an_insert() -> Waiting:
    stage = Stage()
    stage.connect()
    [request] = sent(stage.insert(CALL, b"x", timeout_ms=PATIENCE_MS), MetadataRequest)
    return Waiting(
        stage, stage.metadata(request.request_id), done=lambda effects: bool(sent(effects, ChangeRequest))
    )


def creation() -> Waiting:
    stage = connected()
    event = events.CreateTopic(CALL, until(stage), b"c" * 16, "new", replicas=1)
    request = begun(stage, event, CreateTopicRequest)
    reply = Reply(request.request_id, Code.OK, document="[8]")
    return Waiting(stage, reply, done=lambda effects: bool(sent(effects, MetadataRequest)))


def change_of_a_topic() -> Waiting:
    stage = connected()
    event = events.UpdateTopic(CALL, until(stage), b"u" * 16, TOPIC, "{}")
    request = begun(stage, event, UpdateTopicRequest)
    document = {"version": 1, "update": (b"u" * 16).hex(), "partitions": [1]}
    return Waiting(stage, Reply(request.request_id, Code.OK, document=json.dumps(document)))


def deletion() -> Waiting:
    stage = connected()
    request = begun(stage, events.DeleteTopic(CALL, until(stage), TOPIC), DeleteTopicRequest)
    return Waiting(stage, Reply(request.request_id, Code.OK))


def inspection() -> Waiting:
    stage = connected()
    request = begun(stage, events.Inspect(CALL, until(stage), "status"), MetadataRequest)
    [asked] = sent(stage.receive("a", stage.metadata(request.request_id)), InspectRequest)
    return Waiting(stage, Reply(asked.request_id, Code.OK, document="{}"))


def greeting() -> Waiting:
    stage = Stage()
    opened = stage.step(events.Connect(CALL, until(stage)))
    opened += stage.step(events.LinkReady(stage.links["tcp://a:7400"]))
    hello = sent(opened, Hello)[-1]
    return Waiting(stage, hello_reply("a", hello.sent_wall_us, stage.now.wall_us))


def consumer() -> Waiting:
    stage = Stage()
    stage.connect()
    frame = sent(stage.consume(), ConsumerFrame)[-1]

    def answers_a_beat(effects: Sequence[Effect]) -> bool:
        [session] = stage.core._consumers[frame.consumer_id]._leaders.sessions.values()
        return session.attached and session.answered_us >= frame.attach

    return Waiting(stage, confirm(frame, waiting=3), done=answers_a_beat)


def messages() -> Waiting:
    stage = Stage()
    attached(stage)
    pushed, body = push("a", 1, 1, [b"x", b"yy"])
    pushed = replace(
        pushed, rank=np.array([1, 2], np.uint16), version=u64(1, 2), group=np.array([0, 1], np.uint16),
        groups=("a", "b"), expires=u64(8_000, 9_000), shared=np.array([0, 1], np.uint16),
        shared_size=np.array([1], np.uint32), heading=np.array([0, 1], np.uint16), headings=("", '{"a":"b"}'),
    )  # fmt: skip
    return Waiting(stage, pushed, body, lambda effects: bool(of(effects, Deliver)))


def long_message() -> Waiting:
    """The last chunk comes after the push."""
    stage = Stage()
    attached(stage)
    pushed, _ = push("a", 1, 1, [LONG])
    stage.receive("a", pushed, b"")
    pieces = [LONG[at : at + limits.CHUNK_BYTES] for at in range(0, len(LONG), limits.CHUNK_BYTES)]
    chunks = [
        PushChunk(TOPIC, pushed.consumer_id, 1, 1, 50, 0, 60, number, len(pieces), "a")
        for number in range(len(pieces))
    ]
    for chunk, piece in zip(chunks[:-1], pieces[:-1], strict=True):
        stage.receive("a", chunk, piece)

    def is_delivered(effects: Sequence[Effect]) -> bool:
        return bool(of(stage.receive("a", pushed, b""), Deliver))

    return Waiting(stage, chunks[-1], pieces[-1], is_delivered)


def _pulled() -> tuple[Stage, ConsumerFrame]:
    stage = connected()
    event = events.Pull(CALL, until(stage), TOPIC, 10, 20_000_000, 30_000, 1 << 20, b"", [])
    return stage, begun(stage, event, ConsumerFrame)


def end_of_a_pull() -> Waiting:
    stage, frame = _pulled()
    pushed, body = push("a", frame.attach, 1, [b"x"], consumer_id=frame.consumer_id)
    stage.receive("a", pushed, body)
    return Waiting(stage, replace(confirm(frame, push_sent=1), ended=True))


def messages_of_a_pull() -> Waiting:
    stage, frame = _pulled()
    stage.receive("a", replace(confirm(frame, push_sent=1), ended=True))
    pushed, body = push("a", frame.attach, 1, [b"x"], consumer_id=frame.consumer_id)

    def is_over(effects: Sequence[Effect]) -> bool:
        end = replace(confirm(frame, push_sent=1), ended=True, attach=newest_attach(stage))
        return bool(of([*effects, *stage.receive("a", end)], Completed))

    return Waiting(stage, pushed, body, is_over)


WAITS = (
    insert, insert_in_windows, insert_that_meets, move, job, ack, extend, upload, page, chunk_of_a_page, message,
    topics, topic_of_an_insert, creation, change_of_a_topic, deletion, inspection, greeting, consumer, messages,
    long_message, end_of_a_pull, messages_of_a_pull,
)  # fmt: skip


# ------------------------------------------------------------------ what comes instead


def spoilt(message: BrokerMessage, body: bytes | None) -> Iterator[tuple[BrokerMessage, bytes | None]]:
    """Yield it with one field spoilt; all but its code, which says what it is."""
    for each in LAYOUTS[KINDS[type(message)]].fields:
        if each.name == "code" or not hasattr(message, each.name):
            continue
        value = getattr(message, each.name)
        for other in others_of(each, value):
            yield replace(message, **{each.name: other}), body
    if isinstance(message, MetadataReply):
        for info in message.topics:
            yield from ((replace(message, topics=(other,)), body) for other in other_topics(info))
    if body is not None:
        yield from ((message, other) for other in (b"", body[:-1], body + b"x", body * 2, bytes(300 << 10)))


def others_of(each: Any, value: Any) -> Iterator[Any]:
    if isinstance(each, Scalar):
        yield from (0, 1, MOST[each.code] // 3, MOST[each.code])
    elif isinstance(each, Column):
        most = np.iinfo(value.dtype).max
        yield from (value[:0], value[:-1], np.append(value, value.dtype.type(0)), np.full_like(value, most))
        yield from (np.full(rows, fill, value.dtype) for rows in (1, 2, 3) for fill in (0, 7, 255, most))
    elif isinstance(each, Structs):
        yield from (value[:0], value[:-1], np.concatenate([value, value[:1]]))
        for name in value.dtype.names:
            other = value.copy()
            other[name] = np.iinfo(value.dtype[name]).max
            yield other
    elif isinstance(each, Texts):
        yield from ((), value[:-1], (*value, "more"))
        yield from (tuple(text for _ in value) for text in TEXTS)
    elif isinstance(each, Text):
        yield from TEXTS
    else:
        yield b"foreign of 16 b."


def other_topics(info: Any) -> Iterator[Any]:
    [part] = info.partitions
    yield from (replace(info, partitions=parts) for parts in ((), (part, part)))
    yield replace(info, partitions=(replace(part, uid=MOST["I"]),))
    yield from (replace(info, name=name) for name in ("", "another"))
    yield from (replace(info, settings=text) for text in ("{", '{"keys":"unique"', '{"keys":["unique"]}'))
    for name in ("home_partitions", "replicas", "min_isr"):
        yield replace(info, **{name: MOST["I"]})
    yield replace(info, horizon_ms=MOST["Q"])
    yield replace(info, payload_bytes_max=MOST["Q"])


def ends(effects: Sequence[Effect]) -> bool:
    """Whether what was spoilt was an answer all the same: another one, but not a wrong one; or a damaged payload."""
    damaged = any(request.kind is RecordKind.NACK for request in sent(effects, ChangeRequest))
    ended = any(effect.call == CALL for effect in effects if isinstance(effect, Completed | Failed))
    return ended or damaged or bool(of(effects, Deliver))


@pytest.mark.parametrize("begin", WAITS, ids=lambda begin: begin.__name__)
def test_what_is_garbled_ends_nothing_and_the_right_answer_is_still_taken(
    begin: Callable[[], Waiting],
) -> None:
    first = begin()
    assert first.done(first.receive(first.right, first.body))
    for spoilt_one, body in spoilt(first.right, first.body):
        waiting = begin()
        try:
            by_wire(spoilt_one, body)
        except ValueError:
            continue  # refused before anybody is asked
        effects = waiting.receive(spoilt_one, body)
        if not (waiting.done(effects) or ends(effects)):
            effects = waiting.receive_right()
            assert waiting.done(effects) or ends(effects), spoilt_one


@pytest.mark.parametrize("begin", WAITS, ids=lambda begin: begin.__name__)
def test_frames_of_every_other_kind_end_nothing(begin: Callable[[], Waiting]) -> None:
    """Each kind that a broker may send, with the number of the question; and those that only clients send."""
    waiting = begin()
    number = getattr(waiting.right, "request_id", 1)
    for kind in (
        Kind.METADATA_REPLY,
        Kind.REPLY,
        Kind.CHANGE_REPLY,
        Kind.CHUNK_REPLY,
        Kind.BROWSE_REPLY,
        Kind.LOOK_REPLY,
    ):
        other = LAYOUTS[kind].message(number, Code.OK)
        if type(other) is not type(waiting.right):
            body = b"" if kind in (Kind.BROWSE_REPLY, Kind.LOOK_REPLY) else None
            assert not ends(waiting.receive(other, body))
    for asked in (effect for effect in waiting.stage.effects if isinstance(effect, Send)):
        assert not ends(waiting.receive(asked.message, bytes(asked.bodies[0]) if asked.bodies else None))  # type: ignore[arg-type]
    assert waiting.done(waiting.receive_right())


WRONG: tuple[tuple[Callable[[], Waiting], dict[str, Any]], ...] = (
    (insert, {"uid": 2}),
    (insert, {"row": 65_535}),
    (insert, {"sequence": limits.SEQUENCE_MAX + 1}),
    (insert, {"stamp": limits.DUE_MS_MAX + 1}),
    (insert, {"outcomes": np.array([0], np.uint8)}),
    (insert, {"outcomes": np.array([7, 0], np.uint8)}),
    (insert, {"window": np.array([0, 1], np.uint32)}),
    (insert_in_windows, {"window": np.array([0], np.uint32)}),
    (insert_in_windows, {"window": np.array([0, 11], np.uint32)}),
    (insert_that_meets, {"present_sequence": u64(limits.SEQUENCE_MAX + 1)}),
    (move, {"outcomes": np.array([0], np.uint8)}),
    (move, {"outcomes": np.array([0, 0, 0], np.uint8)}),
    (job, {"outcomes": np.array([0, 0], np.uint8)}),
    (ack, {"outcomes": np.array([0], np.uint8)}),
    (extend, {"outcomes": np.array([0, 0, 0], np.uint8)}),
    (upload, {"upload": 0}),
    (upload, {"chunk": 1}),
    (page, {"snapshot": 6}),
    (page, {"of": u64(1 << 48, 1 << 48)}),
    (page, {"headings": ("", "[]")}),
    (message, {"document": '{"upload":-1,"size":1}'}),
    (consumer, {"number": 1_000}),
    (messages, {"headings": ("", '{"a":1}')}),
    (messages, {"shared_size": np.array([3], np.uint32)}),
    (long_message, {"chunk": 3}),
)


@pytest.mark.parametrize(
    ("begin", "fields"), WRONG, ids=lambda each: getattr(each, "__name__", None) or str([*each])
)
def test_what_cannot_be_right_is_counted_and_logged(
    begin: Callable[[], Waiting], fields: dict[str, Any]
) -> None:
    waiting = begin()
    effects = waiting.receive(replace(waiting.right, **fields), waiting.body)
    assert not ends(effects)
    [line] = [log for log in of(effects, Log) if log.event == "answer.refused"]
    assert (line.fields["count"], line.fields["kind"]) == (1, type(waiting.right).__name__)
    assert waiting.done(waiting.receive(waiting.right, waiting.body))


def test_a_change_whose_answer_was_garbled_is_repeated_and_its_outcome_is_unknown_before() -> None:
    waiting = insert()
    stage = waiting.stage
    [request] = sent(stage.effects, ChangeRequest)[-1:]
    garbled = replace(waiting.right, outcomes=np.array([0], np.uint8))
    waiting.receive(garbled, None)
    assert sent(stage.run_until(stage.ms + 1_000), ChangeRequest) == [request]
    [failed] = of(stage.run_until(stage.ms + PATIENCE_MS), Failed)
    assert type(failed.error).__name__ == "OutcomeUnknown"


def test_pushes_with_the_name_of_all_that_wait_are_nobodys() -> None:
    stage = connected()
    name = stage.core._pulling._waiting.name
    pushed, body = push("a", 1, 1, [b"x"], consumer_id=name)
    assert not of(stage.receive("a", pushed, body), Deliver)
    assert not of(stage.receive("a", PushChunk(TOPIC, name, 1, 1, 50, 0, 60, 0, 1), b"x"), Deliver)


def test_pages_of_topics_that_do_not_go_on_are_asked_for_again() -> None:
    stage = connected()
    request = begun(stage, events.FetchTopics(CALL, until(stage)), MetadataRequest)
    page_of_all = replace(stage.metadata(request.request_id), more=True)
    [following] = sent(stage.receive("a", page_of_all), MetadataRequest)
    assert following.after == TOPIC
    assert not sent(
        stage.receive("a", replace(page_of_all, request_id=following.request_id)), MetadataRequest
    )
    [again] = sent(stage.run_until(stage.ms + 200), MetadataRequest)
    last = MetadataReply(again.request_id, Code.OK)
    [done] = of(stage.receive("a", last), Completed)
    assert [info.name for info in done.value.topics] == [TOPIC]


def test_a_clock_that_shows_no_instant_is_not_believed() -> None:
    stage = Stage()
    opened = stage.step() + stage.step(events.LinkReady(stage.links["tcp://a:7400"]))
    hello = sent(opened, Hello)[-1]
    for offset in (-(1 << 63), (1 << 63) - 1):
        stage.receive("a", hello_reply("a", hello.sent_wall_us, stage.now.wall_us, offset))
    assert stage.core.clock.best is None
