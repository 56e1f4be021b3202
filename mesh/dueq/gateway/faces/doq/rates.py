"""How often something was done with a queue here, in the last ten seconds; of this gateway, as doq's are of a node."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

_SECONDS: Final = 10
_QUEUES_MAX: Final = 1000
"""Of this many queues, those that were used last, rates are known."""
DONE: Final = ("enqueue", "dequeue", "ack", "nack")


class Rates:
    """Counts per second.

    Args:
        now_s: a clock for durations, whole seconds.
    """

    def __init__(self, now_s: Callable[[], int]) -> None:
        self._now_s = now_s
        self._counts: OrderedDict[str, dict[tuple[str, int], int]] = OrderedDict()

    def count(self, queue: str, done: str) -> None:
        """Something was done with a queue: one of `DONE`."""
        now = self._now_s()
        counts = self._counts.setdefault(queue, {})
        self._counts.move_to_end(queue)
        for name, second in [key for key in counts if key[1] < now - _SECONDS]:
            del counts[name, second]
        counts[done, now] = counts.get((done, now), 0) + 1
        if len(self._counts) > _QUEUES_MAX:
            self._counts.popitem(last=False)

    def of(self, queue: str) -> dict[str, float]:
        """Return how often each of `DONE` was done with a queue per second, in the last full seconds."""
        now = self._now_s()
        counts = self._counts.get(queue, {})
        return {
            done: sum(counts.get((done, now - ago), 0) for ago in range(1, _SECONDS + 1)) / _SECONDS
            for done in DONE
        }
