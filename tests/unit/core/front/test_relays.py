"""What a broker sends on for others and takes from them: only between the present lives of two that hear each other."""

from __future__ import annotations

from typing import Any

import pytest

from dueq import limits
from dueq.core.broker import BrokerCore
from dueq.core.ports.effects import Effect, SendClient, SendPeer
from dueq.core.ports.events import ClientFrameReceived, Event, PeerFrameReceived, Route, RouteLost
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
    BrowseRequest,
    ChangeRequest,
    ChunkRequest,
    Code,
    ConsumerReply,
    Hello,
    HelloReply,
    InspectRequest,
    Leadership,
    LookRequest,
    MetadataReply,
    MetadataRequest,
    PeerFrame,
    Push,
    Relay,
    Role,
)
from dueq_codecs.records import RecordKind

LIFE = 7
"""The present one of each broker."""
CLIENT = Route(b"client")
QUESTION = InspectRequest(1, "describe", "", 0, "b3")


def at(ms: int) -> Now:
    return Now(1_700_000_000_000_000 + ms * 1000, 1_000_000 + ms * 1000)


def frame(sender: str, life: int = LIFE, mine: int = LIFE, *led: int) -> PeerFrameReceived:
    """A word of a peer, which leads these partitions."""
    message = PeerFrame(sender, life, "b1", mine, 1, at(0).wall_us)
    message.leaderships = [Leadership(uid, 3, leads=True, serving=True) for uid in led]
    return PeerFrameReceived(message, [])


def seen(*names: str) -> RegistrationsSeen:
    return RegistrationsSeen({
        name: Registration(name, LIFE, f"s-{name}", f"tcp://{name}", "", 1) for name in names
    })  # fmt: skip


@pytest.fixture
def core() -> BrokerCore:
    """b1, which has just heard from b2 and b3, and has a replica of partition 4; 5 is at the others."""
    core = BrokerCore(CoreSettings("b1", LIFE, "s1", "cluster", "tcp://b1"), [], at(0))
    parts = (PartitionAssignment(4, ("b1", "b2")), PartitionAssignment(5, ("b2", "b3")))
    topic = Topic("t", "0" * 32, "timeline", parts, 2, 2)
    events: list[Event] = [
        CoordinatorChanged(CoordinatorState.CONNECTED), TopicsSeen({"t": topic}, frozenset()), seen("b1", "b2", "b3"),
        frame("b2"), frame("b3"),
    ]  # fmt: skip
    core.step(events, at(0))
    return core


def relays(effects: list[Effect]) -> list[tuple[str, Relay]]:
    """Who is sent what a client says, or what is for one."""
    return [
        (e.broker_id, e.message) for e in effects if isinstance(e, SendPeer) and isinstance(e.message, Relay)
    ]


def answers(effects: list[Effect]) -> list[Any]:
    return [effect.message for effect in effects if isinstance(effect, SendClient)]


def test_what_a_client_asks_goes_on_to_whom_it_means(core: BrokerCore) -> None:
    [(to, relay)] = relays(core.step([ClientFrameReceived(CLIENT, QUESTION, [])], at(0)))
    assert (to, relay.back, relay.inner, relay.identity) == ("b3", False, QUESTION, b"client")


@pytest.mark.parametrize(
    ("request_to_leader", "bodies"),
    [
        (ChangeRequest(5, RecordKind.CANCEL, "t", 5, b"c" * 16, 1, 0), []),
        (ChunkRequest(5, "t", 5, b"c" * 16, 0, 0, 2, 9, 0), [b"x"]),
        (BrowseRequest(5, "t", 5), []),
        (LookRequest(5, "t", 5, "message"), []),
    ],
)
def test_what_is_for_the_leader_of_a_partition_goes_on_to_it_and_has_no_other_answer(
    core: BrokerCore, request_to_leader: Any, bodies: list[bytes | memoryview]
) -> None:
    """A client needs to reach only one broker, whatever it wants of the others."""
    core.step([frame("b2", LIFE, LIFE, 5)], at(0))
    effects = core.step([ClientFrameReceived(CLIENT, request_to_leader, bodies)], at(0))
    [(to, relay)] = relays(effects)
    assert (to, relay.back, relay.inner, relay.bodies) == ("b2", False, request_to_leader, bodies)
    assert answers(effects) == []


def test_what_was_relayed_is_not_sent_on_again(core: BrokerCore) -> None:
    """Two brokers that take each other for the leader would send it to and fro for ever."""
    relay = Relay("b2", LIFE, b"client", False, QUESTION, [])
    [(to, answer)] = relays(core.step([PeerFrameReceived(relay, [])], at(0)))
    assert (to, answer.back, answer.identity) == ("b2", True, b"client")
    assert answer.inner.code == Code.NOT_LEADER  # type: ignore[union-attr]


def test_nothing_is_relayed_to_who_is_silent_or_gone(core: BrokerCore) -> None:
    """The client hears at once that it has to look elsewhere, not after a silence."""
    core.step([seen("b1", "b2")], at(0))
    effects = core.step([ClientFrameReceived(CLIENT, QUESTION, [])], at(0))
    assert ([answer.code for answer in answers(effects)], relays(effects)) == ([Code.NOT_LEADER], [])
    core.step([seen("b1", "b2", "b3"), frame("b3")], at(0))
    assert relays(core.step([ClientFrameReceived(CLIENT, QUESTION, [])], at(0)))
    for ms in range(50, limits.LEADER_SILENCE_MS + 100, 50):
        core.step([], at(ms))
    effects = core.step([ClientFrameReceived(CLIENT, QUESTION, [])], at(limits.LEADER_SILENCE_MS + 100))
    assert ([answer.code for answer in answers(effects)], relays(effects)) == ([Code.NOT_LEADER], [])


@pytest.mark.parametrize(("life", "mine"), [(LIFE - 1, LIFE), (LIFE + 1, LIFE), (LIFE, LIFE - 1)])
def test_a_word_from_or_for_another_life_is_not_heard(core: BrokerCore, life: int, mine: int) -> None:
    """It has been on its way since before somebody was started anew, and knows nothing of what came since."""

    def leader() -> str:
        effects = core.step([ClientFrameReceived(CLIENT, MetadataRequest(1, "t"), [])], at(0))
        [answer] = answers(effects)
        assert isinstance(answer, MetadataReply)
        return answer.topics[0].partitions[1].leader

    core.step([frame("b2", life, mine, 5)], at(0))
    assert leader() == ""
    core.step([frame("b2", LIFE, LIFE, 5)], at(0))
    assert leader() == "b2"


def test_what_another_life_relays_is_not_done(core: BrokerCore) -> None:
    relay = Relay("b2", LIFE - 1, b"client", False, InspectRequest(1, "describe"), [])
    assert relays(core.step([PeerFrameReceived(relay, [])], at(0))) == []


def test_a_change_for_a_partition_that_is_another_topic_s_is_refused(core: BrokerCore) -> None:
    """Its rows would go to consumers of a topic that nobody has named."""
    request = ChangeRequest(5, RecordKind.CANCEL, "other", 4, b"c" * 16, 1, 0)
    [answer] = answers(core.step([ClientFrameReceived(CLIENT, request, [])], at(0)))
    assert (answer.code, answer.text) == (Code.TOPIC_NOT_FOUND, "partition 4 is not of topic 'other'")


# -------------------------------------------------------------- what could not be sent


@pytest.mark.parametrize(
    ("unsent", "bodies"),
    [
        (Push("t", b"c" * 16, 1, 1, 3, 1, "b2"), [b""]),
        (ConsumerReply("t", b"c" * 16, 1, 1, leader="b2"), []),
    ],
)
def test_what_a_leader_could_not_send_by_us_goes_back_to_it(
    core: BrokerCore, unsent: BrokerMessage, bodies: list[bytes]
) -> None:
    """Else its messages would stay leased to a client that is gone."""
    [(to, relay)] = relays(core.step([RouteLost(CLIENT, unsent)], at(0)))
    assert (to, relay.back, relay.inner, relay.bodies) == ("b2", False, unsent, bodies)


@pytest.mark.parametrize(
    ("route", "leader"), [(CLIENT, "b1"), (CLIENT, "gone"), (Route(b"client", "b3"), "b2")]
)
def test_nothing_else_that_could_not_be_sent_goes_anywhere(
    core: BrokerCore, route: Route, leader: str
) -> None:
    push = Push("t", b"c" * 16, 1, 1, 3, 1, leader)
    assert relays(core.step([RouteLost(route, push)], at(0))) == []


def test_what_comes_back_from_who_relayed_for_us_is_no_request(core: BrokerCore) -> None:
    push = Push("t", b"c" * 16, 1, 1, 3, 1, "b1")
    effects = core.step([PeerFrameReceived(Relay("b2", LIFE, b"client", False, push, [b""]), [])], at(0))
    assert (relays(effects), answers(effects)) == ([], [])


# -------------------------------------------------------------- sessions


def greeted(core: BrokerCore, **fields: Any) -> HelloReply:
    hello = Hello(Role.CLIENT, "c", sent_wall_us=5, **fields)
    [answer] = answers(core.step([ClientFrameReceived(CLIENT, hello, [])], at(0)))
    assert isinstance(answer, HelloReply)
    return answer


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, Code.OK),
        ({"cluster_id": "cluster"}, Code.OK),
        ({"cluster_id": "another"}, Code.WRONG_CLUSTER),
        ({"protocol_min": 2, "protocol_max": 9}, Code.WRONG_VERSION),
        ({"protocol_min": 0, "protocol_max": 0}, Code.WRONG_VERSION),
    ],
)
def test_a_client_of_another_mesh_or_protocol_is_told_so(
    core: BrokerCore, fields: dict[str, Any], code: Code
) -> None:
    assert greeted(core, **fields).code == code


def test_a_broker_tells_no_time_that_only_half_of_the_brokers_stand_for(core: BrokerCore) -> None:
    """It may be the one of two whose clock is an hour off."""
    for names, told in ((("b1", "b2"), False), (("b1", "b2", "b3"), False), (("b1",), True)):
        core.step([seen(*names)], at(0))
        assert (greeted(core).sent_wall_us == at(0).wall_us) is told
