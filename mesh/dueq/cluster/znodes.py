"""The coordinator's facts as JSON, and the form of a new topic.

Every value carries a format number: an unknown one is refused, never guessed at. ZooKeeper tells None as the value of a
node that was made without one, by hand.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from dueq.cluster.coordinator import CoordinatorUnreadable
from dueq.core.ports.membership import (
    CreateTopic,
    DeleteTopic,
    Member,
    PartitionAssignment,
    PartitionNode,
    Registration,
    Topic,
    TopicOrderDone,
    UpdateTopic,
)
from dueq.limits import CREATIONS_KNOWN, UID_MAX, UPDATES_KNOWN
from dueq_codecs.topic_settings import TopicSettings, settings_of

FORMAT: Final = 1
FEATURE_LEVEL: Final = 1
"""The nodes of a new cluster."""
GROWN_LEVEL: Final = 2
"""The nodes of a cluster in which a topic has got more partitions: an older build would take its uids for one range,
and bury the partitions of others with it. So it may not register any more."""
_MISFITS: Final = (LookupError, TypeError, ValueError, AttributeError, OverflowError)
"""What reading fields of other types than the expected ones can raise: JSON has Infinity, too."""
_EPOCH_MAX: Final = (1 << 32) - 2
"""Uploads are numbered by epoch and a counter in 8 bytes; the next leader adds one."""
_INCARNATION_MAX: Final = (1 << 64) - 1
_LEVEL_MAX: Final = (1 << 16) - 1
_TOMBSTONE_UIDS_MAX: Final = 1 << 16
_REPLICAS_MAX: Final = (1 << 32) - 1


class TopicRefused(Exception):
    """A topic cannot be created as ordered; nothing was changed."""


def encode_registration(registration: Registration) -> bytes:
    """Return the value of a broker's ephemeral node."""
    return _dump(
        {
            "broker_id": registration.broker_id,
            "incarnation": registration.incarnation,
            "store_id": registration.store_id,
            "endpoint": registration.endpoint,
            "metrics": registration.metrics,
            "feature_level": registration.feature_level,
        }
    )


def decode_registration(value: bytes | None) -> Registration:
    """Read a broker's node.

    Raises:
        CoordinatorUnreadable: it is damaged or of an unknown format.
    """
    fields = _load(value, "registration")
    try:
        return Registration(
            broker_id=str(fields["broker_id"]),
            incarnation=_whole(fields["incarnation"], _INCARNATION_MAX),
            store_id=str(fields["store_id"]),
            endpoint=str(fields["endpoint"]),
            metrics=str(fields["metrics"]),
            feature_level=_whole(fields["feature_level"], _LEVEL_MAX),
        )
    except _MISFITS as error:
        raise _damaged("registration", value) from error


def topic_fields(topic: Topic) -> dict[str, Any]:
    """Return a topic as plain JSON values."""
    return {
        "name": topic.name,
        "creation_id": topic.creation_id,
        "kind": topic.kind,
        "partitions": [[p.uid, list(p.replicas)] for p in topic.partitions],
        "replicas": topic.replicas,
        "min_isr": topic.min_isr,
        # A build of feature level 1 reads these two here.
        "payload_bytes_max": topic.settings.payload_bytes_max,
        "horizon_ms": topic.settings.horizon_ms,
        "settings": topic.settings.fields(),
        "home_partitions": topic.home_partitions,
        # A build that does not know them leaves them out when it changes the topic; then they begin anew.
        "earlier_updates": list(topic.earlier_updates),
    }


def topic_of(fields: Mapping[str, Any]) -> Topic:
    """Return the topic of `topic_fields`.

    Raises:
        CoordinatorUnreadable: something is missing or of the wrong type.
    """
    try:
        return Topic(
            name=str(fields["name"]),
            creation_id=str(fields["creation_id"]),
            kind=str(fields["kind"]),
            partitions=tuple(
                PartitionAssignment(_whole(uid, UID_MAX, least=1), tuple(map(str, _distinct(replicas, str))))
                for uid, replicas in _distinct(_some(fields["partitions"]), lambda part: int(part[0]))
            ),
            replicas=_whole(fields["replicas"], _REPLICAS_MAX),
            min_isr=_whole(fields["min_isr"], _REPLICAS_MAX),
            settings=settings_of(fields["settings"])
            if "settings" in fields
            else _settings_of_level_1(fields),
            home_partitions=_whole(fields.get("home_partitions", 0), len(fields["partitions"])),
            earlier_updates=tuple(str(update) for update in fields.get("earlier_updates", ())),
        )
    except _MISFITS as error:
        raise _damaged("topic", fields) from error


def _settings_of_level_1(fields: Mapping[str, Any]) -> TopicSettings:
    """Return the settings of a topic that an older build created."""
    return TopicSettings(
        payload_bytes_max=int(fields["payload_bytes_max"]), horizon_ms=int(fields["horizon_ms"])
    )


def encode_topic(topic: Topic) -> bytes:
    """Return the value of a topic's node."""
    return _dump(topic_fields(topic))


def decode_topic(value: bytes | None) -> Topic:
    """Read a topic's node.

    Raises:
        CoordinatorUnreadable: it is damaged or of an unknown format.
    """
    return topic_of(_load(value, "topic"))


def node_fields(node: PartitionNode) -> dict[str, Any]:
    """Return a partition's node as plain JSON values."""
    return {
        "leader": node.leader,
        "incarnation": node.incarnation,
        "epoch": node.epoch,
        "isr": [list(member) for member in node.isr],
    }


def node_of(fields: Mapping[str, Any]) -> PartitionNode:
    """Return the node of `node_fields`.

    Raises:
        CoordinatorUnreadable: something is missing or of the wrong type.
    """
    try:
        return PartitionNode(
            leader=str(fields["leader"]),
            incarnation=_whole(fields["incarnation"], _INCARNATION_MAX),
            epoch=_whole(fields["epoch"], _EPOCH_MAX),
            isr=tuple(
                Member(str(broker_id), str(store_id))
                for broker_id, store_id in _distinct(fields["isr"], tuple)
            ),
        )
    except _MISFITS as error:
        raise _damaged("partition node", fields) from error


def encode_node(node: PartitionNode) -> bytes:
    """Return the value of a partition's node."""
    return _dump(node_fields(node))


def decode_node(value: bytes | None) -> PartitionNode:
    """Read a partition's node.

    Raises:
        CoordinatorUnreadable: it is damaged or of an unknown format.
    """
    return node_of(_load(value, "partition node"))


def encode_cluster(cluster_id: str, feature_level: int = FEATURE_LEVEL) -> bytes:
    """Return the value of the cluster's own node."""
    return _dump({"cluster_id": cluster_id, "feature_level": feature_level})


def decode_cluster(value: bytes | None) -> tuple[str, int]:
    """Return the cluster's id and feature level.

    Raises:
        CoordinatorUnreadable: it is damaged or of an unknown format.
    """
    fields = _load(value, "cluster")
    try:
        return str(fields["cluster_id"]), _whole(fields["feature_level"], _LEVEL_MAX)
    except _MISFITS as error:
        raise _damaged("cluster", value) from error


def check_feature_level(cluster_id: str, level: int, registration: Registration) -> None:
    """Refuse a cluster that already uses features which this broker lacks.

    Raises:
        CoordinatorUnreadable: the cluster's level is higher than the broker's.
    """
    if level > registration.feature_level:
        raise CoordinatorUnreadable(
            f"cluster {cluster_id} is at feature level {level}, broker {registration.broker_id} knows only "
            f"{registration.feature_level}: use the version that the other brokers run"
        )


def new_topic(order: CreateTopic, first_uid: int) -> tuple[Topic, dict[int, PartitionNode]]:
    """Return the topic of an order, and its partitions' first nodes by uid.

    Args:
        order: what was asked for.
        first_uid: of the range that the topic gets, one uid per partition, without gaps.

    Raises:
        TopicRefused: the uids are used up, or a replica's store is not known.
    """
    if not order.replicas_of:
        raise TopicRefused("a topic has at least one partition")
    partitions, nodes = _new_partitions(order.replicas_of, order.members, first_uid)
    topic = Topic(
        name=order.name,
        creation_id=order.creation_id,
        kind=order.kind,
        partitions=partitions,
        replicas=order.replicas,
        min_isr=order.min_isr,
        settings=order.settings,
    )
    return topic, nodes


def updated_topic(
    topic: Topic, order: UpdateTopic, first_uid: int
) -> tuple[Topic, dict[int, PartitionNode]] | None:
    """Return the topic as the order wants it, and the first nodes of its added partitions by uid.

    Args:
        topic: as it is.
        order: what was asked for.
        first_uid: of the range that added partitions get.

    Returns:
        None: its settings are not of the version before, or it is another topic; nothing is to be changed.

    Raises:
        TopicRefused: the uids are used up, or a replica's store is not known.
    """
    if order.creation_id != topic.creation_id or order.settings.version != topic.settings.version + 1:
        return None
    added, nodes = _new_partitions(order.added, order.members, first_uid)
    earlier = (*topic.earlier_updates, topic.settings.update) if topic.settings.update else ()
    changed = replace(
        topic,
        settings=order.settings,
        partitions=topic.partitions + added,
        earlier_updates=earlier[-UPDATES_KNOWN:],
    )
    return changed, nodes


def _new_partitions(
    replicas_of: tuple[tuple[str, ...], ...], known: tuple[Member, ...], first_uid: int
) -> tuple[tuple[PartitionAssignment, ...], dict[int, PartitionNode]]:
    if first_uid + len(replicas_of) - 1 > UID_MAX:
        raise TopicRefused(
            f"{len(replicas_of)} partitions do not fit: partition numbers from {first_uid} to {UID_MAX} are left"
        )
    members = {member.broker_id: member for member in known}
    missing = sorted({r for replicas in replicas_of for r in replicas} - members.keys())
    if missing:
        raise TopicRefused(f"the stores of these brokers are not known: {', '.join(missing)}")
    partitions = tuple(
        PartitionAssignment(first_uid + index, replicas) for index, replicas in enumerate(replicas_of)
    )
    return partitions, {
        p.uid: PartitionNode("", 0, 0, tuple(members[r] for r in p.replicas)) for p in partitions
    }


def is_meant(topic: Topic, order: DeleteTopic) -> bool:
    """Whether a topic of the name is the one that is to be deleted."""
    return order.uid in (0, topic.uid)


def tombstone_names(topic: Topic) -> list[str]:
    """Return the tombstones of a topic's partitions: `FIRST-LAST` of each range of its uids without a gap.

    A topic is created with one range; each time that it gets more partitions there is another one.
    """
    ranges: list[list[int]] = []
    for uid in sorted(p.uid for p in topic.partitions):
        if ranges and uid == ranges[-1][-1] + 1:
            ranges[-1].append(uid)
        else:
            ranges.append([uid])
    return [f"{uids[0]}-{uids[-1]}" for uids in ranges]


def encode_tombstone(brokers: Iterable[str]) -> bytes:
    """Return the value of a tombstone: the brokers that have not yet deleted their replicas."""
    return _dump({"brokers": sorted(brokers)})


def decode_tombstone(value: bytes | None) -> list[str]:
    """Return the brokers that have not yet deleted their replicas, sorted.

    Raises:
        CoordinatorUnreadable: it is damaged or of an unknown format.
    """
    fields = _load(value, "tombstone")
    try:
        return sorted(str(broker_id) for broker_id in fields["brokers"])
    except _MISFITS as error:
        raise _damaged("tombstone", value) from error


def encode_ended(creations: Iterable[str]) -> bytes:
    """Return the value of a list of deleted topics: the ids of their creations, the newest last."""
    return _dump({"creations": list(creations)})


def decode_ended(value: bytes | None) -> tuple[str, ...]:
    """Return the ids of the creations of deleted topics.

    Raises:
        CoordinatorUnreadable: it is damaged or of an unknown format.
    """
    fields = _load(value, "list of deleted topics")
    try:
        return tuple(str(creation_id) for creation_id in fields["creations"])
    except _MISFITS as error:
        raise _damaged("list of deleted topics", value) from error


def with_ended(creations: tuple[str, ...], topic: Topic) -> tuple[str, ...]:
    """Return the ids of the creations of deleted topics, when this one is deleted, too."""
    return (*creations, topic.creation_id)[-CREATIONS_KNOWN:]


def has_ended(creations: tuple[str, ...], order: CreateTopic) -> bool:
    """Whether the topic of an order was made before, and deleted.

    An order can come again: the client repeats it at another broker, and the first one was held up on its way.
    """
    return order.creation_id in creations


def already_ended(order: CreateTopic) -> TopicOrderDone:
    """The answer to an order whose topic was made before, and deleted."""
    text = f"topic {order.name!r} was created by this request, and has been deleted since"
    return TopicOrderDone(order.token, "not_found", text)


def holders(topic: Topic) -> set[str]:
    """Return every broker that has a replica of a topic."""
    return {broker_id for part in topic.partitions for broker_id in part.replicas}


def tombstone_uids(name: str) -> range:
    """Return the uids that a tombstone names.

    Raises:
        CoordinatorUnreadable: the name is not `FIRST-LAST`, or no topic has so many partitions.
    """
    first, dash, last = name.partition("-")
    if not dash:
        raise _damaged("tombstone", name)
    uids = range(decode_uid(first), decode_uid(last) + 1)
    if not 1 <= len(uids) <= _TOMBSTONE_UIDS_MAX:
        raise CoordinatorUnreadable(
            f"tombstone {name} names {len(uids)} partitions, not 1 to {_TOMBSTONE_UIDS_MAX}"
        )
    return uids


def decode_uid(text: bytes | str | None) -> int:
    """Read the number of a partition, or of the next one.

    Raises:
        CoordinatorUnreadable: it is none.
    """
    if (
        not text
        or not text.isdigit()
        or not text.isascii()
        or len(text) > len(str(UID_MAX))
        or not 1 <= int(text) <= UID_MAX + 1
    ):
        raise _damaged("partition's number", text)
    return int(text)


def _dump(fields: dict[str, Any]) -> bytes:
    return json.dumps({"format": FORMAT, **fields}, separators=(",", ":")).encode()


def _load(value: bytes | None, what: str) -> dict[str, Any]:
    if value is None:
        raise CoordinatorUnreadable(f"this is not a {what}: it has no value")
    try:
        fields = json.loads(value.decode())  # of bytes json takes surrogates, too
        if b"\\u" in value:  # half of a surrogate pair is no text, and no frame could hold it
            json.dumps(fields, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise _damaged(what, value) from error
    if not isinstance(fields, dict) or not isinstance(fields.get("format"), int):
        raise _damaged(what, value)
    if fields["format"] != FORMAT:
        raise CoordinatorUnreadable(
            f"this {what} has format {fields['format']}, this build knows only {FORMAT}: {value[:200]!r}"
        )
    return fields


def _whole(value: Any, most: int, *, least: int = 0) -> int:
    """Return a number that has its place in frames and records, or raise ValueError."""
    number = int(value)
    if not least <= number <= most:
        raise ValueError(f"{number} is not {least} to {most}")
    return number


def _some(values: Any) -> Any:
    """Return values of which there is at least one, or raise ValueError."""
    if not values:
        raise ValueError("there is none")
    return values


def _distinct(values: Any, name_of: Callable[[Any], Any]) -> Any:
    """Return values of which none is named twice, or raise ValueError: a replica would count as two copies."""
    if len({name_of(value) for value in values}) < len(values):
        raise ValueError("one is named twice")
    return values


def _damaged(what: str, value: object) -> CoordinatorUnreadable:
    return CoordinatorUnreadable(f"this is not a {what}: {str(value)[:200]}")
