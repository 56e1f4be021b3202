"""An answer repeats only the beginning of what a request says: it is never too long for a peer that relays it."""

from __future__ import annotations

import pytest

from dueq.core.broker import BrokerCore
from dueq.core.ports.effects import SendClient
from dueq.core.ports.events import ClientFrameReceived, Route
from dueq.core.ports.membership import (
    CoordinatorChanged,
    CoordinatorState,
    PartitionAssignment,
    RegistrationsSeen,
    Topic,
    TopicsSeen,
)
from dueq.core.turn.settings import CoreSettings
from dueq.instant import Now
from dueq_codecs.messages import (
    BrowseRequest,
    ChangeRequest,
    ChunkRequest,
    ClientMessage,
    ConsumerAction,
    ConsumerFrame,
    CreateTopicRequest,
    InspectRequest,
    MetadataRequest,
)
from dueq_codecs.records import RecordKind

NOW = Now(1_700_000_000_000_000, 1_000_000)
LONG = "\0" * 3_000_000


@pytest.mark.parametrize("state", [CoordinatorState.CONNECTED, CoordinatorState.SUSPENDED])
@pytest.mark.parametrize(
    "request_",
    [
        MetadataRequest(1, LONG),
        CreateTopicRequest(1, bytes(16), LONG),
        CreateTopicRequest(1, bytes(16), "t", LONG),
        InspectRequest(1, LONG),
        InspectRequest(1, "describe", LONG),
        InspectRequest(1, "status", broker=LONG),
        ChangeRequest(1, RecordKind.CANCEL, LONG, 4, bytes(16), 1, 0),
        ChunkRequest(1, LONG, 4, bytes(16), 1, 0, 1, 1, 0),
        BrowseRequest(1, LONG, 4),
        ConsumerFrame(ConsumerAction.BEAT, LONG, bytes(16), 1, 1, 5, 1_000, 1_000),
        ConsumerFrame(ConsumerAction.BEAT, "t", bytes(16), 1, 1, 5, 1_000, 1_000, leader=LONG),
    ],
)
def test_a_refusal_is_short(request_: ClientMessage, state: CoordinatorState) -> None:
    core = BrokerCore(CoreSettings("b1", 1, "s1", "cluster", "tcp://b1"), [], NOW)
    topic = Topic("t", "0" * 32, "timeline", (PartitionAssignment(4, ("b1",)),), 1, 1)
    core.step([CoordinatorChanged(CoordinatorState.CONNECTED), RegistrationsSeen({})], NOW)
    core.step([TopicsSeen({"t": topic}, frozenset()), CoordinatorChanged(state)], NOW)
    effects = core.step([ClientFrameReceived(Route(b"client"), request_, [])], NOW)
    [reply] = [effect.message for effect in effects if isinstance(effect, SendClient)]
    assert 0 < len(reply.text) < 1_000  # type: ignore[union-attr]
