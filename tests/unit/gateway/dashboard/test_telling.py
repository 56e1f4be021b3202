"""The events that bring pages up to date."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dueq.gateway.dashboard.history import History
from dueq.gateway.dashboard.snapshot import TopicSight
from dueq.gateway.dashboard.state import State
from dueq.gateway.dashboard.telling import Shown
from dueq.gateway.dashboard.views import View
from tests.unit.gateway.dashboard.sights import sight, topic

TOPICS = [topic(f"topic-{number:03}", scheduled=number) for number in range(50)]


def state(number: int, topics: Sequence[TopicSight] = TOPICS) -> State:
    return State(replace(sight(*topics, at_ms=1000 * number), number=number), [], History())


def said(event: bytes) -> tuple[str, Any]:
    name, data = event.decode().removesuffix("\n\n").split("\n")
    return name.removeprefix("event: "), json.loads(data.removeprefix("data: "))


def test_a_page_gets_all_at_first_and_then_what_has_changed() -> None:
    shown, view = Shown(), View()
    name, document = said(shown.told(view, state(1), [], 0))
    assert (name, len(document["topics"])) == ("view", 50)
    event = shown.told(view, state(2), [], 1)
    name, told = said(event)
    assert name == "change"
    assert {place[0] for place, *_ in told} <= {"number", "at", "seen", "chart"}
    assert len(event) < 200


def test_who_has_missed_a_look_gets_all_again() -> None:
    shown, view = Shown(), View()
    shown.told(view, state(1), [], 0)
    shown.told(View(search="topic-1"), state(2), [], 0)
    assert said(shown.told(view, state(3), [], 1))[0] == "view"
    assert said(shown.told(View(sort="name"), state(4), [], 3))[0] == "view"


def test_who_has_missed_a_look_that_others_saw_gets_all_again() -> None:
    shown, view = Shown(), View()
    for number in (1, 2, 3):
        shown.told(view, state(number), [], number - 1)
    assert said(shown.told(view, state(3), [], 1))[0] == "view"
    assert said(shown.told(view, state(3), [], 2))[0] == "change"


def test_pages_that_show_the_same_share_an_event() -> None:
    shown, view = Shown(), View()
    first, again = shown.told(view, state(1), [], 0), shown.told(View(), state(1), [], 0)
    assert first is again
    assert shown.told(view, state(2), [], 1) is shown.told(View(), state(2), [], 1)


def test_changes_that_are_longer_than_all_are_not_told() -> None:
    shown, view = Shown(), View(sort="name")
    shown.told(view, state(1), [], 0)
    seen = dict.fromkeys(("ready", "leased", "dead", "next_minute", "behind", "leaderless"), 1)
    others = [topic(f"other-{number:03}", scheduled=number + 1, paused=True, **seen) for number in range(50)]
    assert said(shown.told(view, state(2, others), [], 1))[0] == "view"
