"""Named scenarios of brokers that start with a wrong clock, and have not measured the mesh yet."""

from __future__ import annotations

import pytest

from dueq_chaos.scenarios.hand import Hand
from dueq_chaos.scenarios.stage import Stage

TWO_HOURS_US = 7_200_000_000


def asks(stage: Stage, broker: str, for_ms: int) -> Hand:
    """A consumer that attaches to a broker again and again for a while."""
    hand = stage.hand("eager")
    for _ in range(for_ms // 5):
        hand.attach(broker, credit=8, lease_ms=30_000)
        stage.run_ms(5)
    return hand


@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("replicas", [1, 3])
def test_who_starts_with_a_clock_that_is_ahead_is_not_early(seed: int, replicas: int) -> None:
    """S2. It needs no other broker for its leaderships, so it could lead before it has measured any clock."""
    stage = Stage(seed=seed, replicas=replicas, min_isr=1)
    leader = stage.leader
    stage.stored(b"in an hour", due=stage.now_ms + 3_600_000)
    others = [name for name in stage.names if name != leader]
    if replicas > 1:
        for name in others:
            stage.nodes[name].crash()
        stage.until(lambda: stage.isr() == [leader], "an ISR of one")
        for name in others:
            stage.nodes[name].start()
    stage.nodes[leader].crash()
    stage.nodes[leader].wall_error_us = TWO_HOURS_US
    stage.nodes[leader].start()
    hand = asks(stage, leader, 3_000)
    stage.expect(not hand.pushes, "nothing is due")
    for broker in stage.names:
        hand.attach(broker, lease_ms=60_000)
    hand.stay()
    [soon] = stage.stored(b"soon", due=stage.now_ms + 500)
    [pushed] = stage.delivered(hand, soon)
    late_ms = pushed.at_ms - soon.due
    stage.expect(-1 <= late_ms < 1_500, f"its stamp makes it neither early nor late: {late_ms} ms")


def test_who_starts_cut_off_from_registered_brokers_waits_for_them() -> None:
    """S2. The others are registered and silent: each of them may be right, and the own clock proves nothing."""
    stage = Stage(replicas=1, min_isr=1)
    leader = stage.leader
    stage.stored(b"in an hour", due=stage.now_ms + 3_600_000)
    stage.nodes[leader].crash()
    stage.nodes[leader].wall_error_us = TWO_HOURS_US
    stage.isolate(leader)
    stage.nodes[leader].start()
    hand = asks(stage, leader, 30_000)
    stage.expect(not hand.pushes, "nothing is due")
    stage.expect(not stage.leads(leader), "it does not lead")
    stage.network.heal()
    stage.until(lambda: stage.leader_of(stage.uid), "a leader once the clocks are measured", 2_000)
    hand = asks(stage, leader, 2_000)
    stage.expect(not hand.pushes, "and still nothing is due")


def test_a_leader_that_is_cut_off_from_the_others_for_long_keeps_the_time_they_told() -> None:
    """S2. It goes on alone, and what it measured of them is old: its own clock is wrong all the same."""
    stage = Stage(replicas=1, min_isr=1)
    leader = stage.leader
    stage.nodes[leader].wall_error_us = TWO_HOURS_US
    stage.run_ms(2_000)
    stage.stored(b"in an hour", due=stage.now_ms + 3_600_000)
    stage.isolate(leader)
    hand = asks(stage, leader, 30_000)
    stage.expect(stage.leads(leader), "it leads")
    stage.expect(not hand.pushes, "nothing is due")


def test_after_a_power_failure_the_first_to_register_waits_for_those_that_topics_name() -> None:
    """S2. All start at once; whoever registers first sees itself alone for a moment."""
    stage = Stage(replicas=1, min_isr=1)
    leader = stage.leader
    stage.stored(b"in an hour", due=stage.now_ms + 3_600_000)
    stage.create_topic("other", 1, 3, 2)
    for node in stage.nodes.values():
        node.crash(goodbye=True)
    stage.nodes[leader].wall_error_us = TWO_HOURS_US
    stage.nodes[leader].start()
    hand = asks(stage, leader, 2_000)
    stage.expect(not hand.pushes, "nothing is due")
    for name in stage.names:
        if name != leader:
            stage.nodes[name].start()
    stage.until(lambda: stage.leader_of(stage.uid) == leader, "it leads once the clocks are measured", 2_000)
    hand = asks(stage, leader, 2_000)
    stage.expect(not hand.pushes, "nothing is due")


def test_who_stays_alone_serves_after_a_while() -> None:
    """The other brokers that topics name are gone for good: ten seconds later its clock is the mesh's."""
    stage = Stage(replicas=1, min_isr=1)
    leader = stage.leader
    stage.create_topic("other", 1, 3, 2)
    for node in stage.nodes.values():
        node.crash(goodbye=True)
    stage.nodes[leader].start()
    stage.until(lambda: stage.leader_of(stage.uid) == leader, "it serves alone", 11_000)
