"""Groups that are paused, without a slot or without a token, beside a twin that goes through all messages each time.

Which group is next may differ where several may be given something; so the twin says what the rules say: no limit is
exceeded, nothing that may be given is left while there is credit, and nobody waits for more than a turn of all others.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
import pytest
from tests.unit.core.delivery.test_fair_queue import NOW, Story
from tests.unit.core.led import at

from dueq.core.delivery.fair_tree import UNTIL_ONE_BELOW, Node
from dueq.core.delivery.leases import NEVER_US, Phase
from dueq.core.ports.entry import WIDE, Entries, State, joined, keys_of
from dueq_codecs.groups import AS_CREATED, GroupSettings, levels_of

GROUPS = ("", "a", "a.x", "a.y", "a.y.z", "b", "c.p.q", "c.p.r", "d", "e")
LEVELS = tuple(dict.fromkeys(level for name in GROUPS for level in levels_of(name)))
WEIGHT_MAX = 4
OWN = "."
"""Behind a group's name: its own messages, beside the groups below it."""


def turns_of(name: str) -> list[str]:
    """Return who has a turn where a message of a group is given: each level, and perhaps its own messages there."""
    levels = levels_of(name)
    has_below = any(other.startswith(f"{name}.") for other in GROUPS) if name else True
    return [*levels, name + OWN] if has_below else levels


def above(turn: str) -> str:
    """Return the level whose ring a turn is in; "" at the top."""
    return turn.removesuffix(OWN) if turn.endswith(OWN) else turn.rpartition(".")[0]


class Twin(Story):
    """A story that lives through random changes.

    Attributes:
        waited: for how many messages of others each has waited that could have been given something all the while.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = Random(seed)
        self.ms = self.mono_ms = 0
        # Messages are put back, or cancelled. What is left of the turn of a group that has run out of messages is not
        # known when one comes back, so it may get as much again.
        self.is_giving_back = seed % 2 == 1
        self.waited: Counter[str] = Counter()
        self.sequence = 0
        self.given = 0

    # ------------------------------------------------------------ what happens

    def live_through(self, steps: int) -> None:
        happens = (
            self.insert, self.insert, self.look, self.look, self.look, self.end_some, self.end_some, self.set_some,
            self.cancel_some, self.pass_time, self.limit_none, self.begin_anew,
        )  # fmt: skip
        weights = (6, 6, 8, 8, 8, 8, 8, 6, 3, 6, 1, 1)
        for step in self.random.choices(happens, weights, k=steps):
            step()
            self.check_shape()

    def insert(self) -> None:
        for _ in range(self.random.randint(1, 4)):
            delay = self.random.choice((0, 0, 0, self.random.randint(1, 400)))
            self.wait(self.random.choice(GROUPS), self.random.choice((1, 1, 2, 9)), at=NOW + self.ms + delay)

    def wait(self, group: str, count: int = 1, rank: int = 0, at: int = NOW) -> list[int]:
        """Let messages of a group wait; returns their keys, of which none was there before."""
        number = int(self.groups.numbers([group], [0])[0]) if group else 0
        rows = np.zeros(count, WIDE)
        rows["state"], rows["wait_at"], rows["group"], rows["rank"] = State.WAITING, at, number, rank
        rows["sequence"] = np.arange(count) + self.sequence + 1
        self.sequence += count
        keys = keys_of(rows).tolist()
        self.entries.update(zip(keys, np.split(rows, count), strict=True))
        self.groups.count(rows, 1, 0)
        self.queue.add(rows)
        return keys

    def pass_time(self) -> None:
        step = self.random.choice((1, 20, 150, 1_000))
        self.ms += step
        self.mono_ms += step

    def set_some(self) -> None:
        name = self.random.choice(LEVELS)
        settings = self.random.choice((
            AS_CREATED, AS_CREATED, GroupSettings(paused=True), GroupSettings(max_unacked=self.random.randint(1, 4)),
            GroupSettings(rate=self.random.randint(1, 20), burst=self.random.randint(1, 5)),
            GroupSettings(weight=self.random.randint(1, WEIGHT_MAX), max_unacked=self.random.randint(0, 4)),
            GroupSettings(max_unacked=self.random.randint(1, 4), rate=self.random.randint(1, 20)),
        ))  # fmt: skip
        if settings == AS_CREATED:
            self.unset(name)
        else:
            self.set(name, settings)

    def unset(self, name: str) -> None:
        group = self.groups.limited.pop(name, None)
        if group is not None:
            group.settings = None
            self.groups._idle[group.number] = None
        self.queue.group_changed(name)

    def limit_none(self) -> None:
        for name in list(self.groups.limited):
            self.unset(name)

    def end_some(self) -> None:
        """Acks and nacks; a record that follows may forget a group before its leases are known to have ended."""
        held = list(self.leases.slot_of)
        some = self.random.sample(held, self.random.randint(0, len(held)))
        for key in some:
            if self.random.random() < 0.7:
                self.groups.count(self.entries.pop(key), -1, 0)
        if self.random.random() < 0.5:
            self.groups.expire(0, 0)
        self.end(some)
        back = [self.entries[key] for key in some if key in self.entries]
        if back:
            self.queue.add(joined(back))

    def cancel_some(self) -> None:
        for key in self.waiting(0.2) if self.is_giving_back else ():
            self.groups.count(self.entries.pop(key), -1, 0)
        self.groups.expire(0, 0)

    def waiting(self, share: float = 1) -> list[int]:
        return [
            key for key in self.entries if key not in self.leases.slot_of and self.random.random() < share
        ]

    def begin_anew(self) -> None:
        """The queue is made anew; mesh time may have gone back."""
        rows = [self.entries[key] for key in self.waiting()]
        if rows and self.random.random() < 0.5:
            self.queue.renew(joined(rows))
        elif rows:
            self.ms = max(self.ms - 100, 0)
            self.queue.go_back(joined(rows), NOW + self.ms)
            self.waited.clear()  # who has nothing ready any more has lost its place

    # ------------------------------------------------------------ looks

    def look(self) -> None:
        """A turn of the leader: it takes out as much as there is credit for, and leases the first of it."""
        self.rates.begin(at(self.mono_ms))
        credit = self.random.choice((1, 2, 5, 40))
        before, found = self.held(), [self.take(credit, again=False)]
        while len(found[-1]) and sum(map(len, found)) < credit and self.random.random() < 0.5:
            found.append(self.take(credit - sum(map(len, found)), again=True))
        rows = joined([each for each in found if len(each)] or [found[0]])
        names = [self.name(row) for row in np.split(rows, len(rows))] if len(rows) else []
        self.check_limits(before, names)
        if len(rows) < credit and not self.queue.is_cut:
            self.check_complete(before + self.levels(names), names, keys_of(rows).tolist())
        kept = self.random.choice((len(rows), len(rows), self.random.randint(0, len(rows))))
        kept = kept if self.is_giving_back else len(rows)
        if kept:
            self.count_turns(before, rows[:kept])
            self.leases.add(rows[:kept], 1, 7, Phase.PROPOSED, NEVER_US)
            self.rates.spend(rows[:kept], self.groups)
        if kept < len(rows):
            self.queue.put_back(rows[kept:])
        self.given += kept

    def take(self, limit: int, *, again: bool) -> Entries:
        return self.queue.pop(NOW + self.ms, limit, self.leases.slot_of.keys(), again=again)

    def name(self, row: Entries) -> str:
        name = self.groups.name_of(int(row["group"][0]))
        assert name is not None
        return name

    def levels(self, names: list[str]) -> Counter[str]:
        return Counter(level for name in names for level in levels_of(name))

    def held(self) -> Counter[str]:
        """How many leases there are at or below each level: of what is gone already, too."""
        return Counter(
            level
            for held in self.queue._slots._held.values()
            for level in levels_of(held.name)
            for _ in range(held.count)
        )

    def tokens(self, level: str) -> int:
        settings = self.settings(level)
        bucket = self.rates._buckets.get(level)
        if bucket is None:
            return settings.burst or settings.rate
        bucket.configure(settings.rate, settings.burst, self.rates.now)
        return bucket.available(self.rates.now)

    def settings(self, level: str) -> GroupSettings:
        group = self.groups.limited.get(level)
        return group.settings or AS_CREATED if group is not None else AS_CREATED

    def is_open(self, level: str, held: Counter[str], given: Counter[str]) -> bool:
        settings = self.settings(level)
        if settings.paused or (settings.max_unacked and held[level] >= settings.max_unacked):
            return False
        return not settings.rate or self.tokens(level) > given[level]

    def check_limits(self, held: Counter[str], names: list[str]) -> None:
        given: Counter[str] = Counter()
        for name in names:
            for level in levels_of(name):
                assert self.is_open(level, held + given, given), f"{level} is given too much"
            given.update(levels_of(name))

    def check_complete(self, held: Counter[str], names: list[str], keys: list[int]) -> None:
        given = self.levels(names)
        for key in self.waiting():
            row = self.entries[key]
            if key in keys or row["wait_at"][0] > NOW + self.ms:
                continue
            name = self.name(row)
            is_closed = [level for level in levels_of(name) if not self.is_open(level, held, given)]
            assert is_closed, f"a message of {name!r} may be given, and was not"

    def count_turns(self, held: Counter[str], rows: Entries) -> None:
        """Whoever could have been given something instead of each message has waited for one more."""
        ready = Counter(
            self.name(self.entries[key])
            for key in self.waiting()
            if self.entries[key]["wait_at"][0] <= NOW + self.ms
        )
        given: Counter[str] = Counter()
        for row in np.split(rows, len(rows)):
            name = self.name(row)
            now_held = held + given
            able = {
                turn
                for other, count in ready.items()
                if count and all(self.is_open(level, now_held, given) for level in levels_of(other))
                for turn in turns_of(other)
            }
            turns = turns_of(name)
            rings = [above(turn) for turn in turns]
            for other in self.waited.keys() | able:
                if other not in able or other in turns:
                    self.waited[other] = 0
                elif above(other) in rings:
                    self.waited[other] += 1
                    others = len({each for each in self.everybody() if above(each) == above(other)} - {other})
                    turn = 2 * WEIGHT_MAX - 1 if self.is_giving_back else WEIGHT_MAX
                    assert self.waited[other] <= others * turn, f"{other} waits for too long"
            ready[name] -= 1
            given.update(levels_of(name))

    def everybody(self) -> set[str]:
        return {turn for name in GROUPS for turn in turns_of(name)}

    # ------------------------------------------------------------ what must always be so

    def check_shape(self) -> None:
        """Who has something ready is in the ring, or rests for a reason; slots are as many as leases."""
        slots = self.queue._slots
        groups = Counter(int(self.leases.entry["group"][slot]) for slot in self.leases.slot_of.values())
        groups.pop(0, None)
        assert {number: held.count for number, held in slots._held.items()} == groups
        if self.groups.limited:
            assert {level: slots.used(level) for level in self.held()} == self.held()
            assert len(slots._used) == len(self.held())
        for name in (*slots._watched, *slots._freed):
            waits = self.queue._find(name)
            assert waits is not None
            assert waits.rests_until == NEVER_US
        nodes = [self.queue._root]
        for node in nodes:
            below = [*(node.children or {}).values(), *([node.own] if node.own is not None else [])]
            nodes += below
            ring, each = [], node.front
            for _ in range(node.ring_size):
                assert each is not None
                ring.append(each)
                each = each._after
            assert each is node.front
            assert all(each.in_ring for each in ring)
            assert {id(each) for each in below if each.in_ring} == set(map(id, ring))
            assert node.resting == sum(1 for each in below if each.rests_until)
            for each in below:
                assert not (each.in_ring and each.rests_until)
                assert each.in_ring or each.rests_until, "it has nothing, and is kept"
                if each.rests_until:
                    self.check_rest(each)

    def check_rest(self, node: Node) -> None:
        settings = self.settings(node.name)
        if node.rests_until == UNTIL_ONE_BELOW:
            assert node.front is None
            assert node.resting
        elif node.rests_until == NEVER_US:
            is_freed = node.name in self.queue._slots._freed  # the next look finds that
            is_full = 0 < settings.max_unacked <= self.queue._slots.used(node.name) + node.drawn
            assert settings.paused or is_full or is_freed
            assert settings.paused or is_freed or node.name in self.queue._slots._watched
        else:
            assert settings.rate
            assert node in [each for _, _, each in self.queue._token_waits._heap]


@pytest.mark.parametrize("seed", range(24))
def test_closed_groups_are_given_what_a_twin_that_looks_at_all_says(seed: int) -> None:
    twin = Twin(seed)
    twin.live_through(400)
    assert twin.given > 100
    twin.limit_none()
    twin.ms += 10_000
    twin.mono_ms += 10_000
    left = len(twin.waiting())
    given = twin.take(left + 1, again=False)
    assert len(given) == left, "nobody is closed any more"
