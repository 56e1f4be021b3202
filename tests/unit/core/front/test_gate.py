"""Every request of a client is put to the gate, before anything else is done with it."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any, get_args

import pytest

from dueq.core.broker import BrokerCore
from dueq.core.front.gate import Gate, Operation, Passage
from dueq.core.partition.requests import Refusal
from dueq.core.ports.effects import SendClient, SendPeer
from dueq.core.ports.events import ClientFrameReceived, Event, PeerFrameReceived, Route
from dueq.core.ports.membership import (
    CoordinatorChanged,
    CoordinatorState,
    Registration,
    RegistrationsSeen,
    TopicsSeen,
)
from dueq.core.turn.settings import CoreSettings
from dueq.instant import Now
from dueq_codecs.messages import (
    BrowseReply,
    BrowseRequest,
    ChangeReply,
    ChangeRequest,
    ChunkReply,
    ChunkRequest,
    ClientMessage,
    Code,
    ConsumerFrame,
    ConsumerReply,
    CreateTopicRequest,
    DeleteTopicRequest,
    Hello,
    HelloReply,
    InspectRequest,
    LookReply,
    LookRequest,
    MetadataReply,
    MetadataRequest,
    PeerFrame,
    Relay,
    Reply,
    UpdateTopicRequest,
)
from dueq_codecs.records import RecordKind

NOW = Now(1_700_000_000_000_000, 1_000_000)
ANSWERS: dict[type, tuple[type, set[Operation]]] = {
    MetadataRequest: (MetadataReply, {Operation.METADATA}),
    InspectRequest: (Reply, {Operation.INSPECT}),
    CreateTopicRequest: (Reply, {Operation.CREATE_TOPIC}),
    DeleteTopicRequest: (Reply, {Operation.DELETE_TOPIC}),
    UpdateTopicRequest: (Reply, {Operation.UPDATE_TOPIC}),
    ChangeRequest: (
        ChangeReply,
        {
            Operation.SCHEDULE, Operation.CHANGE, Operation.LOAD, Operation.CONSUME, Operation.UPDATE_TOPIC,
            Operation.PURGE, Operation.RECUR, Operation.SET_GROUP, Operation.DEAD_LETTERS,
        },
    ),
    ChunkRequest: (ChunkReply, {Operation.SCHEDULE}),
    BrowseRequest: (BrowseReply, {Operation.BROWSE, Operation.READ_PAYLOADS}),
    LookRequest: (LookReply, {Operation.BROWSE, Operation.READ_PAYLOADS}),
    ConsumerFrame: (ConsumerReply, {Operation.CONSUME}),
}  # fmt: skip
"""The kinds of request, what answers each, and what each may ask for."""


def samples() -> list[tuple[str, ClientMessage, list[bytes | memoryview]]]:
    """Every golden message of a client: at least one of each kind, and of each kind of change."""
    path = Path(__file__).parents[4] / "codecs/vectors/samples.py"
    messages: dict[str, tuple[Any, Any]] = runpy.run_path(str(path))["messages"]()
    kinds = get_args(ClientMessage)
    return [(name, m, list(bodies)) for name, (m, bodies) in messages.items() if isinstance(m, kinds)]


REQUESTS = [pytest.param(m, bodies, id=name) for name, m, bodies in samples() if not isinstance(m, Hello)]


class Closed(Gate):
    """Lets nobody through, and remembers who asked for what."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Passage]] = []

    def admit(self, principal: str, passage: Passage) -> Refusal | None:
        self.asked.append((principal, passage))
        return Refusal(Code.NOT_ALLOWED, f"{passage.operation} on {passage.topic!r} is not allowed")


def broker(gate: Gate) -> BrokerCore:
    """A broker, b1, that knows of another, b2, and has just heard from it."""
    core = BrokerCore(CoreSettings("b1", 1, "s1", "cluster", "tcp://b1"), [], NOW, gate)
    seen = {name: Registration(name, 1, f"s-{name}", f"tcp://{name}", "", 1) for name in ("b1", "b2")}
    core.step(
        [
            CoordinatorChanged(CoordinatorState.CONNECTED), TopicsSeen({}, frozenset()), RegistrationsSeen(seen),
            PeerFrameReceived(PeerFrame("b2", 1, "b1", 1, 1, NOW.wall_us), []),
        ],
        NOW,
    )  # fmt: skip
    return core


def answers(core: BrokerCore, event: Event) -> list[Any]:
    """The answers to clients, directly or by a relay."""
    effects = core.step([event], NOW)
    direct = [effect.message for effect in effects if isinstance(effect, SendClient)]
    relayed = [
        effect.message.inner
        for effect in effects
        if isinstance(effect, SendPeer) and isinstance(effect.message, Relay)
    ]
    return direct + relayed


def test_the_samples_are_of_every_kind_of_request_and_of_every_operation() -> None:
    messages = [message for _, message, _ in samples()]
    assert {type(message) for message in messages} == set(get_args(ClientMessage)) == {Hello, *ANSWERS}
    changes = {message.kind for message in messages if isinstance(message, ChangeRequest)}
    assert changes >= {
        kind
        for kind in RecordKind
        if kind.name in ["INSERT", "MOVE", "CANCEL", "ACK", "NACK", "EXTEND", "RELEASE", "JOB"]
    }


@pytest.mark.parametrize("relayed", [False, True], ids=["direct", "relayed"])
@pytest.mark.parametrize(("message", "bodies"), REQUESTS)
def test_a_request_that_the_gate_refuses_is_told_so_and_does_nothing(
    message: ClientMessage, bodies: list[bytes | memoryview], relayed: bool
) -> None:
    gate = Closed()
    core = broker(gate)
    event: Event = ClientFrameReceived(Route(b"client"), message, bodies, "alice")
    if relayed:
        event = PeerFrameReceived(Relay("b2", 1, b"client", False, message, bodies, "alice"), [])
    (answer,) = answers(core, event)
    (principal, passage), *more = gate.asked
    reply, operations = ANSWERS[type(message)]
    assert not more
    assert type(answer) is reply
    assert answer.code == Code.NOT_ALLOWED
    assert "not allowed" in answer.text
    assert principal == "alice"
    assert passage.operation in operations
    assert passage.topic == message.topic  # type: ignore[union-attr]
    assert passage.payload_bytes == sum(map(len, bodies))


def test_the_gate_is_told_how_many_messages_and_what_kind_of_change() -> None:
    for name, message, bodies in samples():
        if isinstance(message, ChangeRequest):
            gate = Closed()
            answers(broker(gate), ClientFrameReceived(Route(b"client"), message, bodies))
            wanted = {
                "INSERT": Operation.SCHEDULE, "MOVE": Operation.CHANGE, "CANCEL": Operation.CHANGE,
                "JOB": Operation.LOAD, "SETTINGS": Operation.UPDATE_TOPIC, "PASS": Operation.PURGE,
                "RECURRENCE": Operation.RECUR, "CHANGE": Operation.CHANGE, "GROUP": Operation.SET_GROUP,
                "DISCARD": Operation.DEAD_LETTERS, "REDRIVE": Operation.DEAD_LETTERS,
                    "BODY": Operation.SCHEDULE, "TRIGGER": Operation.CHANGE,
            }.get(message.kind.name, Operation.CONSUME)  # fmt: skip
            assert gate.asked == [
                ("", Passage(wanted, message.topic, message.rows, sum(map(len, bodies))))
            ], name


def test_a_hello_opens_a_session_and_asks_for_nothing() -> None:
    gate = Closed()
    (hello,) = (message for _, message, _ in samples() if isinstance(message, Hello))
    (answer,) = answers(broker(gate), ClientFrameReceived(Route(b"client"), hello, []))
    assert isinstance(answer, HelloReply)
    assert not gate.asked


def test_a_relay_carries_the_principal() -> None:
    core = broker(Gate())
    request = InspectRequest(1, "describe", "", 0, "b2")
    effects = core.step([ClientFrameReceived(Route(b"client"), request, [], "alice")], NOW)
    (relay,) = (e.message for e in effects if isinstance(e, SendPeer) and isinstance(e.message, Relay))
    assert relay.principal == "alice"
    assert relay.inner == request
