"""Callers that were just answered, and usually call again at once.

With unique keys each call has rows for every partition. Four callers that take turns make requests of a quarter of the
rows that they could have together, and a request costs as much as a hundred rows.
"""

from __future__ import annotations

from typing import Final

RETURN_US: Final = 20_000
"""They are waited for as long as their request took; so long at least: four threads that make 500 rows each need a
quarter of it, undisturbed."""
RETURN_US_MAX: Final = 100_000


class Returning:
    """Those of one window. They are waited for if all came back in time the last time."""

    __slots__ = ("_away", "_by_us", "_usual")

    def __init__(self) -> None:
        self._away = 0
        self._by_us = 0
        self._usual = False

    @property
    def until_us(self) -> int:
        """Until when (monotonic) somebody is waited for; 0: nobody is."""
        return self._by_us if self._away and self._usual else 0

    def answered(self, callers: int, sent_us: int, now_us: int) -> None:
        """So many callers may call again; when their request was sent."""
        if callers:
            self._give_up(now_us)
            self._away += callers
            self._by_us = now_us + min(max(now_us - sent_us, RETURN_US), RETURN_US_MAX)

    def called(self, now_us: int) -> None:
        """A caller has come."""
        self._give_up(now_us)
        if self._away:
            self._away -= 1
            self._usual = self._usual or not self._away

    def _give_up(self, now_us: int) -> None:
        if self._away and now_us >= self._by_us:
            self._away, self._usual = 0, False
