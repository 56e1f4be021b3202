"""Pages of waiting messages: each is one question to a partition's leader, repeated until it is answered.

The first page of a walk is asked of the present leader, and all others of the broker that keeps the
snapshot. Only that broker has it, and only in that leadership. After that the answer is `SnapshotLost`, and
the caller decides whether to begin again.
"""

from __future__ import annotations

from typing import NamedTuple

from dueq.client.core.asking.directory import Topic
from dueq.client.core.asking.leader_questions import Answer, LeaderQuestions, Question
from dueq.client.core.ports.events import Browse, EndBrowse
from dueq.client.core.ports.faults import fault_of_page
from dueq.errors import DueqError, InvalidRequest, SnapshotLost
from dueq_codecs.messages import BrowseReply, BrowseRequest


class PageAnswer(NamedTuple):
    """A page as the leader sent it: rows, and their bodies one after the other."""

    reply: BrowseReply
    uid: int
    body: bytes | memoryview


class Browsing(LeaderQuestions[Browse]):
    """All Browse calls."""

    def end(self, event: EndBrowse) -> None:
        """Tell the broker to close its snapshot; if that frame is lost, the snapshot expires."""
        link = self._links.route(event.leader)
        if link is not None:
            request = BrowseRequest(self._context.next_request(), event.topic, event.uid, event.snapshot)
            request.close = True
            self._links.send(link, request)

    def _request(self, event: Browse, topic: Topic) -> BrowseRequest | DueqError:
        if not 0 <= event.partition < len(topic.uids):
            return InvalidRequest(
                f"topic {event.topic!r} has {len(topic.uids)} partitions, not one {event.partition}"
            )
        return BrowseRequest(
            self._context.next_request(), event.topic, topic.uids[event.partition], event.snapshot,
            event.from_ms, event.until_ms, *event.after, event.limit, event.payloads, event.upload, event.chunk,
            dead=event.dead, after_of=event.after_of,
        )  # fmt: skip

    def _keeper(self, event: Browse) -> str:
        return event.leader

    def _where(self, event: Browse) -> str:
        return f"partition {event.partition} of {event.topic!r}"

    def _gone(self, event: Browse, why: str) -> DueqError:
        return SnapshotLost(
            f"the snapshot of partition {event.partition} of {event.topic!r} is lost ({why}): "
            "what was read of it is right, the rest would be of another instant; browse again"
        )

    def _fault(self, question: Question[Browse], message: Answer, body: bytes | memoryview) -> str | None:
        assert isinstance(message, BrowseReply)
        assert isinstance(question.request, BrowseRequest)
        return fault_of_page(question.request, message, body)

    def _take(self, question: Question[Browse], message: Answer, body: bytes | memoryview) -> None:
        assert isinstance(message, BrowseReply)
        assert question.request is not None
        self._calls.complete(question.event.call, PageAnswer(message, question.request.uid, body))
