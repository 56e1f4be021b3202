"""The leader logs newer settings once, and answers who waits for them when they are in force everywhere that counts."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from dueq.core.partition.settings import WAITING_MAX, SettingsCare
from dueq.core.ports.events import Route
from dueq.core.ports.membership import PartitionAssignment, Topic
from dueq.core.state.timeline import Timeline
from dueq.instant import Now
from dueq_codecs.messages import ChangeReply, ChangeRequest, Code
from dueq_codecs.records import Record, RecordKind
from dueq_codecs.topic_settings import AS_CREATED, TopicSettings

NOW = Now(1_000_000, 2_000_000)
PAUSED = AS_CREATED.changed({"paused": True}, "a" * 32)
CREATED = Topic("t", "0" * 32, "timeline", (PartitionAssignment(7, ("b1", "b2")),), 2, 2)


class Led:
    """A partition that this broker leads; nothing commits before `commit`."""

    def __init__(self, level: int = 2) -> None:
        self.uid, self.epoch, self.serving, self.leases_from_us = 7, 3, True, 0
        self.topic, self.timeline = CREATED, Timeline(7)
        self.timeline.level = level
        self.log: list[Record] = []
        self.answers: list[ChangeReply] = []
        self.ctx: Any = SimpleNamespace(
            settings=SimpleNamespace(broker_id="b1", feature_level=2), levels={"b2": level},
            attend=lambda uid: None, reply=lambda route, reply: self.answers.append(reply),
        )  # fmt: skip
        partition: Any = self
        self.care = SettingsCare(self.ctx, partition)
        self.care.begin(NOW)

    @property
    def settings(self) -> Any:
        return max(self.topic.settings, self.timeline.settings, key=lambda found: found.version)

    def propose(self, record: Record, now: Now) -> int:
        record.sequence, record.epoch, record.stamp = len(self.log) + 1, 3, now.wall_ms
        self.log.append(record)
        return record.sequence

    def hear(self) -> None:
        self.topic = replace(CREATED, settings=PAUSED)
        self.care.look(NOW)

    def commit(self, now: Now = NOW) -> None:
        for record in self.log[self.timeline.applied :]:
            self.care.applied(record, self.timeline.apply(record), now)

    def ask(self, document: str = '{"version":1}') -> Any:
        request = ChangeRequest(5, RecordKind.SETTINGS, "t", 7, b"c" * 16, 1, 0, document=document)
        return self.care.wait(Route(b"c"), request, NOW)

    def begin(self, settings: TopicSettings) -> None:
        """Lead a topic that was created with these settings."""
        self.topic = replace(CREATED, settings=settings)
        self.care.begin(NOW)


@pytest.fixture
def led() -> Led:
    return Led()


def test_what_a_topic_was_created_with_is_the_first_record_of_its_first_leader(led: Led) -> None:
    led.begin(PAUSED)
    assert [(record.kind, record.document) for record in led.log] == [(RecordKind.SETTINGS, PAUSED.encode())]
    assert not led.care.missing
    led.commit()
    led.begin(PAUSED)
    assert len(led.log) == 1
    assert not led.care.missing


def test_nothing_comes_before_them_when_they_cannot_be_logged_yet() -> None:
    led = Led(level=1)
    assert not led.care.missing
    led.begin(PAUSED)
    assert led.log == []
    assert led.care.missing
    led.timeline.level = 2
    led.care.look(NOW)
    assert not led.care.missing


def test_newer_settings_are_logged_once(led: Led) -> None:
    led.hear()
    led.care.look(NOW)
    assert [(record.kind, record.document) for record in led.log] == [(RecordKind.SETTINGS, PAUSED.encode())]
    led.commit()
    led.care.look(NOW)
    assert len(led.log) == 1


def test_what_an_earlier_leadership_of_this_broker_proposed_in_vain_is_logged_anew(led: Led) -> None:
    """Another leader has cut it off the log in between."""
    led.hear()
    led.care.end()
    led.log.clear()
    led.care.begin(NOW)
    assert [record.kind for record in led.log] == [RecordKind.SETTINGS]


def test_who_waits_is_answered_once_they_are_applied(led: Led) -> None:
    led.hear()
    assert led.ask() is None
    assert led.answers == []
    led.commit()
    [answer] = led.answers
    assert (answer.code, answer.uid, answer.outcomes.tolist()) == (Code.OK, 7, [0])
    assert led.ask() is None
    assert len(led.answers) == 2


def test_nobody_is_answered_while_an_earlier_leader_may_push(led: Led) -> None:
    led.leases_from_us = NOW.mono_us + 400_000
    led.hear()
    led.ask()
    led.commit()
    assert led.answers == []
    assert led.care.tick(Now(NOW.wall_us, NOW.mono_us + 399_999))
    assert led.answers == []
    assert not led.care.tick(Now(NOW.wall_us, NOW.mono_us + 400_000))
    assert [answer.code for answer in led.answers] == [Code.OK]


def test_a_version_that_it_has_not_heard_of_is_asked_for_again(led: Led) -> None:
    assert led.ask().code == Code.BUSY
    led.hear()
    assert led.ask() is None


def test_an_older_build_is_named() -> None:
    led = Led(level=1)
    led.hear()
    refusal = led.ask()
    assert refusal.code == Code.BUSY
    assert refusal.text.endswith("needs feature level 2 at every replica; of an older build: b2")
    assert led.log == []


def test_who_waits_is_sent_to_the_next_leader(led: Led) -> None:
    led.hear()
    led.ask()
    led.care.end()
    assert [answer.code for answer in led.answers] == [Code.NOT_LEADER]


def test_a_request_that_names_no_version_is_refused(led: Led) -> None:
    for document in ("{", "[]", "{}", '{"version":-1}', '{"version":true}'):
        refusal = led.ask(document)
        assert refusal.code == Code.INVALID_REQUEST
        assert document in refusal.text


def test_a_request_that_is_nested_deeply_is_refused(led: Led) -> None:
    refusal = led.ask("[" * 60_000)
    assert refusal.code == Code.INVALID_REQUEST
    assert refusal.text.endswith("not " + "[" * 80)


def test_no_more_than_so_many_wait(led: Led) -> None:
    led.hear()
    for _ in range(WAITING_MAX):
        assert led.ask() is None
    assert led.ask().code == Code.BUSY
