"""Processes of a consumer with a name: the newer one wins, and gets what the older had under new tokens."""

from __future__ import annotations

import pytest

from dueq import limits
from dueq.core.delivery import renewals
from dueq.core.delivery.lane import Lane
from dueq.core.delivery.renewals import ROWS_MAX
from dueq.core.ports.events import Route
from dueq.core.state.entry_rows import Slots
from dueq_codecs.messages import Code, ConsumerAction, ConsumerReply, Push
from dueq_codecs.records import LEVEL_OF_KINDS, U64, RecordKind
from dueq_codecs.topic_settings import TopicSettings
from tests.unit.core.led import ALICE, BOB, Stage, at, keys_in, kinds

OLD, NEW = Route(b"old"), Route(b"new")


def pushed(count: int = 2, credit: int = 1000, level: int = LEVEL_OF_KINDS) -> tuple[Stage, Push, list[int]]:
    """A consumer of life 5 with messages that were due at 10 ms."""
    stage = Stage()
    stage.leds[1].timeline.level = level
    keys = stage.insert([10] * count)
    stage.attach(0, life=5, attach=6, route=OLD, credit=credit)
    stage.run(0)
    pushes = stage.run(10)
    assert sum(len(push.row) for push in pushes) == count
    return stage, pushes[0], keys


def break_old(stage: Stage, ms: float) -> None:
    """Frames to the older process come back undelivered."""
    stage.dispatcher.route_lost(OLD, ConsumerReply("t", ALICE, 6, 1), at(ms))


def test_two_lives_are_not_served_at_once() -> None:
    stage, _, _ = pushed()
    reply = stage.attach(20, life=9, attach=10, route=NEW)
    told = [(route, message) for route, message, _ in stage.sent if isinstance(message, ConsumerReply)]
    older = [message for route, message in told if route == OLD][-1]
    newer = [message for route, message in told if route == NEW][-1]
    assert (older.code, older.attach) == (Code.SUPERSEDED, 6)
    assert (newer.code, newer.attach) == (Code.BUSY, 10)
    assert reply is not None
    assert stage.run(21) == []
    stage.frame(ConsumerAction.GOODBYE, 22, life=5, attach=6, route=OLD)
    again = stage.attach(23, life=9, attach=11, number=1, route=NEW)
    assert again is not None
    assert again.code == Code.OK
    pushes = [push for ms in range(23, 80) for push in stage.run(ms)]
    assert [push.attach for push in pushes] == [11]
    assert kinds(stage) == [RecordKind.LEASE, RecordKind.RELEASE, RecordKind.LEASE]


def test_when_the_older_life_is_gone_its_leases_get_new_tokens() -> None:
    stage, before, keys = pushed()
    break_old(stage, 20)
    reply = stage.attach(30, life=9, attach=10, route=NEW)
    assert reply is not None
    assert reply.code == Code.OK
    pushes = stage.run(30)
    assert [(keys_in(push), push.attach) for push in pushes] == [(keys, 10)]
    push = pushes[0]
    assert stage.sent[-1][0] == NEW
    assert push.attempt.tolist() == [2, 2]
    assert set(push.token.tolist()).isdisjoint(before.token.tolist())
    assert kinds(stage) == [RecordKind.LEASE, RecordKind.LEASE]
    stage.ack(before, 31)  # under the old tokens
    assert stage.leds[1].timeline.leased_count == 2
    stage.ack(push, 32)
    assert stage.leds[1].timeline.leased_count == 0


def test_while_nothing_may_be_leased_no_turn_follows_another_for_what_is_to_be_renewed() -> None:
    """The clock is on hold, say, perhaps for long."""
    stage, _, _ = pushed()
    stage.leds[1].timeline._live.settings.current = TopicSettings(paused=True)
    break_old(stage, 20)
    stage.attach(30, life=9, attach=10, route=NEW)
    stage.run(30)
    stage.tick(200, paused=True)
    next_us = stage.dispatcher.next_deadline_us(at(200))
    assert next_us is None or next_us > at(200).mono_us
    stage.leds[1].timeline._live.settings.current = TopicSettings()
    assert len(stage.run(300)) == 1


def test_an_older_life_that_comes_back_is_refused() -> None:
    stage, _, _ = pushed()
    break_old(stage, 20)
    stage.attach(30, life=9, attach=10, route=NEW)
    stage.run(30)
    for action in (ConsumerAction.ATTACH, ConsumerAction.BEAT, ConsumerAction.GOODBYE):
        reply = stage.frame(action, 31, life=5, attach=7, route=OLD)
        assert reply is not None
        assert (reply.code, reply.attach) == (Code.SUPERSEDED, 7)
    [session] = stage.dispatcher.sessions(at(31))
    assert (session.attached, session.leases) == (True, 2)


def test_a_life_with_a_lower_number_follows_one_that_is_gone() -> None:
    """The clock of its machine may be behind."""
    stage, _, keys = pushed()
    break_old(stage, 20)
    stage.attach(30, life=3, attach=4, route=NEW)
    (push,) = stage.run(30)
    assert (keys_in(push), push.attach) == (keys, 4)


def test_a_late_attach_of_a_process_that_has_said_goodbye_takes_nothing_from_the_newer_one() -> None:
    """The newer one's connection has just failed, and it is about to attach again."""
    stage, _, keys = pushed()
    stage.frame(ConsumerAction.GOODBYE, 20, life=5, attach=6, number=2, route=OLD)
    stage.run(20)
    stage.attach(30, life=9, attach=10, route=NEW)
    (push,) = stage.run(30)
    stage.dispatcher.route_lost(NEW, ConsumerReply("t", ALICE, 10, 1), at(40))
    reply = stage.attach(50, life=5, attach=6, route=OLD)
    assert reply is not None
    assert reply.code == Code.UNKNOWN_SESSION
    assert stage.run(50) == []
    reply = stage.attach(60, life=9, attach=11, number=2, route=NEW)
    assert reply is not None
    assert reply.code == Code.OK
    (again,) = stage.run(60)
    assert (keys_in(again), again.token.tolist()) == (keys, push.token.tolist())


def test_a_goodbye_of_an_older_process_ends_no_attach_of_the_newer_one() -> None:
    """The clock of the newer one's machine is behind, and the older one was only away for a while."""
    stage, _, _ = pushed()
    break_old(stage, 20)
    stage.attach(30, life=3, attach=4, route=NEW)
    stage.frame(ConsumerAction.GOODBYE, 40, life=5, attach=6, number=2, route=OLD)
    stage.dispatcher.route_lost(NEW, ConsumerReply("t", ALICE, 4, 1), at(50))
    reply = stage.attach(60, life=3, attach=5, number=2, route=NEW)
    assert reply is not None
    assert reply.code == Code.OK


def test_an_ack_that_was_logged_before_counts() -> None:
    stage, before, keys = pushed()
    break_old(stage, 20)
    stage.leds[1].change(RecordKind.ACK, keys[:1], at(29), token=before.token[:1].tolist())
    stage.attach(30, life=9, attach=10, route=NEW)
    (push,) = stage.run(30)
    assert keys_in(push) == keys[1:]
    [session] = stage.dispatcher.sessions(at(31))
    assert session.leases == 1


@pytest.mark.parametrize("aside", [0, 1])
def test_leases_that_were_inherited_are_renewed_but_those_that_are_listed(aside: int) -> None:
    stage, before, keys = pushed()
    token = int(before.token[0])
    other = Stage()
    other.leds[1] = stage.leds[1]
    other.dispatcher.lead(stage.leds[1], at(20))
    stage = other
    stage.attach(30, life=5, attach=7, held=[(1, keys[0], token)], aside=aside)
    (push,) = stage.run(30)
    assert keys_in(push) == keys[1:]
    assert push.token[0] != token


def test_what_is_inherited_after_the_newer_life_has_attached_is_renewed() -> None:
    """It holds another partition's session already: who had the leases of this one is not known."""
    earlier, before, keys = pushed()
    stage = Stage()
    stage.dispatcher.unlead(1, at(20))
    stage.attach(20, life=9, attach=10, route=NEW)
    stage.leds[1] = earlier.leds[1]
    stage.dispatcher.lead(stage.leds[1], at(25))
    stage.attach(30, life=9, attach=11, route=NEW, held=[(1, keys[0], int(before.token[0]))])
    (push,) = stage.run(30)
    assert keys_in(push) == keys[1:]
    assert push.token[0] != before.token[1]
    stage.attach(40, life=9, attach=12, route=NEW, held=[(1, keys[0], int(before.token[0]))])
    (again,) = stage.run(40)
    assert (keys_in(again), again.token.tolist()) == (keys[1:], push.token.tolist())


@pytest.mark.parametrize("most", [1, 2])
def test_what_was_at_its_last_attempt_is_not_renewed(most: int) -> None:
    stage, _, _ = pushed(1)
    led = stage.leds[1]
    led.timeline._live.settings.current = TopicSettings(max_attempts=most)
    break_old(stage, 20)
    stage.attach(30, life=9, attach=10, route=NEW)
    stage.run(30)
    stage.run(60)
    assert kinds(stage)[1] == (RecordKind.EXPIRE if most == 1 else RecordKind.LEASE)


def test_no_more_are_renewed_than_the_credit_allows() -> None:
    stage, _, keys = pushed(3)
    break_old(stage, 20)
    stage.attach(30, life=9, attach=10, route=NEW, credit=2)
    (push,) = stage.run(30)
    assert keys_in(push) == keys[:2]
    stage.run(31)
    stage.run(60)
    assert RecordKind.EXPIRE in kinds(stage)


def test_many_are_renewed_in_several_records_and_again_when_refused() -> None:
    stage, _, keys = pushed(ROWS_MAX + 10)
    break_old(stage, 20)
    stage.leds[1].full = True
    stage.attach(30, life=9, attach=10, route=NEW, credit=1000)
    assert stage.run(30) == []
    assert stage.dispatcher.next_deadline_us(at(30)) == at(35).mono_us
    stage.attach(
        31, life=9, attach=11, number=2, route=NEW, credit=1000
    )  # must not bring back the old tokens
    assert stage.run(31) == []
    stage.leds[1].full = False
    found = stage.run(40)
    assert sorted(key for push in found for key in keys_in(push)) == keys
    assert [record.kind for record in stage.leds[1].log[-2:]] == [RecordKind.LEASE] * 2


def test_the_rate_of_the_topic_holds() -> None:
    stage, _, keys = pushed(3)
    stage.leds[1].timeline._live.settings.current = TopicSettings(rate=10, burst=2)
    break_old(stage, 20)
    stage.attach(30, life=9, attach=10, route=NEW)
    first = stage.run(30)
    later = [push for ms in range(40, 200, 20) for push in stage.run(ms)]
    assert [keys_in(push) for push in first] == [keys[:2]]
    assert [keys_in(push) for push in later] == [keys[2:]]


def test_what_was_to_come_again_to_the_older_life_does_not_come_to_the_newer_under_its_token() -> None:
    stage, before, _ = pushed(3)
    stage.attach(15, life=5, attach=7, route=OLD)
    stage.tick(15)  # payloads are read for the older life, which lacks them
    stage.leds[1].timeline._live.settings.current = TopicSettings(rate=10, burst=2)
    break_old(stage, 20)
    stage.attach(30, life=9, attach=10, route=NEW)
    pushes = [push for ms in range(30, 90, 10) for push in stage.run(ms)]
    tokens = [token for push in pushes for token in push.token.tolist()]
    assert len(tokens) == 2  # the rate holds the third one back
    assert set(tokens).isdisjoint(before.token.tolist())


def test_a_lease_that_has_ended_is_not_to_be_renewed_any_more() -> None:
    """The rate holds its renewal back. All other leases keep their tokens, also those that the newer process lacks."""
    stage, before, keys = pushed(3)
    stage.leds[1].timeline._live.settings.current = TopicSettings(rate=1, burst=2)
    break_old(stage, 20)
    stage.attach(30, life=9, attach=10, route=NEW)
    (renewed,) = stage.run(30)
    stage.leds[1].change(RecordKind.ACK, keys[2:], at(31), token=before.token[2:].tolist())
    stage.commit(31)
    stage.attach(32, life=9, attach=11, number=2, route=NEW)
    (again,) = stage.run(32)
    assert (keys_in(again), again.token.tolist()) == (keys[:2], renewed.token.tolist())


def test_a_pause_of_the_topic_holds() -> None:
    stage, _, keys = pushed(1)
    paused = TopicSettings(paused=True)
    stage.leds[1].timeline._live.settings.current = paused
    break_old(stage, 20)
    stage.attach(30, life=9, attach=10, route=NEW)
    assert stage.run(30) == []
    stage.leds[1].timeline._live.settings.current = TopicSettings()
    assert [keys_in(push) for push in stage.run(40)] == [keys]


def test_a_process_that_attaches_again_and_again_in_a_pause_fills_no_memory() -> None:
    stage, _, keys = pushed(3)
    stage.leds[1].timeline._live.settings.current = TopicSettings(paused=True)
    break_old(stage, 20)
    for attach in range(10, 60):
        stage.attach(20 + attach, life=9, attach=attach, number=attach, route=NEW)
        stage.run(20 + attach)
    wanted = stage.dispatcher._renewals._wanted
    assert [len(slots) for _, slots, _ in wanted.values()] == [len(keys)]
    stage.leds[1].timeline._live.settings.current = TopicSettings()
    assert [keys_in(push) for push in stage.run(100)] == [keys]


def test_what_many_consumers_wait_for_in_a_pause_is_looked_through_by_none_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All of them attach again when the leader has changed, and the pause holds all renewals back."""
    looked: list[int] = []

    def still_pushed(lane: Lane, slots: Slots, tokens: U64) -> Slots:
        looked.append(len(slots))
        return renewals_still_pushed(lane, slots, tokens)

    renewals_still_pushed = renewals._still_pushed
    monkeypatch.setattr(renewals, "_still_pushed", still_pushed)
    names = [bytes((number,)) * 16 for number in range(1, 31)]
    stage = Stage()
    stage.leds[1].timeline.level = LEVEL_OF_KINDS
    keys = stage.insert([10] * len(names))
    for name in names:
        stage.attach(0, name, life=5, attach=6, credit=1)
    for ms in (0, 10, 20):
        stage.run(ms)
    stage.leds[1].timeline._live.settings.current = TopicSettings(paused=True)
    for name in names:
        stage.dispatcher.route_lost(Route(name), ConsumerReply("t", name, 6, 1), at(30))
    for attach in (10, 11):
        for name in names:
            stage.attach(30 + attach, name, life=9, attach=attach, number=attach, route=NEW, credit=1)
        stage.run(100 + attach)
    assert sum(looked) <= 3 * len(names)
    stage.leds[1].timeline._live.settings.current = TopicSettings()
    pushes = [push for ms in range(200, 300, 10) for push in stage.run(ms)]
    assert sorted(key for push in pushes for key in keys_in(push)) == keys


def test_replicas_of_an_older_version_know_no_renewals() -> None:
    stage, _, _ = pushed(level=LEVEL_OF_KINDS - 1)
    break_old(stage, 20)
    stage.attach(30, life=9, attach=10, route=NEW)
    assert stage.run(30) == []
    assert kinds(stage) == [RecordKind.LEASE]


def test_consumers_without_a_name_go_on_as_before() -> None:
    stage, _, _ = pushed()
    stage.attach(20, consumer=BOB, attach=1)
    stage.dispatcher.route_lost(Route(BOB), ConsumerReply("t", BOB, 1, 1), at(21))
    reply = stage.attach(22, consumer=BOB, attach=2)
    assert reply is not None
    assert reply.code == Code.OK
    assert limits.CONSUMER_SESSION_MS > 22


def apply_next(stage: Stage, ms: float) -> None:
    """Apply the next record of the log."""
    led = stage.leds[1]
    record = led.open.popleft()
    stage.dispatcher.applied(led.uid, record, led.timeline.apply(record), at(ms))


def test_a_renewal_that_is_refused_ends_no_lease_that_was_proposed_after_it() -> None:
    """The older process has released what it held; it is leased anew before the renewal is applied."""
    stage, before, keys = pushed()
    led = stage.leds[1]
    break_old(stage, 20)
    led.change(RecordKind.RELEASE, keys, at(30), token=before.token.tolist())
    stage.attach(30, life=9, attach=10, route=NEW)
    stage.tick(30)
    apply_next(stage, 30)  # the RELEASE
    stage.attach(31, consumer=BOB)
    stage.tick(31)
    assert kinds(stage) == [RecordKind.LEASE, RecordKind.RELEASE, RecordKind.LEASE, RecordKind.LEASE]
    renewal, fresh = led.open
    assert (len(renewal.token), len(fresh.token)) == (len(keys), 0)
    apply_next(stage, 32)  # the renewal: nothing has that token any more
    stage.tick(32)
    assert list(led.open) == [fresh], "what is leased is not leased once more"
    pushes = stage.run(33)
    assert sorted(key for push in pushes for key in keys_in(push)) == keys
    for push in pushes:
        assert set(push.token.tolist()) == {fresh.sequence}
        assert push.consumer_id in fresh.consumers
