"""Looks up, creates, changes and deletes topics: questions to any broker, repeated until one answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NamedTuple

from dueq import limits
from dueq.client.core.asking.any_broker import SILENCE_US, Answer, AnyBrokerRequest, AnyBrokerRequests
from dueq.client.core.asking.directory import Directory
from dueq.client.core.links.calls import Calls
from dueq.client.core.links.context import Context
from dueq.client.core.links.links import Links
from dueq.client.core.links.refusals import FINAL, error_of
from dueq.client.core.ports.events import Connect, CreateTopic, DeleteTopic, FetchTopics, UpdateTopic
from dueq.errors import Disconnected, DueqError, OutcomeUnknown, TopicNotFound, Unavailable
from dueq_codecs.documents import decode_document
from dueq_codecs.messages import (
    ClientMessage,
    Code,
    CreateTopicRequest,
    DeleteTopicRequest,
    MetadataReply,
    MetadataRequest,
    Reply,
    TopicInfo,
    UpdateTopicRequest,
)

REPLICAS: Final = 3
COORDINATE_SILENCE_US: Final = 4_000_000
"""A topic is created in ZooKeeper: ask again after this time without an answer."""
VERSION_MAX: Final = (1 << 63) - 1
NO_UID: Final = (1 << 32) - 1
"""What no partition has as its uid."""
POLL_US: Final = 50_000
BACK_OFF_US: Final = 200_000


class Tools(NamedTuple):
    """The tools of a call to any broker."""

    context: Context
    calls: Calls
    links: Links
    any_broker: AnyBrokerRequests

    def cut_off(self) -> DueqError:
        """Why nothing came back in time."""
        if self.links.up():
            return Disconnected("no broker answered in time; a retry can help")
        return Disconnected(f"no broker could be reached in time ({self.links.troubles()})")


class Question:
    """A call that is one question (or several, one after the other) to any broker.

    Attributes:
        call: its number.
        request: what is under way.
        refused: how many attempts were temporarily refused; `refusal` is the last.
        done: it has taken effect; what is asked since is something else.
        answers: to attempts at the present request.
    """

    def __init__(self, tools: Tools, call: int, deadline_us: int, effect: str = "") -> None:
        self._context, self._calls, self._links, self._any_broker = tools
        self._cut_off = tools.cut_off
        self._effect = effect
        self._doubt = "no answer in time"
        self.call = call
        self.request: AnyBrokerRequest | None = None
        self.refused = self.answers = 0
        self.refusal: DueqError | None = None
        self.done = False
        self._calls.begin(call, deadline_us, self._expired)

    def put(
        self,
        build: Callable[[int], ClientMessage],
        answered: Callable[[Answer], None],
        silence_us: int = SILENCE_US,
    ) -> None:
        """Ask; refusals, temporary or final, never reach `answered`."""
        calls = self._calls

        def first(request: AnyBrokerRequest, answer: Answer) -> None:
            retry_us = answer.retry_after_ms * 1000 if isinstance(answer, Reply) else 0
            if answer.code is Code.OUTCOME_UNKNOWN:
                # As good as no answer: what was asked for may have happened, or may still.
                self._doubt = answer.text or self._doubt
                self.again(max(self._context.jittered(BACK_OFF_US), retry_us))
                return
            self.answers += 1
            if answer.code in FINAL:
                silent = request.attempts > self.answers
                calls.fail(self.call, self._refused(answer, silent=silent))
            elif answer.code in (Code.OK, Code.TOPIC_NOT_FOUND):
                answered(answer)
            else:
                self.refused += 1
                self.refusal = error_of(answer.code, answer.text, retry_us // 1000)
                self.again(max(self._context.jittered(BACK_OFF_US), retry_us))

        self.refused = self.answers = 0  # those were of attempts at what was asked before
        self.request = self._any_broker.ask(build, first, silence_us, lambda: calls.is_open(self.call))

    def again(self, delay_us: int) -> None:
        """Ask once more after a while."""
        assert self.request is not None
        self.request.again(delay_us)

    @property
    def all_asked(self) -> bool:
        """One attempt for each broker that can be asked."""
        return self.request is not None and self.request.attempts >= len(self._links.up())

    def not_found(self, answer: Answer) -> None:
        """This broker does not know the topic; another one may."""
        if self.all_asked:
            self._calls.fail(self.call, error_of(answer.code, answer.text))
        else:
            self.again(0)

    def _refused(self, answer: Answer, *, silent: bool) -> DueqError:
        """A final refusal; `silent`: an earlier attempt got no answer, and may have taken effect.

        But a topic that exists, and is not that of this call, was there before.
        """
        error = error_of(answer.code, answer.text)
        if not self._effect or answer.code is Code.TOPIC_EXISTS or not (silent or self.done):
            return error
        unknown = OutcomeUnknown(f"{self._effect}; an attempt that came later was refused: {error}")
        unknown.__cause__ = error
        return unknown

    def _expired(self) -> None:
        attempts = self.request.attempts if self.request is not None else 0
        if self._effect and (self.done or attempts > self.refused):
            text = f"{self._doubt}: {self._effect}; retry() repeats the same request safely"
            self._calls.fail(self.call, OutcomeUnknown(text))
        else:
            self._calls.fail(self.call, self.refusal or self._cut_off())


class Topics:
    """Connect, FetchTopics, CreateTopic, UpdateTopic and DeleteTopic."""

    def __init__(
        self,
        context: Context,
        calls: Calls,
        links: Links,
        any_broker: AnyBrokerRequests,
        directory: Directory,
    ) -> None:
        self._tools = Tools(context, calls, links, any_broker)
        self._calls, self._links, self._clock = calls, links, context.clock
        self._directory = directory
        self._connecting: list[Connect] = []

    def connect(self, event: Connect) -> None:
        """Wait for any broker, or for one that knows the mesh's time."""
        self._calls.begin(event.call, event.deadline_us, lambda: self._not_connected(event))
        self._connecting.append(event)
        self.greeted()

    def greeted(self) -> None:
        """Some broker may have answered, or measured the clocks."""
        if not self._connecting or not self._links.up():
            return
        known = self._clock.best is not None
        waiting, self._connecting = self._connecting, []
        for event in waiting:
            if event.measured and not known:
                self._connecting.append(event)
            else:
                self._calls.complete(event.call)

    def _not_connected(self, event: Connect) -> None:
        self._connecting.remove(event)
        error = self.cut_off()
        if self._links.up():
            error = Unavailable("no broker within reach knows the mesh's time yet; a retry can help")
        self._calls.fail(event.call, error)

    def cut_off(self) -> DueqError:
        """Why nothing came back in time."""
        return self._tools.cut_off()

    def question(self, call: int, deadline_us: int, effect: str = "") -> Question:
        """Begin a call that is a question to any broker; `effect`: what may have happened if none answers."""
        return Question(self._tools, call, deadline_us, effect)

    def fetch(self, event: FetchTopics) -> None:
        """Look up one topic, or all of them page by page."""
        question = self.question(event.call, event.deadline_us)
        known: list[TopicInfo] = []

        def ask() -> None:
            after = known[-1].name if known else ""
            question.put(lambda request: MetadataRequest(request, event.topic, after=after), answered)

        def answered(answer: Answer) -> None:
            if not isinstance(answer, MetadataReply) or answer.code is not Code.OK:
                question.not_found(answer)
                return
            if answer.more and known and answer.topics and answer.topics[-1].name <= known[-1].name:
                self._tools.context.refuse(answer, f"it does not go on after topic {known[-1].name!r:.80}")
                question.again(BACK_OFF_US)
                return
            self._links.learned(answer.brokers)
            known.extend(answer.topics)
            if answer.more and answer.topics:
                ask()
            else:
                self._calls.complete(event.call, replace(answer, topics=tuple(known), more=False))

        ask()

    def create(self, event: CreateTopic) -> None:
        """Create, then wait until every partition is serving."""
        effect = f"topic {event.topic!r} may or may not have been created, or is not serving yet"
        question = self.question(event.call, event.deadline_us, effect)
        if event.replicas:
            self._create(question, event, event.replicas)
            return

        def counted(answer: Answer) -> None:
            if isinstance(answer, MetadataReply) and answer.brokers:
                self._links.learned(answer.brokers)
                self._create(question, event, min(REPLICAS, len(answer.brokers)))
            else:
                question.again(BACK_OFF_US)

        question.put(lambda request: MetadataRequest(request, brokers_only=True), counted)

    def _create(self, question: Question, event: CreateTopic, replicas: int) -> None:
        def build(request: int) -> CreateTopicRequest:
            return CreateTopicRequest(
                request, event.creation_id, event.topic, event.kind, event.partitions, replicas,
                event.min_isr, event.payload_bytes_max, event.horizon_ms, event.exist_ok, event.document,
            )  # fmt: skip

        def answered(answer: Answer) -> None:
            if (
                answer.code is Code.TOPIC_NOT_FOUND
            ):  # an earlier attempt has made it, and somebody has deleted it
                self._calls.fail(event.call, error_of(answer.code, answer.text))
                return
            self._directory.made(event.topic, _partitions_of(answer))
            question.done = True
            self._await_serving(question, event.topic)

        question.put(build, answered, COORDINATE_SILENCE_US)

    def _await_serving(self, question: Question, name: str) -> None:
        def answered(answer: Answer) -> None:
            if isinstance(answer, MetadataReply) and answer.code is Code.OK:
                self._links.learned(answer.brokers)
                found = [topic for topic in answer.topics if topic.name == name and topic.partitions]
                if (
                    found
                    and not self.is_past(answer)
                    and all(partition.serving for partition in found[0].partitions)
                ):
                    self._calls.complete(question.call)
                    return
            question.again(POLL_US)

        question.put(lambda request: MetadataRequest(request, name), answered)

    def is_past(self, answer: MetadataReply) -> bool:
        """Whether a broker has not heard yet that a topic was created again."""
        return any(self._directory.is_past(topic) for topic in answer.topics)

    def update(self, event: UpdateTopic) -> None:
        """Store a change, on top of the version that the topic has by then, or only of the one that is named.

        It is a change of the topic that the client knows by this name, or of the one that the first answer names. If
        another one has the name after a silence, nobody can say whether the change was stored before.
        """
        effect = f"the change of topic {event.topic!r} may or may not have been stored"
        question = self.question(event.call, event.deadline_us, effect)
        update, version = event.update_id.hex(), event.if_version or 0
        named, repeats, silent_before = event.named, bool(event.named), 0
        known = self._directory.get(event.topic)
        if known is not None and not named:
            named[:] = known.uids[:1]

        def build(request: int) -> UpdateTopicRequest:
            uid = named[0] if named else NO_UID
            return UpdateTopicRequest(
                request, event.update_id, event.topic, version, event.document, event.partitions, uid
            )

        def answered(answer: Answer) -> None:
            nonlocal version, silent_before
            assert question.request is not None
            if answer.code is Code.TOPIC_NOT_FOUND:
                question.refused += 1
                question.not_found(answer)
                return
            standing = _standing(answer)
            if standing is None:
                question.again(BACK_OFF_US)
                return
            if standing["update"] == update:
                self._directory.refresh(event.topic)
                self._calls.complete(event.call, standing)
                return
            question.refused += 1
            silent = question.request.attempts - question.refused
            there = standing["partitions"][:1]
            if named and there < named:
                question.again(BACK_OFF_US)  # the broker has not heard of the topic that is meant
            elif there != named:
                if named and (repeats or silent != silent_before):
                    self._directory.forget(event.topic)
                    text = f"topic {event.topic!r} was deleted, and another one has its name since"
                    self._calls.fail(event.call, TopicNotFound(text))
                    return
                named[:], silent_before = there, silent
                version = standing["version"] if event.if_version is None else event.if_version
                question.again(0)
            elif standing["version"] == version:
                question.again(BACK_OFF_US)  # it had not heard of that version
            elif event.if_version is not None:
                self._directory.refresh(event.topic)
                self._calls.complete(event.call, standing)
            else:
                version = standing["version"]
                question.again(0)

        question.put(build, answered, COORDINATE_SILENCE_US)

    def delete(self, event: DeleteTopic) -> None:
        """Delete the topic that has the name when the first broker answers, and no other.

        The first request means no topic, and the answer says which one there is. Then a request repeated after a
        silence, which does not find that one, has done it.
        """
        effect = f"topic {event.topic!r} may or may not have been deleted"
        question = self.question(event.call, event.deadline_us, effect)
        named, repeats, silent_before = event.named, bool(event.named), 0

        def build(request: int) -> DeleteTopicRequest:
            return DeleteTopicRequest(request, event.topic, named[0] if named else NO_UID)

        def answered(answer: Answer) -> None:
            nonlocal silent_before
            assert question.request is not None
            if answer.code is Code.TOPIC_NOT_FOUND:
                question.refused += 1
                silent = question.request.attempts - question.refused
                uids = _partitions_of(answer)
                if not uids and not silent and not repeats:
                    self._calls.fail(event.call, error_of(answer.code, answer.text))
                    return
                if uids and named and uids[0] < named[0]:
                    question.again(BACK_OFF_US)  # it has not heard of the topic that is meant
                    return
                if uids and (not named or (silent == silent_before and not repeats)):
                    named[:], silent_before = uids[:1], silent
                    question.again(0)
                    return
            self._directory.forget(event.topic)
            self._calls.complete(event.call)

        question.put(build, answered, COORDINATE_SILENCE_US)


def _standing(answer: Answer) -> dict[str, Any] | None:
    """How a topic stands by the answer to its change; None: that cannot be read."""
    try:
        found = decode_document(answer.document) if isinstance(answer, Reply) else {}
    except ValueError:
        return None
    version = found.get("version")
    if type(version) is not int or not 0 <= version <= VERSION_MAX:
        return None
    whole = _are_uids(found.get("partitions"))
    return found if whole and isinstance(found.get("update"), str) else None


def _partitions_of(answer: Answer) -> list[int]:
    """The uids in the answer to a creation; empty if it names none, or cannot be read."""
    try:
        uids = json.loads(answer.document) if isinstance(answer, Reply) else []
    except (ValueError, RecursionError):
        return []
    return uids if _are_uids(uids) else []


def _are_uids(found: object) -> bool:
    """Whether this is a list of what partitions may have as their uids."""
    return isinstance(found, list) and all(type(uid) is int and 0 <= uid <= limits.UID_MAX for uid in found)
