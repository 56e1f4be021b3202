"""What a broker answers to a client that knows a topic as it was before it was made again."""

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
from dueq_codecs.digest import request_digest
from dueq_codecs.messages import (
    BrowseReply,
    BrowseRequest,
    ChangeReply,
    ChangeRequest,
    ClientMessage,
    Code,
    MetadataReply,
    MetadataRequest,
)
from dueq_codecs.records import RecordKind

NOW = Now(1_700_000_000_000_000, 1_000_000)
PARTS = tuple(PartitionAssignment(uid, ("b2",)) for uid in (8, 9))


@pytest.fixture
def core() -> BrokerCore:
    core = BrokerCore(CoreSettings("b1", 1, "s1", "cluster", "tcp://b1"), [], NOW)
    core.step([CoordinatorChanged(CoordinatorState.CONNECTED), RegistrationsSeen({})], NOW)
    core.step([TopicsSeen({"t": Topic("t", "0" * 32, "timeline", PARTS, 1, 1)}, frozenset())], NOW)
    return core


def answer(core: BrokerCore, message: ClientMessage) -> object:
    effects = core.step([ClientFrameReceived(Route(b"client"), message, [])], NOW)
    [reply] = [effect.message for effect in effects if isinstance(effect, SendClient)]
    return reply


def change(uid: int) -> ChangeRequest:
    request = ChangeRequest(5, RecordKind.CANCEL, "t", uid, b"c" * 16, 1, 0)
    request.digest = request_digest(request)
    return request


@pytest.mark.parametrize("request_for", [change, lambda uid: BrowseRequest(5, "t", uid)])
def test_a_partition_that_the_topic_has_no_more_is_not_found(core: BrokerCore, request_for: object) -> None:
    """So the client asks which there are. As InvalidRequest its calls failed until its answer was 30 seconds old."""
    assert callable(request_for)
    reply = answer(core, request_for(4))
    assert isinstance(reply, ChangeReply | BrowseReply)
    assert (reply.code, reply.text) == (Code.TOPIC_NOT_FOUND, "partition 4 is not of topic 't'")


@pytest.mark.parametrize("state", CoordinatorState)
def test_metadata_that_may_be_old_says_so(core: BrokerCore, state: CoordinatorState) -> None:
    core.step([CoordinatorChanged(state)], NOW)
    reply = answer(core, MetadataRequest(5, "t"))
    assert isinstance(reply, MetadataReply)
    assert (reply.code, bool(reply.text)) == (Code.OK, state is not CoordinatorState.CONNECTED)
