"""The loop drives its core: input before timers, effects in order, an end when told."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dueq.broker.clocks import read_clocks
from dueq.broker.inbox import Inbox
from dueq.broker.writer import Writer
from dueq.core.ports.effects import (
    ConnectPeer,
    Coordinate,
    Effect,
    Exit,
    Log,
    Persist,
    Read,
    SendClient,
    SendPeer,
)
from dueq.core.ports.events import (
    ClientFrameReceived,
    Event,
    PeerFrameReceived,
    Persisted,
    Route,
    RouteLost,
)
from dueq.core.ports.membership import ReadNode
from dueq.core.ports.persistence import CreatePartition, ReadLog
from dueq.instant import Now
from dueq.storage.ordered.memory import MemoryEngine
from dueq.storage.ordered.store import OrderedStore
from dueq_codecs.messages import (
    ChangeRequest,
    Code,
    MetadataReply,
    MetadataRequest,
    PeerFrame,
    Push,
    Relay,
    Reply,
)
from dueq_codecs.records import RecordKind
from tests.unit.broker.stage import Node, RawClient, RunningLoop, TellingCore, broker_hello

START = Persisted(0, 0)


def answering(event: Event) -> list[Effect]:
    """Answer metadata requests."""
    if isinstance(event, ClientFrameReceived) and isinstance(event.message, MetadataRequest):
        return [SendClient(event.route.identity, MetadataReply(event.message.request_id, Code.OK))]
    return []


def at_first(*effects: Effect) -> Callable[[Event], list[Effect]]:
    """Give some effects when START comes."""
    return lambda event: list(effects) if event == START else []


class Noted:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[object] = []
        self.persist = self.read = self.coordinate = self.told.append


def test_a_turn_is_taken_when_each_deadline_comes_though_nothing_happens() -> None:
    began_us = read_clocks().mono_us
    deadlines_us = [began_us + offset for offset in (1_500, 1_900, 4_000, 30_000, 30_300)]
    core = TellingCore()

    def after(events: list[Event], now: Any) -> list[Effect]:
        core.turns.append((events, now))
        return [Exit("enough")] if now.mono_us >= deadlines_us[-1] else []

    core.step = after  # type: ignore[method-assign]
    core.deadlines_us = list(deadlines_us)
    with RunningLoop(core) as running:
        running.join()
    assert running.loop.exit_reason == "enough"
    at_us = [now.mono_us for _, now in core.turns]
    assert at_us == sorted(at_us)
    for before, due in zip([began_us, *deadlines_us], deadlines_us, strict=False):
        assert any(at >= due for at in at_us), (before, due)
    assert core.events == []


def test_what_is_due_leaves_before_input_is_heard() -> None:
    core = TellingCore(lambda event: [Log("info", "heard", {}), Exit("enough")] if event == START else [])
    core.due = lambda now: [Log("info", "pushed", {})] if not core.turns else []
    with RunningLoop(core) as running:
        running.inbox.put(START)
        running.join()
    said = [line["event"] for line in running.logged]
    assert said.index("pushed") < said.index("heard")


def test_what_may_commit_is_heard_and_answered_before_the_rest_of_the_turn() -> None:
    other = RouteLost(Route(b"gone"), Reply(1, Code.OK))
    core = TellingCore(
        lambda event: (
            [Log("info", "answered", {})] if event == START else [Log("info", "done", {}), Exit("enough")]
        )
    )
    running = RunningLoop(core)
    running.inbox.put(other)
    running.inbox.put(START)
    with running:
        running.join()
    assert [line["event"] for line in running.logged] == ["answered", "done"]
    assert core.events == [START, other]


def test_a_turn_is_taken_at_an_instant_behind_its_input() -> None:
    """Else an answer could be stamped with an instant before its request was sent: clients count leases from stamps."""
    gone = RouteLost(Route(b"gone"), Reply(1, Code.OK))
    core = TellingCore(lambda event: [Exit("enough")] if event == gone else [])
    running, taken_us = RunningLoop(core), list[int]()
    take = running.inbox.take

    def taking() -> list[Event]:
        found = take()
        if gone in found:
            taken_us.append(read_clocks().mono_us)
        return found

    running.inbox.take = taking  # type: ignore[method-assign]
    with running:
        running.inbox.put(gone)
        running.join()
    [at_us] = [now.mono_us for events, now in core.turns if gone in events]
    assert at_us >= taken_us[0]


def test_no_turn_is_taken_without_a_reason() -> None:
    """The loop sleeps: it does not spin through turns until the deadline."""
    core = TellingCore()
    core.deadlines_us = [read_clocks().mono_us + 100_000]
    stop = core.deadlines_us[0]
    core.step = lambda events, now: (  # type: ignore[method-assign]
        core.turns.append((events, now)) or ([Exit("enough")] if now.mono_us >= stop else [])
    )
    with RunningLoop(core) as running:
        running.join()
    assert len(core.turns) < 20


def test_effects_are_carried_out_in_order() -> None:
    persist, read, order = Persist(1, []), ReadLog(2, 1, 1, 1), ReadNode(3)
    noted = Noted()
    core = TellingCore(at_first(persist, Read(read), Coordinate(order), Exit("done")))
    with RunningLoop(core, lambda inbox: noted) as running:
        running.inbox.put(START)
        running.join()
    assert noted.told == [persist, read, order]
    assert running.loop.exit_reason == "done"


def test_what_is_persisted_comes_back_as_an_event() -> None:
    store = OrderedStore.on(MemoryEngine(), MemoryEngine(), "b1", "c1", "s1")
    writers: list[Writer] = []

    class Orders(Noted):
        def __init__(self, inbox: Inbox) -> None:
            super().__init__()
            writers.append(Writer(store, inbox))
            writers[0].start()
            self.persist = writers[0].order  # type: ignore[assignment]

    def answer(event: Event) -> list[Effect]:
        if event == START:
            return [Persist(4, [CreatePartition(9, "t")])]
        return [Exit("persisted")] if isinstance(event, Persisted) and event.token == 4 else []

    with RunningLoop(TellingCore(answer), Orders) as running:
        running.inbox.put(START)
        running.join()
        assert writers[0].stop(5)
    assert running.loop.exit_reason == "persisted"
    assert [replica.uid for replica in store.recover()] == [9]


def test_a_client_is_answered_beside_others_that_talk_nonsense() -> None:
    with (
        RunningLoop(TellingCore(answering)) as running,
        RawClient(running.endpoint) as bad,
        RawClient(running.endpoint) as good,
    ):
        bad.say_frames(b"nonsense")
        reply = bad.hear()
        for number in range(20):
            bad.say_frames(b"nonsense")
            bad.say(PeerFrame("b2", 1, "b1", 1, 0, 0))
            bad.say_frames(bytes(5 << 20))
            good.say(MetadataRequest(number))
            assert good.hear() == MetadataReply(number, Code.OK)
    assert isinstance(reply, Reply)
    assert reply.code is Code.BAD_FRAME
    assert all(isinstance(event, ClientFrameReceived) for event in running.core.events)


def test_refused_frames_are_logged_together_at_most_once_a_second() -> None:
    with RunningLoop(TellingCore(answering)) as running, RawClient(running.endpoint) as bad:
        for _ in range(100):
            bad.say_frames(b"nonsense")
            bad.hear()
    complaints = [line for line in running.logged if line["event"] == "frames.refused"]
    seconds = running.published[-1].mono_us - running.published[0].mono_us
    assert len(complaints) <= 1 + seconds // 1_000_000


def test_a_client_that_is_gone_is_told_to_the_core() -> None:
    def answer(event: Event) -> list[Effect]:
        if event == START:
            return [SendClient(b"nobody", MetadataReply(1, Code.OK))]
        return [Exit("told")] if isinstance(event, RouteLost) and event.route.identity == b"nobody" else []

    with RunningLoop(TellingCore(answer)) as running:
        running.inbox.put(START)
        running.join()
    assert running.loop.exit_reason == "told"


def test_peers_are_connected_and_sent_to() -> None:
    peer = Node("b2")
    effects = [
        ConnectPeer("b2", 1, peer.endpoint),
        SendPeer("b2", PeerFrame("b1", 1, "b2", 1, 5, 0)),
    ]
    with RunningLoop(TellingCore(at_first(*effects))) as running:

        def send_again(events: list[Event]) -> bool:
            running.inbox.put(START)
            return any(isinstance(event, PeerFrameReceived) for event in events)

        peer.receive_until(send_again)
    peer.close()


def inserts_of(core: TellingCore) -> list[list[int]]:
    """The numbers of the inserts that each turn has taken."""
    return [
        [
            event.message.inner.request_id  # type: ignore[attr-defined]
            if isinstance(event, PeerFrameReceived)
            else event.message.request_id
            for event in events
            if isinstance(event, ClientFrameReceived | PeerFrameReceived)
            and isinstance(event.message, ChangeRequest | Relay)
        ]
        for events, _ in list(core.turns)
    ]


def a_heap(count: int, rows: int = 512) -> list[ChangeRequest]:
    columns = {"due": np.zeros(rows, np.uint64)} | dict.fromkeys(("size", "crc"), np.zeros(rows, np.uint32))
    return [
        ChangeRequest(number, RecordKind.INSERT, "t", 1, bytes(16), number, 0, **columns)  # type: ignore[arg-type]
        for number in range(1, count + 1)
    ]


@pytest.mark.parametrize("relayed", [False, True], ids=["direct", "relayed"])
def test_a_heap_of_inserts_leaves_the_turn_to_what_comes_after_it(relayed: bool) -> None:
    """Every insert is taken in the end, oldest first, and no turn has more than its share."""
    core = TellingCore(answering)
    running = RunningLoop(core)
    with RawClient(running.endpoint) as loader, RawClient(running.endpoint) as client:
        if relayed:
            loader.say(broker_hello("b2"))
        for request in a_heap(12):
            loader.say(
                Relay("b2", 1, b"x", False, request, [b""]) if relayed else request, [b""] * (not relayed)
            )
        client.say(MetadataRequest(99))
        with running:
            assert client.hear() == MetadataReply(99, Code.OK)
            turn = itertools.count(100)
            while sum(map(len, inserts_of(core))) < 12:  # what comes after them overtakes them: ask on
                client.say(MetadataRequest(number := next(turn)))
                assert client.hear() == MetadataReply(number, Code.OK)
    inserts = inserts_of(core)
    assert [number for turn in inserts for number in turn] == list(range(1, 13))
    assert max(map(len, inserts)) <= 4


def test_where_turns_are_so_long_that_pushes_are_late_a_load_for_later_is_slowed() -> None:
    """Every turn takes 5 ms by the clock, and pushes; a load goes on all the while."""
    wall_us, mono_us = read_clocks()
    spent_us = itertools.count(0, 2_500)
    later = np.full(512, wall_us // 1000 + 3_600_000, np.uint64)
    sizes = np.zeros(512, np.uint32)

    def clocks() -> Now:
        past_us = next(spent_us)
        return Now(wall_us + past_us, mono_us + past_us)

    def answer(event: Event) -> list[Effect]:
        if not isinstance(event, ClientFrameReceived):
            return []
        return [
            SendClient(b"nobody", Push("t", bytes(16), 1, 1, 1, 0)),
            SendClient(event.route.identity, Reply(event.message.request_id, Code.OK)),
        ]

    running = RunningLoop(TellingCore(answer), clocks=clocks)
    inserts = running.loop.inserts
    with RawClient(running.endpoint) as client, running:
        for number in range(1, 1_000):
            client.say(
                ChangeRequest(
                    number, RecordKind.INSERT, "t", 1, bytes(16), number, 0, due=later, size=sizes, crc=sizes
                ),
                [b""],
            )
            client.hear()
            if inserts.pace.rows_per_s is not None:
                break
    assert inserts.pace.rows_per_s is not None
    assert number >= 16, "a few late pushes are not enough"


def test_what_the_core_says_is_logged_as_it_says_it() -> None:
    effects = [Log("warning", "peer.fell_silent", {"peer": "b2"}), Exit("said")]
    with RunningLoop(TellingCore(at_first(*effects))) as running:
        running.inbox.put(START)
        running.join()
    assert running.logged == [{"level": "warning", "event": "peer.fell_silent", "peer": "b2"}]


def test_a_bug_in_the_core_ends_the_loop_and_its_story_names_the_events() -> None:
    def broken(event: Event) -> list[Effect]:
        raise ValueError("a bug")

    with RunningLoop(TellingCore(broken)) as running:
        running.inbox.put(Persisted(3, 4))
        running.join()
    assert str(running.error) == "a bug"
    story = running.loop.story()
    assert story["events"] == {"Persisted": 1}


def test_numbers_are_published_when_there_is_nothing_to_do() -> None:
    with RunningLoop(TellingCore(answering)) as running, RawClient(running.endpoint) as client:
        client.say(MetadataRequest(1))
        client.hear()
    assert running.published
    assert sum(running.loop.turns.counts) == len(running.core.turns)
