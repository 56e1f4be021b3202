"""The loop drives its core: input before timers, effects in order, an end when told."""

from __future__ import annotations

from collections.abc import Callable

import structlog
import zmq

from dueq.broker.inbox import Inbox
from dueq.broker.loop import Loop
from dueq.broker.sockets import Identity, Sockets
from dueq.core.effects import Effect, Exit, Log, Persist, Read, SendClient
from dueq.core.events import ClientFrameReceived, Event, Persisted
from dueq.core.instant import Now
from dueq.core.membership import CoordinatorOrder
from dueq.core.persistence import ReadLog, StoreRead
from dueq_codecs.frames import decode, encode
from dueq_codecs.messages import Code, MetadataReply, MetadataRequest


class Script:
    """A core that does what the test says in each turn."""

    def __init__(self, turn: Callable[[list[Event], int], list[Effect]]) -> None:
        self.turn = turn
        self.turns = 0
        self.wait_us = 0

    def step(self, events: list[Event], now: Now) -> list[Effect]:
        self.turns += 1
        return self.turn(events, self.turns)

    def next_deadline_us(self, now: Now) -> int:
        return now.mono_us + self.wait_us


class Orders:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def persist(self, order: Persist) -> None:
        self.told.append(order)

    def read(self, request: StoreRead) -> None:
        self.told.append(request)

    def coordinate(self, order: CoordinatorOrder) -> None:
        self.told.append(order)


def run(
    core: Script, before: Callable[[Sockets, Inbox], None] = lambda sockets, inbox: None
) -> tuple[Loop, Orders]:
    sockets, inbox, orders = Sockets("tcp://127.0.0.1:*", Identity("b1", 1, "c")), Inbox(), Orders()
    loop = Loop(core, sockets, inbox, orders, structlog.get_logger(), lambda now: None)
    before(sockets, inbox)
    try:
        loop.run()
    finally:
        sockets.close()
        inbox.close()
    return loop, orders


def test_a_turn_is_taken_when_the_deadline_comes_though_nothing_happens() -> None:
    core = Script(lambda events, turn: [Exit("enough")] if turn == 3 else [])
    core.wait_us = 1_500
    loop, _ = run(core)
    assert (core.turns, loop.exit_reason) == (3, "enough")


def test_effects_are_carried_out_in_order() -> None:
    persist, read = Persist(1, []), ReadLog(2, 1, 1, 1)
    core = Script(lambda events, turn: [persist, Read(read), Exit("done")])
    _, orders = run(core)
    assert orders.told == [persist, read]


def test_events_of_other_threads_wake_the_loop() -> None:
    seen: list[Event] = []

    def turn(events: list[Event], number: int) -> list[Effect]:
        seen.extend(events)
        return [Exit("seen")] if seen else []

    core = Script(turn)
    core.wait_us = 60_000_000
    run(core, lambda sockets, inbox: inbox.put(Persisted(7, 1)))
    assert seen == [Persisted(7, 1)]


def test_a_client_is_answered() -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    client = context.socket(zmq.DEALER)
    client.setsockopt(zmq.LINGER, 0)

    def turn(events: list[Event], number: int) -> list[Effect]:
        asked = [event for event in events if isinstance(event, ClientFrameReceived)]
        if not asked:
            return []
        reply = MetadataReply(asked[0].message.request_id, Code.OK)  # type: ignore[union-attr]
        return [
            SendClient(asked[0].route.identity, reply),
            Log("debug", "client.answered", {}),
            Exit("answered"),
        ]

    def ask(sockets: Sockets, inbox: Inbox) -> None:
        client.connect(sockets.endpoint)
        client.send_multipart(encode(MetadataRequest(5)))

    core = Script(turn)
    core.wait_us = 60_000_000
    run(core, ask)
    assert client.poll(5_000)
    assert decode(client.recv_multipart())[0] == MetadataReply(5, Code.OK)
    client.close(0)
    context.term()
