"""Mistakes in what is done to dead messages, each seen by the comparison with the naive twin."""

from __future__ import annotations

from collections import Counter
from typing import Final

import pytest
from tests.property.test_timeline_twin import World

from dueq.core.state.dedup import DedupLimits
from dueq_chaos.bugs.bug import Bug, change
from dueq_codecs.records import LEVEL_OF_KINDS, RecordKind

_LIVE = "core.state.live:LiveMessages"

_WEIGHTS: Final = {
    RecordKind.INSERT: 8, RecordKind.LEASE: 12, RecordKind.NACK: 6, RecordKind.EXPIRE: 4, RecordKind.ACK: 2,
    RecordKind.SETTINGS: 2, RecordKind.LAPSE: 3, RecordKind.DISCARD: 8, RecordKind.REDRIVE: 8, RecordKind.MOVE: 2,
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


class MortalWorld(World):
    """A world in which many messages die, and much is done to them.

    Attributes:
        fewer_dead: by kind of record, how many messages were dead no longer.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed, [3, 10_000][seed % 2], DedupLimits())
        self.keyed, self.level = 0, LEVEL_OF_KINDS
        self.weights = [_WEIGHTS.get(kind, 0) for kind in RecordKind]
        self.fewer_dead: Counter[RecordKind] = Counter()

    def advance(self) -> None:
        pending, dead = self.pending(), self.timeline.dead_count
        super().advance()
        if self.timeline.dead_count < dead:
            self.fewer_dead[pending[0].kind] += dead - self.timeline.dead_count


@pytest.mark.parametrize("bug", MISTAKES, ids=lambda bug: bug.name)
def test_a_mistake_with_dead_messages_is_seen(bug: Bug) -> None:
    with bug.planted(), pytest.raises(Exception):  # noqa: B017 - an assertion or an invariant
        _run_sixty()


def _run_sixty() -> None:
    for seed in range(60):
        MortalWorld(seed).run(400)


def test_messages_die_are_redriven_and_discarded() -> None:
    """The twins are compared on all of it: whoever changes the weights keeps it so."""
    died = remarked = lapsed = 0
    fewer_dead: Counter[RecordKind] = Counter()
    for seed in range(24):
        world = MortalWorld(seed)
        world.run(400)
        died, remarked = died + world.died, remarked + len(world.disk.remarks)
        fewer_dead += world.fewer_dead
        told = zip(world.log, world.told, strict=True)
        lapsed += sum(len(each.gone) for record, each in told if record.kind == RecordKind.LAPSE)
    seen = (died, remarked, lapsed, fewer_dead[RecordKind.DISCARD], fewer_dead[RecordKind.REDRIVE])
    assert min(seen) > 2, seen
