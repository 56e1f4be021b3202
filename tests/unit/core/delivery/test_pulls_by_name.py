"""A later pull of a name gets what earlier ones had: of another process under new tokens, so that it is fenced."""

from __future__ import annotations

import pytest

from dueq.core.delivery import pull_names
from dueq.core.ports.events import Route
from dueq_codecs.messages import Code, Push
from dueq_codecs.records import RecordKind
from dueq_codecs.topic_settings import TopicSettings
from tests.unit.core.delivery.test_pulls import NAME, PULL, ends, lead_anew, pull, staged
from tests.unit.core.led import Stage, at, keys_in, kinds

NEXT, LATER, THIRD = PULL[:8] + b"2" * 8, b"q" * 16, b"q" * 8 + b"2" * 8
"""Pulls of two processes: PULL and NEXT are of the first one."""
OLD, NEW = 7, 8
"""The lives of the two."""


def first(count: int = 1, life: int = OLD) -> tuple[Stage, Push, list[int]]:
    """An older process has pulled."""
    stage, keys = staged(count)
    pull(stage, 20, holder=NAME, life=life)
    (push,) = stage.run(20)
    assert keys_in(push) == keys
    return stage, push, keys


def releases_late(stage: Stage, push: Push, ms: float) -> int:
    """A RELEASE arrives that the older process has sent; returns how many messages wait then."""
    timeline = stage.leds[1].timeline
    stage.leds[1].change(RecordKind.RELEASE, keys_in(push), at(ms), token=push.token.tolist())
    stage.run(ms)
    return timeline.live_count - timeline.leased_count


@pytest.mark.parametrize("changed", [False, True])
@pytest.mark.parametrize("lives", [(OLD, NEW), (0, 0), (OLD, 0)])
def test_what_another_process_has_sent_settles_nothing_of_the_later_one(
    lives: tuple[int, int], changed: bool
) -> None:
    stage, push, keys = first(life=lives[0])
    if changed:
        lead_anew(stage, 30)
    pull(stage, 40, LATER, holder=NAME, life=lives[1])
    (again,) = stage.run(40)
    assert (keys_in(again), again.consumer_id, again.attempt.tolist()) == (keys, LATER, [2])
    assert again.lease_left_ms.tolist() == [20_000]
    assert releases_late(stage, push, 50) == 0
    stage.ack(again, 60)
    assert stage.leds[1].timeline.live_count == 0
    assert [(end.consumer_id, end.push_sent) for end in ends(stage)] == [(PULL, 1), (LATER, 1)]


@pytest.mark.parametrize("changed", [False, True])
@pytest.mark.parametrize("life", [OLD, NEW, 0])
def test_the_next_pull_of_the_process_gets_the_same_lease(life: int, changed: bool) -> None:
    """A new leader knows which process it is as well."""
    stage, push, keys = first()
    if changed:
        lead_anew(stage, 30)
    pull(stage, 40, NEXT, holder=NAME, life=life, credit=0)
    (again,) = stage.run(40)
    assert (keys_in(again), again.token.tolist(), again.attempt.tolist()) == (keys, push.token.tolist(), [1])
    pull(stage, 50, NEXT, holder=NAME, life=life, credit=0, attach=2)
    (again,) = stage.run(50)
    assert again.token.tolist() == push.token.tolist()
    assert kinds(stage) == [RecordKind.LEASE]


def test_a_push_that_comes_back_late_returns_nothing_that_the_next_pull_was_brought_under_its_token() -> None:
    stage, lost, keys = first()
    pull(stage, 40, NEXT, holder=NAME, life=OLD)
    (again,) = stage.run(40)
    stage.dispatcher.route_lost(Route(b"c" * 16), lost, at(50))
    assert stage.run(50) == []
    assert (kinds(stage), keys_in(again)) == ([RecordKind.LEASE], keys)


def test_what_was_renewed_is_the_later_process_s_at_a_new_leader_too() -> None:
    stage, _, keys = first()
    pull(stage, 40, LATER, holder=NAME, life=NEW)
    (renewed,) = stage.run(40)
    lead_anew(stage, 50)
    pull(stage, 60, THIRD, holder=NAME, life=NEW)
    (again,) = stage.run(60)
    assert (keys_in(again), again.token.tolist()) == (keys, renewed.token.tolist())
    pull(stage, 70, NEXT, holder=NAME, life=NEW + 1)
    (again,) = stage.run(70)
    assert again.token.tolist() != renewed.token.tolist()


def test_an_older_pull_takes_nothing_from_a_later_one() -> None:
    """It asks another leader first, and the later one has been served meanwhile."""
    stage, push, _ = first(life=9 << 30)
    older = (9 << 30) - (50_000 << 12)
    pull(stage, 40, LATER, holder=NAME, life=older)
    assert stage.run(40) == []
    assert [end.code for end in ends(stage) if end.consumer_id == LATER] == [Code.OK]
    pull(stage, 42, LATER, holder=NAME, life=older, attach=2, wait_ms=1_000)  # as after asking all leaders
    pull(stage, 44, LATER, holder=NAME, life=older, attach=3, wait_ms=1_000)
    pull(stage, 46, THIRD, holder=NAME, life=older + 1)
    assert stage.run(46) == []
    stage.ack(push, 50)
    assert stage.leds[1].timeline.live_count == 0


def test_what_a_later_process_lists_is_left_alone() -> None:
    stage, push, keys = first(2)
    pull(stage, 40, LATER, holder=NAME, life=NEW, held=((keys[0], int(push.token[0])),))
    (again,) = stage.run(40)
    assert keys_in(again) == keys[1:]
    assert releases_late(stage, push, 50) == 1


def test_a_lost_answer_with_new_tokens_is_pushed_again_under_these() -> None:
    stage, _, keys = first()
    pull(stage, 40, LATER, holder=NAME, life=NEW, wait_ms=1_000)
    (lost,) = stage.run(40)
    for attach in (2, 3):
        pull(stage, 50 + attach, LATER, holder=NAME, life=NEW, attach=attach, wait_ms=1_000)
        (again,) = stage.run(50 + attach)
        assert (keys_in(again), again.token.tolist()) == (keys, lost.token.tolist())
    assert kinds(stage) == [RecordKind.LEASE, RecordKind.LEASE]


def test_what_could_not_be_renewed_at_first_is_renewed_for_a_later_pull_of_the_process() -> None:
    """The topic is paused meanwhile."""
    stage, push, keys = first()
    settings = stage.leds[1].timeline._live.settings
    settings.current = TopicSettings(paused=True)
    pull(stage, 40, LATER, holder=NAME, life=NEW)
    assert stage.run(40) == []
    assert [(end.consumer_id, end.push_sent) for end in ends(stage)][-1] == (LATER, 0)
    settings.current = TopicSettings()
    pull(stage, 50, THIRD, holder=NAME, life=NEW, wait_ms=1_000)
    (again,) = stage.run(50)
    assert keys_in(again) == keys
    assert again.token.tolist() != push.token.tolist()


def test_triggered_messages_come_again_in_a_pause() -> None:
    stage, keys = staged(2)
    led = stage.leds[1]
    led.timeline._live.settings.current = TopicSettings(paused=True)
    led.change(RecordKind.TRIGGER, keys[:1], at(15)).version = 2
    stage.commit(15)
    pull(stage, 20, holder=NAME, life=OLD)
    (push,) = stage.run(20)
    assert keys_in(push) == keys[:1]
    pull(stage, 40, LATER, holder=NAME, life=NEW)
    (again,) = stage.run(40)
    assert keys_in(again) == keys[:1]
    assert again.token.tolist() != push.token.tolist()


def test_in_a_pause_triggered_messages_go_before_those_that_wait_for_its_end() -> None:
    stage, keys = staged(2)
    pull(stage, 15, holder=NAME, life=OLD)
    (push,) = stage.run(15)
    assert keys_in(push) == keys
    led = stage.leds[1]
    led.change(RecordKind.RELEASE, keys[1:], at(16), token=push.token.tolist()[1:])
    stage.run(16)
    led.timeline._live.settings.current = TopicSettings(paused=True)
    led.change(RecordKind.TRIGGER, keys[1:], at(17)).version = 2
    stage.commit(17)
    pull(stage, 20, NEXT, holder=NAME, life=OLD, held=((keys[0], int(push.token[0])),))
    (push,) = stage.run(20)
    assert keys_in(push) == keys[1:]
    pull(stage, 40, LATER, holder=NAME, life=NEW, credit=1)
    (again,) = stage.run(40)
    assert keys_in(again) == keys[1:]


@pytest.mark.parametrize("on_hold", [False, True])
def test_pulls_in_a_pause_leave_nothing_behind(on_hold: bool) -> None:
    """Of the topic, or while the clock is on hold."""
    stage, _, _ = first()
    stage.leds[1].timeline._live.settings.current = TopicSettings(paused=True)
    for number in range(50):
        pull(stage, 40 + number, b"q" * 8 + number.to_bytes(8, "big"), holder=NAME, life=NEW + number)
        stage.tick(40 + number, paused=on_hold)
    assert len(stage.dispatcher._renewals._wanted) <= 1
    stage.run(100)
    assert not stage.dispatcher._renewals._wanted


def test_a_pull_that_waits_is_brought_what_may_be_renewed_later() -> None:
    stage, _, keys = first()
    settings = stage.leds[1].timeline._live.settings
    settings.current = TopicSettings(paused=True)
    pull(stage, 40, LATER, holder=NAME, life=NEW, wait_ms=1_000)
    assert stage.run(40) == []
    settings.current = TopicSettings()
    (again,) = stage.run(200)
    assert (keys_in(again), again.consumer_id) == (keys, LATER)
    assert [(end.consumer_id, end.push_sent) for end in ends(stage)][-1] == (LATER, 1)


def test_what_is_more_than_a_later_process_asks_for_comes_to_its_next_pull() -> None:
    stage, push, keys = first(3)
    pull(stage, 40, LATER, holder=NAME, life=NEW, credit=2)
    (again,) = stage.run(40)
    assert keys_in(again) == keys[:2]
    held = tuple(zip(keys_in(again), again.token.tolist(), strict=True))
    pull(stage, 50, THIRD, holder=NAME, life=NEW, credit=2, held=held)
    (again,) = stage.run(50)
    assert keys_in(again) == keys[2:]
    assert set(again.token.tolist()).isdisjoint(push.token.tolist())


def test_a_message_at_its_last_attempt_stays_leased_and_takes_no_credit() -> None:
    stage, _, keys = first()
    stage.leds[1].timeline._live.settings.current = TopicSettings(max_attempts=1)
    later = stage.insert([30])
    pull(stage, 40, LATER, holder=NAME, life=NEW, credit=1)
    (push,) = stage.run(40)
    assert keys_in(push) == later
    stage.run(20_019)
    assert kinds(stage) == [RecordKind.LEASE, RecordKind.LEASE]
    stage.run(20_020)
    assert kinds(stage)[2] == RecordKind.EXPIRE
    assert stage.leds[1].log[-1].target_row.tolist() == [keys[0] & 0xFFFF]


def test_a_renewal_that_a_pull_has_no_room_for_any_more_leaves_the_lease() -> None:
    """The pull is repeated for what is missing alone, while the topic is paused."""
    stage, push, keys = first()
    settings = stage.leds[1].timeline._live.settings
    settings.current = TopicSettings(paused=True)
    pull(stage, 40, LATER, holder=NAME, life=NEW, wait_ms=1_000)
    stage.run(40)
    pull(stage, 50, LATER, holder=NAME, life=NEW, attach=2, credit=0, wait_ms=1_000)
    stage.run(50)
    settings.current = TopicSettings()
    assert stage.run(200) == []
    assert kinds(stage) == [RecordKind.LEASE]
    pull(stage, 210, LATER, holder=NAME, life=NEW, attach=3)
    (again,) = stage.run(210)
    assert keys_in(again) == keys
    assert again.token.tolist() != push.token.tolist()


def test_what_has_not_left_yet_when_a_still_later_one_follows_is_for_anybody() -> None:
    stage, _, keys = first()
    pull(stage, 40, LATER, holder=NAME, life=NEW, wait_ms=1_000)
    stage.tick(40)
    stage.commit(40)
    pull(stage, 41, THIRD, holder=NAME, life=NEW + 1, wait_ms=1_000)
    (again,) = stage.run(41)
    assert (keys_in(again), again.consumer_id) == (keys, THIRD)
    assert [end.code for end in ends(stage) if end.consumer_id == LATER] == [Code.UNKNOWN_SESSION]


def test_a_name_is_remembered_for_a_while_after_the_end_of_its_last_pull() -> None:
    """Not after its beginning: it may have waited for long."""
    stage, _ = staged(0)
    life = 1 << 50
    pull(stage, 20, LATER, holder=NAME, life=life, wait_ms=6_500)
    stage.run(6_520)
    assert len(ends(stage)) == 1
    kept_ms = pull_names.KEPT_US // 1000
    pull(stage, 6_520 + kept_ms, PULL, holder=NAME, life=life - pull_names.SLACK - 1, wait_ms=1_000)
    stage.run(6_520 + kept_ms)
    assert [end.code for end in ends(stage)] == [Code.OK, Code.UNKNOWN_SESSION]


def test_of_many_names_the_last_ones_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull_names, "PULL_NAMES_MAX", 3)
    stage, _ = staged(0)
    for number in range(20):
        pull(stage, 20 + number, bytes([number]) * 16, holder=bytes([100 + number]) * 16)
        stage.run(20 + number)
    assert len(ends(stage)) == 20
    assert len(stage.dispatcher._pulls._names._last) == 3
