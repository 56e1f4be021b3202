"""Named scenarios of leases and deliveries: changes of leader, pauses, lost pushes, late acks."""

from __future__ import annotations

import pytest

from dueq import limits
from dueq.core.ports.events import ClientFrameReceived, PeerFrameReceived
from dueq.core.ports.persistence import PayloadsRead
from dueq_chaos.scenarios.stage import Stage
from dueq_chaos.scenarios.taps import peer_frames
from dueq_chaos.sim.users.consuming import ConsumingUser
from dueq_chaos.sim.users.producing import ProducingUser
from dueq_codecs.messages import Code, ConsumerFrame
from dueq_codecs.records import Outcome, RecordKind


def test_a_change_of_leader_costs_no_lease_and_repeats_no_delivery() -> None:
    """B8. Leases survive their leader: the holders keep them, and their acks count at the next one."""
    stage = Stage()
    consumer, rival = stage.hand("consumer"), stage.hand("rival")
    consumer.attach("b1", lease_ms=30_000)
    held = stage.delivered(consumer, *stage.stored(*[b"%d" % n for n in range(40)], due=stage.now_ms + 100))
    stage.nodes["b1"].crash()
    stage.until(lambda: stage.leader_of(stage.uid), "another leader")
    stage.step("a rival is first at the new leader; the holder attaches later, and says what it holds")
    rival.attach(stage.leader)
    rival.stay()
    stage.run_ms(3_000)
    consumer.attach(stage.leader, lease_ms=30_000, held=held)
    stage.run_ms(3_000)
    stage.expect(not rival.pushes, "the rival got nothing that is leased")
    stage.expect(len(consumer.pushes) == len(held), "nor the holder anything twice")
    request = stage.settled(consumer, consumer.settle(stage.leader, RecordKind.ACK, held))
    stage.expect(set(request.outcomes) == {Outcome.DONE}, "acks under the old tokens count")
    stage.finish()


def test_leases_that_were_granted_ahead_and_never_pushed_come_from_the_next_leader() -> None:
    """B8. The look-ahead's leases die with the leader that would have pushed them: not a whole lease late."""
    stage = Stage()
    consumer = stage.hand("consumer")
    consumer.attach("b1", lease_ms=30_000)
    stage.step("the lease is committed before the instant; b1 dies before it")
    [message] = stage.stored(b"m", due=stage.now_ms + 200)
    stage.until(lambda: stage.replica("b1").timeline.leased_count, "a lease ahead of time")
    stage.expect(stage.now_ms < message.due, "before the instant")
    stage.nodes["b1"].crash()
    stage.until(lambda: stage.leader_of(stage.uid), "another leader")
    consumer.attach(stage.leader, lease_ms=30_000)
    served_ms = stage.now_ms
    [pushed] = stage.delivered(consumer, message)
    stage.expect(pushed.at_ms - served_ms < 1_000, f"{pushed.at_ms - served_ms} ms after the takeover")
    stage.expect(pushed.at_ms >= message.due, "not early")
    stage.acked(consumer, [pushed])
    stage.finish()


def test_a_push_that_was_lost_on_the_way_is_repeated_with_its_token() -> None:
    """B8. No failover, one lost frame: the heartbeat shows it, and it comes again in a second."""
    stage = Stage()
    consumer = stage.hand("consumer")
    consumer.attach("b1", lease_ms=30_000)
    stage.run_ms(20)
    stage.network.cut("b1", "consumer", both=False)
    [message] = stage.stored(b"m", due=stage.now_ms + 50)
    stage.run_ms(200)
    stage.network.heal()
    stage.expect(not consumer.pushes, "the push was lost")
    consumer.stay()
    stage.run_ms(3_000)
    [pushed] = consumer.got(message)
    stage.expect(pushed.attempt == 1, "it is still the first attempt")
    stage.expect(pushed.at_ms - message.due < 3_000, "soon")
    stage.acked(consumer, [pushed])
    stage.finish()


def test_a_stale_ack_ends_nothing() -> None:
    """L7. The lease ran out and the message is with another: the first holder's late ack changes nothing."""
    stage = Stage()
    slow, quick = stage.hand("slow"), stage.hand("quick")
    slow.attach("b1", lease_ms=500)
    [message] = stage.stored(b"m", due=stage.now_ms + 50)
    [stale] = stage.delivered(slow, message)
    slow.goodbye("b1")
    quick.attach("b1", lease_ms=30_000)
    [fresh] = stage.delivered(quick, message)
    late = stage.settled(slow, slow.settle("b1", RecordKind.ACK, [stale]))
    stage.expect(late.outcomes == [Outcome.STALE], f"{late.outcomes}")
    stage.expect(stage.replica("b1").timeline.leased_count == 1, "the second lease stands")
    stage.acked(quick, [fresh])
    stage.finish()


def test_a_leader_that_wakes_up_replaced_pushes_nothing() -> None:
    """B13, R18, R22. Leased at due - 20 ms, paused at due - 5 ms, replaced, cancelled: then it wakes up."""
    stage = Stage()
    consumer, producer = stage.hand("consumer"), stage.hand("producer")
    consumer.attach("b1", lease_ms=2_000)
    [message] = stage.stored(b"m", due=stage.now_ms + 300)
    stage.until(lambda: stage.replica("b1").timeline.leased_count, "a committed lease")
    stage.expect(stage.now_ms < message.due, "before the instant")
    stage.nodes["b1"].pause(20_000_000)
    stage.step("another takes over; the lease runs out; the message is cancelled")
    stage.until(lambda: stage.leader_of(stage.uid) not in (None, "b1"), "another leader")
    cancel = producer.cancel(stage.leader, [message])
    stage.settled(producer, cancel)
    for _ in range(20):
        if cancel.outcomes == [Outcome.LEASED]:
            stage.run_ms(500)
            cancel = stage.settled(producer, producer.cancel(stage.leader, [message]))
    stage.expect(cancel.outcomes == [Outcome.DONE], f"{cancel.outcomes}")
    stage.step(
        "b1 wakes up: its clock shows that the instant has come, its memory that the lease is committed"
    )
    stage.until(lambda: not stage.nodes["b1"].paused, "b1 awake")
    stage.run_ms(3_000)
    stage.expect(not consumer.pushes, "nothing is pushed")
    stage.finish()


def test_a_leader_that_was_paused_and_not_replaced_lets_no_lease_run_out() -> None:
    """B13. On waking all leases look over, while acks and heartbeats lie unread: input first, then timers, moved."""
    stage = Stage(brokers=1, replicas=1, min_isr=1)
    consumer = stage.hand("consumer")
    consumer.attach("b1", lease_ms=1_000)
    messages = stage.stored(*[b"%d" % n for n in range(30)], due=stage.now_ms + 100)
    held = stage.delivered(consumer, *messages)
    stage.step("b1 stands still for ten leases; the acks of half of the messages come meanwhile")
    stage.nodes["b1"].pause(10_000_000)
    stage.run_ms(500)
    acks = consumer.settle("b1", RecordKind.ACK, held[:15])
    stage.until(lambda: acks.final, "the acks are taken after the pause")
    stage.expect(set(acks.outcomes) == {Outcome.DONE}, "none was too late")
    consumer.beat("b1")
    rest = stage.settled(consumer, consumer.settle("b1", RecordKind.ACK, held[15:]))
    stage.expect(set(rest.outcomes) == {Outcome.DONE}, "nor were the others")
    stage.expect(len(consumer.pushes) == len(messages), "nothing was delivered twice")
    stage.finish()


def test_a_leader_pushes_only_while_its_isr_answers() -> None:
    """B13. The lease is committed, its payload comes late from the disk, and b1 has heard nobody for half a second."""
    stage = Stage()
    [message] = stage.stored(b"m", due=stage.now_ms + 12_000)
    stage.step("restarts have emptied the memory: the payload has to be read")
    stage.run_ms(3_000)
    for node in stage.nodes.values():
        node.crash()
        node.start()
    stage.until(stage.whole, "a whole mesh")
    leader, consumer = stage.leader, stage.hand("consumer")
    consumer.attach(leader, lease_ms=30_000)
    consumer.stay()
    payload = stage.hold(leader, lambda event: isinstance(event, PayloadsRead))
    stage.until(lambda: stage.replica(leader).timeline.leased_count and payload.events, "a committed lease")
    stage.step("nobody is heard; then the payload is there")
    deaf = stage.hold(leader, peer_frames())
    stage.run_ms(700)
    payload.let_go()
    stage.run_ms(300)
    stage.expect(not consumer.pushes, "no push")
    deaf.forget()
    [pushed] = stage.delivered(consumer, message)
    stage.acked(consumer, [pushed])
    stage.finish()


def test_a_silent_consumer_keeps_its_leases_for_its_session_and_a_goodbye_ends_them_at_once() -> None:
    """S8, L5. "Cannot be heard" is not "gone": nothing is redelivered while its holder may still work on it."""
    stage = Stage()
    silent, leaving, other = stage.hand("silent"), stage.hand("leaving"), stage.hand("other")
    silent.attach("b1", credit=1, lease_ms=60_000)
    [first] = stage.stored(b"first", due=stage.now_ms + 50)
    stage.delivered(silent, first)
    stage.network.isolate("silent", stage.names)
    heard_ms = stage.now_ms
    leaving.attach("b1", lease_ms=60_000)
    [second] = stage.stored(b"second", due=stage.now_ms + 50)
    stage.delivered(leaving, second)
    leaving.goodbye("b1")
    other.attach("b1", lease_ms=60_000)
    [returned] = stage.delivered(other, second)
    stage.expect(returned.at_ms - heard_ms < 1_000, "returned at once")
    stage.expect(returned.attempt == 1, "and uncounted")
    other.stay()
    [again] = stage.delivered(other, first)
    stage.expect(again.at_ms - heard_ms >= 9_000, f"kept for its session: {again.at_ms - heard_ms} ms")
    stage.finish()


def test_a_dead_consumers_messages_come_again_without_anybodys_help() -> None:
    """L4. Nothing has to be configured or swept: a lease that runs out is expired by the leader."""
    stage = Stage()
    dead, alive = stage.hand("dead"), stage.hand("alive")
    dead.attach("b1", lease_ms=1_000)
    messages = stage.stored(b"a", b"b", b"c", due=stage.now_ms + 50)
    stage.delivered(dead, *messages)
    alive.attach("b1", lease_ms=60_000)
    pushes = stage.delivered(alive, *messages)
    stage.expect(all(pushed.attempt == 2 for pushed in pushes), "the attempt is counted")
    stage.expect(all(pushed.at_ms >= stage.now_ms - 60_000 for pushed in pushes), "in time")
    stage.acked(alive, pushes)
    stage.finish()


def test_what_a_consumer_returns_does_not_count_and_keeps_its_place() -> None:
    """L6, L9. A shutdown is no failure: released messages come again at once, uncounted, in their order."""
    stage = Stage()
    first, second = stage.hand("first"), stage.hand("second")
    first.attach("b1", lease_ms=60_000)
    messages = stage.stored(b"a", b"b", b"c", dues=[stage.now_ms + 50 + n for n in range(3)])
    held = stage.delivered(first, *messages)
    stage.settled(first, first.settle("b1", RecordKind.RELEASE, held))
    first.goodbye("b1")
    second.attach("b1", lease_ms=60_000)
    pushes = stage.delivered(second, *messages)
    stage.expect({pushed.attempt for pushed in pushes} == {1}, "uncounted")
    stage.expect([p.key for p in second.pushes] == [m.key for m in messages], "in their order")
    stage.acked(second, pushes)
    stage.finish()


def test_one_slow_message_holds_up_nothing() -> None:
    """L10. A message that is never acknowledged costs its own credit, not the window behind it."""
    stage = Stage()
    consumer = stage.hand("consumer")
    consumer.attach("b1", credit=2, lease_ms=120_000)
    [slow] = stage.stored(b"slow", due=stage.now_ms + 20)
    stage.delivered(consumer, slow)
    others = [stage.stored(b"%d" % n, due=stage.now_ms + 20)[0] for n in range(50)]
    for other in others:
        consumer.beat("b1")
        stage.acked(consumer, stage.delivered(consumer, other))
    stage.expect(len(consumer.got(slow)) == 1, "the slow one is still held")
    stage.finish()


def test_a_lease_shorter_than_the_wait_does_not_redeliver_what_is_not_due() -> None:
    """L1, L2. The wait is the broker's and not a hidden lease: nobody holds a message before its instant."""
    stage = Stage()
    consumer = stage.hand("consumer")
    consumer.attach("b1", lease_ms=200)
    [message] = stage.stored(b"later", due=stage.now_ms + 20_000)
    consumer.stay()
    stage.run_ms(19_000)
    stage.expect(not consumer.pushes and not stage.replica("b1").timeline.leased_count, "it only waits")
    stage.run_ms(2_000)
    stage.expect(consumer.got(message)[0].attempt == 1, "the first attempt is the first")
    stage.finish()


def test_an_extension_races_the_end_of_its_lease_and_one_of_them_wins() -> None:
    """L3. The sweep of leases and a worker that is alive meet in the log: never both."""
    stage = Stage()
    consumer = stage.hand("consumer")
    consumer.attach("b1", lease_ms=1_000)
    messages = stage.stored(*[b"%d" % n for n in range(8)], due=stage.now_ms + 50)
    held = stage.delivered(consumer, *messages)
    stage.run_ms(930)
    requests = []
    for pushed in held:
        requests.append(consumer.settle("b1", RecordKind.EXTEND, [pushed], amounts_ms=[60_000]))
        stage.run_ms(20)
    consumer.stay()
    for request in requests:
        stage.settled(consumer, request)
    stage.run_ms(3_000)
    for message, request in zip(messages, requests, strict=True):
        kept = request.outcomes == [Outcome.DONE]
        stage.expect((len(consumer.got(message)) == 1) == kept, f"{request.outcomes} {message}")
    stage.expect({request.outcomes[0] for request in requests} <= {Outcome.DONE, Outcome.STALE}, "told so")
    stage.finish()


def test_a_frame_of_an_older_attach_does_not_overrule_a_newer_one() -> None:
    """R15. Connections are not ordered with each other: of two attaches the higher one counts, whenever it comes."""
    stage = Stage()
    consumer = stage.hand("consumer")
    old = stage.hold(
        "b1",
        lambda event: isinstance(event, ClientFrameReceived) and isinstance(event.message, ConsumerFrame),
    )
    consumer.attach("b1", credit=1, lease_ms=60_000)
    stage.until(lambda: old.events, "the first attach is slow")
    old.forget()
    consumer.attach("b1", credit=5, lease_ms=60_000)
    stage.run_ms(20)
    old.again()
    messages = stage.stored(*[b"%d" % n for n in range(5)], due=stage.now_ms + 50)
    pushes = stage.delivered(consumer, *messages)
    stage.expect(consumer.consumer_replies["b1"].attach == 2, "the second attach is in force")
    stage.acked(consumer, pushes)
    stage.finish()


def test_an_ack_that_no_leader_answers_counts_when_it_is_repeated() -> None:
    """L7, B8. The ack was committed and its answer lost with the leader: repeated, it is done, not stale."""
    stage = Stage()
    consumer = stage.hand("consumer")
    consumer.attach("b1", lease_ms=60_000)
    [message] = stage.stored(b"m", due=stage.now_ms + 50)
    [pushed] = stage.delivered(consumer, message)
    stage.network.cut("b1", "consumer", both=False)
    ack = consumer.settle("b1", RecordKind.ACK, [pushed])
    stage.run_ms(50)
    stage.nodes["b1"].crash()
    stage.settled(consumer, ack)
    stage.expect(ack.codes[-1] == Code.OK and ack.outcomes == [Outcome.DONE], f"{ack.outcomes}")
    stage.finish()
    stage.expect(not [p for p in stage.drained() if p.key == message.key], "and it is never seen again")


def test_frames_between_brokers_that_are_lost_are_sent_again() -> None:
    """S7. A full pipe or a dead connection drops frames without a word: what matters is repeated until confirmed."""
    stage = Stage()
    lossy = [
        stage.hold(
            name, lambda event: isinstance(event, PeerFrameReceived) and stage.world.random.random() < 0.3
        )
        for name in stage.names
    ]
    consumer = stage.hand("consumer")
    consumer.attach("b1", lease_ms=60_000)
    consumer.stay()
    messages = [stage.stored(b"%d" % n, due=stage.now_ms + 50)[0] for n in range(20)]
    stage.acked(consumer, stage.delivered(consumer, *messages))
    stage.expect(sum(len(wall.events) for wall in lossy) > 20, "frames were lost")
    stage.expect(len(consumer.pushes) == len(messages), "each was delivered once")
    stage.finish()


def test_an_extension_that_is_on_its_way_is_not_cut_short_by_the_one_before_it() -> None:
    """To 300 ms, then to a minute, and the second takes long to commit: it must not be confirmed and lost at once."""
    stage = Stage()
    consumer = stage.hand("consumer")
    consumer.attach("b1", lease_ms=30_000)
    consumer.stay()
    [message] = stage.stored(b"m", due=stage.now_ms + 50)
    [held] = stage.delivered(consumer, message)
    slow = stage.spindles["b2"]
    slow.stopped = True
    short = consumer.settle("b1", RecordKind.EXTEND, [held], amounts_ms=[300])
    stage.run_ms(20)
    long = consumer.settle("b1", RecordKind.EXTEND, [held], amounts_ms=[60_000])
    stage.run_ms(20)
    stage.step("b2 writes the first one, and the second one 700 ms later")
    slow.go_on(1)
    stage.until(lambda: short.final, "the first one")
    stage.expect(not long.final, "not the second one")
    stage.run_ms(700)
    slow.go()
    stage.until(lambda: long.final, "the second one")
    stage.expect(long.outcomes == [Outcome.DONE], f"{long.outcomes}")
    stage.run_ms(5_000)
    stage.expect(len(consumer.pushes) == 1, "it is still held")
    stage.acked(consumer, [held])
    stage.finish()


@pytest.mark.parametrize("waits_ms", [0, 500, 1_000, 1_500])
def test_a_hand_over_in_fine_weather_makes_nothing_wait_for_a_consumers_next_question(waits_ms: int) -> None:
    """B8. The new leader has never heard of the consumers: the old one tells them that it serves.

    A consumer asks every two seconds who leads; it happens at another moment of these each time.
    """
    stage = Stage()
    stage.step("b1 was restarted, and another one leads what b1 is preferred for")
    stage.nodes["b1"].crash()
    stage.until(lambda: stage.leader_of(stage.uid) not in (None, "b1"), "another leader")
    stage.nodes["b1"].start()
    stage.until(stage.whole, "a whole mesh")
    stage.run_ms(waits_ms)
    ConsumingUser(stage.sdk("consumer"), stage.history, stage.topic, credit=64, lease_ms=30_000, seed=1)
    producer = ProducingUser(stage.sdk("producer"), stage.history)
    stage.run_ms(limits.BALANCE_CALM_MS - 5_000)
    stage.expect(not stage.leads("b1"), "b1 does not lead yet")
    stage.step("something is due every 100 ms while b1 takes its leadership back")
    dues = [stage.now_ms + 500 + 100 * number for number in range(100)]
    producer.schedule(stage.topic, [b"%d" % due for due in dues], dues)
    stage.run_ms(11_000)
    stage.expect(stage.leads("b1"), "b1 leads")
    late_ms = [
        message.deliveries[0].at_us // 1000 - int(message.payload) if message.deliveries else 11_000
        for message in stage.history.messages.values()
    ]
    stage.expect(len(late_ms) == len(dues) and max(late_ms) < 250, f"the latest is {max(late_ms)} ms late")
    stage.finish()


def test_the_credit_that_a_lost_partition_held_serves_the_others_at_once() -> None:
    """B14. Nobody else leads the lost one: no news of a successor has its leader look again."""
    stage = Stage()
    stage.topic = "two"
    stage.order_topic(stage.topic, ["b1", "b2"], ["b1", "b3"])
    stage.run_ms(3_000)
    one, other = [part.uid for part in stage.coordinator.topics["two"].partitions]
    stage.expect(stage.leader_of(one) == stage.leader_of(other) == "b1", "b1 leads both")
    consumer = stage.hand("consumer")
    consumer.attach("b1", credit=2, lease_ms=60_000)
    stage.run_ms(300)
    stage.delivered(consumer, *stage.stored(b"a", b"b", due=stage.now_ms, uid=one))
    [waits] = stage.stored(b"c", due=stage.now_ms + 1, uid=other)
    stage.run_ms(3_000)
    consumer.beat("b1")
    stage.run_ms(200)
    stage.step("b2 dies: b1 cannot lead the first partition any more, and nobody can")
    stage.nodes["b2"].crash()
    stage.until(lambda: not stage.leads("b1", one), "b1 gives up")
    stage.run_ms(1_500)  # the consumer was heard 3.2 s ago: it is healthy, and has credit for two
    stage.expect(consumer.got(waits), "a delivery")
