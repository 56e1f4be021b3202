"""A partition with a shared body that no message names grows older by itself, and stops when that is gone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from dueq.core.partition.bodies import BodyCare
from dueq.core.state.applied import Applied
from dueq.core.turn.deadlines import Deadlines
from dueq.instant import Now
from dueq.limits import BODY_SWEEP_MS
from dueq_codecs.records import Record, RecordKind
from tests.unit.core.state.test_body_table import Bodies

UID = 3


class Leader:
    """What the care sees: a story's timeline, and a clock."""

    def __init__(self) -> None:
        self.story = Bodies()
        self.us = 0
        self.ctx: Any = SimpleNamespace(bodies=Deadlines(), turn=self.now)
        self.serving = True
        self.uid = UID
        self.proposed = 0
        self.care = BodyCare(self.ctx, self)  # type: ignore[arg-type]

    @property
    def now(self) -> Now:
        return Now(self.us, self.us)

    @property
    def timeline(self) -> Any:
        return self.story.timeline

    def propose(self, record: Record, now: Now, body: bytes = b"") -> int:
        self.proposed += 1
        record.uid, record.sequence, record.version = UID, self.timeline.applied + 1, 2
        record.stamp = self.story.stamp = self.story.stamp + BODY_SWEEP_MS
        self.care.applied(record, self.story.apply(record), now)
        return record.sequence

    def wait(self) -> bool:
        """Let time pass until the care wants something; False: it wants nothing."""
        at_us = self.ctx.bodies.next_us()
        if at_us is None:
            return False
        self.us = at_us
        self.ctx.bodies.take_due(self.us)
        self.care.tick(self.now)
        return True


def test_it_makes_records_until_the_body_is_forgotten() -> None:
    leader = Leader()
    leader.story.body(5 * BODY_SWEEP_MS, size=20_000)
    leader.care.begin(leader.now)
    while leader.wait():
        assert leader.proposed <= 5
    assert (leader.proposed, leader.story.kept()) == (5, False)


def test_a_body_with_messages_needs_nothing() -> None:
    leader = Leader()
    leader.story.body(size=20_000)
    leader.story.share(1, 2)
    leader.care.begin(leader.now)
    assert not leader.wait()
    leader.story.cancel()
    leader.care.applied(Record(RecordKind.CANCEL, UID, 3, 1, 0), Applied(results=[None]), leader.now)  # type: ignore[list-item]
    assert leader.wait()
    leader.care.end()
    assert not leader.wait()
