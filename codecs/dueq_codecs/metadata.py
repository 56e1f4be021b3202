"""MetadataReply: brokers, topics and partitions as columns.

Each topic owns the next `topic_partitions` rows of the partition columns, each partition the next
`partition_replicas` names of `replica`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, Final

from dueq_codecs import messages as m
from dueq_codecs.fields import Numbers, Scalar, Text, Texts, Vector
from dueq_codecs.flat import Layout
from dueq_codecs.frame_error import FrameError

_BROKER: Final[tuple[Vector, ...]] = (
    Texts("broker_id"),
    Texts("broker_endpoint"),
    Numbers("broker_incarnation", "Q"),
)
_TOPIC: Final[tuple[Vector, ...]] = (
    Texts("topic_name"),
    Texts("topic_kind"),
    Numbers("topic_replicas", "I"),
    Numbers("topic_min_isr", "I"),
    Numbers("topic_payload_bytes_max", "Q"),
    Numbers("topic_horizon_ms", "Q"),
    Numbers("topic_partitions", "I"),
)
_PARTITION: Final[tuple[Vector, ...]] = (
    Numbers("partition_uid", "I"),
    Texts("partition_leader"),
    Numbers("partition_epoch", "Q"),
    Numbers("partition_serving", "?"),
    Numbers("partition_replicas", "I"),
)


def _columns_of(reply: m.MetadataReply) -> tuple[Any, ...]:
    """Take the values of all vectors out of a reply."""
    topics = reply.topics
    partitions = [partition for topic in topics for partition in topic.partitions]
    return (
        reply.text,
        *_columns([(b.broker_id, b.endpoint, b.incarnation) for b in reply.brokers], len(_BROKER)),
        *_columns(
            [
                (t.name, t.kind, t.replicas, t.min_isr, t.payload_bytes_max, t.horizon_ms, len(t.partitions))
                for t in topics
            ],
            len(_TOPIC),
        ),
        *_columns(
            [(p.uid, p.leader, p.epoch, p.serving, len(p.replicas)) for p in partitions], len(_PARTITION)
        ),
        tuple(replica for partition in partitions for replica in partition.replicas),
        _unless_empty([topic.settings for topic in topics]),
        _unless_empty([topic.home_partitions for topic in topics]),
    )


METADATA_REPLY: Final = Layout(
    m.MetadataReply,
    Scalar("request_id", "Q"),
    Scalar("code", "B", m.Code),
    Text("text"),
    *_BROKER,
    *_TOPIC,
    *_PARTITION,
    Texts("replica"),
    Scalar("more", "?"),
    Texts("topic_settings"),
    Numbers("topic_home_partitions", "I"),
    vectors=_columns_of,
)


def build_metadata_reply(values: dict[str, Any]) -> m.MetadataReply:
    """Make the message from its table.

    Raises:
        FrameError: columns that belong together are not of one length, or counts do not add up.
    """
    replicas: tuple[str, ...] = values["replica"]
    if sum(values["partition_replicas"]) != len(replicas):
        raise FrameError("the replicas of the partitions do not add up")
    names = iter(replicas)
    partitions = [
        m.PartitionInfo(uid, leader, epoch, serving, tuple(islice(names, count)))
        for uid, leader, epoch, serving, count in _rows(values, _PARTITION)
    ]
    if sum(values["topic_partitions"]) != len(partitions):
        raise FrameError("the partitions of the topics do not add up")
    source = iter(partitions)
    count = len(values["topic_name"])
    settings = _or_empty(values["topic_settings"], count, "")
    homes = _or_empty(values["topic_home_partitions"], count, 0)
    topics = []
    for row, document, home_partitions in zip(_rows(values, _TOPIC), settings, homes, strict=True):
        name, kind, replication, min_isr, payload_bytes_max, horizon_ms, parts = row
        topics.append(
            m.TopicInfo(
                name, kind, replication, min_isr, payload_bytes_max, horizon_ms, tuple(islice(source, parts)),
                document, home_partitions,
            )
        )  # fmt: skip
    brokers = tuple(m.BrokerInfo(*row) for row in _rows(values, _BROKER))
    return m.MetadataReply(
        values["request_id"], values["code"], values["text"], brokers, tuple(topics), values["more"]
    )


def _columns(rows: Sequence[tuple[Any, ...]], width: int) -> list[tuple[Any, ...]]:
    return list(zip(*rows, strict=True)) if rows else [()] * width


def _unless_empty(column: list[Any]) -> tuple[Any, ...]:
    """Return a column that is absent where every value is empty: as an older build writes it."""
    return tuple(column) if any(column) else ()


def _or_empty(column: Sequence[Any], rows: int, empty: Any) -> Sequence[Any]:
    if column and len(column) != rows:
        raise FrameError(f"a column of topics has {len(column)} items, not {rows}")
    return column or (empty,) * rows


def _rows(values: dict[str, Any], fields: Sequence[Vector]) -> list[tuple[Any, ...]]:
    columns = [values[field.name] for field in fields]
    if len(set(map(len, columns))) != 1:
        raise FrameError(f"the columns from {fields[0].name} on are not of one length")
    return list(zip(*columns, strict=True))
