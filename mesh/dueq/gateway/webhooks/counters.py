"""One gateway's counts of its work for one endpoint."""

from __future__ import annotations

from dataclasses import dataclass, field

from dueq.gateway.webhooks.answers import Fate


@dataclass(slots=True)
class Counters:
    """Counts since the gateway began to serve the endpoint. Instants are Unix ms; 0: never.

    Attributes:
        fates: answers by the fate of the message.
        filtered: messages that were finished and not sent.
        put_back: messages that were given back unsent, uncounted.
        leases_lost: messages whose lease was over before they were settled.
        seconds: how long all answers took together.
        last_success_ms: when a receiver answered with 2xx.
        last_failure_ms, last_failure: when it did not, and what it said.
        held_until_ms: nothing is sent before, as the receiver has asked.
        in_flight: requests that are under way.
        window: requests that may be.
    """

    fates: dict[Fate, int] = field(default_factory=lambda: dict.fromkeys(Fate, 0))
    filtered: int = 0
    put_back: int = 0
    leases_lost: int = 0
    seconds: float = 0.0
    last_success_ms: int = 0
    last_failure_ms: int = 0
    last_failure: str = ""
    held_until_ms: int = 0
    in_flight: int = 0
    window: int = 0

    @property
    def delivered(self) -> int:
        """Messages that a receiver has taken."""
        return self.fates[Fate.DONE]

    @property
    def failed(self) -> int:
        """Attempts that count."""
        return self.fates[Fate.AGAIN]

    @property
    def postponed(self) -> int:
        """Answers that asked for a pause."""
        return self.fates[Fate.LATER]

    @property
    def dead(self) -> int:
        """Messages whose receiver wants no further attempt."""
        return self.fates[Fate.DEAD]
