"""Looks at single messages: each is one question to the leader of its partition."""

from __future__ import annotations

from typing import NamedTuple

from dueq.client.core.asking.directory import Topic
from dueq.client.core.asking.keyed import home_of_key, home_of_once
from dueq.client.core.asking.leader_questions import Answer, LeaderQuestions, Question
from dueq.client.core.ports.events import Look
from dueq.client.core.ports.faults import fault_of_look
from dueq.errors import DueqError, InvalidRequest, TopicNotFound
from dueq_codecs.messages import LookReply, LookRequest


class LookAnswer(NamedTuple):
    """What the leader says: a document, and the bytes beside it."""

    document: str
    body: bytes | memoryview


class Looking(LeaderQuestions[Look]):
    """All Look calls."""

    def _request(self, event: Look, topic: Topic) -> LookRequest | DueqError:
        if event.once:
            event.uid, digest = home_of_once(event.once, event.key, event.group, topic)
            event.document = f'{{"key":"{digest}"}}'
        elif event.key:
            try:
                event.uid, digest = home_of_key(event.key, event.group, topic)
            except InvalidRequest as refused:
                return refused
            event.document = f'{{"key":"{digest}"}}'
        if event.uid not in topic.partitions:
            return InvalidRequest(
                f"the message is of partition {event.uid}, which is not one of topic {event.topic!r}"
            )
        return LookRequest(
            self._context.next_request(), event.topic, event.uid, event.what, event.first, event.sequence, event.row,
            event.current, event.payload, event.upload, event.chunk, event.document,
        )  # fmt: skip

    def _where(self, event: Look) -> str:
        return f"partition {event.uid} of {event.topic!r}"

    def _gone(self, event: Look, why: str) -> DueqError:
        return TopicNotFound(f"{self._where(event)} is gone: {why}")

    def _fault(self, question: Question[Look], message: Answer, body: bytes | memoryview) -> str | None:
        assert isinstance(message, LookReply)
        assert isinstance(question.request, LookRequest)
        return fault_of_look(question.request, message, body)

    def _take(self, question: Question[Look], message: Answer, body: bytes | memoryview) -> None:
        assert isinstance(message, LookReply)
        self._calls.complete(question.event.call, LookAnswer(message.document, body))
