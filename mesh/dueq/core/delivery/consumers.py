"""The consumers of one topic at one leader: sessions, what credit they have left, and whose turn it is.

Credit is a limit, not a counter: the leader counts its own leases, and a consumer restates what it may have
out in every frame, with a growing number. So nothing leaks when a frame is lost or repeated.

Sessions with free credit stand in a line, and the one that was dealt the least is next. Rows that are due in the same
millisecond go to one session in runs of up to `RUN_ROWS`: they leave in one push, which costs little more than a
push of one row. A session without credit leaves the line. It joins again when one of its leases ends, and has no
claim from the time in between (start-time fair queueing: Goyal, Vin and Cheng, SIGCOMM 1996). A session that has
not been heard for two thirds of its time, or whose connection broke, gets nothing new: its SDK is about
to give up what it has. A session that let a lease run out gets nothing new until it speaks: it may have died.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dueq import limits
from dueq.core.delivery.lane import Lane
from dueq.core.delivery.leases import I64, total
from dueq.core.ports.events import Route
from dueq.core.state.entry_rows import Slots
from dueq.instant import Now
from dueq_codecs.messages import ConsumerFrame
from dueq_codecs.records import U16, U64

SESSION_US: Final = limits.CONSUMER_SESSION_MS * 1000
HEALTHY_US: Final = limits.CONSUMER_LOST_US
LAPSE_US: Final = 500_000
"""A consumer whose lease has run out is believed to be alive if it spoke so shortly before."""
RUN_ROWS: Final = 8
"""Most rows due in one millisecond that go to one consumer before it is another's turn."""
BACKLOG_RUNS: Final = 4
"""Runs are longer where each session in line would get more of them than this many in one millisecond."""


class SentPush(NamedTuple):
    """A push that its consumer has not confirmed to have seen."""

    number: int
    sent_us: int
    first: bool
    """None of its messages can be with the consumer from an earlier push."""
    parts: list[tuple[Lane, Slots, U64]]
    """Lanes, slots and tokens. A partition that is led again has another lane, whose slots hold other leases."""
    upload_bytes: int = 0
    """Bytes that have gone ahead of it in chunks."""


@dataclass(slots=True, eq=False)
class ConsumerSession:
    """One consumer at this leader. Without a route it is only known from leases that were inherited."""

    number_here: int
    """Names the session in lease tables; never used again."""
    consumer_id: bytes
    heard_us: int
    """(mono) when its last frame came; for one that has not attached, when its leases were inherited."""
    route: Route | None = None
    attach: int = 0
    life: int = 0
    """Of a consumer with a name: which of its processes has attached; 0: it has no name, or has not attached."""
    credit_number: int = -1
    credit: int = 0
    credit_bytes: int = 0
    lease_ms: int = 0
    rows_out: int = 0
    """Unfinished leases, proposed ones included."""
    bytes_out: int = 0
    reachable: bool = False
    """Attached, and its route has not failed since."""
    lapsed_us: int = -SESSION_US
    """(mono) when leases of it last ran out."""
    must_attach: bool = False
    """It is asked to attach again, so that it states what it holds."""
    stated: frozenset[int] = frozenset()
    """Partitions of which it held something when it attached, and which it took this broker to lead."""
    in_line: bool = False
    served: int = 0
    """Rows dealt to it, as the line counts them."""
    push_number: int = 0
    unseen: deque[SentPush] = field(default_factory=deque)
    pull: bytes = b""
    """Name of the pull to which its answer goes; its leases are detached. Empty: it is a consumer's session."""
    detached: bool = False
    """Its leases are detached, as those of a pull are."""
    dealt_ms: int | None = None
    """Of a pull: the instant of all that was dealt to it; None: nothing was."""
    chunk_us: int = 0
    """(mono) when a chunk of a long payload last left for it."""
    told_round: int = 0
    """Number of the last time of waiting that it was told of."""
    told_us: int = -SESSION_US

    @property
    def address(self) -> bytes:
        """The name that its frames bear."""
        return self.pull or self.consumer_id

    def joins(self, instant_ms: int) -> bool:
        """Whether it may be dealt what is due at this instant: a pull is answered at one instant."""
        return not self.pull or self.dealt_ms is None or self.dealt_ms == instant_ms

    @property
    def is_muted(self) -> bool:
        """It let a lease run out and has not spoken about then or since: it may have died."""
        return self.heard_us < self.lapsed_us - LAPSE_US

    def free_rows(self, now: Now) -> int:
        """How many more leases it may get; 0 when it is not healthy."""
        if not self.reachable or now.mono_us - self.heard_us > HEALTHY_US:
            return 0
        if self.is_muted:
            return 0
        if self.rows_out and self.bytes_out >= self.credit_bytes:
            return 0
        return min(self.credit, limits.CONSUMER_LEASES_MAX) - self.rows_out

    def fits(self, size: int) -> bool:
        """Whether its bytes allow one more message: a single one always."""
        return not self.rows_out or self.bytes_out + size <= self.credit_bytes

    def room(self, longest: int) -> int:
        """How many more bytes it may get at most, if no message is longer than this."""
        return max(self.credit_bytes - self.bytes_out, 0 if self.rows_out else longest)

    def takes(self, size: int, now: Now) -> bool:
        """Whether it may get one more message of this size."""
        return self.fits(size) and self.free_rows(now) > 0

    def begin_attach(self, frame: ConsumerFrame) -> None:
        """Begin anew with a frame that attaches: earlier pushes count no more."""
        self.attach = frame.attach
        self.life = frame.life
        self.detached = frame.detached
        self.push_number = 0
        self.unseen.clear()
        self.reachable = True
        self.must_attach = False
        self.credit_number = -1
        self.stated = frozenset(frame.held_uid[: len(frame.held_uid) - frame.aside].tolist())

    def shift(self, gap_us: int) -> None:
        """The process was paused: as long, nothing could be heard of it."""
        self.heard_us += gap_us
        self.lapsed_us += gap_us
        self.chunk_us += gap_us
        self.unseen = deque(push._replace(sent_us=push.sent_us + gap_us) for push in self.unseen)

    def restate(self, frame: ConsumerFrame) -> None:
        """Take the limits of a frame."""
        self.credit_number = frame.number
        self.credit = frame.credit
        self.credit_bytes = frame.credit_bytes
        self.lease_ms = min(max(frame.lease_ms, limits.LEASE_MS_MIN), limits.LEASE_MS_MAX)


class Deal(NamedTuple):
    """Which rows go to whom."""

    rows: Slots | None
    """Rows that found a consumer, in order; None: all of them."""
    owners: list[ConsumerSession]
    column: U16
    """Index into `owners` per row dealt."""


@dataclass(slots=True)
class Run:
    """The session that gets the rows due in one millisecond, and how many more it gets before another does."""

    session: ConsumerSession
    left: int


_Place = tuple[int, int, ConsumerSession]
"""(its `served` when it was entered, number of the place, session)"""


@dataclass(slots=True)
class Turn:
    """What the deals of one turn for several partitions have in common.

    Attributes:
        runs: by millisecond.
        left_out: sessions that a message which fits nobody has a claim to.
        unfit: bytes of the smallest such message.
        over: nothing more is dealt.
    """

    runs: dict[int, Run] = field(default_factory=dict)
    left_out: set[ConsumerSession] = field(default_factory=set)
    unfit: int = 1 << 62
    over: bool = False


class _Hand:
    """The result of one deal so far."""

    def __init__(self) -> None:
        self.dealt = 0
        self._pieces: list[range] = []
        self._column: list[int] = []
        self._owners: dict[ConsumerSession, int] = {}

    def take(self, session: ConsumerSession, first: int, count: int, size: int) -> None:
        """Deal `count` rows from row `first` on, `size` bytes together, to a session."""
        session.rows_out += count
        session.bytes_out += size
        session.served += count
        self.dealt += count
        self._pieces.append(range(first, first + count))
        self._column.append(self._owners.setdefault(session, len(self._owners)))

    def deal(self, count: int) -> Deal:
        """Return the deal of `count` rows: which of them were dealt, and to whom."""
        column = np.repeat(np.array(self._column, np.uint16), list(map(len, self._pieces)))
        rows = None
        if self.dealt < count:
            rows = np.array([row for piece in self._pieces for row in piece], np.intp)
        return Deal(rows, list(self._owners), column)


class _Unclaimed:
    """The sessions of a deal that no message has a claim to.

    Attributes:
        left_out: the others: each drains until a message fits.
    """

    def __init__(self, sessions: list[ConsumerSession], left_out: set[ConsumerSession]) -> None:
        self.left_out = left_out
        # A heap by bytes that are out; one that was dealt something since is put right when it comes up.
        self._heap = [(session.bytes_out, place, session) for place, session in enumerate(sessions)]
        heapify(self._heap)

    def add(self, session: ConsumerSession, place: int) -> None:
        """One more takes part in the deal."""
        heappush(self._heap, (session.bytes_out, place, session))

    def leave_out(self, instant_ms: int, now: Now) -> bool:
        """Leave the emptiest out that takes what is due at an instant; returns whether there is one."""
        heap = self._heap
        while heap:
            out, place, session = heap[0]
            if out < session.bytes_out:
                heapreplace(heap, (session.bytes_out, place, session))
                continue
            heappop(heap)
            if session not in self.left_out and session.free_rows(now) > 0 and session.joins(instant_ms):
                self.left_out.add(session)
                return True
        return False


class Consumers:
    """All sessions of a topic at this leader."""

    def __init__(self) -> None:
        self.by_id: dict[bytes, ConsumerSession] = {}
        self.by_number: dict[int, ConsumerSession] = {}
        self.dealt_pulls: dict[int, ConsumerSession] = {}
        """Pulls that something was dealt to, by number."""
        # A heap with one place for each session in line. A session that was served since is put right when it comes up.
        self._line: list[_Place] = []
        self._places = 0
        self._level = 0  # what the session that was last in turn had been served before
        self._left = 0  # sessions that were dropped while they stood in line, since it was last made anew
        self._numbers = 0
        self._looks = 0  # that the present deal may still take at sessions that are too full

    def open(self, consumer_id: bytes, now: Now) -> ConsumerSession:
        """Return a new session."""
        self._numbers += 1
        session = ConsumerSession(self._numbers, consumer_id, now.mono_us)
        self.by_id[consumer_id] = session
        self.by_number[self._numbers] = session
        return session

    def open_pull(self, pull: bytes, holder: bytes, now: Now) -> ConsumerSession:
        """Return the session of a pull for a consumer, which may have others."""
        self._numbers += 1
        session = ConsumerSession(self._numbers, holder, now.mono_us, pull=pull)
        self.by_number[self._numbers] = session
        return session

    def drop(self, session: ConsumerSession) -> None:
        """Forget a session; its leases find nobody any more."""
        session.reachable = False
        session.credit = 0
        if not session.pull:
            self.by_id.pop(session.consumer_id, None)
        self.by_number.pop(session.number_here, None)
        self.dealt_pulls.pop(session.number_here, None)
        if session.in_line:
            self._left += 1
            if 2 * self._left > len(self._line):
                self._line = [entry for entry in self._line if entry[2].number_here in self.by_number]
                heapify(self._line)
                self._left = 0

    # -------------------------------------------------------------- credit

    def offer(self, session: ConsumerSession, now: Now) -> None:
        """Let a session that may have free credit stand in line."""
        if not session.in_line and session.free_rows(now) > 0:
            session.in_line = True
            session.served = max(session.served, self._level)
            heappush(self._line, self._place(session))

    def _place(self, session: ConsumerSession) -> _Place:
        self._places += 1
        return session.served, self._places, session

    def free_rows(self, now: Now, limit: int) -> int:
        """Return how many rows the line can take, up to `limit`; a session that can take none leaves it."""
        rows = 0
        left = False
        for _, _, session in self._line:
            free = session.free_rows(now)
            if free > 0:
                rows += free
                if rows >= limit:
                    break
            else:
                session.in_line = False
                left = True
        if left:
            self._line = [entry for entry in self._line if entry[2].in_line]
            heapify(self._line)
        return min(rows, limit)

    def free_bytes(self, now: Now, longest: int) -> int:
        """Return how many bytes the line can take at most, if no message is longer than this."""
        return sum(session.room(longest) for _, _, session in self._line if session.free_rows(now) > 0)

    def give_back(self, owners: I64, sizes: npt.NDArray[np.uint32], now: Now) -> None:
        """Leases have ended: their credit is free again."""
        if len(owners) == 1:
            self._returned(int(owners[0]), 1, int(sizes[0]), now)
            return
        first = owners[0]
        if (owners == first).all():
            self._returned(int(first), len(owners), total(sizes), now)
            return
        numbers, inverse = np.unique(owners, return_inverse=True)
        rows = np.bincount(inverse).tolist()
        weights = np.bincount(inverse, sizes).tolist()
        for number, count, weight in zip(numbers.tolist(), rows, weights, strict=True):
            self._returned(number, count, int(weight), now)

    def _returned(self, number: int, rows: int, size: int, now: Now) -> None:
        session = self.by_number.get(number)
        if session is not None:
            session.rows_out -= rows
            session.bytes_out -= size
            self.offer(session, now)

    # -------------------------------------------------------------- dealing

    def deal(
        self, sizes: npt.NDArray[np.uint32], waits: U64, turn: Turn, now: Now, *, strict: bool = False
    ) -> Deal:
        """Deal rows to the line in turn and count them as out.

        Args:
            sizes: payload bytes of each row, in the order in which they are wanted.
            waits: when each is due (ms); what is due already, the present millisecond.
            turn: what was dealt in this turn so far; begun with a new one.
            now: the instant.
            strict: nothing that comes after a row that fits nobody is dealt.
        """
        count = len(sizes)
        hand = _Hand()
        if turn.over:
            return hand.deal(count)
        runs = turn.runs
        ends = _ends_of_runs(waits)
        upto = [0, *np.cumsum(sizes, dtype=np.int64).tolist()]
        instants = waits.tolist()
        at = 0
        for end in ends:
            while at < end:
                run = runs.get(instants[at])
                free = run.session.free_rows(now) if run is not None and run.left > 0 else 0
                if run is None or free <= 0:
                    session, free = self._next(instants[at], now)
                    if session is None:
                        return hand.deal(count)
                    self._level = session.served
                    most = max(RUN_ROWS, (end - at) // (BACKLOG_RUNS * len(self._line)))
                    run = runs[instants[at]] = Run(session, most)
                session = run.session
                if turn.left_out or session.bytes_out + upto[-1] - upto[at] > session.credit_bytes:
                    self._deal_by_bytes(hand, sizes.tolist(), instants, at, turn, now, strict=strict)
                    return hand.deal(count)
                alone = len(self._line) == 1 and not session.pull
                rows = min(count - at if alone else min(run.left, end - at), free)
                hand.take(session, at, rows, upto[at + rows] - upto[at])
                self._dealt(session, instants[at])
                run.left -= rows
                at += rows
                if alone:  # a session that joins later has no claim to rows that nobody else could take
                    self._level = session.served
        return hand.deal(count)

    def note_pull(self, session: ConsumerSession) -> None:
        """Something is on its way to a session, which may be that of a pull."""
        if session.pull:
            self.dealt_pulls[session.number_here] = session

    def _dealt(self, session: ConsumerSession, instant_ms: int) -> None:
        if session.pull:
            session.dealt_ms = instant_ms
            self.note_pull(session)

    def _next(self, instant_ms: int, now: Now) -> tuple[ConsumerSession | None, int]:
        """Return the least served session that can take a row due at an instant, and how many rows; others leave."""
        line = self._line
        while line:
            served, _, session = line[0]
            if served < session.served:
                heapreplace(line, self._place(session))
            elif (free := session.free_rows(now)) > 0 and session.joins(instant_ms):
                return session, free
            else:
                heappop(line)
                session.in_line = False
        return None, 0

    def _deal_by_bytes(
        self,
        hand: _Hand,
        sizes: list[int],
        waits: list[int],
        first: int,
        turn: Turn,
        now: Now,
        *,
        strict: bool,
    ) -> None:
        """Deal one by one where bytes of credit are short.

        A row that fits nobody keeps its claim: the emptiest session is left out from then on, so that it
        drains until the row fits, and smaller rows behind do not starve a large one.
        """
        runs = turn.runs
        # As many as the rows may go to, or have a claim to, beside those that others have a claim to.
        line = self._in_turn(len(sizes) - first + len(turn.left_out), waits[first], now)
        order = [session for _, _, session in line]
        unclaimed = _Unclaimed(order, turn.left_out)
        self._looks = limits.DEAL_LOOKS_MAX
        for row in range(first, len(sizes)):
            size = sizes[row]
            run = runs.get(waits[row])
            if (
                run is None
                or run.left <= 0
                or run.session in unclaimed.left_out
                or not run.session.takes(size, now)
            ):
                taker = None
                if size < turn.unfit:  # room never grows in a turn: what is as long fits nobody either
                    taker = self._first_to_take(line, unclaimed.left_out, size, waits[row], now)
                    taker = taker or self._further_to_take(line, order, unclaimed, size, waits[row], now)
                if taker is None:
                    if self._looks <= 0:
                        break
                    turn.unfit = min(turn.unfit, size)
                    turn.over = strict or not unclaimed.leave_out(waits[row], now)
                    if turn.over:
                        break
                    continue
                self._level = taker.served
                run = runs[waits[row]] = Run(taker, RUN_ROWS)
            hand.take(run.session, row, 1, size)
            self._dealt(run.session, waits[row])
            run.left -= 1
        for session in order:
            self.offer(session, now)

    def _in_turn(self, count: int, instant_ms: int, now: Now) -> list[_Place]:
        """Take up to `count` sessions from the line: a heap."""
        found: list[_Place] = []
        while len(found) < count:
            session, _ = self._next(instant_ms, now)
            if session is None:
                break
            found.append(heappop(self._line))
            session.in_line = False
        return found

    def _first_to_take(
        self, line: list[_Place], left_out: set[ConsumerSession], size: int, instant_ms: int, now: Now
    ) -> ConsumerSession | None:
        """Return the least served session of these places that has room for a message of this size."""
        too_full: list[_Place] = []
        taker: ConsumerSession | None = None
        while line and taker is None:
            served, _, session = line[0]
            if session in left_out or session.free_rows(now) <= 0 or not session.joins(instant_ms):
                heappop(line)
            elif served < session.served:
                heapreplace(line, self._place(session))
            elif session.fits(size):
                taker = session
            else:
                too_full.append(heappop(line))
        self._looks -= len(too_full)
        for place in too_full:
            heappush(line, place)
        return taker

    def _further_to_take(
        self,
        line: list[_Place],
        order: list[ConsumerSession],
        unclaimed: _Unclaimed,
        size: int,
        instant_ms: int,
        now: Now,
    ) -> ConsumerSession | None:
        """Let sessions take part that were not in turn yet, until one has room for a message of this size."""
        while self._looks > 0:
            session, _ = self._next(instant_ms, now)
            if session is None:
                break
            self._looks -= 1
            heappush(line, heappop(self._line))
            session.in_line = False
            unclaimed.add(session, len(order))
            order.append(session)
            if session not in unclaimed.left_out and session.fits(size):
                return session
        return None


def _ends_of_runs(waits: U64) -> list[int]:
    """Return where each stretch of equal instants ends."""
    if len(waits) == 1:
        return [1]
    ends: list[int] = (np.flatnonzero(waits[1:] != waits[:-1]) + 1).tolist()
    ends.append(len(waits))
    return ends
