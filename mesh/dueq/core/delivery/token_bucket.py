"""How fast a limited topic is delivered: a bucket of tokens, one for each message that is leased.

Tokens come in at the topic's rate, and the bucket holds at most `burst`. It belongs to one leadership and begins full,
so after a change of leader up to `burst` messages more may be delivered. A rate counts in thousandths, and all is in
whole billionths of a token: no time is lost to rounding. Source: RFC 2697, the committed burst.
"""

from __future__ import annotations

from math import ceil
from typing import Final

from dueq.instant import Now

_WHOLE: Final = 1_000_000_000
UNLIMITED: Final = 1 << 62


class TokenBucket:
    """The tokens of one led partition."""

    def __init__(self) -> None:
        self._rate = self._burst = 0  # thousandths of a token a second, and tokens
        self._level = 0  # in billionths
        self._at_us = 0

    def configure(self, per_second: float, burst: int, now: Now) -> None:
        """Let this many tokens a second come in, at most `burst` at once (0: as many as in a second); 0: no limit."""
        rate, burst = round(per_second * 1000), burst or ceil(per_second)
        if (rate, burst) == (self._rate, self._burst):
            return
        if not self._rate:
            self._level, self._at_us = burst * _WHOLE, now.mono_us
        self._fill(now)
        self._rate, self._burst = rate, burst
        self._level = min(self._level, burst * _WHOLE)

    def _fill(self, now: Now) -> None:
        elapsed_us, self._at_us = max(now.mono_us - self._at_us, 0), max(now.mono_us, self._at_us)
        self._level = min(self._level + elapsed_us * self._rate, max(self._burst * _WHOLE, self._level))

    def available(self, now: Now) -> int:
        """Return how many messages may be leased now."""
        if not self._rate:
            return UNLIMITED
        self._fill(now)
        return self._level // _WHOLE

    def take(self, count: int) -> None:
        """Take a token for each leased message, `available` at most."""
        self._level -= count * _WHOLE if self._rate else 0

    def next_us(self, now: Now, spoken_for: int = 0) -> int:
        """Return when there is one token more than this many (mono); it must be limited, and have no more now."""
        wanted = (spoken_for + 1) * _WHOLE
        return max(self._at_us + -(-(wanted - self._level) // self._rate), now.mono_us)
