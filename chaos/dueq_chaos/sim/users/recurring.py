"""A user of recurrences; and a rule that must hold in the end: no tick is overdue.

`recurrence_course` judges the rules of every record. A message that was fired is owed like any other, unless it
was taken back; then it is never delivered (`history`).
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from dueq.client import recurrences
from dueq.client.arguments import Payload
from dueq.client.core import PartsCall
from dueq.client.core.ports import effects, events
from dueq.core.state.order import order_of
from dueq_chaos.sim.environment.mesh import SimMesh
from dueq_chaos.sim.environment.sdk import SimClient
from dueq_chaos.sim.reference.bodies import body_of
from dueq_chaos.sim.reference.naive import Naive

_CALL_US = 15_000_000
_TRIES = 3
_NAMES = 6
_OVERDUE_MS = 2_000
"""A tick is overdue so long after its instant, when nothing is wrong."""


class RecurringUser:
    """Creates, changes and deletes recurrences of one topic, and has them fire.

    Args:
        mesh: where.
        topic: whose.
        wire: whether its frames go through the codecs.
    """

    def __init__(self, mesh: SimMesh, topic: str, wire: bool) -> None:
        self.mesh, self.topic = mesh, topic
        self.client: SimClient = mesh.sdk("recurring")
        self.client.asks_nonsense = ("a jitter of", "the home of recurrence", "the recurrence never fires")
        self.client.wire = wire
        self._named: dict[str, None] = {}
        self._random = Random(mesh.world.seed * 0x9E3779B1 + 53)
        self._body_random = Random(mesh.world.seed * 0x9E3779B1 + 83)
        self._count = 0

    def recur(self, random: Random) -> None:
        """Do one thing to one recurrence, which may be none that there is."""
        if self.client.core is None:
            self.client.start()
        self._count += 1
        name = f"r{random.randrange(_NAMES)}"
        action = random.choice(
            ["create"] * 6 + ["pause", "resume", "update", "update", "delete", "trigger", "trigger"]
        )
        document: dict[str, Any] = {"action": action}
        payload: Payload | None = None
        if action in ("create", "update"):
            document |= self._terms(random) if action == "create" or random.random() < 0.6 else {}
            document |= self._rank_and_group(action)
            payload = b"%s-%d" % (name.encode(), self._count)
            if self._body_random.random() < 0.4:
                payload = body_of(self._body_random)
        self._named[name] = None
        self._act(name, document, _TRIES, payload)
        if random.random() < 0.05:
            self.mesh.world.after(random.randint(0, 3_000_000), self.client.crash)

    def _terms(self, random: Random) -> dict[str, Any]:
        now_ms = self.mesh.world.wall_us // 1000
        terms: dict[str, Any] = random.choice([
            {"every_ms": random.choice([1000, 1500, 4000])},
            {"cron": random.choice(["* * * * * *", "*/2 * * * * *", "*/3 * * * * *"]), "zone": "Europe/Berlin"},
            {"cron": "* * * * *"},
            {"at_ms": sorted({now_ms + random.randint(-2_000, 12_000) for _ in range(random.randint(1, 20))})},
        ])  # fmt: skip
        if "at_ms" not in terms and random.random() < 0.3:
            terms["jitter_ms"] = random.randint(1, 900)
        if random.random() < 0.3:
            terms["overlap"] = "skip"
        if random.random() < 0.5:
            terms["missed"] = random.choice([0, 3, 100])
        if random.random() < 0.2:
            terms["end_ms"] = now_ms + random.randint(5_000, 20_000)
        return terms

    def _rank_and_group(self, action: str) -> dict[str, Any]:
        """Return the rank and group of its messages in a topic that has them: drawn from a stream of its own.

        A creation leaves out the usual values.
        """
        found = self.mesh.coordinator.topics.get(self.topic)
        order = order_of(found.kind) if found is not None else order_of("timeline")
        said: dict[str, Any] = {}
        if order.has_ranks and self._random.random() < 0.7:
            said["rank"] = self._random.randint(0, 3)
        if order.has_groups and self._random.random() < 0.7:
            said["group"] = self._random.choice(["", "a", "a.x", "b", "d.d.d"])
        return {name: value for name, value in said.items() if value or action == "update"}

    def _act(self, name: str, document: dict[str, Any], tries: int, payload: Payload | None = None) -> None:
        call = recurrences.act(self.topic, name, document, payload)
        self.client.call(call.build, _CALL_US, self._answer_of(name, document, tries))

    def _answer_of(
        self, name: str, document: dict[str, Any], tries: int
    ) -> Callable[[PartsCall | None, effects.Failed | None], None]:
        def answered(value: PartsCall | None, failed: effects.Failed | None) -> None:
            what = f"{document['action']} of {name}"
            told = value.outcomes() if value is not None else failed and failed.error
            self.mesh.world.tell("recurring", f"{what}: {told!r}")
            if failed is None or failed.repeat is None or not tries or self.client.core is None:
                return
            again = failed.repeat
            self.client.call(
                lambda call, at: events.Repeat(call, at, again),
                _CALL_US,
                self._answer_of(name, document, tries - 1),
            )

        return answered

    def end(self) -> None:
        """Delete all that there may be."""
        if self.client.core is None:
            self.client.start()
        for name in self._named:
            self._act(name, {"action": "delete"}, 20)


# ---------------------------------------------------------------- what must hold


def late_by_ms(mesh: SimMesh, naive_of: Callable[[int], Naive]) -> dict[str, int]:
    """Return how long ago the ticks came for which recurrences wait, by what names them; less than 0: they come."""
    now_ms = mesh.world.wall_us // 1000
    return {
        f"recurrence {name} of p{uid}": now_ms - each.next
        for uid in mesh.coordinator.nodes
        for name, each in naive_of(uid).recurrences.by_name.items()
        if each.next
    }


def overdue(before: dict[str, int], after: dict[str, int]) -> list[str]:
    """Return the recurrences whose next tick has long come, and no message has, while nothing is wrong.

    One that is less late than it was makes up for missed ticks, one after the other.
    """
    return [
        f"{name} waits for a tick of {late_ms} ms ago"
        for name, late_ms in after.items()
        if late_ms > _OVERDUE_MS and late_ms >= before.get(name, 0)
    ]
