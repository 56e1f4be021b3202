"""Texts that are no Unicode, wherever a caller can give one: each is refused before it reaches the client's thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dueq import (
    Client,
    Consumer,
    EndpointNotFound,
    Filter,
    InvalidRequest,
    Message,
    Producer,
    Target,
)
from dueq.testing import Mesh, mesh

BAD = "\udcff"
"""As `sys.argv` has a byte that is no UTF-8."""
LATER = 1 << 47
ID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
URL = "https://example.com/"
CRON = "* * * * *"
HEADERS: tuple[dict[str, str], ...] = ({"a": BAD}, {BAD: "a"})

CLIENT: dict[str, Callable[[Client], object]] = {
    "a broker's host": lambda c: Client(f"tcp://{BAD}:7400"),
    "a broker's path": lambda c: Client(f"ipc:///tmp/{BAD}"),
    "topic": lambda c: c.create_topic(BAD),
    "kind": lambda c: c.create_topic("u", kind=BAD),
    "keys": lambda c: c.create_topic("u", keys=BAD),
    "expired": lambda c: c.create_topic("u", expired=BAD),
    "expired of an update": lambda c: c.update_topic("t", expired=BAD),
    **{
        f"label {place}": lambda c, labels=labels: c.create_topic("u", labels=labels)  # type: ignore[misc]
        for place, labels in enumerate(HEADERS)
    },
    **{
        f"label {place} of an update": lambda c, labels=labels: c.update_topic("t", labels=labels)  # type: ignore[misc]
        for place, labels in enumerate(HEADERS)
    },
    "topic of a consumer": lambda c: c.consumer(BAD),
    "consumer": lambda c: c.consumer("t", name=BAD),
    "ack": lambda c: c.consumer("t", ack=BAD),
    "topic of a producer": lambda c: c.producer(BAD),
    "group": lambda c: c.set_group("t", BAD, weight=2),
    "job": lambda c: c.begin_job("t", BAD),
    "job to cancel": lambda c: c.cancel_job("t", BAD),
    "job to show": lambda c: c.job("t", BAD),
    "pass": lambda c: c.pass_named("t", BAD),
    "pass of a verb": lambda c: c.cancel_where("t", Filter(), name=BAD),
    "a filter's job": lambda c: Filter(job=BAD),
    "a filter's prefix": lambda c: Filter(key_prefix=BAD),
    "a filter's group": lambda c: Filter(group=BAD),
    "a filter's state": lambda c: Filter(state=BAD),
    "state of a purge": lambda c: c.purge("t", BAD),
    "state to browse": lambda c: c.browse("t", state=BAD),
    "where to browse on": lambda c: list(c.browse_pages("t", 0, after=(0, BAD))),
    "what to get": lambda c: c.get("t", BAD),
    "key to get": lambda c: c.get("t", key=BAD),
    "group of a key to get": lambda c: c.get("t", key="k", group=BAD),
    "leased after": lambda c: c.leased("t", after=BAD),
    "trigger": lambda c: c.trigger("t", BAD),
    "consumer of a pull": lambda c: c.pull("t", consumer=BAD),
    "held": lambda c: c.pull("t", consumer="w", held=[(BAD, 7)]),
    "how to settle": lambda c: c.settle("t", [(ID, 7)], BAD),
    "what to settle": lambda c: c.settle("t", [(BAD, 7)], "ack"),
    "reason": lambda c: c.settle("t", [(ID, 7)], "nack", reason=BAD),
    "headers of a nack": lambda c: c.settle("t", [(ID, 7)], "nack", headers={"a": BAD}),
    "endpoint": lambda c: c.set_endpoint(BAD, "t", URL),
    "topic of an endpoint": lambda c: c.set_endpoint("e", BAD, URL),
    "url": lambda c: c.set_endpoint("e", "t", URL + BAD),
    "secrets": lambda c: c.set_endpoint("e", "t", URL, secrets=[BAD]),
    "header of an endpoint": lambda c: c.set_endpoint("e", "t", URL, headers={"a": BAD}),
    "name of an endpoint's header": lambda c: c.set_endpoint("e", "t", URL, headers={BAD: "a"}),
    "matching": lambda c: c.set_endpoint("e", "t", URL, matching={"a": [BAD]}),
    "name of a header that matches": lambda c: c.set_endpoint("e", "t", URL, matching={BAD: "a"}),
    "recurrence": lambda c: c.create_recurrence("t", BAD, cron=CRON),
    "recurrence to update": lambda c: c.update_recurrence("t", BAD, cron=CRON),
    "recurrence to show": lambda c: c.recurrence("t", BAD),
    "recurrence to trigger": lambda c: c.trigger_recurrence("t", BAD),
    "zone of a line": lambda c: c.update_recurrence("t", "r", cron=CRON, zone=BAD),
}
RECURRENCE: dict[str, Any] = {
    "cron": BAD, "zone": BAD, "overlap": BAD, "missed": BAD, "group": BAD, "headers": HEADERS[0],
}  # fmt: skip
PRODUCER: dict[str, Callable[[Producer], object]] = {
    "key": lambda p: p.schedule(b"", LATER, key=BAD),
    "group": lambda p: p.schedule(b"", LATER, group=BAD),
    "header": lambda p: p.schedule(b"", LATER, headers=HEADERS[0]),
    "header's name": lambda p: p.schedule(b"", LATER, headers=HEADERS[1]),
    "on_duplicate": lambda p: p.schedule(b"", LATER, key="k", on_duplicate=BAD),
    "url of a target": lambda p: Target(URL + BAD).around(b""),
    "method of a target": lambda p: Target(URL, BAD).around(b""),
    "header of a target": lambda p: Target(URL, headers=HEADERS[0]).around(b""),
    "keys": lambda p: p.schedule_many([b"", b""], LATER, keys=["a", BAD]),
    "keys of a stream": lambda p: list(p.schedule_stream(iter([b"", b""]), LATER, keys=iter(["a", BAD]))),
    "groups": lambda p: p.schedule_many([b"", b""], LATER, groups=["a", BAD]),
    "group of many": lambda p: p.schedule_many([b"", b""], LATER, groups=BAD),
    "headers": lambda p: p.schedule_many([b"", b""], LATER, headers=[{}, HEADERS[0]]),
    "headers of many": lambda p: p.schedule_many([b"", b""], LATER, headers=HEADERS[1]),
    "cancel": lambda p: p.cancel(BAD),
    "key to cancel": lambda p: p.cancel(key=BAD),
    "group of a key": lambda p: p.cancel(key="k", group=BAD),
    "key to move": lambda p: p.move(key=BAD, due=LATER),
    "key to change": lambda p: p.change(key=BAD, rank=3),
}
MESSAGE: dict[str, Callable[[Consumer, Message], object]] = {
    "reason of an ack": lambda c, m: m.ack(reason=BAD),
    "reason": lambda c, m: m.nack(reason=BAD),
    "header": lambda c, m: m.nack(headers=HEADERS[0]),
    "header's name": lambda c, m: m.nack(headers=HEADERS[1]),
    "reason of several": lambda c, m: c.nack([m], reason=BAD),
    "headers of several": lambda c, m: c.nack([m], headers=HEADERS[0]),
}


@pytest.fixture(scope="module")
def running() -> Iterator[Mesh]:
    with mesh() as found:
        found.client().create_topic("t", kind="fair", keys="unique")
        yield found


@pytest.mark.parametrize("call", CLIENT.values(), ids=CLIENT)
def test_a_client_refuses_it(running: Mesh, call: Callable[[Client], object]) -> None:
    client = running.client()
    with pytest.raises(InvalidRequest):
        call(client)
    assert [topic.name for topic in client.topics()] == ["t"]


@pytest.mark.parametrize("what", RECURRENCE)
@pytest.mark.parametrize("verb", ["create_recurrence", "update_recurrence"])
def test_a_recurrence_has_none(running: Mesh, verb: str, what: str) -> None:
    client = running.client()
    said = {"cron": CRON, what: RECURRENCE[what]} if verb == "create_recurrence" else {what: RECURRENCE[what]}
    with pytest.raises(InvalidRequest, match=what.removesuffix("s")):
        getattr(client, verb)("t", "r", **said)
    assert list(client.recurrences("t")) == []


@pytest.mark.parametrize("call", PRODUCER.values(), ids=PRODUCER)
def test_a_producer_refuses_it(running: Mesh, call: Callable[[Producer], object]) -> None:
    client = running.client()
    with pytest.raises(InvalidRequest):
        call(client.producer("t"))
    assert list(client.browse("t")) == []


@pytest.mark.parametrize("call", MESSAGE.values(), ids=MESSAGE)
def test_a_consumer_refuses_it(running: Mesh, call: Callable[[Consumer, Message], object]) -> None:
    client = running.client()
    client.producer("t").schedule(b"", 0)
    with client.consumer("t") as consumer:
        [message] = consumer.receive(1)
        with pytest.raises(InvalidRequest):
            call(consumer, message)
        message.ack(wait=True)


def test_what_only_finds_something_finds_nothing(running: Mesh) -> None:
    client = running.client()
    for find in (client.endpoint, client.delete_endpoint, client.pause_endpoint, client.rotate_endpoint):
        with pytest.raises(EndpointNotFound):
            find(BAD)
