"""The contents of ZooKeeper, read and followed.

Watches fire once, coalesce, and say only *that* something changed. So they are level-triggered (pitfall R20):
each one leads to reading the thing again, which also sets the next watch, and after every reconnect everything
is read again. A watch that fires while its thing is being read leads to one more read.

A change costs only what has changed. Registrations are few, and read as a whole. Topics are kept until their own
watch fires. Partitions' nodes are read one by one. Only the list of topics' names comes as a whole whenever
one is made. So it is not read again at once: among thousands of topics, a hundred new ones must cost a few lists, not
a hundred.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final
from urllib.parse import unquote

import structlog
from kazoo.exceptions import NoAuthError, NoNodeError
from kazoo.protocol.states import EventType, WatchedEvent

from dueq.cluster.coordinator import CoordinatorUnreadable, Deliver
from dueq.cluster.layout import Layout, segment
from dueq.cluster.requests import CONNECTION_ERRORS, Ended, Procedure, Requests, Send, one
from dueq.cluster.znodes import decode_node, decode_registration, decode_topic, tombstone_uids
from dueq.core.ports.membership import NodeSeen, Registration, RegistrationsSeen, Topic, TopicsSeen

_log = structlog.get_logger("dueq.cluster")

_AGAIN_S: Final = 1.0
_LEVEL_DIGITS: Final = 6
_REFUSED: Final = "access is refused"
_PAUSE_S_PER_TOPIC: Final = 10e-6
"""Several times what a list of topics costs for each name in it, here and in ZooKeeper."""

Later = Callable[[float, Callable[[], None]], None]
"""Calls something on the owning thread after this many seconds, unless the connection is lost before."""


class Mirror:
    """Follows everything below the layout's root and delivers it; belongs to one thread.

    Attributes:
        _connected: there is a connection, and everything is read or being read.
        _reading: what is being read now: `_REGISTRATIONS`, `_TOPICS`, or a partition's uid.
        _dirty: what has changed while it was being read.
        _topics: topics as read, by the name of their node.
        _stale: names of topics whose watch has fired since they were last asked for.
        _asked: uids of nodes whose read waits to be sent; it serves every request that comes before.
        _again: uids of nodes that were asked for, and whose read is tried again in a while.
        _followed: uids whose nodes have a watch or are being read.
        _unreadable: why a node cannot be read, by path, as last listed or read; told once in the log.
        _listing_again: lists that are to be read again because ZooKeeper refused to show a node.
        tombstones: their names, as last listed.
        _contradicting: uids that have a tombstone although their topic is there, as last listed.
        _unfollowed: uids of topics that were read, and whose nodes have to be followed once the list is whole.
    """

    def __init__(
        self,
        client: Any,
        layout: Layout,
        requests: Requests,
        deliver: Deliver,
        enqueue: Callable[[Callable[[], None]], None],
        later: Later,
        registrations_read: Callable[[dict[str, Registration]], None],
    ) -> None:
        """Take what it works with; nothing is read before `refresh`."""
        self._client = client
        self._layout = layout
        self._requests = requests
        self._deliver = deliver
        self._enqueue = enqueue
        self._later = later
        self._registrations_read = registrations_read
        self._connected = False
        self._reading: set[str | int] = set()
        self._dirty: set[str | int] = set()
        self._topics: dict[str, Topic] = {}
        self._stale: set[str] = set()
        self._asked: set[int] = set()
        self._again: set[int] = set()
        self._followed: set[int] = set()
        self._unfollowed: set[int] = set()
        self._unreadable: dict[str | int, dict[str, str]] = {}
        self._listing_again: set[str] = set()
        self.tombstones: frozenset[str] = frozenset()
        self._contradicting: frozenset[int] = frozenset()

    def refresh(self) -> None:
        """Read everything and set every watch: the connection is new."""
        self._connected = True
        self._read_registrations()
        self._read_topics()

    def connection_lost(self) -> None:
        """Every watch is gone."""
        self._connected = False
        self._reading.clear()
        self._dirty.clear()
        self._topics.clear()
        self._stale.clear()
        self._asked.clear()
        self._again.clear()
        self._followed.clear()
        self._unfollowed.clear()
        self._listing_again.clear()

    def read_node(self, uid: int) -> None:
        """Sync, then read one partition's node, and deliver it.

        Not where a read of it waits to be sent: that one will do. A server that is behind may not have it yet; then
        its watch fires.
        """
        if uid in self._asked:
            return
        path = self._layout.partition(uid)
        self._ask(uid, partial(self._client.sync_async, path), _ignore)
        self._requests.submit(
            partial(self._client.get_async, path), partial(self._node_read, uid, followed=False)
        )

    def _ask(self, uid: int, send: Send, ended: Ended) -> None:
        """Make the first request of those that read a node."""
        self._asked.add(uid)

        def sent() -> Any:
            self._asked.discard(uid)
            return send()

        self._requests.submit(sent, ended)

    # ------------------------------------------------------------ watches

    def _fired(self, event: WatchedEvent) -> None:
        """On a thread of kazoo's. One bound method for all watches: kazoo keeps them in sets."""
        if event.type != EventType.NONE:
            self._enqueue(partial(self._changed, event.path))

    def _changed(self, path: str) -> None:
        if not self._connected:  # it fired before; `refresh` reads everything
            return
        folder, _, name = path.rpartition("/")
        if path == self._layout.brokers:
            self._read_registrations()
        elif path in (self._layout.topics, self._layout.tombstones):
            self._read_topics()
        elif folder == self._layout.topics:
            self._stale.add(name)
            self._read_topics()
        elif folder == self._layout.partitions and int(name) in self._followed:
            self._follow(int(name))

    def _begin(self, what: str | int) -> bool:
        if what in self._reading:
            self._dirty.add(what)
            return False
        self._reading.add(what)
        return True

    def _finish(self, what: str | int, again: Callable[[], None]) -> None:
        self._reading.discard(what)
        if what in self._dirty:
            self._dirty.discard(what)
            again()

    # ------------------------------------------------------------ registrations

    def _read_registrations(self) -> None:
        if self._begin(_REGISTRATIONS):
            self._requests.run(self._list_registrations(), self._registrations_listed)

    def _list_registrations(self) -> Procedure:
        names = yield from one(
            partial(self._client.get_children_async, self._layout.brokers, watch=self._fired)
        )
        paths = [f"{self._layout.brokers}/{name}" for name in sorted(names)]
        answers = yield [partial(self._client.get_async, path) for path in paths]
        found = self._readable(_REGISTRATIONS, paths, answers, _registration)
        registrations = {registration.broker_id: registration for registration in found.values()}
        levels = yield from self._read_levels({segment(broker_id) for broker_id in registrations})
        announced = {broker_id: seen.feature_level for broker_id, seen in registrations.items()}
        return RegistrationsSeen(registrations, levels | announced)

    def _read_levels(self, registered: set[str]) -> Procedure:
        """Return the last announcements of brokers that are away; 0 where one cannot be read.

        All of them each time: a broker may have come with an older build and gone again, unseen.
        """
        try:
            names = yield from one(partial(self._client.get_children_async, self._layout.levels))
        except NoAuthError:
            self._tell(_LEVELS, {self._layout.levels: _REFUSED})
            return {}
        away = sorted(set(names) - registered)
        paths = [f"{self._layout.levels}/{name}" for name in away]
        answers = yield [partial(self._client.get_async, path) for path in paths]
        found = self._readable(_LEVELS, paths, answers, _level)
        return {unquote(name): found.get(path, 0) for name, path in zip(away, paths, strict=True)}

    def _registrations_listed(self, seen: RegistrationsSeen, error: Exception | None) -> None:
        if self._failed(error, self._read_registrations, _REGISTRATIONS):
            return
        self._deliver(seen)
        self._registrations_read(seen.registrations)
        self._finish(_REGISTRATIONS, self._read_registrations)

    # ------------------------------------------------------------ topics

    def _read_topics(self) -> None:
        if self._begin(_TOPICS):
            # Thousands of topics, after a reconnect: changes of leaders do not wait for them.
            self._requests.run(self._list_topics(), self._topics_listed, urgent=False)

    def _list_topics(self) -> Procedure:
        """Topics before tombstones: deleting a topic changes both at once, so none is missed in between."""
        layout, client = self._layout, self._client
        for name in self._stale:
            self._forget(name)
        self._stale.clear()
        names = set((yield from one(partial(client.get_children_async, layout.topics, watch=self._fired))))
        for name in self._topics.keys() - names:
            self._forget(name)
        paths = [f"{layout.topics}/{name}" for name in sorted(names - self._topics.keys())]
        answers = yield [partial(client.get_async, path, watch=self._fired) for path in paths]
        for path, topic in self._readable(_TOPICS, paths, answers, _topic).items():
            self._topics[path.rpartition("/")[2]] = topic
            self._unfollowed.update(part.uid for part in topic.partitions)
        tombstones = yield from one(partial(client.get_children_async, layout.tombstones, watch=self._fired))
        self.tombstones = frozenset(tombstones)
        return frozenset(uid for name in tombstones for uid in self._uids(name))

    def _forget(self, name: str) -> None:
        topic = self._topics.pop(name, None)
        if topic is not None:
            uids = {part.uid for part in topic.partitions}
            self._followed -= uids
            self._unfollowed -= uids

    def _uids(self, tombstone: str) -> range:
        try:
            return tombstone_uids(tombstone)
        except CoordinatorUnreadable as unreadable:
            _log.error("znode.unreadable", path=self._layout.tombstone(tombstone), reason=str(unreadable))
            return range(0)

    def _topics_listed(self, tombstones: frozenset[int], error: Exception | None) -> None:
        if self._failed(error, self._read_topics, _TOPICS):
            return
        # A topic that was deleted between the two reads is read again in a moment. Until it is gone, its tombstone
        # permits nothing: a person may have made one of the wrong partitions.
        if tombstones:
            living = frozenset(part.uid for topic in self._topics.values() for part in topic.partitions)
            contradicting, tombstones = tombstones & living, tombstones - living
            if contradicting and contradicting == self._contradicting:
                _log.error("tombstone.of_living_partitions", uids=sorted(contradicting))
            self._contradicting = contradicting
        self._deliver(TopicsSeen({topic.name: topic for topic in self._topics.values()}, tombstones))
        unfollowed, self._unfollowed = self._unfollowed - self._followed - tombstones, set()
        for uid in sorted(unfollowed):
            self._followed.add(uid)
            self._follow(uid)
        pause_s = len(self._topics) * _PAUSE_S_PER_TOPIC
        self._later(pause_s, partial(self._finish, _TOPICS, self._read_topics))

    # ------------------------------------------------------------ partitions' nodes

    def _follow(self, uid: int) -> None:
        if self._begin(uid):
            send = partial(self._client.get_async, self._layout.partition(uid), watch=self._fired)
            self._ask(uid, send, partial(self._node_read, uid, followed=True))

    def _node_read(self, uid: int, answer: Any, error: Exception | None, *, followed: bool) -> None:
        path = self._layout.partition(uid)
        if isinstance(error, NoAuthError):
            self._tell(uid, {path: _REFUSED})
        if isinstance(error, NoNodeError):
            self._tell(uid, {})
            if followed:
                self._followed.discard(uid)
            self._deliver(NodeSeen(uid, -1, None))
        elif self._failed(error, partial(self._follow, uid), uid if followed else None):
            if not followed and not isinstance(error, CONNECTION_ERRORS) and uid not in self._again:
                self._again.add(uid)
                self._later(_AGAIN_S, partial(self._read_again, uid))
            return
        else:
            value, stat = answer
            try:
                self._deliver(NodeSeen(uid, stat.version, decode_node(value)))
                self._tell(uid, {})
            except CoordinatorUnreadable as unreadable:
                self._tell(uid, {path: str(unreadable)})
        if followed:
            self._finish(uid, partial(self._follow, uid))

    # ------------------------------------------------------------ nodes that cannot be read

    def _readable(
        self,
        what: str,
        paths: list[str],
        answers: list[Any],
        decode: Callable[[str, bytes | None], Any],
    ) -> dict[str, Any]:
        """Return what could be read, by path, without the nodes that have gone.

        A node that is damaged, or that this broker may not read, costs only what it describes.

        Args:
            decode: gets the node's name and value.
        """
        found: dict[str, Any] = {}
        unreadable: dict[str, str] = {}
        for path, answer in zip(paths, answers, strict=True):
            if isinstance(answer, NoNodeError):
                continue
            if isinstance(answer, NoAuthError):
                unreadable[path] = _REFUSED
                self._list_again(what)
                continue
            if isinstance(answer, Exception):
                raise answer
            try:
                found[path] = decode(path.rpartition("/")[2], answer[0])
            except CoordinatorUnreadable as error:
                unreadable[path] = str(error)
        self._tell(what, unreadable)
        return found

    def _tell(self, what: str | int, unreadable: dict[str, str]) -> None:
        told = self._unreadable.pop(what, {})
        if unreadable:
            self._unreadable[what] = unreadable
        for path, reason in unreadable.items():
            if told.get(path) != reason:
                _log.error("znode.unreadable", path=path, reason=reason)

    def _list_again(self, what: str) -> None:
        """Read a list again in a while: no watch tells that access to a node was granted."""
        if what not in self._listing_again:
            self._listing_again.add(what)
            self._later(_AGAIN_S, partial(self._list_now, what))

    def _list_now(self, what: str) -> None:
        self._listing_again.discard(what)
        if what == _TOPICS:
            self._read_topics()
        else:
            self._read_registrations()

    def _read_again(self, uid: int) -> None:
        """Somebody waits for the node, and ZooKeeper has refused to show it."""
        self._again.discard(uid)
        self.read_node(uid)

    def _failed(self, error: Exception | None, again: Callable[[], None], what: str | int | None) -> bool:
        """Return whether a read failed; it is made again, by the next connection or in a while."""
        if error is None:
            return False
        if not isinstance(error, CONNECTION_ERRORS):
            if isinstance(what, str) or not isinstance(error, NoAuthError):
                _log.warning("zookeeper.read_failed", what=what, error=repr(error))
            if what is not None:
                self._later(_AGAIN_S, partial(self._finish_and, what, again))
        return True

    def _finish_and(self, what: str | int, again: Callable[[], None]) -> None:
        self._reading.discard(what)
        self._dirty.discard(what)
        again()


_REGISTRATIONS: Final = "registrations"
_LEVELS: Final = "levels"
_TOPICS: Final = "topics"


def _registration(name: str, value: bytes | None) -> Registration:
    found = decode_registration(value)
    _check_name(found.broker_id, name)
    return found


def _topic(name: str, value: bytes | None) -> Topic:
    found = decode_topic(value)
    _check_name(found.name, name)
    return found


def _level(name: str, value: bytes | None) -> int:
    if not value or not value.isdigit() or len(value) >= _LEVEL_DIGITS:
        raise CoordinatorUnreadable(f"this is not a feature level: {str(value)[:200]}")
    return int(value)


def _check_name(inside: str, name: str) -> None:
    if segment(inside) != name:
        raise CoordinatorUnreadable(f"this is of {inside!r}")


def _ignore(value: Any, error: Exception | None) -> None:
    """A sync's answer says nothing: it only has to come before the read's."""
