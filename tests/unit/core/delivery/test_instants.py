"""A turn that only pushes what was laid out: it pushes what a whole one would, and leaves everything else to one."""

from __future__ import annotations

import numpy as np
import pytest

from dueq.core.delivery.dispatch import TICK_US
from dueq.core.ports.events import Route
from dueq_codecs.frames import encode
from dueq_codecs.messages import ConsumerAction, Push
from dueq_codecs.records import RecordKind
from dueq_codecs.topic_settings import TopicSettings
from tests.unit.core.led import ALICE, BOB, MONO_US, Stage, at, keys_in


def granted(*dues_ms: int, partitions: int = 1) -> tuple[Stage, list[int]]:
    """A stage whose messages are leased and wait for their instant, after a whole turn."""
    stage = Stage(partitions=partitions)
    keys = stage.insert(list(dues_ms))
    stage.attach(0)
    stage.run(0)
    stage.dispatcher.next_deadline_us(at(0))
    return stage, keys


def push_only(stage: Stage, ms: float) -> tuple[bool, list[Push]]:
    """A turn that only pushes: whether that was all, and its pushes."""
    enough = stage.dispatcher.push(at(ms), stage.clock)
    sends = stage.dispatcher.take_sends()
    stage.sent += sends
    return enough, [message for _, message, _ in sends if isinstance(message, Push)]


def test_its_frames_are_those_of_a_whole_turn() -> None:
    frames = []
    for instants in (False, True):
        stage = Stage(partitions=2)
        stage.insert([20, 19, 22], uid=2)
        stage.insert([20, 21], uid=1)
        stage.attach(0)
        stage.attach(0, BOB)
        stage.run(0)
        stage.instants = instants
        stage.sent.clear()
        for ms in (19, 20, 21, 22):
            stage.tick(ms)
        frames.append([(route, encode(message, bodies)) for route, message, bodies in stage.sent])
    assert frames[0] == frames[1]
    assert frames[0]


def test_nothing_leaves_early() -> None:
    stage, keys = granted(20, 22)
    assert push_only(stage, 19.999) == (True, [])
    assert stage.dispatcher.next_push_us(at(19.999)) == MONO_US + 20_000
    enough, (push,) = push_only(stage, 20)
    assert (enough, keys_in(push)) == (True, keys[:1])
    assert stage.dispatcher.next_push_us(at(20)) == MONO_US + 22_000


def test_what_has_left_is_counted_by_the_next_whole_turn() -> None:
    stage, _ = granted(20)
    push_only(stage, 20)
    assert stage.metrics.messages["push", "t"] == 0
    assert stage.dispatcher.next_push_us(at(20)) <= MONO_US + TICK_US
    stage.tick(TICK_US / 1000)
    assert stage.metrics.messages["push", "t"] == 1
    assert sum(stage.metrics.lateness_of("t").counts) == 1


def test_what_is_to_be_leased_wants_a_whole_turn() -> None:
    stage, _ = granted(20, 500)
    far = stage.insert([60], 1)
    stage.run(1)
    stage.dispatcher.next_deadline_us(at(1))
    assert push_only(stage, 20)[0]
    stage.dispatcher.next_push_us(at(20))
    assert push_only(stage, 30) == (False, [])
    stage.run(30)
    (push,) = stage.run(60)
    assert keys_in(push) == far


def test_the_end_of_a_lease_wants_a_whole_turn() -> None:
    stage = Stage()
    stage.insert([20])
    stage.attach(0, lease_ms=1_000)
    stage.run(0)
    stage.dispatcher.next_deadline_us(at(0))
    assert push_only(stage, 20)[0]
    for ms in range(40, 1_040, 40):
        if not push_only(stage, ms)[0]:
            stage.run(ms)
            stage.dispatcher.next_deadline_us(at(ms))
    assert push_only(stage, 1_060)[0] is False
    stage.run(1_060)
    assert stage.leds[1].log[-1].kind == RecordKind.EXPIRE


def test_what_comes_due_between_a_push_and_its_turn_leaves_with_the_next_push() -> None:
    stage, keys = granted(20, 21, 22)
    assert [keys_in(push) for push in push_only(stage, 20)[1]] == [keys[:1]]
    stage.tick(21)
    assert stage.dispatcher.next_deadline_us(at(21)) == MONO_US + 21_000
    enough, (push,) = push_only(stage, 22)
    assert (enough, keys_in(push)) == (True, keys[1:])
    assert push.number == 2


def test_a_turn_pushes_what_comes_due_in_it_where_not_all_of_it_was_laid_out() -> None:
    """A push that pushes only what was laid out would leave it to one more turn."""
    stage, keys = granted(20, 21)
    keys += stage.insert([21], expires_ms=60_000)
    stage.run(1)
    stage.dispatcher.next_deadline_us(at(1))
    assert [keys_in(push) for push in push_only(stage, 20)[1]] == [keys[:1]]
    stage.tick(21)
    assert [keys_in(m) for _, m, _ in stage.sent if isinstance(m, Push)] == [keys[:1], keys[1:]]


def test_what_is_due_a_millisecond_later_does_not_leave_along_with_what_was_not_laid_out() -> None:
    stage, keys = granted(21)
    keys += stage.insert([20], expires_ms=60_000)
    stage.run(1)
    stage.tick(20)
    assert [keys_in(m) for _, m, _ in stage.sent if isinstance(m, Push)] == [keys[1:]]


def test_a_turn_pushes_what_the_push_before_it_could_not() -> None:
    stage, keys = granted(20, 21)
    stage.leds[1].answering = False
    assert push_only(stage, 20) == (False, [])
    stage.leds[1].answering = True
    stage.tick(21)
    (push,) = [message for _, message, _ in stage.sent if isinstance(message, Push)]
    assert keys_in(push) == keys


def test_what_was_left_to_a_push_that_cannot_leave_is_pushed_by_the_next_turn() -> None:
    stage, keys = granted(20, 21)
    push_only(stage, 20)
    stage.tick(21)
    stage.leds[1].answering = False
    assert push_only(stage, 21) == (False, [])
    stage.leds[1].answering = True
    stage.tick(22)
    assert [keys_in(m) for _, m, _ in stage.sent if isinstance(m, Push)] == [keys[:1], keys[1:]]


@pytest.mark.parametrize(
    "what", ["paused", "frame", "route", "shift", "unled", "hold", "unconfirmed", "withheld"]
)
def test_whatever_has_happened_wants_a_whole_turn(what: str) -> None:
    stage, keys = granted(20)
    if what == "paused":
        stage.leds[1].timeline._live.settings.current = TopicSettings(paused=True)
    elif what == "frame":
        stage.beat(10)
    elif what == "route":
        (push,) = [message for _, message, _ in stage.sent][-1:]
        stage.dispatcher.route_lost(Route(ALICE), push, at(10))
    elif what == "shift":
        stage.dispatcher.shift(1_000, at(10))
    elif what == "unled":
        stage.dispatcher.unlead(1, at(10))
    elif what == "hold":
        stage.tick(10, paused=True)
        stage.dispatcher.next_deadline_us(at(10))
    elif what == "unconfirmed":
        stage.leds[1].answering = False
    else:
        stage.dispatcher.withhold(1, np.array(keys, np.uint64))
    assert push_only(stage, 20) == (False, [])


def test_a_goodbye_before_the_instant_keeps_the_message_here() -> None:
    stage, _ = granted(20)
    stage.frame(ConsumerAction.GOODBYE, 10)
    assert push_only(stage, 20) == (False, [])
    assert stage.run(20) == []


def test_what_was_not_laid_out_leaves_as_soon_as_the_leadership_is_confirmed() -> None:
    stage = Stage()
    keys = stage.insert([20], expires_ms=60_000)
    stage.attach(0)
    stage.run(0)
    stage.leds[1].answering = False
    stage.tick(20)
    stage.dispatcher.next_deadline_us(at(20))
    stage.leds[1].answering = True
    assert push_only(stage, 20.5) == (False, []), "it is not pushed, and not left out"
    (push,) = stage.run(20.5)
    assert keys_in(push) == keys
