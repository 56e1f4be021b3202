"""The content of the coordinator (ZooKeeper, or a stand-in), and the core's messages to and from it.

Small, rarely changing facts: who is alive, which topics there are, who leads which partition in which epoch
with which ISR. Each change of a partition's node is a compare-and-set on its version, never repeated by a
library; its outcome may be unknown.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from dueq_codecs.records import FEATURE_LEVEL
from dueq_codecs.topic_settings import AS_CREATED, TopicSettings


class Member(NamedTuple):
    """A replica that counts: a broker *and* the disk it had when it joined."""

    broker_id: str
    store_id: str


@dataclass(frozen=True, slots=True)
class Registration:
    """A living broker (ephemeral). Drawn anew at each start: `incarnation`."""

    broker_id: str
    incarnation: int
    store_id: str
    endpoint: str
    metrics: str = ""
    feature_level: int = FEATURE_LEVEL


@dataclass(frozen=True, slots=True)
class PartitionNode:
    """The leadership of a partition. `leader` "" means none; epoch 0: never led."""

    leader: str
    incarnation: int
    epoch: int
    isr: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class PartitionAssignment:
    """The brokers of a partition's replicas; the first is preferred as leader."""

    uid: int
    replicas: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic: its name, kind and replicas are as it was created."""

    name: str
    creation_id: str
    """32 hex digits: a repeated create recognises its own work."""
    kind: str
    partitions: tuple[PartitionAssignment, ...]
    replicas: int
    min_isr: int
    settings: TopicSettings = AS_CREATED
    home_partitions: int = 0
    """How many of the partitions, the first, are home to what a hash places; 0: all that there are now.

    It is the number that the topic was created with. Added partitions are home to nothing.
    """
    earlier_updates: tuple[str, ...] = ()
    """The ids of the changes before `settings.update`, the newest last; at most `UPDATES_KNOWN`."""

    def __post_init__(self) -> None:
        if not self.home_partitions:
            object.__setattr__(self, "home_partitions", len(self.partitions))

    @property
    def uid(self) -> int:
        """Of the first partition: no other topic ever has it."""
        return self.partitions[0].uid

    def has_stored(self, update: str) -> bool:
        """Whether a change, by its id, is among the last ones of this topic."""
        return update == self.settings.update or update in self.earlier_updates

    @property
    def brokers(self) -> list[str]:
        """Every broker that has a replica, sorted."""
        return sorted({broker_id for part in self.partitions for broker_id in part.replicas})


# ---------------------------------------------------------------- orders (effects)


@dataclass(slots=True)
class CompareAndSet:
    """Set a partition's node if its version is still `version`."""

    token: int
    uid: int
    version: int
    node: PartitionNode


@dataclass(slots=True)
class ReadNode:
    """Sync, then read a partition's node; answered by NodeSeen."""

    uid: int


@dataclass(slots=True)
class CreateTopic:
    """Create a topic: take a range of uids, write the topic and its partitions' nodes in one transaction.

    The coordinator gives out the uids; `replicas_of` names each partition's replicas in order of preference
    and `members` the store of each broker; a new partition's ISR is all its replicas, leader none, epoch 0.
    """

    token: int
    name: str
    creation_id: str
    kind: str
    replicas_of: tuple[tuple[str, ...], ...]
    members: tuple[Member, ...]
    replicas: int
    min_isr: int
    settings: TopicSettings


@dataclass(slots=True)
class UpdateTopic:
    """Give a topic these settings, and perhaps more partitions, if it has the settings of the version before.

    Added partitions get uids from the coordinator and are placed like those of a new topic. A topic that was made anew
    under the same name is another one, and stays as it is.

    Answered with the topic as it is then, changed or not.

    Attributes:
        creation_id: of the topic to which the settings belong.
        added: the replicas of each partition to add.
    """

    token: int
    name: str
    creation_id: str
    settings: TopicSettings
    added: tuple[tuple[str, ...], ...] = ()
    members: tuple[Member, ...] = ()


@dataclass(slots=True)
class DeleteTopic:
    """Delete a topic and leave a tombstone of its uids, until every broker that had a replica has confirmed.

    Attributes:
        uid: of the topic's first partition: a topic that was made anew under the same name stays as it is, and is in
            the answer "not_found"; 0: whatever topic has the name.
    """

    token: int
    name: str
    uid: int = 0


@dataclass(slots=True)
class ConfirmDeleted:
    """This broker holds nothing (any more) of these deleted partitions: their tombstones need not wait for it.

    Not answered. If it fails, the tombstones stay, and it is repeated after the next TopicsSeen.
    """

    uids: tuple[int, ...]


TopicOrder = CreateTopic | UpdateTopic | DeleteTopic
CoordinatorOrder = CompareAndSet | ReadNode | TopicOrder | ConfirmDeleted

# ---------------------------------------------------------------- events


class CoordinatorState(Enum):
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    """The connection is away; the session may live on."""
    LOST = "lost"
    """The session is over; the registration is gone."""


@dataclass(slots=True)
class CoordinatorChanged:
    state: CoordinatorState


@dataclass(slots=True)
class RegistrationsSeen:
    """All living brokers, read again after every change and reconnect."""

    registrations: dict[str, Registration]
    levels: dict[str, int] = field(default_factory=dict)
    """The feature levels that brokers announced last, of those too that are away."""


@dataclass(slots=True)
class TopicsSeen:
    """All topics and all tombstones (uids of deleted partitions), read again after every change."""

    topics: dict[str, Topic]
    tombstones: frozenset[int]


@dataclass(slots=True)
class NodeSeen:
    """A partition's node as read (at start, when its topic is new, after a watch fired, or for ReadNode); None: it is
    not there."""

    uid: int
    version: int
    node: PartitionNode | None


class SetOutcome(Enum):
    DONE = "done"
    BAD_VERSION = "bad_version"
    UNKNOWN = "unknown"
    """The connection broke: it may have happened, or may still happen."""
    REFUSED = "refused"
    """Not sent: there is no connection."""


@dataclass(slots=True)
class CompareAndSetDone:
    token: int
    uid: int
    outcome: SetOutcome
    version: int
    """The node's version after DONE."""


@dataclass(slots=True)
class TopicOrderDone:
    """CreateTopic, UpdateTopic or DeleteTopic ended. `error` "" on success, else one of "exists", "not_found",
    "unavailable" (nothing was changed) and "unknown" (it may have happened, or may still), with `text`. A create whose
    own creation id is found there already is a success; if the topic of that id was deleted, it is "not_found".

    Attributes:
        topic: as it is after a create or a change; with "exists" and "not_found", the one that is there.
    """

    token: int
    error: str
    text: str = ""
    topic: Topic | None = None


CoordinatorEvent = (
    CoordinatorChanged | RegistrationsSeen | TopicsSeen | NodeSeen | CompareAndSetDone | TopicOrderDone
)
