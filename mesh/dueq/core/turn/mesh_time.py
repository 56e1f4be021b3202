"""Mesh time: what this broker compares due instants with, and how far its own clock may be trusted.

A broker's wall clock may be ahead; a message pushed by it would be early, irrevocably. So every broker
measures the others' offsets (four timestamps each, as NTP does). A measurement proves that the offset lies within
half a round trip of the measured one. So each offset has a lowest and a highest value. The own offset, 0, is certain.
With the medians of the lowest and of the highest values

    mesh time = own clock                        where the highest is 0 or more: nothing proves that it is ahead
                own clock + the median lowest    where a majority proves that it is ahead

So while a majority is right, a clock that is proved wrong makes nothing early, and a right one is never set back. A
clock may be ahead unproved by no more than a round trip. The median of an even number of values is the lower one of the
two in the middle: nobody knows which of two clocks is right, and a late message does less harm than an early one. A
clock that is behind is left alone.

An offset is kept as *peer's wall clock minus own monotonic clock*, so when the own wall clock is slewed or
set, what was measured before stays right. A step is held against the clock all the same (see `turn`), as the
monotonic clock may have stood still with its machine: pushes wait until a majority has been measured again, and
measurements that this disproves are dropped. A broker that knows no peer has nothing to measure
against: it holds for `LONE_HOLD_US`, so that a clock set twice in a row has settled.

A broker that has just started knows nothing of its clock. Until it has measured a majority of the registered brokers,
it pushes nothing and stands for no election. So it stamps nothing either. There is no bound to that: as long as
another broker is registered, the own clock alone proves nothing. A broker that has read the registrations and finds
itself alone is the mesh, and goes on at once. But if topics name other brokers, those may be starting at the same
time (after a power failure), and it waits `ALONE_US` for them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from dueq import limits
from dueq.instant import Now

LONE_HOLD_US: Final = 1_000_000
ALONE_US: Final = 10_000_000
"""After a start: how long unregistered brokers that topics name may take to register and be measured."""
SLOT_US: Final = 1_000_000
SLOTS: Final = 10
"""The best measurement of each slot is kept, for 10 s in all."""
DRIFT_US: Final = 2 * SLOT_US * limits.CLOCK_DRIFT_PPM // 1_000_000
"""Largest drift of two clocks in the time of a slot."""
VERDICT_US: Final = 1_000_000
"""Least time between two of the three measurements that convict a clock."""
VERDICTS: Final = 3


class _Peer:
    """One peer's clock as measured.

    Attributes:
        best: (round trip, peer's wall − own mono), µs, of the measurement that may be wrong by least; None: none.
        fresh: measured since the last step.
        judged: measured since the last verdict.
    """

    __slots__ = ("_slots", "_stale", "best", "fresh", "judged")

    def __init__(self) -> None:
        self._stale = False
        self.best: tuple[int, int] | None = None
        self.fresh = False
        self.judged = False
        self._slots: deque[tuple[int, int, int]] = deque()

    def add(self, trip_us: int, base_us: int, mono_us: int) -> None:
        """Keep a measurement if it is the best of its slot."""
        self.fresh = self.judged = True
        slot = mono_us // SLOT_US
        if self._stale:
            self._stale = False
            self._slots = deque(old for old in self._slots if _agree(old, (slot, trip_us, base_us)))
            self.expire(mono_us)
        if self._slots and self._slots[-1][0] == slot:
            if trip_us >= self._slots[-1][1]:
                return
            self._slots.pop()
        self._slots.append((slot, trip_us, base_us))
        self.expire(mono_us)

    def expire(self, mono_us: int, least: int = 1) -> None:
        """Drop old measurements, and choose the best: the smallest sum of half a round trip and of the possible drift
        since.

        The last measurement of a registered broker stays (`least`). While the broker is out of reach, an old
        measurement is better than none: without it a clock that is ahead could pass for the mesh's.
        """
        latest = mono_us // SLOT_US
        while len(self._slots) > least and self._slots[0][0] <= latest - SLOTS:
            self._slots.popleft()
        ranked = [(trip + (latest - slot) * DRIFT_US, trip, base) for slot, trip, base in self._slots]
        self.best = min(ranked)[1:] if ranked else None

    def doubt(self) -> None:
        """Own wall and own mono have parted. Until the peer is measured again, the old measurement holds. It compares
        with our monotonic clock, so it stays right when a wall clock is set. Stamps that are made meanwhile must not
        have the set clock's time.
        """
        self._stale = True
        self.fresh = self.judged = False


class MeshTime:
    """The mesh's clock as seen from one broker.

    Attributes:
        hold: nothing may be pushed until a majority was measured (again): the broker has just started, or its clock
            was seen to step.
        settled: a majority was measured since the start. Before, this broker does not lead.
        steps: how many steps were seen.
    """

    def __init__(self, max_offset_ms: int = limits.MAX_CLOCK_OFFSET_MS) -> None:
        self.hold = True
        self.settled = False
        self.steps = 0
        self._max_offset_us = max_offset_ms * 1000
        self._peers: dict[str, _Peer] = {}
        self._gone: dict[str, _Peer] = {}
        """Brokers without a registration: their measurements hold until they are too old."""
        self._named: set[str] = set()
        """Other brokers that topics name."""
        self._alone_at_us: int | None = None
        """Until when (mono) these may take to register; None: registrations or topics have not been read yet."""
        self._registrations_read = self._topics_read = False
        self._base_us: int | None = None  # wall - mono at the last turn
        self._stepped: Now | None = None
        self._verdict_us = 0
        self._verdicts = 0
        self._handed_over_us: int | None = None

    # -------------------------------------------------------------- measuring

    def observe(self, peer: str, t1_us: int, t2_us: int, t3_us: int, t4_us: int, now: Now) -> None:
        """Take one measurement.

        Args:
            peer: whose clock.
            t1_us: own wall clock when the frame left that the peer has answered.
            t2_us: the peer's wall clock when it came.
            t3_us: the peer's wall clock when its answer left.
            t4_us: own wall clock when the answer came.
        """
        known = self._peers.get(peer) or self._gone.get(peer)
        if known is None:
            known = self._peers[peer] = _Peer()
        trip_us = (t4_us - t1_us) - (t3_us - t2_us)
        if trip_us < 0 or t3_us < t2_us or t1_us <= 0:
            return  # a clock was set between the timestamps
        if self._stepped is not None and t1_us < self._stepped.wall_us:
            return  # sent before our own clock stepped forward
        offset_us = ((t2_us - t1_us) + (t3_us - t4_us)) // 2
        known.add(trip_us, offset_us + now.wall_us - now.mono_us, now.mono_us)
        if peer in self._peers:
            self._gone.pop(peer, None)

    def registered(self, peers: Iterable[str], now: Now) -> None:
        """These other brokers are registered, as was just read: a majority counts them, measured or not."""
        for peer in peers:
            self._peers.setdefault(peer, _Peer())
        self._registrations_read = True
        self._has_read(now)

    def named(self, peers: Iterable[str], now: Now) -> None:
        """Topics, as was just read, name these other brokers: they may be about to register."""
        self._named.update(peers)
        self._topics_read = True
        self._has_read(now)

    def _has_read(self, now: Now) -> None:
        if self._alone_at_us is None and self._registrations_read and self._topics_read:
            self._alone_at_us = now.mono_us + ALONE_US

    def forget(self, peer: str) -> None:
        """The broker's registration is gone: no majority needs its clock any more.

        The measurements still tell how far ahead the own clock is. If they were dropped at once, mesh time would leap
        to such a clock when the last measured peer dies, while its last frame still allows pushes. It may make
        nothing earlier: with a wrong clock that is gone, another one would outvote one that is right.
        """
        known = self._peers.pop(peer, None)
        if known is not None:
            known.fresh = known.judged = False
            self._gone[peer] = known

    def offset_us(self, peer: str) -> int | None:
        """Return the peer's clock minus our own at the last turn, µs; None when it has not been measured."""
        known = self._peers.get(peer)
        if known is None or known.best is None or self._base_us is None:
            return None
        return known.best[1] - self._base_us

    # -------------------------------------------------------------- reading

    def mesh_now_us(self, now: Now) -> int:
        """Return mesh time as Unix µs: never ahead of the own wall clock.

        Brokers that are gone count where that makes it later.
        """
        base_us = now.wall_us - now.mono_us
        known = _clocks(self._peers, base_us)
        correction_us = _correction(known)
        if self._gone:
            correction_us = min(correction_us, _correction(known + _clocks(self._gone, base_us)))
        return now.wall_us + correction_us

    def offset_of_mesh_us(self, now: Now) -> int:
        """Return the best guess, on neither side, of mesh time minus the own wall clock: for those who measure us.

        A client that is told `mesh_now_us` of a broker that is behind believes that the whole mesh is behind.
        """
        base_us = now.wall_us - now.mono_us
        known = [offset for offset, _ in _clocks(self._peers, base_us)]
        gone = [offset for offset, _ in _clocks(self._gone, base_us)]
        return min(_median(known), _median(known + gone))

    # -------------------------------------------------------------- judging the own clock

    def turn(self, now: Now) -> bool:
        """Look at the clock once per turn of the loop, before anything is pushed.

        Returns:
            Whether the wall clock has stepped (by more than `limits.CLOCK_STEP_MS`) since the last turn.
        """
        base_us = now.wall_us - now.mono_us
        stepped = self._base_us is not None and abs(base_us - self._base_us) > limits.CLOCK_STEP_MS * 1000
        self._base_us = base_us
        if stepped:
            self.hold = True
            self.steps += 1
            self._stepped = now
            for peer in self._all():
                peer.doubt()
        elif self.hold:
            self._try_release(now)
        if now.mono_us >= self._verdict_us:
            for peer in self._peers.values():
                peer.expire(now.mono_us)
            for peer in self._gone.values():
                peer.expire(now.mono_us, least=0)
            self._gone = {name: peer for name, peer in self._gone.items() if peer.best is not None}
            self._judge(now)
        return stepped

    def next_deadline_us(self) -> int | None:
        """Return when (mono, µs) `turn` is to be called at the latest: the end of a lone broker's hold."""
        if not self.hold or self._peers:
            return None
        if not self.settled:
            return self._alone_at_us
        return self._stepped.mono_us + LONE_HOLD_US if self._stepped is not None else None

    def _all(self) -> list[_Peer]:
        return [*self._peers.values(), *self._gone.values()]

    def _majority(self, absent: int = 0) -> int:
        """The smallest majority of the registered brokers, this one included, and of `absent` others."""
        return (len(self._peers) + 1 + absent) // 2 + 1

    def _try_release(self, now: Now) -> None:
        if not self.settled:
            self._settle(now)
        elif not self._peers:
            since_us = self._stepped.mono_us if self._stepped else now.mono_us
            self.hold = now.mono_us - since_us < LONE_HOLD_US
        else:
            self.hold = self._measured() < self._majority()

    def _settle(self, now: Now) -> None:
        """After the start: go on once enough clocks were measured of those that there are."""
        if self._alone_at_us is None:
            return
        absent = len(self._named - self._peers.keys()) if now.mono_us < self._alone_at_us else 0
        if self._measured() >= self._majority(absent):
            self.hold, self.settled = False, True

    def _measured(self) -> int:
        """Number of clocks measured since the start or the last step, the own one included."""
        return 1 + sum(peer.fresh for peer in self._peers.values())

    def _beyond(self, now: Now) -> int:
        """Number of peers that are proved to be beyond the limit on one side (the side with more)."""
        known = _clocks(self._peers, now.wall_us - now.mono_us)
        ahead = sum(offset - trip // 2 > self._max_offset_us for offset, trip in known)
        behind = sum(offset + trip // 2 < -self._max_offset_us for offset, trip in known)
        return max(ahead, behind)

    def _judge(self, now: Now) -> None:
        """Count a verdict once a majority has been measured since the last one."""
        if 1 + sum(peer.judged for peer in self._peers.values()) < self._majority():
            return
        self._verdict_us = now.mono_us + VERDICT_US
        for peer in self._peers.values():
            peer.judged = False
        # A majority without us, all on one side: of 0, +600 and +1200 ms the one in the middle is right, and of two
        # clocks none is ever convicted.
        if self._beyond(now) >= self._majority():
            self._verdicts = min(self._verdicts + 1, VERDICTS)
        else:
            self._verdicts = 0

    def excess(self, now: Now) -> bool:
        """Return whether to hand over leadership now because the own clock is wrong.

        True when in three measurements a majority of all brokers was beyond the limit on one side, and at
        most once in `limits.HANDOVER_MS`: a True is taken as done.
        """
        if self._verdicts < VERDICTS:
            return False
        last_us = self._handed_over_us
        if last_us is not None and now.mono_us - last_us < limits.HANDOVER_MS * 1000:
            return False
        self._handed_over_us = now.mono_us
        return True

    def within(self, peer: str, now: Now) -> bool:
        """Return whether a peer's clock is near enough to the mesh's median to be handed over to."""
        known = self._peers.get(peer)
        if known is None or known.best is None:
            return False
        offset_us = known.best[1] - (now.wall_us - now.mono_us)
        return abs(offset_us - self.offset_of_mesh_us(now)) <= self._max_offset_us

    def alarm(self, now: Now) -> str:
        """Return what is wrong with the clock, for the log and the status; empty when it is right."""
        if not self.settled:
            return "this broker has just started: it neither leads nor pushes before it has measured the mesh's clocks"
        if self.hold:
            return "the wall clock has stepped: pushes are held until the mesh has been measured anew"
        if self._verdicts >= VERDICTS:
            return (
                f"the wall clock is {-self.offset_of_mesh_us(now) // 1000} ms from the mesh's median; "
                f"the limit is {self._max_offset_us // 1000} ms"
            )
        if self._beyond(now):
            return f"clocks in the mesh differ by more than {self._max_offset_us // 1000} ms"
        return ""


def _clocks(peers: dict[str, _Peer], base_us: int) -> list[tuple[int, int]]:
    """Return (offset from the own clock, round trip) of every peer that has been measured, µs."""
    return [(best[1] - base_us, best[0]) for peer in peers.values() if (best := peer.best)]


def _correction(clocks: list[tuple[int, int]]) -> int:
    """Return the correction of the own clock, µs: 0, unless a majority proves that it is ahead."""
    if _median([offset + trip // 2 for offset, trip in clocks]) >= 0:
        return 0
    return _median([offset - trip // 2 for offset, trip in clocks])


def _median(offsets_us: list[int]) -> int:
    """Return the median of these and of the own clock's 0; of two in the middle the lower one."""
    return sorted([*offsets_us, 0])[len(offsets_us) // 2]


def _agree(old: tuple[int, int, int], new: tuple[int, int, int]) -> bool:
    """Return whether two measurements (slot, round trip, base) may both be right."""
    apart_us = (old[1] + new[1]) // 2 + (new[0] - old[0] + 1) * DRIFT_US
    return abs(new[2] - old[2]) <= apart_us
