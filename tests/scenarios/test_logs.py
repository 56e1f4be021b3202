"""Named scenarios of log matching: frames that come late, twice, in the wrong order, or from a life that is over."""

from __future__ import annotations

from dueq.core.ports.events import PeerFrameReceived
from dueq_chaos.scenarios.stage import Stage
from dueq_chaos.scenarios.taps import appends, for_life, peer_frames, without_records
from dueq_chaos.sim.environment.scale import scaled
from dueq_codecs.messages import Code, PeerFrame


def isr_without(stage: Stage, broker: str) -> None:
    """Have a broker leave the ISR; it is cut off from the others then."""
    stage.isolate(broker)
    stage.until(lambda: broker not in stage.isr(), f"an ISR without {broker}")


def test_late_repeated_and_overtaking_appends_cut_nothing() -> None:
    """B3. A copy of an old append arrives after its successors: what was acknowledged after it stays."""
    stage = Stage()
    stage.step("five batches; every frame that brought them to b2 is kept as a copy")
    copies = stage.watch("b2", appends("b1"))
    messages = [stage.stored(b"batch %d" % number)[0] for number in range(5)]
    before = stage.log_of("b2")

    stage.step("the copies arrive again: oldest first, then newest first")
    copies.again()
    copies.again(backwards=True)
    stage.run_ms(50)
    stage.expect(stage.log_of("b2")[: len(before)] == before, "nothing was cut")

    stage.step("the leader dies; whoever leads then has every batch")
    stage.nodes["b1"].crash()
    stage.until(lambda: stage.leader_of(stage.uid) not in (None, "b1"), "another leader")
    moved = stage.hand("producer").move(stage.leader, messages, [stage.now_ms] * len(messages))
    stage.settled(stage.hand("producer"), moved)
    stage.expect({p.payload for p in stage.drained()} == {m.payload for m in messages}, "all are delivered")
    stage.finish()


def test_an_append_that_overtakes_its_predecessor_is_taken_later() -> None:
    """B3. "17 after 16" comes before 16: the follower changes nothing, says where it ends, and gets both."""
    stage = Stage()
    held = stage.hold("b2", appends("b1"))
    producer = stage.hand("producer")
    first = producer.insert("b1", [b"first"], [stage.now_ms + 60_000])
    stage.until(lambda: held.events, "the first append, held up")
    second = producer.insert("b1", [b"second"], [stage.now_ms + 60_000])
    stage.until(lambda: len(held.events) >= 2, "the second append, held up")
    stage.expect(not first.replies, "nothing is committed without b2")

    stage.step("they arrive in the wrong order")
    held.forget()
    held.again(backwards=True)
    stage.until(lambda: first.final and second.final, "both answers")
    stage.expect(first.codes == second.codes == [Code.OK], "both are acknowledged")
    stage.finish()


def test_a_followers_leftovers_of_an_older_epoch_are_not_acked_to_the_next_leader() -> None:
    """B3, KAFKA-13141. A follower holds a record of epoch 1 where the leader of epoch 2 has its barrier."""
    stage = Stage()
    producer = stage.hand("producer")
    stage.step("the ISR is b1, b2; b3 follows, but its way back into the ISR is held up")
    isr_without(stage, "b3")
    stage.desk.hold(lambda order, broker: broker == "b1")
    stage.network.heal()
    stage.until(lambda: stage.desk.late, "b1 asks for an ISR with b3")
    stage.step("b1 appends a record that reaches b3, not b2, and dies")
    lost = stage.hold("b2", appends("b1"))
    orphan = producer.insert("b1", [b"orphan"], [stage.now_ms + 60_000])
    end = stage.replica("b2").replica.log.end
    stage.until(lambda: stage.replica("b3").replica.log.end > end, "the record at b3")
    stage.nodes["b1"].crash()
    stage.run_ms(5)
    lost.forget()

    stage.step(
        "b2 leads: its barrier stands where b3 holds the orphan; b3 hears b2's probes, and none of its records"
    )
    barriers = stage.hold("b3", appends("b2"))
    stage.until(lambda: stage.leads("b2") and barriers.events, "b2 leads, and sends its barrier")
    for _ in range(10):
        stage.doors["b3"].pass_on(without_records(barriers.events[-1]))
        stage.run_ms(100)
    stage.expect("b3" not in stage.isr(), "b3 is not level")
    stage.expect(stage.leader_of(stage.uid) is None, "and b2's barrier not committed")
    barriers.forget()
    stage.until(lambda: stage.leader_of(stage.uid) == "b2", "b2 serves, with b3 in place of b1")
    stage.expect(stage.log_of("b3")[end] == stage.node_of().epoch, "b3 has the barrier, not the orphan")
    stage.expect(Code.OK not in orphan.codes, "the orphan was never acknowledged")
    stage.settled(producer, orphan)
    stage.finish()


def test_a_follower_that_restarts_does_not_cut_to_the_commit_position_it_knew() -> None:
    """R1, KIP-101. Followers learn of commits late; cutting there at a start would lose what was acknowledged."""
    stage = Stage()
    [message] = stage.stored(b"just acknowledged", due=stage.now_ms + 2_000)
    stage.step("all die in the instant of the acknowledgement; b1, the leader, does not come back")
    for node in stage.nodes.values():
        node.crash()
    for name in ("b2", "b3"):
        stage.nodes[name].start()
    stage.until(lambda: stage.leader_of(stage.uid), "b2 or b3 serves")
    stage.run_ms(2_000)
    stage.expect([p.key for p in stage.drained()] == [message.key], "it is delivered")
    stage.finish()


def test_two_quick_failovers_leave_one_log() -> None:
    """R2, KIP-279. Each leader dies with a record that nobody else has; the third knows none of these epochs' ends."""
    stage = Stage(min_isr=1)
    producer = stage.hand("producer")
    [kept] = stage.stored(b"kept")

    stage.step("b1 dies with a record of its own")
    walls = [stage.hold(name, appends()) for name in ("b2", "b3")]
    first = producer.insert("b1", [b"of b1"], [kept.due])
    stage.until(lambda: walls[0].events, "b1 sent it in vain")
    stage.run_ms(5)
    stage.nodes["b1"].crash()
    for wall in walls:
        wall.forget()
    stage.until(lambda: stage.leader_of(stage.uid) == "b2", "b2 serves")

    stage.step("b2 dies with a record of its own")
    wall = stage.hold("b3", appends())
    second = producer.insert("b2", [b"of b2"], [kept.due])
    stage.until(lambda: wall.events, "b2 sent it in vain")
    stage.run_ms(5)
    stage.nodes["b2"].crash()
    wall.forget()
    stage.until(lambda: stage.leader_of(stage.uid) == "b3", "b3 serves")
    stage.settled(producer, producer.insert("b3", [b"of b3"], [kept.due]))

    stage.step("b1 and b2 come back to a log that is neither's")
    stage.nodes["b1"].start()
    stage.nodes["b2"].start()
    stage.expect(Code.OK not in first.codes + second.codes, "neither was acknowledged")
    stage.until(stage.whole, "a whole mesh", within_ms=15_000)
    stage.finish()
    stage.expect(stage.log_of("b1") == stage.log_of("b2") == stage.log_of("b3"), "one log")
    for request in (first, second):
        stage.settled(producer, request)
    rows = stage.replica(stage.leader).timeline.scheduled_count
    stage.expect(rows == 4, f"every message once: {rows} of 4")


def test_nothing_of_an_epoch_is_seen_before_its_leader_could_forget_it() -> None:
    """V1. A leader that dies before its new epoch is on its disk has shown that epoch to nobody."""
    stage = Stage()
    producer = stage.hand("producer")
    stage.step("the ISR is b1, b2; b1's registration is about to expire without its knowledge")
    isr_without(stage, "b3")
    stage.coordinator.cut_off("b1")
    stage.run_ms(2_700)
    stage.network.cut("b1", "b2")
    stage.network.cut("b1", "b3")
    record = producer.insert("b1", [b"r1"], [stage.now_ms + 60_000])

    stage.step("b2 takes over with the ISR as it is; its disk hangs; b3 hears b2 again")
    stage.spindles["b2"].stopped = True
    stage.network.heal()
    stage.network.cut("b1", "b2")
    stage.network.cut("b1", "b3")
    shown = stage.watch("b3", peer_frames("b2"))
    stage.until(lambda: stage.leads("b2"), "b2 leads, in memory")
    stage.run_ms(100)
    epochs = [
        append.epoch
        for event in shown.events
        if isinstance(event, PeerFrameReceived) and isinstance(event.message, PeerFrame)
        for append in event.message.appends
    ]
    stage.expect(2 not in epochs, f"no record of epoch 2 has left b2: {epochs}")

    stage.step("b2 dies with its epoch, comes back, and hears b1 of epoch 1")
    stage.nodes["b2"].crash()
    stage.spindles["b2"].stopped = False
    stage.network.heal()
    stage.nodes["b2"].start()
    stage.run_ms(5_000)
    acknowledged = Code.OK in record.codes
    stage.coordinator.reconnect("b1")
    stage.finish()
    count = stage.replica(stage.leader).timeline.scheduled_count
    stage.expect(count == 1 or not acknowledged, "what was acknowledged is there")
    stage.settled(producer, record)
    stage.expect(stage.replica(stage.leader).timeline.scheduled_count == 1, "and it is there once")


def test_a_restarted_replica_still_refuses_the_epoch_that_it_left() -> None:
    """V1, KIP-380. The largest epoch is on the disk before anything is acked in it: a start changes nothing."""
    stage = Stage()
    stage.step("b1 leads epoch 1; a record of it gets stuck")
    stuck = [stage.hold(name, appends("b1")) for name in ("b2", "b3")]
    orphan = stage.hand("producer").insert("b1", [b"orphan"], [stage.now_ms + 60_000])
    stage.until(lambda: all(held.events for held in stuck), "the appends are stuck")
    stage.isolate("b1")
    stage.step("b2 leads epoch 2; b3 has heard of it, and has no record of it")
    barriers = stage.hold("b3", appends("b2"))
    stage.until(lambda: stage.leads("b2") and barriers.events, "b2 leads, and sends its barrier")
    stage.doors["b3"].pass_on(without_records(barriers.events[-1]))
    stage.run_ms(50)
    stage.expect(stage.replica("b3").replica.durable_epoch == 2, "b3 has saved epoch 2")

    stage.step("b3 restarts; b1's record arrives, as if it had been meant for this life")
    b3 = stage.nodes["b3"]
    b3.crash()
    b3.start()
    stage.until(lambda: b3.core is not None and b3.core.partition(stage.uid) is not None, "b3's replica")
    stage.run_ms(20)
    end = stage.replica("b3").replica.log.end
    stage.doors["b3"].pass_on(for_life(stuck[1].events[0], b3))
    stage.run_ms(20)
    stage.expect(stage.replica("b3").replica.epoch == 2, "b3 is still in epoch 2")
    stage.expect(stage.replica("b3").replica.log.end == end, "and has taken nothing of epoch 1")
    stage.expect(Code.OK not in orphan.codes, "the orphan is not acknowledged")
    stage.finish()


def test_what_a_replica_has_not_written_stays_in_its_memory() -> None:
    """It is committed by others, and applied; nobody could read it back if memory let go of it."""
    with scaled((("LOG_CACHE_BYTES", 2_000),)):
        stage = Stage()
        isr_without(stage, "b3")
        stage.spindles["b3"].stopped = True
        stage.network.heal()
        for number in range(20):
            stage.stored(b"%d" % number * 300)
        held = stage.replica("b3")
        stage.until(
            lambda: held.timeline.applied == stage.replica("b1").timeline.applied, "b3 has applied all"
        )
        stage.expect(held.replica.synced < held.timeline.applied, "its disk lags")
        stage.expect(
            held.replica.log.cached_from <= held.replica.synced + 1, "what the disk lacks is in memory"
        )
        stage.spindles["b3"].go()
        stage.finish()


def test_frames_for_an_earlier_life_are_dropped() -> None:
    """R7, KIP-380. A frame to a broker that has restarted since is not for its new life."""
    stage = Stage()
    stuck = stage.hold("b2", peer_frames())
    record = stage.hand("producer").insert("b1", [b"x"], [stage.now_ms + 60_000])
    stage.run_ms(300)
    stuck.forget()
    stage.expect(not record.replies, "not committed without b2")
    b2 = stage.nodes["b2"]
    b2.crash()
    b2.start()
    stage.until(lambda: b2.core is not None and b2.core.partition(stage.uid) is not None, "b2's replica")
    end = stage.replica("b2").replica.log.end
    stuck.again()
    stage.run_ms(1)
    stage.expect(stage.replica("b2").replica.log.end == end, "nothing was taken")
    stage.finish()
