"""A user of windows, and of changes that name the version which they expect."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from dueq.client import calls
from dueq.client.core import PartsCall
from dueq.client.core.ports import effects
from dueq.errors import OutcomeUnknown
from dueq_chaos.sim.environment.mesh import SimMesh
from dueq_chaos.sim.environment.sdk import SimClient
from dueq_chaos.sim.judging.history import MessageKey, name_of
from dueq_codecs.records import Outcome

_CALL_US = 15_000_000

Schedule = Callable[[str, list[bytes], list[int], dict[str, Any]], None]


class Conditions:
    """Schedules within windows; moves and cancels messages if they have a version, which may be a wrong one.

    Args:
        mesh: where.
        wire: whether frames go through the codecs.
        schedule: schedules rows of a topic, with what else there is to say of them.
    """

    def __init__(self, mesh: SimMesh, wire: bool, schedule: Schedule) -> None:
        self._mesh, self._schedule = mesh, schedule
        self._client: SimClient = mesh.sdk("careful")
        self._client.wire = wire
        self._batches = 0

    def calm(self) -> None:
        """Nothing of it goes on by itself."""

    def do(self, kind: str, topic: str, random: Random) -> None:
        """Do one thing."""
        if kind == "change versions":
            self._change(topic, random)
        else:
            self._schedule_within(topic, random)

    def _schedule_within(self, topic: str, random: Random) -> None:
        self._batches += 1
        now_ms = self._mesh.world.wall_us // 1000
        payloads = [b"window-%d-%d" % (self._batches, row) for row in range(random.choice([1, 5, 60]))]
        dues = [now_ms + random.randint(-500, 2_500) for _ in payloads]
        widths = [random.choice([0.0, 0.01, 1.0, 4.0]) for _ in payloads]
        self._schedule(topic, payloads, dues, {"window": widths})

    def _change(self, topic: str, random: Random) -> None:
        """Some messages, half of them if they are as they are now; each answer is judged by itself."""
        history = self._mesh.history
        uids = {part.uid for part in self._mesh.coordinator.topics[topic].partitions}
        keys = [key for key, each in history.messages.items() if key[0] in uids and not each.finished]
        keys = [key for key in keys if not history.messages[key].unsure]
        keys = random.sample(keys, min(len(keys), random.choice([1, 3, 12])))
        if not keys:
            return
        present = [history.version_of(key) for key in keys]
        versions = [version + random.choice([0, 0, 0, -1, 1]) for version in present]
        texts = [history.text_of(key) for key in keys]
        asked_us = self._mesh.world.wall_us
        dues = None
        if random.random() < 0.7:
            dues = [asked_us // 1000 + random.randint(-500, 3_000) for _ in keys]
            call = calls.move(topic, texts, dues, lambda: 0, versions)
        else:
            call = calls.cancel(topic, texts, versions)
        for at, key in enumerate(keys):
            history.messages[key].changing = True
            if dues is not None:
                history.messages[key].maybe_dues.append(dues[at])
            else:
                history.messages[key].cancel_asked = True
        self._client.call(call.build, _CALL_US, partial(self._answered, keys, versions, dues, asked_us))

    def _answered(
        self, keys: list[MessageKey], versions: list[int], dues: list[int] | None, asked_us: int,
        value: PartsCall | None, failed: effects.Failed | None,
    ) -> None:  # fmt: skip
        if failed is None:
            assert value is not None
            results: list[Any] = list(value.outcomes())
        elif failed.repeat is not None and len(failed.repeat.parts):
            results = failed.repeat.mixed()
        else:
            results = [OutcomeUnknown("not known", lambda: None)] * len(keys)
        now_us = self._mesh.world.wall_us
        for at, (key, result) in enumerate(zip(keys, results, strict=True)):
            message = self._mesh.history.messages[key]
            message.changing = False
            if not isinstance(result, Outcome) or result is Outcome.UNKNOWN:
                continue  # it may have happened
            if dues is not None:
                message.maybe_dues.remove(dues[at])
            else:
                message.cancel_asked = False
            if result is Outcome.DONE:
                if dues is not None:
                    self._mesh.history.moved(key, dues[at], now_us, asked_us)
                else:
                    self._mesh.history.cancelled(key, asked_us, now_us)
                if not self._mesh.history.had_version(key, versions[at]):
                    self._mesh.history.misanswered(
                        f"{name_of(key)}: changed if it has version {versions[at]}, which it never had"
                    )
