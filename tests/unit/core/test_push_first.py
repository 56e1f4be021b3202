"""What was laid out leaves at its instant before the input of a turn is heard, if nothing else is needed for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from dueq import limits
from dueq.client.sync import Consumer
from dueq.core.broker import BrokerCore
from dueq.core.ports.effects import Effect, SendClient
from dueq.instant import Now
from dueq.testing import Mesh, mesh
from dueq_codecs.messages import Push


class Laid(NamedTuple):
    """A message that is leased and will be pushed."""

    mesh: Mesh
    core: BrokerCore
    consumer: Consumer
    due: Now


@contextmanager
def laid() -> Iterator[Laid]:
    with mesh() as inside, inside.client() as client:
        client.create_topic("t", partitions=1)
        with client.consumer("t") as consumer:
            assert consumer.receive(1, timeout=0) == []
            due_ms = inside.now_ms + 2_000
            client.producer("t").schedule(b"soon", due_ms)
            inside.advance(1.999)
            world = inside._world
            now = world.now()
            wait_us = due_ms * 1000 - now.wall_us
            assert 0 < wait_us <= 2_000
            yield Laid(inside, world.broker._core, consumer, later(now, wait_us))


def later(now: Now, us: int) -> Now:
    return Now(now.wall_us + us, now.mono_us + us)


def pushes(effects: list[Effect]) -> list[Push]:
    return [
        each.message for each in effects if isinstance(each, SendClient) and isinstance(each.message, Push)
    ]


def test_it_leaves_at_its_instant_and_never_before() -> None:
    with laid() as it:
        assert it.core.push(later(it.due, -1)) == []
        (push,) = pushes(it.core.push(it.due))
        assert push.released_at_us == it.due.wall_us
        assert it.core.push(it.due) == []
        assert pushes(it.core.step([], it.due)) == []


def test_who_was_paused_hears_first() -> None:
    with laid() as it:
        late = later(it.due, limits.PAUSE_MS * 1000 + 1)
        assert it.core.push(late) == []
        assert it.core.metrics.pauses == 0
        it.core.step([], late)
        assert it.core.metrics.pauses == 1


def test_nothing_leaves_by_a_clock_that_has_stepped() -> None:
    with laid() as it:
        stepped = Now(it.due.wall_us + 10 * limits.CLOCK_STEP_MS * 1000, it.due.mono_us)
        assert it.core.push(stepped) == []
        assert pushes(it.core.step([], stepped)) == []
        assert it.core.push(stepped) == []


def test_the_first_turn_is_a_whole_one() -> None:
    with laid() as it:
        it.core._armed_us = None
        assert it.core.push(it.due) == []


def test_a_pause_is_noticed_though_nothing_is_due() -> None:
    with mesh() as inside, inside.client() as client:
        client.create_topic("t", partitions=1)
        inside.advance(1)
        core, now = inside._world.broker._core, inside._world.now()
        gap_us = core.next_deadline_us(now) - now.mono_us + limits.PAUSE_MS * 1000 + 1
        assert core.push(later(now, gap_us)) == []
        core.step([], later(now, gap_us))
        assert core.metrics.pauses == 1
