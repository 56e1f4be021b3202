"""Answers that come when nobody waits for them any more."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from dueq import Client
from dueq.client.aio.waiting import Bridges, Pending, _Bridge
from dueq.client.calls import Call
from dueq.client.core.ports import events
from dueq.client.core.ports.effects import Completed
from dueq.client.host import Answer
from dueq.client.sync import waiting as threads
from dueq.errors import OutcomeUnknown

UNDONE = events.EndBrowse("of what", 0, 0, "messages")
"""What `undo` makes of the answer `messages`."""


def build(number: int, deadline_us: int) -> events.Event:
    return events.EndBrowse("", 0, 0, "")


def undo(answer: str) -> events.Event:
    return events.EndBrowse("of what", 0, 0, answer)


class Host:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.settle: Callable[[Answer], object] = print
        self.submitted: list[Any] = []

    def call(self, build: object, seconds: float, settle: Callable[[Answer], object]) -> int:
        self.settle = settle
        return 7

    async def answer_in_loop(self, future: asyncio.Future[Answer]) -> Answer:
        return await future

    def submit(self, event: Any) -> None:
        self.submitted.append(event)


@pytest.mark.parametrize("answered", ["before", "until the task knows", "after"])
def test_an_answer_is_not_lost_when_its_task_is_cancelled_at_the_same_instant(answered: str) -> None:
    """It may be of messages that are leased by then: somebody has to give them back."""

    async def run() -> list[Any]:
        host = Host()
        pending = Pending(host, Bridges(), build, 1.0, undo)  # type: ignore[arg-type]
        task = asyncio.create_task(pending.answer())
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
        return host.submitted

    submitted = asyncio.run(run())
    assert len(submitted) == 2
    assert events.Abandon(7) in submitted
    assert UNDONE in submitted


@pytest.mark.parametrize("answered_first", [True, False])
def test_an_answer_is_not_lost_when_its_thread_is_interrupted(answered_first: bool) -> None:
    class Interrupted(Host):
        def wait_done(self, done: object, seconds: float) -> bool:
            if answered_first:
                self.settle(Completed(7, "messages"))
            raise KeyboardInterrupt

    host = Interrupted()
    pending = threads.Pending(host, threads.Bridges(), build, 1.0, undo)  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        pending.answer()
    if not answered_first:
        host.settle(Completed(7, "messages"))
    assert len(host.submitted) == 2
    assert events.Abandon(7) in host.submitted
    assert UNDONE in host.submitted


@pytest.mark.parametrize("answered_first", [True, False])
def test_an_answer_is_not_lost_when_its_thread_is_interrupted_as_it_sends(answered_first: bool) -> None:
    class Interrupted(Host):
        def call(self, build: object, seconds: float, settle: Callable[[Answer], object]) -> int:
            self.settle = settle
            if answered_first:
                settle(Completed(7, "messages"))
            raise KeyboardInterrupt

    host = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        threads.Pending(host, threads.Bridges(), build, 1.0, undo)  # type: ignore[arg-type]
    if not answered_first:
        host.settle(Completed(7, "messages"))
    assert host.submitted == [UNDONE]


def test_a_call_that_is_interrupted_as_it_is_sent_is_abandoned(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that wakes the I/O thread lets it run, and is interrupted when it goes on."""
    client.topics()
    runtime = client.connection.live()
    submitted: list[Any] = []

    def submit(event: Any) -> None:
        submitted.append(event)
        if len(submitted) == 1:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(runtime, "submit", submit)
        with pytest.raises(KeyboardInterrupt):
            client.pull("departures", wait=3600)
    assert [type(event) for event in submitted] == [events.Pull, events.Abandon]
    assert submitted[1].call == submitted[0].call


def test_an_answer_is_not_lost_when_its_thread_is_interrupted_as_it_is_handed_over(client: Client) -> None:
    def finish(found: Any) -> Any:
        raise KeyboardInterrupt

    undone: list[Any] = []

    def undo(found: Any) -> events.Event:
        undone.append(found)
        return UNDONE

    call: Call[Any] = Call(events.FetchTopics, finish, undo)
    with pytest.raises(KeyboardInterrupt):
        client.connection.run(call, 10.0)
    assert undone


def test_an_answer_is_not_lost_when_its_thread_has_waited_in_vain() -> None:
    """The process was stopped for longer than the call's time."""

    class Late(Host):
        def wait_done(self, done: object, seconds: float) -> bool:
            return False

    host = Late()
    pending = threads.Pending(host, threads.Bridges(), build, 1.0, undo)  # type: ignore[arg-type]
    with pytest.raises(OutcomeUnknown):
        pending.answer()
    host.settle(Completed(7, "messages"))
    assert host.submitted == [events.Abandon(7), UNDONE]


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
