"""How requests are numbered, gathered, routed and repeated."""

from __future__ import annotations

import numpy as np
import pytest

from dueq import ids, limits
from dueq.client.core.ports import events
from dueq.client.core.ports.effects import Completed, Failed, Send
from dueq.client.core.ports.parts import PartsCall
from dueq.errors import (
    Busy,
    Disconnected,
    InvalidRequest,
    NotEnoughReplicas,
    OutcomeUnknown,
    PayloadTooLarge,
    TopicNotFound,
)
from dueq_codecs.messages import (
    ChangeReply,
    ChangeRequest,
    ChunkReply,
    ChunkRequest,
    Code,
    MetadataReply,
    MetadataRequest,
)
from dueq_codecs.records import Outcome, RecordKind
from tests.unit.client.stage import TOPIC, Stage, endpoint, of, ok, sent


@pytest.fixture
def stage() -> Stage:
    """One broker, one partition, connected, topic known, window 1 at sequence 1."""
    stage = Stage()
    stage.connect()
    stage.learn_topic()
    return stage


def refuse(request: ChangeRequest, code: Code, **fields: object) -> ChangeReply:
    return ChangeReply(request.request_id, code, "why", **fields)  # type: ignore[arg-type]


def test_an_insert_goes_to_the_leader_and_its_ids_follow_from_the_answer(stage: Stage) -> None:
    [request] = sent(stage.insert(7, b"x", b"yy", due=5_000), ChangeRequest)
    assert (request.uid, request.sequence, request.rows) == (1, 2, 2)
    [done] = of(stage.receive("a", ok(request, sequence=90, row=4, stamp=6_000)), Completed)
    assert done.call == 7
    assert done.value.ids() == [str(ids.MessageId(6_000, 1, 90, row)) for row in (4, 5)]


def test_ids_of_many_rows_are_those_of_single_rows(stage: Stage) -> None:
    [request] = sent(stage.insert(7, *[b"x"] * 20), ChangeRequest)
    [done] = of(stage.receive("a", ok(request, sequence=90, row=1)), Completed)
    assert done.value.ids() == [str(ids.MessageId(5_000, 1, 90, row)) for row in range(1, 21)]


def test_not_leader_moves_the_same_request_to_the_leader_named() -> None:
    stage = Stage(["a", "b"])
    stage.connect()
    stage.learn_topic()
    [first] = sent(stage.insert(7, b"x"), ChangeRequest)
    effects = stage.receive("a", refuse(first, Code.NOT_LEADER, leader="b"))
    [again] = of(effects, Send)
    assert again.link == stage.links[endpoint("b")]
    assert isinstance(again.message, ChangeRequest)
    assert (again.message.sequence, again.message.digest) == (first.sequence, first.digest)


def test_silence_asks_who_leads_and_sends_the_same_request_to_the_new_leader() -> None:
    stage = Stage(["a", "b"])
    stage.connect()
    stage.learn_topic()
    [first] = sent(stage.insert(7, b"x"), ChangeRequest)
    stage.leaders, stage.epoch = {1: "b"}, 2
    effects = stage.run_until(stage.ms + 1_000)
    assert sent(effects, MetadataRequest)
    more = stage.answer_metadata(effects)
    again = [e for e in of(more, Send) if isinstance(e.message, ChangeRequest)]
    assert [e.link for e in again] == [stage.links[endpoint("b")]]
    assert again[0].message == first
    [done] = of(stage.receive("b", ok(first, 90)), Completed)
    assert done.call == 7


def repetitions(stage: Stage, request: ChangeRequest, until_ms: int) -> list[ChangeRequest]:
    return [each for each in sent(stage.run_until(until_ms), ChangeRequest) if each == request]


def test_a_request_is_not_repeated_while_those_before_it_are_answered(stage: Stage) -> None:
    """A loaded leader takes a second for many large requests: repeated, they would cost it twice as much."""
    began_ms = stage.ms
    requests = [sent(stage.insert(call, *[b"x"] * 600), ChangeRequest)[0] for call in range(1, 5)]
    for at_ms, request in zip((900, 1_800, 2_700), requests, strict=False):
        assert not repetitions(stage, requests[3], began_ms + at_ms)
        stage.receive("a", ok(request, sequence=90))
    assert not repetitions(stage, requests[3], began_ms + 3_690)
    assert repetitions(stage, requests[3], began_ms + 3_710) == [requests[3]]


def test_a_request_is_repeated_after_4_s_though_those_before_it_are_answered(stage: Stage) -> None:
    began_ms = stage.ms
    requests = [sent(stage.insert(call, *[b"x"] * 600), ChangeRequest)[0] for call in range(1, 7)]
    for at_ms, request in zip((800, 1_600, 2_400, 3_200, 3_900), requests, strict=False):
        assert not repetitions(stage, requests[5], began_ms + at_ms)
        stage.receive("a", ok(request, sequence=90))
    assert repetitions(stage, requests[5], began_ms + 4_010) == [requests[5]]


def test_an_answer_to_a_later_request_does_not_hold_back_a_repetition(stage: Stage) -> None:
    began_ms = stage.ms
    first, second = (sent(stage.insert(call, *[b"x"] * 600), ChangeRequest)[0] for call in (1, 2))
    stage.run_until(began_ms + 900)
    stage.receive("a", ok(second, sequence=90))
    assert repetitions(stage, first, began_ms + 1_010) == [first]


def test_a_later_request_that_is_refused_changes_nothing_of_that(stage: Stage) -> None:
    """A loaded leader says so at once, and to the newest."""
    began_ms = stage.ms
    requests = [sent(stage.insert(call, *[b"x"] * 600), ChangeRequest)[0] for call in range(1, 7)]
    stage.run_until(began_ms + 900)
    stage.receive("a", ok(requests[0], sequence=90))
    stage.run_until(began_ms + 950)
    stage.receive("a", refuse(requests[5], Code.BUSY, retry_after_ms=5_000))
    assert not sent(stage.run_until(began_ms + 1_890), ChangeRequest)


def test_a_refusal_of_an_earlier_request_does_not_hold_back_a_repetition() -> None:
    """Nobody leads, say: it is no sign that the leader works."""
    stage = Stage()
    stage.connect()
    stage.learn_topic()
    began_ms = stage.ms
    first, second = (sent(stage.insert(call, *[b"x"] * 600), ChangeRequest)[0] for call in (1, 2))
    for at_ms in range(100, 1_000, 100):
        assert not repetitions(stage, second, began_ms + at_ms)
        stage.receive("a", refuse(first, Code.NOT_LEADER))
    assert repetitions(stage, second, began_ms + 1_010) == [second]


def test_what_went_to_an_earlier_leader_goes_to_the_new_one_as_soon_as_that_is_known() -> None:
    stage = Stage(["a", "b"], {1: "a"})
    stage.connect()
    stage.learn_topic()
    unanswered, refused = (sent(stage.insert(call, b"x"), ChangeRequest)[0] for call in (1, 2))
    asking = stage.receive("a", ChangeReply(refused.request_id, Code.NOT_LEADER))
    stage.leaders, stage.epoch = {1: "b"}, 2
    moved = stage.answer_metadata(asking + stage.run_until(stage.ms + 60))
    again = [e for e in of(moved, Send) if isinstance(e.message, ChangeRequest)]
    assert {e.link for e in again} == {stage.links[endpoint("b")]}
    assert unanswered.request_id in {e.message.request_id for e in again}


@pytest.mark.parametrize("relayed", [True, False], ids=["by a relay", "by its own link"])
def test_what_a_relay_took_to_the_same_broker_in_an_earlier_epoch_goes_to_it_anew(relayed: bool) -> None:
    """Its own link would have told that the broker had died."""
    stage = Stage(["a", "b"], {1: "a"})
    stage.connect(*["b"] if relayed else ["a", "b"])
    stage.learn_topic()
    unanswered, refused = (sent(stage.insert(call, b"x"), ChangeRequest)[0] for call in (1, 2))
    asking = stage.receive("b" if relayed else "a", ChangeReply(refused.request_id, Code.NOT_LEADER))
    stage.epoch = 2
    moved = stage.answer_metadata(asking + stage.run_until(stage.ms + 60))
    assert (unanswered.request_id in {e.request_id for e in sent(moved, ChangeRequest)}) == relayed
    calm = stage.answer_metadata(stage.run_until(stage.ms + 60))
    assert unanswered.request_id not in {e.request_id for e in sent(calm, ChangeRequest)}


def test_a_lost_link_sends_the_request_through_another_broker() -> None:
    stage = Stage(["a", "b"])
    stage.connect()
    stage.learn_topic()
    [first] = sent(stage.insert(7, b"x"), ChangeRequest)
    lost = stage.step(events.LinkLost(stage.links[endpoint("a")]))
    effects = lost + stage.run_until(stage.ms + 40)
    again = [e for e in of(effects, Send) if isinstance(e.message, ChangeRequest)]
    assert [e.link for e in again] == [stage.links[endpoint("b")]]
    assert again[0].message == first


def test_no_answer_until_the_deadline_is_an_unknown_outcome_and_repeat_sends_the_same_request(
    stage: Stage,
) -> None:
    [first] = sent(stage.insert(7, b"x", timeout_ms=2_500), ChangeRequest)
    [failed] = of(stage.run_until(stage.ms + 2_500), Failed)
    assert isinstance(failed.error, OutcomeUnknown)
    assert failed.repeat is not None
    again = stage.step(events.Repeat(8, stage.at_us(stage.ms + 1_000), failed.repeat))
    assert sent(again, ChangeRequest) == [first]
    [done] = of(stage.receive("a", ok(first, 90)), Completed)
    assert done.call == 8
    assert done.value.ids() == [str(ids.MessageId(5_000, 1, 90, 0))]


@pytest.mark.parametrize(
    ("code", "error"), [(Code.BUSY, Busy), (Code.NOT_ENOUGH_REPLICAS, NotEnoughReplicas)]
)
def test_a_refusal_for_the_time_being_is_repeated_and_then_raised(
    stage: Stage, code: Code, error: type[Exception]
) -> None:
    effects = stage.insert(7, b"x", timeout_ms=1_000)
    attempts = 0
    start = stage.ms
    while not of(effects, Failed):
        for request in sent(effects, ChangeRequest):
            attempts += 1
            stage.receive("a", refuse(request, code, retry_after_ms=100))
        effects = stage.step(ms=stage.ms + 10)
    assert stage.ms == start + 1_000
    assert 3 <= attempts <= 12
    [failed] = of(effects, Failed)
    assert isinstance(failed.error, error)


def test_a_refusal_after_a_silent_attempt_stays_unknown(stage: Stage) -> None:
    [request] = sent(stage.insert(7, b"x", timeout_ms=1_500), ChangeRequest)
    stage.run_until(stage.ms + 1_100)
    stage.receive("a", refuse(request, Code.BUSY, retry_after_ms=10_000))
    [failed] = of(stage.run_until(stage.ms + 1_000), Failed)
    assert isinstance(failed.error, OutcomeUnknown)


@pytest.mark.parametrize("code", [Code.INVALID_REQUEST, Code.PAYLOAD_TOO_LARGE, Code.NOT_ALLOWED])
def test_a_final_refusal_after_a_silent_attempt_stays_unknown(stage: Stage, code: Code) -> None:
    """The first attempt may have been stored: the topic was changed since, say."""
    [request] = sent(stage.insert(7, b"x", timeout_ms=9_000), ChangeRequest)
    stage.run_until(stage.ms + 1_100)
    [failed] = of(stage.receive("a", refuse(request, code)), Failed)
    assert isinstance(failed.error, OutcomeUnknown)
    assert failed.repeat is not None


def test_a_refusal_by_a_record_settles_what_became_of_earlier_attempts(stage: Stage) -> None:
    [request] = sent(stage.insert(7, b"x", timeout_ms=9_000), ChangeRequest)
    stage.run_until(stage.ms + 1_100)
    reply = refuse(request, Code.JOB_ENDED)
    reply.epoch = 1
    [failed] = of(stage.receive("a", reply), Failed)
    assert not isinstance(failed.error, OutcomeUnknown)


def test_a_repetition_that_is_refused_does_not_make_the_first_attempt_known(stage: Stage) -> None:
    """The call ended while its request was on its way: it may have been appended, whatever comes later."""
    [request] = sent(stage.insert(7, b"x", timeout_ms=200), ChangeRequest)
    [failed] = of(stage.run_until(stage.ms + 200), Failed)
    assert failed.repeat is not None
    stage.step(events.Repeat(8, stage.at_us(stage.ms + 500), failed.repeat))
    stage.receive("a", refuse(request, Code.BUSY, retry_after_ms=10_000))
    [again] = of(stage.run_until(stage.ms + 500), Failed)
    assert isinstance(again.error, OutcomeUnknown)


def test_an_answer_outcome_unknown_is_asked_again(stage: Stage) -> None:
    [request] = sent(stage.insert(7, b"x"), ChangeRequest)
    stage.receive("a", refuse(request, Code.OUTCOME_UNKNOWN))
    assert sent(stage.run_until(stage.ms + 500), ChangeRequest) == [request]


def test_small_calls_gather_while_two_requests_are_open(stage: Stage) -> None:
    first, second = (sent(stage.insert(call, b"%d" % call), ChangeRequest)[0] for call in (1, 2))
    for call in (3, 4, 5):
        assert not sent(stage.insert(call, b"%d" % call, b"+"), ChangeRequest)
    effects = stage.receive("a", ok(first, 91))
    [gathered] = of(effects, Send)
    assert isinstance(gathered.message, ChangeRequest)
    assert gathered.message.sequence == second.sequence + 1
    assert gathered.message.rows == 6
    assert list(gathered.bodies) == [b"3+4+5+"]
    done = of(stage.receive("a", ok(gathered.message, 93, row=10)), Completed)
    assert [(d.call, d.value.ids()) for d in done] == [
        (call, [str(ids.MessageId(5_000, 1, 93, row)), str(ids.MessageId(5_000, 1, 93, row + 1))])
        for call, row in ((3, 10), (4, 12), (5, 14))
    ]


def test_one_bad_call_in_a_gathered_request_spoils_only_itself(stage: Stage) -> None:
    open_requests = [sent(stage.insert(call, b"x"), ChangeRequest)[0] for call in (1, 2)]
    for call in (3, 4):
        stage.insert(call, b"x")
    [gathered] = sent(stage.receive("a", ok(open_requests[0], 91)), ChangeRequest)
    alone = sent(stage.receive("a", refuse(gathered, Code.INVALID_REQUEST)), ChangeRequest)
    alone += sent(stage.receive("a", ok(open_requests[1], 92)), ChangeRequest)
    assert [request.rows for request in alone] == [1, 1]
    [failed] = of(stage.receive("a", refuse(alone[0], Code.INVALID_REQUEST)), Failed)
    [done] = of(stage.receive("a", ok(alone[1], 93)), Completed)
    assert (failed.call, done.call) == (3, 4)
    assert isinstance(failed.error, InvalidRequest)


def test_who_leaves_a_gathered_request_that_was_refused_for_the_time_being_takes_its_rows_along(
    stage: Stage,
) -> None:
    """Its caller is told that nothing was taken: nothing must be, when the others ask again."""
    open_requests = [sent(stage.insert(call, b"%d" % call), ChangeRequest)[0] for call in (1, 2)]
    stage.insert(3, b"3", timeout_ms=500)
    stage.insert(4, b"4")
    [gathered] = sent(stage.receive("a", ok(open_requests[0], 91)), ChangeRequest)
    stage.receive("a", refuse(gathered, Code.BUSY, retry_after_ms=2_000))
    effects = stage.run_until(stage.ms + 500)
    [failed] = of(effects, Failed)
    assert (failed.call, type(failed.error)) == (3, Busy)
    stage.receive("a", ok(open_requests[1], 92))
    assert [list(send.bodies) for send in of(effects, Send) if isinstance(send.message, ChangeRequest)] == [
        [b"4"]
    ]


def test_who_repeats_a_gathered_request_alone_and_gives_up_again_leaves_its_window_free(stage: Stage) -> None:
    """The others were answered: nobody waits for the request any more, and no later one waits for it."""
    first, second = [sent(stage.insert(call, b"x"), ChangeRequest)[0] for call in (1, 2)]
    stage.insert(3, b"y", timeout_ms=100)
    stage.insert(4, b"z")
    [shared] = sent(stage.receive("a", ok(first, 1)), ChangeRequest)
    stage.receive("a", ok(second, 2))
    [failed] = of(stage.run_until(stage.ms + 100), Failed)
    stage.receive("a", ok(shared, 3))
    stage.step(events.Repeat(5, stage.at_us(stage.ms + 100), failed.repeat))
    assert isinstance(of(stage.run_until(stage.ms + 100), Failed)[-1].error, OutcomeUnknown)
    assert sent(stage.run_until(stage.ms + 5_000), ChangeRequest) == []


def test_at_most_128_numbers_lie_between_the_oldest_open_request_and_the_newest(stage: Stage) -> None:
    payloads = [b"x"] * 1024
    requests = [
        request for call in range(200) for request in sent(stage.insert(call, *payloads), ChangeRequest)
    ]
    assert [request.sequence for request in requests] == list(range(2, 130))
    assert len(sent(stage.receive("a", ok(requests[1], 90)), ChangeRequest)) == 0
    assert len(sent(stage.receive("a", ok(requests[0], 91)), ChangeRequest)) == 2


def test_a_long_call_is_cut_over_the_partitions_and_repeats_only_what_failed() -> None:
    stage = Stage(uids={1: "a", 2: "a", 3: "a"})
    stage.connect()
    stage.learn_topic()
    requests = sent(stage.insert(7, *[b"x"] * 2_500), ChangeRequest)
    assert [request.rows for request in requests] == [1024, 1024, 452]
    assert len({request.uid for request in requests}) == 3
    stage.receive("a", ok(requests[0], 90))
    stage.receive("a", refuse(requests[1], Code.INVALID_REQUEST))
    [failed] = of(stage.receive("a", ok(requests[2], 92)), Failed)
    assert failed.repeat is not None
    mixed = failed.repeat.mixed()
    assert [isinstance(entry, str) for entry in (mixed[1023], mixed[1024], mixed[2047], mixed[2048])] == [
        True, False, False, True,
    ]  # fmt: skip
    [again] = sent(stage.step(events.Repeat(8, stage.at_us(60_000), failed.repeat)), ChangeRequest)
    assert (again.uid, again.rows) == (requests[1].uid, 1024)
    [done] = of(stage.receive("a", ok(again, 93)), Completed)
    assert len(done.value.ids()) == 2_500


def test_rows_are_checked_before_anything_is_sent(stage: Stage) -> None:
    effects = stage.insert(7, b"x", b"y" * ((1 << 20) + 1)) + stage.run_until(stage.ms + 60)
    assert not of(effects, Failed)  # the topic may allow more by now
    effects += stage.answer_metadata(effects)
    [failed] = of(effects, Failed)
    assert isinstance(failed.error, PayloadTooLarge)
    assert not sent(effects, ChangeRequest)


def alter(stage: Stage, kind: RecordKind, uids: list[int], rows: list[int]) -> events.Alter:
    count = len(uids)
    return events.Alter(
        7,
        stage.at_us(stage.ms + 10_000),
        kind,
        TOPIC,
        np.full(count, 5_000, np.uint64),
        np.array(uids, np.uint32),
        np.full(count, 90, np.uint64),
        np.array(rows, np.uint16),
    )


def test_cancels_go_to_the_partitions_of_their_ids_and_outcomes_come_back_in_order() -> None:
    stage = Stage(uids={1: "a", 2: "a"})
    stage.connect()
    stage.learn_topic()
    requests = sent(stage.step(alter(stage, RecordKind.CANCEL, [2, 1, 2, 1], [0, 1, 2, 3])), ChangeRequest)
    assert [(r.uid, r.target_row.tolist()) for r in requests] == [(2, [0, 2]), (1, [1, 3])]
    stage.receive("a", ok(requests[0], 95, outcomes=[Outcome.DONE, Outcome.LEASED]))
    [done] = of(
        stage.receive("a", ok(requests[1], 96, outcomes=[Outcome.NOT_FOUND, Outcome.DONE])), Completed
    )
    assert isinstance(done.value, PartsCall)
    assert done.value.outcomes() == [Outcome.DONE, Outcome.NOT_FOUND, Outcome.LEASED, Outcome.DONE]


def test_an_id_of_another_topic_is_refused_after_looking_once_more(stage: Stage) -> None:
    effects = stage.step(alter(stage, RecordKind.CANCEL, [1, 9], [0, 1]), ms=stage.ms + 100)
    assert not sent(effects, ChangeRequest)
    [failed] = of(stage.answer_metadata(effects), Failed)
    assert isinstance(failed.error, InvalidRequest)
    assert "partition 9" in str(failed.error)


def test_a_topic_is_not_found_only_when_every_broker_says_so() -> None:
    stage = Stage(["a", "b"])
    stage.connect()
    [first] = sent(stage.insert(7, b"x"), MetadataRequest)
    asker = of(stage.effects, Send)[-1].link
    first_broker, second_broker = ("a", "b") if asker == stage.links[endpoint("a")] else ("b", "a")
    effects = stage.receive(first_broker, MetadataReply(first.request_id, Code.TOPIC_NOT_FOUND, "no"))
    assert not of(effects, Failed)
    [second] = sent(effects, MetadataRequest)
    [failed] = of(
        stage.receive(second_broker, MetadataReply(second.request_id, Code.TOPIC_NOT_FOUND, "no")), Failed
    )
    assert isinstance(failed.error, TopicNotFound)


def test_without_any_broker_a_call_fails_as_disconnected() -> None:
    stage = Stage()
    stage.step()
    stage.insert(7, b"x", timeout_ms=300)
    stage.step(events.LinkLost(1, "nobody listens there"))
    [failed] = of(stage.run_until(300), Failed)
    assert isinstance(failed.error, Disconnected)
    assert "nobody listens there" in str(failed.error)


def test_a_call_whose_topic_no_broker_tells_of_says_that_nothing_was_sent() -> None:
    stage = Stage()
    stage.connect()
    stage.insert(7, b"x", timeout_ms=300)
    [failed] = of(stage.run_until(stage.ms + 300), Failed)
    assert isinstance(failed.error, Disconnected)
    assert "in time (no broker answered); nothing was sent" in str(failed.error)


def test_payloads_of_just_a_chunk_go_in_requests_that_are_not_too_long(stage: Stage) -> None:
    payload, rows = bytes(limits.CHUNK_BYTES), limits.REQUEST_BYTES_MAX // limits.CHUNK_BYTES + 1
    requests = sent(stage.insert(7, *[payload] * rows), ChangeRequest)
    assert [request.rows for request in requests] == [rows - 1, 1]
    assert max(int(request.size.sum()) for request in requests) <= limits.REQUEST_BYTES_MAX


def test_an_abandoned_call_that_was_not_sent_is_never_sent(stage: Stage) -> None:
    requests = [sent(stage.insert(call, b"x"), ChangeRequest)[0] for call in (1, 2)]
    stage.insert(3, b"x")
    stage.step(events.Abandon(3))
    assert not sent(stage.receive("a", ok(requests[0], 91)), ChangeRequest)


def test_closing_fails_every_open_call(stage: Stage) -> None:
    stage.insert(7, b"x")
    [failed] = of(stage.step(events.Close()), Failed)
    assert failed.call == 7
    assert stage.core.next_deadline_us is None or stage.run_until(60_000) == []


LONG = bytes(range(256)) * 1024 * 3 + b"end"


def safe(request: ChunkRequest, upload: int = 77) -> ChunkReply:
    return ChunkReply(request.request_id, Code.OK, upload=upload, chunk=request.chunk)


def test_a_long_payload_is_uploaded_before_the_request_that_names_it(stage: Stage) -> None:
    effects = stage.insert(7, b"short", LONG)
    [first] = sent(effects, ChunkRequest)
    assert (first.upload, first.chunk, first.chunks) == (0, 0, 4)
    rest = sent(stage.receive("a", safe(first)), ChunkRequest)
    assert [(c.upload, c.chunk) for c in rest] == [(77, 1), (77, 2), (77, 3)]
    for chunk in rest[1:]:
        assert not sent(stage.receive("a", safe(chunk)), ChangeRequest)
    [order] = of(stage.receive("a", safe(rest[0])), Send)
    assert isinstance(order.message, ChangeRequest)
    assert order.message.upload.tolist() == [0, 77]
    assert list(order.bodies) == [b"short"]


def test_an_upload_that_a_new_leader_does_not_know_begins_anew_with_the_same_request(stage: Stage) -> None:
    chunks = sent(stage.insert(7, LONG), ChunkRequest)
    chunks += sent(stage.receive("a", safe(chunks[0])), ChunkRequest)
    effects = [effect for chunk in chunks[1:] for effect in stage.receive("a", safe(chunk))]
    [request] = sent(effects, ChangeRequest)
    sequence, digest = request.sequence, request.digest
    [first] = sent(stage.receive("a", refuse(request, Code.UNKNOWN_UPLOAD)), ChunkRequest)
    assert (first.upload, first.chunk) == (0, 0)
    rest = sent(stage.receive("a", safe(first, 99)), ChunkRequest)
    effects = [effect for chunk in rest for effect in stage.receive("a", safe(chunk, 99))]
    [again] = sent(effects, ChangeRequest)
    assert (again.sequence, again.digest, again.upload.tolist()) == (sequence, digest, [99])


def test_an_upload_that_has_begun_anew_ends_when_an_earlier_copy_of_the_request_is_answered(
    stage: Stage,
) -> None:
    chunks = sent(stage.insert(7, LONG), ChunkRequest)
    chunks += sent(stage.receive("a", safe(chunks[0])), ChunkRequest)
    effects = [effect for chunk in chunks[1:] for effect in stage.receive("a", safe(chunk))]
    [request] = sent(effects, ChangeRequest)
    [first] = sent(stage.receive("a", refuse(request, Code.UNKNOWN_UPLOAD)), ChunkRequest)
    [done] = of(stage.receive("a", ok(request, 90)), Completed)
    assert len(done.value.ids()) == 1
    assert not sent(stage.receive("a", safe(first, 99)), ChunkRequest)
    assert not sent(stage.run_until(stage.ms + 5_000), ChunkRequest)


def test_a_request_without_uploads_is_not_refused_for_one(stage: Stage) -> None:
    [request] = sent(stage.insert(7, b"short"), ChangeRequest)
    effects = stage.receive("a", refuse(request, Code.UNKNOWN_UPLOAD)) + stage.run_until(stage.ms + 100)
    assert not sent(effects, ChunkRequest)
    assert not of(effects, Failed)
    assert of(stage.receive("a", ok(request, 90)), Completed)


def lost_upload(stage: Stage, *, silent: bool) -> ChunkRequest:
    """A leader does not know an upload and gets it anew; if silent, a first copy of the request got no answer."""
    chunks = sent(stage.insert(7, LONG), ChunkRequest)
    chunks += sent(stage.receive("a", safe(chunks[0])), ChunkRequest)
    effects = [effect for chunk in chunks[1:] for effect in stage.receive("a", safe(chunk))]
    [request] = sent(effects, ChangeRequest)
    if silent:
        [request] = sent(stage.run_until(stage.ms + 1_100), ChangeRequest)
    [first] = sent(stage.receive("a", refuse(request, Code.UNKNOWN_UPLOAD)), ChunkRequest)
    return first


def test_a_long_payload_that_is_refused_the_second_time_leaves_no_request_open(stage: Stage) -> None:
    first = lost_upload(stage, silent=False)
    [failed] = of(stage.receive("a", ChunkReply(first.request_id, Code.PAYLOAD_TOO_LARGE, "why")), Failed)
    assert isinstance(failed.error, PayloadTooLarge)
    for call in range(limits.REQUESTS_IN_FLIGHT_MAX + 10):
        [request] = sent(stage.insert(100 + call, b"x"), ChangeRequest)
        assert of(stage.receive("a", ok(request, 100 + call)), Completed)


def test_nor_is_the_outcome_known_if_the_first_copy_of_its_request_got_no_answer(stage: Stage) -> None:
    first = lost_upload(stage, silent=True)
    [failed] = of(stage.receive("a", ChunkReply(first.request_id, Code.PAYLOAD_TOO_LARGE, "why")), Failed)
    assert isinstance(failed.error, OutcomeUnknown)


def test_of_two_retries_at_once_each_gets_an_answer(stage: Stage) -> None:
    """Two tasks may have caught the same error."""
    stage.insert(7, b"x", timeout_ms=500)
    [failed] = of(stage.run_until(stage.ms + 500), Failed)
    assert failed.repeat is not None
    stage.step(events.Repeat(8, stage.at_us(stage.ms + 9_000), failed.repeat))
    [second] = of(stage.step(events.Repeat(9, stage.at_us(stage.ms + 9_000), failed.repeat)), Failed)
    assert (second.call, type(second.error)) == (9, OutcomeUnknown)
    request = sent(stage.effects, ChangeRequest)[-1]
    [done] = of(stage.receive("a", ok(request, 90)), Completed)
    assert done.call == 8
    [third] = of(stage.step(events.Repeat(10, stage.at_us(stage.ms + 9_000), failed.repeat)), Completed)
    assert third.value.ids() == done.value.ids()


def test_a_retry_after_the_brokers_have_forgotten_is_refused(stage: Stage) -> None:
    stage.insert(7, b"x", timeout_ms=2_500)
    [failed] = of(stage.run_until(stage.ms + 2_500), Failed)
    assert failed.repeat is not None
    stage.ms += 15 * 60 * 1_000
    effects = stage.step(events.Repeat(8, stage.at_us(stage.ms + 1_000), failed.repeat))
    assert not sent(effects, ChangeRequest)
    [failed] = of(effects, Failed)
    assert isinstance(failed.error, OutcomeUnknown)


def test_requests_that_nothing_can_share_do_not_wait_for_each_other(stage: Stage) -> None:
    """Each recurrence is a request of its own: waiting for answers would bring it no company."""
    effects = []
    for call in range(limits.REQUESTS_IN_FLIGHT_MAX + 10):
        effects += stage.step(events.ActOnRecurrence(call, stage.at_us(9_000), TOPIC, f"r{call}", "{}"))
    requests = sent(effects, ChangeRequest)
    assert [request.name for request in requests] == [
        f"r{call}" for call in range(limits.REQUESTS_IN_FLIGHT_MAX)
    ]
    more = stage.receive("a", ok(requests[1], 90, outcomes=[0]))
    assert not sent(more, ChangeRequest), "no number is further from the oldest open one"
    more = stage.receive("a", ok(requests[0], 91, outcomes=[0]))
    assert [request.name for request in sent(more, ChangeRequest)] == ["r128", "r129"]
