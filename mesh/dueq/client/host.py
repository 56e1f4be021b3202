"""What runs a session machine: it steps the machine, carries out its effects, and brings answers to callers.

How frames travel, what time it is, and whose thread does the work is left to those who derive from it: the I/O thread
of a process (`runtime`), or a whole mesh inside a test (`dueq.testing`). Nothing here decides anything.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Final, Protocol

from dueq.client.core import ClientCore
from dueq.client.core.ports import effects
from dueq.client.core.ports.delivery import Delivery
from dueq.client.core.ports.events import Abandon, CloseConsumer, Event, Settle
from dueq.client.inbox import Inbox
from dueq.client.logs import log
from dueq.errors import ClientClosed, DueqError, InvalidRequest
from dueq.instant import Now
from dueq_codecs.records import RecordKind

Answer = effects.Completed | effects.Failed
_NOTHING_TO_NOTE: Final = nullcontext()
_DROPPED_S: Final = 30.0
"""What a dropped consumer has settled is confirmed for this long."""
_LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}


class Links(Protocol):
    """Connections to brokers, by number."""

    def open(self, link: int, endpoint: str) -> None:
        """Begin to connect."""
        ...

    def close(self, link: int) -> None:
        """Drop a connection."""
        ...

    def send(self, order: effects.Send) -> None:
        """Send, or report the link lost."""
        ...


class Waking(Protocol):
    """What a thread waits for, as `threading.Event` has it."""

    def wait(self, timeout: float | None = None) -> bool:
        """Return whether it was set in time."""
        ...

    def set(self) -> None:
        """Wake whoever waits."""
        ...


class Done(Protocol):
    """What a caller waits for, as `threading.Lock` has it."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Return whether it was released in time."""
        ...

    def locked(self) -> bool:
        """Return whether it was not released."""
        ...


class SessionHost:
    """One client's session machine at work. Calls may come from any thread.

    Args:
        endpoints: where the first brokers are.
        client_id: 16 bytes, drawn anew for each.
        chance: decides what the machine leaves to it.
        steady: no link falls silent, and leaders stay.

    Attributes:
        client_id: as given.
        forked: this process is a fork of the one that made it, so that it does not work.
    """

    def __init__(
        self, endpoints: Sequence[str], client_id: bytes, chance: random.Random, *, steady: bool = False
    ) -> None:
        self.forked = False
        self.client_id = client_id
        self._core = ClientCore(client_id, endpoints, chance, steady=steady)
        self._calls = itertools.count(1)
        self._queue: deque[Event] = deque()
        self._answers: dict[int, Callable[[Answer], None]] = {}
        self._inboxes: dict[bytes, Inbox] = {}
        self._dropped: deque[tuple[bytes, Inbox]] = deque()
        self._leaving: set[bytes] = set()
        self._has_delivered = False
        self._stopping = False
        self._ended = False
        self._failure: DueqError = ClientClosed("the client is closed")

    # -------------------------------------------------------------- time

    def now(self) -> Now:
        """Return the instant of a step."""
        raise NotImplementedError

    def mono_us(self) -> int:
        """Return the clock for durations, µs."""
        raise NotImplementedError

    def wait(self, waking: Waking, seconds: float | None) -> None:
        """Have this thread wait until it is woken, or time is over."""
        raise NotImplementedError

    def wait_done(self, done: Done, seconds: float) -> bool:
        """Have this thread wait for an answer; returns whether it came in time."""
        raise NotImplementedError

    def sleep(self, seconds: float) -> None:
        """Have this thread do nothing for a while."""
        raise NotImplementedError

    async def wait_in_loop(self, event: asyncio.Event, seconds: float | None) -> None:
        """Have this task wait until the event is set, or time is over; that may set it, too."""
        raise NotImplementedError

    async def answer_in_loop(self, future: asyncio.Future[Answer]) -> Answer:
        """Have this task wait for an answer."""
        raise NotImplementedError

    async def sleep_in_loop(self, seconds: float) -> None:
        """Have this task do nothing for a while."""
        raise NotImplementedError

    # -------------------------------------------------------------- handlers of a run

    def hand_over(self, work: object) -> None:
        """This work is about to be given to a handler, in a thread or task of its own."""

    def handling(self, work: object) -> AbstractContextManager[None]:
        """Enclose a handler's work, in its thread or task."""
        return _NOTHING_TO_NOTE

    def handler_failed(self, error: BaseException) -> None:
        """A handler has raised this."""

    # -------------------------------------------------------------- any thread

    def call(
        self, build: Callable[[int, int], Event], timeout: float, answer: Callable[[Answer], None]
    ) -> int:
        """Send an event that is answered once, within `timeout` seconds; `answer` must be short."""
        call = next(self._calls)
        self._answers[call] = answer
        if self._stopping:
            self._answers.pop(call, None)
            raise self.failure
        try:
            self.submit(build(call, self.mono_us() + int(timeout * 1_000_000)))
        except KeyboardInterrupt:  # it may be on its way, and nobody will wait for it
            self.submit(Abandon(call))
            raise
        if self._ended and self._answers.pop(call, None) is not None:
            raise self.failure
        return call

    @property
    def failure(self) -> DueqError:
        """Why there are no more answers."""
        return type(self._failure)(*self._failure.args)

    def submit(self, event: Event) -> None:
        """Send an event at once."""
        raise NotImplementedError

    def submit_lazily(self, event: Event) -> None:
        """Send an event within 2 ms: many of them cost one awakening."""
        raise NotImplementedError

    def add_inbox(self, consumer_id: bytes, inbox: Inbox) -> None:
        """Deliver this consumer's messages there.

        Raises:
            InvalidRequest: this client has a consumer of the same name.
        """
        for of, dropped in self._dropped_now():  # one of them may have the name
            if self._forget(of, dropped):
                self.submit(self._closing_of(of, dropped.close()))
        if self._inboxes.setdefault(consumer_id, inbox) is not inbox:
            raise InvalidRequest(
                "this client has an open consumer of that name: close it before you open another"
            )

    def remove_inbox(self, consumer_id: bytes) -> None:
        """Drop what still comes for this consumer."""
        self._inboxes.pop(consumer_id, None)

    def drop(self, consumer_id: bytes, inbox: Inbox) -> None:
        """Nobody has this consumer any more. If nobody has closed it, it is closed soon: it would take messages on.

        Takes no lock and calls nobody: garbage is collected in any thread at any instant.
        """
        self._dropped.append((consumer_id, inbox))

    def take_dropped(self) -> list[tuple[bytes, list[Delivery]]]:
        """Return dropped consumers that are not closed yet, each with what it has not handed out.

        The caller closes them, and waits for it.
        """
        found = [(of, inbox.close()) for of, inbox in self._dropped_now() if self._forget(of, inbox)]
        with suppress(KeyError):
            while True:
                consumer_id = self._leaving.pop()
                if consumer_id not in self._inboxes:  # else the next one of that name is open
                    found.append((consumer_id, []))
        return found

    @property
    def clock_known(self) -> bool:
        """Mesh time has been measured."""
        return self._core.clock.best is not None

    def mesh_us(self) -> int:
        """Mesh time now, Unix µs."""
        return self._core.clock.mesh_us(self.now())

    def stop(self, timeout: float = 5.0) -> None:
        """Close the links and end; calls that wait fail with ClientClosed."""
        raise NotImplementedError

    # -------------------------------------------------------------- one thread at a time

    def _step(self, happened: list[Event], links: Links) -> None:
        """Take what has happened and what was submitted; carry out what the machine orders."""
        # First: what they have settled is queued by then.
        dropped = self._dropped_now() if self._dropped else []
        while self._queue:
            happened.append(self._queue.popleft())
        for consumer_id, inbox in dropped:
            if self._forget(consumer_id, inbox):
                happened.append(self._closing_of(consumer_id, inbox.close()))
        for effect in self._core.step(happened, self.now()):
            self._perform(effect, links)

    def _dropped_now(self) -> list[tuple[bytes, Inbox]]:
        found = []
        with suppress(IndexError):  # another thread may take them, too
            while True:
                found.append(self._dropped.popleft())
        return found

    def _forget(self, consumer_id: bytes, inbox: Inbox) -> bool:
        """Return whether nobody has closed it before."""
        if self._inboxes.get(consumer_id) is not inbox:
            return False
        del self._inboxes[consumer_id]
        return True

    def _closing_of(self, consumer_id: bytes, unhandled: list[Delivery]) -> CloseConsumer:
        call = next(self._calls)
        self._leaving.add(consumer_id)
        self._answers[call] = lambda _: self._leaving.discard(consumer_id)
        return CloseConsumer(call, self.mono_us() + int(_DROPPED_S * 1_000_000), consumer_id, unhandled)

    def _perform(self, effect: effects.Effect, links: Links) -> None:
        if isinstance(effect, effects.Send):
            links.send(effect)
        elif isinstance(effect, effects.Completed | effects.Failed):
            answer = self._answers.pop(effect.call, None)
            if answer is not None:
                answer(effect)
        elif isinstance(effect, effects.OpenLink):
            links.open(effect.link, effect.endpoint)
        elif isinstance(effect, effects.CloseLink):
            links.close(effect.link)
        elif isinstance(effect, effects.Log):
            log.log(_LEVELS[effect.level], effect.event, **effect.fields)
        else:
            inbox = self._inboxes.get(effect.consumer_id)
            if inbox is not None:
                self._fill(inbox, effect)

    def _fill(
        self,
        inbox: Inbox,
        effect: effects.Deliver | effects.Reclaim | effects.LeaseLost | effects.ConsumerFailed,
    ) -> None:
        if isinstance(effect, effects.Deliver):
            self._has_delivered = True
            inbox.deliver(effect.deliveries)
        elif isinstance(effect, effects.LeaseLost):
            unhandled = inbox.lose(effect.deliveries)
            if effect.returning:
                self._release(effect.consumer_id, unhandled)
        elif isinstance(effect, effects.ConsumerFailed):
            inbox.fail(effect.error)
        else:
            self._release(effect.consumer_id, inbox.reclaim(effect.deliveries))

    def _release(self, consumer_id: bytes, unhandled: list[Delivery]) -> None:
        if unhandled:
            self._queue.append(Settle(consumer_id, RecordKind.RELEASE, unhandled))

    def _fail_all(self) -> None:
        """Tell everybody who waits that no more answers come."""
        for inbox in list(self._inboxes.values()):
            inbox.fail(self.failure)
        while self._answers:
            call, answer = self._answers.popitem()
            answer(effects.Failed(call, self.failure))
