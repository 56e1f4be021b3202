"""Topics as a client sees them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from dueq.client.backoff import Backoff


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """One partition.

    Attributes:
        uid: its number in the cluster.
        index: its place in the topic, from 0.
        leader: broker id, empty when there is none.
        epoch: of the present leadership.
        serving: the leader serves requests.
        replicas: broker ids.
        isr: broker ids of the in-sync replicas (from `describe`).
        scheduled, ready, leased, dead: messages not due yet, due and waiting, with consumers, not tried again (from
            `describe`; None when the leader did not answer). Of a long backlog only what the leader has in memory (at
            most 16,384) counts as ready; the rest counts as scheduled.
        settings_version: the version of the settings that the partition applies (likewise).
    """

    uid: int
    index: int
    leader: str
    epoch: int
    serving: bool
    replicas: tuple[str, ...] = ()
    isr: tuple[str, ...] = ()
    scheduled: int | None = None
    ready: int | None = None
    leased: int | None = None
    settings_version: int | None = None
    dead: int | None = None


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic's settings; from `describe` also how many messages it holds.

    Attributes:
        name: of the topic.
        kind: "timeline", "priority" or "fair".
        partitions: how many.
        replicas: copies of each partition.
        min_isr: replicas that must hold a record before it is committed.
        payload_bytes_max: the longest payload.
        horizon: how far ahead a message may be due; None: no cap.
        paused: messages are taken, and none is delivered.
        paused_until: when the pause ends by itself, after which `paused` stays as it was set; None: not before the
            topic is resumed.
        settings_version: grows with each change of the topic; 0: as it was created.
        rate, burst: the most messages that are delivered in a second, and at once; 0: no limit.
        max_attempts, backoff, expired, dead_retention: how messages end, as in `update_topic`; no back-off: None.
        keys, remember: "unique" if a key names at most one message, and for how long it stays taken after that.
        labels: what its owner has to say of it, texts by name.
        home_partitions: how many partitions, the first, decide about jobs: those that it was created with.
        placement: the partitions.
        scheduled, ready, leased, dead: sums over the partitions that answered; None from `topics()`.
    """

    name: str
    kind: str
    partitions: int
    replicas: int
    min_isr: int
    payload_bytes_max: int
    horizon: timedelta | None = None
    placement: tuple[PartitionInfo, ...] = ()
    scheduled: int | None = None
    ready: int | None = None
    leased: int | None = None
    paused: bool = False
    paused_until: datetime | None = None
    settings_version: int = 0
    home_partitions: int = 0
    rate: float = 0
    burst: int = 0
    max_attempts: int = 0
    backoff: Backoff | None = None
    expired: str = "finish"
    dead_retention: timedelta = timedelta(days=14)
    labels: Mapping[str, str] = field(default_factory=dict)
    dead: int | None = None
    keys: str = "free"
    remember: timedelta = timedelta(0)
