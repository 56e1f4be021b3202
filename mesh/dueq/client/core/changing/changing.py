"""The changing calls of producers: rows are checked as a whole and cut into parts; their results are
joined.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from dueq import limits
from dueq.client.core.asking.directory import Directory, Topic
from dueq.client.core.asking.keyed import homes, with_hashes
from dueq.client.core.changing.bringing import body_part
from dueq.client.core.changing.joined import Joined
from dueq.client.core.changing.request_windows import RequestWindows
from dueq.client.core.changing.settlements import Settlements
from dueq.client.core.links.calls import Calls
from dueq.client.core.links.context import Context
from dueq.client.core.links.links import Links
from dueq.client.core.ports.change import Part
from dueq.client.core.ports.events import (
    ActOnJob,
    ActOnPass,
    ActOnRecurrence,
    Alter,
    AwaitSettings,
    Insert,
    KeepBody,
    Repeat,
    SetGroup,
)
from dueq.client.core.ports.parts import PartsCall
from dueq.errors import ClientClosed, Disconnected, DueqError, InvalidRequest, OutcomeUnknown, PayloadTooLarge
from dueq_codecs.groups import home_of_group
from dueq_codecs.meta import prefix_bytes
from dueq_codecs.records import NO_U16, NO_U64, U16, OnDuplicate, RecordKind
from dueq_codecs.rules import first_beyond_horizon, home_of, homes_of_recurrence

Event = Insert | Alter | ActOnJob | ActOnRecurrence | AwaitSettings | ActOnPass | SetGroup | KeepBody

_OF_ROWS: Final = (
    "due", "size", "crc", "rank", "group", "window", "expires", "attempts_max", "key_high", "key_low",
    "once_high", "once_low", "once_digest",
)  # fmt: skip
"""Columns of an Insert, one item per row or none."""
_ONE_ROW: Final = ((0, 1),)


class Changing:
    """Insert, Alter, ActOnJob, ActOnRecurrence, AwaitSettings, ActOnPass, SetGroup, KeepBody, Repeat and Abandon."""

    def __init__(
        self, context: Context, calls: Calls, links: Links, directory: Directory, windows: RequestWindows,
        settlements: Settlements,
    ) -> None:  # fmt: skip
        self._context, self._calls, self._links = context, calls, links
        self._directory, self._windows, self._settlements = directory, windows, settlements
        self._open: dict[int, PartsCall] = {}

    def insert(self, event: Insert) -> None:
        """Schedule rows."""
        self._begin(event, PartsCall(event.call, len(event.due)))

    def alter(self, event: Alter) -> None:
        """Move, change or cancel messages."""
        self._begin(event, PartsCall(event.call, len(event.sequence)))

    def act_on_job(self, event: ActOnJob) -> None:
        """Commit, abort or cancel a job."""
        self._begin(event, PartsCall(event.call, 0))

    def await_settings(self, event: AwaitSettings) -> None:
        """Wait until partitions apply settings."""
        self._begin(event, PartsCall(event.call, 0))

    def act_on_pass(self, event: ActOnPass) -> None:
        """Begin or stop a pass, in the partitions that the topic has now."""
        call = PartsCall(event.call, 0)
        self._await(call, event.deadline_us)
        self._look_up(event, call)

    def keep_body(self, event: KeepBody) -> None:
        """End the grace of a shared body."""
        self._begin(event, PartsCall(event.call, 0))

    def act_on_recurrence(self, event: ActOnRecurrence) -> None:
        """Create, change or delete a recurrence, or have it fire."""
        self._begin(event, PartsCall(event.call, 1))

    def set_group(self, event: SetGroup) -> None:
        """Set something for a group."""
        self._begin(event, PartsCall(event.call, 1))

    def repeat(self, event: Repeat) -> None:
        """Send the failed parts again."""
        call = event.of
        error: DueqError | None = None
        if call.owner != self._context.client_id:
            # Whoever is told lives there, and numbers of calls and requests are of others here.
            error = ClientClosed(
                "only the process that this one was forked from can repeat the call: what came of it is not known"
            )
        elif call.call in self._open:
            # Of two that wait for the same parts only one would be told.
            error = OutcomeUnknown("the call is being repeated already: what comes of it is not known yet")
        if error is not None:
            self._calls.begin(event.call, event.deadline_us, lambda: None)
            self._calls.fail(event.call, error)
            return
        call.call = event.call
        failed = [part for part in call.parts if part.error is not None]
        self._await(call, event.deadline_us)
        call.unresolved = len(failed)
        if not failed:
            self._finish(call)
        for part in failed:
            if len(part.token):
                self._settlements.add(part)
            self._windows.repeat(part)

    def abandon(self, call: int) -> None:
        """Nobody waits any more."""
        self._calls.forget(call)
        parts_call = self._open.pop(call, None)
        if parts_call is not None:
            for part in parts_call.parts:
                self._windows.abandon(part)

    # -------------------------------------------------------------- the life of a call

    def _await(self, call: PartsCall, deadline_us: int) -> None:
        self._open[call.call] = call
        call.owner = self._context.client_id
        self._calls.begin(call.call, deadline_us, lambda: self._expired(call))

    def _begin(self, event: Event, call: PartsCall) -> None:
        self._await(call, event.deadline_us)
        topic = self._directory.get(event.topic)
        if topic is not None:
            self._cut(event, call, topic, known=True)
        else:
            self._look_up(event, call)

    def _look_up(self, event: Event, call: PartsCall) -> None:
        self._directory.search(
            event.topic,
            lambda topic: self._fits(event, topic),
            lambda found: self._found(event, call, found),
            lambda: self._calls.is_open(event.call),
        )

    def _fits(self, event: Event, topic: Topic) -> bool:
        """Whether the topic, as known, is one that the event can be about."""
        if isinstance(event, Insert):
            return self._check(event, topic) is None
        if isinstance(event, AwaitSettings):
            return topic.partitions.keys() >= set(event.uids)
        return not isinstance(event, Alter) or topic.partitions.keys() >= set(event.uid.tolist())

    def _found(self, event: Event, call: PartsCall, topic: Topic | DueqError) -> None:
        if not self._calls.is_open(event.call):
            return
        if isinstance(topic, DueqError):
            self._fail(call, topic)
        else:
            self._cut(event, call, topic)

    def _cut(self, event: Event, call: PartsCall, topic: Topic, *, known: bool = False) -> None:
        if isinstance(event, Insert):
            error = self._check(event, topic)
            try:
                event = with_hashes(event, topic)
            except InvalidRequest as refused:
                error = error or refused
            if error is not None and known:
                self._look_up(event, call)  # the topic may have been changed
                return
            homely = event.groups or len(event.key_high) or len(event.once_high)
            cut = self._cut_by_home if homely else self._cut_insert
            parts = [] if error else cut(event, call, topic)
        elif isinstance(event, ActOnJob):
            error, parts = None, self._cut_job(event, call, topic)
        elif isinstance(event, AwaitSettings):
            if known and not self._fits(event, topic):
                self._look_up(event, call)  # some were just added
                return
            error, parts = None, self._cut_settings(event, call)
        elif isinstance(event, SetGroup):
            error, parts = None, [self._part_of_group(event, call, topic)]
        elif isinstance(event, ActOnPass):
            error, parts = None, self._cut_pass(event, call, topic)
        elif isinstance(event, KeepBody):
            error, parts = None, self._cut_body(event, call, topic)
        elif isinstance(event, ActOnRecurrence):
            error, parts = None, self._cut_recurrence(event, call, topic)
        elif self._fits(event, topic):
            error, parts = None, self._cut_alter(event, call)
        elif known:
            self._look_up(event, call)
            return
        else:
            error, parts = _stranger(event, topic), []
        if error is not None:
            self._fail(call, error)
            return
        call.parts, call.unresolved = parts, len(parts)
        if not parts:
            self._finish(call)
        for part in parts:
            self._windows.submit(part)

    def _part_done(self, call: PartsCall) -> None:
        call.unresolved -= 1
        if not call.unresolved:
            self._finish(call)

    def _finish(self, call: PartsCall) -> None:
        self._open.pop(call.call, None)
        error = call.verdict()
        if error is None:
            self._calls.complete(call.call, call)
        else:
            self._calls.fail(call.call, error, call)

    def _fail(self, call: PartsCall, error: DueqError) -> None:
        self._open.pop(call.call, None)
        self._calls.fail(call.call, error)

    def _expired(self, call: PartsCall) -> None:
        if not call.parts:
            troubles = self._links.troubles() or "no broker answered"
            self._fail(
                call, Disconnected(f"the topic could not be looked up in time ({troubles}); nothing was sent")
            )
            return
        for part in call.parts:
            self._windows.expire(part)

    # -------------------------------------------------------------- inserting

    def _check(self, event: Insert, topic: Topic) -> DueqError | None:
        info = topic.info
        if event.partition is not None and not 0 <= event.partition < len(topic.uids):
            return InvalidRequest(
                f"topic {info.name!r} has {len(topic.uids)} partitions, not one {event.partition}"
            )
        allowed = info.payload_bytes_max or limits.PAYLOAD_BYTES_MAX
        longest = int(event.size.max()) if len(event.size) else 0
        for row in np.flatnonzero(event.size > allowed).tolist() if longest > allowed else ():
            stored = event.payloads[row]
            size = len(stored) - prefix_bytes(event.keyed, stored) + _shared_bytes(event)
            if size <= allowed:
                continue
            return PayloadTooLarge(
                f"row {row}: a payload of {size} bytes is longer than the {allowed} that topic "
                f"{info.name!r} allows; nothing was stored"
            )
        mesh_ms = self._context.clock.mesh_us(self._context.now) // 1000 if info.horizon_ms else 0
        late = first_beyond_horizon(event.due, info.horizon_ms, mesh_ms)
        if late is not None:
            return InvalidRequest(
                f"row {late}: due {int(event.due[late])} is beyond the horizon of topic {info.name!r} "
                f"({info.horizon_ms} ms from now)"
            )
        return None

    def _cut_by_home(self, event: Insert, call: PartsCall, topic: Topic) -> list[Part]:
        """The rows of each group, or of keys, go to the partition that is their home."""
        if len(topic.uids) == 1:  # it stays their home when there are more
            return self._cut_insert(event, call, topic, topic.uids[0])
        at_home = homes(event, topic)
        order = np.argsort(at_home, kind="stable")
        columns = {name: column[order] for name in _OF_ROWS if len(column := getattr(event, name))}
        payloads = list(map(event.payloads.__getitem__, order.tolist()))
        event = replace(event, payloads=payloads, partition=None, **columns)
        at_home = at_home[order]
        ends = [*(np.flatnonzero(at_home[1:] != at_home[:-1]) + 1).tolist(), len(order)]
        parts: list[Part] = []
        start = 0
        for end in ends:
            home = int(at_home[start])
            parts += self._cut_insert(event, call, topic, topic.uids[home] if home >= 0 else None, start, end)
            start = end
        call.places, start = [], 0
        for part in parts:
            call.places.append(order[start : start + part.rows])
            start += part.rows
        return parts

    def _cut_insert(
        self,
        event: Insert,
        call: PartsCall,
        topic: Topic,
        home: int | None = None,
        first: int = 0,
        behind: int | None = None,
    ) -> list[Part]:
        """Runs of at most REQUEST_ROWS_MAX rows and REQUEST_BYTES_MAX inline bytes, one partition each.

        Of the rows from `first` up to the one before `behind`. `home`: the uid to which all of them go; None: each run
        may go to another.
        """
        if not topic.uids:
            raise AssertionError(f"topic {topic.info.name!r} has no partitions")
        batcher = self._windows.batcher(event.topic)
        batcher.uids = topic.uids
        turn = event.partition
        cuts = runs(event.size[first:behind] - np.uint32(_shared_bytes(event)), first)
        may_gather = (
            turn is None and home is None and len(cuts) == 1 and not event.job and not event.client_id
        )
        parts = []
        for start, end in cuts:
            payloads = event.payloads[start:end]
            size = event.size[start:end]
            rows = (
                np.flatnonzero(size > limits.CHUNK_BYTES).tolist()
                if int(size.max()) > limits.CHUNK_BYTES and event.shared is None
                else []
            )
            anywhere = may_gather and not rows
            if home is not None:
                uid = home
            elif turn is not None:
                uid = topic.uids[turn % len(topic.uids)]
                turn += 1
            else:
                uid = 0 if anywhere else batcher.next_uid()
            inline: Sequence[bytes | memoryview]
            if isinstance(payloads, Joined):
                inline = payloads.without(rows)
            else:
                inline = payloads if not rows else [p for p in payloads if len(p) <= limits.CHUNK_BYTES]
            group, groups = _groups(event, start, end)
            parts.append(
                Part(
                    RecordKind.INSERT,
                    event.topic,
                    uid,
                    event.client_id or self._context.client_id,
                    end - start,
                    lambda part: self._part_done(call),
                    due=event.due[start:end],
                    size=size,
                    crc=event.crc[start:end],
                    inline=inline,
                    long=[(row, payloads[row]) for row in rows],
                    keyed=event.keyed,
                    rank=event.rank[start:end],
                    window=event.window[start:end],
                    expires=event.expires[start:end],
                    attempts_max=event.attempts_max[start:end],
                    group=group,
                    groups=groups,
                    job=event.job,
                    job_until=event.job_until,
                    anywhere=anywhere,
                    key_high=event.key_high[start:end],
                    key_low=event.key_low[start:end],
                    on_duplicate=event.on_duplicate if len(event.key_high) else OnDuplicate.NONE,
                    shared=event.shared.name if event.shared is not None else b"",
                    shared_size=_shared_bytes(event),
                    body=event.shared,
                    once_high=event.once_high[start:end],
                    once_low=event.once_low[start:end],
                    once_digest=event.once_digest[start:end],
                    claim=event.claim,
                )
            )
        return parts

    def _cut_job(self, event: ActOnJob, call: PartsCall, topic: Topic) -> list[Part]:
        """One row for each partition that is told."""
        home = topic.uids[home_of(event.job, topic.home_partitions)]
        told = [home] if event.at_home else [uid for uid in topic.uids if uid != home]
        return [
            Part(
                RecordKind.JOB,
                event.topic,
                uid,
                self._context.client_id,
                1,
                lambda part: self._part_done(call),
                job=event.job,
                job_until=event.job_until,
                job_action=event.action,
                home_partitions=topic.home_partitions,
            )
            for uid in told
        ]

    def _cut_settings(self, event: AwaitSettings, call: PartsCall) -> list[Part]:
        """One question for each partition."""
        document = f'{{"version":{event.version}}}'
        return [
            Part(
                RecordKind.SETTINGS,
                event.topic,
                uid,
                self._context.client_id,
                1,
                lambda part: self._part_done(call),
                document=document,
            )
            for uid in event.uids
        ]

    def _cut_pass(self, event: ActOnPass, call: PartsCall, topic: Topic) -> list[Part]:
        """One row for each partition."""
        return [
            Part(
                RecordKind.PASS,
                event.topic,
                uid,
                self._context.client_id,
                1,
                lambda part: self._part_done(call),
                name=event.name,
                document=event.document,
            )
            for uid in topic.uids
        ]

    def _cut_body(self, event: KeepBody, call: PartsCall, topic: Topic) -> list[Part]:
        """One row for each partition."""
        done: Callable[[Part], None] = lambda part: self._part_done(call)  # noqa: E731
        return [
            body_part(event.topic, uid, self._context.client_id, event.body, done, event.grace_ms)
            for uid in topic.uids
        ]

    def _part_of_group(self, event: SetGroup, call: PartsCall, topic: Topic) -> Part:
        """Its home partition is told."""
        return Part(
            RecordKind.GROUP,
            event.topic,
            topic.uids[home_of_group(event.group, topic.home_partitions)],
            self._context.client_id,
            1,
            lambda part: self._part_done(call),
            name=event.group,
            document=event.document,
        )

    def _cut_recurrence(self, event: ActOnRecurrence, call: PartsCall, topic: Topic) -> list[Part]:
        """One request to each partition that may have it."""
        homes = homes_of_recurrence(event.name, event.group, topic.info.kind, topic.home_partitions)
        return [
            Part(
                RecordKind.RECURRENCE,
                event.topic,
                topic.uids[home],
                self._context.client_id,
                1,
                lambda part: self._part_done(call),
                name=event.name,
                document=event.document,
                shared=event.body.name if event.body is not None else b"",
                shared_size=event.body.size if event.body is not None else 0,
                body=event.body,
            )
            for home in homes
        ]

    # -------------------------------------------------------------- moving, cancelling

    def _cut_alter(self, event: Alter, call: PartsCall) -> list[Part]:
        """One partition's rows together, in the call's order."""
        parts: list[Part] = []
        places: list[npt.NDArray[np.intp]] = []
        due, rank, amount = event.due, event.rank, event.amount_ms
        for uid in dict.fromkeys(event.uid.tolist()):
            rows = np.flatnonzero(event.uid == uid)
            for start in range(0, len(rows), limits.REQUEST_ROWS_MAX):
                chosen = rows[start : start + limits.REQUEST_ROWS_MAX]
                places.append(chosen)
                parts.append(
                    Part(
                        event.kind,
                        event.topic,
                        uid,
                        self._context.client_id,
                        len(chosen),
                        lambda part: self._part_done(call),
                        first=event.first[chosen],
                        target_sequence=event.sequence[chosen],
                        target_row=event.row[chosen],
                        due=NO_U64 if due is None else due[chosen],
                        rank=NO_U16 if rank is None else rank[chosen],
                        token=NO_U64 if event.token is None else event.token[chosen],
                        amount_ms=NO_U64 if amount is None else np.full(len(chosen), amount, np.uint64),
                        expected=NO_U64 if event.expected is None else event.expected[chosen],
                        fate=np.full(len(chosen) if event.fate else 0, event.fate, np.uint8),
                        reasons=[event.reason] * len(chosen) if event.reason else (),
                        document=event.headers,
                    )
                )
        call.places = places
        for part in parts if event.token is not None else ():
            self._settlements.add(part)
        return parts


def _shared_bytes(event: Insert) -> int:
    """How many bytes of each payload are not in the request."""
    return event.shared.size if event.shared is not None else 0


def _groups(event: Insert, start: int, end: int) -> tuple[U16, tuple[str, ...]]:
    """The place of each row's group among the groups of these rows, and those."""
    if not event.groups:
        return NO_U16, ()
    places = event.group[start:end]
    used = sorted(set(places.tolist()))  # np.unique imports numpy.ma
    return np.searchsorted(used, places).astype(np.uint16), tuple(event.groups[place] for place in used)


def _stranger(event: Alter, topic: Topic) -> InvalidRequest:
    """Return the refusal of ids of which one is of no partition of the topic."""
    row, uid = next((row, uid) for row, uid in enumerate(event.uid.tolist()) if uid not in topic.partitions)
    return InvalidRequest(
        f"row {row}: the message id is of partition {uid}, which topic {event.topic!r} does not have: it belongs to "
        "another topic, or to one that was deleted"
    )


def runs(size: npt.NDArray[np.uint32], first: int = 0) -> Sequence[tuple[int, int]]:
    """Cut rows with these payload sizes into runs that fit one request each: (start, end), in order.

    `first`: the number of the first of these rows.
    """
    rows = len(size)
    if rows == 1 and not first:
        return _ONE_ROW  # what is longer than a chunk is not in it
    inline = np.where(size > limits.CHUNK_BYTES, 0, size)
    ends = np.cumsum(inline, dtype=np.int64)
    if rows <= limits.REQUEST_ROWS_MAX and (not rows or int(ends[-1]) <= limits.REQUEST_BYTES_MAX):
        return [(first, first + rows)] if rows else []
    found: list[tuple[int, int]] = []
    start, before = 0, 0
    while start < rows:
        by_bytes = int(np.searchsorted(ends, before + limits.REQUEST_BYTES_MAX, side="right"))
        end = min(start + limits.REQUEST_ROWS_MAX, by_bytes, rows)
        found.append((first + start, first + end))
        start, before = end, int(ends[end - 1])
    return found
