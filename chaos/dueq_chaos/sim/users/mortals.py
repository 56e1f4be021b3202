"""Users of messages that may die: by their attempts, by their expiry, or because a consumer says so.

`fates` judges the rules of every record. In the end no message is dead for longer than its topic keeps it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

from dueq.client import calls, topic_changes
from dueq.client.calls import Call
from dueq.client.core.ports import effects
from dueq.core.ports.entry import State
from dueq.errors import InvalidRequest
from dueq_chaos.sim.environment.mesh import SimMesh
from dueq_chaos.sim.environment.sdk import SimClient
from dueq_chaos.sim.environment.world import START_WALL_US
from dueq_chaos.sim.judging.fates import dead_retention_ms
from dueq_chaos.sim.judging.history import MessageKey, name_of
from dueq_chaos.sim.reference.naive import Naive
from dueq_chaos.sim.users.consuming import ConsumingUser

_KEPT_MS = 4_000
"""By then, when nothing is wrong, a dead message is gone that was to be kept until now."""
_CALL_US = 15_000_000
_AGAIN_US = 300_000

Schedule = Callable[[str, list[bytes], list[int], dict[str, Any]], None]


class Mortals:
    """They schedule, say how messages of a topic end, and look after the dead.

    Args:
        mesh: where.
        wire: whether frames go through the codecs.
        schedule: schedules rows of a topic, with what else there is to say of them.
        consumers: whose habits may become deadly.
    """

    def __init__(self, mesh: SimMesh, wire: bool, schedule: Schedule, consumers: list[ConsumingUser]) -> None:
        self._mesh, self._schedule, self._consumers = mesh, schedule, consumers
        self._client: SimClient = mesh.sdk("undertaker")
        self._client.wire = wire
        self._batches = 0
        self._calm = False

    def calm(self) -> None:
        """Nothing is asked for again."""
        self._calm = True

    def do(self, kind: str, topic: str, random: Random) -> None:
        """Do one thing."""
        if kind == "schedule mortal":
            self._schedule_mortal(topic, random)
        elif kind == "set endings":
            self._set_endings(topic, random)
        elif kind == "deadly habits":
            user = random.choice(self._consumers)
            user.habits = replace(
                user.habits, nack=max(user.habits.nack, 0.4), kill=random.choice([0.0, 0.3]),
                back_off=random.choice([0.0, 0.8]),
            )  # fmt: skip
        else:
            self._look_after(kind, topic, random)

    def _schedule_mortal(self, topic: str, random: Random) -> None:
        self._batches += 1
        now_ms = self._mesh.world.wall_us // 1000
        payloads = [b"mortal-%d-%d" % (self._batches, row) for row in range(random.choice([1, 3, 12, 40]))]
        dues = [now_ms + random.randint(-200, 3_000) for _ in payloads]
        expires = [
            random.choice([None, max(due, now_ms) + random.randint(1, 3_000), max(due, now_ms) + 60_000])
            for due in dues
        ]
        most = [random.choice([None, 1, 2, 4]) for _ in payloads]
        self._schedule(topic, payloads, dues, {"expires": expires, "max_attempts": most})

    def _set_endings(self, topic: str, random: Random) -> None:
        backoff = {"first_ms": random.choice([1, 300]), "factor": 2.0, "longest_ms": 2_000, "jitter": 0.2}
        changes: dict[str, Any] = random.choice(
            [
                {"max_attempts": random.choice([0, 1, 2, 5])},
                {"expired": random.choice(["dead", "finish"])},
                {"backoff": random.choice([None, backoff | {"doublings": random.choice([None, 2])}])},
                {"dead_retention_ms": random.choice([1_000, 4_000, 60_000])},
            ]
        )
        self._mesh.world.tell("undertaker", f"{topic}: {changes}")
        self._call(topic_changes.store(topic, self._client.draw_id(), changes, 0))

    def _look_after(self, kind: str, topic: str, random: Random) -> None:
        """Redrive or discard some of the dead, and of the living, too."""
        keys = [key for key in self._mesh.history.messages if self._is_of(key, topic)]
        dead = [key for key in keys if self._mesh.history.messages[key].fate.dead]
        chosen = random.sample(dead, min(len(dead), random.choice([1, 4, 30])))
        chosen += random.sample(keys, min(len(keys), random.choice([0, 0, 1])))
        if not chosen:
            return
        texts = [self._mesh.history.text_of(key) for key in chosen]
        now_ms = self._mesh.world.wall_us // 1000
        dues = random.choice([None, [now_ms + random.randint(-500, 2_000) for _ in chosen]])
        self._mesh.world.tell("undertaker", f"{kind} of {len(texts)}, {len(dead)} are dead")
        if kind == "redrive":
            self._call(calls.redrive(topic, texts, dues, lambda: self._mesh.world.wall_us))
        else:
            self._call(calls.discard(topic, texts))

    def _is_of(self, key: MessageKey, topic: str) -> bool:
        found = self._mesh.coordinator.topics.get(topic)
        return found is not None and any(part.uid == key[0] for part in found.partitions)

    def _call(self, call: Call[Any]) -> None:
        def answered(value: Any, failed: effects.Failed | None) -> None:
            if failed is not None and not self._calm and not isinstance(failed.error, InvalidRequest):
                self._mesh.world.after(_AGAIN_US, partial(self._call, call))

        self._client.call(call.build, _CALL_US, answered)


# ---------------------------------------------------------------- what must hold


def kept_too_long(mesh: SimMesh, naive_of: Callable[[int], Naive]) -> list[str]:
    """Return the dead messages that are there for longer than their topic keeps them, while nothing is wrong.

    One that has died before the world began did so by a clock that was set back: it is kept from then on by the
    leader's own clock, and nobody knows here when that was.
    """
    now_ms, wrong = mesh.world.wall_us // 1000, []
    for uid in mesh.coordinator.nodes:
        naive = naive_of(uid)
        before_ms = now_ms - dead_retention_ms(naive) - _KEPT_MS
        for key, entry in naive.live.items():
            if entry.state == State.DEAD and START_WALL_US // 1000 <= entry.died_at < before_ms:
                text = name_of((uid, key >> 16, key & 0xFFFF))
                wrong.append(f"{text}: is dead since {entry.died_at}, and still there at {now_ms}")
    return wrong
