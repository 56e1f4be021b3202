"""Users of passes: all messages that match a filter are cancelled, shifted, moved, ranked, redriven or purged.

Passes are stopped half-way now and then, and leaders fall while they work.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

from dueq.client import passes
from dueq.client.calls import Call
from dueq.client.core.ports import effects
from dueq.errors import InvalidRequest
from dueq_chaos.sim.environment.mesh import SimMesh
from dueq_chaos.sim.environment.sdk import ANYTHING, SimClient

_CALL_US = 15_000_000
_AGAIN_US = 300_000
_GROUPS = ("a", "a.y", "b")
_SHARP_FROM = 91_000_000
"""From this seed on filters begin and end at the instants of messages in some storms."""

Document = dict[str, Any]


class Surgeons:
    """They begin passes, and stop some.

    Args:
        mesh: where.
        wire: whether frames go through the codecs.
        kinds: of the topics, by name.
    """

    def __init__(self, mesh: SimMesh, wire: bool, kinds: dict[str, str]) -> None:
        self._mesh, self._kinds = mesh, kinds
        self._client: SimClient = mesh.sdk("surgeon")
        self._client.wire, self._client.asks_nonsense = wire, ANYTHING
        self._calm = False

    def calm(self) -> None:
        """Nothing is asked for again."""
        self._calm = True

    def do(self, kind: str, topic: str, random: Random) -> None:
        """Begin a pass; have the leader of a partition fall meanwhile, if that is the kind."""
        name, work = random.randbytes(8).hex(), self._work(topic, random)
        self._mesh.world.tell("surgeon", f"{topic}: pass {name}: {work}")
        self._act(passes.begin(topic, name, work))
        if random.random() < 0.2:
            stop = passes.stop(topic, name)
            self._mesh.world.after(random.randint(1_000, 300_000), partial(self._act, stop))
        if kind == "operate and fall":
            uids = [part.uid for part in self._mesh.coordinator.topics[topic].partitions]
            after_us, goodbye = random.randint(500, 120_000), random.random() < 0.5
            self._mesh.world.after(after_us, partial(self._fall, random.choice(uids), goodbye))

    def _work(self, topic: str, random: Random) -> Document:
        now_ms = self._mesh.world.wall_us // 1000
        wanted: Document = {"state": "waiting"}
        if random.random() < 0.5:
            wanted["due_from"] = now_ms + random.randint(-1_000, 1_000)
        if random.random() < 0.5:
            wanted["due_until"] = now_ms + random.randint(1_000, 5_000)
        self._cut_sharply(wanted, random)
        if self._kinds[topic] == "fair" and random.random() < 0.5:
            wanted["group"] = random.choice(_GROUPS)
        works: list[Document] = [
            {"do": "cancel"},
            {"do": "shift", "by_ms": random.choice([-1_000, 500, 2_000])},
            {"do": "shift", "by_ms": random.choice([1, 3_000])},
            {
                "do": "move",
                "to_ms": now_ms + random.randint(0, 2_000),
                "spread_ms": random.choice([0, 1_500]),
            },
            {"do": "redrive", "spread_ms": random.choice([0, 1_500])},
            {"do": "purge"},
        ]
        if self._kinds[topic] != "timeline":
            works.append({"do": "change", "rank": random.randint(0, 9)})
        work = random.choice(works)
        if work["do"] == "redrive" or (work["do"] == "purge" and random.random() < 0.5):
            wanted["state"] = "dead"
        return work | {"filter": wanted}

    def _cut_sharply(self, wanted: Document, random: Random) -> None:
        """Have the filter begin or end at the very instant of a message, in some storms."""
        if self._mesh.world.seed < _SHARP_FROM:
            return
        dues = [message.due_ms for message in self._mesh.history.messages.values() if not message.finished]
        for name in ("due_from", "due_until"):
            if name in wanted and dues and random.random() < 0.5:
                wanted[name] = random.choice(dues)

    def _fall(self, uid: int, goodbye: bool) -> None:
        leader = self._mesh.leader_of(uid)
        if leader is None or self._calm:
            return
        node = self._mesh.nodes[leader]
        self._mesh.harm()
        node.crash(goodbye=goodbye)
        self._mesh.world.after(1_500_000, lambda: node.start() if node.core is None else None)

    def _act(self, call: Call[None]) -> None:
        def answered(value: Any, failed: effects.Failed | None) -> None:
            if failed is not None and not self._calm and not isinstance(failed.error, InvalidRequest):
                self._mesh.world.after(_AGAIN_US, partial(self._act, call))

        self._client.call(call.build, _CALL_US, answered)
