"""A partition with something that runs out by its age grows older by itself, and stops when that is gone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dueq import limits
from dueq.core.partition.ageing import Ageing
from dueq.core.partition.partition import Partition as RealPartition
from dueq.core.state.applied import Applied
from dueq.core.state.timeline import AGE_STEP_MS
from dueq.core.turn.deadlines import Deadlines
from dueq.instant import Now
from dueq_codecs.records import Record, RecordKind
from tests.unit.core.state.test_body_table import Bodies
from tests.unit.core.state.test_timeline import u64

UID = 3


class Leader:
    """What the care sees: a story's timeline, and a clock."""

    def __init__(self) -> None:
        self.story = Bodies()
        self.us = 0
        self.ctx: Any = SimpleNamespace(ageing=Deadlines(), turn=self.now)
        self.serving = True
        self.uid = UID
        self.proposed = 0
        self.care = Ageing(self.ctx, self)  # type: ignore[arg-type]

    @property
    def now(self) -> Now:
        return Now(self.us, self.us)

    @property
    def log_end(self) -> int:
        return int(self.timeline.applied)

    @property
    def timeline(self) -> Any:
        return self.story.timeline

    def propose(self, record: Record, now: Now, body: bytes = b"") -> int:
        self.proposed += 1
        record.uid, record.sequence, record.version = UID, self.timeline.applied + 1, 2
        record.stamp = self.story.stamp = self.story.stamp + AGE_STEP_MS
        self.care.applied(record, self.story.apply(record), now)
        return record.sequence

    def wait(self) -> bool:
        """Let time pass until the care wants something; False: it wants nothing."""
        at_us = self.ctx.ageing.next_us()
        if at_us is None:
            return False
        self.us = at_us
        self.ctx.ageing.take_due(self.us)
        self.care.tick(self.now)
        return True


def test_it_makes_records_until_the_body_is_forgotten() -> None:
    leader = Leader()
    leader.story.body(5 * AGE_STEP_MS, size=20_000)
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


@pytest.mark.parametrize(
    "kind", [RecordKind.CANCEL, RecordKind.LAPSE, RecordKind.DISCARD, RecordKind.FIRE], ids=str
)
def test_a_record_of_the_leaders_own_may_end_the_last_message_of_a_body(kind: RecordKind) -> None:
    """Passes, expiries, the end of what is kept, and recurrences: nobody waits for an answer."""
    leader = Leader()
    leader.story.body(size=20_000)
    leader.story.share(1, 2)
    leader.care.begin(leader.now)
    leader.story.cancel()
    leader.care.applied(Record(kind, UID, 3, 1, 0), Applied(), leader.now)
    assert leader.wait()


def of(**kept: Any) -> Any:
    """A timeline that keeps this, and nothing else."""
    nothing = {
        "applied": 0, "names_count": 0, "names_run_out": False, "bodies": SimpleNamespace(idle_until_ms=None),
        "jobs": SimpleNamespace(by_key={}), "passes": SimpleNamespace(by_name={}),
        "groups": SimpleNamespace(by_name={}, has_idle=False),
    }  # fmt: skip
    return SimpleNamespace(**(nothing | kept))


FULL = {
    "JOBS_MAX": of(jobs=SimpleNamespace(by_key={b"a": 1})),
    "NAMES_MAX": of(names_count=1, names_run_out=True),
    "PASSES_MAX": of(passes=SimpleNamespace(by_name={"a": 1})),
    "GROUPS_MAX": of(groups=SimpleNamespace(by_name={"a": 1}, has_idle=True)),
}


class Partition:
    """A partition in which nothing happens but by its care."""

    def __init__(self, timeline: Any) -> None:
        self.timeline, self.uid, self.serving, self.log_end = timeline, UID, True, 0
        self.proposed: list[Record] = []

    def propose(self, record: Record, now: Now, body: bytes = b"") -> int:
        self.proposed.append(record)
        return len(self.proposed)


@pytest.mark.parametrize("bound", FULL)
def test_a_full_table_whose_entries_run_out_makes_time_pass(
    bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition, ctx = Partition(FULL[bound]), SimpleNamespace(ageing=Deadlines())
    care = Ageing(ctx, partition)  # type: ignore[arg-type]
    care.begin(Now(0, 0))
    assert ctx.ageing.next_us() is None, "there is room enough"
    monkeypatch.setattr(limits, bound, 1)
    care.begin(Now(0, 0))
    for minutes in (1, 2):
        at_us = minutes * AGE_STEP_MS * 1000
        assert ctx.ageing.next_us() == at_us
        care.tick(Now(at_us - 1, at_us - 1))
        assert len(partition.proposed) == minutes - 1
        care.tick(Now(at_us, at_us))
        assert [record.kind for record in partition.proposed] == [RecordKind.BARRIER] * minutes


def test_one_record_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "JOBS_MAX", 1)
    partition, ctx = Partition(FULL["JOBS_MAX"]), SimpleNamespace(ageing=Deadlines())
    care = Ageing(ctx, partition)  # type: ignore[arg-type]
    care.begin(Now(0, 0))
    partition.log_end = 1
    at_us = AGE_STEP_MS * 1000
    care.tick(Now(at_us, at_us))
    assert not partition.proposed
    assert ctx.ageing.next_us() == 2 * at_us


@pytest.mark.parametrize(
    "timeline",
    [of(names_count=1), of(groups=SimpleNamespace(by_name={"a": 1}, has_idle=False))],
    ids=["keys of messages that live", "groups that have messages"],
)
def test_what_no_age_ends_makes_no_records(timeline: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "NAMES_MAX", 1)
    monkeypatch.setattr(limits, "GROUPS_MAX", 1)
    ctx = SimpleNamespace(ageing=Deadlines())
    Ageing(ctx, Partition(timeline)).begin(Now(0, 0))  # type: ignore[arg-type]
    assert ctx.ageing.next_us() is None


def test_a_body_is_brought_anew_if_the_very_record_that_would_name_it_ends_it() -> None:
    """Each record may make the partition older. The bytes go with one that is applied after the body has gone."""
    story = Bodies()
    story.body(3 * AGE_STEP_MS, size=20_000)
    [(name, body)] = story.timeline.bodies.by_name.items()
    here: Any = SimpleNamespace(
        timeline=story.timeline, applied=5, log_end=5, replica=SimpleNamespace(entry=None)
    )
    assert RealPartition.will_have_body(here, name)
    body.until_ms = story.timeline.age_ms + AGE_STEP_MS
    assert not RealPartition.will_have_body(here, name)
    body.until_ms += 1
    assert RealPartition.will_have_body(here, name)


def test_a_body_is_brought_anew_only_behind_a_record_that_sets_the_grace_of_this_very_body() -> None:
    """Each other record under way would have its bytes travel and be stored once more."""
    story = Bodies()
    story.body(9 * AGE_STEP_MS, size=20_000)
    [name] = story.timeline.bodies.by_name
    other, some = b"o" * 32, u64(1)

    def has(**columns: Any) -> bool:
        entry = SimpleNamespace(record=story.record(**columns))
        here: Any = SimpleNamespace(
            timeline=story.timeline, applied=5, log_end=6, replica=SimpleNamespace(entry=lambda at: entry)
        )
        return RealPartition.will_have_body(here, name)

    assert has(kind=RecordKind.BODY, shared=other, amount_ms=some)
    assert has(kind=RecordKind.BODY, shared=name)
    assert has(kind=RecordKind.INSERT, shared=name)
    assert has(kind=RecordKind.EXTEND, amount_ms=some)
    assert not has(kind=RecordKind.BODY, shared=name, amount_ms=some)
