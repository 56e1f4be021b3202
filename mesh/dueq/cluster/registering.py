"""A broker's registration in ZooKeeper, and the folders that it needs there."""

from __future__ import annotations

import uuid
from functools import partial
from typing import Any

from kazoo.exceptions import BadVersionError, ConnectionLoss, NodeExistsError, NoNodeError

from dueq.cluster.coordinator import BrokerIdTaken, CoordinatorUnreadable
from dueq.cluster.layout import Layout
from dueq.cluster.new_partitions import commit
from dueq.cluster.requests import Procedure, one
from dueq.cluster.znodes import (
    FEATURE_LEVEL,
    check_feature_level,
    decode_cluster,
    decode_registration,
    encode_cluster,
    encode_registration,
)
from dueq.core.ports.membership import Registration


def prepare(client: Any, layout: Layout, registration: Registration) -> Procedure:
    """Make the nodes that are missing; returns the cluster's id.

    Raises:
        CoordinatorUnreadable: the cluster is of a format or feature level that this build does not know.
    """
    cluster = encode_cluster(uuid.uuid4().hex, min(FEATURE_LEVEL, registration.feature_level))
    nodes = [(path, b"") for path in layout.folders()] + [(layout.next_uid, b"1"), (layout.cluster, cluster)]
    answers = yield [partial(client.create_async, path, value) for path, value in nodes]
    failed = {
        path: answer
        for (path, _), answer in zip(nodes, answers, strict=True)
        if isinstance(answer, Exception) and not isinstance(answer, NodeExistsError)
    }
    # Folders above are there if something below them is, though ZooKeeper first refuses to make them.
    if any(path.startswith(f"{layout.root}/") for path in failed):
        raise next(iter(failed.values()))
    # Another broker may have made it at the same time; the existing one counts.
    value, _ = yield from one(partial(client.get_async, layout.cluster))
    cluster_id, level = decode_cluster(value)
    check_feature_level(cluster_id, level, registration)
    return cluster_id


def check_cluster(client: Any, layout: Layout, registration: Registration, cluster_id: str) -> Procedure:
    """Make sure that ZooKeeper still holds the cluster that this broker is of, and that its build may take part.

    Raises:
        CoordinatorUnreadable: it holds another cluster or none, or one of a higher feature level.
    """
    try:
        value, _ = yield from one(partial(client.get_async, layout.cluster))
    except NoNodeError as error:
        raise CoordinatorUnreadable(
            f"ZooKeeper holds no cluster at {layout.root}, and this broker is of cluster {cluster_id}"
        ) from error
    found, level = decode_cluster(value)
    if found != cluster_id:
        raise CoordinatorUnreadable(
            f"ZooKeeper holds cluster {found} at {layout.root}, and this broker is of cluster {cluster_id}"
        )
    check_feature_level(found, level, registration)


def register(client: Any, layout: Layout, registration: Registration) -> Procedure:
    """Put the registration in place, once, and only for the present session.

    The answer to a create may be lost although the node is there: its owner says so (pitfall R19). A node of
    another life of the same store is replaced at once, in one transaction: the lock on the data folder proves that
    the life is over, so there is no need to wait until its session ends (protocol case B4).

    Raises:
        BrokerIdTaken: a broker with another data folder is registered under this id.
    """
    path, value = layout.broker(registration.broker_id), encode_registration(registration)
    while True:
        found, stat = yield from _look(client, path)
        session = client.client_id
        if session is None:
            raise ConnectionLoss()
        is_ours = stat is not None and stat.ephemeralOwner == session[0] and found == value
        if stat is not None and not is_ours:
            _check_same_store(found, registration)
        # Not before it is known that nobody else has the id.
        yield from _note_level(client, layout, registration)
        if is_ours:
            return path
        if stat is None:
            try:
                return (yield from one(partial(client.create_async, path, value, ephemeral=True)))
            except NodeExistsError:
                continue
        replacement = client.transaction()
        replacement.delete(path, stat.version)
        replacement.create(path, value, ephemeral=True)
        lost = yield from commit(replacement)
        if lost is None:
            return path
        if not isinstance(lost, (BadVersionError, NodeExistsError, NoNodeError)):
            raise lost
        # Another broker has changed the node meanwhile: look again.


def _look(client: Any, path: str) -> Procedure:
    """Return the value of a node, and its state; None where there is no such node."""
    try:
        return (yield from one(partial(client.get_async, path)))
    except NoNodeError:
        return b"", None


def _note_level(client: Any, layout: Layout, registration: Registration) -> Procedure:
    """Announce the feature level, also for when this broker is away; it is known before the broker is seen."""
    path, value = layout.level(registration.broker_id), str(registration.feature_level).encode()
    try:
        yield from one(partial(client.create_async, path, value))
    except NodeExistsError:
        yield from one(partial(client.set_async, path, value))


def _check_same_store(found: bytes, registration: Registration) -> None:
    try:
        other = decode_registration(found)
    except CoordinatorUnreadable as error:
        raise BrokerIdTaken(
            f"broker id {registration.broker_id!r} is registered, by whom is unreadable: {error}"
        ) from error
    if other.store_id != registration.store_id:
        raise BrokerIdTaken(
            f"broker id {registration.broker_id!r} is taken by another broker, which lives at {other.endpoint} with "
            f"the data folder {other.store_id}; this one has {registration.store_id}: give each broker its own --id, "
            "or stop the other one"
        )
