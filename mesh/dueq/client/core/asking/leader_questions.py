"""Questions to the leader of one partition: each is repeated until it is answered, whoever leads by then.

What is asked, and what an answer is worth, is the business of those who ask: `browsing` and `looking`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Generic, TypeVar

from dueq.client.core.asking.directory import Directory, Topic
from dueq.client.core.links.calls import Calls
from dueq.client.core.links.context import Context
from dueq.client.core.links.links import Links
from dueq.client.core.links.refusals import FINAL, error_of
from dueq.client.core.ports.events import Browse, Look
from dueq.client.core.ports.timers import Timer
from dueq.errors import Disconnected, DueqError, NotLeader
from dueq_codecs.messages import (
    BrokerMessage,
    BrowseReply,
    BrowseRequest,
    Code,
    LookReply,
    LookRequest,
    Reply,
)

SILENCE_US: Final = 3_000_000
BACK_OFF_US: Final = 100_000

Asked = TypeVar("Asked", Browse, Look)
Answer = BrowseReply | LookReply


class Question(Generic[Asked]):
    """A call that waits for an answer.

    Attributes:
        request: what is sent, each time with the same id; None while the topic is being looked up.
        link: number of the link that it went by last, 0 while it waits to be sent.
        searched: every broker was asked for the topic, as it did not seem to have the partition.
        refusal: the last temporary refusal.
    """

    def __init__(self, event: Asked) -> None:
        self.event: Asked = event
        self.request: BrowseRequest | LookRequest | None = None
        self.link = 0
        self.searched = False
        self.refusal: DueqError | None = None
        self.timer: Timer | None = None


class LeaderQuestions(Generic[Asked]):
    """All calls of one kind."""

    def __init__(self, context: Context, calls: Calls, links: Links, directory: Directory) -> None:
        self._context, self._calls, self._links, self._directory = context, calls, links, directory
        self._open: dict[int, Question[Asked]] = {}  # by call
        self._asked: dict[int, Question[Asked]] = {}  # by request id

    # -------------------------------------------------------------- what is asked

    def _request(self, event: Asked, topic: Topic) -> BrowseRequest | LookRequest | DueqError:
        """Return what is sent; an error: the topic has no such partition."""
        raise NotImplementedError

    def _keeper(self, event: Asked) -> str:
        """Return the only broker that can answer; empty: the present leader can."""
        return ""

    def _where(self, event: Asked) -> str:
        """Return the words for the partition."""
        raise NotImplementedError

    def _gone(self, event: Asked, why: str) -> DueqError:
        """Return the error where an answer can no longer be had."""
        raise NotImplementedError

    def _fault(self, question: Question[Asked], message: Answer, body: bytes | memoryview) -> str | None:
        """Say why an answer that is OK is none to this question, or None."""
        raise NotImplementedError

    def _take(self, question: Question[Asked], message: Answer, body: bytes | memoryview) -> None:
        """Take an answer that is OK."""
        raise NotImplementedError

    # -------------------------------------------------------------- events

    def ask(self, event: Asked) -> None:
        """Ask, until the deadline."""
        question = self._open[event.call] = Question(event)
        self._calls.begin(event.call, event.deadline_us, lambda: self._expired(question))
        self._directory.ensure(
            event.topic, lambda topic: self._found(question, topic), lambda: event.call in self._open
        )

    def abandon(self, call: int) -> None:
        """Nobody waits any more."""
        question = self._open.get(call)
        if question is not None:
            self._close(question)
            self._calls.forget(call)

    def answered(self, message: BrokerMessage, bodies: Sequence[bytes | memoryview] = ()) -> bool:
        """Take an answer; False if it is to nothing here."""
        if not isinstance(message, BrowseReply | LookReply | Reply):
            return False
        question = self._asked.get(message.request_id)
        if question is None:
            return False
        code = message.code
        if code is Code.OK:
            self._maybe_answered(question, message, bodies[0] if bodies else b"")
        elif code is Code.UNKNOWN_SESSION:
            self._fail(question, self._gone(question.event, message.text))
        elif code in FINAL:
            self._fail(question, error_of(code, message.text))
        else:
            self._postponed(question, message)
        return True

    def _maybe_answered(
        self, question: Question[Asked], message: Answer | Reply, body: bytes | memoryview
    ) -> None:
        if isinstance(message, Reply):
            self._context.refuse(message, "it says nothing of messages")
            return
        fault = self._fault(question, message, body)
        if fault is not None:
            self._context.refuse(message, fault)
            return
        self._close(question)
        self._take(question, message, body)

    def link_up(self) -> None:
        """Send what waited for a link."""
        for question in list(self._open.values()):
            if question.request is not None and not question.link:
                self._send(question)

    def link_down(self, number: int) -> None:
        """Ask that link's questions again."""
        for question in [question for question in self._open.values() if question.link == number]:
            question.link = 0
            self._directory.refresh(question.event.topic)
            self._later(question, BACK_OFF_US)

    # -------------------------------------------------------------- asking

    def _found(self, question: Question[Asked], topic: Topic | DueqError) -> None:
        event = question.event
        if event.call not in self._open or question.request is not None:
            return
        if isinstance(topic, DueqError):
            self._fail(question, topic)
            return
        request = self._request(event, topic)
        if not isinstance(request, DueqError):
            question.request = request
            self._asked[request.request_id] = question
            self._send(question)
        elif question.searched:
            self._fail(question, request)
        else:
            question.searched = True  # the topic may have got more
            self._directory.search(
                event.topic,
                lambda found: not isinstance(self._request(event, found), DueqError),
                lambda found: self._found(question, found),
                lambda: event.call in self._open,
            )

    def _send(self, question: Question[Asked]) -> None:
        request, event = question.request, question.event
        assert request is not None
        leader = self._keeper(event) or self._directory.leader(event.topic, request.uid)
        link = self._links.route(leader, avoid=question.link) if leader else None
        if link is None:
            question.link = 0
            self._directory.refresh(event.topic)
            self._later(question, BACK_OFF_US * 5)
            return
        question.link = link.number
        self._links.send(link, request)
        self._later(question, SILENCE_US)

    def _later(self, question: Question[Asked], delay_us: int) -> None:
        if question.timer is not None:
            question.timer.cancel()
        question.timer = self._context.after(delay_us, lambda: self._send(question))

    def _postponed(self, question: Question[Asked], message: Answer | Reply) -> None:
        code, event = message.code, question.event
        question.link = 0
        question.refusal = error_of(code, message.text, message.retry_after_ms)
        if code is Code.NOT_LEADER:
            # With a snapshot too: its keeper may still lead. The present leader knows whether it has the
            # snapshot.
            assert question.request is not None
            hint = message.leader if not isinstance(message, Reply) else ""
            self._directory.hint(event.topic, question.request.uid, hint)
            self._directory.refresh(event.topic)
        elif code is Code.TOPIC_NOT_FOUND:
            self._directory.refresh(event.topic, lambda topic: self._verified(question, topic))
        self._later(question, self._context.jittered(max(BACK_OFF_US, message.retry_after_ms * 1000)))

    def _verified(self, question: Question[Asked], topic: Topic | DueqError) -> None:
        """A broker did not know the partition: is it really gone?"""
        if question.event.call not in self._open or question.request is None:
            return
        if isinstance(topic, DueqError):
            self._fail(question, topic)
        elif question.request.uid not in topic.partitions:
            self._fail(question, self._gone(question.event, "the topic was made anew"))

    # -------------------------------------------------------------- ends

    def _close(self, question: Question[Asked]) -> None:
        if question.timer is not None:
            question.timer.cancel()
        self._open.pop(question.event.call, None)
        if question.request is not None:
            self._asked.pop(question.request.request_id, None)

    def _fail(self, question: Question[Asked], error: DueqError) -> None:
        self._close(question)
        self._calls.fail(question.event.call, error)

    def _expired(self, question: Question[Asked]) -> None:
        where = self._where(question.event)
        if question.refusal is not None:
            error = question.refusal
        elif self._links.up() and question.request is not None:
            error = NotLeader(f"the leader of {where} did not answer in time; a retry can help")
        else:
            troubles = self._links.troubles() or "no broker answered"
            error = Disconnected(f"no broker could be reached for {where} ({troubles})")
        self._fail(question, error)
