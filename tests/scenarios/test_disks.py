"""Named scenarios of disks: power loss, empty, damaged and full disks, payloads, catching up."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from dueq.core.ports.events import StorePressure
from dueq.storage.ordered import layout, wiping
from dueq.storage.ordered.engine import Operation
from dueq.storage.ordered.space import judge
from dueq_chaos.scenarios.stage import Stage
from dueq_chaos.sim.environment.engine import ForgetfulEngine
from dueq_codecs.messages import Code
from dueq_codecs.records import Outcome

FAR_MS = 3_600_000


@pytest.mark.parametrize("after_us", [0, 150, 400, 900])
def test_power_fails_everywhere_in_the_instant_after_an_acknowledgement(after_us: int) -> None:
    """R4, R11, KIP-966. Nothing rests on a page cache: all lose what was not synced, and nothing acknowledged."""
    stage = Stage()
    producer = stage.hand("producer")
    requests = []
    for number in range(12):
        requests.append(producer.insert("b1", [b"%d" % number], [stage.now_ms + FAR_MS]))
        stage.world.run(300)
    stage.until(lambda: requests[6].final, "half of the answers")
    stage.world.run(after_us)
    acknowledged = [request.stored()[0] for request in requests if request.final]
    for node in stage.nodes.values():
        node.crash()
    for node in stage.nodes.values():
        node.start()
    stage.until(lambda: stage.leader_of(stage.uid), "a leader")
    stage.finish()
    cancel = stage.settled(producer, producer.cancel(stage.leader, acknowledged))
    stage.expect(set(cancel.outcomes) == {Outcome.DONE}, "every acknowledged message is there")


def test_nothing_is_written_without_a_sync() -> None:
    """B10. An unsynced write may vanish while a later one survives: a hole in the state, not a shorter one."""
    stage = Stage()
    writes: list[bool] = []
    for name, node in stage.nodes.items():
        for engine in (node.disk.timeline, node.disk.payload):
            _record_syncs(engine, writes)
        stage.world.tell("step", f"{name}'s writes are watched")
    consumer = stage.hand("consumer")
    consumer.attach("b1")
    messages = [stage.stored(b"%d" % n, due=stage.now_ms + 20)[0] for n in range(10)]
    stage.acked(consumer, stage.delivered(consumer, *messages))
    stage.stored(*[b"%d" % n for n in range(100)])
    stage.run_ms(6_000)
    stage.expect(len(writes) > 50, "there were writes, checkpoints among them")
    stage.expect(all(writes), f"{writes.count(False)} of {len(writes)} were not synced")
    stage.finish()


def _record_syncs(engine: ForgetfulEngine, writes: list[bool]) -> None:
    plain = engine.write

    def write(operations: Iterable[Operation], *, sync: bool) -> None:
        writes.append(sync)
        plain(operations, sync=sync)

    setattr(engine, "write", write)  # noqa: B010


def test_a_record_never_outlives_its_payload() -> None:
    """B11. A crash between the two databases: the payloads may be there without the record, not the reverse."""
    stage = Stage()
    producer = stage.hand("producer")
    for number in range(12):
        requests = [
            producer.insert(stage.leader, [b"%d-%d" % (number, n)], [stage.now_ms + FAR_MS]) for n in range(3)
        ]
        stage.world.run(200 + 70 * number)
        victim = stage.names[number % 3]
        stage.nodes[victim].crash()
        stage.nodes[victim].start()
        stage.until(lambda: stage.leader_of(stage.uid), "a leader")
        for request in requests:
            stage.settled(producer, request)
    stage.finish()
    scheduled = stage.replica(stage.leader).timeline.scheduled_count
    stage.expect(scheduled == 36, f"every message once: {scheduled}")
    for name in stage.names:
        told = stage.told(name, "replica.data_missing")
        stage.expect(not told, f"no replica had to be given up: {told}")


def test_the_space_of_ended_payloads_comes_back_though_nothing_more_is_written() -> None:
    """Their records left the log long ago. On a full disk the log does not grow again before there is space."""
    stage = Stage(log_retain_bytes=20_000)
    consumer = stage.hand("consumer")
    consumer.attach(stage.leader, credit=100, lease_ms=60_000)
    far = stage.stored(*[b"far ahead" * 500 for _ in range(3)], due=stage.now_ms + 9_000)
    for number in range(4):
        soon = stage.stored(b"%d" % number * 8_000, due=stage.now_ms + 100)
        stage.acked(consumer, stage.delivered(consumer, *soon))
    stage.run_ms(6_000)
    stage.expect(stage.replica("b1").replica.log.start > far[0].sequence, "their record has left the log")
    consumer.attach(stage.leader, credit=100, lease_ms=60_000)
    stage.acked(consumer, stage.delivered(consumer, *far))
    stage.run_ms(6_000)
    for name in stage.names:
        log = stage.replica(name).replica.log
        kept = stage.nodes[name].disk.payload.keys(*layout.whole(stage.uid))
        older = [key for key in kept if key < layout.block_key(stage.uid, log.start, 0)]
        stage.expect(not older, f"{name} keeps {older} of what is in no log")
    stage.finish()


def test_a_payload_is_there_for_a_follower_that_was_away_when_its_message_ended() -> None:
    """S9. The message is acknowledged and its body garbage; the log still has the insert that must be sent."""
    stage = Stage()
    consumer = stage.hand("consumer")
    consumer.attach("b1")
    stage.nodes["b3"].crash()
    stage.until(lambda: stage.isr() == ["b1", "b2"], "an ISR of two")
    messages = [stage.stored(b"%d" % n, due=stage.now_ms + 20)[0] for n in range(10)]
    stage.acked(consumer, stage.delivered(consumer, *messages))
    [kept] = stage.stored(b"kept")
    stage.run_ms(10_000)
    stage.nodes["b3"].start()
    stage.finish()
    stage.expect(not stage.told("b3", "replica.installed"), "it caught up from the log")
    stage.expect(stage.replica("b3").timeline.scheduled_count == 1, f"{kept} waits at b3 too")


def test_a_follower_that_has_everything_and_could_not_say_so_joins_again_although_the_log_was_cut() -> None:
    """S9. Its acks are lost, what it is sent is not; when it is heard, the log begins behind what was last acked."""
    stage = Stage(log_retain_bytes=2_000)
    stage.network.cut("b3", "b1", both=False)
    stage.network.cut("b3", "b2", both=False)
    stage.until(lambda: stage.isr() == ["b1", "b2"], "an ISR of two")
    stage.nodes["b1"].crash()
    stage.until(
        lambda: stage.leader_of(stage.uid) is None or stage.leader_of(stage.uid) == "b2", "b1 is missed"
    )
    stage.nodes["b1"].start()
    stage.until(lambda: stage.leader_of(stage.uid) is not None, "somebody serves")
    for number in range(12):
        stage.stored(b"%d" % number * 400)
    stage.run_ms(40_000)
    stage.finish()
    stage.expect(not stage.told("b3", "replica.installed"), "it went on from what it has")
    stage.expect(len(stage.isr()) == 3, "and is a member again")


@pytest.mark.parametrize("crashes", [False, True])
def test_a_large_replica_begins_anew_little_by_little(monkeypatch: pytest.MonkeyPatch, crashes: bool) -> None:
    """S9. All partitions of its broker stood still while its old rows were deleted."""
    monkeypatch.setattr(wiping, "WIPE_ROWS", 3)
    stage = Stage(log_retain_bytes=2_000)
    for number in range(10):
        stage.stored(*[b"old %d-%d" % (number, n) * 200 for n in range(20)])
    stage.run_ms(5_000)
    stage.nodes["b3"].crash()
    stage.until(lambda: "b3" not in stage.coordinator.registrations, "the end of b3's session")
    for number in range(10):
        stage.stored(*[b"new %d-%d" % (number, n) * 2_000 for n in range(20)])
    stage.run_ms(5_000)
    parts = stage.watch("b3", lambda event: type(getattr(event, "message", None)).__name__ == "SnapshotChunk")
    node = stage.nodes["b3"]
    node.start()
    stage.until(lambda: node.disk.store is not None and node.disk.store.wiping() == {stage.uid}, "a wipe")
    stage.run_ms(200)
    stage.expect(len(parts.events) == 1, "the offer came, and no part was asked for")
    if crashes:
        node.crash()
        stage.step("b3 comes back in the middle of it")
        node.start()
    stage.finish()
    stage.expect(stage.told("b3", "replica.installed"), "b3 was installed")
    stage.expect(stage.replica("b3").timeline.scheduled_count == 400, "and has everything")


@pytest.mark.parametrize("after_parts", [0, 1, 2])
def test_a_snapshot_that_is_interrupted_leaves_nobody_half_installed(after_parts: int) -> None:
    """S9. The receiver is nobody from the first part to the last; it crashes in between and begins anew."""
    stage = Stage(log_retain_bytes=2_000)
    stage.nodes["b3"].crash()
    stage.until(lambda: "b3" not in stage.coordinator.registrations, "the end of b3's session")
    for number in range(30):
        stage.stored(*[b"%d-%d" % (number, n) * 2_000 for n in range(20)])
    stage.run_ms(5_000)
    parts = stage.watch("b3", lambda event: type(getattr(event, "message", None)).__name__ == "SnapshotChunk")
    stage.nodes["b3"].start()
    stage.until(lambda: len(parts.events) > after_parts, "parts of a snapshot")
    stage.nodes["b3"].crash()
    stage.step("b3 comes back; b1 dies meanwhile")
    stage.nodes["b3"].start()
    stage.run_ms(5)
    stage.nodes["b1"].crash()
    stage.until(lambda: stage.leader_of(stage.uid) == "b2", "b2 serves")
    stage.finish()
    stage.expect(stage.told("b3", "replica.installed"), "b3 was installed")
    stage.expect(stage.replica("b3").timeline.scheduled_count == 600, "and has everything")


def test_a_damaged_replica_is_set_aside_and_filled_by_its_peers_and_does_not_lead() -> None:
    """R12, R13, S9. A record that does not fit its CRC chain: not skipped, not repaired, not led from."""
    stage = Stage(partitions=2)
    for uid in stage.uids:
        stage.stored(b"one", uid=uid)
        stage.stored(b"two", uid=uid)
    b1 = stage.nodes["b1"]
    b1.crash()
    key = layout.log_key(stage.uid, 2)
    row = b1.disk.timeline.get(key)
    assert row is not None
    b1.disk.timeline.write([(key, row[:-1] + bytes([row[-1] ^ 1]))], sync=True)
    b1.start()
    stage.until(lambda: stage.leader_of(stage.uid) in ("b2", "b3"), "one of the others serves")
    stage.until(lambda: stage.told("b1", "replica.installed"), "b1 is filled")
    stage.finish()
    installed = [told["uid"] for told in stage.told("b1", "replica.installed")]
    stage.expect(installed == [stage.uid], f"the damaged partition only: {installed}")
    stage.expect(stage.replica("b1").timeline.scheduled_count == 2, "both messages are there")


def test_a_damaged_member_keeps_the_last_good_one_from_nothing() -> None:
    """R13. One of an ISR of two comes back without its data while nobody leads. Its refusal does not count."""
    stage = Stage()
    stage.stored(b"one")
    stage.nodes["b2"].crash()
    stage.until(lambda: stage.isr() == ["b1", "b3"], "b2 has left the ISR")
    stage.stored(b"two")
    for broker in ("b1", "b3"):
        stage.nodes[broker].crash(goodbye=True)
    engine = stage.nodes["b3"].disk.timeline
    engine.write([(layout.log_key(stage.uid, 2), None)], sync=True)
    for node in stage.nodes.values():
        node.start()
    stage.until(lambda: stage.leads("b1"), "b1, which has everything, leads")
    stage.until(lambda: stage.told("b3", "replica.installed"), "b3 is filled")
    stage.finish()
    stage.expect(stage.replica("b1").timeline.scheduled_count == 2, "both messages are there")


def test_metadata_that_has_gone_is_no_permission_to_delete() -> None:
    """R12. The coordinator shows no topics, and no tombstone: every byte stays, and serves when they are back."""
    stage = Stage()
    stage.stored(b"kept")
    for node in stage.nodes.values():
        node.crash(goodbye=True)
    topics, nodes = dict(stage.coordinator.topics), dict(stage.coordinator.nodes)
    stage.coordinator.topics.clear()
    stage.coordinator.nodes.clear()
    for node in stage.nodes.values():
        node.start()
    stage.run_ms(10_000)
    for node in stage.nodes.values():
        stage.expect(any(node.disk.timeline.keys(*layout.whole(stage.uid))), f"{node.name} has it still")
        node.crash(goodbye=True)
    stage.coordinator.topics.update(topics)
    stage.coordinator.nodes.update(nodes)
    for node in stage.nodes.values():
        node.start()
    stage.finish()
    stage.expect(stage.replica(stage.leader).timeline.scheduled_count == 1, "the message is there")


def test_a_full_disk_refuses_inserts_and_takes_what_frees_space() -> None:
    """S4. All disks are one and full: consumers that cannot ack would never free it. Then leadership moves."""
    stage = Stage()
    consumer, producer = stage.hand("consumer"), stage.hand("producer")
    [leased, cancelled, moved] = stage.stored(
        b"a", b"b", b"c", dues=[stage.now_ms + 20] + [stage.now_ms + FAR_MS] * 2
    )
    consumer.attach("b1", lease_ms=60_000)
    held = stage.delivered(consumer, leased)
    stage.doors["b1"].pass_on(StorePressure("disk_full", False))
    stage.run_ms(5)
    refused = stage.answered(producer.insert("b1", [b"no"], [stage.now_ms + FAR_MS]))
    stage.expect(refused.codes == [Code.DISK_FULL], f"{refused.codes}")
    stage.acked(consumer, held)
    for change in (
        producer.cancel("b1", [cancelled]),
        producer.move("b1", [moved], [stage.now_ms + 2 * FAR_MS]),
    ):
        stage.settled(producer, change)
        stage.expect(change.outcomes == [Outcome.DONE], f"{change.change.kind.name} is taken")
    stage.step("less than the last mark is free")
    stage.doors["b1"].pass_on(StorePressure("disk_full", True))
    stage.until(lambda: stage.leader_of(stage.uid) in ("b2", "b3"), "a member with room leads")
    stage.settled(producer, refused)
    stage.doors["b1"].pass_on(StorePressure("", False))
    stage.finish()


def test_a_full_disk_refuses_a_message_of_a_recurrence_that_is_wanted_now() -> None:
    """It brings a payload, as an insert does."""
    stage = Stage()
    hand = stage.hand("user")
    stage.settled(
        hand, hand.recur("b1", "r", action="create", every_ms=FAR_MS, start_ms=stage.now_ms + FAR_MS)
    )
    stage.doors["b1"].pass_on(StorePressure("disk_full", False))
    stage.run_ms(5)
    refused = stage.answered(hand.recur("b1", "r", action="trigger"))
    stage.expect(refused.codes == [Code.DISK_FULL], f"{refused.codes}")
    timeline = stage.replica("b1").timeline
    stage.expect(timeline.scheduled_count == 0, "nothing has come")
    unknown = stage.settled(hand, hand.recur("b1", "other", action="trigger"))
    stage.expect(
        unknown.outcomes == [Outcome.NOT_FOUND], "of one that is not known there is nothing to bring"
    )
    paused = stage.settled(hand, hand.recur("b1", "r", action="pause"))
    stage.expect(paused.outcomes == [Outcome.DONE], "all else goes on")
    stage.doors["b1"].pass_on(StorePressure("", False))
    stage.settled(hand, refused)
    stage.expect(refused.outcomes == [Outcome.DONE], "it is taken when there is room")
    stage.expect(timeline.scheduled_count == 1, "once")
    stage.finish()


def test_a_full_disk_refuses_recurrences_that_bring_something() -> None:
    """Their terms and payloads are stored, as what an insert brings is."""
    stage = Stage()
    hand = stage.hand("user")
    terms = {"every_ms": FAR_MS, "start_ms": stage.now_ms + FAR_MS}
    stage.settled(hand, hand.recur("b1", "r", action="create", payload="YWJj", **terms))
    stage.doors["b1"].pass_on(StorePressure("disk_full", False))
    stage.run_ms(5)
    for name, change in (
        ("other", {"action": "create", **terms}),
        ("r", {"action": "create", **terms}),
        ("r", {"action": "update", "payload": "ZGVm"}),
        ("r", {"action": "update", "headers": {"a": "b"}}),
    ):
        refused = stage.answered(hand.recur("b1", name, **change))
        stage.expect(refused.codes == [Code.DISK_FULL], f"{change}: {refused.codes}")
    for change in (
        {"action": "update", "payload": ""},
        {"action": "update", "every_ms": FAR_MS + 1},
        {"action": "pause"},
        {"action": "resume"},
        {"action": "delete"},
    ):
        taken = stage.settled(hand, hand.recur("b1", "r", **change))
        stage.expect(taken.outcomes == [Outcome.DONE], f"{change}: {taken.outcomes}")
    stage.doors["b1"].pass_on(StorePressure("", False))
    taken = stage.settled(hand, hand.recur("b1", "other", action="create", **terms))
    stage.expect(taken.outcomes == [Outcome.DONE], "it is taken when there is room")
    stage.finish()


def test_compactions_that_fall_behind_refuse_inserts_long_before_they_stall_acks() -> None:
    """S3. One thread compacts for both databases and stops all writes at 12 files: inserts are refused at six."""
    assert judge(5, None).inserts_refused == ""
    assert judge(6, None).inserts_refused == "busy"
    stage = Stage()
    consumer, producer = stage.hand("consumer"), stage.hand("producer")
    [leased] = stage.stored(b"a", due=stage.now_ms + 20)
    consumer.attach("b1", lease_ms=60_000)
    held = stage.delivered(consumer, leased)
    stage.doors["b1"].pass_on(StorePressure("busy", False))
    stage.run_ms(5)
    refused = stage.answered(producer.insert("b1", [b"no"], [stage.now_ms + FAR_MS]))
    stage.expect(refused.codes == [Code.BUSY], f"{refused.codes}")
    stage.expect(refused.replies[0].retry_after_ms > 0, "with a time to come again")
    stage.acked(consumer, held)
    stage.doors["b1"].pass_on(StorePressure("", False))
    stage.settled(producer, refused)
    stage.finish()


def test_a_store_that_has_failed_once_is_never_written_again_by_its_process() -> None:
    """S3. After a failed write LevelDB takes more writes behind a torn one: the broker ends, and loses nothing."""
    stage = Stage()
    [kept] = stage.stored(b"kept")
    b1 = stage.nodes["b1"]
    b1.disk.timeline.fail_next = b1.disk.payload.fail_next = True
    life = b1.incarnation
    request = stage.hand("producer").insert("b1", [b"at the wrong time"], [stage.now_ms + FAR_MS])
    stage.until(lambda: b1.core is None, "b1 ends")
    stage.expect(b1.incarnation == life, "it does not go on in the same process")
    stage.until(lambda: stage.leader_of(stage.uid) in ("b2", "b3"), "another leads")
    stage.settled(stage.hand("producer"), request)
    b1.disk.timeline.fail_next = b1.disk.payload.fail_next = False
    stage.finish()
    stage.expect(stage.replica("b1").timeline.scheduled_count == 2, f"{kept} and the other")


def test_when_all_disks_of_the_isr_are_lost_nobody_leads_by_himself() -> None:
    """S12. The rest may have less than was acknowledged: that is for a person to accept, not for a broker."""
    stage = Stage()
    stage.stored(b"one")
    stage.run_ms(500)
    stage.isolate("b3")
    stage.until(lambda: stage.isr() == ["b1", "b2"], "an ISR of two")
    stage.stored(b"two, which b3 has not got")
    stage.lose_disk("b1")
    stage.lose_disk("b2")
    stage.network.heal()
    stage.run_ms(20_000)
    stage.expect(stage.leader_of(stage.uid) is None, "nobody leads")
    stage.expect(stage.replica("b3").timeline.scheduled_count == 1, "b3 keeps what it has")


def test_a_truncated_record_takes_its_payload_with_it_before_another_gets_its_place() -> None:
    """S9. (50, epoch 5) is cut, (50, epoch 6) stored under the same key: a late deletion must not hit the second."""
    stage = Stage()
    stage.isolate("b1")
    stage.hand("producer").insert("b1", [b"cut" * 50], [stage.now_ms + FAR_MS])
    stage.until(lambda: stage.leader_of(stage.uid) in ("b2", "b3"), "a successor")
    messages = [stage.stored(b"stays %d" % n * 20, due=stage.now_ms + 20_000)[0] for n in range(3)]
    stage.network.heal()
    stage.until(lambda: stage.told("b1", "log.truncated"), "b1 cuts")
    stage.until(stage.whole, "a whole mesh")
    stage.nodes["b1"].crash()
    stage.nodes["b1"].start()
    stage.until(stage.whole, "a whole mesh")
    for name in ("b2", "b3"):
        stage.nodes[name].crash()
    stage.nodes["b2"].start()
    stage.until(lambda: stage.leader_of(stage.uid), "b1 or b2 serves")
    stage.run_ms(21_000)
    payloads = {p.payload for p in stage.drained()}
    stage.expect(payloads == {m.payload for m in messages}, f"{len(payloads)} payloads")
    stage.finish()


def test_appends_of_a_leader_whose_disk_hangs_are_not_acknowledged() -> None:
    """R11. Two of three have it synced, the leader itself has not: not yet a commit."""
    stage = Stage()
    stage.spindles["b1"].stopped = True
    request = stage.hand("producer").insert("b1", [b"x"], [stage.now_ms + FAR_MS])
    end = stage.replica("b1").replica.log.end
    stage.until(lambda: stage.replica("b3").replica.log.end > end, "the record at b3")
    stage.run_ms(1_000)
    stage.expect(not request.replies, "no answer")
    stage.spindles["b1"].go()
    stage.until(lambda: request.codes == [Code.OK], "the answer")
    stage.finish()


def test_a_follower_that_takes_no_records_and_still_answers_is_put_out() -> None:
    """R21, S1. Its heartbeats come and its disk hangs: with it nothing is committed, so it lacks nothing committed.

    Being level by that alone, it would be taken in again by the very change that puts it out, for ever.
    """
    stage = Stage()
    stage.spindles["b3"].stopped = True
    began = stage.now_ms
    stage.stored(b"x")
    stage.expect(stage.now_ms - began < 4_000, f"{stage.now_ms - began} ms")
    stage.expect(stage.isr() == ["b1", "b2"], "b3 is out")
    stage.run_ms(5_000)
    stage.expect(stage.isr() == ["b1", "b2"], "and stays out while its disk hangs")
    stage.finish()
    stage.expect(stage.isr() == ["b1", "b2", "b3"], "then it is in again")
