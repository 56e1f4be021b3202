"""Recorded producers and consumers over real sockets, against a fake broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from dueq import Client, InvalidRequest, MessageNotFound, Outcome, OutcomeUnknown, StaleLease
from dueq.errors import PartialFailure
from dueq_chaos.history.checker import check
from dueq_chaos.history.reading import read_history
from dueq_chaos.history.recorded import RecordedConsumer, RecordedProducer
from dueq_chaos.history.recorder import Recorder
from dueq_codecs.messages import ChangeReply, ChangeRequest, Code
from tests.unit.client.fake_broker import FakeBroker

DUE = 4_000_000_000_000


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    broker = FakeBroker()
    broker.add_topic("departures", 2)
    yield broker
    broker.stop()


@pytest.fixture
def client(broker: FakeBroker) -> Iterator[Client]:
    with Client(broker.endpoint, timeout=10) as client:
        yield client


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    with Recorder(tmp_path / "history.jsonl", topic="departures") as recorder:
        yield recorder


@pytest.fixture
def producer(client: Client, recorder: Recorder) -> RecordedProducer:
    return RecordedProducer(recorder, client.producer("departures"), "p")


def lines(recorder: Recorder) -> list[dict[str, Any]]:
    """All lines but the header; and the reader accepts the whole file."""
    read_history(recorder.path)
    header, *rest = map(json.loads, recorder.path.read_text().splitlines())
    assert header == {"dueq_history": 1, "topic": "departures"}
    return rest


def test_calls_of_a_producer_are_two_lines_each(producer: RecordedProducer, recorder: Recorder) -> None:
    ids = producer.schedule_many([b"x", b"yy"], DUE)
    producer.move(ids[0], DUE + 1)
    assert producer.move_many(ids, [DUE, DUE]) == [Outcome.DONE] * 2
    producer.cancel(ids[0])
    assert producer.cancel_many(ids) == [Outcome.NOT_FOUND, Outcome.DONE]
    with pytest.raises(MessageNotFound):
        producer.cancel(ids[0])
    written = lines(recorder)
    assert [line["event"] for line in written] == ["invoke", "complete"] * 6
    assert [line["op"] for line in written] == [n for n in range(1, 7) for _ in (0, 1)]
    assert {line["client"] for line in written} == {"p"}
    asked, told = written[:2]
    assert asked["due"] == [DUE, DUE]
    assert asked["crc"] == [crc32(b"x"), crc32(b"yy")]
    assert asked["size"] == [1, 2]
    assert told["id"] == ids
    assert "outcome" not in told
    assert written[9]["outcome"] == ["not_found", "done"]
    assert written[11]["outcome"] == ["not_found"]
    assert [line["mono"] for line in written] == sorted(line["mono"] for line in written)


def test_what_is_refused_before_it_is_sent_is_recorded(
    producer: RecordedProducer, recorder: Recorder
) -> None:
    with pytest.raises(InvalidRequest):
        producer.schedule(b"x", 1 << 50)
    assert [line.get("outcome") for line in lines(recorder)] == [None, ["refused"]]


def test_a_retry_completes_the_same_operation(
    producer: RecordedProducer, recorder: Recorder, broker: FakeBroker
) -> None:
    broker.refuse = lambda request: "no answer"
    with pytest.raises(OutcomeUnknown) as caught:
        producer.schedule(b"x", DUE, timeout=0.2)
    with pytest.raises(OutcomeUnknown) as again:
        caught.value.retry(0.2)
    broker.refuse = lambda request: None
    message_id = again.value.retry()
    written = lines(recorder)
    assert [(line["op"], line.get("outcome"), line.get("id")) for line in written] == [
        (1, None, None),
        (1, ["unknown"], [""]),
        (1, ["unknown"], [""]),
        (1, None, message_id if isinstance(message_id, list) else [message_id]),
    ]
    assert check(read_history(recorder.path)).counts.acknowledged == 1


def test_a_call_that_failed_in_part_says_so_row_by_row(
    producer: RecordedProducer, recorder: Recorder, broker: FakeBroker
) -> None:
    def refuse(request: ChangeRequest) -> ChangeReply | None:
        if request.uid == 1:
            return None
        return ChangeReply(request.request_id, Code.PAYLOAD_TOO_LARGE, "too large", uid=request.uid)

    broker.refuse = refuse
    with pytest.raises(PartialFailure) as caught:
        producer.schedule_many([b"%d" % n for n in range(2_000)], DUE)
    first = lines(recorder)[1]
    assert first["outcome"].count("done") == 2_000 - first["outcome"].count("refused")
    assert 0 < first["outcome"].count("refused") < 2_000
    assert [bool(text) for text in first["id"]] == [told == "done" for told in first["outcome"]]
    broker.refuse = lambda request: None
    ids = caught.value.retry()
    under_way, last = lines(recorder)[2:]
    assert "refused" not in under_way["outcome"]
    assert last["id"] == ids
    assert "outcome" not in last


def test_deliveries_and_settlings_of_a_consumer(
    client: Client, recorder: Recorder, broker: FakeBroker
) -> None:
    told: list[str] = []
    plain = client.consumer("departures", on_lease_lost=lambda message: told.append(message.id))
    with RecordedConsumer(recorder, plain, "c") as consumer:
        assert consumer.receive(timeout=0.01) == []
        broker.push([b"x", b"yy", b"zzz"])
        messages = consumer.receive(timeout=5)
        while len(messages) < 3:
            messages += consumer.receive(timeout=5)
        consumer.extend(messages[:1], 60.0)
        assert consumer.ack(messages[:1]) == [Outcome.DONE]
        broker.rows.clear()
        with pytest.raises(StaleLease):
            consumer.nack(messages[1:2], delay=2.5)
        consumer.receive(timeout=0.01)
        assert consumer.ack([]) == []
    written = lines(recorder)
    assert told == [messages[1].id]
    delivered = next(line for line in written if line.get("id"))
    assert delivered["id"][0] == messages[0].id
    assert delivered["released"][0] // 1000 == messages[0].released_at
    assert delivered["token"][0] == 7
    assert 20_000 < delivered["lease_ms"][0] <= 30_000
    calls = {line["kind"]: line for line in written if line["event"] == "invoke"}
    assert calls["extend"]["ms"] == 60_000
    assert calls["nack"]["ms"] == 2_500
    answer = next(
        line for line in written if line["event"] == "complete" and line["op"] == calls["nack"]["op"]
    )
    assert answer["outcome"] == ["stale"]
    assert [line["id"] for line in written if line["event"] == "lost"] == [[messages[1].id]]
    assert calls["close"]


def test_a_history_is_never_written_over(recorder: Recorder) -> None:
    with pytest.raises(FileExistsError):
        Recorder(recorder.path)


def test_a_closed_recorder_drops_what_comes_late(recorder: Recorder) -> None:
    recorder.note("before")
    recorder.close()
    recorder.note("after")
    assert [line["text"] for line in lines(recorder)] == ["before"]
