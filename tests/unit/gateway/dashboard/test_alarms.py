"""Alarms say what is wrong in words, with the next step."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

pytest.importorskip("fastapi")

from dueq import limits
from dueq.gateway.dashboard.alarms import Alarm, Alarms, shown
from dueq.gateway.dashboard.history import History
from tests.unit.gateway.dashboard.sights import broker, partition, sight, topic

SESSION = {"consumer": "c", "broker": "b1", "credit": 10, "leased": 0}


def after(*looks: Any) -> list[Alarm]:
    """The alarms after the last of some looks, a minute apart."""
    alarms, found = Alarms(), list[Alarm]()
    for minute, look in enumerate(looks):
        found = alarms.take(replace(look, at_ms=minute * 60_000), History())
    return found


def said(*looks: Any) -> list[tuple[str, str]]:
    return [(alarm.level, alarm.what) for alarm in after(*looks)]


def test_a_mesh_that_is_well_needs_nobody() -> None:
    assert said(sight(topic(scheduled=5, consumers=[SESSION]))) == []


def test_a_broker_that_is_away_is_said_at_once_with_what_it_means() -> None:
    look = sight(topic(partitions=[partition("b1 b3")]), b2=broker(alive=False))
    ((level, what),) = said(look)
    assert level == "bad"
    assert what == (
        "Broker b2 does not answer: others have taken over; 1 partition has one copy fewer, and must not lose another."
    )
    assert "Start it again" in after(look)[0].next


def test_a_broker_that_holds_nothing_is_missed_less() -> None:
    assert [level for level, _ in said(sight(b2=broker(alive=False)))] == ["warn"]


def test_no_broker_at_all_is_the_only_thing_worth_saying() -> None:
    ((level, what),) = said(replace(sight(topic(ready=5)), fault="no broker was reached"))
    assert (level, what) == ("bad", "No broker answers this gateway: nothing is known of the mesh just now.")


def test_a_change_of_leaders_is_no_trouble_and_a_missing_leader_is() -> None:
    look = sight(topic(partitions=[partition(serving=False)], leaderless=1))
    assert said(look) == []
    assert said(look, look) == [("bad", "1 partition of mail has no leader: nothing in it is delivered.")]


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"degraded": "zookeeper"}, "has lost ZooKeeper"),
        ({"inserts_refused": "disk_full"}, "refuses new messages: its disk is full"),
        ({"clock": {"alarm": "clocks in the mesh differ"}}, "says of its clock: clocks in the mesh differ."),
        ({"unopened": {"7": "newer"}}, "cannot open 1 of its replicas"),
        ({"orphans": {"7": "mail"}}, "holds 1 replicas of topics"),
    ],
)
def test_what_a_broker_says_of_itself_is_said(told: dict[str, Any], words: str) -> None:
    ((_, what),) = said(sight(b1=broker(**told)))
    assert words in what


def test_two_builds_side_by_side_are_noted() -> None:
    assert [level for level, _ in said(sight(b1=broker(feature_level=3)))] == ["note"]


def test_a_paused_topic_is_worth_a_note_and_more_when_messages_wait_for_it() -> None:
    assert said(sight(topic(paused=True))) == [
        ("note", "mail is paused until it is resumed; nothing is due yet.")
    ]
    assert said(sight(topic(paused=True, ready=2))) == [
        ("warn", "mail is paused until it is resumed; 2 messages are due and wait.")
    ]
    unknown = "how much waits is not known while a partition has no leader"
    assert ("note", f"mail is paused until it is resumed; {unknown}.") in said(
        sight(topic(paused=True, leaderless=1))
    )


def test_nobody_who_takes_what_is_due_is_broken_and_before_that_a_warning() -> None:
    due = sight(topic(ready=3))
    assert said(due, due) == [("bad", "3 messages of mail are due, and no consumer is there to take them.")]
    soon = sight(topic(scheduled=1, next_minute=1))
    assert said(soon) == [("warn", "No consumer of mail is there, and 1 message falls due within a minute.")]


def test_what_others_receive_by_http_needs_no_session() -> None:
    assert said(sight(topic(scheduled=1, next_minute=1, leased=4))) == []


def test_late_messages_are_said_with_what_holds_them_up() -> None:
    full = sight(topic(ready=3, leased=10, consumers=[{**SESSION, "leased": 10}]))
    assert "as many messages as they may" in after(full, full)[0].next
    limited = sight(topic(ready=3, consumers=[SESSION], rate=5))
    assert "rate is 5 a second" in after(limited, limited)[0].next


def test_a_consumer_is_not_asked_for_what_only_paused_groups_hold() -> None:
    """The dashboard said that a consumer would get it at once."""
    held = sight(topic(ready=3, next_minute=1, scheduled=1, paused_groups=["acme"], in_paused=4))
    [alarm] = after(held, held)
    assert (alarm.level, alarm.what) == (
        "warn",
        "3 messages of mail are due and wait in a paused group."
        " The group 'acme' is paused and holds 4 messages, due or not.",
    )
    assert alarm.next == "Resume the group: consumers get nothing of it before."
    soon = sight(topic(scheduled=1, next_minute=1, paused_groups=["acme"], in_paused=1))
    assert said(soon) == []


def test_what_no_paused_group_holds_is_counted_without_the_rest() -> None:
    both = sight(topic(ready=5, paused_groups=["acme", "zoo"], in_paused=3))
    alone, held = after(both, both)
    of_groups = " The groups 'acme' and 1 other are paused and hold 3 messages, due or not."
    assert (alone.level, alone.what) == (
        "bad",
        f"2 messages of mail are due, and no consumer is there to take them.{of_groups}",
    )
    assert alone.next == "Start a consumer of this topic: it gets at once what no paused group holds."
    assert held.what == f"3 messages of mail are due and wait in paused groups.{of_groups}"
    late = sight(topic(ready=5, paused_groups=["acme"], in_paused=3, consumers=[SESSION]))
    assert [each.weight for each in after(late, late)] == [3, 2]
    assert after(late, late)[1].next.startswith("Resume what is paused")


def test_dead_messages_are_noted_and_growing_ones_are_a_warning() -> None:
    first, more, fewer = sight(topic(dead=3)), sight(topic(dead=5)), sight(topic(dead=1))
    assert [level for level, _ in said(first)] == ["note"]
    ((level, what),) = said(first, more)
    assert (level, "2 more in the last minute" in what) == ("warn", True)
    assert "stop what kills them" in after(first, more)[0].next
    assert [level for level, _ in said(first, more, fewer)] == ["note"]
    assert [level for level, _ in said(first, more, fewer, more)] == ["warn"]
    assert "more in the last 9 minutes" in said(first, *[more] * 9)[0][1]
    assert [level for level, _ in said(first, *[more] * 12)] == ["note"]


def test_an_endpoint_that_is_disabled_is_broken_and_says_why_and_what_waits() -> None:
    look = sight(topic(paused=True, ready=2), topic("post", dead=1))
    look.disabled = [("mail", "hook", "410 Gone"), ("gone", "old", "410 Gone")]
    found = after(look)
    assert [(each.level, each.key) for each in found] == [("bad", "disabled mail"), ("note", "dead post")]
    assert found[0].what == (
        "The endpoint hook of mail is disabled: 410 Gone. 2 messages of mail are due and wait."
    )
    assert "resume the endpoint" in found[0].next


def test_of_two_that_are_alike_the_one_about_more_messages_comes_first() -> None:
    look = sight(topic("a", ready=3), topic("b", ready=500), topic("c", ready=40))
    assert [each.topic for each in after(look, look)] == ["b", "c", "a"]


def test_a_broker_that_is_away_comes_before_the_topics_that_suffer_as_much() -> None:
    suffering = topic("a", ready=500, partitions=[partition("b1 b3")])
    found = after(*[sight(suffering, b2=broker(alive=False))] * 2)
    assert [alarm.key for alarm in found] == ["away b2", "alone a"]


def test_a_pause_that_ends_by_itself_says_when() -> None:
    paused = topic(paused=True)
    paused.info = replace(paused.info, paused_until=datetime(2026, 1, 1, tzinfo=UTC))
    [alarm] = after(sight(paused))
    assert alarm.until_ms == int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000)


def test_the_worst_comes_first_and_since_when_it_has_been_so() -> None:
    look = sight(topic(dead=1, paused=True), b2=broker(alive=False))
    found = after(look, look)
    assert [alarm.level for alarm in found] == ["bad", "note", "note"]
    assert {alarm.since_ms for alarm in found} == {0}


def test_a_page_shows_so_many_and_says_how_many_more() -> None:
    found = after(sight(*(topic(f"t{number}", dead=1) for number in range(limits.DASHBOARD_ROWS_MAX + 7))))
    some, more, serious = shown(found)
    assert (len(some), more, serious) == (limits.DASHBOARD_ROWS_MAX, 7, 0)
    assert [alarm.topic for alarm in shown(found, "t3")[0]] == ["t3"]


def test_a_receiver_that_fails_is_said_and_not_that_more_consumers_would_help() -> None:
    full = topic(ready=5, leased=64, consumers=[{**SESSION, "leased": 10}])
    look = replace(sight(full), failing={"mail": ("hook", "HTTP 500:\n  boom")})
    assert said(look) == [
        (
            "bad",
            "The receiver of the endpoint hook of mail fails: HTTP 500: boom. 5 messages are due and wait.",
        )
    ]
    later = replace(sight(topic(scheduled=1)), failing={"mail": ("hook", "no answer within 2 s")})
    assert said(later) == [("warn", "The receiver of the endpoint hook of mail fails: no answer within 2 s.")]
    well = replace(look, failing={})
    assert [alarm.key for alarm in after(look, well, well)] == ["late mail"]


def test_a_receiver_that_has_failed_is_no_trouble_once_nothing_is_to_be_sent() -> None:
    look = replace(sight(topic(dead=1)), failing={"mail": ("hook", "HTTP 500")})
    assert [alarm.key for alarm in after(look)] == ["dead mail"]


def test_one_message_is_one() -> None:
    disabled = replace(sight(topic(ready=1)), disabled=[("mail", "hook", "HTTP 410")])
    for look, words in (
        (disabled, "1 message of mail is due and waits."),
        (sight(topic(paused=True, ready=1)), "1 message is due and waits."),
        (
            replace(sight(topic(ready=1)), failing={"mail": ("hook", "HTTP 500")}),
            "1 message is due and waits.",
        ),
    ):
        assert after(look)[0].what.endswith(words)
