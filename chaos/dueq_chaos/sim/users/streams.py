"""A process that pulls by one name again and again, as a stream of the gateway does, beside one that pulls by none.

All its pulls have one order. Each lists what the process works on. It waits at several leaders, so that more may come
than it has asked for, or when its pull is over. Now and then it abandons a pull, before or after the answer has come,
and begins the next one at once. What it gives back goes to the other process. No message may be with both.

It dies now and then, with its client or, as those do who use a gateway, without it. Then what it has sent is still on
its way, and the next process pulls by the same client.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Final

from dueq.client import pulls
from dueq.client.calls import Call
from dueq.client.core import Delivery, PartsCall
from dueq.client.core.ports import effects, events
from dueq_chaos.sim.environment.mesh import SimMesh
from dueq_chaos.sim.environment.sdk import SimClient
from dueq_chaos.sim.judging import history as told
from dueq_chaos.sim.judging.history import MessageKey, name_of
from dueq_codecs.records import Outcome

DIE: Final = "stream dies"
SCHEDULE: Final = "schedule for a stream"
KINDS: Final = (DIE, SCHEDULE, SCHEDULE, SCHEDULE, SCHEDULE)
TOPIC: Final = "streamed"
_FROM: Final = 93_000_000
"""The storms of smaller seeds are as they were before there was such a process."""
_SHARE: Final = 0.3
_NAME: Final = "stream"
_RIVAL: Final = "rival"
_COUNTS: Final = (1, 1, 2, 5)
_WAITS_S: Final = (0.0, 0.5, 2.0)
_LEASE_S: Final = 5.0
_WORK_US: Final = (200, 400_000)
_RELEASED: Final = 0.2
_ABANDONED: Final = 0.2
_ABANDONED_US: Final = (100, 1_000_000)
_UNTAKEN: Final = 0.15
"""Answers that nobody is there to take."""
_ALONE: Final = 0.5
"""Of its deaths, those that its client outlives."""
_ALONE_FROM: Final = 98_120_000
"""The clients of smaller seeds die with it."""
_UNTAKEN_FROM: Final = 94_000_000
"""The answers of smaller seeds are all taken."""
_UNNOTICED_US: Final = (0, 3_000)
_PAUSE_US: Final = 200_000
"""After a pull that failed."""
_CALL_US: Final = 15_000_000
_DOWN_US: Final = (10_000, 2_000_000)
_ROWS: Final = (1, 8)
_LIFE_BITS: Final = 12

Schedule = Callable[[str, list[bytes], list[int]], None]


def has_some(seed: int) -> bool:
    """Whether a seed's storm has such processes; from a stream of its own."""
    return seed >= _FROM and Random(seed * 0x27D4EB2F + 127).random() < _SHARE


def draw(seed: int, until_us: int) -> list[tuple[int, str, int]]:
    """Return when something of this is done, what, and the seed of the rest."""
    if not has_some(seed):
        return []
    random = Random(seed * 0x27D4EB2F + 131)
    return [
        (random.randint(0, until_us), random.choice(KINDS), random.getrandbits(32))
        for _ in range(random.randint(10, 40))
    ]


class _Process:
    """A process that has one pull open all the time, or several for a moment."""

    def __init__(
        self, mesh: SimMesh, client: SimClient, name: str, consumer: str | None, random: Random
    ) -> None:
        self._mesh, self._client, self._name, self._consumer = mesh, client, name, consumer
        self._random = random
        self._out: dict[tuple[str, int], told.Delivery] = {}
        self._pulls = self._order = 0
        self.begin()

    def begin(self) -> None:
        """It comes up, and pulls."""
        if self._client.core is None:
            self._client.start()
        self._order = self._mesh.world.wall_us << _LIFE_BITS
        self._pull()

    def die(self) -> None:
        """It dies, and comes up later; the next process has nothing."""
        if self._client.core is None:
            return
        self._client.crash()
        self._forget()
        self._mesh.world.after(self._random.randint(*_DOWN_US), self.begin)

    def die_alone(self) -> None:
        """It dies, and the next one comes up at once, with the same client."""
        if self._client.core is not None:
            self._forget()
            self.begin()

    def _forget(self) -> None:
        for noted in self._out.values():
            noted.ended_at_us = noted.ended_at_us or self._mesh.world.wall_us
        self._out.clear()

    def _pull(self) -> None:
        self._pulls += 1
        wait_s = self._random.choice(_WAITS_S)
        named = self._consumer is not None
        if self._consumer is not None:
            self._mesh.pulled_by(TOPIC, self._consumer)
        call, _ = pulls.pull(
            TOPIC, self._random.choice(_COUNTS), wait_s, _LEASE_S, self._consumer,
            list(self._out) if named else (), order=self._order if named else 0,
        )  # fmt: skip
        numbers: list[int] = []

        def build(number: int, deadline_us: int) -> events.Event:
            numbers.append(number)
            return call.build(number, deadline_us)

        life, number = self._client.life, self._pulls
        pulled = partial(self._pulled, life, number, self._order, call)
        self._client.call(build, _CALL_US + int(wait_s * 1e6), pulled)
        if self._random.random() < _ABANDONED:
            after_us = self._random.randint(*_ABANDONED_US)
            self._mesh.world.after(after_us, partial(self._abandon, life, number, numbers[0]))

    def _is_last(self, life: int, number: int) -> bool:
        return self._client.core is not None and (life, number) == (self._client.life, self._pulls)

    def _abandon(self, life: int, number: int, call: int) -> None:
        if self._is_last(life, number) and self._client.calls.pop(call, None) is not None:
            self._client.submit(events.Abandon(call))
            self._pull()

    def _pulled(
        self, life: int, number: int, order: int, call: Call[Any], value: list[Delivery] | None,
        failed: effects.Failed | None,
    ) -> None:  # fmt: skip
        if self._client.life != life:
            return
        if value and call.undo and (order != self._order or self._is_untaken()):
            after_us = self._random.randint(*_UNNOTICED_US)
            self._mesh.world.after(after_us, partial(self._untaken, life, call.undo(value)))
            if self._is_last(life, number):
                self._pull()
            return
        for delivery in value or ():
            self._take(delivery)
        if self._is_last(life, number):
            self._mesh.world.after(_PAUSE_US if failed is not None else 1, partial(self._next, life, number))

    def _is_untaken(self) -> bool:
        return self._mesh.world.seed >= _UNTAKEN_FROM and self._random.random() < _UNTAKEN

    def _untaken(self, life: int, event: events.Event) -> None:
        if self._client.core is not None and self._client.life == life:
            self._client.submit(event)

    def _next(self, life: int, number: int) -> None:
        if self._is_last(life, number):
            self._pull()

    def _take(self, delivery: Delivery) -> None:
        world, key = self._mesh.world, (delivery.uid, delivery.sequence, delivery.row)
        noted = told.Delivery(
            world.wall_us, self._name, delivery.token, delivery.attempt, bytes(delivery.payload),
            world.wall_us + delivery.deadline_us - world.now_us, rank=delivery.rank,
        )  # fmt: skip
        world.tell(self._name, f"got {name_of(key)} token {delivery.token} attempt {delivery.attempt}")
        self._mesh.history.delivered(key, noted)
        self._out[delivery.id, delivery.token] = noted
        how = "release" if self._random.random() < _RELEASED else "ack"
        settle = partial(self._settle, how, key, delivery, noted, self._client.life, self._order)
        world.after(self._random.randint(*_WORK_US), settle)

    def _settle(
        self, how: str, key: MessageKey, delivery: Delivery, noted: told.Delivery, life: int, order: int
    ) -> None:
        if self._client.life != life or self._client.core is None or self._order != order:
            return
        if how == "release":
            noted.ended_at_us = self._mesh.world.wall_us
        call = pulls.settle(TOPIC, [(delivery.id, delivery.token)], how, None, None, "", False)
        self._client.call(call.build, _CALL_US, partial(self._settled, how, key, delivery, noted, life))

    def _settled(
        self, how: str, key: MessageKey, delivery: Delivery, noted: told.Delivery, life: int, value: Any,
        failed: effects.Failed | None,
    ) -> None:  # fmt: skip
        world, history = self._mesh.world, self._mesh.history
        outcome = value.outcomes()[0] if isinstance(value, PartsCall) and failed is None else Outcome.UNKNOWN
        if how == "ack":
            noted.ended_at_us = noted.ended_at_us or world.wall_us
            if outcome is Outcome.DONE:
                history.acked(key, world.wall_us, delivery.token)
            elif outcome is Outcome.UNKNOWN:
                history.maybe_acked(key)
        if self._client.life == life:
            self._out.pop((delivery.id, delivery.token), None)


class Streams:
    """The stream and its rival, and their topic.

    Args:
        mesh: where.
        wire: whether frames go through the codecs.
        schedule: schedules rows of a topic.
    """

    def __init__(self, mesh: SimMesh, wire: bool, schedule: Schedule) -> None:
        self._mesh, self._schedule = mesh, schedule
        brokers = len(mesh.names)
        mesh.create_topic(TOPIC, 2 + mesh.world.seed % 2, min(3, brokers), min(2, brokers))
        self._scheduled = 0
        self._processes: list[_Process] = []
        for name, consumer in ((_NAME, _NAME), (_RIVAL, None)):
            client = mesh.sdk(name)
            client.wire = wire
            client.idles = True
            random = Random(mesh.world.seed * 0x27D4EB2F + 137 + len(self._processes))
            self._processes.append(_Process(mesh, client, name, consumer, random))

    def do(self, kind: str, random: Random) -> None:
        """Do one of `KINDS`."""
        if kind == SCHEDULE:
            rows = random.randint(*_ROWS)
            due_ms = self._mesh.world.wall_us // 1000 + random.randint(0, 2_000)
            payloads = [b"stream-%d" % (self._scheduled + at) for at in range(rows)]
            self._scheduled += rows
            self._schedule(TOPIC, payloads, [due_ms] * rows)
        elif self._mesh.world.seed >= _ALONE_FROM and random.random() < _ALONE:
            self._processes[0].die_alone()
        else:
            self._processes[0].die()
