"""Small records against the columnar path: the same histories, each record applied by both, the whole state equal.

The world is that of the timeline's twin: repeated requests, jobs, cold rows, checkpoints, cut logs and restarts.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.property.test_timeline_twin import LIMITS, PLACE, UID, World

from dueq.core.ports.persistence import SaveCheckpoint
from dueq.core.state.applied import Applied
from dueq.core.state.dedup import DedupLimits
from dueq.core.state.small import SmallRecords
from dueq.core.state.timeline import Timeline
from dueq_chaos.bugs.bug import Bug, change
from dueq_chaos.bugs.small import SMALL
from dueq_codecs.records import Record


class Pair(Timeline):
    """A timeline that has a columnar one do everything that it does, and compares."""

    def __init__(self, *given: Any, columnar: Timeline) -> None:
        super().__init__(*given)
        self.columnar = columnar

    def cold(self, record: Record) -> Any:
        asked: Any = super().cold(record)
        also: Any = self.columnar.cold(record)
        assert (asked is None) == (also is None)
        for one, other in zip(asked or (), also or (), strict=True):
            assert one.tolist() == other.tolist()
        return asked

    def apply(self, record: Record) -> Applied:
        applied, also = super().apply(record), self.columnar.apply(record)
        for name in ("waiting", "leased", "refused", "ended"):
            assert getattr(applied, name).tolist() == getattr(also, name).tolist(), name
        assert len(applied.results) == len(also.results)
        for one, other in zip(applied.results, also.results, strict=True):
            assert one.outcomes.tolist() == other.outcomes.tolist()
            assert one.present.tolist() == other.present.tolist()
            one.outcomes, other.outcomes = other.outcomes, other.outcomes
            assert (one.code, one.sequence, one.row, one.repeated) == (
                other.code, other.sequence, other.row, other.repeated,
            )  # fmt: skip
        assert self.export() == self.columnar.export()
        assert self.hot_count == self.columnar.hot_count
        assert self.dirty_rows == self.columnar.dirty_rows
        assert self._forecast.later == self.columnar._forecast.later
        return applied

    def checkpoint(self) -> SaveCheckpoint | None:
        save, also = super().checkpoint(), self.columnar.checkpoint()
        if save is None or also is None:
            assert save is also
            return None
        for name in ("put", "unwait", "unlease", "finished"):
            assert getattr(save, name).tolist() == getattr(also, name).tolist(), name
        assert (save.tables, save.summary, save.low_water) == (also.tables, also.summary, also.low_water)
        assert (save.names, save.remembered) == (also.names, also.remembered)
        assert save.borne.rows() == also.borne.rows()
        return save

    def entries_read(self, entries: Any, asked: Any) -> None:
        super().entries_read(entries, asked)
        self.columnar.entries_read(entries, asked)

    def cold_keys(self, record: Record) -> Any:
        wanted = super().cold_keys(record)
        assert wanted == self.columnar.cold_keys(record)
        return wanted

    def prepare(self, record: Record) -> Any:
        wanted: Any = super().prepare(record)
        also: Any = self.columnar.prepare(record)
        assert wanted[0] == also[0]
        assert (wanted[1] is None) == (also[1] is None)
        return wanted

    def names_read(self, *answer: Any) -> None:
        super().names_read(*answer)
        self.columnar.names_read(*answer)

    def wants_sweep(self) -> Any:
        wanted = super().wants_sweep()
        assert wanted == self.columnar.wants_sweep()
        return wanted

    def swept(self, *answer: Any) -> None:
        super().swept(*answer)
        self.columnar.swept(*answer)

    def unpin(self, record: Record) -> None:
        super().unpin(record)
        self.columnar.unpin(record)

    def wants_scan(self) -> Any:
        wanted = super().wants_scan()
        assert wanted == self.columnar.wants_scan()
        return wanted

    def scanned(self, *answer: Any) -> Any:
        gained = super().scanned(*answer)
        assert gained.tolist() == self.columnar.scanned(*answer).tolist()
        return gained

    def checkpoint_saved(self, applied: int) -> None:
        super().checkpoint_saved(applied)
        self.columnar.checkpoint_saved(applied)
        assert self.memory_rows == self.columnar.memory_rows


class PairedWorld(World):
    """A world in which every timeline is such a pair."""

    @property
    def timeline(self) -> Timeline:
        return self._pair

    @timeline.setter
    def timeline(self, plain: Timeline) -> None:
        recovered = self.disk.recover() if plain.applied else None
        given = UID, recovered, self.hot_rows_max, self.limits, PLACE
        self._pair = Pair(*given, columnar=Timeline(*given, small_rows_max=0))

    def resize(self) -> None:
        super().resize()
        self._pair.columnar.hot_rows_max = self._pair.hot_rows_max


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32), st.sampled_from([1, 2, 5, 20, 10_000]), LIMITS, st.sampled_from([0.05, 1]))
def test_small_records_do_what_the_columnar_path_does(
    seed: int, hot_rows_max: int, limits: DedupLimits, strange: float
) -> None:
    PairedWorld(seed, hot_rows_max, limits, strange).run(200)


def test_many_small_records_take_the_short_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the comparison would show nothing."""
    taken = Counter[str]()
    apply = SmallRecords.apply

    def counted(small: SmallRecords, record: Record, applied: Applied) -> Any:
        outcomes = apply(small, record, applied)
        if small._rows_max and 0 < record.rows <= small._rows_max:
            taken[record.kind.name] += outcomes is not None
        return outcomes

    monkeypatch.setattr(SmallRecords, "apply", counted)
    for seed in range(16):
        PairedWorld(seed, 10_000, DedupLimits(), 0.05).run(300)
    kinds = ("INSERT", "LEASE", "MOVE", "CANCEL", "ACK", "NACK", "EXTEND", "RELEASE", "EXPIRE")
    assert all(taken[kind] >= 5 for kind in kinds), taken


FAR: Final = Bug(
    "small-nack-far-flag-kept",
    "A message that comes back from far away stays counted as far away: storms hardly go there.",
    "a count by buckets that goes below zero",
    (change("core.state.small:SmallRecords._wait", "~(FLAG_FAR | FLAG_DETACHED)", "~FLAG_DETACHED"),),
    seeds=0,
)


@pytest.mark.parametrize("bug", [*SMALL, FAR], ids=lambda bug: bug.name)
def test_a_mistake_in_the_short_path_is_seen(bug: Any) -> None:
    with bug.planted(), pytest.raises(Exception):  # noqa: B017 - an assertion or an invariant
        _run_sixty()


def _run_sixty() -> None:
    for seed in range(60):
        PairedWorld(seed, [10_000, 5][seed % 2], DedupLimits(), 0.05).run(300)
