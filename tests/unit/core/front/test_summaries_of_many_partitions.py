"""What a broker's summary counts of its partitions, and whose question it answers when."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from dueq import limits
from dueq.core.front import summaries
from dueq.core.front.summaries import Summaries
from dueq.core.ports.effects import SendClient
from dueq.core.ports.events import Route
from dueq.core.ports.membership import Member
from dueq.core.turn.context import Context
from dueq.core.turn.settings import CoreSettings
from dueq.instant import Now
from dueq_codecs.messages import Code, Reply

NOW = Now(1_700_000_000_000_000, 1_000_000)
NOW_MS = NOW.wall_us // 1000
NOTHING = {"scheduled": 0, "ready": 0, "leased": 0, "dead": 0}


def partition(
    topic: str, isr: str = "b1 b2 b3", serving: bool = True, min_isr: int = 2, **counts: int
) -> Any:
    """One on b1, b2 and b3, with so many messages."""
    return SimpleNamespace(
        topic=SimpleNamespace(name=topic, min_isr=min_isr),
        replicas=("b1", "b2", "b3"),
        replica=SimpleNamespace(serving=serving, isr=[Member(name, name) for name in isr.split()]),
        contents=SimpleNamespace(count=sum(counts.values()), forecast=lambda from_ms, seconds: []),
        describe=lambda now: {**NOTHING, **counts},
    )


class Broker:
    """A broker that is asked for its summary; its partitions are what the test says."""

    def __init__(self, *partitions: Any) -> None:
        self.ctx = Context(CoreSettings("b1", 11, "s1", "cluster", "tcp://b1"))
        self.topics = SimpleNamespace(version=1, by_name={})
        self.partitions = dict(enumerate(partitions))
        self.dispatchers: dict[str, Any] = {}
        clock: Any = SimpleNamespace(mesh_now_us=lambda now: now.wall_us)
        status: Any = SimpleNamespace(broker=lambda now: {"broker": "b1"})
        topics: Any = self.topics
        self.summaries = Summaries(self.ctx, clock, status, topics, self.partitions, self.dispatchers)

    def ask(self, number: int) -> None:
        self.summaries.ask(Route(b"client"), number)

    def replies(self) -> list[Reply]:
        sent = [effect.message for effect in self.ctx.take() if isinstance(effect, SendClient)]
        return [message for message in sent if isinstance(message, Reply)]

    def turn(self) -> list[int]:
        """Have a turn; returns the questions that were answered."""
        self.ctx.again = False
        self.summaries.work(NOW)
        return [reply.request_id for reply in self.replies()]

    def summary(self) -> dict[str, Any]:
        """Ask, and work until there is an answer."""
        self.ask(1)
        for _ in range(1_000):
            self.summaries.work(NOW)
            for reply in self.replies():
                found: dict[str, Any] = json.loads(reply.document)
                return found
        raise AssertionError("no answer")


# ---------------------------------------------------------------- what is counted


def test_partitions_that_another_broker_serves_are_in_its_own_summary() -> None:
    told = Broker(
        partition("mail"), partition("mail", serving=False), partition("post", serving=False)
    ).summary()
    assert (told["held"], told["topics"]) == (3, [["mail", 1]])
    assert told["replicas"]["b1"] == [1, 0, 0]


def test_it_tells_who_lacks_copies_and_which_partitions_have_none_to_spare() -> None:
    """With as few members of the ISR as there must be, nobody may be lost."""
    told = Broker(
        partition("mail"), partition("mail", isr="b1 b2"), partition("post", isr="b1 b2", min_isr=1)
    ).summary()
    assert {name: row for name, *row in told["topics"]} == {
        "mail": [2, 1, 0, 0, 0, 0, 0],
        "post": [1, 1, 0, 0, 0, 0, 0],
    }
    assert told["replicas"] == {"b1": [3, 1, 0], "b2": [3, 1, 0], "b3": [3, 1, 2]}


def test_messages_are_counted_by_topic_and_by_the_second_in_which_they_are_due() -> None:
    """A minute has sixty seconds: what lies at its edges belongs to the first and to the last one."""
    mail = partition("mail", scheduled=7, leased=2, dead=3)
    asked: list[tuple[int, int]] = []

    def forecast(from_ms: int, seconds: int) -> list[tuple[int, int]]:
        asked.append((from_ms, seconds))
        return [
            (NOW_MS - 500, 1),
            (NOW_MS, 1),
            (NOW_MS + 1_000, 2),
            (NOW_MS + 59_999, 1),
            (NOW_MS + 60_100, 2),
        ]

    mail.contents.forecast = forecast
    told = Broker(mail, partition("mail", ready=5)).summary()
    assert told["topics"] == [["mail", 2, 0, 7, 5, 2, 3, 7]]
    assert told["due_next_minute"] == [2, 2, *[0] * 57, 3]
    assert asked == [(NOW_MS, 60)]


def test_a_partition_that_is_gone_meanwhile_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summaries, "AT_ONCE", 1)
    broker = Broker(*(partition("mail") for _ in range(3)))
    broker.ask(1)
    assert broker.turn() == []
    del broker.partitions[0]
    assert broker.summary()["topics"] == [["mail", 2]]


def test_consumers_are_counted_with_what_they_want_and_hold() -> None:
    broker = Broker()
    sessions = [SimpleNamespace(credit=10, leases=3), SimpleNamespace(credit=5, leases=0)]
    broker.dispatchers["mail"] = SimpleNamespace(sessions=lambda now: sessions)
    broker.dispatchers["post"] = SimpleNamespace(sessions=lambda now: [])
    assert broker.summary()["consumers"] == [["mail", 2, 15, 3]]


def test_what_does_not_fit_is_counted_and_what_does_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer has to fit into a frame, rows and commas included."""
    names = [f"topic-{number:04}" for number in range(100)]
    whole = Broker(*map(partition, names)).summary()
    assert (len(whole["topics"]), whole["left_out"]) == (100, 0)
    monkeypatch.setattr(summaries, "_BYTES_MAX", 1_200)
    broker = Broker(*map(partition, names))
    broker.ask(1)
    broker.turn()
    broker.ask(2)
    broker.summaries.work(NOW)
    [reply] = broker.replies()
    told = json.loads(reply.document)
    assert 20 < len(told["topics"]) < 100
    assert len(told["topics"]) + told["left_out"] == 100
    assert len(reply.document) <= 1_200 + len(',"topics":[],"consumers":[],"left_out":100}')


def topic_with(endpoint: dict[str, object] | None, name: str) -> Any:
    return SimpleNamespace(name=name, settings=SimpleNamespace(endpoint=endpoint))


def test_disabled_endpoints_are_told_as_the_catalogue_has_them_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ENDPOINTS_DISABLED_TOLD", 2)
    broker = Broker()
    broker.topics.by_name = {
        name: topic_with({"name": "hook", "disabled": reason}, name)
        for name, reason in [("c", "410"), ("a", "404"), ("0", ""), ("b", "500")]
    } | {"e": topic_with(None, "e")}
    assert broker.summary()["disabled"] == [["a", "hook", "404"], ["b", "hook", "500"]]
    del broker.topics.by_name["a"]
    broker.topics.version += 1
    assert broker.summary()["disabled"] == [["b", "hook", "500"], ["c", "hook", "410"]]


# ---------------------------------------------------------------- whose question is answered when


def test_all_who_ask_in_one_turn_get_one_summary() -> None:
    broker = Broker(partition("mail"))
    broker.ask(1)
    broker.ask(2)
    assert broker.turn() == [1, 2]
    assert broker.turn() == []


def test_who_asks_while_one_is_made_gets_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is counted already may have changed before the question came."""
    monkeypatch.setattr(summaries, "AT_ONCE", 1)
    broker = Broker(partition("mail"), partition("mail"))
    broker.ask(1)
    assert broker.turn() == []
    broker.ask(2)
    assert broker.turn() == [1]
    assert broker.turn() == []
    assert broker.turn() == [2]


def test_another_turn_is_wanted_while_something_is_left_and_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing else may wake the broker meanwhile."""
    monkeypatch.setattr(summaries, "AT_ONCE", 1)
    broker = Broker(partition("mail"), partition("mail"))
    wanted = []
    broker.turn()
    wanted.append(broker.ctx.again)
    broker.ask(1)
    broker.turn()
    wanted.append(broker.ctx.again)
    broker.ask(2)
    broker.turn()
    wanted.append(broker.ctx.again)
    broker.turn()
    broker.turn()
    wanted.append(broker.ctx.again)
    assert wanted == [False, True, True, False]


def test_a_turn_that_others_want_stays_wanted() -> None:
    broker = Broker(partition("mail"))
    broker.ask(1)
    broker.ctx.again = True
    broker.summaries.work(NOW)
    assert broker.ctx.again


def test_partitions_with_messages_are_more_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summaries, "AT_ONCE", 20)
    for made, turns in [(partition("mail"), 1), (partition("mail", scheduled=1), 3)]:
        broker = Broker(*[made] * 5)
        broker.ask(1)
        found = [broker.turn() for _ in range(turns)]
        assert found == [[]] * (turns - 1) + [[1]]


def test_no_more_than_a_few_questions_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summaries, "_WAITING_MAX", 2)
    broker = Broker(partition("mail"))
    for number in (1, 2, 3):
        broker.ask(number)
    [refusal] = broker.replies()
    assert (refusal.request_id, refusal.code, refusal.retry_after_ms) == (3, Code.BUSY, 1_000)
    assert broker.turn() == [1, 2]
