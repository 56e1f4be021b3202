"""Acks that nobody waits for go along with records that are made anyway."""

from __future__ import annotations

from dueq import limits
from dueq.core.ports.events import StorePressure
from dueq_chaos.scenarios.hand import Hand, Pushed, Request
from dueq_chaos.scenarios.stage import Stage
from dueq_codecs.messages import Code
from dueq_codecs.records import Outcome, Record, RecordKind

COMMIT_MS = 50
"""Within this a record is committed and its requests are answered."""


def holding(
    stage: Stage, count: int, *, credit: int = 64, lease_ms: int = 30_000
) -> tuple[Hand, list[Pushed]]:
    """A consumer at b1 with so many messages in its hands."""
    consumer = stage.hand("consumer")
    consumer.attach("b1", credit=credit, lease_ms=lease_ms)
    messages = stage.stored(*[b"%d" % number for number in range(count)], due=stage.now_ms + 50)
    return consumer, stage.delivered(consumer, *messages)


def patiently(hand: Hand, *pushes: Pushed) -> Request:
    return hand.settle("b1", RecordKind.ACK, list(pushes), patient=True)


def records(stage: Stage, kind: RecordKind) -> list[Record]:
    """The records of one kind in b1's log."""
    log = stage.replica("b1").replica.log
    entries = [log.get(sequence) for sequence in range(log.start, log.end + 1)]
    return [entry.record for entry in entries if entry is not None and entry.record.kind == kind]


def test_patient_acks_share_a_record_and_wait_for_it_no_longer_than_allowed() -> None:
    stage = Stage()
    consumer, held = holding(stage, 4)
    begun_ms = stage.now_ms
    requests = []
    for pushed in held:
        requests.append(patiently(consumer, pushed))
        stage.run_ms(limits.ACK_GATHER_MS // 5)
    stage.expect(not records(stage, RecordKind.ACK), "all of them wait")
    stage.until(lambda: all(request.final for request in requests), "the answers")
    stage.expect(stage.now_ms - begun_ms < limits.ACK_GATHER_MS + COMMIT_MS, "soon after the time is over")
    stage.expect([len(record.requests) for record in records(stage, RecordKind.ACK)] == [4], "one record")
    stage.expect([request.outcomes for request in requests] == [[Outcome.DONE]] * 4, "all are done")
    stage.finish()


def test_a_patient_ack_goes_along_with_an_insert_into_another_partition() -> None:
    stage = Stage(partitions=4)
    consumer, [pushed] = holding(stage, 1)
    request = patiently(consumer, pushed)
    [other] = [uid for uid in stage.uids if uid != stage.uid and stage.leads("b1", uid)]
    stage.stored(b"another", uid=other)
    stage.run_ms(COMMIT_MS)
    stage.expect(request.outcomes == [Outcome.DONE], "done along with the insert")
    stage.acked(consumer, [])
    stage.drained()
    stage.finish()


def test_a_patient_ack_goes_along_with_one_that_somebody_waits_for_and_before_it() -> None:
    stage = Stage()
    consumer, [first, second] = holding(stage, 2)
    patient = patiently(consumer, first)
    stage.run_ms(5)
    awaited = consumer.settle("b1", RecordKind.ACK, [second])
    stage.run_ms(COMMIT_MS)
    stage.expect(patient.final and awaited.final, "both are answered")
    [record] = records(stage, RecordKind.ACK)
    stage.expect(
        [ref.sequence for ref in record.requests] == [patient.change.sequence, awaited.change.sequence],
        "in order",
    )
    stage.finish()


def test_an_ack_does_not_wait_while_a_due_message_wants_the_credit_that_it_holds() -> None:
    stage = Stage()
    consumer, [first, _] = holding(stage, 2, credit=2)
    [due] = stage.stored(b"next", due=stage.now_ms)
    stage.run_ms(COMMIT_MS)
    stage.expect(not consumer.got(due), "there is no credit")
    patiently(consumer, first)
    stage.run_ms(COMMIT_MS)
    stage.expect(consumer.got(due), "it got the credit that the ack had held")
    stage.drained()
    stage.finish()


def test_a_message_that_comes_due_while_an_ack_waits_gets_its_credit_at_once() -> None:
    stage = Stage()
    consumer, [first, _] = holding(stage, 2, credit=2)
    [later] = stage.stored(b"later", due=stage.now_ms + 200)
    stage.run_ms(later.due - stage.now_ms - limits.ACK_GATHER_MS // 2)
    patiently(consumer, first)
    stage.until(lambda: consumer.got(later), "the delivery")
    stage.expect(
        consumer.got(later)[0].at_ms - later.due < limits.ACK_GATHER_MS // 2, "before the time is over"
    )
    stage.drained()
    stage.finish()


def test_a_lease_that_runs_out_while_its_ack_waits_is_ended_by_the_ack() -> None:
    stage = Stage()
    consumer, [pushed] = holding(stage, 1, lease_ms=500)
    stage.run_ms(500 - limits.ACK_GATHER_MS // 2)
    request = patiently(consumer, pushed)
    stage.run_ms(500)
    stage.expect(request.outcomes == [Outcome.DONE], "the ack came first")
    stage.expect(len(consumer.pushes) == 1, "nobody gets it again")
    stage.finish()


def test_an_ack_that_waits_comes_before_the_end_of_its_lease_whatever_else_the_turn_brings() -> None:
    """An insert has everything leave that waits; the lease runs out in that very turn, before its records are made."""
    stage = Stage()
    consumer, [pushed] = holding(stage, 1)
    request = patiently(consumer, pushed)
    stage.run_ms(5)
    node, partition = stage.nodes["b1"], stage.replica("b1")
    stage.expect(partition.uid in partition.ctx.gathering, "the ack waits")
    partition.ctx.gathering.end(partition.uid)
    leased = partition.timeline.leased()
    expire = Record(RecordKind.EXPIRE, partition.uid, 0, 0, 0)
    expire.first, expire.token = leased["first"].copy(), leased["token"].copy()
    expire.target_sequence, expire.target_row = leased["sequence"].copy(), leased["row"].copy()
    partition.propose(expire, node.now())
    node.wake()
    stage.run_ms(COMMIT_MS)
    stage.expect(request.outcomes == [Outcome.DONE], "the ack came first")
    stage.expect(len(consumer.pushes) == 1, "nobody gets it again")
    stage.finish()


def test_a_leader_that_steps_aside_answers_the_acks_that_wait() -> None:
    stage = Stage()
    consumer, [pushed] = holding(stage, 1)
    request = patiently(consumer, pushed)
    stage.run_ms(5)
    stage.nodes["b1"].squeeze(StorePressure("disk_full", True))
    stage.until(lambda: request.codes, "an answer")
    stage.expect(request.codes == [Code.NOT_LEADER], "it was not appended")
    stage.until(lambda: stage.leader_of(stage.uid) not in (None, "b1"), "another leader")
    stage.expect(stage.settled(consumer, request).outcomes == [Outcome.DONE], "and counts at the next one")
    stage.finish()
