"""Calls as values: the event to send, and how to convert the answer. Both faces run the same ones."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, NamedTuple, TypeVar

import numpy as np

from dueq import ids, limits
from dueq.client import arguments, per_row, reading, times
from dueq.client.arguments import Payload
from dueq.client.core import PartsCall
from dueq.client.core.asking.looking import LookAnswer
from dueq.client.core.ports import events
from dueq.client.core.ports.delivery import Delivery
from dueq.client.core.ports.effects import Failed
from dueq.client.core.ports.parts import Placed
from dueq.client.core.ports.shared_body import NamedBody
from dueq.client.endings import Ending
from dueq.client.message_ids import MessageIds
from dueq.client.payloads import PayloadColumns, payload_columns
from dueq.client.per_row import Headers, IdColumns
from dueq.client.receipt import Receipt
from dueq.client.statistics import StatisticsPart, statistics_part
from dueq.client.times import Due, Seconds
from dueq.client.topics import TopicInfo
from dueq.client.unique import duplicates, unique_key
from dueq.errors import (
    DueqError,
    InvalidRequest,
    MessageLeased,
    MessageNotFound,
    OutcomeUnknown,
    PartialFailure,
    Refused,
    RequestDiffers,
    StaleLease,
    VersionDiffers,
)
from dueq_codecs.meta import Meta
from dueq_codecs.records import NO_U16, NO_U64, U16, U64, Outcome, RecordKind
from dueq_codecs.rules import once_hashes

T = TypeVar("T")

Versions = int | Iterable[int | None] | None

NO_JOB: Final = (b"", 0)


class Once(NamedTuple):
    """An idempotency key of a row, and 64 bits over what is asked for with it."""

    name: bytes
    digest: int


_NEVER_ASKED: Final = Once(b"", 0)


@dataclass(slots=True)
class Call(Generic[T]):
    """One call.

    Attributes:
        build: the event, from call number and deadline (monotonic µs).
        finish: the caller's result, from the value of Completed.
        undo: what has happened if that value comes when the caller is gone; None: nothing.
        of_one: it is about one thing that any of several partitions may have: an error of one of them is the call's.
        bytes: of the payloads that it holds, keys and headers included; 0 for most kinds of calls.
        reads: it only reads: while the partition that knows is between two leaders, it is asked again.
    """

    build: Callable[[int, int], events.Event]
    finish: Callable[[Any], T]
    undo: Callable[[Any], events.Event] | None = None
    of_one: bool = False
    bytes: int = 0
    reads: bool = False


Steps = Generator[Call[Any] | float, Any, T]
"""Calls to be run one after the other, each answered with its result; a number is seconds to wait."""


def unread(call: Call[list[str]]) -> Call[MessageIds]:
    """Return the call that leaves ids as numbers."""
    return Call(call.build, MessageIds.of)


def repeated(failed: Failed, call: Call[T]) -> Call[T]:
    """Return the call that sends the same requests again, as far as any were sent."""
    sent = failed.repeat
    if sent is None:
        return call
    return Call(
        lambda number, deadline_us: events.Repeat(number, deadline_us, sent), call.finish, of_one=call.of_one
    )


def error_of(failed: Failed, call: Call[Any], run: Callable[[Call[Any], float | None], Any]) -> DueqError:
    """Return the error to raise; `run` runs a retry."""
    sent = failed.repeat
    # One error may belong to many callers whose rows shared a request; each raises its own copy.
    error = copy.copy(failed.error)
    again = repeated(failed, call)
    if sent is not None:
        failures = sent.failures
        alike = len(failures) == len(sent.parts) and len({type(failure) for failure in failures}) == 1
        if len(sent.parts) > 1 and not call.of_one and not (alike and isinstance(error, Refused)):
            text = (
                f"{len(failures)} of {len(sent.parts)} requests of the call failed, the first: {failures[0]}"
            )
            return PartialFailure(text, sent.mixed(), partial(run, again))
    if isinstance(error, OutcomeUnknown):
        return OutcomeUnknown(str(error), partial(run, again))
    return error


def _nothing(value: Any) -> None:
    return None


# ---------------------------------------------------------------- topics and reading


def connect() -> Call[None]:
    """Wait for any broker."""
    return Call(events.Connect, _nothing)


def measure() -> Call[None]:
    """Wait for a broker that knows the mesh's time."""
    return Call(lambda number, at: events.Connect(number, at, measured=True), _nothing)


def topics() -> Call[list[TopicInfo]]:
    """All topics."""
    return Call(events.FetchTopics, reading.topic_infos)


def partition_count(topic: str) -> Call[int]:
    """How many partitions a topic has."""
    name = arguments.topic_name(topic)
    return Call(
        lambda number, at: events.FetchTopics(number, at, name), lambda reply: len(reply.topics[0].partitions)
    )


def describe(topic: str) -> Call[TopicInfo]:
    """One topic with counts."""
    name = arguments.topic_name(topic)
    return Call(lambda number, at: events.Inspect(number, at, "describe", name), reading.described)


def forecast(topic: str, seconds: int) -> Call[list[tuple[int, int]]]:
    """Counts of messages that are due soon."""
    name = arguments.topic_name(topic)
    ahead = arguments.count(seconds, "seconds", 1, limits.FORECAST_SECONDS_MAX)
    return Call(lambda number, at: events.Inspect(number, at, "forecast", name, ahead), reading.forecast)


def forecast_known(topic: str, seconds: int) -> Call[tuple[list[tuple[int, int]], int | None]]:
    """Counts of messages that are due soon, and up to when they are exact."""
    call = forecast(topic, seconds)
    return Call(call.build, lambda found: (reading.forecast(found), reading.known_until(found)))


def catalogues() -> Call[dict[str, reading.Mark]]:
    """What marks the topics and settings that each broker knows: another one whenever they are others."""
    return Call(lambda number, at: events.Inspect(number, at, "catalogue"), reading.marks)


def hours(topic: str) -> Call[list[tuple[int, int]]]:
    """Counts of messages that wait, by hour."""
    name = arguments.topic_name(topic)
    return Call(lambda number, at: events.Inspect(number, at, "hours", name), reading.hours)


def statistics(from_hour: int) -> Call[StatisticsPart]:
    """Some hours of what every broker has counted."""
    return Call(
        lambda number, at: events.Inspect(number, at, "statistics", seconds=from_hour), statistics_part
    )


def status(topic: str = "") -> Call[dict[str, Any]]:
    """The status of all brokers; of one topic, if one is named."""
    return Call(lambda number, at: events.Inspect(number, at, "status", topic), reading.status)


def create_topic(
    name: str,
    kind: str,
    partitions: int,
    replicas: int | None,
    min_isr: int | None,
    payload_bytes_max: int | None,
    horizon: Seconds | None,
    exist_ok: bool,
    settings: Mapping[str, Any],
) -> Call[None]:
    """Make a topic."""
    arguments.topic_name(name)
    arguments.one_of(kind, "kind", arguments.KINDS)
    arguments.count(partitions, "partitions", 1, limits.PARTITIONS_MAX)
    copies = 0 if replicas is None else arguments.count(replicas, "replicas", 1, limits.REPLICAS_MAX)
    least = 0 if min_isr is None else arguments.count(min_isr, "min_isr", 1, copies or limits.REPLICAS_MAX)
    longest = 0
    if payload_bytes_max is not None:
        longest = arguments.count(payload_bytes_max, "payload_bytes_max", 1, limits.PAYLOAD_BYTES_MAX)
    ahead_ms = 0
    if horizon is not None:
        ahead_ms = times.duration_ms(horizon, "horizon", 0, limits.DUE_MS_MAX)
    creation_id = os.urandom(16)
    document = json.dumps(settings, sort_keys=True) if settings else ""

    def build(number: int, deadline_us: int) -> events.Event:
        return events.CreateTopic(
            number,
            deadline_us,
            creation_id,
            name,
            kind,
            partitions,
            copies,
            least,
            longest,
            ahead_ms,
            exist_ok,
            document,
        )

    return Call(build, _nothing)


def delete_topic(name: str) -> Call[None]:
    """Delete a topic."""
    arguments.topic_name(name)
    named: list[int] = []
    return Call(lambda number, at: events.DeleteTopic(number, at, name, named), _nothing)


# ---------------------------------------------------------------- producing


def schedule(
    topic: str,
    payload: Payload,
    due: Due,
    mesh_us: Callable[[], int],
    key: str | None = None,
    rank: int | None = None,
    group: str | None = None,
    headers: Mapping[str, str] | None = None,
    window: Seconds | None = None,
    expires: Due | None = None,
    max_attempts: int | None = None,
    on_duplicate: str | None = None,
) -> Call[str]:
    """One row."""
    keys = None if key is None else [key]
    duplicates(on_duplicate, hidden=False)
    if keys is None and on_duplicate is not None:
        raise InvalidRequest(f"on_duplicate is {on_duplicate!r:.80}, and the message has no key")
    try:
        many = schedule_many(
            topic,
            [payload],
            due,
            mesh_us,
            keys=keys,
            ranks=rank,
            groups=None if group is None else [group],
            headers=None if headers is None else [headers],
            window=window,
            expires=expires,
            max_attempts=max_attempts,
            on_duplicate=on_duplicate,
        )
    except InvalidRequest as error:
        # There is one message: nobody has spoken of rows.
        raise InvalidRequest(str(error).removeprefix("row 0: ")) from None
    return Call(many.build, lambda call: many.finish(call)[0])


def schedule_many(
    topic: str,
    payloads: Iterable[Payload],
    dues: Due | Iterable[Due],
    mesh_us: Callable[[], int],
    client_id: bytes = b"",
    partition: int | None = None,
    *,
    keys: Iterable[str | None] | None = None,
    ranks: int | Iterable[int] | None = None,
    groups: str | Iterable[str | None] | None = None,
    headers: Headers | None = None,
    window: Seconds | Sequence[Seconds | None] | None = None,
    expires: Due | Sequence[Due | None] | None = None,
    max_attempts: int | Sequence[int | None] | None = None,
    on_duplicate: str | None = None,
    job: tuple[bytes, int] = NO_JOB,
    once: Sequence[Once | None] | None = None,
) -> Call[list[str]]:
    """Many rows; `job` is its key and until when it is hidden, `once` has their idempotency keys."""
    if isinstance(payloads, bytes | bytearray | memoryview | str):
        raise InvalidRequest(f"payloads is a sequence of payloads, not one {type(payloads).__name__}")
    listed = payloads if isinstance(payloads, Sequence) else list(arguments.rows_of(payloads, "payloads"))
    prefixes = per_row.prefixes_of(keys, headers, len(listed))
    columns = payload_columns(listed, prefixes)
    due = times.due_column(dues, len(columns.payloads), mesh_us)
    rank = per_row.rank_column(ranks, len(columns.payloads))
    if len(rank) and not rank.any():
        rank = NO_U16  # what no rank says, too
    group, names = per_row.group_columns(groups, len(columns.payloads))
    windows = times.window_column(window, due)
    ends = times.end_columns(expires, max_attempts, len(columns.payloads), mesh_us)
    times.check_expiries(ends.expires, due, windows)
    does = duplicates(on_duplicate, hidden=bool(job[1]))
    high, low, digests = _once_columns(once or ())

    def build(number: int, deadline_us: int) -> events.Event:
        return events.Insert(
            number, deadline_us, topic, columns.payloads, due, columns.size, columns.crc, client_id, partition,
            keyed=prefixes.mode, job=job[0], job_until=job[1], rank=rank, group=group, groups=names,
            window=windows, expires=ends.expires, attempts_max=ends.attempts_max, shared=columns.shared,
            on_duplicate=does, once_high=high, once_low=low, once_digest=digests,
        )  # fmt: skip

    elsewhere = columns.shared.size if columns.shared is not None else 0
    held_bytes = int(columns.size.sum(dtype=np.uint64)) - len(listed) * elsewhere
    return Call(build, PartsCall.ids, bytes=held_bytes)


def claim(topic: str, once: Sequence[Once], mesh_us: Callable[[], int]) -> Call[list[str | DueqError]]:
    """Take idempotency keys for requests whose rows lie elsewhere; an error for each that came with another request."""
    count = len(once)
    due = times.due_column(mesh_us() // 1000, count, mesh_us)
    nothing = np.zeros(count, np.uint32)
    high, low, digests = _once_columns(once)

    def build(number: int, deadline_us: int) -> events.Event:
        return events.Insert(
            number, deadline_us, topic, [b""] * count, due, nothing, nothing, once_high=high, once_low=low,
            once_digest=digests, claim=True,
        )  # fmt: skip

    return Call(build, PartsCall.found)


def first_answer(
    topic: str, once: Once, key: str | None, group: str | None
) -> Call[Placed | RequestDiffers | None]:
    """What the first request with an idempotency key was answered, if it was this one; None: there was none.

    Args:
        topic: its name.
        once: the key of a message.
        key, group: of the same message.

    Raises:
        InvalidRequest: no topic has such a name, or no message such a key or group.
    """
    name = arguments.topic_name(topic)
    named, within = unique_key(key) if key else "", per_row.one_group(group) if group else None

    def build(number: int, deadline_us: int) -> events.Event:
        return events.Look(
            number, deadline_us, name, 0, "message", current=True, key=named, group=within, once=once.name
        )

    def finish(answer: LookAnswer) -> Placed | RequestDiffers | None:
        found: dict[str, Any] = json.loads(answer.document) if answer.document else {}
        if not found:
            return None
        if found["digest"] != once.digest:
            return RequestDiffers("its idempotency key came with another request before")
        message_id = ids.MessageId(*found["answered"])
        return Placed(ids.to_text(message_id), found["due"]) if message_id.sequence else None

    return Call(build, finish)


def _once_columns(once: Sequence[Once | None]) -> tuple[U64, U64, U64]:
    asked = [each or _NEVER_ASKED for each in once]
    if not any(each.name for each in asked):
        return NO_U64, NO_U64, NO_U64
    high, low = once_hashes([each.name for each in asked])
    return high, low, np.array([each.digest for each in asked], np.uint64)


def schedule_columns(
    topic: str,
    columns: PayloadColumns,
    due: U64,
    keyed: Meta,
    client_id: bytes,
    partition: int,
    job: tuple[bytes, int] = NO_JOB,
    rank: U16 = NO_U16,
    group: U16 = NO_U16,
    groups: tuple[str, ...] = (),
) -> Call[Receipt]:
    """Many rows that are columns already, for one partition; where they have groups, for the homes of these."""
    due = times.whole_ms_column(due, len(columns.size))
    if not rank.any():
        rank = NO_U16
    if not any(groups):
        group, groups = NO_U16, ()

    def build(number: int, deadline_us: int) -> events.Event:
        return events.Insert(
            number, deadline_us, topic, columns.payloads, due, columns.size, columns.crc, client_id, partition,
            keyed=keyed, job=job[0], job_until=job[1], shared=columns.shared, rank=rank, group=group, groups=groups,
        )  # fmt: skip

    return Call(build, Receipt)


def keep_body(topic: str, body: NamedBody, grace_ms: int | None) -> Call[tuple[int, int]]:
    """Keep a shared body in every partition, or bring it there (see `KeepBody`); how many keep it, and of how many."""

    def finish(call: PartsCall) -> tuple[int, int]:
        outcomes = [outcome for part in call.parts for outcome in part.outcomes()]
        return outcomes.count(Outcome.DONE), len(outcomes)

    return Call(lambda number, at: events.KeepBody(number, at, topic, body, grace_ms), finish)


def end_body(topic: str, body: NamedBody) -> Call[int]:
    """End the grace of a shared body; how many partitions kept it."""
    if not isinstance(body, NamedBody):
        raise InvalidRequest(f"a shared body is what producer.body returns, not {body!r:.80}")

    kept = keep_body(topic, body, 0)
    return Call(kept.build, lambda call: kept.finish(call)[0])


def cancel(topic: str, message_ids: Iterable[str], if_versions: Versions = None) -> Call[list[Outcome]]:
    """Cancel messages; one outcome per id."""
    columns = per_row.id_columns(message_ids)
    return _alter(topic, RecordKind.CANCEL, columns, if_versions)


def move(
    topic: str,
    message_ids: Iterable[str],
    dues: Due | Iterable[Due],
    mesh_us: Callable[[], int],
    if_versions: Versions = None,
) -> Call[list[Outcome]]:
    """Move messages; one outcome per id."""
    columns = per_row.id_columns(message_ids)
    due = times.due_column(dues, len(columns.uid), mesh_us)
    return _alter(topic, RecordKind.MOVE, columns, if_versions, due=due)


def trigger(topic: str, message_ids: Iterable[str], if_versions: Versions = None) -> Call[list[Outcome]]:
    """Have messages delivered now; one outcome per id."""
    columns = per_row.id_columns(message_ids)
    return _alter(topic, RecordKind.TRIGGER, columns, if_versions)


def change(
    topic: str, message_ids: Iterable[str], ranks: int | Iterable[int] | None, if_versions: Versions = None
) -> Call[list[Outcome]]:
    """Give messages other ranks; one outcome per id."""
    columns = per_row.id_columns(message_ids)
    if ranks is None:
        raise InvalidRequest(f"a change names a rank between 0 and {limits.RANK_MAX}, not None")
    rank = per_row.rank_column(ranks, len(columns.uid))
    return _alter(topic, RecordKind.CHANGE, columns, if_versions, rank=rank)


def redrive(
    topic: str,
    message_ids: Iterable[str],
    dues: Due | Iterable[Due] | None,
    mesh_us: Callable[[], int],
    if_versions: Versions = None,
) -> Call[list[Outcome]]:
    """Let dead messages wait again; one outcome per id."""
    columns = per_row.id_columns(message_ids)
    count = len(columns.uid)
    due = times.due_column(0 if dues is None else dues, count, mesh_us)
    return _alter(topic, RecordKind.REDRIVE, columns, if_versions, due=due)


def discard(topic: str, message_ids: Iterable[str], if_versions: Versions = None) -> Call[list[Outcome]]:
    """Discard dead messages; one outcome per id."""
    return _alter(topic, RecordKind.DISCARD, per_row.id_columns(message_ids), if_versions)


def _alter(
    topic: str,
    kind: RecordKind,
    columns: IdColumns,
    if_versions: Versions,
    due: U64 | None = None,
    rank: U16 | None = None,
) -> Call[list[Outcome]]:
    expected = per_row.version_column(if_versions, len(columns.uid))

    def build(number: int, deadline_us: int) -> events.Event:
        return events.Alter(number, deadline_us, kind, topic, *columns, due, rank, expected=expected)

    return Call(build, PartsCall.outcomes)


def one_id(message_id: str) -> list[str]:
    """Return the id as the only one of a call.

    Raises:
        InvalidRequest: it is no str.
    """
    if not isinstance(message_id, str):
        raise InvalidRequest(f"a message id is a str of 26 characters, not {message_id!r}")
    return [message_id]


def done(many: Call[list[Outcome]], topic: str, message_id: str) -> Call[None]:
    """Return the call about one message that raises anything but DONE."""

    def finish(call: PartsCall) -> None:
        outcome = many.finish(call)[0]
        if outcome is Outcome.LEASED:
            raise MessageLeased(f"message {message_id} of {topic!r} is with a consumer: too late")
        if outcome is Outcome.NOT_FOUND:
            raise MessageNotFound(
                f"message {message_id} of {topic!r} is done, cancelled or expired, or never was"
            )
        if outcome is Outcome.DEAD:
            raise MessageNotFound(
                f"message {message_id} of {topic!r} is dead: it can be redriven or discarded only"
            )
        if outcome is Outcome.CHANGED:
            raise VersionDiffers(
                f"message {message_id} of {topic!r} has another version: nothing was changed"
            )
        if outcome is not Outcome.DONE:
            raise OutcomeUnknown(f"what became of message {message_id} of {topic!r} is not known any more")

    return Call(many.build, finish)


# ---------------------------------------------------------------- consuming


def open_consumer(
    consumer_id: bytes,
    topic: str,
    credit: int,
    credit_bytes: int,
    lease_ms: int,
    life: int = 0,
    detached: bool = False,
) -> Call[None]:
    """Attach a consumer; `life` numbers this process, if it has a name."""

    def build(number: int, deadline_us: int) -> events.Event:
        return events.OpenConsumer(
            number, deadline_us, consumer_id, topic, credit, credit_bytes, lease_ms,
            min(limits.ACK_LINGER_MS, lease_ms // 10) * 1000, life, detached,
        )  # fmt: skip

    return Call(build, _nothing)


def settle(
    consumer_id: bytes, kind: RecordKind, deliveries: Sequence[Delivery], ending: Ending
) -> Call[list[Outcome]]:
    """Settle and wait; a refusal is raised once all are settled."""

    def build(number: int, deadline_us: int) -> events.Event:
        return events.Settle(
            consumer_id, kind, deliveries, ending.amount_ms, number, deadline_us, ending.fate, ending.reason,
            ending.headers,
        )  # fmt: skip

    def finish(outcomes: list[Outcome]) -> list[Outcome]:
        refused = [d for d, outcome in zip(deliveries, outcomes, strict=True) if outcome is not Outcome.DONE]
        if refused:
            raise StaleLease(
                f"{kind.name}: the leases of {len(refused)} of {len(deliveries)} messages are over or others have "
                f"followed, first {refused[0].id} (token {refused[0].token}); the rest is done",
                outcomes,
            )
        return outcomes

    return Call(build, finish)


def close_consumer(consumer_id: bytes, unhandled: Sequence[Delivery]) -> Call[None]:
    """Give back, confirm, say goodbye."""
    return Call(lambda number, at: events.CloseConsumer(number, at, consumer_id, unhandled), _nothing)
