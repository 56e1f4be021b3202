"""The window of a fair topic with more groups than it has room for."""

from __future__ import annotations

import random
from collections.abc import Iterable

import numpy as np

from dueq.core.ports.entry import WIDE, Entries, State, keys_of
from dueq.core.state.class_set import ClassSet
from dueq.core.state.classed_window import ClassedWindow
from dueq.core.state.fair import FairOrder
from dueq.core.state.fair_window import FairWindow
from dueq.core.state.job_table import JobTable
from dueq.core.state.timeline import Timeline
from dueq.core.state.window import Cut, Looked, Window
from tests.unit.core.state.test_timeline import NOON, UID, Shelf, Story

NOW = 1_000


class Turns:
    """A guide with literal turns."""

    until_ms = NOW
    is_starving = False

    def __init__(self, *groups: int, takes: int = 1) -> None:
        self.groups, self.takes = groups, takes
        self.told: list[Cut] = []

    def hungry(self, runway: int, most: int) -> list[tuple[int, int]]:
        return [(group << 16, 1) for group in self.groups][:most]

    def coming(self, limit: int) -> list[tuple[int, int]]:
        return [(group, self.takes) for group in self.groups][:limit]

    def expect(self, cuts: Iterable[Cut]) -> None:
        self.told += cuts


def entries(groups: Iterable[int], at: int = NOW) -> Entries:
    """Two messages of each group."""
    numbers = np.repeat(np.array([*groups], np.uint32), 2)
    rows = np.zeros(len(numbers), WIDE)
    rows["state"], rows["wait_at"], rows["group"] = State.WAITING, at, numbers
    rows["sequence"] = np.arange(1, len(rows) + 1)
    return rows


def window_of(rows: Entries, guide: Turns | None = None) -> Window:
    window = FairOrder().window(JobTable((0, 1)), None)
    window.gain(rows)
    window.guide = guide
    return window


def test_it_keeps_what_the_next_turns_take() -> None:
    rows = entries(range(1, 41))
    window = window_of(rows, Turns(30, 7, 12))
    window.shrink(rows, 8)
    kept = window.inside(rows)["group"].tolist()
    assert {30, 7, 12} <= set(kept)
    assert len(kept) == len(set(kept)) == window.count == 8


def test_it_keeps_as_many_messages_of_a_group_as_its_next_turn_takes() -> None:
    """Else a group of a greater weight would wait for the disk in the middle of its turn."""
    rows = entries(range(1, 41))
    window = window_of(rows, Turns(30, 7, takes=2))
    window.shrink(rows, 4)
    assert window.inside(rows)["group"].tolist() == [7, 7, 30, 30]


def test_who_begins_to_lead_hears_what_is_only_on_the_disk() -> None:
    """A follower's window has let go of it before; its groups would never be woken."""
    story, guide = Story(Timeline(UID, hot_rows_max=2, order=FairOrder())), Turns()
    story.insert(*(NOON + 1000 * at for at in range(1, 11)))
    Shelf().save(story.timeline)
    end = story.timeline.end_of(0)
    assert end is not None
    story.timeline.led_by(guide)
    assert guide.told == [(0, *end)]


def test_it_says_where_what_it_let_go_begins() -> None:
    rows = entries(range(1, 41))
    window = window_of(rows, Turns(3))
    window.shrink(rows, 4)
    cuts = {of >> 16: (at, key) for of, at, key in window.cuts}
    assert len(cuts) == 40
    gone = rows[rows["group"] == 40]
    assert cuts[40] == (NOW, int(keys_of(gone)[0]) - 1)
    assert window.unknown_at(40 << 16, 41 << 16) == NOW


def test_without_a_guide_it_keeps_the_soonest() -> None:
    rows = entries(range(1, 41))
    rows["wait_at"] -= rows["group"]
    window = window_of(rows)
    window.shrink(rows, 5)
    assert window.inside(rows)["group"].tolist() == sorted(range(36, 41))
    assert window.wants(5, 5) is None


def test_it_reads_what_the_next_turns_need() -> None:
    rows = entries(range(1, 41))
    window = window_of(rows, Turns(30, 7, 12))
    window.shrink(rows, 1)
    wanted = window.wants(4, 4)
    assert wanted is not None
    assert [of >> 16 for of, _ in wanted.spots] == [7, 12, 30]


def test_groups_that_nobody_has_looked_at_yet_are_not_cut() -> None:
    """All of theirs that waits before the low-water mark is in memory."""
    window = FairOrder().window(JobTable((0, 1)), NOW + 1)
    window.grow([Looked(0, None, True)], 31 << 16)
    rows = window.begin(entries(range(1, 41)))
    window.shrink(rows, 4)
    assert window.count == len(window.inside(rows)) >= 20
    for each in np.split(rows, len(rows)):
        window.leave(each)
    assert window.count == 0


def test_a_group_that_is_gone_leaves_nothing_behind() -> None:
    rows = entries(range(1, 41))
    window = window_of(rows)
    window.shrink(rows, 4)
    for each in np.split(rows, len(rows)):
        window.leave(each)
    window.forget(range(1, 41))
    assert (window.count, window.unknown_count, window.heads(), window.endless) == (0, 0, [], True)


def test_what_was_cut_while_there_were_too_many_groups_is_read_once_there_are_few() -> None:
    """Nothing of it is in memory then, so nobody else asks for it."""
    rows = entries(range(1, 41))
    window = window_of(rows, Turns(39, 40))
    window.shrink(rows, 4)
    stay = {5, 6, 7}
    assert not stay & set(window.inside(rows)["group"].tolist())
    gone = rows[~np.isin(rows["group"], list(stay))]
    for each in np.split(gone, len(gone)):
        window.leave(each)
    window.forget(set(range(1, 41)) - stay)
    wanted = window.wants(400, 400)
    assert wanted is not None
    assert {of >> 16 for of, _ in wanted.spots} == stay


def test_classes_by_group_are_a_set() -> None:
    chance, found, twin = random.Random(7), ClassSet(), set[int]()
    for _ in range(2_000):
        of = chance.randrange(6) << 16 | chance.randrange(4)
        getattr(found, what := chance.choice(("add", "discard")))(of)
        getattr(twin, what)(of)
        first, last = sorted((of, chance.randrange(6) << 16 | chance.randrange(4)))
        assert list(found.irange(first, last)) == sorted(each for each in twin if first <= each <= last)
        assert (len(found), set(found), of in found) == (len(twin), twin, of in twin)


def test_once_it_has_gone_back_no_group_has_an_end_of_its_own() -> None:
    """All is read anew from there: an end from before would hide what lies behind it."""
    rows = entries(range(1, 41))
    window = window_of(rows, Turns(3))
    window.shrink(rows, 4)
    assert window.go_back(NOW)
    assert (window.heads(), window.unknown_count) == ([], 0)
    assert not window.endless


def ranked(group: int, waits: Iterable[int]) -> Entries:
    """A message of each rank of a group, which waits until then."""
    rows = np.zeros(len(at := [*waits]), WIDE)
    rows["state"], rows["wait_at"], rows["group"], rows["rank"] = State.WAITING, at, group, np.arange(len(at))
    rows["sequence"] = np.arange(1, len(rows) + 1)
    return rows


def fair_window(rows: Entries, keep: int) -> FairWindow:
    window = window_of(rows)
    assert isinstance(window, FairWindow)
    window.shrink(rows, keep)
    return window


def test_of_a_group_with_very_many_ranks_it_knows_what_is_ready_at_each_instant() -> None:
    chance = random.Random(5)
    rows = ranked(3, (NOW + chance.randrange(40) for _ in range(60)))
    window, group = fair_window(rows, 30), (3 << 16, 4 << 16)
    for turn in range(3_000):
        what, at = chance.randrange(60), NOW + chance.randrange(40)
        if what == 0:
            window.gain(rows)
            window.shrink(rows, 1 + chance.randrange(60))
        elif what == 1 and turn % 7 == 0:
            window.go_back(at)
            window.grow([Looked(0, None, True)], None)
        elif what < 6:
            of = 3 << 16 | chance.randrange(60)
            window.grow([Looked(of, (at, 1), chance.random() < 0.3)], of + 1)
        for until in (at, at - 1, NOW + chance.randrange(-2, 42)):
            assert window.unknown_in(*group, until) == ClassedWindow.unknown_in(window, *group, until)
        if turn % 3 == 0:
            assert window.unknown_at(*group) == ClassedWindow.unknown_at(window, *group)


def test_the_ends_of_a_group_with_very_many_ranks_are_not_gone_through_for_each_message() -> None:
    class Looks(dict[int, int]):
        count = 0

        def __getitem__(self, of: int) -> int:
            self.count += 1
            return super().__getitem__(of)

    window = fair_window(ranked(3, [NOW + 500] * 2_000), 4)
    window._place_of = looks = Looks(window._place_of)
    for until in range(NOW, NOW + 100):
        assert window.unknown_in(3 << 16, 4 << 16, until) is None
        assert window.unknown_at(3 << 16, 4 << 16) == NOW + 500
    assert looks.count < 2_000
