"""Collects garbage when nothing is due.

The collector is off while the loop runs: a full collection in a turn would make pushes late. Reference
counting frees nearly everything that a broker drops. The rest are cycles of exceptions and of libraries.
"""

from __future__ import annotations

import gc
import time

_YOUNG = 2_000
"""Fewer objects than this since the last collection are not worth one. It takes half a microsecond each."""
_YOUNG_MAX = 20_000
"""The most young objects before a collection, even if the loop never rests."""
_REST_US = 2_000
"""A rest."""
_OLD_EVERY = 500
"""Young collections before an old one is due."""


class IdleCollector:
    """Collects when the loop has nothing to do for a while."""

    def __init__(self) -> None:
        self._young_since_old = 0
        self._old_us = 20_000
        # How long the last collection of everything took: it is done only where it fits.

    def start(self) -> None:
        """Take the collections over; objects that exist now are never looked at again."""
        gc.freeze()
        gc.disable()

    def stop(self) -> None:
        """Give the collections back to the interpreter."""
        gc.enable()
        gc.unfreeze()

    def rest(self, left_us: int) -> None:
        """Collect if it is worth it; the loop has nothing to do for `left_us`."""
        young = gc.get_count()[0]
        if young < _YOUNG or (left_us < _REST_US and young < _YOUNG_MAX):
            return
        if self._young_since_old >= _OLD_EVERY and left_us > 2 * self._old_us:
            # Of the processor: a pause says nothing about the next one.
            began_ns = time.thread_time_ns()
            gc.collect()
            self._old_us = (time.thread_time_ns() - began_ns) // 1000
            self._young_since_old = 0
        else:
            # Both young generations at once: so each object is looked at once before it is old.
            gc.collect(1)
            self._young_since_old += 1
