"""Rates of groups: so many messages of each over a long time, its burst at once, and those below it counted, too."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from dueq.core.delivery.leases import NEVER_US
from dueq_codecs.groups import GroupSettings, levels_of
from dueq_codecs.records import Record, RecordKind
from tests.unit.core.delivery.test_fair_queue import NOW, Story
from tests.unit.core.led import Stage, at


class PacedStory(Story):
    """Messages come out at an instant, and are paid for."""

    def pop_at(self, ms: float, count: int = 100) -> dict[str, int]:
        self.rates.begin(at(ms))
        found = self.queue.pop(NOW, count, self.leases.slot_of.keys())
        self.rates.spend(found, self.groups)
        if not len(found):
            return {}
        return dict(Counter(self.groups.name_of(number) or "-" for number in found["group"].tolist()))


def test_a_group_begins_with_its_burst_and_goes_on_at_its_rate() -> None:
    story = PacedStory(a=GroupSettings(rate=10, burst=3))
    story.wait("a", 50)
    story.wait("b", 2)
    assert story.pop_at(0) == {"a": 3, "b": 2}
    assert [story.pop_at(ms) for ms in (99, 100, 150, 500)] == [{}, {"a": 1}, {}, {"a": 3}]


def test_without_a_burst_it_is_that_of_a_second() -> None:
    story = PacedStory(a=GroupSettings(rate=4))
    story.wait("a", 50)
    assert [story.pop_at(ms) for ms in (0, 60_000)] == [{"a": 4}, {"a": 4}]


def test_groups_below_cost_tokens_of_all_levels_above() -> None:
    story = PacedStory(a=GroupSettings(rate=1, burst=4), a_x=GroupSettings(rate=1, burst=1))
    story.wait("a.x", 5)
    story.wait("a.y", 5)
    assert story.pop_at(0) == {"a.x": 1, "a.y": 3}


def test_it_is_known_when_the_next_token_of_any_group_is_there() -> None:
    story = PacedStory(a=GroupSettings(rate=10, burst=1), b=GroupSettings(rate=4, burst=1))
    story.wait("a", 9)
    story.wait("b", 9)
    story.pop_at(0)
    assert story.rates.next_us == at(100).mono_us
    story.pop_at(100)
    assert story.rates.next_us == at(200).mono_us
    story.rates.begin(at(200))
    assert story.rates.next_us == NEVER_US, "nobody has been passed over yet"


def test_what_is_put_back_costs_nothing() -> None:
    story = PacedStory(a=GroupSettings(rate=1, burst=2))
    story.wait("a", 5)
    story.rates.begin(at(0))
    story.queue.put_back(story.queue.pop(NOW, 9, story.leases.slot_of.keys()))
    assert story.pop_at(0) == {"a": 2}


def test_what_was_chosen_in_this_turn_is_spoken_for() -> None:
    story = PacedStory(a=GroupSettings(rate=1, burst=2))
    story.wait("a", 5)
    story.rates.begin(at(0))
    assert len(story.queue.pop(NOW, 1, story.leases.slot_of.keys())) == 1
    assert len(story.queue.pop(NOW, 5, story.leases.slot_of.keys(), again=True)) == 1
    assert story.rates.next_us == at(1_000).mono_us


def test_a_message_that_is_gone_costs_nothing() -> None:
    story = PacedStory(a=GroupSettings(rate=1, burst=2))
    keys = story.wait("a", 5)
    for key in keys[:2]:
        del story.entries[key]
    assert story.pop_at(0) == {"a": 2}


def test_a_rate_that_was_taken_back_counts_nothing_meanwhile() -> None:
    story = PacedStory(a=GroupSettings(rate=1, burst=1))
    story.wait("a", 50)
    assert story.pop_at(0) == {"a": 1}
    story.set("a", GroupSettings(weight=2))
    assert story.pop_at(0, 20) == {"a": 20}
    story.set("a", GroupSettings(rate=1, burst=1))
    assert [story.pop_at(0), story.pop_at(1_000)] == [{"a": 1}, {"a": 1}]


def test_buckets_of_groups_without_a_rate_are_forgotten() -> None:
    story = PacedStory(**{f"g{number}": GroupSettings(rate=1) for number in range(50)})
    for number in range(50):
        story.wait(f"g{number}", 2)
    story.pop_at(0)
    assert len(story.rates._buckets) == 50
    for number in range(1, 50):
        del story.groups.limited[f"g{number}"]
    story.pop_at(5_000)
    assert len(story.rates._buckets) == 1


@pytest.mark.parametrize("seed", range(20))
def test_over_any_interval_no_group_gets_more_than_rate_and_burst_allow(seed: int) -> None:
    """And none gets less, as long as it has something ready: compared with buckets of fractions."""
    random = np.random.default_rng(seed)
    settings = {
        name: GroupSettings(rate=int(random.integers(1, 40)), burst=int(random.integers(0, 9)))
        for name in ("a", "a.x", "b", "c.x")
    }
    story = PacedStory(**{name.replace(".", "_"): each for name, each in settings.items()})
    for name in ("a", "a.x", "a.y", "b", "c.x", "d"):
        story.wait(name, 600)
    levels = {name: float(each.burst or each.rate) for name, each in settings.items()}
    before = ms = 0
    for _ in range(60):
        ms += int(random.integers(0, 300))
        for name, each in settings.items():
            levels[name] = min(levels[name] + each.rate * (ms - before) / 1000, each.burst or each.rate)
        before = ms
        found = story.pop_at(ms, 40)
        for name, count in found.items():
            for level in levels_of(name):
                if level in levels:
                    levels[level] -= count
        assert min(levels.values()) > -1e-6
        if sum(found.values()) < 40:
            assert levels["b"] < 1 + 1e-6, "it had a token, and was not served"
            assert levels["c.x"] < 1 + 1e-6
            assert levels["a"] < 1 + 1e-6


def test_a_limited_group_is_delivered_at_its_rate_and_others_as_they_are_ready() -> None:
    stage = Stage(kind="fair")
    stage.attach(0, credit=1_000)
    record = Record(RecordKind.GROUP, 1, 0, 0, 0, name="acme", document='{"rate":10,"burst":5}')
    stage.leds[1].append(record, at(0))
    stage.commit(0)
    stage.insert([0] * 30, group="acme.eu")
    stage.insert([0] * 7, group="zoo")
    counts = [sum(len(push.uid) for push in stage.run(ms)) for ms in range(1, 1_002, 100)]
    assert counts[0] == 12
    assert sum(counts) == 22
    deadline_us = stage.dispatcher.next_deadline_us(at(1_001))
    assert deadline_us is not None
    assert at(1_001).mono_us < deadline_us <= at(1_101).mono_us


def test_after_a_change_of_leader_it_has_its_burst_again() -> None:
    stage = Stage(kind="fair")
    stage.attach(0, credit=1_000)
    record = Record(RecordKind.GROUP, 1, 0, 0, 0, name="acme", document='{"rate":1,"burst":5}')
    stage.leds[1].append(record, at(0))
    stage.commit(0)
    stage.insert([0] * 30, group="acme")
    assert sum(len(push.uid) for push in stage.run(1)) == 5
    stage.dispatcher.unlead(1, at(2))
    stage.dispatcher.lead(stage.leds[1], at(2))
    stage.attach(3, credit=1_000, attach=2)
    stage.run(3)
    assert stage.leds[1].timeline.leased_count == 10
