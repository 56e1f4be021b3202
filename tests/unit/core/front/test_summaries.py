"""The summary of a broker: topics in a few numbers, made some partitions at a time."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dueq import Client
from dueq.client import calls, endpoints, summaries
from dueq.client.summaries import MeshSummary, TopicCounts
from dueq.core.front import summaries as making
from dueq.testing import mesh


def marks(client: Client) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = client.connection.run(calls.catalogues(), 60)
    return found


def summary(client: Client) -> MeshSummary:
    found: MeshSummary = client.connection.run(summaries.summary(), 60)
    return found


def test_topics_are_told_in_a_few_numbers() -> None:
    with mesh() as found:
        client = found.client()
        client.create_topic("mail", partitions=3, max_attempts=1)
        client.create_topic("quiet")
        for seconds in (5, 5, 70):
            client.producer("mail").schedule(b"x", timedelta(seconds=seconds))
        told = summary(client)
        assert told.topics["quiet"] == TopicCounts(served=1)
        assert told.topics["mail"] == TopicCounts(served=3, scheduled=3, next_minute=2)
        assert sum(told.next_minute) == 2
        with client.consumer("mail") as consumer:
            found.advance(5)
            held = consumer.receive(1)
            told = summary(client)
            mail = told.topics["mail"]
            assert (mail.leased, mail.consumers, mail.held) == (2, 1, 2)
            held[0].nack(reason="no", wait=True)
            assert summary(client).topics["mail"].dead == 1
        [replicas] = told.replicas.values()
        assert (replicas.held, replicas.behind) == (4, 0)
        [broker] = told.brokers.values()
        assert (broker["alive"], broker["held"]) == (True, 4)


def test_the_mark_of_the_catalogue_changes_with_topics_and_settings_only() -> None:
    with mesh() as found:
        client = found.client()
        client.create_topic("mail")
        before = summary(client).catalogues
        client.producer("mail").schedule(b"x", 0)
        assert summary(client).catalogues == before == marks(client)
        client.update_topic("mail", max_attempts=3)
        changed = summary(client).catalogues
        assert changed != before
        assert marks(client) == changed
        client.delete_topic("mail")
        assert summary(client).catalogues != changed


def test_endpoints_that_are_disabled_are_named() -> None:
    with mesh() as found:
        client = found.client()
        client.create_topic("mail")
        client.set_endpoint("hook", "mail", "https://example.com/")
        assert summary(client).disabled == []
        follow = client.connection.follow
        follow(endpoints.disable(follow(endpoints.find("hook"), 60), "it answered 410"), 60)
        assert summary(client).disabled == [("mail", "hook", "it answered 410")]


def test_many_partitions_take_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making, "AT_ONCE", 2)
    with mesh() as found:
        client = found.client()
        client.create_topic("mail", partitions=7)
        client.create_topic("post", partitions=2)
        assert {name: each.served for name, each in summary(client).topics.items()} == {"mail": 7, "post": 2}


def test_what_does_not_fit_into_a_frame_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    with mesh() as found:
        client = found.client()
        for number in range(5):
            client.create_topic(f"t{number}")
        monkeypatch.setattr(making, "_BYTES_MAX", 10)
        assert summary(client).left_out == 5


def test_a_status_of_one_topic_has_nothing_of_others() -> None:
    with mesh() as found:
        client = found.client()
        client.create_topic("mail", partitions=2)
        client.create_topic("post")
        with client.consumer("mail"), client.consumer("post"):
            told = client.connection.run(calls.status("mail"), 60)
        assert list(told["topics"]) == ["mail"]
        assert len(told["topics"]["mail"]["partitions"]) == 2
        assert {each["topic"] for each in told["consumers"]} <= {"mail"}


def test_a_status_tells_what_is_due_in_each_second_of_the_next_minute() -> None:
    with mesh() as found:
        client = found.client()
        client.create_topic("mail", partitions=1)
        client.create_topic("quiet", partitions=1)
        for seconds in (5, 5, 50, 70):
            client.producer("mail").schedule(b"x", timedelta(seconds=seconds))
        topics = client.connection.run(calls.status(), 60)["topics"]
    [mail], [quiet] = (topics[name]["partitions"] for name in ("mail", "quiet"))
    due = mail["due_next_minute"]
    assert (len(due), [count for count in due if count]) == (60, [2, 1])
    assert "due_next_minute" not in quiet
