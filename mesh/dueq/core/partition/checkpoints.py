"""Checkpoints of one replica's timeline: when one is made, who waits for it, and who holds it up."""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

from dueq import limits
from dueq.core.ports.persistence import SaveCheckpoint
from dueq.core.state.timeline import Timeline
from dueq.core.turn.context import Context, EndOfTurn
from dueq.instant import Now


class Checkpoints:
    """The checkpoints of one replica, at most one of them under way.

    Args:
        partition: what is touched when a checkpoint may be due, or was saved.
        timeline: what is written down.
    """

    def __init__(self, ctx: Context, partition: EndOfTurn, timeline: Timeline, now: Now) -> None:
        self._ctx, self._partition = ctx, partition
        # Partitions of a topic begin together; every delivery would be late if their checkpoints were made together.
        phase_ms = crc32(f"{ctx.settings.broker_id} {partition.uid}".encode()) % limits.CHECKPOINT_MS
        self._made_at_us = now.mono_us - phase_ms * 1000
        self._holds = 0
        # (sequence, callback) to call once a checkpoint contains that record.
        self._waiting: list[tuple[int, Callable[[frozenset[int], Now], None]]] = []
        self._life = 0
        self.begin(timeline)

    def begin(self, timeline: Timeline) -> None:
        """Go on with a timeline that is on the disk as it is."""
        self.void()
        self._timeline = timeline
        self._under_way = False
        self._saved = timeline.applied
        # Jobs that were open at the last one.
        self._hidden = timeline.hidden_jobs()

    @property
    def saved(self) -> int:
        """The last record that the checkpoint on the disk contains."""
        return self._saved

    def void(self) -> None:
        """Checkpoints under way count no more: the replica is wiped, or its topic was deleted."""
        self._life += 1

    def after(self, then: Callable[[frozenset[int], Now], None], now: Now) -> None:
        """Call `then` once the disk holds all that is applied by now, unless the leadership ends before.

        It is given the numbers of the jobs that were open at that checkpoint. While it needs the disk to stay as it
        is, it calls `hold`, and `let_go` when it has read.
        """
        if self._timeline.applied == self._saved and not self._under_way:
            then(self._hidden, now)
            return
        self._waiting.append((self._timeline.applied, then))
        self._ctx.touch(self._partition)

    def leadership_lost(self) -> None:
        """Nobody waits any more."""
        self._waiting.clear()

    def hold(self) -> None:
        """Make none until `let_go`."""
        self._holds += 1

    def let_go(self) -> None:
        """One who held them up needs it no more."""
        self._holds -= 1
        self._ctx.touch(self._partition)

    def make(self, now: Now) -> SaveCheckpoint | None:
        """Order one if it is due; return it: the log before what it holds is not needed to recover."""
        if not self._due(now):
            if self._timeline.applied != self._saved:
                self._ctx.checkpoints.set(self._partition.uid, self._made_at_us + limits.CHECKPOINT_MS * 1000)
            return None
        checkpoint = self._timeline.checkpoint()
        if checkpoint is None:
            return None
        self._under_way = True
        self._made_at_us = now.mono_us
        self._hidden = self._timeline.hidden_jobs()
        self._ctx.persist(checkpoint)
        self._call_when_saved(checkpoint.applied, self._hidden)
        return checkpoint

    def _due(self, now: Now) -> bool:
        if self._under_way or self._holds or self._timeline.applied == self._saved:
            return False
        if self._waiting or self._timeline.wants_checkpoint:
            return True
        return now.mono_us - self._made_at_us >= limits.CHECKPOINT_MS * 1000

    def _call_when_saved(self, applied: int, hidden: frozenset[int]) -> None:
        life = self._life

        def saved(now: Now) -> None:
            if life != self._life:
                return
            self._under_way = False
            self._saved = applied
            self._timeline.checkpoint_saved(applied)
            self._ctx.touch(self._partition)
            waiting, self._waiting = self._waiting, []
            for since, then in waiting:
                if since <= applied:
                    then(hidden, now)
                else:
                    self._waiting.append((since, then))

        self._ctx.when_persisted(saved)
