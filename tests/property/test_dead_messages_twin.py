"""Mistakes in what is done to dead messages, each seen by the comparison with the naive twin."""

from __future__ import annotations

from typing import Final

import pytest
from tests.property.test_timeline_twin import World

from dueq.core.state.dedup import DedupLimits
from dueq_chaos.bugs.bug import Bug, change
from dueq_codecs.records import LEVEL_OF_KINDS, Outcome, RecordKind

_LIVE = "core.state.live:LiveMessages"

_WEIGHTS: Final = {
    RecordKind.INSERT: 8, RecordKind.LEASE: 12, RecordKind.NACK: 6, RecordKind.EXPIRE: 4, RecordKind.ACK: 2,
    RecordKind.SETTINGS: 2, RecordKind.LAPSE: 3, RecordKind.DISCARD: 3, RecordKind.REDRIVE: 8, RecordKind.MOVE: 2,
    RecordKind.PASS: 2,
}  # fmt: skip

MISTAKES: Final = (
    Bug(
        "one-attempt-too-many",
        "A message is delivered once more after its last attempt.",
        "a limit that is compared with > instead of >=",
        (change(f"{_LIVE}._dying", '(rows["attempt"] >= most)', '(rows["attempt"] > most)'),),
        seeds=0,
    ),
    Bug(
        "redriven-with-its-attempts",
        "A message that is redriven keeps its attempts, and dies at the first failure.",
        "a dead letter that goes straight back",
        (change(f"{_LIVE}._redrive", '("died_at", "attempt")', '("died_at",)'),),
        seeds=0,
    ),
    Bug(
        "reason-lost",
        "The text of a reason is not kept, though the entry names it.",
        "a dead letter of which nobody knows why",
        (change(f"{_LIVE}._remarked", "self.remarks.note(key, text)", "pass"),),
        seeds=0,
    ),
    Bug(
        "dead-stays-on-the-disk",
        "The disk keeps a dead message under its death when it is redriven or discarded.",
        "an index that is not cleaned up",
        (change("core.state.checkpoint:write_rows", "(disk == OnDisk.DEAD)", "(disk == OnDisk.LEASED)"),),
        seeds=0,
    ),
    Bug(
        "dead-is-read-as-waiting",
        "A dead message that is read from the disk counts as waiting there.",
        "a message that is deleted from one index and not from the other",
        (change("core.state.residency:Residency._take_in", "dead), OnDisk.DEAD)", "dead), OnDisk.WAITING)"),),
        seeds=0,
    ),
)


@pytest.mark.parametrize("bug", MISTAKES, ids=lambda bug: bug.name)
def test_a_mistake_with_dead_messages_is_seen(bug: Bug) -> None:
    with bug.planted(), pytest.raises(Exception):  # noqa: B017 - an assertion or an invariant
        _run_sixty()


def _run_sixty() -> None:
    for seed in range(60):
        world = World(seed, [3, 10_000][seed % 2], DedupLimits())
        world.keyed, world.level = 0, LEVEL_OF_KINDS
        world.weights = [_WEIGHTS.get(kind, 0) for kind in RecordKind]
        world.run(400)


def test_messages_die_are_redriven_and_discarded() -> None:
    """The twins are compared on all of it: whoever changes the weights keeps it so."""
    kinds: set[RecordKind] = set()
    ended = died = remarked = 0
    for seed in range(32):
        world = World(seed, 5, DedupLimits())
        world.run(600)
        died += world.died
        ended += sum(
            outcome == Outcome.DONE
            for record, told in zip(world.log, world.told, strict=True)
            if record.kind in (RecordKind.DISCARD, RecordKind.REDRIVE)
            for result in told.results
            for outcome in result[6]
            if not result[7]
        )
        remarked += len(world.disk.remarks)
        kinds |= {record.kind for record, told in zip(world.log, world.told, strict=True) if told.gone}
    assert RecordKind.LAPSE in kinds
    assert min(died, ended) > 2
    assert remarked
