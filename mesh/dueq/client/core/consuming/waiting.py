"""Pulls that wait for long: leaders are told of all of them together that they still do.

A leader believes for PULL_WAIT_MS that a pull waits, so that the pull of a client that has died is soon given nothing
any more. A thousand pulls that are repeated as often would keep brokers busy with nothing. So one WAITING for each
leader lists them, every few seconds, and the answer names those that do not wait there: they are asked again. If frames
are lost, the leader ends the pulls, and they are asked again too.

Nothing else may tell an idle pull of another leader. So now and then it is asked who leads, and more often after a
leader has let go of a pull, or was lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

import numpy as np

from dueq import limits
from dueq.client.core.asking.directory import Directory, Topic
from dueq.client.core.consuming.asked import Asked, PullCall
from dueq.client.core.consuming.session import LeaderClock
from dueq.client.core.links.context import Context
from dueq.client.core.links.links import Links
from dueq.client.core.ports.timers import Timer
from dueq_codecs.messages import Code, ConsumerAction, ConsumerFrame, ConsumerReply

EVERY_US: Final = 2 * limits.CONSUMER_BEAT_MS * 1000
HURRY_US: Final = limits.CONSUMER_BEAT_MS * 1000
"""The same for a while after trouble."""
TROUBLED: Final = 4
"""How many times leaders are asked for after trouble."""
LOOK: Final = 4
"""Otherwise they are asked for once in this many times."""
LONGEST_US: Final = limits.PULL_WAIT_MS * 1000
KEPT_US: Final = 5_000_000
"""How late an answer may come."""


class Asking(Protocol):
    """What is done about single pulls."""

    def ask_all(self, pulling: PullCall, leaders: Sequence[str]) -> None:
        """Let those of the leaders wait that have not been asked."""

    def ask_again(self, pulling: PullCall, asked: Asked) -> None:
        """A leader does not know that the pull waits."""

    def refused(self, pulling: PullCall, asked: Asked, code: Code, text: str) -> None:
        """A leader lets nobody wait."""


class _Listed(NamedTuple):
    """One pull in a list."""

    pulling: PullCall
    asked: Asked
    attach: int
    wait_us: int

    @property
    def is_present(self) -> bool:
        """The question is the one that was listed, and has no answer yet."""
        asked = self.asked
        same = self.pulling.asked.get(asked.leader) is asked and asked.attach == self.attach
        return same and asked.waits and not self.pulling.over


class _Told(NamedTuple):
    """A list that was sent."""

    leader: str
    sent_us: int
    listed: list[_Listed]


class _Waiting:
    """The pulls of one topic.

    Attributes:
        calls: those that wait, by name.
        told: what was sent lately, by number.
        leaders: who was asked to let them wait.
        looks: whether the next news of the topic is looked at, though its leaders are the same.
        turns: how often they were listed.
        troubled: how many times more leaders are asked for each time.
    """

    def __init__(self) -> None:
        self.calls: dict[bytes, PullCall] = {}
        self.told: dict[int, _Told] = {}
        self.leaders: list[str] = []
        self.looks = False
        self.turns = self.troubled = 0
        self.timer: Timer | None = None


class WaitingPulls:
    """All pulls of a client that wait for longer than a leader believes it.

    Args:
        name: 16 bytes that stand for all of them.
        clock_of: the clock of a leader.
    """

    def __init__(
        self,
        context: Context,
        links: Links,
        directory: Directory,
        asking: Asking,
        clock_of: Callable[[str], LeaderClock],
        name: bytes,
    ) -> None:
        self._context, self._links, self._directory = context, links, directory
        self._asking, self._clock_of = asking, clock_of
        self.name = name
        self._topics: dict[str, _Waiting] = {}
        self._count = 0

    def begin(self, pulling: PullCall) -> None:
        """This pull waits, if it did not before."""
        topic = pulling.event.topic
        waiting = self._topics.setdefault(topic, _Waiting())
        waiting.calls[pulling.name] = pulling
        if waiting.timer is None:
            self._set_timer(topic, waiting, EVERY_US)

    def end(self, pulling: PullCall) -> None:
        """It waits no more."""
        topic = pulling.event.topic
        waiting = self._topics.get(topic)
        if waiting is None:
            return
        waiting.calls.pop(pulling.name, None)
        if not waiting.calls:
            if waiting.timer is not None:
                waiting.timer.cancel()
            del self._topics[topic]

    def in_trouble(self, pulling: PullCall) -> None:
        """A leader has let go of a pull, or was lost: another may lead soon."""
        waiting = self._topics.get(pulling.event.topic)
        if waiting is None or pulling.name not in waiting.calls:
            return
        soon_us = self._context.mono_us + HURRY_US
        if not waiting.troubled and waiting.timer is not None and waiting.timer.at_us > soon_us:
            self._set_timer(pulling.event.topic, waiting, HURRY_US)
        waiting.troubled = TROUBLED

    def topic_changed(self, topic: Topic) -> None:
        """Let leaders wait that were not asked."""
        waiting = self._topics.get(topic.info.name)
        if waiting is None:
            return
        leaders = leaders_of(topic)
        if waiting.looks or leaders != waiting.leaders:
            waiting.looks, waiting.leaders = False, leaders
            for pulling in list(waiting.calls.values()):
                self._asking.ask_all(pulling, leaders)

    def replied(self, reply: ConsumerReply) -> None:
        """A leader says which of those that were listed do not wait there."""
        waiting = self._topics.get(reply.topic)
        told = waiting.told.pop(reply.number, None) if waiting is not None else None
        if told is None:
            return
        if reply.code in (Code.NOT_LEADER, Code.TOPIC_NOT_FOUND):
            for each in told.listed:
                if each.is_present:
                    self._asking.refused(each.pulling, each.asked, reply.code, reply.text)
        elif reply.code is Code.OK:
            self._clock_of(told.leader).answered(told.sent_us, reply.incarnation, reply.mono_us)
            over = set(reply.over.tolist())
            for place, each in enumerate(told.listed):
                if not each.is_present:
                    continue
                if place in over:
                    self._asking.ask_again(each.pulling, each.asked)
                else:
                    each.asked.waits_until(told.sent_us + each.wait_us)

    def _tell(self, topic: str, waiting: _Waiting) -> None:
        now_us = self._context.mono_us
        self._set_timer(topic, waiting, HURRY_US if waiting.troubled else EVERY_US)
        waiting.told = {
            number: told for number, told in waiting.told.items() if told.sent_us > now_us - KEPT_US
        }
        lists: dict[tuple[str, int], list[_Listed]] = {}
        for pulling in waiting.calls.values():
            wait_us = min(pulling.left_us(now_us), LONGEST_US)
            for asked in pulling.asked.values():
                if asked.waits and wait_us:
                    listed = _Listed(pulling, asked, asked.attach, wait_us)
                    lists.setdefault((asked.leader, asked.link), []).append(listed)
        for (leader, number), found in lists.items():
            for at in range(0, len(found), limits.PULLS_MAX):
                self._list(topic, waiting, leader, number, found[at : at + limits.PULLS_MAX])
        waiting.turns += 1
        if waiting.troubled or (waiting.turns % LOOK == 0 and not self._context.steady):
            waiting.troubled = max(waiting.troubled - 1, 0)
            waiting.looks = True
            self._directory.refresh(topic)

    def _set_timer(self, topic: str, waiting: _Waiting, after_us: int) -> None:
        if waiting.timer is not None:
            waiting.timer.cancel()
        waiting.timer = self._context.after(after_us, lambda: self._tell(topic, waiting))

    def _list(self, topic: str, waiting: _Waiting, leader: str, number: int, listed: list[_Listed]) -> None:
        link = self._links.get(number)
        if link is None:
            return
        self._count += 1
        waiting.told[self._count] = _Told(leader, self._context.mono_us, listed)
        frame = ConsumerFrame(
            ConsumerAction.WAITING, topic, self.name, self._count, self._count, 0, 0, 0, leader=leader,
            pulls=b"".join(each.pulling.name for each in listed),
            pull_attach=np.array([each.attach for each in listed], np.uint64),
            pull_wait_ms=np.array([each.wait_us // 1000 for each in listed], np.uint32),
        )  # fmt: skip
        self._links.send(link, frame)


def leaders_of(topic: Topic) -> list[str]:
    """Return who leads a topic, as far as is known."""
    return sorted({topic.leader(uid) for uid in topic.uids} - {""})
