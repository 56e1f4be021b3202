"""Spreads a crowd: at most a given number of messages a second, in the same order, none delayed longer than the
window.

Nothing here looks at a message. The campaign's messages, in order of their dues, have *places* 0, 1, 2, …; that many
of them fall into each second. A second has room for `per_second` less what waits in the topic then. Whoever finds no
room waits for the next second with room, in order: a queue, whose course follows from the counts alone. So the driver
plans over seconds, and the plan is a list of *slots*: the places from `first` on, `count` of them, leave in `second`.
Executors find a message's slot by its place. A message in no slot keeps its instant.

Inside its second a slot's messages are spread evenly, but none leaves before it is due. Both instants only grow with
the place, so their maximum does: the order is kept to the millisecond.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from dueq.campaign.counts import I64, Counts
from dueq.campaign.spec import PER_SECOND_MAX
from dueq.errors import InvalidRequest
from dueq.time_text import instant_text


@dataclass(frozen=True)
class Slots:
    """A plan.

    Attributes:
        per_second: messages in any second at most.
        first: of each slot the place of its first message, ascending.
        count: how many messages it has.
        second: when they leave, seconds since 1970, ascending.
        after: the campaign's messages by second, once smoothed.
        longest_s: the longest delay, in whole seconds.
    """

    per_second: int
    first: I64
    count: I64
    second: I64
    after: Counts
    longest_s: int

    @property
    def smooth(self) -> bool:
        """Whether nobody is moved."""
        return not len(self.first)

    def instants(self, place: I64, due_ms: I64) -> I64:
        """Return when messages leave, Unix ms.

        Args:
            place: in the order of dues, ties settled.
            due_ms: of each.
        """
        if self.smooth or not len(place):
            return due_ms
        slot = np.maximum(np.searchsorted(self.first, place, side="right") - 1, 0)
        offset = place - self.first[slot]
        inside = (offset >= 0) & (offset < self.count[slot])
        spread_ms = self.second[slot] * 1000 + offset * 1000 // self.count[slot]
        return np.where(inside, np.maximum(due_ms, spread_ms), due_ms)


class _Late(Exception):
    """A second's messages would leave too late: `at` the second, `delay_s` by how much."""

    def __init__(self, at: int, delay_s: int) -> None:
        self.at, self.delay_s = at, delay_s
        super().__init__(at, delay_s)


def smoothed(arriving: Counts, existing: Counts, per_second: int | None, window_s: int) -> Slots:
    """Plan.

    Args:
        arriving: the campaign's messages by second.
        existing: what waits in the topic, by second.
        per_second: the limit; None: the lowest with which no message is delayed longer than the window, but no lower
            than the fullest second of what is scheduled already.
        window_s: the longest delay.

    Raises:
        InvalidRequest: the window is too short for the limit (or for any); the text says for which second.
    """
    if per_second is None:
        per_second = _lowest(arriving, existing, window_s)
    try:
        return _plan(arriving, existing, per_second, window_s)
    except _Late as late:
        crowd = int(arriving.count[np.searchsorted(arriving.at, late.at)])
        raise InvalidRequest(
            f"[smoothing] the window is too short: with {per_second:,} a second, some of the {crowd:,} messages due at "
            f"{instant_text(late.at * 1000)} would leave more than {window_s:,} s late; raise per_second or window"
            + (" (what waits in the topic already counts)" if existing.total else "")
        ) from None


def _lowest(arriving: Counts, existing: Counts, window_s: int) -> int:
    """The lowest limit that the window allows; below what waits in the topic it would smooth nothing."""
    high = min(max(arriving.added(existing).peak, 1), PER_SECOND_MAX)
    low = min(max(existing.peak, 1), high)
    while low < high:
        middle = (low + high) // 2
        try:
            _plan(arriving, existing, middle, window_s)
        except _Late:
            low = middle + 1
        else:
            high = middle
    return low


def _plan(arriving: Counts, existing: Counts, per_second: int, window_s: int) -> Slots:
    """Let the queue run, second by second, but only where there is one.

    Raises:
        _Late: somebody would wait longer than `window_s`.
    """
    taken = dict(zip(existing.at.tolist(), existing.count.tolist(), strict=True))
    seconds, counts = arriving.at.tolist(), arriving.count.tolist()
    slots: list[tuple[int, int, int]] = []
    waiting: deque[list[int]] = deque()
    place = turn = longest_s = 0
    second = seconds[0] if seconds else 0
    while turn < len(seconds) or waiting:
        if not waiting:
            second = seconds[turn]
        come = 0
        if turn < len(seconds) and seconds[turn] == second:
            come = counts[turn]
            turn += 1
        room = max(per_second - taken.get(second, 0), 0)
        if not waiting and come <= room:
            place += come
            second += 1
            continue
        if come:
            waiting.append([second, come])
        if second - waiting[0][0] > window_s:
            raise _Late(waiting[0][0], second - waiting[0][0])
        if room:
            longest_s = max(longest_s, second - waiting[0][0])
            left = _let_go(waiting, room)
            slots.append((place, left, second))
            place += left
        second += 1
    first, count, at = np.array(slots, np.int64).reshape(-1, 3).T
    return Slots(per_second, first, count, at, _after(arriving, slots), longest_s)


def _let_go(waiting: deque[list[int]], room: int) -> int:
    """Take up to `room` off the queue; return how many those were."""
    left = 0
    while waiting and left < room:
        part = min(waiting[0][1], room - left)
        waiting[0][1] -= part
        left += part
        if not waiting[0][1]:
            waiting.popleft()
    return left


def _after(arriving: Counts, slots: list[tuple[int, int, int]]) -> Counts:
    """The counts once smoothed: whose places are in no slot stay in their second."""
    if not slots:
        return arriving
    first, count, at = np.array(slots, np.int64).T
    ends = np.cumsum(arriving.count)
    starts = ends - arriving.count
    in_slots_before = np.concatenate([[0], np.cumsum(count)])

    def covered(places: I64) -> I64:
        """Number of places below these that are in slots."""
        slot = np.searchsorted(first, places, side="right") - 1
        whole = in_slots_before[np.maximum(slot, 0)]
        part = np.clip(places - first[np.maximum(slot, 0)], 0, count[np.maximum(slot, 0)])
        return np.where(slot < 0, 0, whole + part)

    staying = arriving.count - (covered(ends) - covered(starts))
    return Counts.of(np.concatenate([arriving.at, at]), np.concatenate([staying, count]))
