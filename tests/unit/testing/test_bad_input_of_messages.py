"""What callers say of messages, leases and topics that cannot be: each verb names the value, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from dueq import Backoff, Client, Filter, InvalidRequest, Outcome, first_instant
from dueq.client.backoff import backoff_document
from dueq.testing import Mesh, mesh

Verb = Callable[[Client, Any], object]

LATER = 1 << 47
ID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
NO_ROWS: tuple[Any, ...] = (5, 1.5, True, object(), np.array(3), timedelta(1), len)
NO_WORDS: tuple[Any, ...] = ([], {}, 5, b"waiting", np.array([1, 2]))
NO_NUMBERS: tuple[Any, ...] = (np.timedelta64(5, "s"), np.array(3), "5", b"\x05", True)
TOO_LONG: tuple[Any, ...] = (timedelta.max, timedelta.min, timedelta(microseconds=-1))
FALSE: tuple[Any, ...] = (0, False, b"", [], ())
"""They are false, and are not None."""


@pytest.fixture(scope="module")
def running() -> Iterator[Mesh]:
    with mesh() as found:
        found.client().create_topic("t", kind="fair", keys="unique")
        yield found


def state(client: Client) -> object:
    """All that the verbs below could have changed."""
    return [
        [(message.id, message.due, message.key) for message in client.browse("t")],
        [topic.name for topic in client.topics()],
        [each.name for each in client.recurrences("t")],
        list(client.groups("t")),
        client.describe("t").settings_version,
    ]


def many(client: Client, payloads: Any = (b"x", b"y"), dues: Any = LATER, **more: Any) -> object:
    """Schedule two messages."""
    return client.producer("t").schedule_many(payloads, dues, **more)


def streamed(client: Client, dues: Any = LATER, **more: Any) -> object:
    """The same from an iterator."""
    return many(client, iter([b"x", b"y"]), dues, **more)


VERBS: dict[str, tuple[tuple[Any, ...], Verb]] = {
    "payloads": ((*NO_ROWS, None), lambda c, v: many(c, v)),
    "payloads of a stream": ((*NO_ROWS, None), lambda c, v: list(c.producer("t").schedule_stream(v, LATER))),
    "key": ((*FALSE, np.array([1, 2])), lambda c, v: c.producer("t").schedule(b"x", LATER, key=v)),
    "keys": (NO_ROWS, lambda c, v: many(c, keys=v)),
    "a row's key": (FALSE, lambda c, v: many(c, keys=["a", v])),
    "a streamed row's key": (FALSE, lambda c, v: streamed(c, keys=["a", v])),
    "headers": (
        (*FALSE, "", np.array([1, 2])),
        lambda c, v: c.producer("t").schedule(b"x", LATER, headers=v),
    ),
    "many headers": (NO_ROWS, lambda c, v: many(c, headers=v)),
    "a row's headers": ((*FALSE, ""), lambda c, v: many(c, headers=[{"a": "b"}, v])),
    "due": ((b"a", bytearray(b"a"), memoryview(b"a")), lambda c, v: c.producer("t").schedule(b"x", v)),
    "dues": ((b"ab", bytearray(b"ab"), np.array(3)), lambda c, v: many(c, dues=v)),
    "dues of a stream": ((b"ab", np.array(3)), streamed),
    "move": ((b"a", np.array(3)), lambda c, v: c.producer("t").move(ID, v)),
    "ranks": ((memoryview(b"ab"), np.array(3)), lambda c, v: many(c, ranks=v)),
    "ranks of a stream": ((b"ab", np.array(3)), lambda c, v: streamed(c, ranks=v)),
    "groups": ((memoryview(b"ab"), np.array(3)), lambda c, v: many(c, groups=v)),
    "expires": (([], b"", b"ab", {LATER + 1}), lambda c, v: many(c, expires=v)),
    "expires of one": (([], b"", b"a"), lambda c, v: c.producer("t").schedule(b"x", 0, expires=v)),
    "max_attempts": (([], b"", b"ab", {5}), lambda c, v: many(c, max_attempts=v)),
    "window": ((*FALSE[1:], "", b"ab", *TOO_LONG), lambda c, v: many(c, window=v)),
    "job": ((5, "j"), lambda c, v: many(c, job=v)),
    "time-out": (
        (-1, "5", np.timedelta64(5, "s")),
        lambda c, v: c.producer("t").schedule(b"x", LATER, timeout=v),
    ),
    "ids": ((*NO_ROWS, None), lambda c, v: c.producer("t").cancel_many(v)),
    "ids to trigger": ((*NO_ROWS, None), lambda c, v: c.trigger_many("t", v)),
    "if_version": (
        (0, True, 1.5, b"a", np.timedelta64(5, "s")),
        lambda c, v: c.producer("t").move(ID, LATER, if_version=v),
    ),
    "if_versions": (
        (b"a", np.array(3), [True]),
        lambda c, v: c.producer("t").cancel_many([ID], if_versions=v),
    ),
    "leases": ((*NO_ROWS, None), lambda c, v: c.settle("t", v, "ack")),
    "held": ((*NO_ROWS, None), lambda c, v: c.pull("t", consumer="c", held=v)),
    "token": ((True, 0, 1.0, np.timedelta64(5, "s")), lambda c, v: c.settle("t", [(ID, v)], "ack")),
    "how": (NO_WORDS, lambda c, v: c.settle("t", [(ID, 5)], v)),
    "dead": ((0, 1, "no", None), lambda c, v: c.settle("t", [(ID, 5)], "nack", dead=v)),
    "reason": ((5, b"", np.array([1, 2])), lambda c, v: c.settle("t", [(ID, 5)], "nack", reason=v)),
    "lease": (TOO_LONG, lambda c, v: c.consumer("t", lease=v)),
    "credit": (NO_NUMBERS, lambda c, v: c.consumer("t", credit=v)),
    "ack": (NO_WORDS, lambda c, v: c.consumer("t", ack=v)),
    "name": (("\ud800", "", "n" * 256, 5), lambda c, v: c.consumer("t", name=v)),
    "on_lease_lost": ((5, "log", []), lambda c, v: c.consumer("t", on_lease_lost=v)),
    "pulled by": (("\ud800", "", "n" * 256, 5), lambda c, v: c.pull("t", consumer=v)),
    "kind": (NO_WORDS, lambda c, v: c.create_topic("other", kind=v)),
    "unique or free": (NO_WORDS, lambda c, v: c.create_topic("other", keys=v)),
    "expired": (NO_WORDS, lambda c, v: c.update_topic("t", expired=v)),
    "rate": (NO_NUMBERS, lambda c, v: c.update_topic("t", rate=v)),
    "weight": (NO_NUMBERS, lambda c, v: c.set_group("t", "a", weight=v)),
    "factor": (NO_NUMBERS, lambda c, v: c.update_topic("t", backoff=Backoff(factor=v))),
    "remember": (TOO_LONG, lambda c, v: c.update_topic("t", remember=v)),
    "state to purge": (NO_WORDS, lambda c, v: c.purge("t", state=v)),
    "state to browse": (NO_WORDS, lambda c, v: list(c.browse("t", state=v))),
    "partitions": (NO_ROWS, lambda c, v: list(c.browse("t", partitions=v))),
    "after": ((5, "ab", (1,), (1, ID, 2, 3)), lambda c, v: list(c.browse_pages("t", 0, after=v))),
    "state of a filter": (NO_WORDS, lambda c, v: Filter(state=v)),
    "key prefix": (("\ud800", b"a", 5), lambda c, v: c.count_where("t", Filter(key_prefix=v))),
    "discard where": ((None, "dead", {"state": "dead"}), lambda c, v: c.discard_where("t", v)),
    "shift by": ((3600, 1.0, *TOO_LONG[:2]), lambda c, v: c.shift_where("t", Filter(), by=v)),
    "instants": ((np.array(3), 5, "abc"), lambda c, v: c.create_recurrence("t", "r", at=v)),
    "endpoints": ((5, b"tcp://a:1", [None], [b"tcp://a:1"], object()), lambda c, v: Client(v)),
    "time-out of a client": ((-1, "5"), lambda c, v: Client("tcp://127.0.0.1:1", timeout=v)),
    "an id's instant": ((5, b"a", "Z" * 26, None), lambda c, v: first_instant(v)),
}


@pytest.mark.parametrize("verb", VERBS)
def test_it_is_refused_by_name_and_changes_nothing(running: Mesh, verb: str) -> None:
    client = running.client()
    before = state(client)
    values, said = VERBS[verb]
    for value in values:
        with pytest.raises(InvalidRequest) as refused:
            said(client, value)
        assert 0 < len(str(refused.value)) < 500, "a refusal is a line"
    assert state(client) == before


def test_numbers_of_numpy_are_numbers(running: Mesh) -> None:
    client: Any = running.client()
    client.create_topic(
        "numbers", kind="fair", rate=np.int64(500), burst=np.int32(5), max_attempts=np.uint8(3)
    )
    parts: Any = (1.0, np.float64(2.0), 60.0, np.float32(0.5), np.int64(3))
    client.update_topic("numbers", backoff=Backoff(*parts))
    found = client.describe("numbers")
    assert (found.rate, found.burst, found.max_attempts) == (500, 5, 3)
    assert found.backoff == Backoff(1.0, 2.0, 60.0, 0.5, 3)
    client.set_group("numbers", "a", weight=np.int64(4), max_unacked=np.int16(9))
    [group] = client.groups("numbers")
    assert (group.weight, group.max_unacked) == (4, 9)

    producer = client.producer("numbers")
    ids = producer.schedule_many([b"x", b"y"], np.array([0, 0]))
    versions = [client.get("numbers", each).version for each in ids]
    assert (
        producer.change_many(ids, ranks=np.array([1, 2]), if_versions=np.array(versions))
        == [Outcome.DONE] * 2
    )
    producer.change(ids[0], rank=np.int64(0), if_version=np.int64(client.get("numbers", ids[0]).version))
    pulled = client.pull("numbers", np.int64(2))
    leases = [(message.id, np.int64(message.token)) for message in pulled]
    assert client.settle("numbers", leases, "ack") == [Outcome.DONE] * 2


def test_time_outs_and_lengths_beyond_all_measure(running: Mesh) -> None:
    client = running.client()
    client.create_topic("long", horizon=timedelta(days=1), timeout=10**400)
    assert client.describe("long").horizon == timedelta(days=1)
    assert backoff_document(Backoff(first=timedelta(microseconds=1)))["first_ms"] == 1


@pytest.mark.parametrize("name", ["due", "key", "rank", "group", "headers", "expires", "max_attempts"])
def test_a_column_that_goes_on_behind_the_payloads_is_named(running: Mesh, name: str) -> None:
    values = {
        "due": LATER,
        "key": "a",
        "rank": 1,
        "group": "a",
        "headers": {},
        "expires": None,
        "max_attempts": 1,
    }
    argument = name if name.endswith("s") else f"{name}s"
    with pytest.raises(InvalidRequest, match=f"there are more {argument} than payloads"):
        streamed(running.client(), **{"dues": LATER, argument: [values[name]] * 3})
