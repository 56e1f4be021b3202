"""How tasks wait for the mesh. The loop is the test's own, so nothing waits really, and nothing runs beside it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from dueq.client.host import Answer
from dueq.testing.errors import NotAtRest
from dueq.testing.threads import PATIENCE_S
from dueq.testing.world import HOPE_US, World

_ROUNDS: Final = 20
"""Rounds of the loop in which nobody is at work, before time moves on."""
_NEVER_US: Final = 1 << 62


@dataclass(slots=True)
class _Waiter:
    event: asyncio.Event
    until_us: int
    at_work: bool = False


class Tasks:
    """The tasks of one test.

    Args:
        world: whose clock they move.

    Attributes:
        owner: the test's own task: time moves while it waits.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.owner: asyncio.Task[Any] | None = None
        self._waiters: dict[asyncio.Task[Any], _Waiter] = {}
        self._handed_over: dict[object, asyncio.Task[Any]] = {}

    def hand_over(self, work: object) -> None:
        """A task is about to have this to do."""
        task = asyncio.current_task()
        assert task is not None
        self._handed_over[work] = task

    @contextmanager
    def handling(self, work: object) -> Iterator[None]:
        """This task is at work on it, but for when it waits for the mesh."""
        task = asyncio.current_task()
        assert task is not None
        self._waiters[task] = _Waiter(asyncio.Event(), 0, at_work=True)
        del self._handed_over[work]
        try:
            yield
        finally:
            self._waiters.pop(task, None)

    async def wait(self, event: asyncio.Event, until_us: int | None) -> None:
        """Have this task wait until the event is set, or the clock shows `until_us`; None: for however long it takes.

        Raises:
            NotAtRest: nothing can set it any more, and it is the owner who waits.
        """
        task = self._adopted()
        if task is self.owner:
            await self._pass(event, until_us)
            return
        waiter = self._waiters[task] = _Waiter(event, _NEVER_US if until_us is None else until_us)
        try:
            await event.wait()
        finally:
            waiter.at_work = True

    async def answer(self, future: asyncio.Future[Answer]) -> Answer:
        """Have this task wait for an answer; time moves as far as that needs."""
        self._adopted()
        while not future.done():
            await self._yield(future)
            if not future.done():
                self.step(self._world.next_us())
        return future.result()

    async def move(self, until_us: int, event: asyncio.Event | None = None, *, patient: bool = False) -> None:
        """Let time pass until an instant, until an event is set, or until a handler has failed (not if patient)."""
        self._world.settle()
        while True:
            await self.rest()
            if event is not None and event.is_set():
                return
            if self._world.errors and not patient:
                return
            if self.step(until_us):
                await self.rest()
                return

    def _adopted(self) -> asyncio.Task[Any]:
        """Return this task: it is the owner if the one before has ended, as a task that sets a test up does.

        Another task in the loop, which has never waited for messages, may be the test's own: then it is not.
        """
        task = asyncio.current_task()
        assert task is not None
        if (self.owner is None or self.owner.done()) and asyncio.all_tasks() <= {task, *self._waiters}:
            self.owner = task
        return task

    async def _pass(self, event: asyncio.Event, until_us: int | None) -> None:
        """Let time pass while the owner waits."""
        while True:
            await self.move(self._world.now().mono_us + HOPE_US if until_us is None else until_us, event)
            self._world.surface()
            if until_us is not None or event.is_set():
                return
            self._world.expect()

    def step(self, until_us: int) -> bool:
        """Move to the next instant at which something happens; see `World.step`."""
        reached = self._world.step(until_us)
        self._wake()
        return reached

    async def rest(self) -> None:
        """Return when all tasks that have waited for messages wait again, or have ended.

        Raises:
            NotAtRest: one is at work for too long.
        """
        give_up = time.monotonic() + PATIENCE_S
        quiet = 0
        while quiet < _ROUNDS:
            busy = self._busy()
            quiet = quiet + 1 if busy is None else 0
            if busy is not None and time.monotonic() > give_up:
                where = busy.get_stack(limit=1)
                raise NotAtRest(f"{busy!r} is at work for {PATIENCE_S:g} s already, at {where}")
            await asyncio.sleep(0)

    async def _yield(self, future: asyncio.Future[Answer]) -> None:
        for _ in range(_ROUNDS):
            if future.done():
                return
            await asyncio.sleep(0)

    def _busy(self) -> asyncio.Task[Any] | None:
        for task in self._handed_over.values():
            return task
        for task, waiter in list(self._waiters.items()):
            if task.done():
                del self._waiters[task]
            elif waiter.at_work or waiter.event.is_set():
                return task
        return None

    def _wake(self) -> None:
        """Wake those whose time is over."""
        now_us = self._world.now().mono_us
        for waiter in self._waiters.values():
            if not waiter.at_work and now_us >= waiter.until_us:
                waiter.event.set()
