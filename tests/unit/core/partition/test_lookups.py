"""Reads for one replica's state: who waits for them, what they keep, and which answers come too late."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from dueq.core.partition.cold_reading import ColdReading
from dueq.core.partition.lookups import Lookups, message_document
from dueq.core.ports.entry import NO_ENTRIES, State
from dueq.core.ports.persistence import EntriesRead, IndexScanned
from dueq.core.state.cold import ColdIds, Hold
from dueq.core.state.residency import ScanWanted
from dueq.core.turn.context import Context
from dueq.core.turn.settings import CoreSettings
from dueq.instant import Now
from dueq_codecs.records import NO_U16, NO_U64
from tests.unit.core.led import Stage, at

UID = 1
NOW = Now(60_000_000, 60_000_000)
IDS = ColdIds(NO_U64, NO_U64, NO_U16)


class Memory:
    """The state in memory: what is held there, and what it is given from the disk."""

    def __init__(self) -> None:
        self.uid = UID
        self.held: list[Any] = []
        self.taken: list[str] = []
        self.name_holds = SimpleNamespace(
            hold=self._hold_names, named_by=lambda hold: ["found"], release=self.held.remove
        )

    def hold(self, ids: ColdIds) -> tuple[Hold, ColdIds]:
        hold = Hold(np.zeros(0, np.intp))
        hold.unresolved = 1
        self.held.append(hold)
        return hold, ids

    def _hold_names(self, hashes: list[bytes]) -> tuple[Any, None]:
        hold = SimpleNamespace(unresolved=1)
        self.held.append(hold)
        return hold, None

    def held_rows(self, hold: Hold) -> object:
        return NO_ENTRIES

    def release(self, hold: Hold) -> None:
        self.held.remove(hold)

    def entries_read(self, entries: object, asked: object) -> None:
        self.taken.append("entries")

    def scanned(self, *page: object) -> object:
        self.taken.append("page")
        return NO_ENTRIES


class Looking:
    """Two who look: one for a message, and one for a unique key."""

    def __init__(self) -> None:
        self.memory = Memory()
        self.lookups = Lookups()
        self.told: list[object] = []
        timeline: Any = self.memory
        self.lookups.begin(timeline, IDS, lambda rows, now: self.told.append(rows), NOW)
        self.lookups.begin_names(timeline, [b"h"], lambda names, now: self.told.append(names), NOW)


def test_what_is_looked_at_stays_in_memory_until_it_was_read_and_no_longer() -> None:
    looking = Looking()
    looking.lookups.read(NOW)
    assert (looking.told, len(looking.memory.held)) == ([], 2)
    for hold in looking.memory.held:
        hold.unresolved = 0
    looking.lookups.read(NOW)
    looking.lookups.read(NOW)
    assert (len(looking.told), looking.memory.held) == (2, [])


def test_who_looks_when_the_leadership_ends_is_told_and_keeps_nothing_in_memory() -> None:
    looking = Looking()
    looking.lookups.leadership_lost(NOW)
    assert (looking.told, looking.memory.held) == ([None, None], [])
    looking.lookups.leadership_lost(NOW)
    looking.lookups.read(NOW)
    assert len(looking.told) == 2


def test_what_was_read_of_a_disk_that_was_wiped_since_is_not_taken_for_the_state_that_came() -> None:
    """Its messages may have been changed by records that are in the snapshot."""
    ctx = Context(CoreSettings("b1", 11, "s1", "cluster", "tcp://b1"))
    memory: Any = Memory()
    told: list[str] = []
    reading = ColdReading(ctx, memory, lambda now: told.append("read"), lambda hot: told.append("hot"))

    def ask() -> list[int]:
        reading.entries(*IDS)
        reading.scan(ScanWanted(0, -1, 9, frozenset()))
        return [effect.request.token for effect in ctx.take() if hasattr(effect, "request")]

    def answer(entries: int, page: int) -> None:
        ctx.read_done(entries, EntriesRead(entries, UID, NO_ENTRIES), NOW)
        ctx.read_done(page, IndexScanned(page, UID, NO_ENTRIES, exhausted=True), NOW)

    before_the_wipe = ask()
    reading.void()
    answer(*before_the_wipe)
    before_it_was_filled = ask()
    reading.begin(memory)
    answer(*before_it_was_filled)
    assert (memory.taken, told) == ([], [])
    answer(*ask())
    assert (memory.taken, told) == (["entries", "page"], ["read", "hot"])


def test_a_message_that_was_only_chosen_for_a_consumer_is_told_as_one_that_nobody_has_tried() -> None:
    stage = Stage()
    [key] = stage.insert([20])
    stage.attach(0)
    timeline = stage.leds[1].timeline
    told = []
    for ms in (0, 20):
        stage.run(ms)
        rows = timeline.rows(np.array([key], np.uint64))
        assert rows["state"][0] == State.LEASED
        document = message_document(timeline, rows, stage.dispatcher.lease_of(1, key, at(ms)))
        assert document is not None
        told.append((document["state"], document["attempt"]))
    assert told == [("waiting", 0), ("leased", 1)]
