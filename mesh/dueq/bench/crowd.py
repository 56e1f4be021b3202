"""Many consumers in one process: a task of its own for each (`workers`)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dueq import AsyncClient, AsyncConsumer
from dueq.bench.child import Line

_WAIT_S = 1.0
_OPENING = 32
"""Consumers that attach at the same time."""


@dataclass(frozen=True)
class Gathered:
    """The messages that the consumers of one process have got.

    Attributes:
        each: how many messages each consumer got.
        due_ms, received_ms: of every message, Unix ms.
        acked_ns: when the last acknowledgement was confirmed, Unix ns; 0 if there was none.
    """

    each: tuple[int, ...]
    due_ms: npt.NDArray[np.float64]
    received_ms: npt.NDArray[np.float64]
    acked_ns: int


@dataclass(frozen=True)
class Crowd:
    """`count` consumers of one topic on one connection; each acknowledges its messages and waits for that.

    Attributes:
        endpoints, topic: where from.
        count: how many.
        credit: of each.
    """

    endpoints: Sequence[str]
    topic: str
    count: int
    credit: int

    def run(self, line: Line) -> Gathered:
        """See Task."""
        return asyncio.run(_Gathering(self, line).run())


class _Gathering:
    def __init__(self, crowd: Crowd, line: Line) -> None:
        self._crowd, self._line = crowd, line
        self._each = [0] * crowd.count
        self._due: list[int] = []
        self._received: list[float] = []
        self._acked_ns = 0

    async def run(self) -> Gathered:
        crowd = self._crowd
        async with AsyncClient(crowd.endpoints) as client:
            opening = asyncio.Semaphore(_OPENING)
            consumers = [
                client.consumer(crowd.topic, lease=60.0, credit=crowd.credit) for _ in range(crowd.count)
            ]

            async def open_one(consumer: AsyncConsumer) -> None:
                async with opening:
                    await consumer.receive(1, timeout=0)

            await asyncio.gather(*map(open_one, consumers))
            await asyncio.to_thread(self._line.ready)
            await asyncio.gather(*(self._consume(i, consumer) for i, consumer in enumerate(consumers)))
            await asyncio.gather(*(consumer.close() for consumer in consumers))
        return Gathered(
            tuple(self._each), np.array(self._due, np.float64), np.array(self._received, np.float64),
            self._acked_ns,
        )  # fmt: skip

    async def _consume(self, number: int, consumer: AsyncConsumer) -> None:
        while not self._line.stopped.is_set():
            batch = await consumer.receive(self._crowd.credit, timeout=_WAIT_S)
            if not batch:
                self._line.count(len(self._due))  # the last word may have come too soon after the one before
                continue
            received_ms = time.time_ns() / 1e6
            self._due += [message.due for message in batch]
            self._received += [received_ms] * len(batch)
            await consumer.ack(batch)
            self._acked_ns = time.time_ns()
            self._each[number] += len(batch)
            self._line.count(len(self._due))
