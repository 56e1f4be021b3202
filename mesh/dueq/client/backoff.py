"""Back-off: how long a message waits after an attempt that came to nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dueq import limits
from dueq.client import times
from dueq.client.arguments import plain
from dueq.client.times import Seconds
from dueq.errors import InvalidRequest
from dueq_codecs.backoff import fault_of_backoff


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays that grow from attempt to attempt.

    Attributes:
        first: the delay after the first attempt, seconds or timedelta.
        factor: how much longer each further delay is, 1 to 1,000; 1: all are the same.
        longest: no delay is longer.
        jitter: up to this part of each delay is added or taken away, 0 to 1.
        doublings: after this many steps the delay grows by equal steps; None: it goes on as it began.
    """

    first: Seconds = 1.0
    factor: float = 2.0
    longest: Seconds = 3600.0
    jitter: float = 0.1
    doublings: int | None = None

    def document(self) -> dict[str, Any]:
        """Return the value of the setting.

        Raises:
            InvalidRequest: a value is outside its limits.
        """
        found = {
            "first_ms": times.duration_ms(self.first, "first of the back-off", 0, limits.DELAY_MS_MAX),
            "factor": plain(self.factor),
            "longest_ms": times.duration_ms(self.longest, "longest of the back-off", 0, limits.DELAY_MS_MAX),
            "jitter": plain(self.jitter),
            "doublings": plain(self.doublings),
        }
        fault = fault_of_backoff(found)
        if fault is not None:
            raise InvalidRequest(fault)
        return found


def backoff_document(backoff: Backoff) -> dict[str, Any]:
    """Return the value of the setting.

    Raises:
        InvalidRequest: it is no back-off, or a value is outside its limits.
    """
    if not isinstance(backoff, Backoff):
        raise InvalidRequest(f"backoff is a Backoff, such as Backoff(first=1.0), not {backoff!r:.80}")
    return backoff.document()


def backoff_of(found: Mapping[str, Any] | None) -> Backoff | None:
    """Return the back-off that a topic's setting says; None: there is none."""
    if found is None:
        return None
    return Backoff(
        found["first_ms"] / 1000,
        found["factor"],
        found["longest_ms"] / 1000,
        found["jitter"],
        found["doublings"],
    )
