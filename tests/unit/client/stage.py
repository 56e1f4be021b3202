"""A session machine on a stage: literal instants, brokers played by the test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar
from zlib import crc32

import numpy as np

from dueq.client.core import ClientCore
from dueq.client.core.ports import events
from dueq.client.core.ports.delivery import Delivery
from dueq.client.core.ports.effects import Deliver, Effect, OpenLink, Send
from dueq.instant import Now
from dueq_codecs.messages import (
    BrokerInfo,
    BrokerMessage,
    ChangeReply,
    ChangeRequest,
    Code,
    ConsumerFrame,
    ConsumerReply,
    Hello,
    HelloReply,
    MetadataReply,
    MetadataRequest,
    PartitionInfo,
    Push,
    TopicInfo,
)
from dueq_codecs.pushes import push_rows
from dueq_codecs.records import RecordKind

T = TypeVar("T")
M = TypeVar("M")

MONO = 10_000_000
WALL = 1_700_000_000_000_000
CONSUMER = b"c" * 16
TOPIC = "departures"


class Half:
    """Chance that is always one half."""

    def random(self) -> float:
        return 0.5


def endpoint(broker: str) -> str:
    return f"tcp://{broker}:7400"


class Stage:
    """One client, time in ms since the start, and what it has ordered."""

    def __init__(
        self, brokers: Sequence[str] = ("a",), uids: dict[int, str] | None = None, settings: str = ""
    ) -> None:
        self.core = ClientCore(b"i" * 16, [endpoint(broker) for broker in brokers], Half())
        self.brokers = list(brokers)
        self.leaders = uids if uids is not None else {1: brokers[0]}
        self.epoch, self.settings = 1, settings
        self.home_partitions = 0
        self.ms = 0.0
        self.effects: list[Effect] = []
        self.links: dict[str, int] = {}
        self.answered: set[int] = set()

    @property
    def now(self) -> Now:
        us = int(self.ms * 1000)
        return Now(WALL + us, MONO + us)

    def at_us(self, ms: float) -> int:
        """A deadline."""
        return MONO + int(ms * 1000)

    def step(self, *happened: events.Event, ms: float | None = None) -> list[Effect]:
        """One step, at `ms` if given."""
        if ms is not None:
            assert ms >= self.ms
            self.ms = ms
        effects = self.core.step(happened, self.now)
        self.effects += effects
        for effect in effects:
            if isinstance(effect, OpenLink):
                self.links[effect.endpoint] = effect.link
        return effects

    def run_until(self, ms: float) -> list[Effect]:
        """Step at every deadline up to `ms`, and then."""
        effects: list[Effect] = []
        while (deadline := self.core.next_deadline_us) is not None and deadline <= self.at_us(ms):
            effects += self.step(ms=max((deadline - MONO) / 1000, self.ms))
        return effects + self.step(ms=ms)

    def receive(self, broker: str, message: BrokerMessage, body: bytes | None = None) -> list[Effect]:
        """A broker's frame comes in."""
        bodies = [] if body is None else [body]
        return self.step(events.FrameReceived(self.links[endpoint(broker)], message, bodies))

    # -------------------------------------------------------------- the brokers' parts

    def connect(self, *brokers: str) -> list[Effect]:
        """Links come up."""
        if not self.links:
            self.step()
        effects: list[Effect] = []
        for broker in brokers or self.brokers:
            effects += self.step(events.LinkReady(self.links[endpoint(broker)]))
            hello = sent(effects, Hello)[-1]
            effects += self.receive(broker, hello_reply(broker, hello.sent_wall_us, self.now.wall_us))
        return effects

    def metadata(self, request_id: int) -> MetadataReply:
        """What every broker says of the topic."""
        partitions = tuple(
            PartitionInfo(uid, leader, self.epoch, bool(leader), ()) for uid, leader in self.leaders.items()
        )
        info = TopicInfo(
            TOPIC, "timeline", 1, 1, 1 << 20, 0, partitions, settings=self.settings,
            home_partitions=self.home_partitions,
        )  # fmt: skip
        infos = tuple(BrokerInfo(broker, endpoint(broker)) for broker in self.brokers)
        return MetadataReply(request_id, Code.OK, "", infos, (info,))

    def answer_metadata(self, effects: Sequence[Effect]) -> list[Effect]:
        """Answer every metadata request among the effects."""
        more: list[Effect] = []
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.message, MetadataRequest):
                reply = self.metadata(effect.message.request_id)
                more += self.step(events.FrameReceived(effect.link, reply))
        return more

    def learn_topic(self) -> None:
        """Have the client know the topic."""
        self.answer_metadata(self.insert(999, b"", due=1))
        change = sent(self.effects, ChangeRequest)[-1]
        self.receive(self.leaders[change.uid], ok(change, 1))

    def insert(
        self, call: int, *payloads: bytes, due: int = 5_000, timeout_ms: float = 30_000
    ) -> list[Effect]:
        """Schedule payloads, all at one instant."""
        rows = len(payloads)
        return self.step(
            events.Insert(
                call,
                self.at_us(self.ms + timeout_ms),
                TOPIC,
                payloads,
                np.full(rows, due, np.uint64),
                np.array([len(p) for p in payloads], np.uint32),
                np.array([crc32(p) for p in payloads], np.uint32),
            )
        )

    def consume(
        self,
        credit: int = 256,
        lease_ms: int = 30_000,
        consumer_id: bytes = CONSUMER,
        linger_us: int = 2_000,
        detached: bool = False,
        life: int = 0,
    ) -> list[Effect]:
        """Open a consumer."""
        opened = self.step(
            events.OpenConsumer(
                1,
                self.at_us(self.ms + 30_000),
                consumer_id,
                TOPIC,
                credit,
                64 << 20,
                lease_ms,
                linger_us,
                life=life,
                detached=detached,
            )
        )
        return opened + self.answer_metadata(opened)


def hello_reply(broker: str, echo_us: int, broker_us: int, mesh_offset_us: int = 0) -> HelloReply:
    return HelloReply(
        Code.OK,
        broker_id=broker,
        cluster_id="k",
        echo_wall_us=echo_us,
        received_wall_us=broker_us,
        sent_wall_us=broker_us,
        mesh_offset_us=mesh_offset_us,
    )


def ok(
    request: ChangeRequest, sequence: int, row: int = 0, stamp: int = 0, outcomes: Sequence[int] = ()
) -> ChangeReply:
    return ChangeReply(
        request.request_id,
        Code.OK,
        uid=request.uid,
        epoch=1,
        sequence=sequence,
        row=row,
        stamp=stamp,
        outcomes=np.array(outcomes, np.uint8),
    )


def confirm(
    frame: ConsumerFrame, waiting: int = 0, push_sent: int = 0, life: int = 0, mono_us: int = 0
) -> ConsumerReply:
    """A leader's answer; of a leader that does not say by which clock unless it has a life."""
    return ConsumerReply(
        TOPIC,
        frame.consumer_id,
        frame.attach,
        frame.number,
        waiting=waiting,
        push_sent=push_sent,
        leader=frame.leader,
        incarnation=life,
        mono_us=mono_us,
    )


def push(
    leader: str,
    attach: int,
    number: int,
    payloads: Sequence[bytes],
    *,
    uid: int = 1,
    sequence: int = 50,
    token: int = 60,
    consumer_id: bytes = CONSUMER,
    released_us: int = WALL,
    left_ms: int = 30_000,
    life: int = 0,
    mono_us: int = 0,
) -> tuple[Push, bytes]:
    """A push whose rows are consecutive rows of one record."""
    rows = len(payloads)
    message = Push(
        TOPIC,
        consumer_id,
        attach,
        number,
        1,
        released_us,
        leader,
        push_rows(
            rows,
            uid=uid,
            first=1_000,
            sequence=sequence,
            row=range(rows),
            due=1_000,
            token=token,
            attempt=1,
            lease_left_ms=left_ms,
            size=[len(p) for p in payloads],
            crc=[crc32(p) for p in payloads],
        ),
        incarnation=life,
        mono_us=mono_us,
    )
    return message, b"".join(payloads)


def attached(stage: Stage, **options: int) -> dict[str, ConsumerFrame]:
    """Open a consumer and have every leader confirm; returns the attach per leader."""
    stage.connect()
    frames = {frame.leader: frame for frame in sent(stage.consume(**options), ConsumerFrame)}
    for leader, frame in frames.items():
        stage.receive(leader, confirm(frame))
    return frames


def delivered(
    stage: Stage, leader: str, *payloads: bytes, attach: int = 1, number: int = 1, **fields: int
) -> list[Delivery]:
    """Have a leader push and return what the user gets."""
    message, body = push(leader, attach, number, payloads, **fields)  # type: ignore[arg-type]
    return [d for effect in of(stage.receive(leader, message, body), Deliver) for d in effect.deliveries]


def settle(
    stage: Stage, kind: RecordKind, *deliveries: Delivery, call: int = 0, amount_ms: int = 0
) -> list[ChangeRequest]:
    """The user decides; returns the requests once the linger is over."""
    stage.step(events.Settle(CONSUMER, kind, deliveries, amount_ms, call, stage.at_us(stage.ms + 4_000)))
    return sent(stage.run_until(stage.ms + 2), ChangeRequest)


def confirm_all(stage: Stage, until_ms: float, broker: str = "a") -> list[object]:
    """Answer every beat until then."""
    effects: list[object] = []
    while stage.ms < until_ms:
        step = stage.run_until(min(stage.ms + 500, until_ms))
        effects += step
        for frame in sent(step, ConsumerFrame):
            effects += stage.receive(broker, confirm(frame))
    return effects


def sent(effects: Sequence[Effect], kind: type[M]) -> list[M]:
    """The messages of one type that were sent."""
    return [
        effect.message for effect in effects if isinstance(effect, Send) and isinstance(effect.message, kind)
    ]


def of(effects: Sequence[Effect], kind: type[T]) -> list[T]:
    """The effects of one type."""
    return [effect for effect in effects if isinstance(effect, kind)]
