"""Consumers that have said goodbye: an older ATTACH that arrives after the goodbye opens no session.

Two connections, a relay or a repetition may bring frames in another order than they were sent. A session that such an
ATTACH opened would be nobody's: it would be given messages until it ended for silence. So the number of the attach that
a goodbye has ended is kept for a while.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

KEPT_US: Final = 60_000_000
"""Largest delay of a frame."""
KEPT_MAX: Final = 4_096
"""Goodbyes remembered at most; the oldest go first."""


class Departed:
    """The last goodbyes to one leader.

    Args:
        kept: how many are remembered at most; the oldest go first.
    """

    def __init__(self, kept: int = KEPT_MAX) -> None:
        self._kept = kept
        self._ended: OrderedDict[bytes, tuple[int, int]] = OrderedDict()

    def note(self, consumer_id: bytes, attach: int, now_us: int) -> None:
        """A consumer has ended this attach of its and all before it."""
        known, _ = self._ended.pop(consumer_id, (0, 0))
        self._ended[consumer_id] = max(attach, known), now_us
        while len(self._ended) > self._kept or next(iter(self._ended.values()))[1] < now_us - KEPT_US:
            self._ended.popitem(last=False)

    def has_ended(self, consumer_id: bytes, attach: int, now_us: int) -> bool:
        """Whether this attach has been ended by a goodbye, as far as that is remembered."""
        ended, noted_us = self._ended.get(consumer_id, (0, 0))
        return attach <= ended and noted_us >= now_us - KEPT_US
