"""Browsing: a page that shows nothing is followed by the next one, in the class that the store has come to."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from dueq import limits
from dueq.core.front.browsing import Browsing
from dueq.core.ports.entry import NO_ENTRIES
from dueq.core.ports.events import Route
from dueq.core.ports.persistence import PageRead, ReadPage
from dueq.core.state.summary import Summary
from dueq.instant import Now
from dueq_codecs.messages import BrowseReply, BrowseRequest, Code

UID = 1
NOW = Now(1, 1)


class Led:
    """A led partition of a topic with classes of two bytes, whose store answers when it is asked to."""

    def __init__(self) -> None:
        self.uid = self.epoch = UID
        self.replica = SimpleNamespace(serving=True, epoch=UID)
        self.contents = SimpleNamespace(class_bytes=2, classes=lambda rows: None, shown=lambda rows: {})
        self.settings = SimpleNamespace(broker_id="b1", incarnation=1)
        self.held = 0
        self.reads: list[tuple[ReadPage, Callable[[object, Now], None]]] = []
        self.replies: list[BrowseReply] = []

    def once_saved(self, then: Callable[[frozenset[int], Now], None], now: Now) -> None:
        then(frozenset(), now)

    def hold_checkpoints(self) -> None:
        self.held += 1

    def let_checkpoints_go(self) -> None:
        self.held -= 1

    def read(self, make: Callable[[int], ReadPage], then: Callable[[object, Now], None]) -> None:
        self.reads.append((make(len(self.reads)), then))

    def reply(self, route: Route, reply: BrowseReply, bodies: object = ()) -> None:
        self.replies.append(reply)

    def answer(self, after: tuple[int, int], of: bytes, *, last: bool) -> ReadPage:
        """Answer the oldest read with a page without rows; returns what was asked."""
        asked, then = self.reads.pop(0)
        page = PageRead(
            0, UID, asked.pages, 9, Summary.unpack(b"").pack(), NO_ENTRIES, b"", np.zeros(0, np.uint32), after, last,
            of=of,
        )  # fmt: skip
        then(page, NOW)
        return asked


def test_a_page_without_rows_is_followed_by_what_comes_behind_it() -> None:
    led = Led()
    both: Any = led
    assert Browsing(both).requested(Route(b"r"), BrowseRequest(3, "t", UID), both, NOW) is None
    first = led.answer((5, 7), b"\0\4", last=False)
    assert (first.begin, first.after, first.of, led.held) == (True, (0, 0), b"", 0)
    second = led.answer((5, 8), b"", last=False)
    assert (second.begin, second.after, second.of) == (False, (5, 7), b"\0\4")
    third = led.answer((5, 8), b"", last=True)
    assert (third.after, third.of) == ((5, 8), b"")
    [reply] = led.replies
    assert (reply.code, reply.last, reply.applied) == (Code.OK, True, 9)


def test_few_pages_of_one_snapshot_are_read_at_the_same_time() -> None:
    """Whoever asks for more has to wait: the reading thread reads for deliveries, too."""
    led = Led()
    both: Any = led
    browsing = Browsing(both)
    assert browsing.requested(Route(b"r"), BrowseRequest(0, "t", UID), both, NOW) is None
    [(asked, _)] = led.reads
    number = asked.pages

    def ask(request_id: int, **fields: Any) -> Code | None:
        refusal = browsing.requested(
            Route(b"r"), BrowseRequest(request_id, "t", UID, number, **fields), both, NOW
        )
        return None if refusal is None else refusal.code

    for request_id in range(1, limits.BROWSE_READS_MAX):  # the first page is being read, too
        assert ask(request_id, upload=request_id % 2) is None
    assert ask(50) == ask(51, upload=7) == Code.BUSY
    assert ask(1) is None  # it is being read already
    assert len(led.reads) == limits.BROWSE_READS_MAX
    led.answer((5, 8), b"", last=True)
    assert ask(50) is None
    assert ask(51) == Code.BUSY
    assert ask(52, close=True) is None
