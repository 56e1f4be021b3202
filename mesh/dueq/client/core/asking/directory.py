"""The client's knowledge of topics: settings, partitions, leaders.

Answers of brokers may be old; of two answers about a partition the one with the higher epoch counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from dueq.client.core.asking.any_broker import Answer, AnyBrokerRequest, AnyBrokerRequests
from dueq.client.core.links.context import Context
from dueq.client.core.links.links import Links
from dueq.client.core.links.refusals import error_of
from dueq.client.core.ports.faults import fault_of_topic
from dueq.errors import DueqError, TopicNotFound
from dueq_codecs.messages import Code, MetadataReply, MetadataRequest, PartitionInfo, TopicInfo

REFRESH_US_MIN: Final = 50_000
"""The least time between two questions about one topic."""

BACK_OFF_US: Final = 200_000

OLD_US: Final = 30_000_000
"""A topic in use is asked for again after this time."""

SET_BACK_US: Final = 30_000_000
"""Brokers that name only older partitions for this long do not lag: there are no others."""

SEARCH_US: Final = 1_000_000
"""How long a client that has just begun looks for what the first brokers that it reached have not heard of."""

MADE_MAX: Final = 256
"""Of so many topics that were created last it is known which partitions are too old for them."""

_SWEEP_FROM: Final = 16
"""With fewer waiters than this, those that are not wanted any more are not cleared."""

Waiter = Callable[["Topic | DueqError"], None]


class Topic:
    """One topic as last heard.

    Attributes:
        info: its settings.
        partitions: by uid, each as of its highest epoch.
        uids: in order; the index of a partition is its place here.
        home_partitions: how many of the first are home to jobs.
        fetched_us: monotonic instant of the last answer.
    """

    def __init__(self, info: TopicInfo, now_us: int) -> None:
        self.partitions: dict[int, PartitionInfo] = {}
        self.update(info, now_us)

    def update(self, info: TopicInfo, now_us: int) -> None:
        """Take in an answer.

        That of a broker that has not heard of the newest partitions (a topic never gets fewer, and later ones have
        greater uids) says who leads the others, and nothing else.
        """
        known = self.partitions
        heard = {partition.uid: partition for partition in info.partitions}
        self.fetched_us = now_us
        is_past = self.is_past(info)
        if is_past:
            heard = known | {uid: partition for uid, partition in heard.items() if uid in known}
        self.partitions = {}
        for uid, partition in heard.items():
            old = known.get(uid)
            newer = old is None or (partition.epoch, bool(partition.leader)) >= (old.epoch, bool(old.leader))
            self.partitions[uid] = partition if newer or old is None else old
        if is_past:
            return
        self.info = info
        self.uids = [partition.uid for partition in info.partitions]
        self.home_partitions = info.home_partitions or len(self.uids)

    def is_past(self, info: TopicInfo) -> bool:
        """Whether an answer does not have the newest partition."""
        heard = max((partition.uid for partition in info.partitions), default=0)
        return heard < max(self.partitions, default=0)

    def leader(self, uid: int) -> str:
        """Broker id of the leader, or empty."""
        partition = self.partitions.get(uid)
        return partition.leader if partition is not None else ""

    def epoch(self, uid: int) -> int:
        """Epoch of that leader; 0 if the partition is not known."""
        partition = self.partitions.get(uid)
        return partition.epoch if partition is not None else 0


class _Doubt:
    """The answers about one topic since the last one that had the newest partitions.

    Attributes:
        since_us: monotonic instant of the first.
        links: the links that they came by.
    """

    def __init__(self, now_us: int) -> None:
        self.since_us = now_us
        self.links: set[int] = set()


class _Fetch:
    """One question about one topic, in flight or waiting for its turn."""

    def __init__(self) -> None:
        self.denied = 0
        self.waiters: list[tuple[Waiter, Callable[[], bool]]] = []
        self._sweep_from = _SWEEP_FROM

    def add(self, then: Waiter, wanted: Callable[[], bool]) -> None:
        """Have one more wait. While no broker answers, calls come and are over, and each may hold its payloads."""
        if len(self.waiters) >= self._sweep_from:
            self.waiters = [waiter for waiter in self.waiters if waiter[1]()]
            self._sweep_from = max(2 * len(self.waiters), _SWEEP_FROM)
        self.waiters.append((then, wanted))


class _Round:
    """The brokers that are asked one after the other.

    Args:
        until_us: (mono) so long those are waited for whose links are about to open.
    """

    def __init__(self, links: Links, until_us: int) -> None:
        self._links, self._until_us = links, until_us
        self._brokers = links.up().keys()
        self._left = len(self._brokers)

    def is_over(self, now_us: int) -> bool:
        """Take note of an answer; returns whether there is nobody else to ask."""
        self._left -= 1
        brokers = self._links.up().keys()
        if brokers - self._brokers:
            self._brokers, self._left = brokers, len(brokers)
        return self._left <= 0 and (not self._links.opening or now_us >= self._until_us)


class Directory:
    """Topics by name. `on_change(topic)` is called after each answer, `on_gone(name)` when a topic is
    gone.
    """

    def __init__(
        self,
        context: Context,
        links: Links,
        any_broker: AnyBrokerRequests,
        on_change: Callable[[Topic], None],
        on_gone: Callable[[str, DueqError], None],
    ) -> None:
        self._context, self._links, self._any_broker = context, links, any_broker
        self._on_change, self._on_gone = on_change, on_gone
        self._topics: dict[str, Topic] = {}
        self._fetches: dict[str, _Fetch] = {}
        self._hints: dict[str, dict[int, str]] = {}
        self._doubts: dict[str, _Doubt] = {}
        self._since: dict[str, int] = {}
        """Least uid of a topic that we created; partitions with smaller uids belong to a deleted topic of
        that name.
        """

    def get(self, name: str) -> Topic | None:
        """The topic, if it is known; what is old is asked for anew meanwhile, as it may have got more partitions."""
        topic = self._topics.get(name)
        if topic is not None and self._context.mono_us - topic.fetched_us > OLD_US:
            self.refresh(name)
        return topic

    def leader(self, name: str, uid: int) -> str:
        """The broker to ask about a partition: the hint of a broker that knew better, else the last
        answer.
        """
        hint = self._hints[name].get(uid) if name in self._hints else None
        if hint is not None:
            return hint
        topic = self._topics.get(name)
        return topic.leader(uid) if topic is not None else ""

    def epoch(self, name: str, uid: int) -> int:
        """Epoch of the last answer about a partition; 0 before there was one."""
        topic = self._topics.get(name)
        return topic.epoch(uid) if topic is not None else 0

    def hint(self, name: str, uid: int, leader: str) -> None:
        """A broker has named the leader, or shown that it leads; holds until the next answer about the topic."""
        if leader:
            self._hints.setdefault(name, {})[uid] = leader
        elif name in self._hints:
            self._hints[name].pop(uid, None)

    def knows(self, name: str) -> bool:
        """Whether the topic is known, and not known to be gone."""
        return name in self._topics

    def uids(self) -> set[int]:
        """Return the partitions of all topics that are known."""
        return {uid for topic in self._topics.values() for uid in topic.partitions}

    def ensure(self, name: str, then: Waiter, wanted: Callable[[], bool]) -> None:
        """Call `then` with the topic, at once when it is known, or with the error, if it is still `wanted`."""
        topic = self._topics.get(name)
        if topic is not None:
            then(topic)
        else:
            self.refresh(name, then, wanted)

    def refresh(
        self, name: str, then: Waiter | None = None, wanted: Callable[[], bool] = lambda: True
    ) -> None:
        """Ask again; questions about one topic are shared, and not asked too often.

        `then` is forgotten once it is not `wanted` any more.
        """
        fetch = self._fetches.get(name)
        if fetch is None:
            fetch = self._fetches[name] = _Fetch()
            topic = self._topics.get(name)
            age_us = self._context.mono_us - topic.fetched_us if topic is not None else REFRESH_US_MIN
            if age_us >= REFRESH_US_MIN:
                self._fetch(name, fetch)
            else:
                self._context.after(REFRESH_US_MIN - age_us, lambda: self._fetch(name, fetch))
        if then is not None:
            fetch.add(then, wanted)

    def search(
        self,
        name: str,
        fits: Callable[[Topic], bool],
        then: Waiter,
        wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        """Ask one broker after the other until the topic fits; if it fits at none, call `then` with it all the same.

        The first who is asked may not have heard yet of partitions that the topic has got. Those whose links are about
        to open are waited for, for `SEARCH_US`.
        """
        self._search(name, fits, then, wanted, _Round(self._links, self._context.mono_us + SEARCH_US))

    def _search(
        self,
        name: str,
        fits: Callable[[Topic], bool],
        then: Waiter,
        wanted: Callable[[], bool],
        asked: _Round,
    ) -> None:
        def heard(found: Topic | DueqError) -> None:
            if isinstance(found, DueqError) or fits(found) or asked.is_over(self._context.mono_us):
                then(found)
            else:
                self._search(name, fits, then, wanted, asked)

        self.refresh(name, heard, wanted)

    def _fetch(self, name: str, fetch: _Fetch) -> None:
        self._any_broker.ask(
            lambda request: MetadataRequest(request, name),
            lambda request, answer: self._answered(name, fetch, request, answer),
        )

    def _answered(self, name: str, fetch: _Fetch, request: AnyBrokerRequest, answer: Answer) -> None:
        if answer.code is Code.OK and isinstance(answer, MetadataReply):
            self._links.learned(answer.brokers)
            info = next((topic for topic in answer.topics if topic.name == name), None)
            if info is not None:
                self._doubt(info, request.link, may_be_old=bool(answer.text))
            if info is not None and not self.is_past(info):
                fault = fault_of_topic(info)
                if fault is None:
                    self._known(name, fetch, info)
                else:
                    self._context.refuse(answer, fault)
                    request.again(self._context.jittered(BACK_OFF_US))
                return
        elif answer.code in (Code.BUSY, Code.COORDINATOR_UNAVAILABLE, Code.NOT_LEADER):
            request.again(self._context.jittered(BACK_OFF_US))
            return
        elif answer.code is not Code.TOPIC_NOT_FOUND:
            self._fail(name, fetch, error_of(answer.code, answer.text))
            return
        # A broker may not have heard yet of a topic that was just created: ask each once.
        fetch.denied += 1
        if fetch.denied < len(self._links.up()):
            request.again(0)
            return
        text = f"there is no topic {name!r}"
        if name in self._doubts and name in self._since:
            text += f" with the partition {self._since[name]} that it was created with, only an older one"
        self._fail(name, fetch, TopicNotFound(text))

    def _known(self, name: str, fetch: _Fetch, info: TopicInfo) -> None:
        del self._fetches[name]
        topic = self._topics.get(name)
        if topic is None:
            topic = self._topics[name] = Topic(info, self._context.mono_us)
        else:
            topic.update(info, self._context.mono_us)
        self._hints.pop(name, None)
        self._on_change(topic)
        for then, _ in fetch.waiters:
            then(topic)

    def _fail(self, name: str, fetch: _Fetch, error: DueqError) -> None:
        del self._fetches[name]
        if isinstance(error, TopicNotFound):
            self._topics.pop(name, None)
            self._hints.pop(name, None)
            self._on_gone(name, error)
        for then, _ in fetch.waiters:
            then(error)

    def _doubt(self, info: TopicInfo, link: int, *, may_be_old: bool) -> None:
        """Forget newer partitions of which no broker has heard for long.

        ZooKeeper was set back, from an old backup say. What such a topic has now has smaller uids than what it had.
        """
        name = info.name
        topic = self._topics.get(name)
        if not self.is_past(info) and (topic is None or not topic.is_past(info)):
            self._doubts.pop(name, None)
            return
        if may_be_old:
            return
        doubt = self._doubts.setdefault(name, _Doubt(self._context.mono_us))
        doubt.links.add(link)
        links_up = {link.number for link in self._links.up().values()}
        if self._context.mono_us - doubt.since_us >= SET_BACK_US and doubt.links >= links_up:
            before = topic.uids if topic is not None else [self._since[name]]
            uids = [partition.uid for partition in info.partitions]
            self._context.log("warning", "topic.set_back", topic=name, partitions=uids, before=before)
            self._since.pop(name, None)
            self.forget(name)

    def made(self, name: str, uids: Sequence[int]) -> None:
        """A topic was created with these partitions (empty: not known)."""
        self.forget(name)
        if uids:
            self._since.pop(name, None)
            self._since[name] = min(uids)
            if len(self._since) > MADE_MAX:
                oldest = next(iter(self._since))
                del self._since[oldest]
                self._doubts.pop(oldest, None)

    def is_past(self, info: TopicInfo) -> bool:
        """Whether a broker means a topic that was deleted before the present one of that name was created."""
        since = self._since.get(info.name, 0)
        return any(partition.uid < since for partition in info.partitions)

    def forget(self, name: str) -> None:
        """The topic was deleted or created again: ask before the next use."""
        self._topics.pop(name, None)
        self._hints.pop(name, None)
        self._doubts.pop(name, None)
