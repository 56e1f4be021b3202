"""Snapshots that are browsed: whose pages they have, how long they are kept, and what is said when they end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dueq import limits
from dueq.core.front.browsing import Browsing
from dueq.core.ports.effects import Read
from dueq.core.ports.entry import NO_ENTRIES
from dueq.core.ports.events import Route
from dueq.core.ports.persistence import ChunkRead, ClosePages, PageRead, ReadChunk, ReadPage
from dueq.core.state.summary import Summary
from dueq.instant import Now
from dueq_codecs.messages import BrowseReply, BrowseRequest, Code

ROUTE = Route(b"r")


def at(ms: int) -> Now:
    return Now(1, 1 + ms * 1000)


class Led:
    """A led partition, whose checkpoint is saved and whose reads are answered when the test says so."""

    def __init__(self, broker: Broker, uid: int) -> None:
        self.broker, self.uid, self.epoch = broker, uid, 1
        self.replica = SimpleNamespace(serving=True, epoch=1)
        self.contents = SimpleNamespace(class_bytes=0, classes=lambda rows: None, shown=lambda rows: {})
        self.held = 0
        self.saved: list[Callable[[frozenset[int], Now], None]] = []

    def lead_anew(self) -> None:
        """It was led by another one meanwhile."""
        self.epoch = self.replica.epoch = self.epoch + 1

    def once_saved(self, then: Callable[[frozenset[int], Now], None], now: Now) -> None:
        self.saved.append(then)

    def hold_checkpoints(self) -> None:
        self.held += 1

    def let_checkpoints_go(self) -> None:
        self.held -= 1


class Broker:
    """What the leader's side of browsing sees of its broker."""

    def __init__(self, incarnation: int = 1) -> None:
        self.settings = SimpleNamespace(broker_id="b1", incarnation=incarnation)
        self.metrics = SimpleNamespace(errors=Counter[str]())
        self.reads: list[tuple[ReadPage | ReadChunk, Callable[[object, Now], None]]] = []
        self.replies: list[BrowseReply] = []
        self.closed: list[int] = []
        context: Any = self
        self.browsing = Browsing(context)

    def new_token(self) -> int:
        return 1

    def emit(self, effect: Read) -> None:
        assert isinstance(effect.request, ClosePages)
        self.closed.append(effect.request.pages)

    def read(self, make: Callable[[int], Any], then: Callable[[object, Now], None]) -> None:
        self.reads.append((make(1), then))

    def reply(self, route: Route, reply: BrowseReply, bodies: object = ()) -> None:
        self.replies.append(reply)

    def ask(self, led: Led, request_id: int, snapshot: int = 0, ms: int = 0, **fields: Any) -> Code | None:
        """A client asks; returns why it is refused."""
        partition: Any = led
        request = BrowseRequest(request_id, "t", led.uid, snapshot, **fields)
        refusal = self.browsing.requested(ROUTE, request, partition, at(ms))
        return None if refusal is None else refusal.code

    def answer(self, ms: int = 0, chunk: bytes | None = b"chunk") -> None:
        """The oldest read is answered: there is nothing (any more), or one chunk; None: that is unreadable."""
        asked, then = self.reads.pop(0)
        if isinstance(asked, ReadPage):
            summary = Summary.unpack(b"").pack()
            nothing = np.zeros(0, np.uint32)
            then(PageRead(0, 1, asked.pages, 9, summary, NO_ENTRIES, b"", nothing, (0, 0), True), at(ms))
        else:
            then(ChunkRead(0, 1, asked.upload, asked.chunk, chunk), at(ms))

    def begin(self, led: Led, request_id: int = 100) -> int:
        """A snapshot whose first page was read; returns its number."""
        assert self.ask(led, request_id) is None
        led.saved.pop()(frozenset(), at(0))
        self.answer()
        return self.replies.pop().snapshot


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def led(broker: Broker) -> Led:
    return Led(broker, 1)


def test_a_snapshot_has_pages_of_its_own_partition_alone(broker: Broker, led: Led) -> None:
    number = broker.begin(led)
    assert broker.ask(Led(broker, 2), 1, number) == Code.UNKNOWN_SESSION
    assert broker.ask(led, 2, number + 1) == Code.UNKNOWN_SESSION
    assert broker.ask(led, 3, number) is None


def test_a_snapshot_ends_with_the_leadership_that_made_it(broker: Broker, led: Led) -> None:
    """Its partition may have been truncated since: what it shows may never have been."""
    number = broker.begin(led)
    led.lead_anew()
    assert broker.ask(led, 1, number) == Code.UNKNOWN_SESSION
    broker.browsing.tick(at(0))
    assert broker.closed == [number]


def test_a_snapshot_of_which_no_page_is_asked_for_is_closed(broker: Broker, led: Led) -> None:
    number = broker.begin(led)
    broker.browsing.tick(at(limits.SNAPSHOT_IDLE_MS))
    assert broker.ask(led, 1, number, limits.SNAPSHOT_IDLE_MS) is None
    broker.answer(2 * limits.SNAPSHOT_IDLE_MS)  # the disk was slow: the caller has the page just now
    broker.browsing.tick(at(3 * limits.SNAPSHOT_IDLE_MS))
    assert broker.closed == []
    broker.browsing.tick(at(3 * limits.SNAPSHOT_IDLE_MS + 1))
    assert broker.closed == [number]
    assert broker.ask(led, 2, number) == Code.UNKNOWN_SESSION


def test_a_snapshot_is_not_closed_under_a_read(broker: Broker, led: Led) -> None:
    number = broker.begin(led)
    assert broker.ask(led, 1, number) is None
    assert broker.ask(led, 2, number, upload=7) is None
    assert broker.ask(led, 3, number, close=True) is None
    assert broker.ask(led, 4, number) == Code.UNKNOWN_SESSION
    broker.answer()
    assert broker.closed == []
    broker.answer()
    assert broker.closed == [number]
    assert [reply.request_id for reply in broker.replies] == [3, 1, 2]


def test_who_waits_for_a_snapshot_is_told_when_the_leadership_ends_before(broker: Broker, led: Led) -> None:
    """And is answered if he asks again, as he does until then."""
    assert broker.ask(led, 1) is None
    led.lead_anew()
    broker.browsing.tick(at(0))
    assert [(reply.request_id, reply.code) for reply in broker.replies] == [(1, Code.NOT_LEADER)]
    led.saved.pop()(frozenset(), at(0))
    assert broker.reads == []
    assert broker.ask(led, 1) is None
    assert len(led.saved) == 1


def test_a_page_that_was_read_when_the_leadership_had_ended_is_no_answer(broker: Broker, led: Led) -> None:
    assert broker.ask(led, 1) is None
    led.saved.pop()(frozenset(), at(0))
    assert led.held == 1, "no other checkpoint comes between"
    led.lead_anew()
    broker.answer()
    assert led.held == 0
    assert [(reply.request_id, reply.code) for reply in broker.replies] == [(1, Code.NOT_LEADER)]
    assert len(broker.closed) == 1


def test_there_are_few_snapshots_and_the_end_of_one_makes_room(broker: Broker, led: Led) -> None:
    numbers = [broker.begin(led, request_id) for request_id in range(limits.BROWSE_SNAPSHOTS_MAX)]
    assert len(set(numbers)) == len(numbers)
    assert broker.ask(led, 100) == Code.BUSY
    assert broker.ask(led, 101, numbers[0], close=True) is None
    assert broker.ask(led, 100) is None


def test_another_life_of_the_broker_gives_other_numbers(broker: Broker, led: Led) -> None:
    """A walk that goes on after a restart must not read on in somebody else's snapshot."""
    number = broker.begin(led)
    again = Broker(incarnation=2)
    assert again.begin(Led(again, 1)) != number


@pytest.mark.parametrize(
    ("field", "most"),
    [
        ("from_ms", limits.DUE_MS_MAX),
        ("until_ms", limits.DUE_MS_MAX),
        ("after_wait_at", limits.DUE_MS_MAX),
        ("after_key", (1 << 56) - 1),
        ("after_of", 1 << 48),
    ],
)
def test_a_place_that_no_index_has_is_refused(broker: Broker, led: Led, field: str, most: int) -> None:
    assert broker.ask(led, 1, **{field: most}) is None
    assert broker.ask(led, 2, **{field: most + 1}) == Code.INVALID_REQUEST


def test_a_page_has_as_many_rows_as_are_asked_for_and_no_more_than_may_be(broker: Broker, led: Led) -> None:
    number = broker.begin(led)
    for request_id, limit in enumerate((0, 10, limits.BROWSE_ROWS_MAX, limits.BROWSE_ROWS_MAX + 1)):
        assert broker.ask(led, request_id, number, limit=limit) is None
        asked, _ = broker.reads[-1]
        assert isinstance(asked, ReadPage)
        assert asked.limit == (10 if limit == 10 else limits.BROWSE_ROWS_MAX)
        broker.answer()


def test_a_chunk_that_cannot_be_read_is_said_to_be_broken(broker: Broker, led: Led) -> None:
    """Who exports messages would take an empty answer for a part of the payload."""
    number = broker.begin(led)
    assert broker.ask(led, 1, number, upload=7, chunk=3) is None
    broker.answer(chunk=None)
    assert broker.ask(led, 2, number, upload=7, chunk=4) is None
    broker.answer()
    assert [(reply.request_id, reply.code) for reply in broker.replies] == [(1, Code.BROKEN), (2, Code.OK)]
    assert "chunk 3 of upload 7 of partition 1 cannot be read" in broker.replies[0].text
