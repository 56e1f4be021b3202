"""A user who has messages delivered at once, and the rule for them: no pause keeps a triggered message back."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Final

from dueq.client import calls
from dueq.client.core import PartsCall
from dueq.client.core.ports import effects
from dueq.errors import OutcomeUnknown
from dueq_chaos.sim.environment.mesh import SimMesh
from dueq_chaos.sim.environment.sdk import SimClient
from dueq_chaos.sim.judging.history import MessageKey
from dueq_codecs.records import Outcome

TRIGGER: Final = "trigger"
_SHARE: Final = 0.3
_FROM: Final = 256
"""The storms of the first seeds find other things."""
_CALL_US: Final = 15_000_000
_IN_FORCE_US: Final = 1_500_000
_COMES_US: Final = 1_500_000
_HELD: Final = 40
"""Messages that a pause holds, before those that are triggered."""
_FAR_MS: Final = 20_000

Schedule = Callable[[str, list[bytes], list[int]], None]


def draw(seed: int, until_us: int) -> list[tuple[int, str, int]]:
    """Return when messages are triggered, with the seed of the rest; from a stream of their own."""
    random = Random(seed * 0x5851F42D + 61)
    if seed < _FROM or random.random() >= _SHARE:
        return []
    return [
        (random.randint(0, until_us), TRIGGER, random.getrandbits(32)) for _ in range(random.randint(2, 12))
    ]


class Triggering:
    """Triggers scheduled messages.

    Args:
        mesh: where.
        wire: whether frames go through the codecs.
        schedule: schedules rows of a topic.
    """

    def __init__(self, mesh: SimMesh, wire: bool, schedule: Schedule) -> None:
        self._mesh, self._schedule = mesh, schedule
        self._client: SimClient = mesh.sdk("operator")
        self._client.wire = wire

    def do(self, topic: str, random: Random) -> None:
        """Trigger some messages."""
        messages = self._mesh.history.messages
        keys = [key for key in self._keys(topic) if not (messages[key].finished or messages[key].unsure)]
        self._trigger(topic, random.sample(keys, min(len(keys), random.choice([1, 3, 12]))))

    def _keys(self, topic: str) -> list[MessageKey]:
        uids = {part.uid for part in self._mesh.coordinator.topics[topic].partitions}
        return [key for key in self._mesh.history.messages if key[0] in uids]

    def _trigger(self, topic: str, keys: list[MessageKey]) -> None:
        if not keys:
            return
        history, asked_us = self._mesh.history, self._mesh.world.wall_us
        call = calls.trigger(topic, [history.text_of(key) for key in keys])
        for key in keys:
            history.messages[key].changing = True
            history.messages[key].maybe_dues.append(asked_us // 1000)
        self._client.call(call.build, _CALL_US, partial(self._answered, keys, asked_us))

    def _answered(
        self, keys: list[MessageKey], asked_us: int, value: PartsCall | None, failed: effects.Failed | None
    ) -> None:
        if failed is None:
            assert value is not None
            results: list[Any] = list(value.outcomes())
        elif failed.repeat is not None and len(failed.repeat.parts):
            results = failed.repeat.mixed()
        else:
            results = [OutcomeUnknown("not known", lambda: None)] * len(keys)
        now_us = self._mesh.world.wall_us
        for key, result in zip(keys, results, strict=True):
            message = self._mesh.history.messages[key]
            message.changing = False
            if not isinstance(result, Outcome) or result is Outcome.UNKNOWN:
                continue  # it may have happened
            message.maybe_dues.remove(asked_us // 1000)
            if result is Outcome.DONE:
                self._mesh.history.moved(key, asked_us // 1000, now_us, asked_us)

    # -------------------------------------------------------------- in a paused topic

    def held_back(self, topic: str, hold: Callable[[str], None], resume: Callable[[], None]) -> list[str]:
        """Trigger messages of a paused topic in fine weather; return which of them do not come.

        Args:
            topic: some consumer has credit for it.
            hold: pauses it.
            resume: resumes it.
        """
        world = self._mesh.world
        hold(topic)
        world.run(_IN_FORCE_US)
        wrong: list[str] = []
        if self._mesh.silences.holds(topic, world.wall_us):
            now_ms = world.wall_us // 1000
            self._schedule(topic, [b"held-%d" % at for at in range(_HELD)], [now_ms] * _HELD)
            far = [b"triggered-%d" % at for at in range(3)]
            self._schedule(topic, far, [now_ms + _FAR_MS] * len(far))
            world.run(_IN_FORCE_US)
            messages = self._mesh.history.messages
            keys = [key for key in self._keys(topic) if messages[key].payload in far]
            self._trigger(topic, keys)
            world.run(_COMES_US)
            wrong = [
                f"{messages[key].payload.decode()}: was triggered in a paused topic, and has not come"
                for key in keys
                if not messages[key].deliveries
            ]
        resume()
        return wrong
