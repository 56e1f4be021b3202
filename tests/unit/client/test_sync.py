"""The synchronous face over real sockets."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from dueq import (
    Client,
    ClientClosed,
    Disconnected,
    InvalidRequest,
    Message,
    MessageNotFound,
    Outcome,
    OutcomeUnknown,
    StaleLease,
    TopicExists,
    TopicNotFound,
)
from dueq.client import runtime
from dueq_codecs.messages import ChangeReply, ChangeRequest, Code, ConsumerAction
from dueq_codecs.records import RecordKind
from tests.unit.client.fake_broker import FakeBroker

DUE = 4_000_000_000_000


def test_schedule_move_and_cancel(client: Client, broker: FakeBroker) -> None:
    with client.producer("departures") as producer:
        message_id = producer.schedule(b"payload", DUE)
        assert list(broker.rows.values()) == [(b"payload", DUE)]
        producer.move(message_id, DUE + 1)
        producer.cancel(message_id)
        with pytest.raises(MessageNotFound, match=message_id):
            producer.cancel(message_id)
    with pytest.raises(ClientClosed):
        producer.schedule(b"payload", DUE)


def test_trigger_needs_no_instant(client: Client, broker: FakeBroker) -> None:
    message_id = client.producer("departures").schedule(b"payload", DUE)
    client.trigger("departures", message_id)
    assert (broker.changes[-1].kind, len(broker.changes[-1].due)) == (RecordKind.TRIGGER, 0)
    assert client.trigger_many("departures", [message_id]) == [Outcome.DONE]
    client.producer("departures").cancel(message_id)
    with pytest.raises(MessageNotFound, match=message_id):
        client.trigger("departures", message_id)


def test_schedule_many_returns_an_id_per_payload_in_order(client: Client, broker: FakeBroker) -> None:
    producer = client.producer("departures")
    payloads = [str(i).encode() for i in range(3_000)]
    ids = producer.schedule_many(payloads, [DUE + i for i in range(3_000)])
    assert len(set(ids)) == 3_000
    assert len(broker.changes) == 3
    assert producer.cancel_many([ids[2_999], ids[0], ids[0]]) == [
        Outcome.DONE,
        Outcome.DONE,
        Outcome.NOT_FOUND,
    ]
    assert (b"2999", DUE + 2_999) not in broker.rows.values()
    assert producer.schedule_many([], []) == []
    assert producer.cancel_many([]) == []


def test_a_timedelta_is_taken_by_the_mesh_clock(client: Client, broker: FakeBroker) -> None:
    before = datetime.now(UTC)
    client.producer("departures").schedule(b"", timedelta(hours=1))
    [(_, due)] = broker.rows.values()
    hour_ms = 3_600_000
    assert -1_000 <= due - (before.timestamp() * 1000 + hour_ms) <= 5_000


def test_fifty_threads_share_requests(client: Client, broker: FakeBroker) -> None:
    producer = client.producer("departures")
    go = threading.Barrier(50)
    ids: list[str] = []

    def work() -> None:
        go.wait()
        ids.extend(producer.schedule(b"x", DUE) for _ in range(10))

    threads = [threading.Thread(target=work) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(ids)) == len(broker.rows) == 500
    assert len(broker.changes) < 400


def test_silence_ends_in_an_unknown_outcome_whose_retry_takes_effect_once(
    client: Client, broker: FakeBroker
) -> None:
    producer = client.producer("departures")
    producer.schedule(b"first", DUE)
    applied = broker._change

    def appended_but_silent(request: ChangeRequest) -> str:
        applied(request, [b"x"])
        return "silent"

    broker.refuse = appended_but_silent
    with pytest.raises(OutcomeUnknown) as caught:
        producer.schedule(b"x", DUE, timeout=0.3)
    broker.refuse = lambda request: None
    message_id = caught.value.retry()
    assert len(broker.rows) == 2
    first, *repeated = [c for c in broker.changes if c.uid == broker.changes[-1].uid][-2:]
    assert [c.sequence for c in repeated] == [first.sequence]
    assert [c.digest for c in repeated] == [first.digest]
    producer.cancel(message_id)


def test_a_broker_that_comes_back_is_found_again(start_broker: Callable[..., FakeBroker]) -> None:
    broker = start_broker()
    broker.add_topic("departures")
    with Client(broker.endpoint) as client:
        producer = client.producer("departures")
        producer.schedule(b"x", DUE)
        broker.stop()
        with pytest.raises((Disconnected, OutcomeUnknown)):
            producer.schedule(b"y", DUE, timeout=0.3)
        again = start_broker("a", broker.endpoint)
        again.add_topic("departures")
        producer.schedule(b"z", DUE)
        assert (b"z", DUE) in again.rows.values()


def test_when_the_leader_dies_the_same_request_goes_to_the_next_one(
    start_broker: Callable[..., FakeBroker],
) -> None:
    first, second = start_broker("a"), start_broker("b")
    for broker, peer in ((first, second), (second, first)):
        broker.peers = [peer]
        broker.leader = "a"
        broker.add_topic("departures")
    first.refuse = lambda request: "silent"
    with Client([first.endpoint, second.endpoint]) as client:
        second.refuse = lambda request: ChangeReply(request.request_id, Code.NOT_LEADER, "not me")
        ids: list[str] = []
        thread = threading.Thread(
            target=lambda: ids.append(client.producer("departures").schedule(b"x", DUE))
        )
        thread.start()
        first.wait_for(lambda: bool(first.changes))
        second.leader = "b"
        second.refuse = lambda request: None
        first.stop()
        thread.join()
    assert len(ids) == 1
    assert {c.sequence for c in second.changes} == {first.changes[0].sequence}


def test_without_a_broker_calls_end_at_their_time_out() -> None:
    with (
        Client("tcp://127.0.0.1:1", timeout=0.2) as client,
        pytest.raises(Disconnected, match="nobody listens"),
    ):
        client.topics()


def test_topics(client: Client, broker: FakeBroker) -> None:
    client.create_topic("arrivals", partitions=3, timeout=5)
    with pytest.raises(TopicExists):
        client.create_topic("arrivals")
    client.create_topic("arrivals", exist_ok=True)
    assert [(t.name, t.partitions) for t in client.topics()] == [("arrivals", 3), ("departures", 2)]
    info = client.describe("arrivals")
    assert (info.partitions, info.ready, info.leased) == (3, 3, 6)
    assert [p.isr for p in info.placement] == [("a",)] * 3
    assert client.forecast("departures", seconds=10) == [(1_000, 4), (3_000, 3)]
    with pytest.raises(InvalidRequest, match="seconds"):
        client.forecast("departures", seconds=3_601)
    with pytest.raises(InvalidRequest, match="kind is one of timeline, priority, fair"):
        client.create_topic("strange", "strange")
    status = client.status()
    assert status["brokers"]["a"]["reachable"]
    client.delete_topic("arrivals")
    with pytest.raises(TopicNotFound):
        client.describe("arrivals")
    with pytest.raises(TopicNotFound):
        client.producer("arrivals").schedule(b"x", DUE)
    with pytest.raises(InvalidRequest):
        client.create_topic("no spaces")


def test_status_marks_brokers_that_do_not_answer(start_broker: Callable[..., FakeBroker]) -> None:
    here, gone = start_broker("a"), start_broker("b")
    here.peers = [gone]
    gone.stop()
    with Client(here.endpoint) as client:
        status = client.status(timeout=0.5)
    assert {name: broker["reachable"] for name, broker in status["brokers"].items()} == {
        "a": True,
        "b": False,
    }


def test_a_consumer_gets_acks_and_gives_back(client: Client, broker: FakeBroker) -> None:
    with client.consumer("departures", lease=30, credit=8) as consumer:
        assert consumer.receive(timeout=0) == []
        broker.push([b"0", b"1", b"2", b"3"])
        first, second, third = consumer.receive(max_messages=3, timeout=5)
        assert (first.payload, first.due, first.attempt, first.token) == (b"0", 1_000, 1, 7)
        assert first.released_at >= first.due
        assert 29 < first.lease <= 30
        assert len(first.id) == 26
        first.ack()
        second.nack(delay=5)
        assert consumer.ack([third]) == [Outcome.DONE]
    assert broker.frames[-1].action is ConsumerAction.GOODBYE
    kinds = sorted((c.kind, c.rows) for c in broker.changes)
    assert (RecordKind.RELEASE, 1) in kinds
    assert (RecordKind.NACK, 1) in kinds
    assert sum(rows for kind, rows in kinds if kind is RecordKind.ACK) == 2
    with pytest.raises(ClientClosed):
        first.ack()
    with pytest.raises(ClientClosed):
        consumer.receive()


def test_iteration_waits_for_messages_and_ends_when_closed(client: Client, broker: FakeBroker) -> None:
    got: list[bytes] = []
    consumer = client.consumer("departures")

    def work() -> None:
        for message in consumer:
            got.append(message.payload)
            message.ack()
            if len(got) == 3:
                consumer.close()

    thread = threading.Thread(target=work)
    thread.start()
    broker.wait_for(lambda: bool(broker.frames))
    broker.push([b"1", b"2", b"3"])
    thread.join(10)
    assert got == [b"1", b"2", b"3"]
    assert not broker.rows


def test_of_a_batch_with_stale_leases_it_is_told_which_were_settled(
    client: Client, broker: FakeBroker
) -> None:
    with client.consumer("departures") as consumer:
        broker.push([b"x", b"y"])
        batch = consumer.receive(timeout=5)
        while len(batch) < 2:
            batch += consumer.receive(timeout=5)
        del broker.rows[next(iter(broker.rows))]
        with pytest.raises(StaleLease) as caught:
            consumer.ack(batch)
    assert caught.value.outcomes.count(Outcome.DONE) == 1
    assert len(caught.value.outcomes) == 2


def test_a_batch_is_settled_without_waiting(client: Client, broker: FakeBroker) -> None:
    told: list[Message] = []
    with client.consumer("departures", credit=8, on_lease_lost=told.append) as consumer:
        broker.push([b"0", b"1", b"2", b"3", b"4"])
        batch: list[Message] = []
        while len(batch) < 5:
            batch += consumer.receive(timeout=5)
        broker.rows.clear()
        broker.push([b"5"])
        assert consumer.ack([], wait=False) == []
        assert consumer.ack(batch[:2], wait=False) == []
        assert consumer.nack(batch[2:3], delay=5, wait=False) == []
        assert consumer.release(batch[3:4], wait=False) == []
        assert consumer.extend(batch[4:], 60, wait=False) == []
        [last] = consumer.receive(timeout=5)
        assert consumer.ack([last], wait=False) == []
    kinds = [(c.kind, c.rows) for c in broker.changes]
    assert sum(rows for kind, rows in kinds if kind is RecordKind.ACK) == 3, "close confirms what was settled"
    refused = {message.id for message in [*batch[:3], batch[4]]}
    assert {message.id for message in told} == refused, "whoever releases a message does not want it back"
    with pytest.raises(ClientClosed):
        consumer.ack([last], wait=False)


def test_refused_leases_are_told_in_the_users_thread(client: Client, broker: FakeBroker) -> None:
    told: list[tuple[Message, int]] = []
    with client.consumer(
        "departures", on_lease_lost=lambda message: told.append((message, threading.get_ident()))
    ) as consumer:
        broker.push([b"x"])
        [message] = consumer.receive(timeout=5)
        broker.rows.clear()
        with pytest.raises(StaleLease, match=message.id):
            message.ack(wait=True)
        assert message.lost
        consumer.receive(timeout=0)
    assert told == [(message, threading.get_ident())]


def test_a_consumer_of_an_unknown_topic_says_so(client: Client) -> None:
    with pytest.raises(TopicNotFound), client.consumer("nothing"):
        pass


def test_a_closed_client_refuses_and_closes_again(broker: FakeBroker) -> None:
    client = Client(broker.endpoint)
    producer = client.producer("departures")
    producer.schedule(b"x", DUE)
    client.close()
    client.close()
    with pytest.raises(ClientClosed):
        producer.schedule(b"x", DUE)


def test_lost_leases_are_told_by_the_close_after_the_client_s_thread_has_ended(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[bool] = []
    with client.consumer("departures") as consumer:
        monkeypatch.setattr(consumer, "_tell_of_lost", lambda: told.append(True))
        client.connection.live().stop()
    assert told == [True]


def test_a_forked_child_begins_anew(client: Client, broker: FakeBroker) -> None:
    producer = client.producer("departures")
    producer.schedule(b"parent", DUE)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write, producer.schedule(b"child", DUE, timeout=5).encode())
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    os.close(write)
    assert len(os.read(read, 100)) == 26
    os.close(read)
    producer.schedule(b"parent", DUE)
    assert len({c.client_id for c in broker.changes}) == 2
    assert len(broker.rows) == 3


def test_a_child_that_is_forked_while_another_client_begins_works(client: Client) -> None:
    producer = client.producer("departures")
    read, write = os.pipe()
    lock = runtime._contexts_lock
    lock.acquire()  # as a thread has it that the child lacks
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write, producer.schedule(b"child", DUE, timeout=5).encode())
        finally:
            os._exit(0)
    lock.release()
    os.waitpid(pid, 0)
    os.close(write)
    assert len(os.read(read, 100)) == 26
    os.close(read)


def test_a_consumer_does_not_follow_into_a_forked_child(client: Client, broker: FakeBroker) -> None:
    with client.consumer("departures") as consumer:
        assert consumer.receive(timeout=0) == []
        broker.push([b"one"])
        (message,) = consumer.receive(1, timeout=5)
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                for call in (consumer.receive, message.ack):
                    with pytest.raises(ClientClosed, match="forked"):
                        call()
                os.write(write, b"refused")
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        os.close(write)
        assert os.read(read, 100) == b"refused"
        os.close(read)
        message.ack(wait=True)


def test_endpoints_come_from_the_environment(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUEQ_ENDPOINTS", broker.endpoint)
    with Client() as client:
        assert client.topics()
    monkeypatch.delenv("DUEQ_ENDPOINTS")
    with pytest.raises(InvalidRequest, match="DUEQ_ENDPOINTS"):
        Client()


def test_an_error_of_a_callback_keeps_no_lost_lease_from_being_told_and_no_client_from_closing(
    broker: FakeBroker,
) -> None:
    told: list[Message] = []

    def tell(message: Message) -> None:
        told.append(message)
        raise LookupError("no such card")

    def threads() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "dueq-client"]

    before = threads()
    client = Client(broker.endpoint)
    consumer = client.consumer("departures", on_lease_lost=tell)
    assert consumer.receive(timeout=0) == []
    broker.push([b"x", b"y"])
    messages = consumer.receive(2)
    broker.rows.clear()
    for message in messages:
        message.ack()  # refused
    with pytest.raises(LookupError, match="no such card"):
        client.close()
    assert told == messages
    assert threads() == before


def test_the_error_of_a_consumer_does_not_grow_with_each_time_that_it_is_raised(
    broker: FakeBroker, client: Client
) -> None:
    with client.consumer("departures") as consumer:
        assert consumer.receive(timeout=0) == []
        consumer._inbox.fail(TopicNotFound("gone"))
        for _ in range(10):
            with pytest.raises(TopicNotFound, match="gone") as caught:
                consumer.receive()
        assert len(caught.traceback) < 10


def test_a_client_that_gets_no_thread_keeps_no_descriptor(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program may try again and again."""

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    client = Client(broker.endpoint)
    before = len(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        for _ in range(5):
            with pytest.raises(RuntimeError, match="thread"):
                client.topics()
    assert len(os.listdir("/proc/self/fd")) == before
    assert client.topics()
    client.close()
