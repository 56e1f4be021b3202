"""The verbs that every face calls, in the product's words.

Faces make single calls of the SDK on `client`. This module has the verbs that take several calls, and the work that all
faces must do alike.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import groupby
from typing import Final, Protocol, TypeVar

from dueq import AsyncClient, GroupInfo, JobInfo, Outcome, RecurrenceInfo, limits
from dueq.client import arguments, calls, groups, recurrences
from dueq.client.calls import Call, Once
from dueq.client.core.ports.parts import PartsCall, Placed, whole
from dueq.client.core.ports.shared_body import NamedBody
from dueq.client.jobs import Job, naming
from dueq.client.passes import Progress, added
from dueq.client.pulls import Lease
from dueq.errors import (
    DueqError,
    InvalidRequest,
    JobEnded,
    JobNotFound,
    PayloadTooLarge,
    RequestDiffers,
    UnknownBody,
)
from dueq.gateway.flows import Flows
from dueq.gateway.instants import Duration, Instant, chosen_ms
from dueq.gateway.problems import PassUnknown, Unfit
from dueq.gateway.receiving import Receiving
from dueq.gateway.shared_bodies import Bodies

_READY_S = 2.0
_CHANGEABLE: Final = (InvalidRequest, PayloadTooLarge, JobEnded, UnknownBody)
"""Refusals of a request by how jobs, bodies, settings and time stand now: it may have been accepted before."""
_OF_ALL_ROWS: Final = (JobEnded, UnknownBody)
"""Those that concern every row of a call."""
_LOOKS_AT_ONCE: Final = 16
"""Keys of one request whose answers are looked up at once."""


def _monotonic_us() -> int:
    return time.monotonic_ns() // 1000


class _Paged(Protocol):
    """A part of a list by name."""

    after: str


_Page = TypeVar("_Page", bound=_Paged)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message to be scheduled; `due_ms` is Unix ms.

    Attributes:
        once: its idempotency key.
        claim: an idempotency key that is to be taken before it is scheduled.
    """

    payload: bytes | NamedBody
    due_ms: int
    key: str | None = None
    rank: int | None = None
    group: str | None = None
    headers: Mapping[str, str] | None = None
    window: timedelta | None = None
    expires_ms: int | None = None
    max_attempts: int | None = None
    once: Once | None = None
    claim: Once | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """The settings that hold for all messages of one request.

    Attributes:
        job: to which they belong.
        on_duplicate: the rule if a unique key names a message already: refuse, keep or replace.
        fault: why there is no such job for them.
    """

    job: Job | None = None
    on_duplicate: str | None = None
    fault: DueqError | None = None


NO_LOAD = Load()


class Service:
    """One gateway's access to its mesh.

    Attributes:
        client: the SDK.
        receiving: the requests that wait for messages.
        flows: the streams of deliveries.
        shared: the shared bodies that clients name.
        stopping: set when the gateway is about to end.
    """

    def __init__(self, client: AsyncClient) -> None:
        self.client = client
        self.receiving = Receiving(client)
        self.shared = Bodies(client.connection, _monotonic_us)
        self.flows = Flows(client, self.receiving)
        self.stopping = asyncio.Event()

    async def ready(self) -> bool:
        """Return whether a broker answers."""
        try:
            await self.client.connection.run(calls.connect(), _READY_S)
        except DueqError:
            return False
        return not self.stopping.is_set()

    async def now_us(self) -> int:
        """Return mesh time, Unix µs."""
        return (await self.client.connection.clock(True, None))()

    async def due_ms(self, due: Instant | None, delay: Duration | None, where: str = "body") -> int:
        """Return the instant that one of two arguments names, as Unix ms; now, if neither is given.

        Raises:
            Unfit: both are given, or what is given is no instant or duration.
        """
        return chosen_ms(due, delay, await self.now_us(), where)

    async def schedule(self, topic: str, messages: Sequence[NewMessage], load: Load = NO_LOAD) -> list[str]:
        """Schedule messages: all or none of them, if they are at most 1,000 of together 1 MiB and have no keys.

        Args:
            topic: its name.
            messages: what to schedule; all have the same shared body, or none.
            load: what holds of all.

        Returns:
            Their ids, in order.

        Raises:
            KeyTaken: the only message has a key that names another.
            RequestDiffers: its idempotency key came with another request before.
            PartialFailure: some of many rows are refused so; its outcomes have an id or an error each.
        """
        placed = await self.place(topic, messages, load)
        return whole([each.id if isinstance(each, Placed) else each for each in placed])

    async def place(
        self, topic: str, messages: Sequence[NewMessage], load: Load = NO_LOAD
    ) -> list[Placed | DueqError]:
        """Schedule messages; an id and a due instant for each, or why its key refuses it."""
        claims = {message.claim: None for message in messages if message.claim is not None}
        if not claims or load.fault is not None:  # what is refused at any rate takes no key
            return await self._place_once(topic, messages, load)
        call = calls.claim(arguments.topic_name(topic), list(claims), await self._clock())
        answers = await self.client.connection.run(call, None)
        refused = {
            claim: answer
            for claim, answer in zip(claims, answers, strict=True)
            if isinstance(answer, DueqError)
        }
        sound = [message for message in messages if message.claim not in refused]
        left = iter(await self._place_once(topic, sound, load) if sound else ())
        return [refused[message.claim] if message.claim in refused else next(left) for message in messages]

    async def _place_once(
        self, topic: str, messages: Sequence[NewMessage], load: Load
    ) -> list[Placed | DueqError]:
        """Schedule messages; what is refused by now, and was accepted when it came first, gets its first answer."""
        try:
            return await self._place(topic, messages, load)
        except _CHANGEABLE as error:
            if not isinstance(error, _OF_ALL_ROWS) and not _of_one_request(messages):
                raise  # it is the fault of some rows: the caller sends each by itself
            answers: list[Placed | RequestDiffers | None] = []
            for begin in range(0, len(messages), _LOOKS_AT_ONCE):
                asked = messages[begin : begin + _LOOKS_AT_ONCE]
                answers += await asyncio.gather(*(self._first_answer(topic, each) for each in asked))
            if not any(answers):
                raise
            return [error if answer is None else answer for answer in answers]

    async def _first_answer(self, topic: str, message: NewMessage) -> Placed | RequestDiffers | None:
        if message.once is None:
            return None
        try:
            call = calls.first_answer(topic, message.once, message.key, message.group)
        except InvalidRequest:
            return None  # no message was ever like this
        return await self.client.connection.run(call, None)

    async def _place(
        self, topic: str, messages: Sequence[NewMessage], load: Load
    ) -> list[Placed | DueqError]:
        if load.fault is not None:
            raise load.fault
        if len(messages) == 1 and messages[0].key is None and load.on_duplicate is not None:
            raise InvalidRequest(f"on_duplicate is {load.on_duplicate!r:.80}, and the message has no key")
        name = arguments.topic_name(topic)
        body = messages[0].payload if messages else None
        if isinstance(body, NamedBody):
            await self.shared.keep(name, body)
        ranked = any(message.rank is not None for message in messages)
        call = calls.schedule_many(
            name,
            [message.payload for message in messages],
            [message.due_ms for message in messages],
            await self._clock(),
            keys=[message.key for message in messages],
            ranks=[message.rank or 0 for message in messages] if ranked else None,
            groups=[message.group for message in messages],
            headers=[message.headers for message in messages],
            window=_column([message.window for message in messages]),
            expires=_column([message.expires_ms for message in messages]),
            max_attempts=_column([message.max_attempts for message in messages]),
            job=naming(load.job, name),
            on_duplicate=load.on_duplicate,
            once=[message.once for message in messages],
        )
        return await self.client.connection.run(Call(call.build, PartsCall.placed), None)

    async def _clock(self) -> Callable[[], int]:
        return await self.client.connection.clock(False, None)

    async def settle(
        self,
        topic: str,
        leases: Sequence[Lease],
        how: str,
        *,
        delay: timedelta | None = None,
        seconds: timedelta | None = None,
        reason: str = "",
        dead: bool = False,
        headers: Mapping[str, str] | None = None,
    ) -> list[Outcome]:
        """Settle leases, as the SDK does, and tell the streams that have sent their messages."""
        outcomes = await self.client.settle(
            topic, leases, how, delay=delay, seconds=seconds, reason=reason, dead=dead, headers=headers
        )
        self.flows.settled(topic, leases, outcomes, seconds)
        return outcomes

    def stop(self) -> None:
        """The gateway is about to end: requests that wait get what there is."""
        self.stopping.set()
        self.receiving.stop()
        self.flows.stop()

    async def forecast(self, topic: str, begin_ms: int, end_ms: int, step_ms: int) -> list[tuple[int, int]]:
        """Return (begin of a step as Unix ms, messages due in it), empty steps left out.

        Args:
            topic: its name.
            begin_ms, end_ms: from when until when, Unix ms; at most an hour.
            step_ms: length of a step, whole seconds.

        Raises:
            Unfit: it ends before it begins, or before now, or is too long.
        """
        now_ms = await self.now_us() // 1000
        most = limits.FORECAST_SECONDS_MAX
        from_ms = max(begin_ms, min(now_ms, end_ms))
        first = from_ms // 1000 * 1000
        length = -(-(end_ms - first) // 1000)
        if end_ms <= begin_ms or end_ms <= now_ms or end_ms - from_ms > most * 1000:
            asked = (end_ms - begin_ms) / 1000
            text = f"a forecast is of 1 to {most} seconds that are ahead, not of {asked}"
            raise Unfit(text, asked, most, "query.until")
        ahead = -(-(end_ms - now_ms) // 1000)
        if ahead <= most:
            counts = await self.client.forecast(topic, ahead)
        else:
            counts = await self.client.forecast(topic, min(length, most), start=first)
            if length > most:  # an hour that begins amid a second ends amid one more
                counts += await self.client.forecast(topic, 1, start=first + most * 1000)
        totals: dict[int, int] = {}
        for second, count in counts:
            if first <= second < end_ms:
                at = first + (second - first) // step_ms * step_ms
                totals[at] = totals.get(at, 0) + count
        return sorted(totals.items())

    async def progress(self, topic: str, name: str) -> Progress:
        """Return how far a pass is; of several names, separated by spaces, how far all of them are.

        Raises:
            PassUnknown: no partition knows it, or not any more.
        """
        each = [
            _known(topic, one, await self.client.pass_named(topic, one).refresh()) for one in _names(name)
        ]
        return added(each)

    async def stop_pass(self, topic: str, name: str) -> Progress:
        """Stop a pass, or several; its changes so far stay. Raises as `progress`."""
        each = [_known(topic, one, await self.client.pass_named(topic, one).stop()) for one in _names(name)]
        return added(each)

    async def job(self, topic: str, name: str) -> JobInfo:
        """Return a job.

        Raises:
            JobNotFound: nothing is known of it.
        """
        info = await self.client.job(topic, name)
        if info is None:
            raise JobNotFound(f"topic {topic!r} knows of no job {name!r}")
        return info

    async def end_job(self, topic: str, name: str, commit: bool) -> JobInfo:
        """Commit a hidden job, or abort it; raises as `commit_job` and `abort_job`."""
        info = await self.job(topic, name)
        job = Job(topic, name, bytes.fromhex(info.key), info.until_ms, "open")
        await (self.client.commit_job(job) if commit else self.client.abort_job(job))
        return await self.job(topic, name)

    async def groups(self, topic: str, after: str, limit: int) -> tuple[list[GroupInfo], bool]:
        """Return the next groups after a name, and whether there are more."""
        return await self._some(partial(groups.page, topic), lambda page: page.groups, after, limit)

    async def recurrences(self, topic: str, after: str, limit: int) -> tuple[list[RecurrenceInfo], bool]:
        """Return the next recurrences after a name, and whether there are more."""
        return await self._some(partial(recurrences.page, topic), lambda page: page.recurrences, after, limit)

    async def _some(
        self, ask: Callable[[str], Call[_Page]], of: Callable[[_Page], list[T]], after: str, limit: int
    ) -> tuple[list[T], bool]:
        found: list[T] = []
        while len(found) <= limit:
            page = await self.client.connection.run(ask(after), None)
            found += of(page)
            after = page.after
            if not after:
                break
        return found[:limit], len(found) > limit


def by_bodies(messages: Iterable[NewMessage]) -> list[int]:
    """Return how many messages, one after the other, each call can take: all have the same shared body, or none."""
    bodies = (each.payload if isinstance(each.payload, NamedBody) else None for each in messages)
    return [sum(1 for _ in run) for _, run in groupby(bodies)]


def _of_one_request(messages: Sequence[NewMessage]) -> bool:
    """Whether one idempotency key holds for all: else they are lines, each with its own or none."""
    claims = {message.claim for message in messages}
    return len(messages) == 1 or (len(claims) == 1 and None not in claims)


def _column(values: list[T | None]) -> list[T | None] | None:
    """A column of an array; None, if no row has a value."""
    return values if any(value is not None for value in values) else None


def _names(name: str) -> list[str]:
    """Return the names of passes: of a purge of all messages there are two, with a space between."""
    return name.split(" ", 1)


def _known(topic: str, name: str, found: Progress) -> Progress:
    if not found.known:
        raise PassUnknown(f"topic {topic!r} knows of no pass {name!r:.80}, or not any more", name)
    return found
