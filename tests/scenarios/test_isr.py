"""Named scenarios of the ISR: who counts, from when, and what a commit needs while that changes."""

from __future__ import annotations

from dueq_chaos.scenarios.stage import Stage
from dueq_chaos.scenarios.taps import appends, peer_frames
from dueq_codecs.messages import Code

FAR_MS = 3_600_000


def test_a_follower_joins_only_with_all_that_is_committed_now() -> None:
    """B5, KAFKA-7128. Level is not "up to the commit position that the new leader happens to know"."""
    stage = Stage()
    stage.step("the ISR is b1, b2; b3 lacks what they commit meanwhile")
    stage.isolate("b3")
    stage.until(lambda: stage.isr() == ["b1", "b2"], "an ISR of two")
    messages = [stage.stored(b"%d" % number)[0] for number in range(20)]
    stage.step("b1 dies with the last commit position; b2 leads; b3 must get everything before it counts")
    slow = stage.hold("b3", appends())
    stage.nodes["b1"].crash()
    stage.network.heal()
    stage.until(lambda: stage.leads("b2"), "b2 leads")
    stage.run_ms(2_000)
    stage.expect("b3" not in stage.isr(), "b3 is not in while it lacks records")
    stage.expect(stage.leader_of(stage.uid) is None, "with one copy nothing is committed")
    slow.let_go()
    stage.until(lambda: stage.isr() == ["b2", "b3"], "b3 replaces b1")

    stage.step("b2 dies at once; b3, alone, brings b1 level, and has everything")
    stage.nodes["b2"].crash()
    stage.nodes["b1"].start()
    stage.until(lambda: stage.leader_of(stage.uid) == "b3", "b3 serves")
    stage.expect(stage.replica("b3").timeline.scheduled_count == len(messages), "nothing is missing")
    stage.finish()


def test_an_expansion_of_unknown_outcome_counts_until_a_later_change_has_succeeded() -> None:
    """B6. The set that adds b3 comes through late, after a read has shown the old ISR."""
    stage = Stage()
    producer = stage.hand("producer")
    stage.isolate("b3")
    stage.until(lambda: stage.isr() == ["b1", "b2"], "an ISR of two")
    stage.desk.hold(lambda order, broker: True)
    stage.network.heal()
    stage.until(lambda: stage.desk.late, "b1 asks for b3")
    expansion = stage.desk.late[0]
    stage.step("the connection breaks; the node, read again, has no b3 in it; and b3 stops hearing")
    expansion.unknown()
    stage.run_ms(100)
    stage.expect(stage.isr() == ["b1", "b2"], "b3 is not in the node")
    wall = stage.hold("b3", appends())
    request = producer.insert("b1", [b"needs b3 all the same"], [stage.now_ms + FAR_MS])
    stage.run_ms(1_000)
    stage.expect(not request.replies, "nothing is committed without b3")
    stage.step("the first set takes effect")
    expansion.arrive_unheard()
    stage.run_ms(50)
    stage.expect(stage.isr() == ["b1", "b2", "b3"], "now the node has b3")
    stage.expect(not request.replies, "and b3 still counts")
    wall.let_go()
    stage.desk.stop_holding()
    stage.settled(producer, request)
    stage.finish()


def test_a_shrink_of_unknown_outcome_is_not_taken_for_done() -> None:
    """B6. The mirror: b3 stays counted until a set without it is known to have succeeded."""
    stage = Stage()
    producer = stage.hand("producer")
    stage.desk.hold(lambda order, broker: broker == "b1")
    stage.isolate("b3")
    stage.until(lambda: stage.desk.late, "b1 asks for an ISR without b3")
    stage.desk.late[0].unknown()
    request = producer.insert("b1", [b"x"], [stage.now_ms + FAR_MS])
    stage.run_ms(400)
    stage.expect(not request.replies, "nothing is committed")
    stage.step("the next set, with an answer, settles it")
    stage.desk.stop_holding()
    stage.until(lambda: request.codes == [Code.OK], "the commit")
    stage.expect(stage.isr() == ["b1", "b2"], "without b3")
    stage.finish()


def test_a_commit_is_never_on_fewer_than_min_isr_disks() -> None:
    """B7, R3. ISR {b1, b2}, min_isr 2; b2 dies before its sync: no ack with one copy, and no shrink to one.

    b3 is alive, so that b1 leads on, but its disk hangs, so that it cannot take b2's place.
    """
    stage = Stage()
    producer = stage.hand("producer")
    stage.spindles["b3"].stopped = True
    producer.insert("b1", [b"more than b3 can take"], [stage.now_ms + FAR_MS])
    stage.until(lambda: stage.isr() == ["b1", "b2"], "an ISR of two")
    kept = stage.stored(b"on two disks")
    stage.step("a batch is appended; b2 dies before it is on its disk")
    stage.spindles["b2"].stopped = True
    request = producer.insert("b1", [b"on one disk"], [stage.now_ms + FAR_MS])
    stage.run_ms(5)
    stage.nodes["b2"].crash()
    stage.spindles["b2"].stopped = False
    stage.run_ms(8_000)
    stage.expect(Code.OK not in request.codes, f"not acknowledged: {request.codes}")
    stage.expect(len(stage.isr()) == 2, "the ISR in the node is never below min_isr")
    refused = stage.answered(producer.insert("b1", [b"more"], [stage.now_ms + FAR_MS]))
    stage.expect(stage.leads("b1"), "b1 leads on")
    stage.expect(refused.codes == [Code.NOT_ENOUGH_REPLICAS], f"{refused.codes}")
    stage.step("b1's disk is lost; b2 and b3 come back: any member of the last ISR may lead")
    stage.nodes["b1"].crash()
    stage.nodes["b1"].disk.lose()
    stage.nodes["b2"].start()
    stage.spindles["b3"].go()
    stage.until(lambda: stage.leader_of(stage.uid) == "b2", "b2 serves")
    stage.expect(stage.replica("b2").timeline.scheduled_count >= len(kept), "what was acknowledged is there")
    stage.settled(producer, request)
    stage.finish()


def test_a_dead_member_is_replaced_by_a_level_follower_in_one_change() -> None:
    """B7. Leases and acks need min_isr as inserts do; the way back needs no ISR of one in between."""
    stage = Stage()
    stage.isolate("b3")
    stage.until(lambda: stage.isr() == ["b1", "b2"], "an ISR of two")
    stage.desk.hold(lambda order, broker: True)
    stage.network.heal()
    stage.until(lambda: stage.desk.late, "b3 is level")
    stage.nodes["b2"].crash()
    stage.run_ms(4_000)
    stage.desk.stop_holding()
    sizes: dict[int, None] = {}

    def replaced() -> bool:
        sizes[len(stage.isr())] = None
        return stage.isr() == ["b1", "b3"]

    stage.until(replaced, "b3 for b2")
    stage.expect(list(sizes) == [2], f"always two: {list(sizes)}")
    stage.stored(b"goes on")
    stage.finish()


def test_a_late_expansion_does_not_count_a_broker_that_has_lost_its_disk_meanwhile() -> None:
    """R5, KIP-903. "Add b3" is executed after b3 came back empty: the ISR names b3's old disk, which b3 is not."""
    stage = Stage()
    [kept] = stage.stored(b"kept")
    stage.isolate("b3")
    stage.until(lambda: stage.isr() == ["b1", "b2"], "an ISR of two")
    stage.desk.hold(lambda order, broker: broker == "b1")
    stage.network.heal()
    stage.until(lambda: stage.desk.late, "b1 asks for b3")
    old_store = {m.broker_id: m.store_id for m in stage.desk.late[0].order.node.isr}["b3"]
    stage.step("b3 loses its disk; only then the set takes effect")
    stage.lose_disk("b3")
    stage.desk.late[0].arrive()
    stage.desk.stop_holding()
    stage.run_ms(5)
    stage.step("b1 and b2 die; b3 alone, empty, must not lead")
    for name in ("b1", "b2"):
        stage.nodes[name].crash()
    stage.run_ms(8_000)
    stage.expect(stage.leader_of(stage.uid) is None, "the empty disk does not lead")
    stage.expect(not stage.leads("b3"), "nor try to")
    for name in ("b1", "b2"):
        stage.nodes[name].start()
    stage.finish()
    stage.expect(stage.replica("b3").timeline.scheduled_count == 1, f"{kept} is at b3 too")
    now = {m.broker_id: m.store_id for m in stage.node_of().isr}["b3"]
    stage.expect(now != old_store, "the ISR names the new disk")


def test_an_ack_of_a_disk_that_is_lost_by_now_commits_and_its_broker_does_not_lead() -> None:
    """R5. b1 sleeps, and reads b2's ack when b2 is back with an empty disk: a loss just after the commit is alike."""
    stage = Stage()
    stage.isolate("b3")
    stage.until(lambda: stage.isr() == ["b1", "b2"], "an ISR of two")
    end = stage.replica("b1").replica.log.end + 1
    acks = stage.hold("b1", peer_frames("b2"))
    producer = stage.hand("producer")
    request = producer.insert("b1", [b"kept"], [stage.now_ms + FAR_MS])
    stage.until(lambda: stage.nodes["b2"].disk.record(stage.uid, end), "it is on b2's disk")
    stage.run_ms(20)
    stage.step("b1 falls asleep with the ack unread; b2 loses its disk")
    stage.nodes["b1"].pause(600_000)
    acks.let_go()
    stage.lose_disk("b2")
    stage.answered(request, "b1 wakes, counts what the lost disk held, and commits")
    stage.expect(request.codes == [Code.OK], f"{request.codes}")
    stage.step("b1 dies at once; b2 is empty and b3 was left out: neither leads")
    stage.nodes["b1"].crash()
    stage.network.heal()
    stage.run_ms(8_000)
    stage.expect(stage.leader_of(stage.uid) is None, "nobody leads without what is committed")
    stage.nodes["b1"].start()
    stage.finish()
    stage.expect(stage.replica("b2").timeline.scheduled_count == 1, "it is on the new disk too")


def test_a_broker_that_is_leaving_is_not_taken_in_again() -> None:
    """R6, KIP-841. b3 said goodbye; its last acks arrive late: who is not registered is not level."""
    stage = Stage()
    stage.isolate("b3")
    stage.until(lambda: stage.isr() == ["b1", "b2"], "an ISR of two")
    stage.desk.hold(lambda order, broker: broker == "b1")
    stage.network.heal()
    stage.until(lambda: stage.desk.late, "b3 is level")
    stage.nodes["b3"].crash(goodbye=True)
    stage.run_ms(500)
    stage.desk.stop_holding()
    stage.run_ms(5_000)
    stage.expect(stage.isr() == ["b1", "b2"], "b3 is not in the ISR")
    stage.stored(b"goes on without it")
    stage.finish()


def test_a_follower_whose_disk_was_rolled_back_must_leave_and_catch_up() -> None:
    """S12, R14. b3 comes back with its own store id and yesterday's content: it has not got what it had acked."""
    stage = Stage()
    stage.stored(b"yesterday")
    stage.run_ms(3_000)
    yesterday = stage.photograph("b3")
    stage.stored(b"today")
    stage.nodes["b3"].crash()
    stage.roll_back("b3", yesterday)
    stage.nodes["b3"].start()
    stage.until(lambda: stage.told("b1", "replica.data_missing"), "b1 notices")
    stage.finish()
    stage.expect(stage.replica("b3").timeline.scheduled_count == 2, "b3 has both days")
