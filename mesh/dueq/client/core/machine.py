"""The session machine of a client: everything that the SDK decides, without sockets, threads or clocks.

    event (what happened)                         effect (what to do)
    LinkReady, LinkLost, FrameReceived            OpenLink, CloseLink, Send
    Connect, FetchTopics, CreateTopic, …          Completed, Failed
    Browse, EndBrowse, Look
    Insert, Alter, ActOnJob, ActOnRecurrence
    Repeat, Abandon
    OpenConsumer, Settle, Pull, GiveBack, Close…  Deliver, Reclaim, LeaseLost, ConsumerFailed
    Close                                         Log

The path of a `schedule`: the face checks its arguments and sends `Insert`. The directory knows the topic
(or asks any broker first), `Changing` cuts the rows into parts of one partition each, the partition's window puts
a part alone or together with others into a numbered request and sends it to the leader. The answer completes
the call; a silence, a lost link or a temporary refusal repeats the same request until the deadline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dueq.client.core.asking.any_broker import AnyBrokerRequests
from dueq.client.core.asking.browsing import Browsing
from dueq.client.core.asking.directory import Directory, Topic
from dueq.client.core.asking.inspecting import Inspecting
from dueq.client.core.asking.looking import Looking
from dueq.client.core.asking.topics import Topics
from dueq.client.core.changing.changing import Changing
from dueq.client.core.changing.request_windows import RequestWindows
from dueq.client.core.changing.settlements import Settlements
from dueq.client.core.changing.uploads import Uploads
from dueq.client.core.consuming.consumer import Consumer
from dueq.client.core.consuming.pulling import Pulling
from dueq.client.core.consuming.settling import joined_acks
from dueq.client.core.links.calls import Calls
from dueq.client.core.links.context import Context, RandomSource
from dueq.client.core.links.links import Link, Links
from dueq.client.core.ports import events as happened
from dueq.client.core.ports.clock import MeshClock
from dueq.client.core.ports.effects import Effect
from dueq.client.core.ports.faults import fault_of_chunk, fault_of_push
from dueq.errors import ClientClosed, DueqError
from dueq.instant import Now
from dueq_codecs.messages import BrowseReply, ConsumerReply, HelloReply, LookReply, Push, PushChunk


class ClientCore:
    """One client's session with the mesh.

    Not thread-safe: one thread (or the simulator) steps it.

    Args:
        client_id: 16 bytes, drawn anew for each process.
        endpoints: where to begin; more brokers are learned.
        random: a number in [0, 1) per call; used for jitter only.
        steady: no link falls silent, and leaders stay, as inside a test: so neither is looked after.
    """

    def __init__(
        self, client_id: bytes, endpoints: Sequence[str], random: RandomSource, *, steady: bool = False
    ) -> None:
        context = self._context = Context(client_id, random, steady=steady)
        self._links = Links(context, endpoints, self._link_up, self._greeted, self._link_down)
        self._any_broker = AnyBrokerRequests(context, self._links)
        self._calls = Calls(context)
        self._directory = Directory(
            context, self._links, self._any_broker, self._topic_changed, self._topic_gone
        )
        self._uploads = Uploads(context, self._links, self._directory)
        self._windows = RequestWindows(context, self._links, self._directory, self._uploads)
        settlements = Settlements(context)
        self._changing = Changing(
            context, self._calls, self._links, self._directory, self._windows, settlements
        )
        self._topics = Topics(context, self._calls, self._links, self._any_broker, self._directory)
        self._inspecting = Inspecting(context, self._calls, self._links, self._topics)
        self._browsing = Browsing(context, self._calls, self._links, self._directory)
        self._looking = Looking(context, self._calls, self._links, self._directory)
        self._pulling = Pulling(
            context, self._calls, self._links, self._directory, self._windows, settlements
        )
        self._consumers: dict[bytes, Consumer] = {}
        self._opening: dict[bytes, int] = {}
        """Consumers whose topic is being asked for, and the call that waits for each."""
        self._closed = False
        self._handlers: dict[type[Any], Callable[[Any], None]] = {
            happened.FrameReceived: self._on_frame,
            happened.LinkReady: lambda event: self._links.ready(event.link),
            happened.LinkLost: lambda event: self._links.lost(event.link, event.reason),
            happened.Insert: self._changing.insert,
            happened.Alter: self._changing.alter,
            happened.ActOnJob: self._changing.act_on_job,
            happened.SetGroup: self._changing.set_group,
            happened.ActOnRecurrence: self._changing.act_on_recurrence,
            happened.Repeat: self._changing.repeat,
            happened.Abandon: self._on_abandon,
            happened.Settle: self._on_settle,
            happened.Pull: self._pulling.pull,
            happened.GiveBack: self._pulling.give_back,
            happened.OpenConsumer: self._on_open_consumer,
            happened.CloseConsumer: self._on_close_consumer,
            happened.Connect: self._topics.connect,
            happened.FetchTopics: self._topics.fetch,
            happened.CreateTopic: self._topics.create,
            happened.UpdateTopic: self._topics.update,
            happened.AwaitSettings: self._changing.await_settings,
            happened.ActOnPass: self._changing.act_on_pass,
            happened.KeepBody: self._changing.keep_body,
            happened.DeleteTopic: self._topics.delete,
            happened.Inspect: self._inspecting.inspect,
            happened.Browse: self._browsing.ask,
            happened.Look: self._looking.ask,
            happened.EndBrowse: self._browsing.end,
            happened.Close: self._on_close,
        }

    @property
    def clock(self) -> MeshClock:
        """Mesh time, as far as it is known."""
        return self._context.clock

    @property
    def next_deadline_us(self) -> int | None:
        """When to step again though nothing has happened (monotonic µs), or None."""
        return self._context.timers.next_us()

    def step(self, events: Iterable[happened.Event], now: Now) -> list[Effect]:
        """Take in what has happened, in order, then do what is due; return the orders, in order."""
        context = self._context
        context.now, context.effects = now, []
        if not self._closed:
            self._links.start()
        for event in joined_acks(events):
            self._handlers[type(event)](event)
        context.timers.run(now.mono_us)
        return context.effects

    # -------------------------------------------------------------- frames

    def _on_frame(self, event: happened.FrameReceived) -> None:
        link = self._links.heard(event.link)
        if link is None:
            return
        message = event.message
        if isinstance(message, HelloReply):
            self._links.hello_received(link, message)
        elif isinstance(message, ConsumerReply):
            self._on_consumer_reply(message, link)
        elif isinstance(message, Push | PushChunk):
            self._on_push(message, event.bodies[0] if event.bodies else b"", link)
        elif isinstance(message, BrowseReply):
            self._browsing.answered(message, event.bodies)
        elif isinstance(message, LookReply):
            self._looking.answered(message, event.bodies)
        else:
            # Each part looks for its own request number; an answer that nobody waits for is dropped.
            parts = (
                self._windows,
                self._uploads,
                self._any_broker,
                self._inspecting,
                self._browsing,
                self._looking,
            )
            for part in parts:
                if part.answered(message):
                    break

    def _on_consumer_reply(self, reply: ConsumerReply, link: Link) -> None:
        if self._pulling.knows(reply.consumer_id):
            self._pulling.replied(reply, link)
            return
        consumer = self._consumers.get(reply.consumer_id)
        if consumer is not None and not consumer.closed:
            consumer.replied(reply, link)

    def _on_push(self, push: Push | PushChunk, body: bytes | memoryview, link: Link) -> None:
        taker: Pulling | Consumer = self._pulling
        if not self._pulling.is_open(push.consumer_id):
            consumer = self._consumers.get(push.consumer_id)
            if consumer is None or consumer.closed:
                return
            taker = consumer
        if isinstance(push, PushChunk):
            fault = fault_of_chunk(push, body)
            if fault is None:
                taker.chunk_pushed(push, body)
        else:
            fault = fault_of_push(push, body)
            if fault is None:
                taker.pushed(push, body, link)
        if fault is not None:
            self._context.refuse(push, fault)

    def _greeted(self) -> None:
        self._topics.greeted()

    def _link_up(self) -> None:
        self._any_broker.link_up()
        self._windows.link_up()
        self._uploads.link_up()
        self._browsing.link_up()
        self._looking.link_up()
        for consumer in self._consumers.values():
            consumer.link_up()

    def _link_down(self, number: int) -> None:
        self._any_broker.link_down(number)
        self._windows.link_down(number)
        self._uploads.link_down(number)
        self._browsing.link_down(number)
        self._pulling.link_down(number)
        self._looking.link_down(number)
        for consumer in self._consumers.values():
            consumer.link_down(number)

    def _topic_changed(self, topic: Topic) -> None:
        self._windows.topic_changed(topic)
        self._pulling.topic_changed(topic)
        for consumer in self._consumers.values():
            if consumer.topic == topic.info.name and not consumer.closed:
                consumer.topic_changed(topic)

    def _topic_gone(self, name: str, error: DueqError) -> None:
        self._windows.topic_gone(name, error)
        self._pulling.topic_gone(name, error)
        for consumer in self._consumers.values():
            if consumer.topic == name:
                consumer.gone(error)

    def _on_abandon(self, event: happened.Abandon) -> None:
        self._changing.abandon(event.call)
        self._browsing.abandon(event.call)
        self._pulling.abandon(event.call)
        self._looking.abandon(event.call)
        for consumer_id, call in self._opening.items():
            if call == event.call:
                del self._opening[consumer_id]
                self._calls.forget(call)
                return

    # -------------------------------------------------------------- consumers

    def _on_open_consumer(self, event: happened.OpenConsumer) -> None:
        consumer = Consumer(self._context, self._calls, self._links, self._directory, self._windows, event)

        def found(topic: Topic | DueqError) -> None:
            if not self._calls.is_open(event.call):
                return
            self._opening.pop(event.consumer_id, None)
            if isinstance(topic, DueqError):
                self._calls.fail(event.call, topic)
                return
            self._consumers = {k: c for k, c in self._consumers.items() if not c.closed}
            self._consumers[event.consumer_id] = consumer
            self._calls.complete(event.call)
            consumer.topic_changed(topic)

        def expired() -> None:
            self._opening.pop(event.consumer_id, None)
            self._calls.fail(event.call, self._topics.cut_off())

        self._calls.begin(event.call, event.deadline_us, expired)
        self._opening[event.consumer_id] = event.call
        self._directory.ensure(event.topic, found, lambda: self._calls.is_open(event.call))

    def _on_settle(self, event: happened.Settle) -> None:
        consumer = self._consumers.get(event.consumer_id)
        if consumer is not None and not consumer.closed:
            consumer.settle(event)
        elif event.call:
            self._calls.begin(event.call, event.deadline_us, lambda: None)
            self._calls.fail(event.call, ClientClosed("the consumer is closed: its leases were given back"))

    def _on_close_consumer(self, event: happened.CloseConsumer) -> None:
        opening = self._opening.pop(event.consumer_id, None)
        if opening is not None:
            self._calls.fail(opening, ClientClosed("the consumer was closed before it was open"))
        consumer = self._consumers.get(event.consumer_id)
        if consumer is not None and not consumer.closed:
            consumer.close(event)
        else:
            self._calls.begin(event.call, event.deadline_us, lambda: None)
            self._calls.complete(event.call)

    def _on_close(self, event: happened.Close) -> None:
        self._closed = True
        self._calls.close()
        self._consumers.clear()
        self._links.close()
