"""A process with pulls that wait for very long, on a topic that nobody else consumes: a lost pull is found out.

Now and then it begins another pull of a name: then the earlier one has to end, and never the later one. In fine
weather, at the end, one message comes for each pull that waits. A pull that a leader or its client has forgotten gets
none.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

from dueq.client import pulls
from dueq.client.core import Delivery
from dueq.client.core.ports import effects
from dueq.errors import Superseded
from dueq_chaos.sim.environment.mesh import SimMesh
from dueq_chaos.sim.judging import history as told
from dueq_codecs.records import Outcome

ANEW: Final = "pull anew by name"
DIE: Final = "idler dies"
SCHEDULE: Final = "schedule for idlers"
KINDS: Final = (ANEW, ANEW, DIE, SCHEDULE, SCHEDULE)
TOPIC: Final = "idle"
_FROM: Final = 86_000_000
"""The storms of smaller seeds are as they were before there was such a process."""
_SHARE: Final = 0.25
_WAIT_S: Final = 3_600.0
_LEASE_S: Final = 5.0
_CALL_US: Final = 15_000_000
_NAMELESS: Final = 3
_NAME: Final = "idler"
_AGAIN_US: Final = 200_000
_TOLD_US: Final = 20_000_000
"""By then leaders have been asked for, and pulls listed, several times."""
_AHEAD_MS: Final = 500
_COMES_US: Final = 2_000_000

Schedule = Callable[[str, list[bytes], list[int]], None]
_Place = tuple[str | None, int]
"""Name and number of a pull."""


def has_some(seed: int) -> bool:
    """Whether a seed's storm has such a process; from a stream of its own."""
    return seed >= _FROM and Random(seed * 0x27D4EB2F + 83).random() < _SHARE


def draw(seed: int, until_us: int) -> list[tuple[int, str, int]]:
    """Return when something of this is done, what, and the seed of the rest."""
    if not has_some(seed):
        return []
    random = Random(seed * 0x27D4EB2F + 89)
    return [
        (random.randint(0, until_us), random.choice(KINDS), random.getrandbits(32))
        for _ in range(random.randint(4, 10))
    ]


class Idlers:
    """The process, and its topic.

    Args:
        mesh: where.
        wire: whether frames go through the codecs.
        schedule: schedules rows of a topic.
        in_order: pulls of two lives of the process have their order: all clocks are right.
    """

    def __init__(self, mesh: SimMesh, wire: bool, schedule: Schedule, in_order: bool) -> None:
        self._mesh, self._schedule, self._in_order = mesh, schedule, in_order
        brokers = len(mesh.names)
        mesh.create_topic(TOPIC, 1 + mesh.world.seed % 2, min(3, brokers), min(2, brokers))
        self._client = mesh.sdk("idler")
        self._client.wire = wire
        self._client.idles = True
        self._open: set[_Place] = set()
        self._pulls = self._scheduled = self._came = 0
        self._newest = 0  # of those with the name
        self._ends = False
        self._begin()

    def do(self, kind: str, random: Random) -> None:
        """Do one of `KINDS`."""
        if kind == SCHEDULE:
            self._send(random.randint(1, 3), random.randint(0, 4_000))
        elif self._client.core is None:
            return
        elif kind == ANEW:
            self._pull(_NAME)
        else:
            self._client.crash()
            self._mesh.world.after(random.randint(10_000, 5_000_000), self._begin)

    def calm(self) -> None:
        """The process is up."""
        self._begin()

    def unreached(self) -> list[str]:
        """Send a message for each pull that waits, in fine weather, and return what is wrong."""
        world = self._mesh.world
        world.run(_TOLD_US)
        named = [number for name, number in self._open if name is not None]
        wrong = [] if len(named) == 1 else [f"{len(named)} pulls of one name wait: {sorted(named)}"]
        self._ends = True
        before, waiting = self._came, len(self._open)
        self._send(waiting, _AHEAD_MS)
        world.run(_AHEAD_MS * 1000 + _COMES_US)
        if self._open:
            came = self._came - before
            wrong.append(
                f"{came} messages came to {waiting} pulls, and {sorted(map(str, self._open))} wait on"
            )
        return wrong

    def _begin(self) -> None:
        if self._client.core is not None and self._open:
            return
        if self._client.core is None:
            self._client.start()
        self._open.clear()
        for name in (*[None] * _NAMELESS, _NAME):
            self._pull(name)

    def _send(self, count: int, ahead_ms: int) -> None:
        due_ms = self._mesh.world.wall_us // 1000 + ahead_ms
        payloads = [b"idle-%d" % (self._scheduled + at) for at in range(count)]
        self._scheduled += count
        self._schedule(TOPIC, payloads, [due_ms] * count)

    def _pull(self, name: str | None) -> None:
        self._pulls += 1
        place = name, self._pulls
        if name is not None:
            self._newest = self._pulls
            self._mesh.pulled_by(TOPIC, name)
        self._open.add(place)
        call, _ = pulls.pull(TOPIC, 1, _WAIT_S, _LEASE_S, name, ())
        answer = partial(self._pulled, place, self._client.life)
        self._client.call(call.build, _CALL_US + int(_WAIT_S * 1e6), answer)

    def _pulled(
        self, place: _Place, life: int, value: list[Delivery] | None, failed: effects.Failed | None
    ) -> None:
        name, number = place
        if self._client.life != life:
            return
        self._open.discard(place)
        for delivery in value or ():
            self._take(delivery)
        is_newest = name is None or number == self._newest
        if failed is not None and isinstance(failed.error, Superseded) and is_newest and self._in_order:
            self._mesh.history.misanswered(
                f"pull {number} was told that a later one has followed: there is none"
            )
        elif is_newest and not self._ends:
            self._mesh.world.after(_AGAIN_US, partial(self._again, name, life, self._newest))

    def _again(self, name: str | None, life: int, newest: int) -> None:
        is_alive = self._client.core is not None and self._client.life == life
        if is_alive and not self._ends and (name is None or newest == self._newest):
            self._pull(name)

    def _take(self, delivery: Delivery) -> None:
        world, key = self._mesh.world, (delivery.uid, delivery.sequence, delivery.row)
        self._came += 1
        noted = told.Delivery(
            world.wall_us, _NAME, delivery.token, delivery.attempt, bytes(delivery.payload),
            world.wall_us + delivery.deadline_us - world.now_us, rank=delivery.rank,
        )  # fmt: skip
        self._mesh.history.delivered(key, noted)
        noted.ended_at_us = world.wall_us
        call = pulls.settle(TOPIC, [(delivery.id, delivery.token)], "ack", None, None, "", False)
        self._client.call(call.build, _CALL_US, partial(self._acked, key, delivery.token))

    def _acked(self, key: told.MessageKey, token: int, value: object, failed: effects.Failed | None) -> None:
        if failed is None and value.outcomes()[0] is Outcome.DONE:  # type: ignore[attr-defined]
            self._mesh.history.acked(key, self._mesh.world.wall_us, token)
        else:
            self._mesh.history.maybe_acked(key)
