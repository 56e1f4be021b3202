"""Named scenarios of answers: what a client is told is the result of a committed record, and told once."""

from __future__ import annotations

import json

import pytest

from dueq_chaos.scenarios.stage import Stage
from dueq_chaos.scenarios.taps import appends
from dueq_codecs.messages import Code, UpdateTopicRequest
from dueq_codecs.records import Outcome

FAR_MS = 3_600_000


def test_a_deposed_leader_gives_no_final_answer_from_memory() -> None:
    """B9. b1 is deposed and does not know; X was inserted at its successor: b1 must not say "not found"."""
    stage = Stage()
    producer, other = stage.hand("producer"), stage.hand("other")
    stage.step("b1 is cut off from everybody but one client, for the time that others need to take over")
    stage.coordinator.cut_off("b1")
    stage.run_ms(2_900)
    stage.isolate("b1")
    stage.until(lambda: stage.leader_of(stage.uid) not in (None, "b1"), "a successor")
    successor = stage.leader
    [x] = stage.settled(producer, producer.insert(successor, [b"x"], [stage.now_ms + FAR_MS])).stored()
    stage.expect(stage.leads("b1"), "b1 still believes that it leads")
    cancel = other.cancel("b1", [x])
    twin = other.insert("b1", [b"y"], [stage.now_ms + FAR_MS])
    stage.run_ms(3_000)
    finals = [code for code in cancel.codes + twin.codes if code == Code.OK]
    stage.expect(not finals, f"no answer of b1 is final: {cancel.codes} {twin.codes}")
    stage.coordinator.reconnect("b1")
    stage.finish()
    stage.settled(other, cancel)
    stage.expect(cancel.outcomes == [Outcome.DONE], "its successor's log decides")


def test_who_waits_for_a_record_that_is_cut_is_told_that_its_outcome_is_unknown() -> None:
    """B15, KAFKA-20634. Another record gets the sequence that a request waits for: that is not its answer."""
    stage = Stage()
    producer = stage.hand("producer")
    stage.isolate("b1")
    orphan = producer.insert("b1", [b"orphan"], [stage.now_ms + FAR_MS])
    end = stage.replica("b1").replica.log.end
    stage.until(lambda: stage.replica("b1").replica.log.end > end, "the orphan in b1's log")
    stage.until(lambda: stage.leader_of(stage.uid) in ("b2", "b3"), "a successor")
    stage.expect(orphan.codes == [Code.OUTCOME_UNKNOWN], f"told at once: {orphan.codes}")
    rivals = [stage.stored(b"rival %d" % number)[0] for number in range(3)]
    stage.step("b1 follows; the orphan's sequence commits with another record")
    stage.network.heal()
    stage.until(lambda: stage.replica("b1").timeline.applied >= rivals[-1].sequence, "b1 has the rivals")
    stage.expect(orphan.codes == [Code.OUTCOME_UNKNOWN], f"nothing more was told: {orphan.codes}")
    stage.finish()
    stage.settled(producer, orphan)
    stage.expect(stage.replica(stage.leader).timeline.scheduled_count == 4, "then it is stored, once")


def test_a_retry_gets_the_same_answer_from_the_next_leader() -> None:
    """B12, R15, KIP-890. The answer was lost with the leader; the number is remembered by the log, not by a process."""
    stage = Stage()
    producer = stage.hand("producer")
    [message] = stage.stored(b"cancelled once")
    stage.network.cut("b1", "producer", both=False)
    insert = producer.insert("b1", [b"stored once"], [stage.now_ms + FAR_MS])
    cancel = producer.cancel("b1", [message])
    stage.run_ms(100)
    stage.expect(not insert.replies and not cancel.replies, "both answers are lost")
    stage.nodes["b1"].crash()
    stage.settled(producer, insert)
    stage.settled(producer, cancel)
    stage.expect(cancel.outcomes == [Outcome.DONE], "still done, though there is nothing to cancel any more")
    stage.expect(stage.replica(stage.leader).timeline.scheduled_count == 1, "stored once")
    stage.finish()


def test_a_retry_gets_the_same_instants_of_its_windows_from_the_next_leader() -> None:
    """B12. The first leader's choice is in its record, so the next leader repeats it and does not choose again."""
    stage = Stage()
    producer = stage.hand("producer")
    stage.network.cut("b1", "producer", both=False)
    dues = [stage.now_ms + FAR_MS] * 5
    insert = producer.insert("b1", [b"%d" % row for row in range(5)], dues, window_ms=60_000)
    stage.run_ms(100)
    stage.expect(not insert.replies, "the answer is lost")
    log = stage.replica("b1").replica.log
    entries_of_log = [log.get(sequence) for sequence in range(1, log.end + 1)]
    [chosen] = [
        entry.record.window.tolist() for entry in entries_of_log if entry and len(entry.record.window)
    ]
    stage.nodes["b1"].crash()
    stage.settled(producer, insert)
    told = insert.replies[-1].window.tolist()
    stage.expect(told == chosen, f"told {told}, chosen {chosen}")
    stage.expect(len(set(told)) == 5 and max(told) <= 60_000, "five instants of one window")
    entries = stage.replica(stage.leader).timeline.waiting_hot()
    found = sorted(entries["wait_at"].tolist())[-5:]
    stage.expect(found == sorted(dues[0] + each for each in told), "where they wait")
    stage.finish()


def test_a_retry_that_overtakes_the_commit_of_the_first_attempt_takes_effect_once() -> None:
    """B12. First attempt and retry are both appended before either is applied: only apply can tell."""
    stage = Stage()
    producer = stage.hand("producer")
    walls = [stage.hold(name, appends("b1")) for name in ("b2", "b3")]
    insert = producer.insert("b1", [b"once"], [stage.now_ms + FAR_MS])
    stage.run_ms(5)
    producer.again("b1", insert)
    stage.run_ms(5)
    for wall in walls:
        wall.let_go()
    stage.until(lambda: len(insert.replies) == 2, "two answers")
    stage.expect(insert.codes == [Code.OK, Code.OK], f"{insert.codes}")
    stage.expect(insert.replies[0].sequence == insert.replies[1].sequence, "the same id")
    stage.expect(stage.replica("b1").timeline.scheduled_count == 1, "stored once")
    stage.finish()


def test_a_repetition_of_what_was_answered_needs_no_record() -> None:
    """B12. A loaded leader's clients repeat what it has answered just now: a record for each would double its load."""
    stage = Stage()
    producer = stage.hand("producer")
    insert = stage.settled(producer, producer.insert("b1", [b"a", b"b"], [stage.now_ms + FAR_MS] * 2))
    cancel = stage.settled(producer, producer.cancel("b1", insert.stored()[:1]))
    end = stage.replica("b1").replica.log.end
    for call in (insert, cancel):
        producer.again("b1", call)
        stage.until(lambda call=call: len(call.replies) == 2, "a second answer")  # type: ignore[misc]
        stage.expect(call.replies[0] == call.replies[1], f"the same answer: {call.replies}")
    stage.expect(stage.replica("b1").replica.log.end == end, "nothing was appended")
    stage.finish()


def test_a_repetition_is_answered_though_the_leader_can_commit_nothing() -> None:
    """B12. What has taken effect needs no replicas any more."""
    stage = Stage()
    producer = stage.hand("producer")
    insert = stage.settled(producer, producer.insert("b1", [b"a"], [stage.now_ms + FAR_MS]))
    for name in ("b2", "b3"):
        stage.nodes[name].crash()
    stage.run_ms(1_000)
    producer.again("b1", insert)
    stage.until(lambda: len(insert.replies) == 2, "a second answer")
    stage.expect(insert.replies[0] == insert.replies[1], f"the same answer: {insert.replies}")
    stage.finish()


@pytest.mark.parametrize("change", [{"payload_bytes_max": 100}, {"horizon_ms": 60_000}], ids=str)
def test_a_retry_gets_the_same_answer_though_a_limit_was_lowered_meanwhile(change: dict[str, int]) -> None:
    """B12. Limits are for what is new: who is told that his message was refused sends it to somebody else."""
    stage = Stage()
    producer, admin = stage.hand("producer"), stage.hand("admin")
    insert = stage.settled(producer, producer.insert("b1", [b"a" * 1_000], [stage.now_ms + FAR_MS]))
    admin.send("b1", UpdateTopicRequest(1, b"1" * 16, stage.topic, 0, json.dumps(change), 0))
    stage.until(lambda: 1 in admin.replies, "the change")
    stage.expect(admin.replies[1].code == Code.OK, admin.replies[1].text)
    stage.until(lambda: stage.replica("b1").settings.version, "the limit at the leader")
    producer.again("b1", insert)
    stage.until(lambda: len(insert.replies) == 2, "a second answer")
    stage.expect(insert.replies[0] == insert.replies[1], f"the same answer: {insert.replies}")
    stage.finish()


def test_numbers_that_arrive_in_another_order_all_take_effect() -> None:
    """B12. 7 arrives before 6: "the last number was 7" does not mean that 6 is done."""
    stage = Stage()
    producer = stage.hand("producer")
    later = stage.settled(producer, producer.insert("b1", [b"7"], [stage.now_ms + FAR_MS], sequence=7))
    earlier = stage.settled(producer, producer.insert("b1", [b"6"], [stage.now_ms + FAR_MS], sequence=6))
    stage.expect(later.codes == earlier.codes == [Code.OK], "both")
    stage.expect(later.stored()[0].key != earlier.stored()[0].key, "two messages")
    stage.expect(stage.replica("b1").timeline.scheduled_count == 2, "two messages")
    stage.finish()


def test_one_number_for_two_contents_is_refused_also_by_the_next_leader() -> None:
    """B12. A forked process, or a task that is run again, uses a number twice: never the first one's ids for it."""
    stage = Stage()
    producer = stage.hand("producer")
    stage.settled(producer, producer.insert("b1", [b"one"], [stage.now_ms + FAR_MS], sequence=9))
    stage.nodes["b1"].crash()
    stage.until(lambda: stage.leader_of(stage.uid), "another leader")
    other = stage.settled(
        producer, producer.insert(stage.leader, [b"another"], [stage.now_ms + FAR_MS], sequence=9)
    )
    stage.expect(other.codes == [Code.SEQUENCE_REUSED], f"{other.codes}")
    stage.finish()
    stage.expect(stage.replica(stage.leader).timeline.scheduled_count == 1, "the first one only")


def test_restarts_at_different_checkpoints_answer_and_hold_the_same() -> None:
    """B10. State on the disk that is ahead of its checkpoint would make replay answer "not found" for "done"."""
    stage = Stage()
    producer = stage.hand("producer")
    messages = stage.stored(*[b"%d" % row for row in range(20)])
    stage.run_ms(2_500)
    stage.step(
        "a checkpoint has the inserts; cancels come after it; brokers restart one by one, at odd moments"
    )
    cancels = [producer.cancel(stage.leader, [message]) for message in messages[:10]]
    for cancel in cancels:
        stage.settled(producer, cancel)
    for name, later_ms in (("b2", 100), ("b3", 2_500), ("b1", 700), ("b2", 2_500), ("b3", 10)):
        stage.nodes[name].crash()
        stage.nodes[name].start()
        stage.until(stage.whole, "a whole mesh")
        stage.run_ms(later_ms)
    stage.step("every retry is answered as before, everywhere")
    for cancel in cancels:
        cancel.replies.clear()
        producer.again(stage.leader, cancel)
        stage.until(lambda cancel=cancel: cancel.final, "an answer")  # type: ignore[misc]
        stage.expect(cancel.outcomes == [Outcome.DONE], "done, as it was")
    stage.expect(stage.replica(stage.leader).timeline.scheduled_count == 10, "ten are left")
    stage.finish()


def test_a_batch_is_answered_row_by_row() -> None:
    """L8. One row that cannot be done does not repeat, refuse or hide the others."""
    stage = Stage()
    producer, consumer = stage.hand("producer"), stage.hand("consumer")
    [gone, leased] = stage.stored(b"gone", b"leased", due=stage.now_ms + 100)
    [waiting] = stage.stored(b"waiting")
    stage.settled(producer, producer.cancel("b1", [gone]))
    consumer.attach("b1")
    stage.delivered(consumer, leased)
    request = stage.settled(producer, producer.cancel("b1", [gone, leased, waiting]))
    stage.expect(request.outcomes == [Outcome.NOT_FOUND, Outcome.LEASED, Outcome.DONE], f"{request.outcomes}")
    stage.finish()


def test_a_partition_that_cannot_commit_says_busy_before_its_memory_is_full() -> None:
    """R21, M16. Followers hang: what may be uncommitted is bounded by bytes, then inserts are told to come later."""
    stage = Stage()
    producer = stage.hand("producer")
    walls = [stage.hold(name, appends("b1")) for name in ("b2", "b3")]
    big = [b"x" * (200 << 10)] * 10
    requests = []
    for _ in range(14):
        requests.append(producer.insert("b1", big, [stage.now_ms + FAR_MS] * 10))
        stage.run_ms(5)
    stage.run_ms(20)
    codes = [request.codes for request in requests]
    stage.expect([Code.BUSY] in codes, f"busy: {codes}")
    stage.expect(codes[0] == [], "the first ones wait for their commit")
    for wall in walls:
        wall.let_go()
    for request in requests:
        stage.settled(producer, request)
    stage.finish()


def test_a_repetition_waits_for_the_answer_to_the_attempt_in_the_log() -> None:
    """A slow commit brings repetitions. Each is answered with the first attempt, and none costs a record of its own."""
    stage = Stage()
    producer = stage.hand("producer")
    walls = [stage.hold(name, appends("b1")) for name in ("b2", "b3")]
    before = stage.replica("b1").replica.log.end
    insert = producer.insert("b1", [b"%d" % row for row in range(50)], [stage.now_ms + FAR_MS] * 50)
    stage.run_ms(20)
    for broker in ("b1", "b2", "b1"):
        producer.again(broker, insert)
        stage.run_ms(20)
    stage.expect(insert.codes == [], "nothing is committed yet")
    records = stage.replica("b1").replica.log.end - before
    stage.expect(records == 1, f"one record for four attempts, not {records}")
    stage.step("the followers go on: each attempt is answered on the way that it came")
    for wall in walls:
        wall.let_go()
    stage.until(lambda: len(insert.codes) == 4, "four answers")
    stage.expect(insert.codes == [Code.OK] * 4, f"all of them OK: {insert.codes}")
    stage.expect(len({(reply.sequence, reply.row) for reply in insert.replies}) == 1, "the same messages")
    stage.finish()


def test_a_number_with_another_content_does_not_get_the_answer_that_is_waited_for() -> None:
    stage = Stage()
    producer = stage.hand("producer")
    walls = [stage.hold(name, appends("b1")) for name in ("b2", "b3")]
    insert = producer.insert("b1", [b"one"], [stage.now_ms + FAR_MS])
    stage.run_ms(20)
    other = producer.insert("b1", [b"other"], [stage.now_ms + FAR_MS])
    other.change.sequence = insert.change.sequence
    producer.again("b1", other)
    stage.run_ms(20)
    for wall in walls:
        wall.let_go()
    stage.until(lambda: insert.final and len(other.codes) == 2, "answers")
    stage.expect(insert.codes == [Code.OK], f"{insert.codes}")
    stage.expect(Code.SEQUENCE_REUSED in other.codes, f"{other.codes}")
    stage.finish()


def test_a_lost_leadership_answers_every_attempt_that_waits_for_a_record() -> None:
    stage = Stage()
    producer = stage.hand("producer")
    stage.isolate("b1")
    orphan = producer.insert("b1", [b"orphan"], [stage.now_ms + FAR_MS])
    stage.run_ms(20)
    producer.again("b1", orphan)
    stage.until(lambda: stage.leader_of(stage.uid) in ("b2", "b3"), "a successor")
    stage.expect(orphan.codes == [Code.OUTCOME_UNKNOWN] * 2, f"told at once: {orphan.codes}")
    stage.network.heal()
    stage.finish()
    orphan.replies.clear()
    stage.settled(producer, orphan)
    stage.expect(stage.replica(stage.leader).timeline.scheduled_count == 1, "then it is stored, once")
