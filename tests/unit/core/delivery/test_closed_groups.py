"""Groups of which nothing may be given cost nothing until they may be given something: counted in looks at them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from dueq.core.delivery.due_queue import NEVER_MS
from dueq.core.delivery.fair_tree import Node
from dueq.core.delivery.leases import NEVER_US, Phase
from dueq.core.ports.entry import NO_ENTRIES, Entries, joined
from dueq.limits import FAIR_LOOKS_MAX, FAIR_WAKES_MAX
from dueq_codecs.groups import GroupSettings
from dueq_codecs.messages import Push
from dueq_codecs.records import Record, RecordKind
from tests.unit.core.delivery.test_fair_queue import NOW, Story
from tests.unit.core.led import Stage, at, keys_in

MANY = 1_000
LOOKS_EACH = 6
"""At the levels of what is given, and at what is found closed after it."""
CLOSED = {
    "paused": GroupSettings(paused=True),
    "full": GroupSettings(max_unacked=1),
    "without a token": GroupSettings(rate=1, burst=1),
}


class Watched(Story):
    """A story that counts looks.

    Attributes:
        looks: how often the queue has asked whether anything of a group may be given.
    """

    def __init__(self, **settings: GroupSettings) -> None:
        self.looks = 0
        super().__init__(**settings)
        self._closed_until = self.queue._closed_until
        self.queue._closed_until = self._look  # type: ignore[method-assign]

    def _look(self, node: Node) -> int:
        self.looks += 1
        return self._closed_until(node)

    def name_of(self, row: Entries) -> str:
        return self.groups.name_of(int(row["group"][0])) or "-"

    def pop_at(self, ms: float, count: int = 1) -> str:
        """Take messages out at an instant, lease them, and pay for them."""
        self.rates.begin(at(ms))
        found = self.queue.pop(NOW, count, self.leases.slot_of.keys())
        if not len(found):
            return ""
        self.leases.add(found, 1, 7, Phase.PROPOSED, NEVER_US)
        self.rates.spend(found, self.groups)
        return " ".join(self.groups.name_of(number) or "-" for number in found["group"].tolist())

    def close(self, names: Iterable[str], settings: GroupSettings) -> None:
        """Let groups have a message that waits, and be closed."""
        for name in names:
            self.set(name, settings)
            self.wait(name, 2)
        while self.pop_at(0, MANY):
            pass

    def looks_for(self, given: str, ms: float = 0) -> int:
        """Return how many looks it takes to give the next message, which is of this group."""
        before = self.looks
        assert self.pop_at(ms) == given
        return self.looks - before


@pytest.mark.parametrize("kind", CLOSED)
@pytest.mark.parametrize("above", ["", "a.", "a.b.c."])
def test_what_a_message_costs_does_not_depend_on_how_many_groups_are_closed(kind: str, above: str) -> None:
    story = Watched()
    story.close((f"{above}g{number}" for number in range(MANY)), CLOSED[kind])
    story.wait(f"{above}open", 50)
    assert sum(story.looks_for(f"{above}open") for _ in range(50)) < 50 * LOOKS_EACH


def test_each_lease_that_ends_costs_a_few_looks_however_many_groups_have_no_slot() -> None:
    """As many groups as there are tenants, and one message of each at a time."""
    story = Watched()
    names = [f"g{number}" for number in range(MANY)]
    story.close(names, GroupSettings(max_unacked=1))
    for key in list(story.leases.slot_of):
        story.end([key])
        number = int(story.entries[key]["group"][0])
        assert story.looks_for(story.groups.by_number[number].name) <= LOOKS_EACH


def test_a_level_of_which_all_groups_are_closed_costs_nothing_either() -> None:
    story = Watched()
    story.close((f"a{number}.b{number % 9}" for number in range(MANY)), GroupSettings(paused=True))
    story.wait("z", 50)
    assert sum(story.looks_for("z") for _ in range(50)) < 50 * LOOKS_EACH
    story.set("a7.b7", GroupSettings())
    story.set("z", GroupSettings(paused=True))
    assert story.pop_at(0, 9) == "a7.b7 a7.b7"


def test_a_group_that_may_be_given_something_again_comes_after_all_others() -> None:
    story = Watched(a=GroupSettings(max_unacked=1))
    keys = story.wait("a", 9)
    story.wait("b", 9)
    story.wait("c", 9)
    assert story.pop_at(0, 4) == "a b c b"
    story.end(keys[:1])
    assert story.pop_at(0, 4) == "c b a c"


def test_a_slot_that_is_free_below_a_level_opens_the_level() -> None:
    story = Watched(a=GroupSettings(max_unacked=2), a_x=GroupSettings(max_unacked=1))
    first, *_ = story.wait("a.x", 3)
    story.wait("a.y", 3)
    assert story.pop_at(0, 9) == "a.x a.y"
    story.end([first])
    assert story.pop_at(0, 9) == "a.x"


def test_a_group_whose_limit_is_lower_by_now_waits_for_as_many_leases() -> None:
    story = Watched(a=GroupSettings(max_unacked=3))
    keys = story.wait("a", 9)
    assert story.pop_at(0, 9) == "a a a"
    story.set("a", GroupSettings(max_unacked=2))
    story.end(keys[:1])
    assert story.pop_at(0, 9) == ""
    story.end(keys[1:2])
    assert story.pop_at(0, 9) == "a"


@pytest.mark.parametrize("other", [GroupSettings(), GroupSettings(max_unacked=2), GroupSettings(rate=5)])
@pytest.mark.parametrize("kind", CLOSED)
def test_a_group_for_which_something_else_is_set_is_looked_at(kind: str, other: GroupSettings) -> None:
    story = Watched()
    story.close(["a"], CLOSED[kind])
    story.set("a", other)
    assert "a" in (story.pop_at(0), story.pop_at(200)), "a token comes sooner than it would have"


def test_a_group_without_a_token_is_looked_at_when_it_has_one_and_no_sooner() -> None:
    """And that instant is told in each turn, though nobody asks the group in it."""
    story = Watched(a=GroupSettings(rate=10, burst=1))
    story.wait("a", 9)
    assert story.pop_at(0, 9) == "a"
    before = story.looks
    for ms in (1, 50, 99):
        assert story.pop_at(ms, 9) == ""
        assert story.rates.next_us == at(100).mono_us
    assert story.looks == before
    assert story.pop_at(100, 9) == "a"


def test_a_group_without_a_token_of_which_nothing_is_left_tells_no_instant() -> None:
    story = Watched(a=GroupSettings(rate=10, burst=1))
    story.wait("a", 2)
    assert story.pop_at(0, 9) == "a"
    story.queue.renew(NO_ENTRIES)
    story.pop_at(1)
    assert story.rates.next_us == NEVER_US


@pytest.mark.parametrize("kind", ["full", "without a token"])
def test_a_group_that_was_found_closed_by_what_is_put_back_has_its_turn_next(kind: str) -> None:
    story = Watched(a=CLOSED[kind])
    story.wait("a", 3)
    story.wait("b", 3)
    story.rates.begin(at(0))
    found = story.queue.pop(NOW, 9, story.leases.slot_of.keys())
    assert len(found) == 4
    story.queue.put_back(found)
    assert story.pop_at(0, 2) == "a b"


def test_a_turn_that_ended_because_a_group_was_closed_goes_on_where_it_was() -> None:
    """Else a group that is given its turns back would have two of them as one."""
    story = Watched(a=GroupSettings(weight=2, max_unacked=3))
    story.wait("a", 9)
    story.wait("b", 9)
    found = story.queue.pop(NOW, 6, story.leases.slot_of.keys())
    assert "".join(story.name_of(row) for row in np.split(found, 6)) == "aababb"
    story.leases.add(found[:1], 1, 7, Phase.PROPOSED, NEVER_US)
    story.queue.put_back(found[1:])
    assert story.pop_at(0, 3) == "a b a"


def test_a_closed_group_of_which_nothing_is_left_is_forgotten() -> None:
    """Nobody looks at it: so the queue that is made anew does."""
    story = Watched()
    story.close(("a", "b.c"), GroupSettings(paused=True))
    assert story.queue.head_ms == NOW
    story.queue.renew(NO_ENTRIES)
    assert (story.queue.head_ms, story.queue._leaves) == (NEVER_MS, {})
    assert not story.queue._root.children


def test_closed_groups_that_are_not_due_after_all_sleep_again() -> None:
    story = Watched()
    story.set("a", GroupSettings(paused=True))
    story.wait("a", at=NOW)
    story.wait("b.c", at=NOW)
    assert story.pop(9) == "b.c"
    story.entries.popitem()
    story.queue.go_back(joined([*story.entries.values()]), NOW - 5)
    assert story.queue.head_ms == NOW
    story.set("a", GroupSettings())
    assert (story.pop(9, NOW - 1), story.pop(9)) == ("", "a")


# ------------------------------------------------------------ what is only on the disk


def test_who_waits_for_a_token_is_read_for_after_all_others_and_who_has_no_slot_is_not() -> None:
    story = Watched(
        a=GroupSettings(rate=5, burst=1), b=GroupSettings(max_unacked=1), c=GroupSettings(rate=10, burst=1)
    )
    names = {name: story.wait(name, 3) for name in "abcd"}
    numbers = {name: story.groups.by_name[name].number for name in names}
    assert story.pop_at(0, 5) == "a b c d d"
    assert [number for number, _ in story.queue.coming(9)] == [numbers[name] for name in "dca"]
    story.end(names["b"][:1])
    assert [number for number, _ in story.queue.coming(9)] == [numbers[name] for name in "dbca"]


def test_of_those_that_wait_for_a_token_below_a_level_without_a_slot_nothing_is_read() -> None:
    story = Watched(a=GroupSettings(max_unacked=3), a_x=GroupSettings(rate=5, burst=1))
    story.wait("a.x", 3)
    story.wait("a.y", 3)
    story.wait("b", 9)
    assert story.pop_at(0, 8) == "a.x b a.y b a.y b b b"
    assert [number for number, _ in story.queue.coming(9)] == [story.groups.by_name["b"].number]


# ------------------------------------------------------------ slots


def test_a_group_that_gets_a_limit_while_consumers_hold_messages_has_their_slots_in_use() -> None:
    story = Watched()
    keys = story.wait("a.x", 9)
    assert story.pop_at(0, 3) == "a.x a.x a.x"
    story.set("a", GroupSettings(max_unacked=3))
    assert story.pop_at(0, 9) == ""
    story.end(keys[:1])
    assert story.pop_at(0, 9) == "a.x"


def test_what_was_chosen_and_is_leased_by_nobody_has_no_slot_in_the_next_turn() -> None:
    story = Watched(a=GroupSettings(max_unacked=1))
    story.wait("a", 9)
    for _ in range(3):
        assert len(story.queue.pop(NOW, 9, story.leases.slot_of.keys())) == 1


def test_nobody_waits_for_the_slot_of_a_group_that_has_one() -> None:
    """There may be very many groups, and none of their leases ends again."""
    story = Watched(a=GroupSettings(max_unacked=1), b=GroupSettings(max_unacked=1))
    story.wait("a", 2)
    story.wait("b", 2)
    assert story.pop_at(0, 9) == "a b"
    assert story.queue._slots._watched == {"a", "b"}
    story.set("a", GroupSettings())
    story.queue.renew(NO_ENTRIES)
    assert not story.queue._slots._watched


def test_a_lease_that_ends_after_its_group_was_forgotten_gives_its_slot_back() -> None:
    """The group has come again by then, under another number."""
    story = Watched(a=GroupSettings(max_unacked=1))
    [key] = story.wait("a.x")
    assert story.pop_at(0) == "a.x"
    number = story.groups.by_name["a.x"].number
    story.groups.count(story.entries.pop(key), -1, 0)
    story.groups.expire(0, 0)
    story.wait("a.x", 2)
    assert story.groups.by_name["a.x"].number != number
    assert story.pop_at(0) == ""
    story.end([key])
    assert story.pop_at(0, 9) == "a.x"


# ------------------------------------------------------------ looks that end early


def test_a_look_that_was_cut_goes_on_until_it_has_seen_all_and_then_waits() -> None:
    """As long as something may be given behind what it has passed over."""
    story = Watched()
    for number in range(3 * FAIR_WAKES_MAX):
        story.set(f"g{number}", GroupSettings(paused=True))
        story.wait(f"g{number}")
    story.wait("z")
    given: list[str] = []
    while not given or story.queue.is_cut:
        given.append(story.pop_at(0, 9))
    assert given[-1] == "z"
    assert len(given) < 8
    assert (story.pop_at(0, 9), story.queue.is_cut) == ("", False)


def test_looks_at_very_many_groups_that_wait_for_the_disk_come_to_an_end() -> None:
    """What is read brings the next look."""
    story = Watched()
    for number in range(3 * FAIR_LOOKS_MAX):
        story.wait(f"g{number}")
    for _ in range(3):
        story.queue.count_until(NOW, 1)
    story.unknown_in = lambda first, behind, until_ms: first  # type: ignore[method-assign]
    story.end_of = lambda of: (0, 0)  # type: ignore[method-assign]
    assert story.pop_at(0) == ""
    looks = 1
    while story.queue.is_cut and looks < 10:
        assert story.pop_at(0) == ""
        looks += 1
    assert 3 <= looks < 10
    story.wait("z")
    story.unknown_in = lambda first, behind, until_ms: (  # type: ignore[method-assign]
        first if first >> 16 != story.groups.by_name["z"].number else None
    )
    given = [story.pop_at(0)]
    while story.queue.is_cut and not given[-1]:
        given.append(story.pop_at(0))
    assert given[-1] == "z"


def test_a_group_among_very_many_that_wait_for_the_disk_gets_its_turns_at_once() -> None:
    """As long as what comes out is leased: else each look would bring the next one for ever."""
    story = Watched()
    for number in range(2 * FAIR_LOOKS_MAX):
        story.wait(f"g{number}")
    for _ in range(2):
        story.queue.count_until(NOW, 1)
    story.wait("z", 20)
    last = story.groups.by_name["z"].number
    story.unknown_in = lambda first, behind, until_ms: (  # type: ignore[method-assign]
        first if first >> 16 != last else None
    )
    story.end_of = lambda of: (0, 0)  # type: ignore[method-assign]
    given = 0
    while given < 15:
        came = story.pop_at(0)
        assert came == "z" or story.queue.is_cut
        given += came == "z"
    looks = 0
    while looks == 0 or story.queue.is_cut:
        found = story.queue.pop(NOW, 9, story.leases.slot_of.keys())
        if len(found):
            story.queue.put_back(found)
        looks += 1
        assert looks < 20


def test_the_next_tick_comes_at_once_while_a_look_was_cut_and_not_for_what_is_closed() -> None:
    stage = Stage(kind="fair")
    led = stage.leds[1]
    names = [f"g{number}" for number in range(2 * FAIR_WAKES_MAX + FAIR_LOOKS_MAX)]
    for start in range(0, len(names), 2_000):
        part = tuple(names[start : start + 2_000])
        record = Record(RecordKind.INSERT, 1, 0, 0, 0)
        record.due, record.size = (
            np.full(len(part), at(0).wall_ms, np.uint64),
            np.full(len(part), 4, np.uint32),
        )
        record.crc = np.zeros(len(part), np.uint32)
        record.groups, record.group = part, np.arange(len(part), dtype=np.uint16)
        led.append(record, at(0))
    for name in names:
        led.append(Record(RecordKind.GROUP, 1, 0, 0, 0, name=name, document='{"paused":true}'), at(0))
    stage.commit(0)
    keys = stage.insert([0] * 3, group="open")
    stage.attach(1, credit=100)
    looks = 0
    while not led.open:
        stage.tick(1)
        looks += 1
        assert looks < 10
        assert stage.dispatcher.next_deadline_us(at(1)) == at(1).mono_us or led.open
    got: list[int] = []
    stage.commit(1)
    for _ in range(4):
        stage.tick(2)
        stage.commit(2)
    for _, message, _ in stage.sent:
        if isinstance(message, Push):
            got += keys_in(message)
    assert sorted(got) == keys
    deadline_us = stage.dispatcher.next_deadline_us(at(2))
    assert deadline_us is None or deadline_us > at(2).mono_us


def test_a_group_record_that_is_applied_opens_the_group() -> None:
    stage = Stage(kind="fair")
    led = stage.leds[1]
    stage.attach(0, credit=100)

    def set_group(document: str) -> None:
        led.append(Record(RecordKind.GROUP, 1, 0, 0, 0, name="a", document=document), at(0))
        stage.commit(0)

    set_group('{"paused":true}')
    keys = stage.insert([0] * 3, group="a.x")
    assert not stage.run(1)
    set_group('{"paused":false,"max_unacked":1}')
    [push] = stage.run(2)
    assert keys_in(push) == keys[:1]
    set_group('{"max_unacked":0}')
    assert [key for push in stage.run(3) for key in keys_in(push)] == keys[1:]
