"""A user who asks for single messages, linearizably: a message that ended before the question is never shown.

It asks most while brokers sleep or are cut off. A leader that was replaced meanwhile has an older state, and may have
the question before it knows.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from random import Random
from typing import Any, Final

from dueq.client.core.asking.looking import LookAnswer
from dueq.client.core.ports import effects, events
from dueq_chaos.sim.environment.mesh import SimMesh
from dueq_chaos.sim.environment.sdk import SimClient
from dueq_chaos.sim.judging.history import MessageKey, name_of

ASK: Final = "ask for what has ended"
_FROM: Final = 89_000_000
"""The storms of smaller seeds are as they were before there was such a user."""
_SHARE: Final = 0.3
_CALL_US: Final = 10_000_000
_REPLACING: Final = frozenset(
    {"pause", "isolate", "isolate from all", "doze", "naps", "overthrow", "wrong heir"}
)
_LASTS_US: Final = 6_000_000
_EVERY_US: Final = (20_000, 400_000)
_STEPS_MAX: Final = 120
_AT_ONCE: Final = 8


def draw(seed: int, steps: Iterable[tuple[int, str]]) -> list[tuple[int, str, int]]:
    """Return when it asks, and the seed of the rest; from a stream of its own.

    Args:
        seed: of the storm.
        steps: what else happens: when (µs), and its kind.
    """
    random = Random(seed * 0x27D4EB2F + 97)
    if seed < _FROM or random.random() >= _SHARE:
        return []
    found: list[tuple[int, str, int]] = []
    for began_us, kind in steps:
        if kind not in _REPLACING:
            continue
        at_us = began_us
        while at_us < began_us + _LASTS_US and len(found) < _STEPS_MAX:
            at_us += random.randint(*_EVERY_US)
            found.append((at_us, ASK, random.getrandbits(32)))
    return found


class Asker:
    """Asks for messages by their ids.

    Args:
        mesh: where.
        wire: whether frames go through the codecs.
    """

    def __init__(self, mesh: SimMesh, wire: bool) -> None:
        self._mesh = mesh
        self._client: SimClient = mesh.sdk("asker")
        self._client.wire = wire

    def do(self, topic: str, random: Random) -> None:
        """Ask for some of those that have ended last."""
        uids = {part.uid for part in self._mesh.coordinator.topics[topic].partitions}
        ended = {
            key: message.acked_at_us or message.cancelled_at_us or 0
            for key, message in self._mesh.history.messages.items()
            if key[0] in uids and (message.acked_at_us or message.cancelled_at_us) and not message.waived
        }
        for key in sorted(ended, key=lambda key: (ended[key], key))[-_AT_ONCE:]:
            self._ask(topic, key)

    def _ask(self, topic: str, key: MessageKey) -> None:
        uid, sequence, row = key
        first, asked_us = self._mesh.history.messages[key].first, self._mesh.world.wall_us

        def build(number: int, deadline_us: int) -> events.Event:
            return events.Look(number, deadline_us, topic, uid, "message", first, sequence, row, current=True)

        self._client.call(build, _CALL_US, partial(self._answered, key, asked_us))

    def _answered(self, key: MessageKey, asked_us: int, value: Any, failed: effects.Failed | None) -> None:
        if failed is None and isinstance(value, LookAnswer) and value.document:
            self._mesh.history.misanswered(
                f"{name_of(key)}: had ended when it was asked for at {asked_us}, and was shown: {value.document}"
            )
