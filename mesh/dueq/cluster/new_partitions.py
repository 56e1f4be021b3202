"""The nodes of new partitions in ZooKeeper: written before, or together with, the topic that names them.

A topic that is too large for one transaction takes several. First its uids are taken; they belong to it from then on.
Then the nodes are made; no broker looks at them before a topic names them. The topic itself comes last, with the last
of the nodes. If that fails, or is given up, the nodes of the steps before are deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from kazoo.exceptions import NodeExistsError, NoNodeError, RolledBackError, RuntimeInconsistency

from dueq.cluster.layout import Layout
from dueq.cluster.requests import Procedure, one
from dueq.cluster.znodes import encode_node
from dueq.core.ports.membership import PartitionNode

TRANSACTION_BYTES: Final = 700_000
"""A server refuses, and hangs up on, requests of more than `jute.maxbuffer` (1 MiB unless it was changed)."""
_OPERATION_BYTES: Final = 80
"""Bytes of one operation beyond its path and value: headers, lengths, the access list."""


@dataclass(slots=True)
class NewPartitions:
    """What one order makes, over all its attempts.

    Attributes:
        unnamed: uids whose nodes may be there, and which no topic names unless the last transaction took effect.
        last: the first uid among those whose nodes that transaction makes; 0: it makes all.
    """

    unnamed: tuple[int, ...] = ()
    last: int = 0

    def store(
        self,
        client: Any,
        layout: Layout,
        nodes: dict[int, PartitionNode],
        version: int,
        topic_bytes: int,
        write_topic: Callable[[Any], None],
    ) -> Procedure:
        """Take the uids and write nodes and topic; returns None, or the error if nothing of them is visible.

        Args:
            nodes: by uid; at least one.
            version: of the counter of uids.
            topic_bytes: what `write_topic` brings.
            write_topic: adds to the last transaction what makes the partitions visible.
        """
        counter = str(max(nodes) + 1).encode()
        slices = _slices(layout, nodes, topic_bytes)
        if len(slices) > 1:
            reserve = client.transaction()
            reserve.set_data(layout.next_uid, counter, version)
            lost = yield from commit(reserve)
            if lost is not None:
                return lost
            uids = list(nodes)[: -len(slices[-1])]
            self.unnamed, self.last = tuple(uids), uids[-1] + 1
            for part in slices[:-1]:
                transaction = client.transaction()
                for path, node in part:
                    transaction.create(path, node)
                lost = yield from commit(transaction)
                if lost is not None:
                    return lost
        last = client.transaction()
        if len(slices) == 1:
            last.set_data(layout.next_uid, counter, version)
        else:
            last.check(layout.partition(self.unnamed[0]), -1)
        for path, node in slices[-1]:
            last.create(path, node)
        write_topic(last)
        lost = yield from commit(last)
        if lost is None:
            self.unnamed = ()
        return lost

    def clear(self, client: Any, layout: Layout) -> Procedure:
        """Delete the nodes of partitions that no topic names.

        The first of them goes only if the last transaction has not taken effect, since that makes other nodes. From
        then on it cannot take effect: it checks that the first one is there.
        """
        if not self.unnamed:
            return
        first, *others = (layout.partition(uid) for uid in self.unnamed)
        other = layout.partition(self.last)
        transaction = client.transaction()
        transaction.create(other, b"")
        transaction.delete(other)
        transaction.delete(first)
        lost = yield from commit(transaction)
        if lost is None or isinstance(lost, NoNodeError):
            answers = yield [partial(client.delete_async, path) for path in others]
            for answer in answers:
                if isinstance(answer, Exception) and not isinstance(answer, NoNodeError):
                    raise answer
        elif not isinstance(lost, NodeExistsError):
            raise lost
        self.unnamed = ()


def _slices(
    layout: Layout, nodes: dict[int, PartitionNode], topic_bytes: int
) -> list[list[tuple[str, bytes]]]:
    """Cut the nodes into what fits into one transaction each; the last one has some, and room for the topic."""
    slices: list[list[tuple[str, bytes]]] = [[]]
    # Filled from the end, where the topic is.
    size = topic_bytes
    for uid, node in reversed(nodes.items()):
        path, value = layout.partition(uid), encode_node(node)
        bytes_needed = len(path) + len(value) + _OPERATION_BYTES
        if slices[0] and size + bytes_needed > TRANSACTION_BYTES:
            slices.insert(0, [])
            size = 0
        slices[0].append((path, value))
        size += bytes_needed
    return slices


def commit(transaction: Any) -> Procedure:
    """Commit; returns None, or the error of the operation that failed."""
    answers = yield from one(transaction.commit_async)
    errors = [answer for answer in answers if isinstance(answer, Exception)]
    causes = [error for error in errors if not isinstance(error, (RolledBackError, RuntimeInconsistency))]
    return next(iter(causes + errors), None)
