"""What each page shows, made of one look."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("fastapi")

from dueq import limits
from dueq.gateway.dashboard.alarms import Alarms
from dueq.gateway.dashboard.feed import State
from dueq.gateway.dashboard.history import History
from dueq.gateway.dashboard.snapshot import Ahead, Sight
from dueq.gateway.dashboard.views import View
from tests.unit.gateway.dashboard.sights import partition, sight, topic


def state(look: Sight) -> State:
    history = History()
    return State(look, Alarms().take(look, history), history)


def test_of_ten_thousand_topics_a_page_shows_those_with_trouble_first() -> None:
    many = [topic(f"t{number:05}", scheduled=number) for number in range(10_000)]
    many[4321].dead = 3
    shown = View().document(state(sight(*many)), [])
    assert shown["topics"][0]["name"] == "t04321"
    assert [shown["topics"][1]["name"], len(shown["topics"]), shown["found"]] == [
        "t09999",
        limits.DASHBOARD_ROWS_MAX,
        10_000,
    ]
    assert shown["totals"]["scheduled"] == sum(range(10_000))


def test_topics_are_found_by_a_part_of_their_names_page_by_page() -> None:
    many = state(sight(*(topic(f"mail-{number:03}") for number in range(120)), topic("other")))
    shown = View(search="MAIL", sort="name", skip=100).document(many, [])
    assert [each["name"] for each in shown["topics"]] == [f"mail-{number:03}" for number in range(100, 120)]
    assert shown["found"] == 120


def test_the_next_minute_is_of_all_topics_and_what_follows_of_the_fullest() -> None:
    look = sight(topic("a", scheduled=2), topic("b", scheduled=1), at_ms=10_000)
    look.next_minute = [2, 0, 1]
    look.forecasts = {("a", limits.DASHBOARD_AHEAD_S): Ahead([(11_000, 99), (75_000, 4)])}
    assert View().document(state(look), [])["chart"]["due"] == {"10": 2, "12": 1, "75": 4}


def test_a_topics_partitions_are_shown_with_trouble_first() -> None:
    parts = [partition(index=0), partition("b1", index=1), partition(serving=False, index=2)]
    shown = View(topic="mail").document(state(sight(topic(partitions=parts))), [])
    assert [each["index"] for each in shown["parts"]] == [2, 1, 0]


def test_sessions_of_one_consumer_are_put_together() -> None:
    sessions = [
        {"consumer": "c", "broker": broker, "credit": 10, "leased": 2, "heard_ms": 5}
        for broker in ("b1", "b2")
    ]
    (found,) = View(topic="mail").document(state(sight(topic(consumers=sessions))), [])["consumers"]
    assert found == {"consumer": "c", "brokers": ["b1", "b2"], "credit": 20, "leased": 4, "heard_ms": 5}


def test_a_topic_that_is_not_there_is_said_to_be_missing() -> None:
    assert View(topic="gone").document(state(sight(topic())), [])["topic"] is None


def test_notes_that_do_not_fit_into_a_page_are_nothing_to_be_done() -> None:
    """Old dead messages of a hundred topics: the page said that fifty things need somebody."""
    many = [topic(f"t{number:03}", dead=1) for number in range(100)]
    noted = View().document(state(sight(*many)), [])["alarms"]
    assert (len(noted["shown"]), noted["more"], noted["serious"]) == (limits.DASHBOARD_ROWS_MAX, 50, 0)
    many[7].ready = 2
    many[7].info = replace(many[7].info, paused=True)
    assert View().document(state(sight(*many)), [])["alarms"]["serious"] == 1
    assert View(topic="t007").document(state(sight(*many)), [])["alarms"]["serious"] == 1
    assert View(topic="t008").document(state(sight(*many)), [])["alarms"]["serious"] == 0
