"""After a death or a restart, leaderships go back to the brokers that are preferred for them."""

from __future__ import annotations

from dueq import limits
from dueq.core.ports.events import StorePressure
from dueq_chaos.scenarios.stage import Stage
from dueq_chaos.sim.users.consuming import ConsumingUser
from dueq_chaos.sim.users.producing import ProducingUser

PARTITIONS = 9
COUNT = 300
APART_MS = 400
SLACK_MS = 5_000


def preferred(stage: Stage) -> bool:
    return all(stage.leader_of(uid) == stage.replica("b1", uid).replicas[0] for uid in stage.uids)


def led_by(stage: Stage, broker: str) -> list[int]:
    return [uid for uid in stage.uids if stage.leader_of(uid) == broker]


def restarted(stage: Stage, broker: str) -> None:
    """Kill a broker; it is back as a follower of everything once the others lead."""
    stage.nodes[broker].crash()
    stage.until(lambda: all(stage.leader_of(uid) not in (None, broker) for uid in stage.uids), "others lead")
    stage.nodes[broker].start()
    stage.until(stage.whole, "a whole mesh")
    stage.expect(not led_by(stage, broker), f"{broker} leads nothing")


def test_leaderships_go_back_once_nothing_has_changed_for_a_while_and_nobody_is_harmed() -> None:
    stage = Stage(partitions=PARTITIONS)
    stage.expect(preferred(stage), "at first the preferred lead")
    ConsumingUser(stage.sdk("consumer"), stage.history, stage.topic, credit=64, lease_ms=30_000, seed=1)
    producer = ProducingUser(stage.sdk("producer"), stage.history)
    restarted(stage, "b1")
    begun_ms = stage.now_ms
    for number in range(COUNT):
        producer.schedule(stage.topic, [b"%d" % number], [stage.now_ms + 500])
        stage.run_ms(APART_MS)
        if stage.now_ms - begun_ms < limits.BALANCE_CALM_MS - SLACK_MS:
            stage.expect(not led_by(stage, "b1"), "not yet")
    stage.expect(preferred(stage), "the preferred lead again")
    stage.until(
        lambda: len(stage.history.messages) == COUNT and stage.history.done(), "every message handled"
    )
    deliveries = [delivery for message in stage.history.messages.values() for delivery in message.deliveries]
    assert {delivery.attempt for delivery in deliveries} == {1}, "nothing is delivered twice"
    stage.finish()


def test_a_change_in_the_mesh_puts_it_off() -> None:
    stage = Stage(partitions=PARTITIONS)
    restarted(stage, "b1")
    stage.run_ms(limits.BALANCE_CALM_MS - SLACK_MS)
    stage.nodes["b3"].crash()
    stage.run_ms(10 * SLACK_MS)
    of_b1 = [uid for uid in stage.uids if stage.replica("b1", uid).replicas[0] == "b1"]
    stage.expect(not set(of_b1) & set(led_by(stage, "b1")), "b3 has gone: what comes next nobody knows")
    stage.nodes["b3"].start()
    stage.until(lambda: preferred(stage), "the preferred lead", 2 * limits.BALANCE_CALM_MS)
    stage.finish()


def test_a_partition_that_is_never_quiet_goes_back_too() -> None:
    stage = Stage()
    restarted(stage, "b1")
    producer = ProducingUser(stage.sdk("producer"), stage.history)
    stage.run_ms(limits.BALANCE_CALM_MS - SLACK_MS)
    for number in range(1_000):
        producer.schedule(stage.topic, [b"%d" % number], [stage.now_ms + 3_600_000])
        stage.run_ms(10)
    stage.expect(stage.leads("b1"), "b1 leads")
    stage.until(lambda: len(stage.history.messages) == 1_000, "every message stored")
    stage.expect(stage.replica("b1").timeline.scheduled_count == 1_000, "each is there once")


def test_who_does_not_want_to_lead_is_offered_it_once() -> None:
    """b1's disk is almost full: it will not stand, and those who gave its partitions up lead them again."""
    stage = Stage(partitions=PARTITIONS)
    restarted(stage, "b1")
    stage.nodes["b1"].squeeze(StorePressure("disk_full", True))
    epochs = {uid: stage.node_of(uid).epoch for uid in stage.uids}
    stage.run_ms(5 * limits.BALANCE_CALM_MS)
    stage.expect(not led_by(stage, "b1"), "b1 leads nothing")
    for uid in stage.uids:
        times = stage.replica("b1", uid).replicas[0] == "b1"
        stage.expect(stage.node_of(uid).epoch == epochs[uid] + times, "each of b1's was given up once")
    stage.until(stage.whole, "a whole mesh")


def test_a_broker_with_a_wrong_clock_gets_nothing_back() -> None:
    stage = Stage(partitions=PARTITIONS)
    restarted(stage, "b1")
    epochs = [stage.node_of(uid).epoch for uid in stage.uids]
    stage.nodes["b1"].wall_error_us = 4 * limits.MAX_CLOCK_OFFSET_MS * 1000
    stage.run_ms(3 * limits.BALANCE_CALM_MS)
    stage.expect([stage.node_of(uid).epoch for uid in stage.uids] == epochs, "nothing was given up")
