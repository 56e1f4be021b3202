"""What a broker says that does not know enough yet: it has just started, or its session has expired."""

from __future__ import annotations

from dueq.core.broker import BrokerCore
from dueq.core.ports.effects import SendClient
from dueq.core.ports.events import ClientFrameReceived, Event, Route
from dueq.core.ports.membership import (
    CoordinatorChanged,
    CoordinatorState,
    PartitionAssignment,
    Registration,
    RegistrationsSeen,
    Topic,
    TopicsSeen,
)
from dueq.core.turn.settings import CoreSettings
from dueq.instant import Now
from dueq_codecs.messages import (
    BrokerMessage,
    ChangeReply,
    ChangeRequest,
    ClientMessage,
    Code,
    ConsumerAction,
    ConsumerFrame,
    ConsumerReply,
    CreateTopicRequest,
    InspectRequest,
    MetadataReply,
    MetadataRequest,
    Reply,
)
from dueq_codecs.records import JobAction, RecordKind

NOW = Now(1_700_000_000_000_000, 1_000_000)
QUESTIONS: list[ClientMessage] = [
    MetadataRequest(1, "t"),
    InspectRequest(2, "describe", "t"),
    ConsumerFrame(ConsumerAction.ATTACH, "t", b"c" * 16, 1, 1, 1, 1, 1_000),
]


def answers(*before: Event) -> list[Code]:
    core = BrokerCore(CoreSettings("b1", 1, "s1", "cluster", "tcp://b1"), [], NOW)
    asked = [ClientFrameReceived(Route(b"client"), question, []) for question in QUESTIONS]
    sent: list[BrokerMessage] = [
        effect.message for effect in core.step([*before, *asked], NOW) if isinstance(effect, SendClient)
    ]
    assert all(isinstance(message, MetadataReply | Reply | ConsumerReply) for message in sent)
    return [message.code for message in sent if isinstance(message, MetadataReply | Reply | ConsumerReply)]


def test_it_does_not_say_that_there_is_no_such_topic() -> None:
    """A consumer that believed it gave up, and took its acknowledged messages for lost."""
    assert answers() == [Code.COORDINATOR_UNAVAILABLE] * 3


def test_it_says_so_once_it_has_read_them() -> None:
    connected = CoordinatorChanged(CoordinatorState.CONNECTED)
    assert answers(connected, TopicsSeen({}, frozenset())) == [Code.TOPIC_NOT_FOUND] * 3


def test_it_does_not_say_so_while_the_coordinator_is_away() -> None:
    """A topic may have been made since, and hold messages."""
    away = CoordinatorChanged(CoordinatorState.SUSPENDED)
    assert answers(TopicsSeen({}, frozenset()), away) == [Code.COORDINATOR_UNAVAILABLE] * 3


def created_with(*alive: str) -> Code:
    """The answer of b1 about a topic of three replicas while these brokers are registered."""
    core = BrokerCore(CoreSettings("b1", 1, "s1", "cluster", "tcp://b1"), [], NOW)
    seen = {name: Registration(name, 1, f"s-{name}", f"tcp://{name}", "", 1) for name in alive}
    request = CreateTopicRequest(1, b"c" * 16, "t", replicas=3)
    effects = core.step(
        [
            CoordinatorChanged(CoordinatorState.CONNECTED), TopicsSeen({}, frozenset()), RegistrationsSeen(seen),
            ClientFrameReceived(Route(b"client"), request, []),
        ],
        NOW,
    )  # fmt: skip
    replies = [effect.message for effect in effects if isinstance(effect, SendClient)]
    return replies[0].code if replies and isinstance(replies[0], Reply) else Code.OK


def test_a_broker_that_is_not_registered_itself_does_not_say_that_there_are_too_few() -> None:
    """When a machine stalls, all sessions expire together, and no broker is registered for a moment."""
    assert created_with() == created_with("b2", "b3") == Code.COORDINATOR_UNAVAILABLE
    assert created_with("b1", "b2") == Code.INVALID_REQUEST
    assert created_with("b1", "b2", "b3") == Code.OK


def asked_about(uid: int) -> Code:
    """A broker's answer about this partition of a topic of which it knows partition 5 only, which b2 has."""
    core = BrokerCore(CoreSettings("b1", 1, "s1", "cluster", "tcp://b1"), [], NOW)
    known = Topic("t", "0" * 32, "timeline", (PartitionAssignment(5, ("b2",)),), 1, 1)
    request = ChangeRequest(
        1, RecordKind.JOB, "t", uid, b"c" * 16, 1, 1, job=b"j" * 16, job_action=JobAction.COMMIT
    )
    effects = core.step(
        [TopicsSeen({"t": known}, frozenset()), ClientFrameReceived(Route(b"client"), request, [])], NOW
    )
    (reply,) = [effect.message for effect in effects if isinstance(effect, SendClient)]
    assert isinstance(reply, ChangeReply)
    return reply.code


def test_a_partition_that_is_newer_than_the_topic_as_it_knows_it_may_be_of_one_made_anew() -> None:
    """A client that was refused took its new topic for another one."""
    assert asked_about(9) == Code.NOT_LEADER
    assert asked_about(5) == Code.NOT_LEADER
    assert asked_about(4) == Code.TOPIC_NOT_FOUND
