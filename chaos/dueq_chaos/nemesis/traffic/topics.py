"""The topics of the traffic: one of each kind, one with unique keys, one with recurrences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dueq import Client

TIMELINE: Final = "nemesis"
RANKED: Final = "nemesis-ranked"
SHARED: Final = "nemesis-shared"
KEYED: Final = "nemesis-keyed"
TICKING: Final = "nemesis-ticking"
RANKS: Final = 5
GROUPS: Final = tuple(f"group-{number}" for number in range(12))
REMEMBER_S: Final = 900.0
"""How long a key is remembered; longer than anybody insists."""

_PARTITIONS: Final = {TIMELINE: 6, RANKED: 2, SHARED: 2, KEYED: 2, TICKING: 2}
_SETTINGS: Final[Mapping[str, Mapping[str, Any]]] = {
    RANKED: {"kind": "priority"},
    SHARED: {"kind": "fair"},
    KEYED: {"keys": "unique", "remember": REMEMBER_S},
}
PARTITIONS: Final = sum(_PARTITIONS.values())


def create(client: Client) -> None:
    """Create all of them, with three replicas each."""
    for name, partitions in _PARTITIONS.items():
        client.create_topic(name, partitions=partitions, replicas=3, **_SETTINGS.get(name, {}))
