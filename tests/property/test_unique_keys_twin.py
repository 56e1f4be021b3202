"""Mistakes in what is kept of unique keys, each seen by the comparison with the naive twin."""

from __future__ import annotations

from collections import Counter
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.property.test_timeline_twin import World

from dueq.core.state.dedup import DedupLimits
from dueq_chaos.bugs.bug import Bug, change
from dueq_codecs.records import LEVEL_OF_KINDS, Outcome, RecordKind

_NAMES = "core.state.names:Names"
_KEYED = "core.state.keyed:_Rows"

_WEIGHTS: Final = {
    RecordKind.INSERT: 16, RecordKind.LEASE: 8, RecordKind.MOVE: 2, RecordKind.CANCEL: 3, RecordKind.ACK: 4,
    RecordKind.NACK: 6, RecordKind.EXPIRE: 2, RecordKind.JOB: 1, RecordKind.SETTINGS: 3, RecordKind.LAPSE: 2,
    RecordKind.DISCARD: 4, RecordKind.REDRIVE: 8, RecordKind.PASS: 1,
}  # fmt: skip


class KeyedWorld(World):
    """A world in which nearly every message has a unique key."""

    def __init__(self, seed: int, hot_rows_max: int) -> None:
        super().__init__(seed, hot_rows_max, DedupLimits(), [0.3, 1][seed % 4 == 0])
        self.weights = [_WEIGHTS.get(kind, 0) for kind in RecordKind]
        self.keyed, self.level = 9, LEVEL_OF_KINDS
        self.remember = [0, 100, 300, 300]


MISTAKES: Final = (
    Bug(
        "key-forgotten-before-it-is-saved",
        "A key leaves memory while the checkpoint that writes it is on its way.",
        "a dirty page that is dropped",
        (change(f"{_NAMES}.forget", "filterfalse(self._saving.__contains__, free)", "free"),),
        seeds=0,
    ),
    Bug(
        "dead-message-frees-the-key-of-another",
        "A dead message that is discarded takes the key along that another message has got meanwhile.",
        "a lock that is released by one who has lost it",
        (
            change(
                "core.state.live:LiveMessages._let_keys_go", 'keyed & (rows["state"] != State.DEAD)', "keyed"
            ),
        ),
        seeds=0,
    ),
    Bug(
        "redriven-onto-a-taken-key",
        "A dead message that is redriven gets its key back, whoever has it now.",
        "a restored row that breaks a unique index",
        (
            change(
                "core.state.live:LiveMessages._take_back", "if name is None or name[:2] == owner:", "if True:"
            ),
        ),
        seeds=0,
    ),
    Bug(
        "taken-again-and-swept",
        "A key that is taken again stays in the index of those that are remembered, and is swept.",
        "a time to live that outlives the value",
        (change(f"{_NAMES}._set", "self._expiry[expiry_key(old.until, digest)] = None", "pass"),),
        seeds=0,
    ),
    Bug(
        "remembered-a-moment-longer",
        "A key is still taken at the age at which it should be free.",
        "a bound that is inclusive at one replica",
        (change(f"{_NAMES}.get", "name.until < self.age_ms", "name.until < self.age_ms - 200"),),
        seeds=0,
    ),
    Bug(
        "replaced-by-the-same-record-and-kept",
        "Two rows of one record replace each other, and both stay.",
        "a batch that does not see its own writes",
        (change(f"{_KEYED}._ends", "self._begun[bearer.key & 0xFFFF] = False", "pass"),),
        seeds=0,
    ),
    Bug(
        "retry-takes-anything-for-its-own",
        "A retry takes a message of another due instant for what its first attempt has left.",
        "an idempotent repetition of something else",
        (change(f"{_KEYED}._is_own", "return bearer.due == int(record.due[at])", "return True"),),
        seeds=0,
    ),
)


def test_keys_are_taken_kept_replaced_remembered_and_swept() -> None:
    """The twins are compared on all of it, too."""
    outcomes: Counter[int] = Counter()
    read = swept = remembered = 0
    for seed in range(16):
        world = KeyedWorld(seed, 2)
        world.run(400)
        outcomes.update(
            outcome
            for record, told in zip(world.log, world.told, strict=True)
            if record.kind in (RecordKind.INSERT, RecordKind.REDRIVE)
            for result in told.results
            for outcome in result[6]
        )
        read, swept = read + world.names_read, swept + world.swept
        remembered += len(world.disk.remembered)
    met = (Outcome.TAKEN, Outcome.KEPT, Outcome.HIDDEN, Outcome.LEASED)
    assert min(outcomes[outcome] for outcome in met) > 3, outcomes
    assert min(read, swept, remembered) > 2, (read, swept, remembered)


@pytest.mark.parametrize("bug", MISTAKES, ids=lambda bug: bug.name)
def test_a_mistake_with_unique_keys_is_seen(bug: Bug) -> None:
    with bug.planted(), pytest.raises(Exception):  # noqa: B017 - an assertion or an invariant
        _run_sixty()


def _run_sixty() -> None:
    for seed in range(60):
        KeyedWorld(seed, [2, 10_000][seed % 2]).run(400)


@settings(max_examples=30, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32), st.sampled_from([1, 3, 10_000]))
def test_the_timeline_agrees_with_its_naive_twin_about_keys(seed: int, hot_rows_max: int) -> None:
    KeyedWorld(seed, hot_rows_max).run(300)
