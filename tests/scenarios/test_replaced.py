"""Named scenarios of replaced leaders: each is a trace by which a weaker rule than `core.confirming` would fail."""

from __future__ import annotations

from dueq.core.ports.membership import Member, NodeSeen, PartitionNode
from dueq.core.ports.persistence import PayloadsRead
from dueq_chaos.scenarios.hand import Hand, Stored
from dueq_chaos.scenarios.stage import Stage
from dueq_codecs.messages import Code
from dueq_codecs.records import Outcome

_LEASE_MS = 10_000


def _granted(stage: Stage, consumer: Hand) -> list[Stored]:
    """b1 has leases of three messages and has pushed the first: the others are due in a few ms."""
    consumer.attach("b1", lease_ms=_LEASE_MS)
    due = stage.now_ms + 300
    messages = stage.stored(b"pushed", b"m", b"n", dues=[due, due + 96, due + 97])
    stage.until(lambda: stage.replica("b1").timeline.leased_count == 3, "three committed leases")
    stage.world.run_until(lambda: stage.now_ms >= due + 92, 10_000_000)
    return messages


def _asleep(stage: Stage, *names: str, for_ms: int) -> None:
    """They fall asleep; b1 will hear late of what the coordinator knows."""
    stage.hold("b1", lambda event: isinstance(event, NodeSeen))
    for name in names:
        stage.nodes[name].pause(for_ms * 1000)


def _ended(stage: Stage, consumer: Hand, messages: list[Stored]) -> None:
    """At the successor the leases go back, and the messages are cancelled."""
    stage.until(lambda: stage.leader_of(stage.uid) not in (None, "b1"), "another leader")
    consumer.attach(stage.leader, lease_ms=_LEASE_MS)
    stage.run_ms(50)
    consumer.goodbye(stage.leader)
    producer = stage.hand("producer")
    stage.until(
        lambda: (
            stage.settled(producer, producer.cancel(stage.leader, messages[1:])).outcomes
            == [Outcome.DONE, Outcome.DONE]
        ),
        "a confirmed cancel",
    )


def _nothing_late(stage: Stage, consumer: Hand) -> None:
    """b1 wakes and pushes nothing."""
    stage.until(lambda: not stage.nodes["b1"].paused, "b1 is awake")
    seen = len([pushed for pushed in consumer.pushes if pushed.broker == "b1"])
    stage.run_ms(2_000)
    late = [pushed for pushed in consumer.pushes if pushed.broker == "b1"][seen:]
    stage.expect(not late, f"no push after waking: {late}")


def test_a_successor_that_has_forgotten_its_leadership_is_asked_for_its_epoch() -> None:
    """Both others start anew before b1 wakes: they answer its pings, and nobody tells it of a later leadership."""
    stage = Stage()
    consumer = stage.hand("consumer")
    messages = _granted(stage, consumer)
    _asleep(stage, "b1", for_ms=2_900)
    stage.isolate("b1")
    _ended(stage, consumer, messages)
    stage.desk.hold(lambda order, broker: True)
    for name in ("b2", "b3"):
        stage.nodes[name].crash()
        stage.nodes[name].start()
    stage.network.heal()
    _nothing_late(stage, consumer)
    stage.finish()


def test_a_member_by_a_change_of_unknown_outcome_is_asked() -> None:
    """b2 joined by a change of which b1 knows no outcome; b3, which slept as long as b1, would confirm anything."""
    stage = Stage(min_isr=1)
    consumer = stage.hand("consumer")
    stage.nodes["b2"].crash(goodbye=True)
    stage.until(lambda: stage.isr() == ["b1", "b3"], "an ISR of two")
    stage.desk.hold(lambda order, broker: broker == "b1")
    stage.nodes["b2"].start()
    stage.until(lambda: stage.desk.late, "b1 asks for b2 to be counted in")
    messages = _granted(stage, consumer)
    _asleep(stage, "b1", "b3", for_ms=2_900)
    stage.network.cut("b2", "b3")
    stage.desk.late[0].arrive_unheard()
    stage.desk.late[0].unknown()
    _ended(stage, consumer, messages)
    _nothing_late(stage, consumer)
    stage.finish()


def test_a_member_without_its_disk_confirms_nothing() -> None:
    """The successor has lost its disk, and with it the epoch in which it ended the leases: it follows b1 again."""
    stage = Stage(brokers=2, replicas=2, min_isr=1)
    consumer = stage.hand("consumer")
    messages = _granted(stage, consumer)
    _asleep(stage, "b1", for_ms=2_900)
    _ended(stage, consumer, messages)
    stage.until(lambda: stage.nodes["b1"].paused, "b1 sleeps")
    stage.lose_disk("b2")
    _nothing_late(stage, consumer)


def test_inherited_leases_last_until_the_predecessors_pushes_are_over() -> None:
    """The successor acked the lease right before it took over, and its predecessor pushes half a second later."""
    stage = Stage()
    [message] = stage.stored(b"m", due=stage.now_ms + 12_000)
    stage.step("restarts have emptied the memory: the payload has to be read")
    stage.run_ms(3_000)
    for node in stage.nodes.values():
        node.crash()
        node.start()
    stage.until(stage.whole, "a whole mesh")
    leader, consumer, rival = stage.leader, stage.hand("consumer"), stage.hand("rival")
    consumer.attach(leader, lease_ms=1_000)
    consumer.stay()
    payload = stage.hold(leader, lambda event: isinstance(event, PayloadsRead))
    stage.until(lambda: stage.now_ms >= message.due - 3_000, "the last three seconds")
    stage.coordinator.cut_off(leader, told_after_us=60_000_000)
    stage.until(lambda: stage.replica(leader).timeline.leased_count, "a committed lease")
    granted_ms = stage.now_ms
    stage.isolate(leader)
    stage.hold(leader, lambda event: isinstance(event, NodeSeen))
    stage.until(lambda: stage.leader_of(stage.uid) not in (None, leader), "another leader")
    stage.expect(stage.now_ms < granted_ms + 400, f"it leads at once, {stage.now_ms - granted_ms} ms later")
    rival.attach(stage.leader, lease_ms=1_000)
    rival.stay()
    stage.run_ms(granted_ms + 450 - stage.now_ms)
    payload.let_go()
    [held] = stage.delivered(consumer, message)
    [pushed] = stage.delivered(rival, message)
    stage.expect(pushed.token > held.token, "another lease")
    until_ms = held.at_ms + held.lease_left_ms
    stage.expect(pushed.at_ms >= until_ms - 1, f"{until_ms - pushed.at_ms} ms before the first lease is over")
    stage.expect(pushed.lease_left_ms <= 1_000, "no more than its length")


def test_a_sole_member_looks_at_its_node_after_a_pause() -> None:
    """While it slept, a person has made another replica the only member: nobody whom it would ask knows of that."""
    stage = Stage(min_isr=1)
    consumer = stage.hand("consumer")
    stores = {name: node.disk.store_id for name, node in stage.nodes.items()}
    for name in ("b2", "b3"):
        stage.nodes[name].crash(goodbye=True)
    stage.until(lambda: stage.isr() == ["b1"], "a sole member")
    _granted(stage, consumer)
    _asleep(stage, "b1", for_ms=15_000)
    stage.until(lambda: "b1" not in stage.coordinator.registrations, "b1 counts as dead")
    stage.step("dueq partition recover --from b2 --accept-loss")
    version, node = stage.coordinator.nodes[stage.uid]
    survivor = PartitionNode("", 0, node.epoch, (Member("b2", stores["b2"]),))
    stage.coordinator.nodes[stage.uid] = (version + 1, survivor)
    stage.nodes["b2"].start()
    stage.until(lambda: stage.leader_of(stage.uid) == "b2", "b2 leads")
    stage.expect(stage.nodes["b1"].paused, "b1 sleeps yet")
    _nothing_late(stage, consumer)


def test_a_replaced_leader_keeps_no_lease_alive() -> None:
    """It finds a beat when it wakes. An answer would keep a long lease at its holder, for as long as one comes."""
    stage = Stage()
    consumer = stage.hand("consumer")
    _granted(stage, consumer)
    stage.expect(consumer.pushes, "it holds one message")
    _asleep(stage, "b1", for_ms=2_900)
    stage.until(lambda: stage.leader_of(stage.uid) not in (None, "b1"), "another leader")
    consumer.consumer_replies.clear()
    consumer.beat("b1")
    stage.until(lambda: not stage.nodes["b1"].paused, "b1 is awake")
    stage.run_ms(1_000)
    answer = consumer.consumer_replies.get("b1")
    stage.expect(answer is None or answer.code is Code.UNKNOWN_SESSION, f"no answer that helps: {answer}")
    stage.step("it attaches anew, and says what it has: that is another's by now")
    consumer.consumer_replies.clear()
    consumer.attach("b1", lease_ms=_LEASE_MS, held=consumer.pushes)
    stage.run_ms(1_000)
    stage.expect("b1" not in consumer.consumer_replies, "still none")
    consumer.attach("b1", lease_ms=_LEASE_MS)
    stage.until(lambda: "b1" in consumer.consumer_replies, "who holds nothing of another's is answered")
    stage.finish()


def test_a_leader_that_was_not_replaced_asks_and_pushes_at_once() -> None:
    """Nothing is committed after a short sleep: it asks, and the answers are there before anybody notices."""
    stage = Stage()
    consumer = stage.hand("consumer")
    messages = _granted(stage, consumer)
    stage.nodes["b1"].pause(700_000)
    stage.until(lambda: not stage.nodes["b1"].paused, "b1 is awake")
    woke_ms = stage.now_ms
    pushed = stage.delivered(consumer, *messages[1:])
    stage.expect(all(one.at_ms - woke_ms < 50 for one in pushed), f"pushed at once: {pushed}")
    stage.finish()


def test_nobody_is_told_that_a_lease_lasts_longer_than_it_is() -> None:
    """A successor counts an inherited lease from later than its holder does."""
    stage = Stage()
    consumer = stage.hand("consumer")
    consumer.attach("b1", lease_ms=_LEASE_MS)
    [message] = stage.stored(b"m", due=stage.now_ms + 100)
    stage.delivered(consumer, message)
    stage.nodes["b1"].crash(goodbye=True)
    stage.until(lambda: stage.leader_of(stage.uid) not in (None, "b1"), "another leader")
    consumer.attach(stage.leader, lease_ms=_LEASE_MS)
    stage.until(lambda: len(consumer.pushes) == 2, "the message again, as it was not stated")
    stage.expect(consumer.pushes[1].lease_left_ms <= _LEASE_MS, f"{consumer.pushes[1]}")
    stage.finish()
