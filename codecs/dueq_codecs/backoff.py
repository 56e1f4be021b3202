"""Back-off: how long a message waits after an attempt that failed.

The document of a topic's setting `backoff` has five parts. The first delay is `first_ms`. Each further one is `factor`
times as long, up to `longest_ms`; after `doublings` such steps (null: always) it grows by equal steps. A share of each
delay, `jitter` at most, is added or taken away.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

BACKOFF_MS_MAX: Final = 366 * 24 * 3600 * 1000
"""Longest delay."""
FACTOR_MAX: Final = 1000.0
DOUBLINGS_MAX: Final = 1000


def fault_of_backoff(value: object) -> str | None:
    """Say what is wrong with the document of a back-off, or None; null stands for none."""
    if value is None:
        return None
    names = {"first_ms", "factor", "longest_ms", "jitter", "doublings"}
    if not isinstance(value, Mapping) or set(value) != names:
        return f"backoff has {', '.join(sorted(names))}, not {value!r:.200}"
    for name in ("first_ms", "longest_ms"):
        if type(value[name]) is not int or not 0 <= value[name] <= BACKOFF_MS_MAX:
            return f"{name} of backoff is 0 to {BACKOFF_MS_MAX} ms, not {value[name]!r:.80}"
    for name, low, high in (("factor", 1.0, FACTOR_MAX), ("jitter", 0.0, 1.0)):
        part = value[name]
        if type(part) not in (int, float) or not low <= part <= high:
            return f"{name} of backoff is {low:g} to {high:g}, not {part!r:.80}"
    steps = value["doublings"]
    if steps is not None and (type(steps) is not int or not 0 <= steps <= DOUBLINGS_MAX):
        return f"doublings of backoff is 0 to {DOUBLINGS_MAX}, or null, not {steps!r:.80}"
    return None


def delay_ms(backoff: Mapping[str, Any] | None, attempt: int, chance: float) -> int:
    """Return how long a message waits after its attempt of this number, ms.

    Args:
        backoff: the document; None: it does not wait.
        attempt: counted from 1.
        chance: a number from 0 up to 1, which decides about the jitter.
    """
    if backoff is None:
        return 0
    steps, growing = max(attempt - 1, 0), backoff["doublings"]
    longest = float(backoff["longest_ms"])
    plain = float(backoff["first_ms"]) * _power(
        backoff["factor"], steps if growing is None else min(steps, growing)
    )
    if growing is not None and steps > growing:
        plain *= 1 + steps - growing
    jittered = min(plain, longest) * (1 + backoff["jitter"] * (2 * chance - 1))
    return int(min(max(jittered, 0.0), longest))


def _power(factor: float, steps: int) -> float:
    """Return factor ** steps, at most a number that is longer than every delay."""
    if factor <= 1 or not steps:
        return 1.0
    enough = math.log(2.0 * BACKOFF_MS_MAX) / math.log(factor)
    return math.pow(factor, min(steps, enough + 1))
