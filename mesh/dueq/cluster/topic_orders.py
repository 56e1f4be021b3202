"""Creating, changing and deleting topics in ZooKeeper.

Each is one transaction, and can be begun again after a lost connection. A create recognizes its own earlier work by the
creation id, also if that topic was deleted meanwhile: then it makes none again. A delete recognizes it by a tombstone
that it tried to leave, or by the missing topic. A change names the version that it makes, so it is made once. It also
names a partition, so it is made to no topic but this one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kazoo.exceptions import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
)

from dueq.cluster.layout import Layout
from dueq.cluster.new_partitions import TRANSACTION_BYTES, NewPartitions, commit
from dueq.cluster.requests import Procedure, one
from dueq.cluster.znodes import (
    GROWN_LEVEL,
    TopicRefused,
    already_ended,
    decode_cluster,
    decode_ended,
    decode_topic,
    decode_uid,
    encode_cluster,
    encode_ended,
    encode_tombstone,
    encode_topic,
    has_ended,
    holders,
    is_meant,
    new_topic,
    tombstone_names,
    updated_topic,
    with_ended,
)
from dueq.core.ports.membership import (
    CreateTopic,
    DeleteTopic,
    Topic,
    TopicOrderDone,
    UpdateTopic,
)
from dueq.core.ports.membership import TopicOrder as Order


@dataclass(slots=True)
class TopicOrder:
    """One order, over all its attempts.

    Attributes:
        deadline: monotonic seconds; then it is answered "unknown".
        deleting: the creation id of the topic that a delete has tried to end, "" before.
        tombstone: one of those that it has tried to leave.
        running: an attempt is under way.
        trouble: what ZooKeeper said at the last attempt, if that was a refusal.
        withdrawn: it was answered; there is only something left to clear.
        partitions: those that it makes.
    """

    order: Order
    deadline: float
    deleting: str = ""
    tombstone: str = ""
    running: bool = False
    trouble: str = ""
    withdrawn: bool = False
    partitions: NewPartitions = field(default_factory=NewPartitions)

    def attempt(self, client: Any, layout: Layout) -> Procedure:
        """Return a procedure that returns the order's TopicOrderDone."""
        if isinstance(self.order, CreateTopic):
            return _create(client, layout, self.order, self)
        if isinstance(self.order, UpdateTopic):
            return _update(client, layout, self.order, self)
        return _delete(client, layout, self.order, self)


def _create(client: Any, layout: Layout, order: CreateTopic, state: TopicOrder) -> Procedure:
    lost: Exception | None = None
    counted = -1
    while True:
        yield from state.partitions.clear(client, layout)
        found, _ = yield from _read_topic(client, layout, order.name)
        if found is not None:
            if found.creation_id == order.creation_id:
                return TopicOrderDone(order.token, "", topic=found)
            return TopicOrderDone(order.token, "exists", f"topic {order.name!r} exists already", found)
        ended, ended_version = yield from _read_ended(client, layout, order.creation_id)
        if has_ended(ended, order):
            return already_ended(order)
        counter, stat = yield from one(partial(client.get_async, layout.next_uid))
        if isinstance(lost, NodeExistsError) and stat.version == counted:
            return _contradicts(order, lost)
        counted = stat.version
        try:
            topic, nodes = new_topic(order, decode_uid(counter))
            value = _topic_value(topic)
        except TopicRefused as refused:
            return TopicOrderDone(order.token, "unavailable", str(refused))
        create = partial(_create_node, path=layout.topic(topic.name), value=value)
        unless_ended = _as_read(layout.ended_like(order.creation_id), ended_version)
        lost = yield from state.partitions.store(
            client, layout, nodes, stat.version, len(value), partial(_both, create, unless_ended)
        )
        if lost is None:
            return TopicOrderDone(order.token, "", topic=topic)
        if not isinstance(lost, (BadVersionError, NodeExistsError)):
            raise lost
        # Another broker took these uids, or made or deleted a topic: look again.


def _topic_value(topic: Topic) -> bytes:
    value = encode_topic(topic)
    if len(value) > TRANSACTION_BYTES:
        raise TopicRefused(
            f"the description of topic {topic.name!r} has {len(value)} bytes, of {TRANSACTION_BYTES} allowed: "
            "use fewer partitions or shorter broker ids"
        )
    return value


def _create_node(transaction: Any, *, path: str, value: bytes) -> None:
    transaction.create(path, value)


def _as_read(path: str, version: int) -> Callable[[Any], None]:
    """Return what adds to a transaction that a list of deleted topics is still the one that was read; -1: missing."""
    if version < 0:
        return _written(path, encode_ended(()), version)
    return partial(_check_node, path=path, version=version)


def _check_node(transaction: Any, *, path: str, version: int) -> None:
    transaction.check(path, version)


def _written(path: str, value: bytes, version: int) -> Callable[[Any], None]:
    """Return what adds to a transaction that a node of this version gets a value; -1: it is missing."""
    if version < 0:
        return partial(_create_node, path=path, value=value)
    return partial(_set_node, path=path, value=value, version=version)


def _read_ended(client: Any, layout: Layout, creation_id: str) -> Procedure:
    """Return the list of deleted topics that would have this one, and the version of its node; () and -1: missing."""
    try:
        value, stat = yield from one(partial(client.get_async, layout.ended_like(creation_id)))
    except NoNodeError:
        return (), -1
    return decode_ended(value), stat.version


def _update(client: Any, layout: Layout, order: UpdateTopic, state: TopicOrder) -> Procedure:
    lost: Exception | None = None
    seen = -1, -1
    while True:
        yield from state.partitions.clear(client, layout)
        topic, version = yield from _read_topic(client, layout, order.name)
        if topic is None:
            return TopicOrderDone(order.token, "not_found", f"there is no topic {order.name!r}")
        counter, stat = yield from one(partial(client.get_async, layout.next_uid))
        if isinstance(lost, NodeExistsError | NoNodeError) and seen == (version, stat.version):
            return _contradicts(order, lost)
        seen = version, stat.version
        try:
            found = updated_topic(topic, order, decode_uid(counter))
            if found is None:
                return TopicOrderDone(order.token, "", topic=topic)
            changed, nodes = found
            value = _topic_value(changed)
        except TopicRefused as refused:
            return TopicOrderDone(order.token, "unavailable", str(refused))
        write = partial(
            _set_topic,
            path=layout.topic(order.name),
            value=value,
            version=version,
            of=layout.partition(topic.uid),
        )
        if nodes:
            raise_level = yield from _raise_level(client, layout)
            lost = yield from state.partitions.store(
                client, layout, nodes, stat.version, len(value), partial(_both, write, raise_level)
            )
        else:
            transaction = client.transaction()
            write(transaction)
            lost = yield from commit(transaction)
        if lost is None:
            return TopicOrderDone(order.token, "", topic=changed)
        if not isinstance(lost, (BadVersionError, NodeExistsError, NoNodeError)):
            raise lost
        # Somebody else took these uids, or has changed or deleted the topic: look again.


def _set_topic(transaction: Any, *, path: str, value: bytes, version: int, of: str) -> None:
    """Add a topic's new value. The node of a topic that was made again counts its versions anew, so they can be alike.

    Args:
        transaction: to add to.
        path: of the topic.
        value: the new one.
        version: of the value that was read.
        of: the node of a partition. No other topic ever has that one.
    """
    transaction.check(of, -1)
    transaction.set_data(path, value, version)


def _set_node(transaction: Any, *, path: str, value: bytes, version: int) -> None:
    transaction.set_data(path, value, version)


def _both(first: Callable[[Any], None], then: Callable[[Any], None], transaction: Any) -> None:
    first(transaction)
    then(transaction)


def _raise_level(client: Any, layout: Layout) -> Procedure:
    """Return what adds to a transaction that older builds register no more (see `GROWN_LEVEL`)."""
    value, stat = yield from one(partial(client.get_async, layout.cluster))
    cluster_id, level = decode_cluster(value)
    raised = encode_cluster(cluster_id, max(level, GROWN_LEVEL))
    return _written(layout.cluster, raised, stat.version)


def _delete(client: Any, layout: Layout, order: DeleteTopic, state: TopicOrder) -> Procedure:
    lost: Exception | None = None
    seen: tuple[Topic | None, int] = None, -1
    while True:
        if state.tombstone:
            stat = yield from one(partial(client.exists_async, layout.tombstone(state.tombstone)))
            if stat is not None:
                return TopicOrderDone(order.token, "")
        topic, version = yield from _read_topic(client, layout, order.name)
        if state.deleting and (topic is None or topic.creation_id != state.deleting):
            # It was deleted, by us or by another broker, and its tombstones are gone again.
            return TopicOrderDone(order.token, "")
        if topic is None or not is_meant(topic, order):
            return TopicOrderDone(order.token, "not_found", f"there is no topic {order.name!r}", topic)
        ended, ended_version = yield from _read_ended(client, layout, topic.creation_id)
        if lost is not None and seen == (topic, ended_version):
            # Deleting less than all of it helps nobody.
            return _contradicts(order, lost)
        seen = topic, ended_version
        tombstones = tombstone_names(topic)
        write_ended = _written(
            layout.ended_like(topic.creation_id), encode_ended(with_ended(ended, topic)), ended_version
        )
        state.deleting, state.tombstone = topic.creation_id, tombstones[0]
        transaction = client.transaction()
        for name in tombstones:
            transaction.create(layout.tombstone(name), encode_tombstone(holders(topic)))
        transaction.delete(layout.topic(order.name), version)
        for part in topic.partitions:
            transaction.delete(layout.partition(part.uid))
        write_ended(transaction)
        lost = yield from commit(transaction)
        if lost is None:
            return TopicOrderDone(order.token, "", topic=topic)


def _contradicts(order: Order, lost: Exception) -> TopicOrderDone:
    """The answer where nobody else has changed anything: nodes contradict each other, and trying again is in vain."""
    what = {CreateTopic: "created", UpdateTopic: "changed", DeleteTopic: "deleted"}[type(order)]
    text = f"topic {order.name!r} cannot be {what}: ZooKeeper says {lost!r}"
    return TopicOrderDone(order.token, "unavailable", text)


def _read_topic(client: Any, layout: Layout, name: str) -> Procedure:
    """Return a topic and the version of its node as they are now; None and -1 where there is none.

    Without the sync a server that is behind may answer with an older state.
    """
    path = layout.topic(name)
    answers = yield [partial(client.sync_async, path), partial(client.get_async, path)]
    for answer in answers:
        if isinstance(answer, NoNodeError):
            return None, -1
        if isinstance(answer, Exception):
            raise answer
    value, stat = answers[-1]
    return decode_topic(value), stat.version
