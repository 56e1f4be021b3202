"""Pages of waiting messages: each is one question to a partition's leader, repeated until it is answered.

The first page of a walk is asked of the present leader, and all others of the broker that keeps the
snapshot. Only that broker has it, and only in that leadership. After that the answer is `SnapshotLost`, and
the caller decides whether to begin again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from dueq.client.core.asking.directory import Directory, Topic
from dueq.client.core.links.calls import Calls
from dueq.client.core.links.context import Context
from dueq.client.core.links.links import Links
from dueq.client.core.links.refusals import FINAL, error_of
from dueq.client.core.ports.events import Browse, EndBrowse
from dueq.client.core.ports.timers import Timer
from dueq.errors import Disconnected, DueqError, InvalidRequest, NotLeader, SnapshotLost
from dueq_codecs.messages import BrokerMessage, BrowseReply, BrowseRequest, Code, Reply

SILENCE_US: Final = 3_000_000
BACK_OFF_US: Final = 100_000


class PageAnswer(NamedTuple):
    """A page as the leader sent it: rows, and their bodies one after the other."""

    reply: BrowseReply
    uid: int
    body: bytes | memoryview


class _Question:
    """A Browse call.

    Attributes:
        request: what is sent, each time with the same id; None while the topic is being looked up.
        link: number of the link that it went by last, 0 while it waits to be sent.
        looked_up: the topic was asked for anew, as it did not seem to have the partition.
        refusal: the last temporary refusal.
    """

    def __init__(self, event: Browse) -> None:
        self.event = event
        self.request: BrowseRequest | None = None
        self.link = 0
        self.looked_up = False
        self.refusal: DueqError | None = None
        self.timer: Timer | None = None


class Browsing:
    """All Browse calls."""

    def __init__(self, context: Context, calls: Calls, links: Links, directory: Directory) -> None:
        self._context, self._calls, self._links, self._directory = context, calls, links, directory
        self._open: dict[int, _Question] = {}  # by call
        self._asked: dict[int, _Question] = {}  # by request id

    def browse(self, event: Browse) -> None:
        """Ask for a page, or a chunk of a long payload."""
        question = self._open[event.call] = _Question(event)
        self._calls.begin(event.call, event.deadline_us, lambda: self._expired(question))
        self._directory.ensure(event.topic, lambda topic: self._found(question, topic))

    def end(self, event: EndBrowse) -> None:
        """Tell the broker to close its snapshot; if that frame is lost, the snapshot expires."""
        link = self._links.route(event.leader)
        if link is not None:
            request = BrowseRequest(self._context.next_request(), event.topic, event.uid, event.snapshot)
            request.close = True
            self._links.send(link, request)

    def abandon(self, call: int) -> None:
        """Nobody waits any more."""
        question = self._open.get(call)
        if question is not None:
            self._close(question)
            self._calls.forget(call)

    def answered(self, message: BrokerMessage, bodies: Sequence[bytes | memoryview] = ()) -> bool:
        """Take an answer; False if it is to nothing here."""
        if not isinstance(message, BrowseReply | Reply):
            return False
        question = self._asked.get(message.request_id)
        if question is None or question.request is None:
            return False
        code = message.code
        if code is Code.OK and isinstance(message, BrowseReply):
            self._close(question)
            answer = PageAnswer(message, question.request.uid, bodies[0] if bodies else b"")
            self._calls.complete(question.event.call, answer)
        elif code is Code.UNKNOWN_SESSION:
            self._fail(question, _lost(question.event, message.text))
        elif code in FINAL:
            self._fail(question, error_of(code, message.text))
        else:
            self._postponed(question, message)
        return True

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

    def _found(self, question: _Question, topic: Topic | DueqError) -> None:
        event = question.event
        if event.call not in self._open or question.request is not None:
            return
        if isinstance(topic, DueqError):
            self._fail(question, topic)
        elif event.partition >= len(topic.uids) and not question.looked_up:
            question.looked_up = True  # the topic may have got more
            self._directory.refresh(event.topic, lambda found: self._found(question, found))
        elif not 0 <= event.partition < len(topic.uids):
            text = f"topic {event.topic!r} has {len(topic.uids)} partitions, not one {event.partition}"
            self._fail(question, InvalidRequest(text))
        else:
            request = question.request = BrowseRequest(
                self._context.next_request(), event.topic, topic.uids[event.partition], event.snapshot,
                event.from_ms, event.until_ms, *event.after, event.limit, event.payloads, event.upload, event.chunk,
            )  # fmt: skip
            self._asked[request.request_id] = question
            self._send(question)

    def _send(self, question: _Question) -> None:
        request, event = question.request, question.event
        assert request is not None
        leader = event.leader or self._directory.leader(event.topic, request.uid)
        link = self._links.route(leader, avoid=question.link) if leader else None
        if link is None:
            question.link = 0
            self._directory.refresh(event.topic)
            self._later(question, BACK_OFF_US * 5)
            return
        question.link = link.number
        self._links.send(link, request)
        self._later(question, SILENCE_US)

    def _later(self, question: _Question, delay_us: int) -> None:
        if question.timer is not None:
            question.timer.cancel()
        question.timer = self._context.after(delay_us, lambda: self._send(question))

    def _postponed(self, question: _Question, message: BrowseReply | Reply) -> None:
        code, event = message.code, question.event
        question.link = 0
        question.refusal = error_of(code, message.text, message.retry_after_ms)
        if code is Code.NOT_LEADER:
            # With a snapshot too: its keeper may still lead. The present leader knows whether it has the
            # snapshot.
            assert question.request is not None
            hint = message.leader if isinstance(message, BrowseReply) else ""
            self._directory.hint(question.request.uid, hint)
            self._directory.refresh(event.topic)
        elif code is Code.TOPIC_NOT_FOUND:
            self._directory.refresh(event.topic, lambda topic: self._verified(question, topic))
        self._later(question, self._context.jittered(max(BACK_OFF_US, message.retry_after_ms * 1000)))

    def _verified(self, question: _Question, topic: Topic | DueqError) -> None:
        """A broker did not know the partition: is it really gone?"""
        if question.event.call not in self._open or question.request is None:
            return
        if isinstance(topic, DueqError):
            self._fail(question, topic)
        elif question.request.uid not in topic.partitions:
            self._fail(question, _lost(question.event, "the topic was made anew"))

    # -------------------------------------------------------------- ends

    def _close(self, question: _Question) -> None:
        if question.timer is not None:
            question.timer.cancel()
        self._open.pop(question.event.call, None)
        if question.request is not None:
            self._asked.pop(question.request.request_id, None)

    def _fail(self, question: _Question, error: DueqError) -> None:
        self._close(question)
        self._calls.fail(question.event.call, error)

    def _expired(self, question: _Question) -> None:
        where = f"partition {question.event.partition} of {question.event.topic!r}"
        if question.refusal is not None:
            error = question.refusal
        elif self._links.up() and question.request is not None:
            error = NotLeader(f"the leader of {where} did not answer in time; a retry can help")
        else:
            troubles = self._links.troubles() or "no broker answered"
            error = Disconnected(f"no broker could be reached for {where} ({troubles})")
        self._fail(question, error)


def _lost(event: Browse, why: str) -> SnapshotLost:
    return SnapshotLost(
        f"the snapshot of partition {event.partition} of {event.topic!r} is lost ({why}): "
        "what was read of it is right, the rest would be of another instant; browse again"
    )
