"""Answers that come when nobody waits for them any more."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from dueq.client.aio.waiting import Bridges, Pending, _Bridge
from dueq.client.core.ports import events
from dueq.client.core.ports.effects import Completed
from dueq.client.host import Answer
from dueq.client.sync import waiting as threads
from dueq.errors import OutcomeUnknown


class Host:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.settle: Callable[[Answer], object] = print
        self.abandoned: list[Any] = []

    def call(self, build: object, seconds: float, settle: Callable[[Answer], object]) -> int:
        self.settle = settle
        return 7

    async def answer_in_loop(self, future: asyncio.Future[Answer]) -> Answer:
        return await future

    def submit(self, event: Any) -> None:
        self.abandoned.append(event)


@pytest.mark.parametrize("answered", ["before", "until the task knows", "after"])
def test_an_answer_is_not_lost_when_its_task_is_cancelled_at_the_same_instant(answered: str) -> None:
    """It may be of messages that are leased by then: somebody has to give them back."""

    async def run() -> list[Answer]:
        host, late = Host(), list[Answer]()
        pending = Pending(host, Bridges(), lambda number, at: events.EndBrowse("", 0, 0, ""), 1.0)  # type: ignore[arg-type]
        task = asyncio.create_task(pending.answer(late.append))
        await asyncio.sleep(0)
        if answered == "before":
            pending._settle(Completed(7, "messages"))
        task.cancel()
        if answered == "after":
            await asyncio.sleep(0)
        if answered != "before":
            pending._settle(Completed(7, "messages"))
        with pytest.raises(asyncio.CancelledError):
            await task
        assert host.abandoned == [events.Abandon(7)]
        return late

    assert asyncio.run(run()) == [Completed(7, "messages")]


@pytest.mark.parametrize("answered_first", [True, False])
def test_an_answer_is_not_lost_when_its_thread_is_interrupted(answered_first: bool) -> None:
    class Interrupted(Host):
        def wait_done(self, done: object, seconds: float) -> bool:
            if answered_first:
                self.settle(Completed(7, "messages"))
            raise KeyboardInterrupt

    host, late = Interrupted(), list[Answer]()
    pending = threads.Pending(host, threads.Bridges(), lambda number, at: events.EndBrowse("", 0, 0, ""), 1.0)  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        pending.answer(late.append)
    if not answered_first:
        host.settle(Completed(7, "messages"))
    assert (host.abandoned, late) == ([events.Abandon(7)], [Completed(7, "messages")])


def test_an_answer_is_not_lost_when_its_thread_has_waited_in_vain() -> None:
    """The process was stopped for longer than the call's time."""

    class Late(Host):
        def wait_done(self, done: object, seconds: float) -> bool:
            return False

    host, late = Late(), list[Answer]()
    pending = threads.Pending(host, threads.Bridges(), lambda number, at: events.EndBrowse("", 0, 0, ""), 1.0)  # type: ignore[arg-type]
    with pytest.raises(OutcomeUnknown):
        pending.answer(late.append)
    host.settle(Completed(7, "messages"))
    assert (host.abandoned, late) == ([events.Abandon(7)], [Completed(7, "messages")])


async def bridge_of(bridges: Bridges) -> _Bridge:
    return bridges.here()


def test_of_loops_that_have_ended_only_the_last_is_kept() -> None:
    """A program may run a loop of its own for each piece of work, and keep the client."""
    bridges, loops = Bridges(), []
    for _ in range(5):
        loop = asyncio.new_event_loop()
        loop.run_until_complete(bridge_of(bridges))
        loop.close()
        loops.append(weakref.ref(loop))
    del loop
    gc.collect()
    assert [found() is None for found in loops] == [True] * 4 + [False]


@pytest.mark.parametrize("in_its_turn", [True, False])
def test_what_comes_for_a_loop_that_has_ended_is_dropped(in_its_turn: bool) -> None:
    bridges, loop = Bridges(), asyncio.new_event_loop()
    bridge = loop.run_until_complete(bridge_of(bridges))
    if in_its_turn:
        bridge.post(print)  # the loop ends before it gets to that
    loop.close()
    for _ in range(10):
        bridge.post(print)
    assert not bridge._waiting
