"""Named scenarios of priority topics: what is urgent is next, and what of it an older build or client still knows."""

from __future__ import annotations

import numpy as np
import pytest

from dueq_chaos.scenarios.hand import Hand, Request, Stored
from dueq_chaos.scenarios.stage import Stage
from dueq_codecs.messages import Code
from dueq_codecs.records import LEVEL_OF_KINDS, Outcome, RecordKind

FAR_MS = 3_600_000


def ranked(stage: Stage, *ranks: int, due: int = 0) -> list[Stored]:
    """Schedule a message of each rank, whose payload says it."""
    hand = stage.hand("producer")
    dues = [due or stage.now_ms] * len(ranks)
    request = hand.insert(stage.leader, [b"%d" % rank for rank in ranks], dues, ranks=list(ranks))
    return stage.settled(hand, request).stored()


def consumed(stage: Stage, hand: Hand, count: int) -> list[bytes]:
    """Receive and acknowledge, one after the other."""
    for number in range(count):
        stage.until(lambda number=number: len(hand.pushes) > number, "the next one")  # type: ignore[misc]
        stage.acked(hand, hand.pushes[number:])
    return [pushed.payload for pushed in hand.pushes]


def test_with_a_credit_of_one_every_message_is_the_most_urgent_of_its_instant() -> None:
    stage = Stage(kind="priority")
    ranked(stage, 7, 3, 65_535, 3, 0, 7)
    consumer = stage.hand("consumer")
    consumer.attach(stage.leader, credit=1, lease_ms=30_000)
    consumer.stay()
    assert consumed(stage, consumer, 2) == [b"0", b"3"]
    stage.step("one that is more urgent than the next comes while the second is in hand")
    ranked(stage, 1)
    assert consumed(stage, consumer, 7) == [b"0", b"3", b"3", b"1", b"7", b"7", b"65535"]
    stage.finish()


def test_a_message_competes_by_its_rank_from_its_instant_on() -> None:
    stage = Stage(kind="priority")
    soon = stage.now_ms + 400
    ranked(stage, 0, due=soon)
    ranked(stage, 5, 5, 5)
    consumer = stage.hand("consumer")
    consumer.attach(stage.leader, credit=1, lease_ms=30_000)
    consumer.stay()
    assert consumed(stage, consumer, 1) == [b"5"]
    stage.run_ms(1)
    stage.until(lambda: len(consumer.pushes) == 2, "the second")
    stage.run_ms(500)
    stage.acked(consumer, consumer.pushes[1:])
    stage.until(lambda: len(consumer.pushes) == 3, "the third")
    stage.expect(consumer.pushes[2].payload == b"0", "what has become due meanwhile is next")
    stage.expect(consumer.pushes[2].at_ms >= soon, "and not before its instant")
    stage.finish()


def test_the_next_leader_goes_on_with_the_most_urgent() -> None:
    stage = Stage(kind="priority", hot_rows_total=16)
    backlog = ranked(stage, *[100 + number % 50 for number in range(300)])
    stage.settled(stage.hand("producer"), stage.hand("producer").rank("b1", backlog[40:41], [3]))
    stage.run_ms(6_000)  # a checkpoint has it
    stage.nodes["b1"].crash()
    stage.until(lambda: stage.leader_of(stage.uid), "a leader")
    ranked(stage, 2)
    consumer = stage.hand("consumer")
    consumer.attach(stage.leader, credit=4, lease_ms=30_000)
    consumer.stay()
    stage.until(lambda: len(consumer.pushes) >= 4, "the first four")
    assert [pushed.payload for pushed in consumer.pushes] == [b"2", b"140", b"100", b"100"]
    stage.nodes["b1"].start()
    stage.finish()


def test_a_change_finds_what_waits_and_leaves_what_a_consumer_has() -> None:
    stage = Stage(kind="priority")
    producer, consumer = stage.hand("producer"), stage.hand("consumer")
    held = ranked(stage, 0)
    consumer.attach(stage.leader, credit=1, lease_ms=30_000)
    consumer.stay()
    stage.delivered(consumer, *held)
    first, second = ranked(stage, 4, 5)
    wrong = first._replace(first=first.first + 1)
    request = stage.settled(
        producer, producer.rank(stage.leader, [*held, second, wrong, second], [9, 1, 0, 2])
    )
    assert request.outcomes == [Outcome.LEASED, Outcome.DONE, Outcome.NOT_FOUND, Outcome.DONE]
    stage.acked(consumer, consumer.pushes)
    stage.until(lambda: len(consumer.pushes) == 2, "the next")
    stage.expect(consumer.pushes[1].payload == b"5", "the one that is of rank 2 now")
    stage.acked(consumer, consumer.pushes[1:])
    stage.settled(producer, producer.rank(stage.leader, held, [3]))
    stage.finish()


def test_what_has_no_ranks_refuses_them_and_changes_nothing() -> None:
    stage = Stage()
    hand, stored = stage.hand("producer"), stage.stored(b"x")
    end = stage.replica("b1").replica.log.end
    for request in (
        hand.insert("b1", [b"y"], [stage.now_ms + FAR_MS], ranks=[0]), hand.rank("b1", stored, [1]),
    ):  # fmt: skip
        reply = stage.settled(hand, request).replies[-1]
        stage.expect(reply.code == Code.INVALID_REQUEST, f"refused, not {reply.code.name}")
        stage.expect("kind timeline" in reply.text and stage.topic in reply.text, reply.text)
    stage.expect(stage.replica("b1").replica.log.end == end, "nothing was logged")
    stage.finish()


def test_a_client_that_knows_no_ranks_schedules_moves_and_cancels() -> None:
    """Its messages are of rank 0: it never asked for anything else."""
    stage = Stage(kind="priority")
    hand = stage.hand("before")
    ranked(stage, 1, due=stage.now_ms + FAR_MS)
    first, second, third = stage.stored(b"a", b"b", b"c")
    soon = stage.now_ms + 50
    stage.settled(hand, hand.move("b1", [second, first], [soon, soon + 1]))
    stage.settled(hand, hand.cancel("b1", [third]))
    hand.attach("b1")
    hand.stay()
    stage.delivered(hand, first, second)
    assert [pushed.payload for pushed in hand.pushes] == [b"b", b"a"]
    found = stage.browsed(hand, "b1", payloads=True)
    assert [(row.rank, row.body) for row in found] == [(1, b"1")]
    stage.acked(hand, hand.pushes)
    stage.finish()


@pytest.mark.parametrize("with_ranks", [True, False])
def test_ranks_wait_until_no_replica_is_of_the_build_before(with_ranks: bool) -> None:
    stage = Stage()
    stage.step("b3 is of the build before kinds")
    stage.nodes["b3"].crash(goodbye=True)
    stage.nodes["b3"].level = LEVEL_OF_KINDS - 1
    stage.nodes["b3"].start()
    stage.until(stage.whole, "b3 is back")
    uid = stage.create_topic("ranked", 1, kind="priority")[0]
    hand = stage.hand("producer")

    def ask() -> Request:
        request = hand.insert(
            stage.leader_of(uid) or "", [b"x"], [stage.now_ms + FAR_MS], uid=uid, topic="ranked",
            ranks=[4] if with_ranks else None,
        )  # fmt: skip
        stage.until(lambda: request.replies, "an answer")
        return request

    request = ask()
    if not with_ranks:
        stage.expect(request.codes == [Code.OK], "what the build before knows goes on")
        change = hand._naming(RecordKind.CHANGE, request.stored(), "ranked", uid)
        change.rank = np.array([1], np.uint16)
        request = hand._ask(stage.leader_of(uid) or "", change, [], [], 0)
        stage.until(lambda: request.replies, "an answer")
    stage.expect(
        request.codes == [Code.BUSY], f"not yet, and not {request.codes}: {request.replies[-1].text}"
    )
    stage.step("b3 is upgraded")
    stage.nodes["b3"].crash(goodbye=True)
    stage.nodes["b3"].level = stage.nodes["b1"].level
    stage.nodes["b3"].start()
    stage.until(stage.whole, "b3 is back")
    stage.until(lambda: ask().codes == [Code.OK], "ranks are taken now")
    stage.finish()


def test_a_topic_made_again_as_another_kind_is_delivered_in_the_order_of_that_kind() -> None:
    """The brokers hear of the deletion and of the creation at once."""
    stage = Stage()
    stage.run_ms(1_000)
    stage.coordinator.delete(stage.topic)
    stage.uids = stage.create_topic(stage.topic, 1, 3, 2, kind="priority")
    stage.uid = stage.uids[0]
    ranked(stage, 7, 3, 5)
    consumer = stage.hand("consumer")
    consumer.attach(stage.leader, credit=1, lease_ms=30_000)
    consumer.stay()
    assert consumed(stage, consumer, 3) == [b"3", b"5", b"7"]
    stage.finish()
