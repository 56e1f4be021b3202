"""What runs inside a Spark task: Arrow batches in, requests to the mesh, one row of news per request out.

**Once, although tasks are repeated.** The mesh knows a repeated request by (client id, sequence, digest).
So everything that makes up a request follows from the job, the Spark partition and the rows alone: rows are
cut into runs by count and bytes whatever the Arrow batches are; run i of Spark partition p goes to partition
(p + i) mod n of the topic; one run is under way at a time, so that the runs of one partition count up from 1;
and the client id is a digest of the job and the Spark partition. The mesh remembers 256 requests of one
client and partition: long before that a task goes on under the next client id.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from dueq import Client
from dueq.client.numbered import NumberedProducer
from dueq.errors import InvalidRequest, Refused
from dueq.limits import DEDUP_WINDOW, DUE_MS_MAX, REQUEST_BYTES_MAX
from dueq.spark.columns import DUE, KEY, PAYLOAD

if TYPE_CHECKING:
    from numpy.typing import NDArray

NEWS_SCHEMA = (
    "task int, partition int, rows bigint, keys array<string>, ids array<string>, refusal string, why string"
)
"""One row per answered request; or, with `refusal` (an error's class) and `why`, the end of a task."""

_NEWS = pa.schema([
    ("task", pa.int32()), ("partition", pa.int32()), ("rows", pa.int64()), ("keys", pa.list_(pa.string())),
    ("ids", pa.list_(pa.string())), ("refusal", pa.string()), ("why", pa.string()),
])  # fmt: skip
_RUNS_PER_CLIENT = DEDUP_WINDOW // 2


@dataclass(frozen=True)
class Task:
    """What travels to the executors: plain values, no connection.

    Attributes:
        job: 16 bytes, drawn once per call of `schedule`.
        topic: its name.
        partitions: how many the topic has.
        endpoints: brokers to begin with.
        batch_rows: rows of one request at most.
        timeout: seconds for each request.
        in_microseconds: the unit of `due`; otherwise milliseconds.
        keyed: whether ids are reported by key.
    """

    job: bytes
    topic: str
    partitions: int
    endpoints: tuple[str, ...]
    batch_rows: int
    timeout: float
    in_microseconds: bool
    keyed: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Schedule all rows of one Spark partition.

        A refusal is news, not an exception: Spark would repeat the task for nothing. What a repetition can
        help with is raised, and Spark repeats the task.
        """
        context = TaskContext.get()
        number = context.partitionId() if context is not None else 0
        try:
            yield from _Sender(self, number).send_all(batches)
        except Refused as error:
            yield _news(number, refusal=type(error).__name__, why=str(error))

    def client_id(self, number: int, generation: int) -> bytes:
        """The client id of Spark partition `number`: the same in each attempt."""
        text = b"%s/%d/%d" % (self.job, number, generation)
        return hashlib.blake2b(text, digest_size=16, person=b"dueq.spark").digest()


@dataclass
class Run:
    """Rows of one request."""

    payloads: list[bytes]
    dues: list[int]
    keys: list[str]


class _Sender:
    """Sends the runs of one task, in order, one at a time."""

    def __init__(self, task: Task, number: int) -> None:
        self._task = task
        self._number = number
        self._runs = 0

    def send_all(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Send everything; connects when there is a first row."""
        runs = runs_of(batches, self._task, self._number)
        first = next(runs, None)
        if first is None:
            return
        with Client(list(self._task.endpoints), timeout=self._task.timeout) as client:
            producer: NumberedProducer | None = None
            per_client = _RUNS_PER_CLIENT * self._task.partitions
            run: Run | None = first
            while run is not None:
                generation, place = divmod(self._runs, per_client)
                if place == 0 or producer is None:
                    identity = self._task.client_id(self._number, generation)
                    producer = NumberedProducer(client, self._task.topic, identity)
                yield self._send(producer, run)
                run = next(runs, None)

    def _send(self, producer: NumberedProducer, run: Run) -> pa.RecordBatch:
        partition = (self._number + self._runs) % self._task.partitions
        ids = producer.schedule_many(run.payloads, run.dues, partition)
        self._runs += 1
        ids = ids if self._task.keyed else []
        return _news(self._number, partition, len(run.dues), run.keys, ids)


def runs_of(batches: Iterator[pa.RecordBatch], task: Task, number: int) -> Iterator[Run]:
    """Cut rows into runs of `batch_rows` rows and of what fits into one request."""
    run, size, row = Run([], [], []), 0, 0
    for batch in batches:
        dues = _dues(batch.column(DUE), task.in_microseconds, number, row)
        payloads = _payloads(batch.column(PAYLOAD), number, row)
        keys = batch.column(KEY).to_pylist() if task.keyed else [""] * len(payloads)
        for payload, due, key in zip(payloads, dues.tolist(), keys, strict=True):
            if run.dues and (len(run.dues) == task.batch_rows or size + len(payload) > REQUEST_BYTES_MAX):
                yield run
                run, size = Run([], [], []), 0
            run.payloads.append(payload)
            run.dues.append(due)
            size += len(payload)
            if task.keyed:
                run.keys.append(key)
        row += batch.num_rows
    if run.dues:
        yield run


def _dues(column: pa.Array, in_microseconds: bool, number: int, row: int) -> NDArray[np.int64]:
    """Return whole ms, rounded up: never earlier than the timestamp says."""
    if column.null_count:
        place = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        raise InvalidRequest(f"{_where(number, row + place)}: due is null")
    dues: NDArray[np.int64] = column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    if in_microseconds:
        dues = -(-dues // 1000)
    bad = np.flatnonzero((dues < 0) | (dues > DUE_MS_MAX))
    if len(bad):
        place = int(bad[0])
        raise InvalidRequest(
            f"{_where(number, row + place)}: due {dues[place]} ms is not within 0 … {DUE_MS_MAX}"
        )
    return dues


def _payloads(column: pa.Array, number: int, row: int) -> list[bytes]:
    if column.null_count:
        place = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        raise InvalidRequest(f"{_where(number, row + place)}: payload is null")
    payloads: list[bytes] = column.to_pylist()
    return payloads


def _where(number: int, row: int) -> str:
    return f"row {row} of Spark partition {number}"


def _news(
    number: int,
    partition: int = -1,
    rows: int = 0,
    keys: list[str] | None = None,
    ids: list[str] | None = None,
    refusal: str | None = None,
    why: str | None = None,
) -> pa.RecordBatch:
    columns = [[number], [partition], [rows], [keys or []], [ids or []], [refusal], [why]]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _NEWS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_NEWS)
