"""Named scenarios of leadership: lives, takeovers, lost replies, and leaders that some can still reach."""

from __future__ import annotations

import pytest

from dueq.core import broker as broker_core
from dueq.core.ports.events import StorePressure
from dueq.core.ports.membership import NodeSeen
from dueq_chaos.scenarios.stage import Stage
from dueq_codecs.messages import Code

FAR_MS = 3_600_000


def test_a_leader_that_restarts_within_its_session_does_not_go_on_in_its_epoch() -> None:
    """B4, KAFKA-7165. A record left before its own sync; the next life must not write another in its place."""
    stage = Stage()
    producer = stage.hand("producer")
    stage.step("b1 sends a record to the others, and dies before it is on its own disk")
    stage.spindles["b1"].stopped = True
    request = producer.insert("b1", [b"sent, not synced"], [stage.now_ms + FAR_MS])
    end = stage.replica("b1").replica.log.end
    stage.until(lambda: stage.replica("b2").replica.log.end > end, "the record at b2")
    stage.until(lambda: stage.replica("b3").replica.log.end > end, "the record at b3")
    first_life = stage.nodes["b1"].incarnation
    stage.nodes["b1"].crash()
    stage.spindles["b1"].stopped = False

    stage.step("it is back within its session: the node still says b1, epoch 1")
    stage.nodes["b1"].start()
    stage.expect(stage.node_of().incarnation == first_life, "the node names the earlier life")
    stage.until(lambda: stage.leader_of(stage.uid), "a leader")
    node = stage.node_of()
    stage.expect(node.epoch > 1, "whoever leads leads a new epoch")
    stage.expect(node.incarnation != first_life, "no earlier life leads")
    stage.settled(producer, request)
    stage.finish()
    stage.expect(stage.log_of("b1") == stage.log_of("b2") == stage.log_of("b3"), "one log")
    stage.expect(stage.replica(stage.leader).timeline.scheduled_count == 1, "the message is there once")


def test_a_compare_and_set_of_an_earlier_life_makes_no_leader() -> None:
    """B4. The takeover that a dead life had asked for is executed late: the new life has not decided it."""
    stage = Stage()
    stage.step("b1 dies; b2 asks to lead, and dies before the coordinator has it")
    stage.desk.hold(lambda order, broker: True)
    stage.nodes["b1"].crash()
    stage.until(lambda: stage.desk.late, "a takeover on its way")
    late = stage.desk.late[0]
    asked = late.session.registration.broker_id
    stage.nodes[asked].crash()
    stage.nodes[asked].start()
    stage.run_ms(20)
    stage.step("now it is executed")
    late.arrive_unheard()
    stage.run_ms(100)
    stage.expect(stage.node_of().leader == asked, "the node names the earlier life")
    stage.expect(not stage.leads(asked), "which leads nothing")
    stage.desk.stop_holding()
    stage.until(lambda: stage.leader_of(stage.uid), "a leader of a later epoch")
    stage.expect(stage.node_of().epoch >= 3, "in a later epoch")
    stage.finish()


def test_a_leader_back_with_an_empty_disk_does_not_keep_its_partition_from_everybody() -> None:
    """V2. ISR {b1, b2}; b1 comes back as a stranger at once: its registration is changed, not gone."""
    stage = Stage()
    messages = stage.stored(b"kept", b"too")
    stage.isolate("b3")
    stage.until(lambda: stage.isr() == ["b1", "b2"], "an ISR of two")
    stage.network.heal()
    stage.desk.hold(lambda order, broker: broker == "b1")
    stage.lose_disk("b1")
    stage.desk.stop_holding()
    stage.until(lambda: stage.leader_of(stage.uid) == "b2", "b2 serves")
    stage.finish()
    stage.expect(stage.replica("b1").timeline.scheduled_count == len(messages), "b1 was filled again")


def test_a_takeover_whose_reply_was_lost_is_led() -> None:
    """V3, KAFKA-9307. The node names b2's present life, and b2 has not heard of it: it reads it, and leads."""
    stage = Stage()
    stage.desk.hold(lambda order, broker: True)
    stage.nodes["b1"].crash()
    stage.until(lambda: stage.desk.late, "a takeover on its way")
    late = stage.desk.late[0]
    late.arrive_unheard()
    stage.desk.stop_holding()
    stage.until(lambda: stage.leader_of(stage.uid), "a leader", within_ms=2_000)
    stage.expect(stage.node_of().epoch == 2, "in the epoch of the takeover whose reply was lost")
    stage.stored(b"served")
    stage.finish()


def test_a_leader_that_only_the_coordinator_can_reach_is_replaced() -> None:
    """S1. Its session is fine and its links are cut: it gives up, and the majority beside it goes on in 3 s."""
    stage = Stage()
    before = stage.stored(b"before")
    producer = stage.hand("producer")
    stage.isolate("b1")
    cut_at = stage.now_ms
    orphan = producer.insert("b1", [b"cannot be committed"], [stage.now_ms + FAR_MS])
    stage.until(lambda: stage.leader_of(stage.uid) in ("b2", "b3"), "another leader", within_ms=3_000)
    stage.until(lambda: not stage.leads("b1"), "b1 gives up", within_ms=3_000)
    stage.expect("b1" in stage.coordinator.registrations, "though it is registered")
    stage.expect(orphan.codes[-1:] in ([Code.OUTCOME_UNKNOWN], [Code.NOT_LEADER]), f"{orphan.codes}")
    after = stage.stored(b"after")
    stage.expect(stage.now_ms - cut_at < 6_000, "the partition was away for less than 6 s")
    stage.finish()
    stage.settled(producer, orphan)
    timeline = stage.replica(stage.leader).timeline
    stage.expect(timeline.scheduled_count == len(before + after) + 1, "everything is there once")


def test_a_leader_that_hands_over_while_it_changes_the_isr_is_replaced_at_once() -> None:
    """Its change comes first, so the coordinator refuses the resignation that was sent before the answer."""
    stage = Stage()
    stage.desk.hold(lambda order, broker: broker == "b1")
    stage.isolate("b3")
    stage.until(lambda: stage.desk.late, "b1 asks for an ISR without b3")
    stage.nodes["b1"].squeeze(StorePressure("disk_full", hand_over=True))
    stage.until(lambda: len(stage.desk.late) == 2, "b1 resigns")
    for late in stage.desk.late[:2]:
        late.arrive()
        stage.run_ms(20)
    stage.desk.stop_holding()
    stage.expect(stage.isr() == ["b1", "b2"], "the change was made")
    stage.until(lambda: stage.leader_of(stage.uid) == "b2", "b2 serves", within_ms=1_000)
    stage.nodes["b1"].squeeze(StorePressure("", hand_over=False))
    stage.finish()


def test_a_dead_follower_holds_up_commits_only_until_it_is_out() -> None:
    """S1. With a follower dead every partition stalls: for the lag allowed, not for ever."""
    stage = Stage(partitions=3)
    stage.nodes["b3"].crash()
    began = stage.now_ms
    for uid in stage.uids:
        stage.stored(b"on", uid=uid)
    stage.expect(stage.now_ms - began < 4_000, f"commits went on after {stage.now_ms - began} ms")
    stage.expect(all("b3" not in stage.isr(uid) for uid in stage.uids), "without b3")
    stage.finish()


def test_many_partitions_of_a_dead_leader_are_led_again_though_few_are_looked_after_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a partition wants while it waits for its turn among the others is not forgotten."""
    monkeypatch.setattr(broker_core, "_CARE_AT_ONCE", 2)
    stage = Stage(partitions=24)
    stage.nodes["b1"].crash()
    stage.until(
        lambda: all(stage.leader_of(uid) not in ("", None, "b1") for uid in stage.uids), "leaders of all"
    )
    stage.finish()


def test_a_takeover_leaves_the_dead_leader_out_of_the_isr() -> None:
    """S1. Left in, the new leader's barrier would wait for the dead one's lag as well."""
    stage = Stage()
    stage.nodes["b1"].crash()
    stage.until(lambda: stage.leader_of(stage.uid), "a leader")
    stage.expect(stage.isr() == ["b2", "b3"], "the ISR is those who consented")
    stage.finish()


def test_a_new_isr_is_no_new_leadership() -> None:
    """R10, KAFKA-13790. Members leave and join: the epoch stays, and no record marks a new leadership."""
    stage = Stage()
    stage.stored(b"x")
    log = stage.log_of("b1")
    stage.nodes["b3"].crash()
    stage.until(lambda: stage.isr() == ["b1", "b2"], "b3 is out")
    stage.nodes["b3"].start()
    stage.until(lambda: stage.isr() == ["b1", "b2", "b3"], "b3 is back")
    stage.expect(stage.node_of().epoch == 1, "still epoch 1")
    stage.expect(stage.log_of("b1") == log, "nothing was appended for it")
    stage.finish()


def test_a_session_that_expires_unnoticed_takes_no_promise_with_it() -> None:
    """R17. b1's registration is gone and b1 does not know: it is replaced, and fenced before it can do harm."""
    stage = Stage()
    producer = stage.hand("producer")
    stage.step("the coordinator is away for b1: nothing that it promises rests on its session")
    stage.coordinator.cut_off("b1")
    on = stage.settled(producer, producer.insert("b1", [b"suspended"], [stage.now_ms + FAR_MS]))
    stage.expect(on.codes == [Code.OK], "b1 goes on")
    stage.step("its session ends; another takes over; b1 learns it from its peers alone")
    stage.until(lambda: stage.leader_of(stage.uid) != "b1", "another leader")
    stage.until(lambda: not stage.leads("b1"), "b1 is fenced", within_ms=1_000)
    stage.expect("b1" not in stage.coordinator.registrations, "b1 still cannot reach the coordinator")
    later = stage.answered(producer.insert("b1", [b"later"], [stage.now_ms + FAR_MS]))
    passed_on = later.codes == [Code.OK] and later.replies[0].epoch == 2
    stage.expect(passed_on or later.codes == [Code.NOT_LEADER], f"refused, or passed on: {later.replies}")
    stage.coordinator.reconnect("b1")
    stage.finish()


def test_without_the_coordinator_the_mesh_goes_on_and_nobody_takes_over() -> None:
    """R17. All three are cut off: commits and deliveries go on; leaders, ISR and topics stay as they are."""
    stage = Stage()
    for name in stage.names:
        stage.coordinator.cut_off(name)
    stage.run_ms(10_000)
    consumer = stage.hand("consumer")
    consumer.attach("b1")
    [message] = stage.stored(b"meanwhile", due=stage.now_ms + 500)
    [pushed] = stage.delivered(consumer, message)
    stage.acked(consumer, [pushed])
    stage.expect(stage.node_of().epoch == 1, "no election")
    for name in stage.names:
        stage.coordinator.reconnect(name)
    stage.finish()


def test_a_leader_whose_version_of_the_node_went_stale_reads_it_again() -> None:
    """R8. Somebody touched the node and the watch was lost: the next change fails once, not until a restart."""
    stage = Stage()
    version, node = stage.coordinator.nodes[stage.uid]
    stage.coordinator.nodes[stage.uid] = (version + 5, node)
    stage.nodes["b3"].crash()
    stage.until(lambda: stage.isr() == ["b1", "b2"], "the shrink, at the second attempt")
    stage.expect(stage.leads("b1"), "b1 still leads")
    stage.finish()


def test_watches_that_come_late_or_not_at_all_are_made_up_for() -> None:
    """R20. No word of any node reaches b3: an election and an ISR change later it is a follower like before."""
    stage = Stage()
    stage.run_ms(50)
    deaf = stage.hold("b3", lambda event: isinstance(event, NodeSeen))
    stage.nodes["b1"].crash()
    stage.until(lambda: stage.node_of().epoch == 2, "an election")
    stage.run_ms(1_000)
    deaf.let_go()
    stage.stored(b"x")
    stage.nodes["b1"].start()
    stage.finish()


def test_a_broker_ahead_of_a_coordinator_that_lost_its_last_change_does_not_lead_an_older_epoch() -> None:
    """R16, ZOOKEEPER-4646. The coordinator has forgotten an election: who knows better refuses to start over."""
    stage = Stage()
    version, node = stage.coordinator.nodes[stage.uid]
    stage.nodes["b1"].crash()
    stage.until(lambda: stage.leader_of(stage.uid), "epoch 2")
    [kept] = stage.stored(b"of epoch 2")
    for broker in stage.nodes.values():
        broker.crash(goodbye=True)
    stage.run_ms(4_000)
    newest = stage.coordinator.nodes[stage.uid]
    stage.step("the coordinator comes back without the change that began epoch 2")
    stage.coordinator.nodes[stage.uid] = (version, node)
    for name in ("b2", "b3"):
        stage.nodes[name].start()
    stage.run_ms(10_000)
    stage.expect(stage.leader_of(stage.uid) is None, "nobody leads an epoch that is over")
    stage.expect(stage.node_of() == node, "nobody overwrites the node")
    stage.step("an operator puts the node right")
    stage.coordinator.nodes[stage.uid] = (newest[0] + 1, newest[1])
    for name in ("b2", "b3"):
        stage.nodes[name].crash()
        stage.nodes[name].start()
    stage.until(lambda: stage.leader_of(stage.uid), "a leader")
    stage.finish()
    stage.expect(stage.replica(stage.leader).timeline.scheduled_count == 1, f"{kept} is there")


def test_a_new_leader_serves_nothing_before_it_has_applied_its_barrier() -> None:
    """M2. The barrier is committed and what stands before it not yet applied: a request is not answered from that."""
    stage = Stage(hot_rows_total=16)
    stage.step("many messages far ahead: most are only on the disk")
    messages = [
        one
        for number in range(4)
        for one in stage.stored(*[b"%d-%d" % (number, row) for row in range(50)], due=stage.now_ms + FAR_MS)
    ]
    stage.run_ms(5_000)
    stage.step("b1 dies with a cancel of one of them in every log; the others cannot read their disks")
    reads = [stage.hold(name, lambda event: type(event).__name__ == "EntriesRead") for name in ("b2", "b3")]
    request = stage.hand("producer").cancel("b1", messages[-1:])
    end = stage.replica("b1").replica.log.end
    stage.until(lambda: stage.replica("b2").replica.log.end > end, "the cancel at b2")
    stage.until(lambda: stage.replica("b3").replica.log.end > end, "the cancel at b3")
    stage.nodes["b1"].crash()
    stage.until(lambda: stage.leads("b2") or stage.leads("b3"), "another leader")
    stage.run_ms(2_000)
    stage.expect(all(read.events for read in reads), "its entry was asked for")
    stage.expect(stage.leader_of(stage.uid) is None, "it does not serve")
    for read in reads:
        read.let_go()
    stage.until(lambda: stage.leader_of(stage.uid), "now it serves")
    stage.settled(stage.hand("producer"), request)
    stage.finish()
    stage.expect(
        stage.replica(stage.leader).timeline.scheduled_count == len(messages) - 1, "one is cancelled"
    )
