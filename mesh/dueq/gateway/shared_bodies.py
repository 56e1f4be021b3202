"""Shared bodies by HTTP: the text that names one, and the certainty that every partition of a topic keeps it.

A client that names a body has not brought its bytes, and its messages may go to any partition. So all of them keep a
body that was put, and all keep it anew when it is named: if one does not, nothing is scheduled.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from dueq import limits
from dueq.client import calls
from dueq.client.aio.connection import AsyncConnection
from dueq.client.arguments import topic_name
from dueq.client.core.ports.shared_body import NamedBody, SharedBody
from dueq.client.payloads import shared_body
from dueq.errors import UnknownBody
from dueq.gateway.problems import Unfit
from dueq_codecs.records import SHARED_NAME_BYTES

_TEXT: Final = re.compile(rf"([0-9a-f]{{{2 * SHARED_NAME_BYTES}}})-([0-9]{{1,6}})-([0-9a-f]{{8}})")
_KEEP_AGAIN_US: Final = limits.BODY_GRACE_MS * 1000 // 6
"""A body that is named again is kept anew after this long: a fraction of the hour for which it is kept."""
_COUNT_AGAIN_US: Final = 1_000_000
"""Of a topic whose bodies are named, the partitions are counted again after this long."""

_Key = TypeVar("_Key")


def text_of(body: NamedBody) -> str:
    """Return what names a body: its SHA-256, size and CRC-32."""
    return f"{body.name.hex()}-{body.size}-{body.crc:08x}"


def named(text: str, where: str) -> NamedBody:
    """Return the body that a text names.

    Raises:
        Unfit: it is no such text.
    """
    match = _TEXT.fullmatch(text)
    if match is None or not 0 < int(match[2]) <= limits.BODY_BYTES_MAX:
        wanted = "what the upload of a body was answered with"
        raise Unfit(f"{where} is {wanted}, not {text!r:.80}", text, wanted, where)
    return NamedBody(bytes.fromhex(match[1]), int(match[2]), int(match[3], 16))


class _Known(NamedTuple):
    """How many partitions a topic had, or how many kept a body, at an instant."""

    at_us: int
    partitions: int


class Bodies:
    """The shared bodies that clients of this gateway name.

    Args:
        connection: to the mesh.
        clock_us: monotonic time.
    """

    def __init__(self, connection: AsyncConnection, clock_us: Callable[[], int]) -> None:
        self._connection, self._clock_us = connection, clock_us
        self._kept: OrderedDict[tuple[str, bytes], _Known] = OrderedDict()
        self._counted: OrderedDict[str, _Known] = OrderedDict()
        self._counting: dict[str, asyncio.Task[int]] = {}

    async def put(self, topic: str, data: bytes) -> SharedBody:
        """Have every partition keep these bytes.

        Raises:
            InvalidRequest: there are none.
            PayloadTooLarge: they are longer than a body, or a payload of the topic, may be.
        """
        body = shared_body(data)
        _, partitions = await self._connection.run(calls.keep_body(topic_name(topic), body, None), None)
        self._note(topic, body, partitions)
        return body

    async def keep(self, topic: str, body: NamedBody) -> None:
        """Have every partition keep a body for another hour, unless that was asked a while ago.

        Raises:
            UnknownBody: a partition does not keep it.
        """
        found = self._kept.get((topic, body.name))
        # Partitions that were added since do not have it, and a message may go to one of them.
        if (
            found is not None
            and self._clock_us() - found.at_us < _KEEP_AGAIN_US
            and found.partitions == await self._partitions(topic)
        ):
            return
        kept, partitions = await self._connection.run(
            calls.keep_body(topic_name(topic), body, limits.BODY_GRACE_MS), None
        )
        if kept < partitions:
            self._kept.pop((topic, body.name), None)
            lacking = f"{partitions - kept} of {partitions} partitions of {topic!r}"
            raise UnknownBody(f"{lacking} do not keep the body {text_of(body)}: put it again")
        self._note(topic, body, partitions)

    async def end(self, topic: str, body: NamedBody) -> int:
        """Let a body go with the last of its messages; returns how many partitions had it."""
        self._kept.pop((topic, body.name), None)
        return await self._connection.run(calls.end_body(topic_name(topic), body), None)

    async def _partitions(self, topic: str) -> int:
        """Return how many partitions the topic has, or had a moment ago."""
        counted = self._counted.get(topic)
        if counted is not None and self._clock_us() - counted.at_us < _COUNT_AGAIN_US:
            return counted.partitions
        counting = self._counting.get(topic)
        if counting is None:
            counting = self._counting[topic] = asyncio.create_task(self._count(topic))
            counting.add_done_callback(lambda task: self._counted_anew(topic, task))
        return await asyncio.shield(counting)

    def _counted_anew(self, topic: str, task: asyncio.Task[int]) -> None:
        del self._counting[topic]
        if not task.cancelled():
            task.exception()  # all who asked may have gone

    async def _count(self, topic: str) -> int:
        count = await self._connection.run(calls.partition_count(topic), None)
        _put(self._counted, topic, _Known(self._clock_us(), count))
        return count

    def _note(self, topic: str, body: NamedBody, partitions: int) -> None:
        _put(self._kept, (topic, body.name), _Known(self._clock_us(), partitions))


def _put(known: OrderedDict[_Key, _Known], key: _Key, found: _Known) -> None:
    known[key] = found
    known.move_to_end(key)
    if len(known) > limits.BODIES_MAX:
        known.popitem(last=False)
