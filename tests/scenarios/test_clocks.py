"""Named scenarios of clocks: steps, wrong brokers, stamps from the future, and instants that are past."""

from __future__ import annotations

import pytest

from dueq_chaos.scenarios.hand import Hand
from dueq_chaos.scenarios.stage import Stage
from dueq_chaos.sim.watching.invariants import Invariants

HOUR_US = 3_600_000_000


def attached(stage: Stage, credit: int = 64) -> Hand:
    """A consumer at every broker, that stays."""
    hand = stage.hand("consumer")
    for broker in stage.names:
        hand.attach(broker, credit=credit, lease_ms=60_000)
    hand.stay()
    return hand


def test_a_clock_that_steps_an_hour_ahead_makes_nothing_early() -> None:
    """S2, D20. Within one turn of the loop an hour of messages would be pushed, irrevocably."""
    stage = Stage()
    consumer = attached(stage)
    messages = [stage.stored(b"%d" % n, due=stage.now_ms + 2_000 + 300 * n)[0] for n in range(10)]
    stage.nodes["b1"].wall_error_us = HOUR_US
    stage.run_ms(15_000)
    pushes = stage.delivered(consumer, *messages)
    stage.expect(all(p.at_ms >= p.due - 1 for p in pushes), "none is early")
    stage.expect(len(consumer.pushes) == len(messages), "none comes twice")
    stage.finish()


def test_what_is_leased_already_waits_for_the_clocks_when_the_own_one_steps() -> None:
    """S2. The mesh cannot be measured anew just now; the leases of the next instants are at hand."""
    stage = Stage()
    consumer = attached(stage)
    soon_ms = stage.now_ms + 1_000
    messages = stage.stored(*[b"%d" % n for n in range(40)], dues=[soon_ms + 2 * n for n in range(40)])
    stage.run_ms(soon_ms + 20 - stage.now_ms)
    stage.expect(0 < len(consumer.pushes) < len(messages), "the first have come, others are leased")
    stage.isolate("b1")
    stage.nodes["b1"].wall_error_us = HOUR_US
    stage.run_ms(15)
    stage.network.heal()
    pushes = stage.delivered(consumer, *messages)
    stage.expect(all(p.at_ms >= p.due - 1 for p in pushes), "none is early")
    stage.finish()


@pytest.mark.parametrize("ahead_us", [200_000, 400_000])
def test_a_leader_whose_clock_is_ahead_of_the_others_is_not_early(ahead_us: int) -> None:
    """S2. "Never before" is by the mesh's clock, not by that of whoever happens to lead."""
    stage = Stage()
    consumer = attached(stage)
    stage.nodes["b1"].wall_error_us = ahead_us
    stage.run_ms(1_500)
    messages = [stage.stored(b"%d" % n, due=stage.now_ms + 500 + 100 * n)[0] for n in range(10)]
    stage.run_ms(3_000)
    pushes = stage.delivered(consumer, *messages)
    stage.expect(all(p.at_ms >= p.due - 1 for p in pushes), f"{[p.at_ms - p.due for p in pushes]}")
    stage.finish()


@pytest.mark.parametrize("ahead_us", [60_000, HOUR_US])
def test_a_clock_that_steps_ahead_on_a_slow_network_makes_nothing_early(ahead_us: int) -> None:
    """S2. A frame takes up to 40 ms, so what is measured first after the step may be wrong by as much."""
    stage = Stage()
    consumer = attached(stage, credit=256)
    Invariants(stage, clock_error_us=0)
    stage.network.weather.delay_us = (200, 40_000)
    stage.run_ms(3_000)
    soon_ms = stage.now_ms + 1_000
    messages = stage.stored(*[b"%d" % n for n in range(250)], dues=[soon_ms + 12 * n for n in range(250)])
    for n in range(6):
        stage.run_ms(soon_ms + 500 * n - stage.now_ms)
        stage.nodes["b1"].wall_error_us = 0 if n % 2 else ahead_us
    # Counting them costs next to nothing, looking for each of them in every turn costs seconds.
    stage.until(lambda: len(consumer.pushes) >= len(messages), "as many deliveries as messages")
    stage.delivered(consumer, *messages)
    stage.finish()


def test_what_is_due_once_a_clock_that_was_an_hour_behind_is_right_comes_at_once() -> None:
    """S2. Of two clocks nobody knows which is right, so mesh time is an hour behind until then."""
    stage = Stage(brokers=2, replicas=2)
    leader, other = stage.leader, next(name for name in stage.names if name != stage.leader)
    clock, node = stage.nodes[leader].core._clock, stage.nodes[leader]  # type: ignore[union-attr]

    def is_behind() -> bool:
        return clock.mesh_now_us(node.now()) < node.now().wall_us - HOUR_US // 2

    stage.nodes[other].wall_error_us = -HOUR_US
    stage.until(is_behind, "mesh time is an hour behind")
    consumer = attached(stage)
    [message] = stage.stored(b"a", due=stage.now_ms + 1_000)
    stage.run_ms(2_000)
    stage.expect(not consumer.pushes, "it is not due by mesh time")
    stage.nodes[other].wall_error_us = 0
    stage.until(lambda: not is_behind(), "mesh time is right")
    right_ms = stage.now_ms
    [pushed] = stage.delivered(consumer, message)
    stage.expect(pushed.at_ms - right_ms < 200, f"late by {pushed.at_ms - right_ms} ms")
    stage.finish()


def test_what_a_leader_in_the_future_has_stamped_is_not_late_at_the_next_one() -> None:
    """B2. Stamps that only grew would make everything late once one broker had been an hour ahead."""
    stage = Stage()
    consumer = attached(stage)
    stage.nodes["b1"].wall_error_us = HOUR_US
    stage.run_ms(1_500)
    [first] = stage.stored(b"stamped by b1", due=stage.now_ms + 20_000)
    stage.nodes["b1"].crash()
    stage.until(lambda: stage.leader_of(stage.uid) not in (None, "b1"), "another leader")
    [second] = stage.stored(b"stamped by its successor", due=stage.now_ms + 500)
    for message in (second, first):
        [pushed] = stage.delivered(consumer, message)
        stage.expect(0 <= pushed.at_ms - message.due < 1_500, f"late by {pushed.at_ms - message.due} ms")
    stage.finish()


def test_brokers_that_all_disagree_do_not_pass_leadership_round() -> None:
    """S2. Offsets 0, +600, +1,200 ms: each sees the others as wrong; handovers in circles would serve nobody."""
    stage = Stage(partitions=3)
    for error_ms, node in zip((0, 600, 1_200), stage.nodes.values(), strict=True):
        node.wall_error_us = error_ms * 1000
    stage.run_ms(60_000)
    epochs = [stage.node_of(uid).epoch for uid in stage.uids]
    stage.run_ms(240_000)
    changes = sum(stage.node_of(uid).epoch for uid in stage.uids) - sum(epochs)
    stage.expect(changes <= 12, f"{changes} changes of leader in four minutes")
    for uid in stage.uids:
        stage.stored(b"served", uid=uid)
    for node in stage.nodes.values():
        node.wall_error_us = 0
    stage.finish()


@pytest.mark.parametrize("late_ms", [1, 5_000, 86_400_000])
def test_what_is_due_in_the_past_survives_the_loss_of_the_memory_that_holds_it(late_ms: int) -> None:
    """B2. The index is never read below its low-water mark: a message that began to wait there would be lost."""
    stage = Stage()
    stage.step("traffic drives the mark to the present")
    consumer = attached(stage)
    stage.acked(consumer, stage.delivered(consumer, *stage.stored(b"a", b"b", due=stage.now_ms + 10)))
    stage.run_ms(5_000)
    for broker in stage.names:
        consumer.goodbye(broker)
    stage.run_ms(10)
    [message] = stage.stored(b"due long ago", due=stage.now_ms - late_ms)
    stage.run_ms(5_000)
    stage.step("all brokers lose their memory")
    for node in stage.nodes.values():
        node.crash()
        node.start()
    stage.until(stage.whole, "a whole mesh")
    stage.run_ms(1_000)
    stage.expect([p.key for p in stage.drained()] == [message.key], "it is delivered")
    stage.finish()


def test_what_is_released_or_moved_into_the_past_survives_too() -> None:
    """B2. A lease that is released, a nack, a move to an earlier instant: all begin to wait now, not then."""
    stage = Stage()
    consumer, producer = attached(stage), stage.hand("producer")
    [released] = stage.stored(b"released", due=stage.now_ms + 10)
    [moved] = stage.stored(b"moved")
    held = stage.delivered(consumer, released)
    stage.run_ms(8_000)
    for broker in stage.names:
        consumer.goodbye(broker)
    stage.settled(producer, producer.move(stage.leader, [moved], [stage.now_ms - 60_000]))
    stage.run_ms(5_000)
    stage.expect(len(held) == 1 and stage.replica("b1").timeline.leased_count == 0, "both wait")
    for node in stage.nodes.values():
        node.crash()
        node.start()
    stage.until(stage.whole, "a whole mesh")
    stage.run_ms(1_000)
    found = {p.key for p in stage.drained()}
    stage.expect(found == {released.key, moved.key}, f"both are delivered: {found}")
    stage.finish()


def test_a_new_leader_whose_clock_is_behind_loses_nothing_below_the_mark() -> None:
    """B2. Its stamps lie before what its predecessor has saved: the same batch lowers the mark."""
    stage = Stage()
    consumer = attached(stage)
    stage.acked(consumer, stage.delivered(consumer, *stage.stored(b"a", due=stage.now_ms + 10)))
    stage.run_ms(5_000)
    for name in ("b2", "b3"):
        stage.nodes[name].wall_error_us = -30_000_000
    stage.nodes["b1"].crash()
    stage.until(lambda: stage.leader_of(stage.uid) not in (None, "b1"), "another leader")
    for broker in ("b2", "b3"):
        consumer.goodbye(broker)
    stage.run_ms(2_000)
    [message] = stage.stored(b"m", due=stage.now_ms - 40_000)
    stage.run_ms(5_000)
    for name in ("b2", "b3"):
        stage.nodes[name].crash()
        stage.nodes[name].start()
    stage.until(lambda: stage.leader_of(stage.uid), "a leader")
    stage.run_ms(1_000)
    found = {p.key for p in stage.drained()}
    stage.expect(message.key in found, f"it is delivered: {found}")
    stage.finish()
