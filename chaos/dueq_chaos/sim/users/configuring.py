"""A user who changes topics while others use them, and the rule that must hold then.

Once a pause was confirmed, and until its end is asked for, no leader of any epoch pushes a message of the topic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from dueq.client import passes, topic_changes
from dueq.client.calls import Call
from dueq.client.core.ports import effects
from dueq.errors import InvalidRequest
from dueq_chaos.sim.environment.mesh import SimMesh
from dueq_chaos.sim.environment.sdk import ANYTHING, SimClient

_CALL_US = 15_000_000
_AGAIN_US = (10_000, 800_000)
_PARTITIONS_MAX = 6
_UNLIMITED = {"rate": 0, "burst": 0}
_UNTIL_ERROR_MS = 2_000
"""How far a leader's clock may be ahead of the true time at which a pause ends by itself."""

Document = dict[str, Any]


class ConfiguringUser:
    """One process that pauses, resumes and changes topics, one topic at a time; it may die.

    Args:
        mesh: where.
        wire: whether its frames go through the codecs.
    """

    def __init__(self, mesh: SimMesh, wire: bool) -> None:
        self.mesh = mesh
        self.client: SimClient = mesh.sdk("configurer")
        self.client.asks_nonsense = ANYTHING
        self.client.wire = wire
        self._touched: dict[str, None] = {}
        self._open: Counter[str] = Counter()
        """Changes that are asked for and not confirmed."""
        self._newest: Counter[str] = Counter()
        """The newest version of a topic's settings that is known to be in force."""
        self._calm = False

    # -------------------------------------------------------------- what it does

    def pause(self, topic: str, random: Random) -> None:
        """Pause, wait for the answer, resume after a while; perhaps die in between."""
        hold_us = random.randint(50_000, 3_000_000)
        self._change(topic, topic_changes.paused(0), partial(self._paused, topic, hold_us, 0))
        if random.random() < 0.15:
            self._die(random)

    def hold(self, topic: str) -> None:
        """Pause until `calm` resumes it."""
        self._change(topic, topic_changes.paused(0), partial(self.mesh.silences.begin, topic, None))

    def pause_for_a_while(self, topic: str, random: Random) -> None:
        """Pause until an instant; nobody resumes."""
        until_ms = self.mesh.world.wall_us // 1000 + random.randint(500, 6_000)
        self._change(topic, topic_changes.paused(until_ms), partial(self._paused, topic, 0, until_ms))

    def change(self, topic: str, random: Random) -> None:
        """Change what nobody comes up against, twice at once now and then."""
        for _ in range(random.choice([1, 1, 2])):
            longest = random.randint(1 << 20, 64 << 20)
            self._change(topic, {"payload_bytes_max": longest}, lambda: None)

    def grow(self, topic: str, random: Random) -> None:
        """Add a partition or two."""
        count = len(self.mesh.coordinator.topics[topic].partitions)
        wanted = min(count + random.randint(1, 2), _PARTITIONS_MAX)
        self._change(topic, {}, lambda: None, wanted)

    def limit(self, topic: str, random: Random) -> None:
        """Limit the rate of a topic for a while, if it has one partition."""
        limited = {"rate": random.randint(1, 20), "burst": random.randint(1, 5)}
        hold_us = random.randint(1_000_000, 5_000_000)
        self._change(topic, limited, lambda: self._later(hold_us, lambda: self._unlimit(topic)))

    def _unlimit(self, topic: str) -> None:
        self._change(topic, _UNLIMITED, lambda: None)

    def purge(self, topic: str, random: Random) -> None:
        """Cancel all that waits; stop that half-way now and then."""
        if self.client.core is None:
            self.client.start()
        name = random.randbytes(8).hex()
        self.mesh.world.tell("configurer", f"{topic}: purges, by pass {name}")
        self._act(passes.purge(topic, name, "waiting"))
        if random.random() < 0.2:
            self._later(random.randint(1_000, 300_000), lambda: self._act(passes.stop(topic, name)))

    def _act(self, call: Call[None]) -> None:
        def answered(value: Any, failed: effects.Failed | None) -> None:
            if failed is not None and not isinstance(failed.error, InvalidRequest) and not self._calm:
                self._again(lambda: self._act(call))

        self.client.call(call.build, _CALL_US, answered)

    def calm(self) -> None:
        """Resume all topics that may be paused, and change nothing any more."""
        self._calm = True
        if self.client.core is None:
            self.client.start()
        for topic in self._touched:
            self._unlimit(topic)
            self._resume(topic)

    # -------------------------------------------------------------- how

    def _paused(self, topic: str, hold_us: int, until_ms: int) -> None:
        if self._calm:
            return
        last_us = (until_ms - _UNTIL_ERROR_MS) * 1000 if until_ms else None
        self.mesh.silences.begin(topic, last_us)
        if not until_ms:
            self._later(hold_us, lambda: self._resume(topic))

    def _resume(self, topic: str) -> None:
        self._change(topic, topic_changes.RESUMED, partial(self._resumed, topic))

    def _resumed(self, topic: str) -> None:
        self.mesh.silences.resumed(topic, self.mesh.world.wall_us)

    def _change(self, topic: str, changes: Document, done: Callable[[], None], partitions: int = 0) -> None:
        """Store a change and wait until it is in force; begin again until that has succeeded."""
        if self.client.core is None:
            self.client.start()
        self._touched[topic] = None
        self.mesh.silences.end(topic)
        self.mesh.world.tell("configurer", f"{topic}: {changes}, {partitions or 'as many'} partitions")
        number = self.mesh.silences.changes(topic)

        self._open[topic] += 1

        def in_force(version: int) -> None:
            self._open[topic] -= 1
            # What was asked for before may have been stored after it.
            is_newest = version == self._newest[topic] and self.mesh.silences.changes(topic) == number
            if not self._open[topic] and is_newest:
                done()

        self._store(topic, topic_changes.store(topic, self.client.draw_id(), changes, partitions), in_force)

    def _store(self, topic: str, stored: Call[Document], done: Callable[[int], None]) -> None:
        def answered(value: Any, failed: effects.Failed | None) -> None:
            if failed is None:
                self._await(topic, value, done)
            elif isinstance(failed.error, InvalidRequest):
                self._open[topic] -= 1  # another has added more partitions meanwhile
            else:
                self._again(partial(self._store, topic, stored, done))

        self.client.call(stored.build, _CALL_US, answered)

    def _await(self, topic: str, standing: Document, done: Callable[[int], None]) -> None:
        version = standing["version"]
        waiting = topic_changes.in_force(topic, version, standing["partitions"])

        def answered(value: Any, failed: effects.Failed | None) -> None:
            if failed is not None:
                self._again(partial(self._await, topic, standing, done))
            else:
                self.mesh.world.tell("configurer", f"{topic}: version {version} is in force")
                self._newest[topic] = max(self._newest[topic], version)
                done(version)

        self.client.call(waiting.build, _CALL_US, answered)

    def _again(self, action: Callable[[], None]) -> None:
        self._later(self.mesh.world.random.randint(*_AGAIN_US), action)

    def _die(self, random: Random) -> None:
        def die() -> None:
            if not self._calm:
                self.client.crash()
                self._open.clear()

        self.mesh.world.after(random.randint(0, 1_500_000), die)

    def _later(self, after_us: int, action: Callable[[], None]) -> None:
        """Do it after a while, if the process still lives then; until then it is not at rest."""
        client = self.client
        life = client.life
        client.waiting += 1

        def run() -> None:
            if client.life == life and client.core is not None:
                client.waiting -= 1
                action()

        self.mesh.world.after(after_us, run)
