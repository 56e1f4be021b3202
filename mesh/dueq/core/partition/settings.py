"""Care for the topic's settings: what the leader of a partition does so that its log has the newest.

    the topic in the coordinator is of a newer version ──► SETTINGS ──applied──► whoever waits for it is answered

A client that has changed a topic asks each partition's leader whether its change is in force. The answer is a fact
about committed records, so it stays true under every later leader. An earlier leader may act towards consumers for a
while, if it does not know of its successor. So nobody is answered while an earlier leader can still push.

The settings that a topic is created with are the first record after the barrier of its first leader. Nothing of a
client is taken before it.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

import numpy as np

from dueq.core.partition.care import CaredPartition
from dueq.core.partition.levels import holding_back, level_needed
from dueq.core.partition.requests import Refusal, invalid
from dueq.core.ports.events import Route
from dueq.core.state.applied import Applied
from dueq.core.turn.context import Context
from dueq.instant import Now
from dueq_codecs.documents import decode_document
from dueq_codecs.messages import ChangeReply, ChangeRequest, Code
from dueq_codecs.records import Outcome, Record, RecordKind
from dueq_codecs.topic_settings import TopicSettings

SETTINGS_LEVEL: Final = 2
"""Feature level of SETTINGS records."""
WAITING_MAX: Final = 1024
"""Requests of one partition that wait for settings; a client has one, repeated ones included."""


_DONE: Final = np.array([Outcome.DONE], np.uint8)


class _Waiting(NamedTuple):
    route: Route
    request_id: int
    version: int


class ConfiguredPartition(CaredPartition, Protocol):
    """A partition, as far as the care for its settings needs it."""

    @property
    def epoch(self) -> int: ...

    @property
    def settings(self) -> TopicSettings:
        """The newest settings that are known here, applied or not."""
        ...

    @property
    def leases_from_us(self) -> int:
        """(mono) From then on no earlier leader pushes anything."""
        ...


class SettingsCare:
    """The settings of one partition, while it is led here."""

    def __init__(self, ctx: Context, partition: ConfiguredPartition) -> None:
        self._ctx, self._partition = ctx, partition
        self._proposed = 0  # sequence of the last record proposed, 0 for none
        self._waiting: list[_Waiting] = []

    def begin(self, now: Now) -> None:
        """The partition is served from now on."""
        self._proposed = 0
        self.look(now)

    @property
    def missing(self) -> bool:
        """Whether the topic has settings and its log has none: a request taken now would not be under them."""
        partition = self._partition
        logged = self._proposed or partition.timeline.settings.version
        return not logged and partition.settings.version > 0

    def end(self) -> None:
        """The partition is led no more: its next leader is to be asked."""
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            reply = ChangeReply(each.request_id, Code.NOT_LEADER, "the leader has changed")
            self._ctx.reply(each.route, reply)

    def wait(self, route: Route, request: ChangeRequest, now: Now) -> Refusal | None:
        """Answer once a version of the settings is in force; else say why not."""
        version = _version_in(request.document)
        if version is None:
            return invalid(f'settings are waited for with {{"version":N}}, not {request.document:.80}')
        partition = self._partition
        if not partition.serving:
            return Refusal(Code.NOT_LEADER, f"partition {partition.uid} is not served here (yet)", 50)
        if partition.timeline.level < SETTINGS_LEVEL:
            behind = holding_back(self._ctx, partition.topic.brokers, SETTINGS_LEVEL)
            return Refusal(Code.BUSY, level_needed(SETTINGS_LEVEL, behind), 500)
        if version > partition.settings.version:
            return Refusal(Code.BUSY, f"this broker has not heard of version {version} of the settings", 50)
        if len(self._waiting) >= WAITING_MAX:
            return Refusal(Code.BUSY, f"{WAITING_MAX} requests wait for settings already", 200)
        self._waiting.append(_Waiting(route, request.request_id, version))
        self.look(now)
        return None

    def applied(self, record: Record, applied: Applied, now: Now) -> None:
        """A record was applied: settings may be in force, or the level may be high enough for them."""
        if record.kind in (RecordKind.SETTINGS, RecordKind.BARRIER):
            self.look(now)

    def look(self, now: Now) -> None:
        """Do the work that can be done; go on in the next tick if that is not all."""
        if self.tick(now):
            self._ctx.attend(self._partition.uid)

    def tick(self, now: Now) -> bool:
        """Log newer settings, answer those who wait; returns whether anything is left to do."""
        partition = self._partition
        if not partition.serving:
            return False
        in_force = partition.timeline.settings.version
        behind = partition.settings.version > in_force and partition.timeline.level >= SETTINGS_LEVEL
        if behind and self._proposed <= partition.timeline.applied:
            record = Record(RecordKind.SETTINGS, partition.uid, 0, 0, 0)
            record.document = partition.settings.encode()
            self._proposed = partition.propose(record, now)
        if self._waiting and now.mono_us >= partition.leases_from_us:
            self._answer(in_force)
        return behind or bool(self._waiting)

    def _answer(self, in_force: int) -> None:
        partition, waiting = self._partition, self._waiting
        self._waiting = [each for each in waiting if each.version > in_force]
        for each in waiting:
            if each.version <= in_force:
                reply = ChangeReply(each.request_id, Code.OK, uid=partition.uid, epoch=partition.epoch)
                reply.outcomes = _DONE
                self._ctx.reply(each.route, reply)


def _version_in(document: str) -> int | None:
    """Return the version that a request waits for; None: it names none."""
    try:
        version = decode_document(document).get("version")
    except ValueError:
        return None
    return version if type(version) is int and version >= 0 else None
