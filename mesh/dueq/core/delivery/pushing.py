"""Pushes of one instant: as they were laid out, or made from the leases where that no longer holds.

Both ways give the same frames, in order of the sessions' numbers. A partition whose leadership is not confirmed pushes
nothing: its due messages wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from dueq.core.delivery.consumers import Consumers, ConsumerSession, SentPush
from dueq.core.delivery.due_queue import NEVER_MS
from dueq.core.delivery.lane import Lane
from dueq.core.delivery.leases import Body
from dueq.core.delivery.prepared import Piece, joined
from dueq.core.delivery.pushes import Leaving, build, frames, gather
from dueq.core.ports.events import Route
from dueq.core.turn.metrics import CoreMetrics
from dueq.instant import Now
from dueq.limits import PUSH_BYTES_MAX, PUSH_ROWS_MAX
from dueq_codecs.messages import Push

_Mine = list[tuple[Lane, Piece]]
"""The pieces that are due for one session, each with the lane that leased it."""


class Pushing:
    """The pushes of one topic.

    Args:
        topic: name.
        broker_id, incarnation: this broker and its life, named in every push.
        lanes: the led partitions, by uid; the dispatcher's own.
        send: takes a push and its body.
    """

    def __init__(
        self,
        topic: str,
        broker_id: str,
        incarnation: int,
        metrics: CoreMetrics,
        lanes: dict[int, Lane],
        consumers: Consumers,
        send: Callable[[Route, Push, list[Body]], None],
    ) -> None:
        self._topic = topic
        self._broker_id, self._incarnation = broker_id, incarnation
        self._metrics = metrics
        self._lanes, self._consumers = lanes, consumers
        self._send = send
        # (wait_ms, rows, of these for the first time, mesh time of the push) of pieces that are not counted yet.
        self._uncounted: list[tuple[int, int, int, int]] = []

    def push(self, now: Now, mesh_us: int) -> None:
        """Push all that is due by mesh time and may leave."""
        mesh_ms = mesh_us // 1000
        due: list[Lane] = []
        for lane in self._lanes.values():
            if lane.next_push_ms > mesh_ms and not lane.has_late:
                continue
            if lane.is_silent(mesh_ms) and not lane.leases_triggered:
                continue
            if lane.partition.confirmed(now):
                due.append(lane)
            else:
                lane.partition.ask(now)
        if due and not self._push_prepared(due, mesh_ms, mesh_us, now):
            self._push_leased(due, mesh_ms, mesh_us, now)

    # -------------------------------------------------------------- as they were laid out

    def push_laid_out(self, now: Now, mesh_us: int) -> bool:
        """Push what was laid out and is due, if that is all that is due; returns whether it was.

        Where it was not, `push` is to be called: nothing has left.
        """
        mesh_ms = mesh_us // 1000
        due: list[Lane] = []
        for lane in self._lanes.values():
            if lane.prepared.next_ms <= mesh_ms:
                if not lane.partition.confirmed(now):
                    return False
                due.append(lane)
            elif lane.has_late or lane.next_unprepared_ms <= mesh_ms:
                return False
        return not due or self._push_prepared(due, mesh_ms, mesh_us, now)

    def is_laid_out(self, mesh_ms: int) -> bool:
        """Whether something is due, and all of it was laid out."""
        for lane in self._lanes.values():
            if lane.has_late or lane.next_unprepared_ms <= mesh_ms:
                return False
        return self.next_ms <= mesh_ms

    @property
    def next_ms(self) -> int:
        """The next instant for which something was laid out; NEVER_MS when there is none."""
        return min((lane.prepared.next_ms for lane in self._lanes.values()), default=NEVER_MS)

    def _push_prepared(self, due: list[Lane], mesh_ms: int, mesh_us: int, now: Now) -> bool:
        """Push what was laid out, if that is all that is due; returns whether it was."""
        for lane in due:
            if lane.has_late or lane.next_unprepared_ms <= mesh_ms or lane.is_silent(mesh_ms):
                return False
        taken = [(lane, lane.prepared.take_due(mesh_ms)) for lane in due]
        by_owner: dict[int, _Mine] = {}
        whole = True
        for lane, pieces in taken:
            for piece in pieces:
                whole = whole and piece.is_whole(lane.leases, now)
                by_owner.setdefault(piece.owner, []).append((lane, piece))
        if not whole or not all(map(_is_one_frame, by_owner.values())):
            for lane, pieces in taken:
                lane.unprepare(pieces)
            return False
        epoch = max(lane.partition.epoch for lane in due)
        for number in sorted(by_owner):
            mine = by_owner[number]
            session = self._consumers.by_number.get(number)
            if session is None or not session.reachable or session.route is None:
                for lane, piece in mine:
                    lane.return_granted(piece.slots, now)
            else:
                self._release(mine, session, session.route, epoch, now, mesh_us)
        return True

    def _release(
        self, mine: _Mine, session: ConsumerSession, route: Route, epoch: int, now: Now, mesh_us: int
    ) -> None:
        if len(mine) > 1:
            mine.sort(key=_instant_of)
        rows, order, more = joined([piece for _, piece in mine])
        session.push_number += 1
        parts = [(lane, piece.slots, piece.tokens) for lane, piece in mine]
        session.unseen.append(SentPush(session.push_number, now.mono_us, True, parts))
        bodies: list[Body] = []
        for lane, piece in mine:
            self._uncounted.append((piece.wait_ms, len(piece.places), piece.first, mesh_us))
            bodies += lane.leave(piece, now)
        if order is not None:
            bodies = [bodies[at] for at in order]
        push = Push(
            self._topic, session.address, session.attach, session.push_number, epoch, mesh_us,
            self._broker_id, rows, self._incarnation, now.mono_us, *more,
        )  # fmt: skip
        self._send(route, push, [bodies[0] if len(bodies) == 1 else b"".join(bodies)])

    def count(self) -> None:
        """Count the messages that have left: the instant of their push has no time for it."""
        if not self._uncounted:
            return
        left, self._uncounted = self._uncounted, []
        metrics, lateness = self._metrics, self._metrics.lateness_of(self._topic)
        pushed = anew = 0
        for wait_ms, rows, first, mesh_us in left:
            metrics.statistics.pushed_together(self._topic, wait_ms, rows, first, mesh_us)
            pushed += rows
            anew += rows - first
            if first:
                lateness.observe(mesh_us - wait_ms * 1000, first)
        metrics.messages["push", self._topic] += pushed
        if anew:
            metrics.redelivered[self._topic] += anew

    # -------------------------------------------------------------- from the leases

    def _push_leased(self, due: list[Lane], mesh_ms: int, mesh_us: int, now: Now) -> None:
        parts = []
        for lane in due:
            slots = lane.take_due(mesh_ms, now)
            if slots is not None and lane.is_silent(mesh_ms):
                slots = lane.only_triggered(slots)
            if slots is not None and len(slots):
                parts.append((lane, slots))
        if not parts:
            return
        for number, leaving in frames(gather(parts)):
            session = self._consumers.by_number.get(number)
            if session is None or not session.reachable or session.route is None:
                for at, lane in enumerate(leaving.lanes):
                    lane.take_back(leaving.slots[leaving.lane == at], now)
                continue
            self._count_push(leaving, mesh_us)
            push, bodies = build(
                leaving, session, self._topic, self._broker_id, self._incarnation, mesh_us, now
            )
            self._send(session.route, push, bodies)

    def _count_push(self, leaving: Leaving, mesh_us: int) -> None:
        self._metrics.statistics.pushed(self._topic, leaving.entries, mesh_us)
        attempts = leaving.entries["attempt"].tolist()
        waits = leaving.entries["wait_at"].tolist()
        self._metrics.messages["push", self._topic] += len(attempts)
        first = attempts.count(1)
        if first < len(attempts):
            self._metrics.redelivered[self._topic] += len(attempts) - first
            waits = [wait for wait, attempt in zip(waits, attempts, strict=True) if attempt == 1]
        lateness = self._metrics.lateness_of(self._topic)
        for wait_ms, count in Counter(waits).items():
            lateness.observe(mesh_us - wait_ms * 1000, count)


def _is_one_frame(mine: _Mine) -> bool:
    rows = size = 0
    for _, piece in mine:
        rows += len(piece.places)
        size += piece.size
    return rows <= PUSH_ROWS_MAX and (rows == 1 or size <= PUSH_BYTES_MAX)


def _instant_of(mine: tuple[Lane, Piece]) -> int:
    return mine[1].wait_ms
