"""Whose turn it is among groups: counted in messages that come out."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Iterable
from random import Random

import numpy as np
import pytest

from dueq.core.delivery import fair_queue
from dueq.core.delivery.due_queue import NEVER_MS, SPARE_PLACES
from dueq.core.delivery.fair_queue import FairQueue
from dueq.core.delivery.fair_tree import Node
from dueq.core.delivery.group_rates import GroupRates
from dueq.core.delivery.leases import NEVER_US, LeaseTable, Phase
from dueq.core.ports.entry import WIDE, Entries, State, joined, keys_of
from dueq.core.state.class_set import RANK_BITS
from dueq.core.state.group_table import GroupTable
from dueq.limits import FAIR_LOOKS_MAX, FAIR_WAKES_MAX, FAIR_WAKES_MIN, RECORD_ROWS_MAX
from dueq_codecs.groups import GroupSettings
from dueq_codecs.records import U64

NOW = 1_000


class Story:
    """A queue and the messages in it, all of them in memory unless `unknown` says otherwise."""

    def __init__(self, **settings: GroupSettings) -> None:
        self.groups = GroupTable()
        self.leases = LeaseTable()
        self.rates = GroupRates()
        self.queue = FairQueue(self, self.leases, self.rates)
        self.entries: dict[int, Entries] = {}
        self.unknown: int | None = None
        self.looked_up = 0
        self.by_turns = False
        self.unknown_count = 0
        for name, each in settings.items():
            self.set(name.replace("_", "."), each)

    def set(self, name: str, settings: GroupSettings) -> None:
        self.groups.numbers([name], [0])
        group = self.groups.by_name[name]
        group.settings = settings
        self.groups.limited[name] = group
        self.queue.group_changed(name)

    def rows(self, keys: U64) -> Entries:
        self.looked_up += 1
        return joined([self.entries.get(int(key), np.zeros(1, WIDE)) for key in keys])

    def end_of(self, of: int) -> tuple[int, int] | None:
        return None

    def unknown_from(self, until_ms: int) -> int | None:
        return self.unknown

    def unknown_in(self, first: int, behind: int, until_ms: int) -> int | None:
        return self.unknown if self.unknown is not None and first <= self.unknown < behind else None

    def unknown_at(self, first: int, behind: int) -> int | None:
        return NOW if self.unknown_in(first, behind, NOW) is not None else None

    def wait(self, group: str, count: int = 1, rank: int = 0, at: int = NOW) -> list[int]:
        """Let messages of a group wait; returns their keys."""
        number = int(self.groups.numbers([group], [0])[0])
        rows = np.zeros(count, WIDE)
        rows["state"], rows["wait_at"], rows["group"], rows["rank"] = State.WAITING, at, number, rank
        rows["sequence"] = np.arange(count) + len(self.entries) + 1
        for row in np.split(rows, count):
            self.entries[int(keys_of(row)[0])] = row
        self.groups.count(rows, 1, 0)
        self.queue.add(rows)
        return keys_of(rows).tolist()

    def pop(self, count: int, now: int = NOW) -> str:
        """Take messages out, and lease them; returns the groups in order."""
        found = self.queue.pop(now, count, self.leases.slot_of.keys())
        if not len(found):
            return ""
        self.leases.add(found, 1, 7, Phase.PROPOSED, NEVER_US)
        return " ".join(self.groups.name_of(number) or "-" for number in found["group"].tolist())

    def end(self, keys: Iterable[int]) -> None:
        """Let leases end."""
        for key in keys:
            self.leases.remove(self.leases.find(np.array([key], np.uint64)), [key])


def test_groups_take_turns_however_many_messages_one_has() -> None:
    story = Story()
    story.wait("a", 100)
    story.wait("b", 2)
    story.wait("c", 1)
    assert story.pop(8) == "a b c a b a a a"


def test_what_waits_for_the_next_millisecond_does_not_come_with_the_group_that_wakes() -> None:
    """It would be delivered before it is due."""
    story = Story()
    story.wait("a", at=NOW + 1)
    story.wait("a")
    assert story.pop(8) == "a"
    assert story.pop(8, NOW + 1) == "a"


def test_a_group_that_comes_later_waits_for_one_turn_of_the_others() -> None:
    story = Story()
    story.wait("a", 50)
    story.wait("b", 50)
    assert story.pop(3) == "a b a"
    story.wait("c")
    assert story.pop(3) == "b a c"


def test_a_group_gets_as_many_messages_as_its_weight_is_when_it_is_its_turn() -> None:
    story = Story(a=GroupSettings(weight=3))
    story.wait("a", 50)
    story.wait("b", 50)
    assert story.pop(8) == "a a a b a a a b"


@pytest.mark.parametrize("seed", range(6))
def test_a_group_waits_for_no_more_than_the_weights_of_the_others_add_up_to(seed: int) -> None:
    """Counted in messages, on each level, whatever comes meanwhile and however much of it."""
    random = Random(seed)
    weights = {name: random.choice((1, 1, 2, 5, 40)) for name in ("a", "b", "c", "d", "d.x", "d.y", "d.z")}
    story = Story(
        **{name.replace(".", "_"): GroupSettings(weight=weight) for name, weight in weights.items()}
    )
    rings = (("a", "b", "c", "d"), ("d.x", "d.y", "d.z"))
    has: Counter[str] = Counter()  # messages of each group and level
    waited: Counter[str] = Counter()  # for so many messages of others in its ring
    for _ in range(400):
        if random.random() < 0.4:
            name, count = random.choice(("a", "b", "c", "d.x", "d.y", "d.z")), random.choice((1, 1, 3, 60))
            story.wait(name, count)
            has.update(dict.fromkeys({name, name[0]}, count))
        for given in story.pop(random.randint(1, 4)).split():
            has.subtract({given, given[0]})
            for ring, turn in zip(rings, (given[0], given), strict=True):
                if turn not in ring:
                    continue
                for name in ring:
                    waited[name] = waited[name] + 1 if has[name] and name != turn else 0
                    assert waited[name] <= sum(weights[other] for other in ring if other != name)
        story.end(list(story.leases.slot_of))


def test_each_level_takes_turns_on_its_own() -> None:
    """Many groups below one share what that one gets."""
    story = Story()
    for name in ("big.x", "big.y", "big.z"):
        story.wait(name, 20)
    story.wait("small", 20)
    assert story.pop(8) == "big.x small big.y small big.z small big.x small"


def test_what_is_a_groups_own_takes_turns_with_the_groups_below_it() -> None:
    story = Story()
    story.wait("a", 5)
    story.wait("a.b", 5)
    assert story.pop(4) == "a a.b a a.b"


def test_messages_without_a_group_are_one_group() -> None:
    story = Story()
    story.wait("", 5)
    story.wait("a", 5)
    assert story.pop(4) == "- a - a"


def test_inside_a_group_the_smallest_rank_goes_first_and_the_soonest_of_a_rank() -> None:
    story = Story()
    story.wait("a", 1, rank=5, at=NOW - 9)
    story.wait("a", 1, rank=1, at=NOW)
    story.wait("a", 1, rank=1, at=NOW - 5)
    found = story.queue.pop(NOW, 3, {}.keys())
    assert list(zip(found["rank"].tolist(), found["wait_at"].tolist(), strict=True)) == [
        (1, NOW - 5), (1, NOW), (5, NOW - 9),
    ]  # fmt: skip


def test_a_group_whose_consumers_hold_as_many_as_they_may_is_passed_over_until_a_lease_ends() -> None:
    story = Story(a=GroupSettings(max_unacked=2))
    keys = story.wait("a", 9)
    story.wait("b", 3)
    assert story.pop(9) == "a b a b b"
    assert story.pop(9) == ""
    assert story.queue.head_ms <= NOW, "something is ready"
    story.end(keys[:1])
    assert story.pop(9) == "a"


def test_a_limit_of_a_level_counts_all_groups_below_it() -> None:
    story = Story(a=GroupSettings(max_unacked=3))
    story.wait("a.x", 9)
    story.wait("a.y", 9)
    assert Counter(story.pop(20).split()) == {"a.x": 2, "a.y": 1}


def test_a_paused_group_keeps_its_messages_and_the_groups_below_it_too() -> None:
    story = Story(a=GroupSettings(paused=True))
    story.wait("a", 2)
    story.wait("a.b", 2)
    story.wait("c", 2)
    assert story.pop(9) == "c c"
    story.set("a", GroupSettings())
    assert Counter(story.pop(9).split()) == {"a": 2, "a.b": 2}


def test_a_group_of_which_something_earlier_may_be_only_on_disk_is_passed_over() -> None:
    story = Story()
    story.wait("a", 2, rank=4)
    story.wait("b", 2)
    story.unknown = story.groups.by_name["a"].number << 16 | 2
    assert story.pop(9) == "b b"
    story.unknown = None
    assert story.pop(9) == "a a"


def test_of_very_many_groups_who_waits_for_the_disk_keeps_its_turn() -> None:
    """Else it would lose a whole round to each message that is not in memory yet."""
    story = Story()
    story.wait("a", 2)
    story.wait("b", 2)
    story.wait("c", 2)
    story.by_turns, story.unknown = True, story.groups.by_name["b"].number << 16
    rows = [story.entries.pop(key) for key in list(story.entries) if int(story.entries[key]["group"][0]) == 2]
    story.queue.renew(joined([*story.entries.values()]))
    story.queue.expect([(story.unknown, NOW, 0)])
    assert story.pop(9) == "a"
    assert story.pop(9) == ""
    assert story.queue.hungry(8, 4) == [(story.unknown, 1)], "it is read first"
    story.unknown = None
    story.entries.update({int(keys_of(row)[0]): row for row in rows})
    story.queue.add(joined(rows))
    assert story.pop(9) == "b c a b c"


def test_what_the_window_lets_go_of_a_group_is_forgotten_and_looked_at_when_it_is_ready() -> None:
    story = Story()
    story.wait("a", 3)
    story.wait("b", 3, at=NOW + 5)
    story.queue.expect([(of << 16, at, 0) for of, at in ((1, NOW), (2, NOW + 5))])
    assert (len(story.queue), story.queue.head_ms) == (0, NOW)


def test_what_the_window_keeps_of_a_group_that_it_has_cut_stays() -> None:
    """All up to the end, and other ranks: it is in memory, so nothing would enter it again."""
    story, later = Story(), NOW + 5
    ready, asleep = story.wait("a", 3), story.wait("b", 3, at=later)
    others = story.wait("a", rank=1) + story.wait("b", rank=1, at=later)
    assert story.queue.count_until(NOW, 9) == 4
    story.queue.expect([(1 << 16, NOW, ready[1]), (2 << 16, later, asleep[1])])
    found = keys_of(story.queue.pop(later, 9, {}.keys())).tolist()
    assert sorted(found) == sorted([*ready[:2], *asleep[:2], *others])


def test_a_group_of_which_very_many_ranks_are_cut_together_is_gone_through_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A new leader would say nothing for seconds, and be replaced by the next one that says nothing."""
    story, made_anew = Story(), []
    for rank in range(500):
        story.wait("a", rank=rank, at=NOW + 5)
    monkeypatch.setattr(fair_queue, "heapify", made_anew.append)
    story.queue.expect([(1 << 16 | rank, NOW, 0) for rank in range(400)])
    assert (len(story.queue), len(made_anew)) == (100, 1)


def test_what_is_in_memory_up_to_the_end_comes_and_what_is_behind_it_waits_for_the_disk() -> None:
    story = Story()
    keys = story.wait("a", 3)
    story.unknown = 1 << 16
    story.end_of = lambda of: (NOW, keys[1])  # type: ignore[method-assign]
    assert story.pop(9) == "a a"
    assert story.pop(9) == ""
    story.unknown = None
    assert story.pop(9) == "a"


def test_messages_that_are_only_on_the_disk_are_waiting_ones_too() -> None:
    """Else a consumer would send its credit elsewhere, and nothing is read for whom nobody has credit."""
    story = Story()
    story.wait("a", 3)
    story.unknown = story.groups.by_name["a"].number << 16
    story.queue.expect([(story.unknown, NOW, 0)])
    assert story.queue.count_until(NOW, 9) == 1
    story.queue.renew(joined(list(story.entries.values())))
    assert story.queue.count_until(NOW, 9) == 3


def test_what_is_put_back_has_its_turn_next() -> None:
    """Else a group whose message does not fit into the bytes of any credit would lose turn after turn."""
    story = Story()
    story.wait("a", 9)
    story.wait("b", 9)
    story.wait("c.x", 9)
    given = []
    for _ in range(6):
        found = story.queue.pop(NOW, 3, story.leases.slot_of.keys())
        story.queue.put_back(found[1:])
        story.leases.add(found[:1], 1, 7, Phase.PROPOSED, NEVER_US)
        given.append(story.groups.name_of(int(found["group"][0])))
    assert given == ["a", "b", "c.x"] * 2
    assert len(story.queue) == 3 * 9 - 6


@pytest.mark.parametrize("credit", range(1, 7))
def test_what_is_passed_over_gives_no_group_a_turn_before_another(credit: int) -> None:
    """Messages of other groups came out after it: whose turn these were depends on it."""
    story = Story()
    dead = {story.wait("a")[0], story.wait("b")[0]}
    story.wait("a", 3)
    story.wait("b", 3)
    came: list[str] = []
    while len(story.queue):
        wanted, again = credit, False
        while wanted:
            found = story.queue.pop(NOW, wanted, story.leases.slot_of.keys(), again=again)
            passed = np.array([key in dead for key in keys_of(found).tolist()], np.bool_)
            kept = found[~passed]
            if passed.any():
                kept = kept[: story.queue.pass_over(found, passed)]
            story.leases.add(kept, 1, 7, Phase.PROPOSED, NEVER_US)
            came += [story.groups.name_of(number) or "-" for number in kept["group"].tolist()]
            wanted -= len(kept)
            if len(kept) == len(found):
                break
            again = True
    assert " ".join(came) == "a b a b a b"


def test_what_is_put_back_last_is_not_forgotten() -> None:
    story = Story()
    story.wait("a")
    story.queue.put_back(story.queue.pop(NOW, 9, {}.keys()))
    assert story.queue.head_ms == NOW
    assert story.pop(9) == "a"


def test_what_is_not_due_or_gone_or_spoken_for_does_not_come_out() -> None:
    story = Story()
    gone, taken, moved = story.wait("a", 3)
    story.wait("a", 1, at=NOW + 5)
    del story.entries[gone]
    story.entries[moved]["wait_at"] = NOW + 9
    found = story.queue.pop(NOW, 9, {taken: None}.keys())
    assert not len(found)
    assert story.queue.head_ms == NOW + 5
    assert story.pop(9, NOW + 5) == "a"
    assert story.queue.head_ms == NEVER_MS


def test_a_group_that_was_forgotten_leaves_nothing_behind() -> None:
    story = Story()
    (key,) = story.wait("a")
    story.groups.count(story.entries.pop(key), -1, 0)
    story.groups.expire(0, 0)
    assert story.pop(9) == ""
    assert len(story.queue) == 0


def test_messages_of_many_groups_are_looked_up_together() -> None:
    story = Story()
    for number in range(50):
        story.wait(f"g{number}", 2)
    story.pop(80)
    assert story.looked_up == 1


def test_a_group_gets_its_turn_back_when_its_message_is_gone() -> None:
    """However many of them are gone, and also where a level above is charged."""
    story = Story()
    gone = story.wait("a.x", 5, at=NOW - 1)
    story.wait("a.x", 2)
    story.wait("a.y", 2)
    story.wait("b", 4)
    for key in gone:
        del story.entries[key]
    turns = [story.pop(1) for _ in range(8)]
    assert [turn[0] for turn in turns] == ["a", "b"] * 4
    assert Counter(turns) == {"a.x": 2, "a.y": 2, "b": 4}
    assert len(story.queue) == 0


def test_a_group_gets_its_turn_back_though_all_that_it_has_left_was_chosen_after_it() -> None:
    """Its node has left the tree and come again meanwhile."""
    story = Story()
    (gone,) = story.wait("a")
    story.wait("a", 2)
    story.wait("b", 4)
    del story.entries[gone]
    assert story.pop(9) == "a b a b b b"


def test_a_turn_that_a_message_which_is_gone_has_interrupted_goes_on_where_it_was() -> None:
    """Else the others of its level would wait for more than one turn of this group."""
    story = Story(a=GroupSettings(weight=4))
    story.wait("a", 20)
    (gone,) = story.wait("b")
    story.wait("b", 4, rank=1)
    story.wait("c", 4)
    del story.entries[gone]
    assert story.pop(9) == "a a a a b c a a a"
    found = story.queue.pop(NOW, 3, story.leases.slot_of.keys())
    story.queue.put_back(found)
    assert story.pop(6) == "a b c a a a"
    story.queue.put_back(story.queue.pop(NOW, 2, story.leases.slot_of.keys()))
    assert story.pop(5) == "a b c a a"


def test_a_group_that_is_alone_does_not_save_up_the_turns_that_it_gets_back() -> None:
    story = Story()
    story.wait("a", 9)
    for _ in range(3):
        story.queue.put_back(story.queue.pop(NOW, 1, story.leases.slot_of.keys()))
    story.wait("b", 9)
    assert story.pop(4) == "a b a b"


def test_a_message_that_moved_comes_out_once_where_it_waits_now() -> None:
    story = Story()
    (key,) = story.wait("a", 1, at=NOW - 9)
    story.entries[key]["wait_at"] = NOW - 3
    story.queue.add(story.entries[key])
    story.queue.add(story.entries[key])
    found = story.queue.pop(NOW, 9, {}.keys())
    assert (keys_of(found).tolist(), len(story.queue)) == ([key], 0)


def test_slots_that_a_gone_message_would_have_used_are_free() -> None:
    story = Story(a=GroupSettings(max_unacked=2))
    gone = story.wait("a", 2, at=NOW - 1)
    story.wait("a", 9)
    for key in gone:
        del story.entries[key]
    assert story.pop(9) == "a a"


def test_of_many_groups_that_wake_together_one_look_takes_a_bounded_number() -> None:
    """Those that wake at a later look have waited for what was given until then, at most half of them."""
    story = Story()
    groups = 2 * FAIR_WAKES_MAX + 7
    numbers = story.groups.numbers([f"g{number}" for number in range(groups)], range(groups))
    rows = np.zeros(2 * groups, WIDE)
    rows["state"], rows["wait_at"], rows["group"] = State.WAITING, NOW, np.repeat(numbers, 2)
    rows["sequence"] = np.arange(1, 2 * groups + 1)
    story.entries = dict(zip(keys_of(rows).tolist(), np.split(rows, len(rows)), strict=True))
    story.queue.add(rows)
    found = story.queue.pop(NOW, 3, {}.keys())
    assert len(found) == 3
    assert story.queue.count_until(NOW - 1, 1 << 30) == 2 * FAIR_WAKES_MIN - 3
    turns = found["group"].tolist()
    while len(set(turns)) < groups:
        turns += story.queue.pop(NOW, RECORD_ROWS_MAX, {}.keys())["group"].tolist()
    assert len(turns) <= groups + groups // 2


def test_one_look_passes_over_a_bounded_number_of_groups() -> None:
    """The next one goes on where it ended."""
    story = Story()
    for number in range(FAIR_LOOKS_MAX + 5):
        story.wait(f"g{number}")
    story.wait("z")
    for _ in range(2):
        story.queue.count_until(NOW, 1)  # all of them are awake
    for number in range(FAIR_LOOKS_MAX + 5):
        story.set(f"g{number}", GroupSettings(paused=True))
    assert story.pop(1) == ""
    assert (story.queue.head_ms, story.queue.is_cut) == (NOW, True)
    assert story.pop(1) == "z"


def test_one_look_passes_over_a_bounded_number_of_groups_below_others() -> None:
    story, looks = Story(), 0
    for number in range(2 * FAIR_LOOKS_MAX):
        story.wait(f"a{number % 64}.b{number}")
        story.set(f"a{number % 64}.b{number}", GroupSettings(paused=True))
    story.wait("z")

    def looked_at(node: Node) -> int:
        nonlocal looks
        looks += 1
        return closed_until(node)

    closed_until, story.queue._closed_until = story.queue._closed_until, looked_at  # type: ignore[method-assign]
    given = []
    while "z" not in given:
        before = looks
        given.append(story.pop(1))
        assert looks - before <= 2 * (FAIR_LOOKS_MAX + 64)
    assert len(given) < 8


def test_very_many_closed_groups_below_one_hold_up_no_other() -> None:
    story = Story()
    for number in range(2 * FAIR_LOOKS_MAX):
        story.wait(f"a.b{number}")
        story.set(f"a.b{number}", GroupSettings(paused=True))
    story.wait("z")
    assert "z" in [story.pop(1) for _ in range(8)]
    story.wait("a.c")
    assert "a.c" in [story.pop(1) for _ in range(8)]


def test_a_message_that_comes_while_many_groups_wake_is_behind_earlier_ones_of_its_group() -> None:
    story = Story()
    for number in range(4 * FAIR_WAKES_MIN):
        story.wait(f"u{number}", at=NOW + 100)
    story.set("g", GroupSettings(weight=9))
    keys = story.wait("g", 3)
    keys += story.wait("g", at=NOW + 100)
    assert (story.pop(1), story.pop(1, NOW + 200)) == ("g", "g")
    keys += story.wait("g", at=NOW + 150)
    given = keys_of(story.queue.pop(NOW + 200, 3, story.leases.slot_of.keys())).tolist()
    assert given == keys[2:]


def test_a_queue_that_has_given_everything_keeps_no_groups() -> None:
    story = Story()
    for name in ("a", "a.b", "a.b.c", "x.y", ""):
        story.wait(name, 2)
    while story.pop(3):
        pass
    root = story.queue._root
    assert (root.own, root.children or {}, root.front, story.queue._leaves) == (None, {}, None, {})


def test_what_is_dropped_of_the_tree_is_freed_at_once() -> None:
    """A broker seldom collects old objects, and the nodes of very many groups would stay."""
    story = Story()
    for number in range(20):
        story.wait(f"a.b{number}")
        story.wait(f"g{number}", 2)
    gc.collect()
    gc.disable()
    try:
        while story.pop(3):
            pass
        root = story.queue._root
        kept = {id(node) for each in story.queue._counted for node in each.path()} | {id(root)}
        nodes = [each for each in gc.get_objects() if isinstance(each, Node) and root in each.path()]
        assert [each.name for each in nodes if id(each) not in kept] == []
    finally:
        gc.enable()


def test_tables_of_very_many_groups_give_their_memory_back_once_they_are_empty() -> None:
    """Tables do not shrink by themselves."""
    story, later = Story(), NOW + 1
    for number in range(100):
        story.wait(f"g{number}", at=later)
    queue = story.queue
    asleep = sys.getsizeof(queue._alarmed), sys.getsizeof(queue._sleeping)
    story.pop(1, now=later)
    awake = sys.getsizeof(queue._alarmed), sys.getsizeof(queue._sleeping)
    assert awake == (sys.getsizeof(set()), sys.getsizeof({})) < asleep
    many = sys.getsizeof(queue._leaves)
    while story.pop(10, now=later):
        pass
    story.pop(1, now=later)
    assert sys.getsizeof(queue._leaves) == sys.getsizeof({}) < many


def test_the_number_of_a_group_is_one_object() -> None:
    """Each would take 32 bytes of its own, and there may be very many."""
    story = Story()
    for number in range(300):  # small numbers are shared anyway
        story.wait(f"g{number}", 2)
    story.pop(1)
    leaves = story.queue._leaves.values()
    assert all(leaf.number is story.groups.by_name[leaf.name].number for leaf in leaves)
    assert len(leaves) == 300


def test_a_group_with_a_late_message_and_many_sooner_ones_has_one_alarm_for_it() -> None:
    story = Story()
    story.wait("a", at=NOW + 1_000_000)
    for step in range(100):
        story.wait("a", at=NOW + step)
        assert story.pop(1, now=NOW + step) == "a"
    assert len(story.queue._alarms) == 1
    assert story.queue.head_ms == NOW + 1_000_000


def test_groups_of_which_nothing_is_left_keep_no_alarms_and_those_that_are_left_keep_theirs() -> None:
    """A partition may have had a hundred thousand groups, and each an instant of its own."""
    story, many = Story(), 2 * SPARE_PLACES
    for number in range(many):
        story.wait(f"g{number}", at=NOW + 1 + number)
    last = [key for key, row in story.entries.items() if row["wait_at"][0] == NOW + many]
    story.queue.renew(story.rows(np.array(last, np.uint64)))
    assert len(story.queue._alarms) == len(story.queue._alarmed) == 1
    assert story.queue.head_ms == NOW + many
    assert story.pop(1, now=NOW + many - 1) == ""
    assert story.pop(1, now=NOW + many) == f"g{many - 1}"


def test_a_group_that_is_only_on_the_disk_is_looked_at_however_often_its_beginning_has_moved() -> None:
    """Each place at which it might have begun has had an alarm of its own."""
    story = Story()
    number = int(story.groups.numbers(["a"], [0])[0])
    of = story.unknown = number << RANK_BITS
    story.unknown_count = 1
    for step in range(3 * SPARE_PLACES):
        story.queue.expect([(of, NOW + 1 + step, step)])
        assert len(story.queue._alarms) <= SPARE_PLACES + 2
    assert story.queue.head_ms == NOW


def test_groups_that_are_not_due_after_all_sleep_again_and_the_others_keep_their_turns() -> None:
    story, later = Story(), NOW + 50

    def go_back() -> None:
        waiting = [row for key, row in story.entries.items() if key not in story.leases.slot_of]
        story.queue.go_back(joined(waiting), NOW)

    for name, at in (("a", NOW), ("a", NOW), ("b", later), ("c.x", later), ("c.y", NOW), ("d.x", later)):
        story.wait(name, at=at)
    assert story.pop(1, later) == "a"
    go_back()
    assert story.queue.head_ms <= NOW
    assert story.pop(9) == "c.y a"
    go_back()
    assert story.queue.head_ms == later
    assert story.pop(9, later) == "b c.x d.x"


def test_a_message_that_was_entered_twice_comes_out_once_in_a_turn() -> None:
    """Also where its second place wakes only when the queue is asked again."""
    story = Story()
    [key] = story.wait("a")
    story.queue.add(story.entries[key])
    assert len(story.queue.pop(NOW, 1, story.leases.slot_of.keys())) == 1
    assert len(story.queue.pop(NOW, 1, story.leases.slot_of.keys(), again=True)) == 0

    story.queue.renew(story.entries[key])
    assert len(story.queue.pop(NOW, 1, story.leases.slot_of.keys())) == 1
    story.queue.add(story.entries[key])
    assert len(story.queue.pop(NOW, 1, story.leases.slot_of.keys(), again=True)) == 0


def test_what_a_queue_has_given_in_a_turn_counts_when_it_is_asked_again() -> None:
    story = Story(a=GroupSettings(max_unacked=2))
    story.wait("a", 5)
    assert len(story.queue.pop(NOW, 2, story.leases.slot_of.keys())) == 2
    assert len(story.queue.pop(NOW, 1, story.leases.slot_of.keys(), again=True)) == 0


def test_a_group_that_is_forgotten_and_comes_again_leaves_no_leaf_behind() -> None:
    """Its messages were cancelled before they came out."""
    story = Story()
    for _ in range(9):
        [key] = story.wait("a")
        story.queue.count_until(NOW, 9)
        story.groups.count(story.entries.pop(key), -1, 0)
        story.groups.expire(0, NOW)
    assert story.pop(9) == ""
    assert not story.queue._leaves


def test_a_group_that_is_forgotten_and_comes_again_beside_those_below_it_leaves_no_node_behind() -> None:
    story = Story()
    story.wait("a.b")
    [key] = story.wait("a")
    assert story.pop(1) == "a.b"
    story.groups.count(story.entries.pop(key), -1, 0)
    story.groups.expire(0, 0)
    story.wait("a")
    assert story.pop(9) == "a"
    assert (story.pop(9), story.queue._leaves, story.queue._root.children) == ("", {}, {})
