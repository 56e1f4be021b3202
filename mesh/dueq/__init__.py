"""dueq: deliver these bytes at this millisecond, to exactly one consumer, never before.

    from dueq import Client

    with Client("tcp://127.0.0.1:7400") as client:
        client.create_topic("departures", partitions=6)
        with client.producer("departures") as producer:
            message_id = producer.schedule(b"payload", timedelta(minutes=5))
        with client.consumer("departures") as consumer:
            for message in consumer:
                message.ack()

The names are loaded when first used, so that `import dueq.core` brings neither sockets nor threads.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dueq.client.aio import AsyncClient, AsyncConsumer, AsyncMessage, AsyncProducer
    from dueq.client.aio.passes import AsyncPass
    from dueq.client.backoff import Backoff
    from dueq.client.browsing import BrowsePage, ScheduledMessage
    from dueq.client.core.ports.shared_body import SharedBody
    from dueq.client.endpoints import EndpointInfo
    from dueq.client.filters import Filter
    from dueq.client.groups import GroupInfo
    from dueq.client.jobs import Job, JobInfo
    from dueq.client.message_state import MessageState
    from dueq.client.passes import Progress
    from dueq.client.recurrences import RecurrenceInfo
    from dueq.client.statistics import StatisticsRow
    from dueq.client.sync import Client, Consumer, Message, Producer
    from dueq.client.sync.passes import Pass
    from dueq.client.target import Target
    from dueq.client.topics import PartitionInfo, TopicInfo
    from dueq.errors import (
        Broken,
        Busy,
        ClientClosed,
        Disconnected,
        DiskFull,
        DueqError,
        EndpointNotFound,
        InvalidRequest,
        JobEnded,
        JobNotFound,
        KeyTaken,
        MessageLeased,
        MessageNotFound,
        NotAllowed,
        NotEnoughReplicas,
        NotLeader,
        NotYetApplied,
        OutcomeUnknown,
        PartialFailure,
        PassExists,
        PayloadTooLarge,
        RecurrenceExists,
        RecurrenceNotFound,
        Refused,
        RequestDiffers,
        SequenceReused,
        SnapshotLost,
        StaleLease,
        Superseded,
        TooManyRecurrences,
        TopicExists,
        TopicNotFound,
        Unavailable,
        UnknownBody,
        UnknownVersion,
        VersionDiffers,
    )
    from dueq.ids import first_instant
    from dueq_codecs.records import Outcome

__version__ = "0.1.0"

_HOMES = {
    "dueq.ids": ("first_instant",),
    "dueq.client.sync": ("Client", "Consumer", "Message", "Producer"),
    "dueq.client.aio": ("AsyncClient", "AsyncConsumer", "AsyncMessage", "AsyncProducer"),
    "dueq.client.aio.passes": ("AsyncPass",),
    "dueq.client.sync.passes": ("Pass",),
    "dueq.client.passes": ("Progress",),
    "dueq.client.backoff": ("Backoff",),
    "dueq.client.browsing": ("BrowsePage", "ScheduledMessage"),
    "dueq.client.endpoints": ("EndpointInfo",),
    "dueq.client.core.ports.shared_body": ("SharedBody",),
    "dueq.client.filters": ("Filter",),
    "dueq.client.message_state": ("MessageState",),
    "dueq.client.groups": ("GroupInfo",),
    "dueq.client.jobs": ("Job", "JobInfo"),
    "dueq.client.recurrences": ("RecurrenceInfo",),
    "dueq.client.statistics": ("StatisticsRow",),
    "dueq.client.target": ("Target",),
    "dueq.client.topics": ("PartitionInfo", "TopicInfo"),
    "dueq_codecs.records": ("Outcome",),
    "dueq.errors": (
        "Broken",
        "Busy",
        "ClientClosed",
        "Disconnected",
        "DiskFull",
        "DueqError",
        "EndpointNotFound",
        "InvalidRequest",
        "JobEnded",
        "JobNotFound",
        "KeyTaken",
        "MessageLeased",
        "MessageNotFound",
        "NotAllowed",
        "NotEnoughReplicas",
        "NotLeader",
        "NotYetApplied",
        "OutcomeUnknown",
        "PartialFailure",
        "PassExists",
        "PayloadTooLarge",
        "RecurrenceExists",
        "RecurrenceNotFound",
        "Refused",
        "RequestDiffers",
        "SequenceReused",
        "SnapshotLost",
        "StaleLease",
        "Superseded",
        "TooManyRecurrences",
        "TopicExists",
        "TopicNotFound",
        "Unavailable",
        "UnknownBody",
        "UnknownVersion",
        "VersionDiffers",
    ),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "AsyncClient",
    "AsyncConsumer",
    "AsyncMessage",
    "AsyncPass",
    "AsyncProducer",
    "Backoff",
    "Broken",
    "BrowsePage",
    "Busy",
    "Client",
    "ClientClosed",
    "Consumer",
    "Disconnected",
    "DiskFull",
    "DueqError",
    "EndpointInfo",
    "EndpointNotFound",
    "Filter",
    "GroupInfo",
    "InvalidRequest",
    "Job",
    "JobEnded",
    "JobInfo",
    "JobNotFound",
    "KeyTaken",
    "Message",
    "MessageLeased",
    "MessageNotFound",
    "MessageState",
    "NotAllowed",
    "NotEnoughReplicas",
    "NotLeader",
    "NotYetApplied",
    "Outcome",
    "OutcomeUnknown",
    "PartialFailure",
    "PartitionInfo",
    "Pass",
    "PassExists",
    "PayloadTooLarge",
    "Producer",
    "Progress",
    "RecurrenceExists",
    "RecurrenceInfo",
    "RecurrenceNotFound",
    "Refused",
    "RequestDiffers",
    "ScheduledMessage",
    "SequenceReused",
    "SharedBody",
    "SnapshotLost",
    "StaleLease",
    "Superseded",
    "StatisticsRow",
    "Target",
    "TooManyRecurrences",
    "TopicExists",
    "TopicInfo",
    "TopicNotFound",
    "Unavailable",
    "UnknownBody",
    "UnknownVersion",
    "VersionDiffers",
    "__version__",
    "first_instant",
]


def __getattr__(name: str) -> Any:
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module 'dueq' has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
