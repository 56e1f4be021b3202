"""Topics, and questions that any broker can answer."""

from __future__ import annotations

from dataclasses import dataclass

from dueq_codecs.codes import Code


@dataclass(slots=True)
class BrokerInfo:
    """One registered broker."""

    broker_id: str
    endpoint: str
    incarnation: int = 0


@dataclass(slots=True)
class PartitionInfo:
    """One partition as the answering broker knows it."""

    uid: int
    leader: str
    """Broker id, or empty when there is none or it is not known."""
    epoch: int
    serving: bool
    replicas: tuple[str, ...] = ()


@dataclass(slots=True)
class TopicInfo:
    """A topic's settings and where its partitions are."""

    name: str
    kind: str
    replicas: int
    min_isr: int
    payload_bytes_max: int
    horizon_ms: int
    """0: no cap."""
    partitions: tuple[PartitionInfo, ...] = ()
    settings: str = ""
    """Document of the settings (see `topic_settings`); empty: the broker does not know of any."""
    home_partitions: int = 0
    """How many partitions, the first, are home to jobs; 0: all."""


@dataclass(slots=True)
class MetadataRequest:
    """Ask for brokers and one topic (or all, when `topic` is empty; none, when only brokers are wanted)."""

    request_id: int
    topic: str = ""
    brokers_only: bool = False
    after: str = ""
    """Of all topics those whose names come after this one."""


@dataclass(slots=True)
class MetadataReply:
    request_id: int
    code: Code
    text: str = ""
    brokers: tuple[BrokerInfo, ...] = ()
    topics: tuple[TopicInfo, ...] = ()
    """In the order of their names."""
    more: bool = False
    """Others follow: to be asked for `after` the last of these."""


@dataclass(slots=True)
class CreateTopicRequest:
    request_id: int
    creation_id: bytes
    """16 bytes: a repeated create recognises its own topic by it."""
    topic: str
    kind: str = "timeline"
    partitions: int = 1
    replicas: int = 1
    min_isr: int = 0
    """0: replicas // 2 + 1."""
    payload_bytes_max: int = 0
    """0: the mesh's default."""
    horizon_ms: int = 0
    exist_ok: bool = False
    document: str = ""
    """JSON: other settings by their names, with which the topic begins; empty: there are none."""


@dataclass(slots=True)
class DeleteTopicRequest:
    """Delete a topic.

    If `uid` is of another topic than the one that has the name now, nothing is deleted. The answer is TOPIC_NOT_FOUND
    then, and its document has the uids of that topic.
    """

    request_id: int
    topic: str
    uid: int = 0
    """Of the topic's first partition; 0: whatever topic has the name."""


@dataclass(slots=True)
class UpdateTopicRequest:
    """Change a topic's settings, if their version is still the one that is named.

    The answer is OK, too, where the version has moved on, or another topic has the name. Its document says how the
    topic of that name stands: JSON with the "version" of its settings, the "update" that made it, and the uids of its
    "partitions".
    """

    request_id: int
    update_id: bytes
    """16 bytes: a repeated update recognises its own work by it."""
    topic: str
    version: int
    """Of the settings that are to be changed."""
    document: str
    """JSON: new values by the settings' names."""
    partitions: int = 0
    """How many the topic is to have; 0: as many as it has."""
    uid: int = 0
    """Of the topic's first partition; 0: whatever topic has the name."""


@dataclass(slots=True)
class InspectRequest:
    """A reading request; the answer is what the broker knows and may be stale. Any broker asks `broker` for it.

    `what` is one of "status", "describe", "forecast", "hours", "jobs", "job " and 32 hex digits, "statistics" (where
    `seconds` is the first hour wanted, counted since 1970). The reply's `document` is JSON
    (see docs/reference/protocol.md).
    """

    request_id: int
    what: str
    topic: str = ""
    seconds: int = 0
    broker: str = ""


@dataclass(slots=True)
class Reply:
    """The answer to everything that has no reply of its own."""

    request_id: int
    code: Code
    text: str = ""
    document: str = ""
    retry_after_ms: int = 0
