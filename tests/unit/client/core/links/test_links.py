"""A client's links: how long one without an answer is waited for."""

from __future__ import annotations

from itertools import pairwise

from dueq.client.core.ports import events
from dueq.client.core.ports.effects import CloseLink, OpenLink
from tests.unit.client.stage import Stage, endpoint, of


def test_a_connection_that_does_not_come_about_is_made_anew_after_two_seconds() -> None:
    stage = Stage()
    stage.step()
    first = stage.links[endpoint("a")]
    assert not of(stage.run_until(1_999), CloseLink)
    assert of(stage.run_until(2_000), CloseLink) == [CloseLink(first)]
    assert of(stage.run_until(2_200), OpenLink) == [OpenLink(first + 1, endpoint("a"))]


def test_a_hello_without_an_answer_is_a_connection_that_has_not_come_about() -> None:
    stage = Stage()
    stage.step()
    stage.step(events.LinkReady(stage.links[endpoint("a")]), ms=1_500)
    assert of(stage.run_until(2_000), CloseLink)


def test_who_never_answers_is_waited_for_longer_each_time_up_to_four_seconds() -> None:
    stage = Stage()
    opened = [stage.ms for _ in of(stage.step(), OpenLink)]
    closed: list[float] = []
    while len(closed) < 10:
        assert stage.core.next_deadline_us is not None
        effects = stage.run_until((stage.core.next_deadline_us - stage.at_us(0)) / 1000)
        opened += [stage.ms for _ in of(effects, OpenLink)]
        closed += [stage.ms for _ in of(effects, CloseLink)]
    waits = [round(end - begin) for begin, end in zip(opened, closed, strict=False)]
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (2_000, 4_000)


def test_who_was_away_for_long_is_found_within_six_seconds_of_coming_back() -> None:
    """A message that falls due meanwhile is late by no more, for a consumer with one broker only."""
    stage = Stage()
    stage.step()
    attempts: list[float] = []
    while stage.ms < 60_000:
        assert stage.core.next_deadline_us is not None
        effects = stage.run_until((stage.core.next_deadline_us - stage.at_us(0)) / 1000)
        attempts += [stage.ms for _ in of(effects, OpenLink)]
    assert max(later - earlier for earlier, later in pairwise(attempts)) <= 6_000


def test_a_link_that_was_up_has_five_seconds_from_its_last_frame() -> None:
    stage = Stage()
    stage.connect()
    assert not of(stage.run_until(4_999), CloseLink)
    assert of(stage.run_until(5_000), CloseLink)
