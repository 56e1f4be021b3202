"""When the loop waits, and for how long."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable

from dueq.broker.clocks import read_clocks
from dueq.core.ports.effects import Effect, Exit, SendClient
from dueq.core.ports.events import Event, Persisted, Route, RouteLost
from dueq.instant import Now
from dueq_codecs.messages import Code, Reply
from tests.unit.broker.stage import RunningLoop, TellingCore

START = Persisted(0, 0)
END = Persisted(1, 0)


def waits_of(running: RunningLoop) -> list[float]:
    """Have the first wait of a loop end it; returns where its waits are noted, in seconds."""
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        running.loop.stop()

    running.node.waiter.wait = wait  # type: ignore[method-assign]
    return waits


def at(event: Event, *effects: Effect) -> Callable[[Event], list[Effect]]:
    return lambda happened: list(effects) if happened == event else []


def test_all_that_other_threads_have_put_is_heard_in_its_order() -> None:
    core = TellingCore(at(END, Exit("heard")))
    running = RunningLoop(core)
    events = [*(Persisted(number, 0) for number in range(2, 2_000)), END]
    for event in events:
        running.inbox.put(event)
    with running:
        running.join()
    assert core.events == events


def test_the_core_hears_of_a_lost_client_before_the_loop_waits() -> None:
    unsent = Reply(7, Code.OK)
    core = TellingCore(at(START, SendClient(b"nobody", unsent)))
    running = RunningLoop(core)
    waits = waits_of(running)
    running.inbox.put(START)
    with running:
        running.join()
    assert len(waits) == 1
    assert [event for event in core.events if isinstance(event, RouteLost)] == [
        RouteLost(Route(b"nobody"), unsent)
    ]


def test_no_wait_is_longer_than_half_a_second() -> None:
    """The disk is looked at, and numbers are published, though nothing happens and nothing is due."""
    running = RunningLoop(TellingCore())
    waits = waits_of(running)
    with running:
        running.join()
    assert waits == [0.5]


def test_inserts_that_wait_for_the_pace_are_looked_at_when_it_lets_them_in() -> None:
    running = RunningLoop(TellingCore())
    running.loop.inserts.wait_us = lambda now: 20_000  # type: ignore[method-assign]
    waits = waits_of(running)
    with running:
        running.join()
    [waited] = waits
    assert waited <= 0.02


def test_what_is_done_each_second_is_done_at_last_where_the_loop_never_rests() -> None:
    began, past_us = read_clocks(), itertools.count(0, 50_000)

    def clocks() -> Now:
        passed_us = next(past_us)
        return Now(began.wall_us + passed_us, began.mono_us + passed_us)

    core = TellingCore()
    core.next_deadline_us = lambda now: now.mono_us  # type: ignore[method-assign]
    core.step = lambda events, now: (  # type: ignore[method-assign]
        [Exit("enough")] if now.mono_us > began.mono_us + 30_000_000 else []
    )
    running = RunningLoop(core, clocks=clocks)
    with running:
        running.join()
    at_us = [now.mono_us for now in running.published]
    assert len(at_us) >= 5
    assert all(4_000_000 < later - sooner < 6_000_000 for sooner, later in itertools.pairwise(at_us))


def test_a_due_instant_is_waited_for_to_the_microsecond() -> None:
    began = read_clocks()
    core = TellingCore()
    core.next_deadline_us = lambda now: began.mono_us + 12_345  # type: ignore[method-assign]
    running = RunningLoop(core, clocks=lambda: began)
    waits = waits_of(running)
    with running:
        running.join()
    assert waits == [0.012345]


def test_the_interpreter_collects_no_garbage_while_the_loop_runs() -> None:
    collecting: list[bool] = []

    def note(event: Event) -> list[Effect]:
        collecting.append(gc.isenabled())
        return [Exit("seen")]

    running = RunningLoop(TellingCore(note))
    running.inbox.put(START)
    with running:
        running.join()
    assert collecting == [False]
    assert gc.isenabled()
