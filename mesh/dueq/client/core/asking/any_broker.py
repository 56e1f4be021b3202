"""Requests that any broker can answer: repeated on another link until one does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dueq.client.core.links.context import Context
from dueq.client.core.links.links import Link, Links
from dueq.client.core.ports.timers import Timer
from dueq_codecs.messages import BrokerMessage, ClientMessage, Code, MetadataReply, MetadataRequest, Reply

SILENCE_US: Final = 1_000_000
SILENCE_US_MAX: Final = 8_000_000
"""A long answer of a busy broker takes time; if asked again each second, it would never come in time."""

Answer = MetadataReply | Reply


class AnyBrokerRequest:
    """One request. Its first answer goes to `on_answer` and ends it, unless `on_answer` calls `again()`.
    It also ends when `wanted()` is False.

    Attributes:
        attempts: how often it was sent.
        link: the number of the link that it went by last, 0 before.
        expects: what answers it, unless it is refused.
    """

    __slots__ = (
        "_all",
        "_build",
        "_number",
        "_on_answer",
        "_silence_us",
        "_timer",
        "_tried",
        "_wanted",
        "attempts",
        "expects",
        "link",
    )

    def __init__(
        self,
        requests: AnyBrokerRequests,
        build: Callable[[int], ClientMessage],
        on_answer: Callable[[AnyBrokerRequest, Answer], None],
        silence_us: int,
        wanted: Callable[[], bool],
    ) -> None:
        self._all, self._build, self._on_answer = requests, build, on_answer
        self._silence_us, self._wanted = silence_us, wanted
        self._number = 0
        self._timer: Timer | None = None
        self._tried: set[int] = set()
        self.attempts = 0
        self.link = 0
        self.expects: type[Answer] = Reply

    def send(self) -> None:
        """Send by the next link that is up, or wait for one."""
        self._forget()
        if not self._wanted():
            return
        link = self._all.next_link(self, self._tried)
        if link is None:
            return
        self.attempts += 1
        self.link = link.number
        if link.number in self._tried:
            self._tried.clear()  # every broker was asked: begin a new round
        self._tried.add(link.number)
        self._number = self._all.send(self, link, self._build)
        self._timer = self._all.after(self._silence_us, self._unanswered)

    def _unanswered(self) -> None:
        """Ask another broker; if all were silent, allow the answer more time."""
        if self._tried.issuperset(self._all.links_up()):
            self._silence_us = min(2 * self._silence_us, SILENCE_US_MAX)
        self.send()

    def again(self, delay_us: int) -> None:
        """Send once more after a while."""
        self._forget()
        self._timer = self._all.after(delay_us, self.send)

    def answered(self, answer: Answer) -> None:
        """Hand an answer to the asker, if it is still wanted."""
        self._forget()
        if self._wanted():
            self._on_answer(self, answer)

    def _forget(self) -> None:
        self._all.forget(self, self._number)
        self._number = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class AnyBrokerRequests:
    """All that are unanswered."""

    def __init__(self, context: Context, links: Links) -> None:
        self._context, self._links = context, links
        self._open: dict[int, AnyBrokerRequest] = {}
        self._parked: dict[AnyBrokerRequest, None] = {}

    def ask(
        self,
        build: Callable[[int], ClientMessage],
        on_answer: Callable[[AnyBrokerRequest, Answer], None],
        silence_us: int = SILENCE_US,
        wanted: Callable[[], bool] = lambda: True,
    ) -> AnyBrokerRequest:
        """Send a request by any link, and again by another after each silence."""
        request = AnyBrokerRequest(self, build, on_answer, silence_us, wanted)
        request.send()
        return request

    # -------------------------------------------------------------- one attempt

    def next_link(self, request: AnyBrokerRequest, tried: set[int]) -> Link | None:
        """Return a link that is up, preferably an untried one; without any, the request waits for one."""
        link = self._links.any_up(avoid=tried)
        if link is None:
            self._parked[request] = None
        return link

    def links_up(self) -> set[int]:
        """Return the numbers of the links that are up."""
        return {link.number for link in self._links.up().values()}

    def send(self, request: AnyBrokerRequest, link: Link, build: Callable[[int], ClientMessage]) -> int:
        """Send an attempt by this link; returns its number."""
        number = self._context.next_request()
        self._open[number] = request
        message = build(number)
        request.expects = MetadataReply if isinstance(message, MetadataRequest) else Reply
        self._links.send(link, message)
        return number

    def after(self, delay_us: int, then: Callable[[], None]) -> Timer:
        """Call `then` after a while."""
        return self._context.after(delay_us, then)

    def forget(self, request: AnyBrokerRequest, number: int) -> None:
        """The attempt is over; the request waits for no link."""
        self._open.pop(number, None)
        self._parked.pop(request, None)

    # -------------------------------------------------------------- what happens

    def answered(self, message: BrokerMessage) -> bool:
        """Take an answer; False if nobody here asked."""
        if isinstance(message, MetadataReply | Reply):
            request = self._open.get(message.request_id)
            if request is not None:
                if message.code is Code.OK and not isinstance(message, request.expects):
                    self._context.refuse(message, f"a {request.expects.__name__} was asked for")
                else:
                    request.answered(message)
                return True
        return False

    def link_up(self) -> None:
        """Send what waited for a link."""
        for request in list(self._parked):
            request.send()

    def link_down(self, number: int) -> None:
        """Send the requests of that link by others."""
        for request in [request for request in self._open.values() if request.link == number]:
            request.send()
