"""Passes in a partition's state: what they are about, what they count, and how long they are known."""

from __future__ import annotations

import json

import numpy as np
import pytest

from dueq.core.ports.tables import TableRow
from dueq.core.state.matching import FilterRefused, filter_of
from dueq.core.state.pass_table import PassState, PassTable, fault_of_pass
from dueq.core.state.timeline import AGE_STEP_MS, Timeline
from dueq.errors import UnknownVersion
from dueq.limits import PASS_MEMORY_MS, PASS_RETRIED_MS, PASSES_KEPT
from dueq_codecs.records import Record, RecordKind

PURGE = '{"do":"purge","filter":{"state":"waiting"}}'


class World:
    """One partition's state, record by record."""

    def __init__(self) -> None:
        self.timeline = Timeline(1)
        self.stamp = 1_000_000

    def apply(self, kind: RecordKind, **fields: object) -> None:
        record = Record(kind, 1, self.timeline.applied + 1, 1, self.stamp, version=2)
        for name, value in fields.items():
            setattr(record, name, value)
        self.timeline.cold(record)
        self.timeline.apply(record)

    def insert(self, rows: int) -> list[int]:
        self.apply(
            RecordKind.INSERT, due=np.full(rows, self.stamp + 5_000, np.uint64),
            size=np.zeros(rows, np.uint32), crc=np.zeros(rows, np.uint32),
        )  # fmt: skip
        return [self.timeline.applied << 16 | row for row in range(rows)]

    def named(self, keys: list[int]) -> dict[str, object]:
        column = np.array(keys, np.uint64)
        return {
            "target_sequence": column >> np.uint64(16), "target_row": (column & np.uint64(0xFFFF)).astype(np.uint16),
            "first": np.full(len(keys), self.stamp + 5_000, np.uint64), "token": np.zeros(len(keys), np.uint64),
        }  # fmt: skip

    def lease(self, keys: list[int]) -> None:
        named = self.named(keys)
        del named["token"]
        self.apply(
            RecordKind.LEASE, **named, consumer=np.zeros(len(keys), np.uint16), consumers=(b"c" * 16,),
            lease_ms=np.array([1_000], np.uint64),
        )  # fmt: skip

    def act(self, document: str, name: str = "p") -> None:
        self.apply(RecordKind.PASS, name=name, document=document)

    def cancel(self, keys: list[int], name: str = "p") -> None:
        self.apply(RecordKind.CANCEL, **self.named(keys), name=name)

    @property
    def found(self) -> tuple[PassState, int, dict[str, int], int]:
        run = self.timeline.passes.by_name["p"]
        return run.state, run.done, run.skipped, run.left


def test_it_finishes_what_waited_before_and_counts_what_is_leased() -> None:
    world = World()
    keys = world.insert(5)
    world.lease(keys[:2])
    world.act(PURGE)
    assert world.found == (PassState.RUNNING, 0, {}, 3)
    later = world.insert(2)
    world.cancel([*keys, *later])
    assert world.found == (PassState.RUNNING, 3, {}, 0)
    world.act('{"do":"end","skipped":{"leased":2}}')
    assert world.found == (PassState.ENDED, 3, {"leased": 2}, 0)
    assert (world.timeline.scheduled_count, world.timeline.leased_count) == (2, 2)


def test_what_was_moved_meanwhile_stays() -> None:
    world = World()
    keys = world.insert(2)
    world.act(PURGE)
    world.apply(RecordKind.MOVE, **world.named(keys[:1]), due=np.array([world.stamp + 9_000], np.uint64))
    world.cancel(keys)
    assert world.found[:2] == (PassState.RUNNING, 1)
    assert world.timeline.scheduled_count == 1


def test_nothing_is_done_twice_nor_after_the_end() -> None:
    world = World()
    keys = world.insert(3)
    world.act(PURGE)
    world.cancel(keys[:2])
    world.cancel(keys[:2])
    assert world.found[1] == 2
    world.act('{"do":"stop"}')
    world.cancel(keys)
    world.act('{"do":"end"}')
    world.act(PURGE)
    assert world.found == (PassState.STOPPED, 2, {}, 0)
    assert world.timeline.scheduled_count == 1


def test_a_cancel_of_a_pass_that_is_not_known_does_nothing() -> None:
    world = World()
    keys = world.insert(1)
    world.cancel(keys, "q")
    assert world.timeline.scheduled_count == 1


def test_it_is_known_for_a_day_after_its_end_and_a_checkpoint_has_it() -> None:
    world = World()
    world.insert(1)
    world.act(PURGE)
    world.act('{"do":"end"}')
    save = world.timeline.checkpoint()
    assert save is not None
    again = PassTable()
    again.recover(save.tables[b"p"])
    assert again.export() == world.timeline.passes.export()
    for _ in range(PASS_MEMORY_MS // AGE_STEP_MS + 1):
        assert world.timeline.passes.by_name
        world.stamp += AGE_STEP_MS
        world.apply(RecordKind.BARRIER)
    world.stamp += AGE_STEP_MS
    world.apply(RecordKind.BARRIER)
    assert not world.timeline.passes.by_name
    assert [row.value for row in world.timeline.passes.changed_rows()] == [None]


def test_of_very_many_that_have_ended_the_oldest_are_known_for_a_minute() -> None:
    """An emulator is purged before each of a thousand tests, and must not be full for a day after 256 of them."""
    world = World()
    world.insert(1)
    for number in range(PASSES_KEPT + 2):
        world.act(PURGE, f"p{number}")
        world.act('{"do":"end"}', f"p{number}")
    world.act(PURGE, "running")
    world.stamp += PASS_RETRIED_MS
    world.apply(RecordKind.BARRIER)
    assert len(world.timeline.passes.by_name) == PASSES_KEPT + 3
    world.stamp += 1
    world.apply(RecordKind.BARRIER)
    assert list(world.timeline.passes.by_name) == [f"p{number}" for number in range(2, PASSES_KEPT + 2)] + [
        "running"
    ]


def test_a_row_of_a_newer_build_is_refused() -> None:
    with pytest.raises(UnknownVersion, match="a pass's row of version 9"):
        PassTable().recover([TableRow(b"p", b"\x09{}")])


@pytest.mark.parametrize("document", [{}, {"state": "all"}, {"state": 3}, {"state": "waiting", "rank": 3}])
def test_a_filter_that_cannot_be_asked_for_is_named(document: dict[str, str]) -> None:
    with pytest.raises(FilterRefused, match="of waiting"):
        filter_of(document)


@pytest.mark.parametrize(
    "document",
    [
        "",
        "[]",
        "[" * 60_000,
        '{"do":[],"filter":{}}',
        '{"do":{},"filter":{}}',
        '{"do":"end"}',
        '{"do":"purge"}',
        '{"do":"redrive","filter":{"state":"waiting"}}',
        '{"do":"redrive","spread_ms":0,"filter":{"state":"waiting"}}',
        '{"do":"cancel","filter":{"state":"dead"}}',
        f'{{"do":"purge","filter":{{"state":"waiting","job":"{"ab" * 16}{" " * 100_000}"}}}}',
        f'{{"do":"purge","filter":{{"state":"waiting","job":"{" ".join(["ab"] * 16)}"}}}}',
    ],
)
def test_what_a_client_may_not_ask_for_is_refused(document: str) -> None:
    assert fault_of_pass(document) is not None


def test_what_a_client_may_ask_for_is_taken() -> None:
    assert fault_of_pass(PURGE) is None
    assert fault_of_pass('{"do":"purge","filter":{"state":"dead"}}') is None
    assert fault_of_pass('{"do":"cancel","filter":{"state":"waiting"}}') is None
    assert fault_of_pass('{"do":"redrive","spread_ms":0,"filter":{"state":"dead"}}') is None
    assert fault_of_pass(f'{{"do":"purge","filter":{{"state":"dead","job":"{"aB" * 16}"}}}}') is None
    assert fault_of_pass(json.dumps({"do": "stop"})) is None


def test_a_job_with_spaces_that_an_older_build_has_logged_is_applied() -> None:
    world = World()
    world.act(f'{{"do":"purge","filter":{{"state":"waiting","job":"{" ".join(["ab"] * 16)}"}}}}', "older")
    assert filter_of(world.timeline.passes.by_name["older"].work["filter"]).job == b"\xab" * 16


def recovered(passes: PassTable, disk: dict[bytes, TableRow]) -> PassTable:
    """What a restart finds once a checkpoint has written what has changed; the disk has its rows by name."""
    disk |= {row.key: row for row in passes.changed_rows()}
    found = PassTable()
    found.recover([disk[key] for key in sorted(disk)])
    return found


def test_a_restarted_replica_knows_how_far_each_pass_is() -> None:
    world, disk = World(), dict[bytes, TableRow]()
    passes, keys = world.timeline.passes, world.insert(3)
    world.act(PURGE)
    assert recovered(passes, disk).by_name["p"].left == 3
    world.cancel(keys[:2])
    assert recovered(passes, disk).export() == passes.export()
    assert recovered(passes, disk).by_name["p"].left == 1
    world.act('{"do":"stop"}')
    assert recovered(passes, disk).export() == passes.export()
    assert recovered(passes, disk).running is None


def test_a_restarted_replica_goes_on_with_the_oldest_pass_whatever_their_names_are() -> None:
    """Of very many that have ended, too, it forgets the oldest first, as all others do."""
    world = World()
    world.insert(1)
    for name in ("p", "z", "a"):
        world.act(PURGE, name)
    again = recovered(world.timeline.passes, {})
    assert list(again.by_name) == ["p", "z", "a"]
    assert again.running is again.by_name["p"]


def test_a_pass_that_was_forgotten_hides_none_that_came_after_it() -> None:
    world, disk = World(), dict[bytes, TableRow]()
    world.insert(1)
    world.act(PURGE, "a")
    world.act('{"do":"end"}', "a")
    assert list(recovered(world.timeline.passes, disk).by_name) == ["a"]
    for _ in range(PASS_MEMORY_MS // AGE_STEP_MS + 2):
        world.stamp += AGE_STEP_MS
        world.apply(RecordKind.BARRIER)
    world.act(PURGE)
    assert list(recovered(world.timeline.passes, disk).by_name) == ["p"]
