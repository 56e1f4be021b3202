"""Browsing in the SDK: whom it asks, what it repeats, when it begins anew, and how pages are put together."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from zlib import crc32

import numpy as np
import pytest

from dueq import limits
from dueq.client.browsing import BrowsePage, Walk
from dueq.client.core.asking.browsing import PageAnswer
from dueq.client.core.ports import events
from dueq.client.core.ports.effects import Completed, Effect, Failed, Send
from dueq.errors import Busy, Disconnected, InvalidRequest, NotLeader, SnapshotLost, TopicNotFound
from dueq_codecs.messages import BrowseReply, BrowseRequest, Code, MetadataReply, MetadataRequest
from dueq_codecs.meta import with_key
from tests.unit.client.stage import TOPIC, Stage, endpoint, of, sent

PATIENCE_MS = 10_000


@pytest.fixture
def stage() -> Stage:
    """Two brokers, connected; a leads the one partition."""
    stage = Stage(["a", "b"])
    stage.connect()
    stage.learn_topic()
    return stage


def browse(stage: Stage, call: int = 7, **fields: Any) -> list[Effect]:
    return stage.step(events.Browse(call, stage.at_us(stage.ms + PATIENCE_MS), TOPIC, 0, **fields))


def refuse(request: BrowseRequest, code: Code, **fields: Any) -> BrowseReply:
    return BrowseReply(request.request_id, code, "why", **fields)


def rows(payloads: Sequence[bytes], bodies: Sequence[bytes] | None = None, **fields: Any) -> PageAnswer:
    """A page whose rows wait one ms after the other, beginning at 1,000."""
    bodies = payloads if bodies is None else bodies
    count = len(payloads)
    wait_at = np.arange(1_000, 1_000 + count, dtype=np.uint64)
    columns: dict[str, Any] = {
        "snapshot": 5, "leader": "a", "epoch": 2, "applied": 40, "stamp": 900, "last": True, "wait_at": wait_at,
        "first": wait_at, "due": wait_at, "sequence": np.full(count, 30, np.uint64),
        "row": np.arange(count, dtype=np.uint16), "size": np.array([len(p) for p in payloads], np.uint32),
        "crc": np.array([crc32(p) for p in payloads], np.uint32), "attempt": np.zeros(count, np.uint16),
        "keyed": np.zeros(count, np.uint8), "upload": np.zeros(count, np.uint64),
        "body_size": np.array([len(body) for body in bodies], np.uint32), **fields,
    }  # fmt: skip
    return PageAnswer(BrowseReply(1, Code.OK, **columns), 1, b"".join(bodies))


# ------------------------------------------------------------------ asking


def test_the_first_page_is_asked_of_the_leader_and_the_answer_completes_the_call(stage: Stage) -> None:
    [request] = sent(browse(stage, from_ms=5, until_ms=9, payloads=True), BrowseRequest)
    assert (request.uid, request.snapshot, request.from_ms, request.until_ms) == (1, 0, 5, 9)
    assert request.payloads
    [done] = of(stage.receive("a", BrowseReply(request.request_id, Code.OK, last=True), b"body"), Completed)
    assert (done.call, done.value.uid, done.value.body) == (7, 1, b"body")


def test_further_pages_are_asked_of_the_broker_that_keeps_the_snapshot(stage: Stage) -> None:
    [send] = of(browse(stage, snapshot=5, leader="b", after=(3, 4)), Send)
    assert send.link == stage.links[endpoint("b")]
    assert isinstance(send.message, BrowseRequest)
    assert (send.message.snapshot, send.message.after_wait_at, send.message.after_key) == (5, 3, 4)


def test_a_topic_that_is_not_known_yet_is_looked_up_first() -> None:
    stage = Stage()
    stage.connect()
    effects = browse(stage)
    assert not sent(effects, BrowseRequest)
    assert sent(stage.answer_metadata(effects), BrowseRequest)


def test_a_partition_that_the_topic_does_not_have_is_refused(stage: Stage) -> None:
    asked = stage.step(events.Browse(7, stage.at_us(1_000), TOPIC, 3)) + stage.run_until(stage.ms + 60)
    assert not of(asked, Failed)  # the topic may have got more
    assert not of(stage.answer_metadata(asked), Failed)  # the other broker may have heard of them
    [failed] = of(stage.answer_metadata(stage.run_until(stage.ms + 60)), Failed)
    assert isinstance(failed.error, InvalidRequest)
    assert "has 1 partitions, not one 3" in str(failed.error)


def test_the_first_broker_that_is_asked_may_not_have_heard_of_new_partitions(stage: Stage) -> None:
    asked = stage.step(events.Browse(7, stage.at_us(1_000), TOPIC, 1)) + stage.run_until(stage.ms + 60)
    [first] = [effect for effect in of(asked, Send) if isinstance(effect.message, MetadataRequest)]
    asked = stage.answer_metadata(asked) + stage.run_until(stage.ms + 60)
    [second] = [effect for effect in of(asked, Send) if isinstance(effect.message, MetadataRequest)]
    assert first.link != second.link
    stage.leaders = {1: "a", 2: "b"}
    [request] = sent(stage.answer_metadata(asked), BrowseRequest)
    assert (request.uid, of(stage.effects, Failed)) == (2, [])


def test_not_leader_moves_the_question_to_the_new_leader(stage: Stage) -> None:
    [request] = sent(browse(stage), BrowseRequest)
    stage.leaders = {1: "b"}
    stage.epoch = 2
    effects = stage.receive("a", refuse(request, Code.NOT_LEADER))
    effects += stage.run_until(stage.ms + 60)
    effects += stage.answer_metadata(effects)
    again = [effect for effect in stage.run_until(stage.ms + 200) if isinstance(effect, Send)]
    assert [send.link for send in again if isinstance(send.message, BrowseRequest)] == [
        stage.links[endpoint("b")]
    ]


def test_busy_is_asked_again_after_the_time_it_names_and_is_the_error_in_the_end(stage: Stage) -> None:
    [request] = sent(browse(stage), BrowseRequest)
    stage.receive("a", refuse(request, Code.BUSY, retry_after_ms=2_000))
    assert not sent(stage.run_until(stage.ms + 900), BrowseRequest)
    [again] = sent(stage.run_until(stage.ms + 1_100), BrowseRequest)
    assert again.request_id == request.request_id
    stage.receive("a", refuse(again, Code.BUSY, retry_after_ms=PATIENCE_MS * 3))
    [failed] = of(stage.run_until(PATIENCE_MS), Failed)
    assert isinstance(failed.error, Busy)


def test_silence_repeats_the_question_and_ends_as_no_leader(stage: Stage) -> None:
    questions = sent(stage.step(events.Browse(7, stage.at_us(4_500), TOPIC, 0)), BrowseRequest)
    questions += sent(stage.run_until(4_499), BrowseRequest)
    assert len(questions) == 2
    assert len({request.request_id for request in questions}) == 1
    [failed] = of(stage.run_until(4_500), Failed)
    assert isinstance(failed.error, NotLeader)


def test_without_any_broker_the_call_ends_as_disconnected() -> None:
    stage = Stage()
    browse(stage)
    [failed] = of(stage.run_until(PATIENCE_MS), Failed)
    assert isinstance(failed.error, Disconnected)


def test_a_lost_link_asks_by_another_one(stage: Stage) -> None:
    [request] = sent(browse(stage), BrowseRequest)
    stage.step(events.LinkLost(stage.links[endpoint("a")], "gone"))
    [again] = [
        effect for effect in stage.run_until(stage.ms + 99 + 1) if isinstance(effect, Send)
        and isinstance(effect.message, BrowseRequest)
    ]  # fmt: skip
    assert again.link == stage.links[endpoint("b")]
    assert isinstance(again.message, BrowseRequest)
    assert again.message.request_id == request.request_id


def test_a_snapshot_that_is_not_kept_any_more_is_lost(stage: Stage) -> None:
    [request] = sent(browse(stage, snapshot=5, leader="a"), BrowseRequest)
    [failed] = of(stage.receive("a", refuse(request, Code.UNKNOWN_SESSION)), Failed)
    assert isinstance(failed.error, SnapshotLost)
    assert failed.error.retriable


def test_a_topic_that_was_deleted_ends_the_call(stage: Stage) -> None:
    [request] = sent(browse(stage), BrowseRequest)
    stage.receive("a", refuse(request, Code.TOPIC_NOT_FOUND))
    effects = stage.run_until(stage.ms + 60)
    found: list[Effect] = []
    while asked := sent(effects, MetadataRequest):
        effects = [
            effect for question in asked for broker in ("a", "b")
            for effect in stage.receive(broker, MetadataReply(question.request_id, Code.TOPIC_NOT_FOUND))
        ]  # fmt: skip
        found += effects
    [failed] = of(found, Failed)
    assert isinstance(failed.error, TopicNotFound)


def test_a_topic_that_was_made_anew_has_no_such_snapshot(stage: Stage) -> None:
    """Its partition is no more: to ask for it until the deadline would help nobody."""
    [request] = sent(browse(stage), BrowseRequest)
    stage.receive("a", refuse(request, Code.TOPIC_NOT_FOUND))
    stage.leaders = {77: "a"}
    [failed] = of(stage.answer_metadata(stage.run_until(stage.ms + 60)), Failed)
    assert isinstance(failed.error, SnapshotLost)


def test_an_answer_to_a_call_that_nobody_waits_for_any_more_is_dropped(stage: Stage) -> None:
    [request] = sent(browse(stage), BrowseRequest)
    stage.step(events.Abandon(7))
    assert not of(stage.receive("a", BrowseReply(request.request_id, Code.OK)), Completed)
    assert not of(stage.run_until(PATIENCE_MS + 1), Failed)


def test_the_end_of_a_snapshot_is_told_to_its_keeper(stage: Stage) -> None:
    [send] = of(stage.step(events.EndBrowse(TOPIC, 1, 5, "b")), Send)
    assert send.link == stage.links[endpoint("b")]
    assert isinstance(send.message, BrowseRequest)
    assert (send.message.snapshot, send.message.close) == (5, True)


# ------------------------------------------------------------------ pages


def walked(walk: Walk, *answers: PageAnswer | None) -> BrowsePage:
    for answer in answers:
        assert walk.call() is not None
        walk.take(answer)
    assert walk.call() is None
    return walk.page()


def asked(walk: Walk) -> events.Browse:
    order = walk.call()
    assert order is not None
    event = order.build(1, 2)
    assert isinstance(event, events.Browse)
    return event


def test_a_walk_goes_on_behind_the_last_row_until_the_last_page() -> None:
    walk = Walk(TOPIC, 0, 10, 20)
    assert (asked(walk).snapshot, asked(walk).from_ms, asked(walk).until_ms) == (0, 10, 20)
    assert walk.ending() is None
    page = walked(walk, rows([b"a", b"bc"], [b"", b""], last=False))
    assert (len(page), page.applied, page.stamp_ms, page.payloads) == (2, 40, 900, None)
    again = asked(walk)
    assert (again.snapshot, again.leader, again.after) == (5, "a", (1_001, 30 << 16 | 1))
    assert not walk.done
    assert len(walked(walk, rows([]))) == 0
    assert walk.done
    assert walk.ending() == events.EndBrowse(TOPIC, 1, 5, "a")


def test_keys_come_off_and_do_not_count_with_payloads_and_without() -> None:
    stored = [with_key(b"one", b"payload"), b"plain", with_key(b"", b"x")]
    keyed = np.array([1, 0, 1], np.uint8)
    whole = walked(Walk(TOPIC, 0, payloads=True), rows(stored, keyed=keyed))
    names = walked(Walk(TOPIC, 0), rows(stored, [b"\x03one", b"", b"\0"], keyed=keyed))
    for page in (whole, names):
        assert page.keys == ["one", "", ""]
        assert page.size.tolist() == [7, 5, 1]
    assert whole.payloads == [b"payload", b"plain", b"x"]
    first = next(names.messages())
    assert (first.key, first.size, first.payload, first.waits_until) == ("one", 7, None, 1_000)
    assert (first.topic, first.partition, first.due, first.attempt) == (TOPIC, 0, 1_000, 0)


def test_long_payloads_are_asked_for_chunk_by_chunk_and_put_together() -> None:
    long = with_key(b"k", bytes(range(256)) * 2_000)
    chunks = [long[at : at + limits.CHUNK_BYTES] for at in range(0, len(long), limits.CHUNK_BYTES)]
    upload, keyed = np.array([9, 0], np.uint64), np.array([1, 0], np.uint8)
    walk = Walk(TOPIC, 0, payloads=True)
    walk.take(rows([long, b"short"], [b"", b"short"], upload=upload, keyed=keyed))
    for number, chunk in enumerate(chunks):
        assert (asked(walk).upload, asked(walk).chunk, asked(walk).snapshot) == (9, number, 5)
        walk.take(PageAnswer(BrowseReply(1, Code.OK), 1, chunk))
    page = walked(walk)
    assert (page.keys, page.payloads) == (["k", ""], [long[2:], b"short"])
    assert page.size.tolist() == [len(long) - 2, 5]


def test_what_cannot_be_read_is_none_and_the_rest_is_there() -> None:
    long = bytes(2 * limits.CHUNK_BYTES)
    upload = np.array([9, 0, 0], np.uint64)
    page = walked(
        Walk(TOPIC, 0, payloads=True), rows([long, b"lost", b""], [b"", b"", b""], upload=upload), None
    )
    assert page.payloads == [None, None, b""]


def test_a_lost_snapshot_begins_anew_only_before_anything_was_handed_out() -> None:
    walk = Walk(TOPIC, 0, payloads=True)
    walk.take(rows([bytes(limits.CHUNK_BYTES + 1)], [b""], upload=np.array([9], np.uint64), last=False))
    walk.lost(SnapshotLost("gone"))
    assert (asked(walk).snapshot, asked(walk).upload) == (0, 0)
    walked(walk, rows([b"a"], last=False))
    with pytest.raises(SnapshotLost):
        walk.lost(SnapshotLost("gone"))


def test_an_empty_range_asks_nothing() -> None:
    assert Walk(TOPIC, 0, 20, 20).done
    assert Walk(TOPIC, 0, None, 0).done
    assert not Walk(TOPIC, 0, None, 1).done


def test_instants_may_be_datetimes_and_are_rounded_up() -> None:
    instant = datetime(2030, 1, 1, tzinfo=UTC)
    walk = Walk(TOPIC, 0, instant, instant + timedelta(microseconds=1_500))
    ms = int(instant.timestamp() * 1000)
    assert (asked(walk).from_ms, asked(walk).until_ms) == (ms, ms + 2)


@pytest.mark.parametrize("start", [1.5, True, "2030", datetime(2030, 1, 1), -1, 1 << 48])
def test_an_instant_that_is_none_is_refused_with_its_value(start: Any) -> None:
    with pytest.raises(InvalidRequest, match="start"):
        Walk(TOPIC, 0, start)


def test_a_partition_is_a_number_from_zero() -> None:
    with pytest.raises(InvalidRequest, match="partition is a whole number"):
        Walk(TOPIC, -1)
