"""The consumers of one topic at one leader: sessions, what credit they have left, and whose turn it is.

Credit is a limit, not a counter: the leader counts its own leases, and a consumer restates what it may have
out in every frame, with a growing number. So nothing leaks when a frame is lost or repeated.

Sessions with free credit stand in a line. Rows are dealt to the line in turn; who has no credit left steps
out and joins again at the end when a lease of it ends. A session that has not been heard for two thirds of
its time, or whose connection broke, gets nothing new: its SDK is about to give up what it has. The same goes
for one that let a lease run out, until it speaks: it may have died.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dueq import limits
from dueq.core.delivery.leases import I64, Slots, total
from dueq.core.ports.events import Route
from dueq.instant import Now
from dueq_codecs.messages import ConsumerFrame
from dueq_codecs.records import U16, U64

SESSION_US: Final = limits.CONSUMER_SESSION_MS * 1000
HEALTHY_US: Final = limits.CONSUMER_LOST_US
LAPSE_US: Final = 500_000
"""A consumer whose lease has run out is believed to be alive if it spoke so shortly before."""


class SentPush(NamedTuple):
    """A push that its consumer has not confirmed to have seen."""

    number: int
    sent_us: int
    first: bool
    """None of its messages can be with the consumer from an earlier push."""
    parts: list[tuple[int, Slots, U64]]
    """(uid, slots, tokens)"""


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
    """Partitions of which it held something, by its own word, when it attached."""
    in_line: bool = False
    push_number: int = 0
    unseen: deque[SentPush] = field(default_factory=deque)
    told_round: int = 0
    """Number of the last time of waiting that it was told of."""
    told_us: int = -SESSION_US

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


class Consumers:
    """All sessions of a topic at this leader."""

    def __init__(self) -> None:
        self.by_id: dict[bytes, ConsumerSession] = {}
        self.by_number: dict[int, ConsumerSession] = {}
        self._line: deque[ConsumerSession] = deque()
        self._left = 0  # sessions that were dropped while they stood in line, since it was last made anew
        self._numbers = 0

    def open(self, consumer_id: bytes, now: Now) -> ConsumerSession:
        """Return a new session."""
        self._numbers += 1
        session = ConsumerSession(self._numbers, consumer_id, now.mono_us)
        self.by_id[consumer_id] = session
        self.by_number[self._numbers] = session
        return session

    def drop(self, session: ConsumerSession) -> None:
        """Forget a session; its leases find nobody any more."""
        session.reachable = False
        session.credit = 0
        self.by_id.pop(session.consumer_id, None)
        self.by_number.pop(session.number_here, None)
        if session.in_line:
            self._left += 1
            if 2 * self._left > len(self._line):
                self._line = deque(left for left in self._line if left.number_here in self.by_number)
                self._left = 0

    # -------------------------------------------------------------- credit

    def offer(self, session: ConsumerSession, now: Now) -> None:
        """Let a session that may have free credit stand in line."""
        if not session.in_line and session.free_rows(now) > 0:
            session.in_line = True
            self._line.append(session)

    def free_rows(self, now: Now, limit: int) -> int:
        """Return how many rows the line can take, up to `limit`; a session that can take none leaves it."""
        rows = 0
        left = False
        for session in self._line:
            free = session.free_rows(now)
            if free > 0:
                rows += free
                if rows >= limit:
                    return limit
            else:
                session.in_line = False
                left = True
        if left:
            self._line = deque(session for session in self._line if session.in_line)
        return rows

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

    def deal(self, sizes: npt.NDArray[np.uint32], now: Now) -> Deal:
        """Deal rows to the line in turn and count them as out.

        Args:
            sizes: payload bytes of each row, in the order in which they are wanted.
        """
        count = len(sizes)
        quotas: dict[ConsumerSession, int] = {}
        order = self._in_turn(count, now)
        weight = total(sizes)
        if any(s.bytes_out + weight > s.credit_bytes for s in order):
            return self._deal_by_bytes(sizes.tolist(), order, now)
        remaining = count
        while remaining and order:
            share = max(1, remaining // len(order))
            for session in order:
                quota = min(share, session.free_rows(now) - quotas.get(session, 0), remaining)
                if quota > 0:
                    quotas[session] = quotas.get(session, 0) + quota
                    remaining -= quota
            order = [s for s in order if s.free_rows(now) > quotas[s]] if remaining else order
        owners = list(quotas)
        column = _interleave(list(quotas.values()))
        self._count_out(owners, column, sizes[: len(column)])
        self._requeue(owners, now)
        return Deal(None if len(column) == count else np.arange(len(column)), owners, column)

    def _in_turn(self, count: int, now: Now) -> list[ConsumerSession]:
        """Take sessions from the line that can hold `count` rows between them, at most one per row."""
        order: list[ConsumerSession] = []
        free = 0
        while self._line and (len(order) < count or free < count):
            session = self._line.popleft()
            session.in_line = False
            rows = session.free_rows(now)
            if rows > 0:
                order.append(session)
                free += rows
        return order

    def _deal_by_bytes(self, sizes: list[int], order: list[ConsumerSession], now: Now) -> Deal:
        """Deal one by one where bytes of credit are short.

        A row that fits nobody keeps its claim: the emptiest session is left out from then on, so that it
        drains until the row fits, and smaller rows behind do not starve a large one.
        """
        rows: list[int] = []
        column: list[int] = []
        owners: dict[ConsumerSession, int] = {}
        turn = deque(order)
        for row, size in enumerate(sizes):
            taker = None
            for _ in range(len(turn)):
                session = turn.popleft()
                if session.free_rows(now) <= 0:
                    continue
                turn.append(session)
                if session.fits(size):
                    taker = session
                    break
            if taker is not None:
                rows.append(row)
                column.append(owners.setdefault(taker, len(owners)))
                taker.rows_out += 1
                taker.bytes_out += size
            elif turn:
                turn.remove(min(turn, key=lambda session: session.bytes_out))
            if not turn:
                break
        waiting = set(turn)
        self._requeue([*turn, *(session for session in order if session not in waiting)], now)
        return Deal(np.array(rows, np.intp), list(owners), np.array(column, np.uint16))

    def _count_out(self, owners: list[ConsumerSession], column: U16, sizes: npt.NDArray[np.uint32]) -> None:
        if len(owners) == 1:
            owners[0].rows_out += len(column)
            owners[0].bytes_out += total(sizes)
            return
        rows = np.bincount(column, minlength=len(owners)).tolist()
        weights = np.bincount(column, sizes, minlength=len(owners)).tolist()
        for session, count, weight in zip(owners, rows, weights, strict=True):
            session.rows_out += count
            session.bytes_out += int(weight)

    def _requeue(self, sessions: list[ConsumerSession], now: Now) -> None:
        for session in sessions:
            self.offer(session, now)


def _interleave(quotas: list[int]) -> U16:
    """Return an owner per row, in turn: quotas 2, 1 give 0, 1, 0."""
    if len(quotas) == 1:
        return np.zeros(quotas[0], np.uint16)
    if not quotas:
        return np.zeros(0, np.uint16)
    owner = np.repeat(np.arange(len(quotas), dtype=np.uint16), quotas)
    turn = np.concatenate([np.arange(quota) for quota in quotas])
    return owner[np.argsort(turn, kind="stable")]
