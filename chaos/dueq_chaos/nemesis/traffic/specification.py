"""The orders of a process of the traffic, given at its start."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Specification:
    """One process.

    Attributes:
        role: PRODUCER, CONSUMER, KEYING or TICKING.
        name: its own in the whole history.
        endpoints: of the mesh.
        topic: an existing one; a producer has several, see `topics`.
        history: path of its own history file, or of its notes.
        seed: of its whims.
        rate: messages per second (all but consumers).
        careless: share of messages (0–1) that a consumer does not simply acknowledge.
        lease_s: of its leases (all but producers).
    """

    role: str
    name: str
    endpoints: tuple[str, ...]
    topic: str
    history: str
    seed: int
    rate: float = 0
    careless: float = 0
    lease_s: float = 4.0

    def as_text(self) -> str:
        """One word of a command line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Self:
        """The opposite of `as_text`."""
        found = json.loads(text)
        return cls(**{**found, "endpoints": tuple(found["endpoints"])})


PRODUCER, CONSUMER, KEYING, TICKING = "producer", "consumer", "keying", "ticking"
CALM = "calm"
"""Begin nothing new; receive on, and simply acknowledge."""
STOP = "stop"
"""Begin nothing new, find out what is open, give back, end."""
EVERY_S = 0.25
"""Time between two prints of a process's counters, each one JSON line."""
