"""Named scenarios of topics, partitions and long times: ids, deletion, idle partitions, downtime, spikes."""

from __future__ import annotations

import json

import pytest

from dueq import limits
from dueq.core.ports.membership import DeleteTopic, Topic, TopicOrderDone
from dueq.limits import HEARTBEAT_MS
from dueq.storage.ordered import layout
from dueq_chaos.scenarios.hand import Hand
from dueq_chaos.scenarios.stage import Stage
from dueq_chaos.sim.environment.coordinator import Session
from dueq_codecs.messages import Code, CreateTopicRequest, Reply, UpdateTopicRequest
from dueq_codecs.records import Outcome

FAR_MS = 3_600_000
DAY_MS = 86_400_000


def delete(stage: Stage, name: str) -> Topic:
    """Delete a topic, as an administrator's broker orders it."""
    topic = stage.coordinator.topics[name]
    answers: list[TopicOrderDone] = []
    registration = next(iter(stage.coordinator.registrations.values()))

    def heard(event: object) -> None:
        if isinstance(event, TopicOrderDone):
            answers.append(event)

    session = Session(stage.coordinator, registration, heard)
    session.connected = True
    stage.coordinator.order(session, DeleteTopic(1, name))
    stage.until(lambda: answers, "the deletion")
    return topic


def test_the_first_messages_of_two_topics_share_no_id_and_no_payload() -> None:
    """B1. Same instant, same sequence, same row: only the partition's number keeps their ids and bodies apart."""
    stage = Stage()
    producer = stage.hand("producer")
    [other_uid] = stage.create_topic("other", 1)
    due = stage.now_ms + 5_000
    [a] = stage.stored(b"of a", due=due)
    insert = producer.insert(stage.leader_of(other_uid) or "", [b"of b"], [due], uid=other_uid, topic="other")
    [b] = stage.settled(producer, insert).stored()
    stage.expect((a.sequence, a.row, a.first) == (b.sequence, b.row, b.first), "alike in everything else")
    stage.expect(a.uid != b.uid, "but the partition")

    stage.step("a's id does not cancel b's message: under a's partition it is not of this topic")
    wrong = producer.cancel("b1", [a], topic="other")
    stage.until(lambda: wrong.codes, "an answer")
    stage.expect(wrong.codes == [Code.TOPIC_NOT_FOUND], f"{wrong.codes}")
    consumer = stage.hand("consumer")
    consumer.attach("b1")
    consumer.stay()
    [pushed] = stage.delivered(consumer, a)
    stage.expect(pushed.payload == b"of a", "its own payload")
    stage.finish()


def test_an_id_of_a_deleted_topic_names_nothing_in_the_one_made_again() -> None:
    """B1. Delete and create: the same name, other partitions; an old id must not name a new message."""
    stage = Stage()
    producer = stage.hand("producer")
    due = stage.now_ms + FAR_MS
    [old] = stage.stored(b"old", due=due)
    delete(stage, stage.topic)
    stage.run_ms(100)
    [uid] = stage.create_topic(stage.topic, 1)
    stage.expect(uid not in stage.uids, "a number is never used again")
    stage.uids, stage.uid = [uid], uid
    [new] = stage.stored(b"new", due=due)
    stage.expect((old.sequence, old.row) == (new.sequence, new.row), "alike in everything else")
    cancel = producer.cancel("b1", [old])
    stage.run_ms(1_000)
    done = [reply for reply in cancel.replies if Outcome.DONE in reply.outcomes.tolist()]
    stage.expect(not done, f"nothing was cancelled: {cancel.replies}")
    stage.expect(stage.replica(stage.leader).timeline.scheduled_count == 1, "the new one waits")
    stage.finish()


def test_a_deleted_topic_delivers_nothing_more_and_leaves_nothing_behind() -> None:
    """D19, S15. Waiting, leased and granted messages, logs and payloads: all gone, on every broker."""
    stage = Stage()
    consumer = stage.hand("consumer")
    consumer.attach("b1", lease_ms=60_000)
    [held] = stage.stored(b"held", due=stage.now_ms + 20)
    stage.delivered(consumer, held)
    stage.stored(*[b"far %d" % n for n in range(50)])
    [soon] = stage.stored(b"soon", due=stage.now_ms + 300)
    stage.until(lambda: stage.replica("b1").timeline.leased_count == 2, "a lease ahead of time")
    delete(stage, stage.topic)
    stage.run_ms(6_000)
    stage.expect(not consumer.got(soon), "what was not pushed is not pushed")
    for node in stage.nodes.values():
        for engine in (node.disk.timeline, node.disk.payload):
            left = list(engine.keys(*layout.whole(stage.uid)))
            stage.expect(not left, f"{node.name} has {len(left)} rows of it")
    stage.finish()


def test_a_broker_that_was_away_when_a_topic_was_deleted_deletes_it_when_it_reads_the_tombstone() -> None:
    """S12. Metadata missing means nothing; the tombstone means delete: no leak for ever."""
    stage = Stage()
    stage.stored(b"x")
    stage.nodes["b3"].crash()
    delete(stage, stage.topic)
    stage.run_ms(5_000)
    disk = stage.nodes["b3"].disk
    stage.expect(any(disk.timeline.keys(*layout.whole(stage.uid))), "b3 has it still")
    stage.nodes["b3"].start()
    stage.run_ms(2_000)
    stage.expect(not any(disk.timeline.keys(*layout.whole(stage.uid))), "and has no more")
    stage.finish()


def test_a_tombstone_is_kept_for_who_is_away_and_no_longer() -> None:
    """S12. It is the only permission to delete: removed too early, b3's data would stay for ever."""
    stage = Stage()
    stage.stored(b"x")
    stage.nodes["b3"].crash()
    delete(stage, stage.topic)
    stage.run_ms(60_000)
    stage.expect(stage.coordinator.tombstones == {stage.uid: {"b3"}}, "it waits for b3")
    stage.nodes["b3"].start()
    stage.until(lambda: not stage.coordinator.tombstones, "nobody has anything any more")
    for node in stage.nodes.values():
        stage.expect(not any(node.disk.timeline.keys(*layout.whole(stage.uid))), f"{node.name} has none")
    for node in stage.nodes.values():
        node.crash()
        node.start()
    stage.finish()


def test_a_disk_that_comes_back_without_topic_and_tombstone_is_kept_aside_and_shown() -> None:
    """R12. It was thought lost, and its broker has confirmed with another one: nothing permits deleting it."""
    stage = Stage()
    stage.stored(b"x")
    node = stage.nodes["b3"]
    node.crash()
    old = node.disk.timeline, node.disk.payload
    node.disk.lose()
    node.start()
    delete(stage, stage.topic)
    stage.until(lambda: not stage.coordinator.tombstones, "the end of the tombstone")
    node.crash()
    node.disk.timeline, node.disk.payload = old
    node.start()
    stage.run_ms(5_000)
    stage.expect(any(node.disk.timeline.keys(*layout.whole(stage.uid))), "b3 has it still")
    assert node.core is not None
    stage.expect(node.core.partition(stage.uid) is None, "and does not serve it")
    stage.expect(node.core.gauges(node.now())["orphans"] == {stage.uid: stage.topic}, "but says so")
    stage.coordinator.tombstones[stage.uid] = {"b3"}  # what a person does
    node.crash()
    node.start()
    stage.until(lambda: not stage.coordinator.tombstones, "its end")
    stage.expect(not any(node.disk.timeline.keys(*layout.whole(stage.uid))), "b3 has it no more")


def create(
    stage: Stage, hand: Hand, number: int, creation: bytes, *, replicas: int = 3, exist_ok: bool = False
) -> Reply:
    """Order a topic at b2, and wait for the answer."""
    request = CreateTopicRequest(number, creation * 16, "made", "timeline", 2, replicas, exist_ok=exist_ok)
    hand.send("b2", request)
    stage.until(lambda: number in hand.replies, "an answer")
    return hand.replies[number]


def test_a_creation_whose_answer_was_lost_is_repeated_and_found_done() -> None:
    """R19, M4. The repeat recognises its own topic by the creation id; somebody else's is told that it exists."""
    stage = Stage()
    admin = stage.hand("admin")
    stage.network.cut("b2", "admin", both=False)
    admin.send("b2", CreateTopicRequest(1, b"1" * 16, "made", "timeline", 2, 3))
    stage.until(lambda: "made" in stage.coordinator.topics, "the topic")
    stage.run_ms(50)
    stage.expect(not admin.replies, "the answer is lost")
    stage.network.heal()
    uids = [part.uid for part in stage.coordinator.topics["made"].partitions]
    done = create(stage, admin, 2, b"1")
    stage.expect(done.code == Code.OK and json.loads(done.document) == uids, "the same creation is done")
    stage.expect(create(stage, admin, 3, b"2").code == Code.TOPIC_EXISTS, "another one is not")
    stage.expect(
        [p.uid for p in stage.coordinator.topics["made"].partitions] == uids, "nothing was made anew"
    )
    refused = create(stage, admin, 4, b"3", replicas=4)
    stage.expect(
        refused.code == Code.INVALID_REQUEST and "4 living brokers, not 3" in refused.text, f"{refused}"
    )
    stage.finish()


def test_a_creation_that_comes_again_after_the_topic_was_deleted_makes_none() -> None:
    """R19. A client repeats it at another broker, and a frame that was held up arrives long after."""
    stage = Stage()
    admin = stage.hand("admin")
    stage.expect(create(stage, admin, 1, b"1").code == Code.OK, "a topic")
    stage.run_ms(1_000)
    delete(stage, "made")
    late = create(stage, admin, 2, b"1")
    stage.expect("made" not in stage.coordinator.topics, "the topic is gone")
    stage.expect(late.code == Code.TOPIC_NOT_FOUND and "deleted since" in late.text, f"{late}")
    stage.expect(create(stage, admin, 3, b"2").code == Code.OK, "whoever wants one makes another one")


def test_a_broker_that_has_not_heard_of_a_deletion_creates_the_topic_again() -> None:
    """R19. With `exist_ok` too the coordinator says what there is, not the memory of a broker that lags."""
    stage = Stage()
    admin = stage.hand("admin")
    stage.expect(create(stage, admin, 1, b"1").code == Code.OK, "a topic")
    stage.run_ms(1_000)
    stage.coordinator.watch_us = 60_000_000  # what watches saw arrives long after the answers to orders
    old = delete(stage, "made")
    again = create(stage, admin, 2, b"2", exist_ok=True)
    new = stage.coordinator.topics.get("made")
    stage.expect(new is not None, "it is there")
    assert new is not None
    uids = [part.uid for part in new.partitions]
    stage.expect(not {part.uid for part in old.partitions} & set(uids), "it is another one")
    stage.expect(again.code == Code.OK and json.loads(again.document) == uids, f"{again}")
    found = create(stage, admin, 3, b"3", exist_ok=True)
    stage.expect(found.code == Code.OK and json.loads(found.document) == uids, "it is found, not made anew")


def test_a_broker_that_has_not_heard_of_a_deletion_changes_nothing_of_the_topic_made_again() -> None:
    """R19. The settings that it knows belong to the topic before."""
    stage = Stage()
    admin = stage.hand("admin")
    stage.expect(create(stage, admin, 1, b"1").code == Code.OK, "a topic")
    stage.run_ms(1_000)
    stage.coordinator.watch_us = 60_000_000  # what watches saw arrives long after the answers to orders
    delete(stage, "made")
    stage.expect(create(stage, admin, 2, b"2").code == Code.OK, "it is made again")
    settings = stage.coordinator.topics["made"].settings
    admin.send("b2", UpdateTopicRequest(3, b"3" * 16, "made", 1, '{"paused":true}', 0))
    stage.until(lambda: 3 in admin.replies, "an answer")
    stage.expect(stage.coordinator.topics["made"].settings == settings, "it is as it was made")


def test_a_topic_that_exists_is_found_while_too_few_brokers_are_alive_to_create_it() -> None:
    """R19. A producer that begins with `exist_ok` starts while a broker is away, or the coordinator."""
    stage = Stage()
    admin = stage.hand("admin")
    made = create(stage, admin, 1, b"1")
    stage.run_ms(1_000)
    stage.nodes["b3"].crash()
    stage.run_ms(10_000)
    stage.expect("b3" not in stage.coordinator.registrations, "b3 is away")
    found = create(stage, admin, 2, b"2", exist_ok=True)
    stage.expect((found.code, found.document) == (Code.OK, made.document), f"{found}")
    stage.coordinator.cut_off("b2")
    stage.run_ms(100)
    found = create(stage, admin, 3, b"3", exist_ok=True)
    stage.expect((found.code, found.document) == (Code.OK, made.document), f"{found}")
    stage.coordinator.reconnect("b2")
    stage.nodes["b3"].start()
    stage.finish()


def test_no_consumer_holds_more_leases_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """M15. The table of leases is bounded whatever credit is asked for."""
    monkeypatch.setattr(limits, "CONSUMER_LEASES_MAX", 50)
    stage = Stage()
    consumer = stage.hand("consumer")
    consumer.attach("b1", credit=1_000_000, lease_ms=60_000)
    consumer.stay()
    stage.stored(*[b"%d" % n for n in range(500)], due=stage.now_ms + 50)
    stage.run_ms(3_000)
    stage.expect(stage.replica("b1").timeline.leased_count == 50, "50 leases")
    stage.finish()


def test_idle_partitions_cost_no_frames() -> None:
    """S11. Between two brokers there is one stream: with 64 idle partitions as many frames as with one."""
    counts = []
    for partitions in (1, 64):
        stage = Stage(partitions=partitions)
        stage.run_ms(10_000)
        before = stage.network.sent
        stage.run_ms(10_000)
        counts.append(stage.network.sent - before)
    heartbeats = 6 * 10_000 // HEARTBEAT_MS
    assert counts[1] <= counts[0] * 1.1 <= heartbeats * 2.5, counts


def test_a_mesh_that_was_off_for_ten_days_delivers_everything_and_no_more_than_it_has_credit_for() -> None:
    """D9, D17. No timer wraps, and what fell due meanwhile is not fired all at once at who cannot take it."""
    stage = Stage()
    messages = [
        one
        for day in range(10)
        for one in stage.stored(
            *[b"%d-%d" % (day, n) for n in range(10)], due=stage.now_ms + day * DAY_MS + 60_000
        )
    ]
    for node in stage.nodes.values():
        node.crash(goodbye=True)
    stage.run_ms(11 * DAY_MS)
    for node in stage.nodes.values():
        node.start()
    stage.until(stage.whole, "a whole mesh")
    consumer = stage.hand("consumer")
    consumer.attach(stage.leader, credit=7, lease_ms=60_000)
    consumer.stay()
    done = 0
    while done < len(messages):
        stage.until(lambda done=done: len(consumer.pushes) > done, "the next deliveries")  # type: ignore[misc]
        stage.run_ms(20)
        batch = consumer.pushes[done:]
        stage.expect(len(batch) <= 7, f"{len(batch)} leases with a credit of 7")
        stage.acked(consumer, batch)
        done += len(batch)
    stage.expect([p.key for p in consumer.pushes] == [m.key for m in messages], "in order of their instants")
    stage.finish()


def test_a_message_far_ahead_outlives_the_log_that_brought_it() -> None:
    """D12. No age limit of a log or a stream takes a message that has yet to fall due."""
    stage = Stage(log_retain_bytes=2_000)
    [far] = stage.stored(b"far ahead" * 100, due=stage.now_ms + 30 * DAY_MS)
    for number in range(30):
        stage.stored(b"%d" % number * 2_000)
    stage.run_ms(10_000)
    stage.expect(stage.replica("b1").replica.log.start > far.sequence, "its record has left the log")
    stage.expect(stage.replica("b1").timeline.scheduled_count == 31, "it waits")
    for node in stage.nodes.values():
        node.crash(goodbye=True)
    stage.run_ms(30 * DAY_MS)
    for node in stage.nodes.values():
        node.start()
    stage.until(stage.whole, "a whole mesh")
    found = {p.key: p.payload for p in stage.drained()}
    stage.expect(found.get(far.key) == far.payload, "it is delivered with its payload")
    stage.finish()


def test_acks_in_any_pattern_cost_no_redelivery() -> None:
    """D6. Every other message is acknowledged, all brokers restart: exactly the rest comes."""
    stage = Stage()
    consumer = stage.hand("consumer")
    consumer.attach("b1", credit=10_000, lease_ms=60_000)
    due = stage.now_ms + 1_000
    messages = [
        one for n in range(10) for one in stage.stored(*[b"%d-%d" % (n, m) for m in range(200)], due=due)
    ]
    held = stage.delivered(consumer, *messages)
    stage.acked(consumer, held[::2])
    consumer.goodbye("b1")
    stage.run_ms(3_000)
    for node in stage.nodes.values():
        node.crash()
        node.start()
    stage.until(stage.whole, "a whole mesh")
    stage.run_ms(500)
    found = [p.key for p in stage.drained()]
    stage.expect(sorted(found) == sorted(p.key for p in held[1::2]), f"{len(found)} of 1000 came again")
    stage.finish()


def test_a_spike_is_pushed_in_the_order_of_its_instants() -> None:
    """D21. Messages that leave together leave by due, then by arrival, not as a tick happens to find them."""
    stage = Stage()
    consumer = stage.hand("consumer")
    consumer.attach("b1", credit=1_000, lease_ms=60_000)
    base = stage.now_ms + 2_000
    dues = [base + (n * 37) % 50 for n in range(300)]
    messages = stage.stored(*[b"%d" % n for n in range(300)], dues=dues)
    pushes = stage.delivered(consumer, *messages)
    order = [p.key for p in consumer.pushes]
    wanted = [m.key for m in sorted(messages, key=lambda m: (m.due, m.sequence, m.row))]
    stage.expect(order == wanted, "by due, then by sequence and row")
    stage.expect(all(p.at_ms >= p.due for p in pushes), "none early")
    stage.acked(consumer, pushes)
    stage.finish()


def test_a_cancel_that_races_its_delivery_has_one_winner() -> None:
    """D11. Around the instant: done and never delivered, or leased and delivered; nothing between."""
    stage = Stage()
    consumer, producer = stage.hand("consumer"), stage.hand("producer")
    consumer.attach("b1", credit=1_000, lease_ms=60_000)
    due = stage.now_ms + 1_000
    messages = stage.stored(*[b"%d" % n for n in range(60)], due=due)
    stage.run_ms(due - stage.now_ms - 40)
    cancels = []
    for message in messages:
        cancels.append(producer.cancel("b1", [message]))
        stage.run_ms(1)
    for cancel in cancels:
        stage.settled(producer, cancel)
    stage.run_ms(2_000)
    outcomes = [cancel.outcomes[0] for cancel in cancels]
    stage.expect(set(outcomes) == {Outcome.DONE, Outcome.LEASED}, f"both happen: {set(outcomes)}")
    for message, outcome in zip(messages, outcomes, strict=True):
        stage.expect(len(consumer.got(message)) == (outcome == Outcome.LEASED), f"{message} {outcome.name}")
    stage.finish()
