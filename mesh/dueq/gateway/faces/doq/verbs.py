"""The verbs of doq's clients, by HTTP or by gRPC: on topics and messages of the mesh."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NoReturn

from dueq import Outcome, TopicInfo, limits
from dueq.client import calls
from dueq.client.aio import AsyncMessage
from dueq.client.calls import Call
from dueq.client.message_state import MessageState
from dueq.client.pulls import Lease
from dueq.errors import (
    Busy,
    KeyTaken,
    MessageLeased,
    MessageNotFound,
    TopicExists,
    TopicNotFound,
    VersionDiffers,
)
from dueq.gateway.faces.doq import number
from dueq.gateway.faces.doq.failures import DoqError, Kind
from dueq.gateway.faces.doq.queue import DEFAULT_GROUP, LABEL, Queue, Strategy, topic_of
from dueq.gateway.faces.doq.rates import Rates
from dueq.gateway.service import Service

_ENQUEUE: Final = "Failed to enqueue a message"
"""doq says so of every conflict as a queue is made or changed, too."""
_DEQUEUE: Final = "Failed to dequeue a message from a queue"
_ACK: Final = "Failed to ack a message from a queue"
_PRIORITY: Final = "Failed to update priority a message"
_HELD_S: Final = 30.0
"""How long a message that is given back waits at most for its new priority, if the gateway dies in between."""
_TRIES: Final = 8

Room = Callable[[int], None]
"""Takes room for so many bytes of an answer, or raises Busy."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message as doq shows it."""

    number: int
    group: str
    priority: int
    content: str
    metadata: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Info:
    """A queue, and how much is in it and done with it."""

    queue: Queue
    rates: Mapping[str, float]
    ready: int
    unacked: int


class Doq:
    """doq's verbs.

    Every method raises DoqError if there is no such queue or message, and errors of the SDK.

    Args:
        service: the mesh.
        rates: counts what is done here.
    """

    def __init__(self, service: Service, rates: Rates) -> None:
        self._service, self._client, self._rates = service, service.client, rates

    # ---------------------------------------------------------------- queues

    async def create(self, wanted: Queue) -> None:
        """Create a queue; one that is there already is left as it is."""
        fit = wanted.strategy if wanted.type == "fair" else not (wanted.strategy or wanted.max_unacked)
        if not fit:
            raise DoqError(Kind.UNFIT, _ENQUEUE, f"Failed to create a queue: {wanted.name}")
        kind = "priority" if wanted.type == "delayed" else "fair"
        with contextlib.suppress(TopicExists):
            await self._client.create_topic(
                topic_of(wanted.name), kind, 1, keys="unique", labels={LABEL: wanted.label()}
            )

    async def update(self, name: str, strategy: Strategy, max_unacked: int, ack_timeout_s: int) -> None:
        """Give a queue other settings; its strategy stays, and so do labels that are not doq's."""
        topic, text = topic_of(name), f"Failed to update a queue: {name}"
        for _ in range(_TRIES):
            try:
                info = await self._client.describe(topic)
                present = _of(info)
            except TopicNotFound:
                raise DoqError(Kind.MISSING_HERE, _ENQUEUE, text) from None
            if strategy != present.strategy or (present.type == "delayed" and max_unacked):
                raise DoqError(Kind.UNFIT, _ENQUEUE, text)
            wanted = replace(present, max_unacked=max_unacked, ack_timeout_s=ack_timeout_s)
            labels = {**info.labels, LABEL: wanted.label()}
            try:
                await self._client.update_topic(topic, labels=labels, if_version=info.settings_version)
            except VersionDiffers:
                continue
            if present.type == "fair":
                # Some may have another limit still though the queue has not: a try before did not get to the end.
                async for group in self._client.groups(topic):
                    if group.max_unacked != max_unacked:
                        await self._client.set_group(topic, group.name, max_unacked=max_unacked)
            return
        raise DoqError(Kind.CONFLICT, _ENQUEUE, f"{text}: others change it, {_TRIES} tries were overtaken")

    async def delete(self, name: str) -> None:
        """Delete a queue with all its messages."""
        try:
            await self._queue(name)
            await self._client.delete_topic(topic_of(name))
        except TopicNotFound:
            raise DoqError(Kind.MISSING, _DEQUEUE, f"Failed to delete a queue: {name}") from None

    async def info(self, name: str) -> Info:
        """Return a queue."""
        try:
            info = await self._client.describe(topic_of(name))
            return self._info(_of(info), info)
        except TopicNotFound:
            raise DoqError(Kind.MISSING, "Failed to get stats for a queue", "queue not found") from None

    async def infos(self) -> list[Info]:
        """Return all queues, by name."""
        named = [
            found.name
            for info in await self._client.topics()
            if (found := Queue.of(info)) is not None and info.name == topic_of(found.name)
        ]
        shown = []
        for name in sorted(named, key=str.encode):
            with contextlib.suppress(DoqError):  # deleted meanwhile
                shown.append(await self.info(name))
        return shown

    # ---------------------------------------------------------------- messages

    async def numbers(self, count: int) -> list[int]:
        """Return new numbers for messages."""
        return number.new(await self._service.now_us() // 1000, count)

    async def enqueue(
        self,
        name: str,
        own: int | None,
        group: str,
        priority: int,
        content: str,
        metadata: Mapping[str, str] | None,
    ) -> int:
        """Put a message in and return its number: its own, or a new one.

        A number that waits already gets this content and priority; one in flight is a conflict.
        """
        found = await self._known(name, Kind.MISSING_HERE, _ENQUEUE)
        _check_priority(found, priority)
        if found.max_unacked:
            await self._client.set_group(topic_of(name), group, max_unacked=found.max_unacked)
        try:
            if own is None:
                own = await self._new(found, group, priority, content, metadata)
            else:
                put = await self._row(found, own, group, priority, content, metadata)
                await self._client.connection.run(put, None)
        except (KeyTaken, MessageLeased):
            raise DoqError(Kind.CONFLICT, _ENQUEUE, f"message {own} is in flight") from None
        self._rates.count(name, "enqueue")
        return own

    async def dequeue(self, name: str, ack: bool, room: Room | None = None) -> Message:
        """Take a message; raises as `take`."""
        message, _ = await self.take(name, ack, 0.0, room)
        return message

    async def take(
        self, name: str, ack: bool, wait_s: float, room: Room | None = None
    ) -> tuple[Message, Lease]:
        """Take a message, and its lease; with `ack` it is done before anybody has it: at most once.

        Args:
            name: of the queue.
            ack: whether it is done at once.
            wait_s: how long to wait for one.
            room: takes room for the bytes of its content.

        Raises:
            Busy: there is no room for its content; it has gone back as it was.
            DoqError: the queue is empty, after `wait_s` seconds.
        """
        found = await self._known(name, Kind.MISSING, _DEQUEUE)
        topic = topic_of(name)
        while True:
            pulled = await self._client.pull(topic, 1, wait_s, found.lease_s)
            if not pulled:
                raise DoqError(Kind.MISSING, _DEQUEUE, f"Queue is empty: {name}")
            [message] = pulled
            lease = message.id, message.token
            if not number.is_one(message.key):
                # Somebody has put it in by another API: nobody could settle it by a number.
                reason = f"the key {message.key!r:.80} is no number of doq"
                await self._client.settle(topic, [lease], "nack", dead=True, reason=reason)
                continue
            shown = _shown(found, message)
            try:
                if room is not None:
                    room(len(shown.content.encode()))
            except Busy:
                await self.give_back(name, lease)
                raise
            if ack:
                [outcome] = await self._client.settle(topic, [lease], "ack")
                if outcome is not Outcome.DONE:
                    continue  # its lease was over, and so it comes again
                self._rates.count(name, "ack")
            self._rates.count(name, "dequeue")
            return shown, lease

    async def give_back(self, name: str, lease: Lease) -> None:
        """Give a message back as it was: nobody has seen it."""
        await self._client.settle(topic_of(name), [lease], "release")

    async def get(self, name: str, which: int) -> Message:
        """Return a message, in flight or not."""
        return _shown(*await self._message(name, which, "Failed to get a message from a queue", True))

    async def remove(self, name: str, which: int) -> None:
        """Delete a message, in flight or not."""
        detail = "Failed to delete a message from a queue"
        _, message = await self._message(name, which, detail)
        try:
            if message.state == "leased":
                await self._settle(name, message, detail, "ack")
            else:
                await self._client.producer(topic_of(name)).cancel(message.id)
        except (MessageNotFound, MessageLeased):
            _missing(name, detail)

    async def ack(self, name: str, which: int) -> None:
        """A message in flight is done."""
        _, message = await self._in_flight(name, which, _ACK)
        await self._settle(name, message, _ACK, "ack")
        self._rates.count(name, "ack")

    async def nack(self, name: str, which: int, priority: int, metadata: Mapping[str, str] | None) -> None:
        """Give a message back; a priority of 0 and no metadata: as it was."""
        detail = "Failed to nack a message from a queue"
        found, message = await self._in_flight(name, which, detail)
        _check_priority(found, priority)
        if priority:
            topic, now_us = topic_of(name), await self._service.now_us()
            due, rank = found.place(priority, now_us // 1000)
            # What cannot be is refused here, before the message goes back.
            ranked = calls.change(topic, [message.id], rank)
            moved = calls.move(topic, [message.id], due, lambda: now_us)
            await self._settle(name, message, detail, "nack", delay=_HELD_S, headers=metadata or None)
            # Once it is moved a consumer may have it. If it is gone by now, this was its last attempt.
            await self._client.connection.run(ranked, None)
            await self._client.connection.run(moved, None)
        else:
            await self._settle(name, message, detail, "nack", delay=0, headers=metadata or None)
        self._rates.count(name, "nack")

    async def touch(self, name: str, which: int) -> None:
        """Let the time of a message in flight begin anew."""
        detail = "Failed to touch a message from a queue"
        found, message = await self._in_flight(name, which, detail)
        await self._settle(name, message, detail, "extend", seconds=found.lease_s)

    async def prioritize(self, name: str, which: int, priority: int) -> None:
        """Give a message that waits another priority."""
        found = await self._known(name, Kind.MISSING_HERE, _PRIORITY)
        _check_priority(found, priority)
        try:
            message = await self._state(name, which)
            if message.state == "leased":
                raise MessageLeased
            now_ms = await self._service.now_us() // 1000
            due, rank = found.place(priority, now_ms)
            producer = self._client.producer(topic_of(name))
            # Once it is moved to now a consumer may have it: that comes last. What has to wait is moved first.
            if found.type == "delayed" and due > now_ms:
                await producer.move(message.id, due)
            if rank != message.rank:
                await producer.change(message.id, rank=rank)
            if found.type == "delayed" and due <= now_ms:
                await producer.move(message.id, due)
        except MessageNotFound:
            raise DoqError(
                Kind.MISSING_HERE, _PRIORITY, f"Failed to dequeue a message from a queue: {name}"
            ) from None
        except MessageLeased:
            raise DoqError(Kind.CONFLICT, _PRIORITY, f"message {which} is in flight") from None

    # ---------------------------------------------------------------- the mesh

    async def _queue(self, name: str) -> Queue:
        return _of(await self._client.describe(topic_of(name)))

    async def _known(self, name: str, kind: Kind, detail: str) -> Queue:
        try:
            return await self._queue(name)
        except TopicNotFound:
            raise DoqError(kind, detail, f"Failed to get a queue: {name}") from None

    def _info(self, found: Queue, info: TopicInfo) -> Info:
        ready = (info.scheduled or 0) + (info.ready or 0)
        return Info(found, self._rates.of(found.name), ready, info.leased or 0)

    async def _new(
        self, found: Queue, group: str, priority: int, content: str, metadata: Mapping[str, str] | None
    ) -> int:
        """Put a message in under a new number, and return that."""
        for _ in range(_TRIES):
            [made] = await self.numbers(1)
            put = await self._row(found, made, group, priority, content, metadata, "refuse")
            with contextlib.suppress(KeyTaken):
                await self._client.connection.run(put, None)
                return made
        raise DoqError(Kind.CONFLICT, _ENQUEUE, f"{_TRIES} new numbers were all taken")

    async def _row(
        self,
        found: Queue,
        key: int,
        group: str,
        priority: int,
        content: str,
        metadata: Mapping[str, str] | None,
        on_duplicate: Literal["refuse", "replace"] = "replace",
    ) -> Call[str]:
        """Return the call that puts a message in.

        Raises:
            InvalidRequest: there is no such priority, or the metadata are no headers of a message.
        """
        now_us = await self._service.now_us()
        due, rank = found.place(priority, now_us // 1000)
        return calls.schedule(
            topic_of(found.name), content.encode(), due, lambda: now_us, str(key), rank,
            group if found.type == "fair" else None, metadata or None, on_duplicate=on_duplicate,
        )  # fmt: skip

    async def _state(self, name: str, which: int, payload: bool = False) -> MessageState:
        found = await self._client.get(topic_of(name), key=str(which), payload=payload, linearizable=True)
        if found.state == "dead":
            raise MessageNotFound(f"message {which} is dead")
        return found

    async def _message(
        self, name: str, which: int, detail: str, payload: bool = False
    ) -> tuple[Queue, MessageState]:
        found = await self._known(name, Kind.MISSING, detail)
        try:
            return found, await self._state(name, which, payload)
        except MessageNotFound:
            _missing(name, detail)

    async def _in_flight(self, name: str, which: int, detail: str) -> tuple[Queue, MessageState]:
        found, message = await self._message(name, which, detail)
        if message.state != "leased":
            _missing(name, detail)
        return found, message

    async def _settle(self, name: str, message: MessageState, detail: str, how: str, **more: Any) -> None:
        [outcome] = await self._client.settle(topic_of(name), [(message.id, message.token)], how, **more)
        if outcome is not Outcome.DONE:
            _missing(name, detail)


def _of(info: TopicInfo) -> Queue:
    found = Queue.of(info)
    if found is None:
        raise TopicNotFound(f"the topic {info.name} is no queue")
    return found


def _shown(found: Queue, message: AsyncMessage | MessageState) -> Message:
    return Message(
        int(message.key), message.group or DEFAULT_GROUP, found.priority(message.due, message.rank),
        (message.payload or b"").decode(errors="replace"), message.headers,
    )  # fmt: skip


def _missing(name: str, detail: str) -> NoReturn:
    raise DoqError(Kind.MISSING, detail, f"Message not found: {name}")


def _check_priority(found: Queue, priority: int) -> None:
    if found.type == "fair" and priority > limits.RANK_MAX:
        text = f"a priority of a fair queue is 0 to {limits.RANK_MAX} here, not {priority}"
        raise DoqError(Kind.INVALID, "validation failed", text, "body.priority", priority)
