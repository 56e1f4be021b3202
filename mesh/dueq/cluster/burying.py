"""Tombstones in ZooKeeper: which brokers still have to delete the data of a deleted topic, and the end of a tombstone.

A tombstone is the only permission to delete data, so it stays until every broker that had a replica has said that it
holds nothing any more. Its value lists those that have not. Each takes itself off the list by compare-and-set; the
last one removes the node. Doing so again changes nothing. So a step that a lost connection leaves undone is simply
begun again: after every reading of the topics the core says what it does not hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import structlog
from kazoo.exceptions import BadVersionError, NoNodeError

from dueq.cluster.coordinator import CoordinatorUnreadable
from dueq.cluster.layout import Layout
from dueq.cluster.requests import CONNECTION_ERRORS, Procedure, Requests, one
from dueq.cluster.znodes import decode_tombstone, encode_tombstone, tombstone_uids

_log = structlog.get_logger("dueq.cluster")


class Burying:
    """Takes one broker off the tombstones of the partitions that it has deleted; belongs to one thread.

    Args:
        names: every tombstone as last listed.
    """

    def __init__(
        self,
        client: Any,
        layout: Layout,
        requests: Requests,
        broker_id: str,
        names: Callable[[], frozenset[str]],
    ) -> None:
        self._client, self._layout, self._requests = client, layout, requests
        self._broker_id, self._names = broker_id, names
        self._under_way: set[str] = set()
        # Names that wait for this broker no more (or never did).
        self._done: set[str] = set()

    def confirmed(self, uids: Iterable[int]) -> None:
        """This broker holds nothing of these partitions."""
        gone, names = set(uids), self._names()
        self._done &= names
        for name in sorted(names - self._done - self._under_way):
            if gone.issuperset(_uids(name)):
                self._under_way.add(name)
                procedure = take_off(self._client, self._layout, name, self._broker_id)
                self._requests.run(procedure, partial(self._ended, name))

    def _ended(self, name: str, _: Any, error: Exception | None) -> None:
        self._under_way.discard(name)
        if error is None or isinstance(error, CoordinatorUnreadable):
            self._done.add(name)
        if error is not None and not isinstance(error, CONNECTION_ERRORS):
            reason = str(error) or repr(error)
            _log.error("tombstone.not_removed", path=self._layout.tombstone(name), reason=reason)


def take_off(client: Any, layout: Layout, name: str, broker_id: str) -> Procedure:
    """Take a broker off a tombstone's list; the last one removes the tombstone.

    Raises:
        CoordinatorUnreadable: the tombstone is not one that this build knows; it stays.
    """
    path = layout.tombstone(name)
    while True:
        try:
            value, stat = yield from one(partial(client.get_async, path))
            waiting = decode_tombstone(value)
            left = [other for other in waiting if other != broker_id]
            if left and left == waiting:
                return
            if left:
                yield from one(partial(client.set_async, path, encode_tombstone(left), stat.version))
            else:
                yield from one(partial(client.delete_async, path, stat.version))
            return
        except NoNodeError:
            return
        except BadVersionError:
            continue  # another broker was first: look again


def _uids(name: str) -> range:
    try:
        return tombstone_uids(name)
    except CoordinatorUnreadable:
        return range(-1, 0)
