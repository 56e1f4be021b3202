"""One reading question to every broker; no answer is waited for long."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from dueq.client.core.asking.any_broker import Answer
from dueq.client.core.asking.topics import POLL_US, Topics
from dueq.client.core.links.calls import Calls
from dueq.client.core.links.context import Context
from dueq.client.core.links.links import Links
from dueq.client.core.ports.events import Inspect
from dueq_codecs.messages import BrokerMessage, Code, InspectRequest, MetadataReply, MetadataRequest, Reply

PATIENCE_US: Final = 2_000_000


@dataclass(slots=True)
class Inspection:
    """The brokers' answers to an Inspect call.

    Attributes:
        metadata: brokers, and the topic if one was named, as one broker knows them.
        endpoints: of every broker registered or connected, by id.
        documents: JSON by broker id; a missing broker did not answer in time.
    """

    metadata: MetadataReply
    endpoints: dict[str, str] = field(default_factory=dict)
    documents: dict[str, str] = field(default_factory=dict)


class _FanOut:
    """One Inspect call.

    Attributes:
        missing: the brokers that have not answered: request ids by broker, 0 if not sent.
        impatient: the time is over without any answer: after the first one, the others get a while.
    """

    def __init__(self, event: Inspect, found: Inspection) -> None:
        self.event = event
        self.found = found
        self.impatient = False
        self.missing = dict.fromkeys(found.endpoints, 0)


class Inspecting:
    """All Inspect calls."""

    def __init__(self, context: Context, calls: Calls, links: Links, topics: Topics) -> None:
        self._context, self._calls, self._links, self._topics = context, calls, links, topics
        self._open: dict[int, _FanOut] = {}
        self._asked: dict[int, tuple[_FanOut, str]] = {}

    def inspect(self, event: Inspect) -> None:
        """Find out who is there, then ask each."""
        question = self._topics.question(event.call, event.deadline_us)

        def found(answer: Answer) -> None:
            if not isinstance(answer, MetadataReply) or answer.code is not Code.OK:
                question.not_found(answer)
                return
            if self._topics.is_past(answer):
                question.again(POLL_US)
                return
            self._links.learned(answer.brokers)
            endpoints = {broker.broker_id: broker.endpoint for broker in answer.brokers}
            endpoints |= {
                name: link.endpoint for name, link in self._links.up().items() if name not in endpoints
            }
            fan_out = self._open[event.call] = _FanOut(event, Inspection(answer, endpoints))
            margin_us = (event.deadline_us - self._context.mono_us) * 3 // 4
            self._context.after(max(margin_us, 0), lambda: self._finish(fan_out))
            self._context.after(min(PATIENCE_US, max(margin_us, 0)), lambda: self._enough(fan_out))
            self._ask(fan_out)

        # Of all topics, metadata would be as long as what is asked for.
        brokers_only = not event.topic
        question.put(lambda request: MetadataRequest(request, event.topic, brokers_only), found)

    def answered(self, message: BrokerMessage) -> bool:
        """Take an answer; False if it is to nothing here."""
        if not isinstance(message, Reply) or message.request_id not in self._asked:
            return False
        fan_out, broker_id = self._asked.pop(message.request_id)
        if message.code is Code.OK:
            fan_out.found.documents[broker_id] = message.document
        fan_out.missing.pop(broker_id, None)
        if not fan_out.missing:
            self._finish(fan_out)
        elif fan_out.impatient:
            fan_out.impatient = False
            self._context.after(PATIENCE_US, lambda: self._finish(fan_out))
        return True

    def _ask(self, fan_out: _FanOut) -> None:
        """Ask each broker, through another one where there is no link to it."""
        event = fan_out.event
        for broker_id in fan_out.missing:
            link = self._links.route(broker_id)
            if link is not None:
                fan_out.missing[broker_id] = request = self._context.next_request()
                self._asked[request] = (fan_out, broker_id)
                question = InspectRequest(request, event.what, event.topic, event.seconds, broker_id)
                self._links.send(link, question)

    def _enough(self, fan_out: _FanOut) -> None:
        """Leave out brokers that have not answered by now, unless none has: then all answers may be long."""
        if fan_out.found.documents:
            self._finish(fan_out)
        else:
            fan_out.impatient = True

    def _finish(self, fan_out: _FanOut) -> None:
        if self._open.pop(fan_out.event.call, None) is None:
            return
        for request in fan_out.missing.values():
            self._asked.pop(request, None)
        if fan_out.found.documents:
            self._calls.complete(fan_out.event.call, fan_out.found)
        else:
            self._calls.fail(fan_out.event.call, self._topics.cut_off())
