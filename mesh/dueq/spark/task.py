"""The work inside a Spark task: Arrow batches in, requests to the mesh, news of each request out.

**Once, although tasks are repeated.** The mesh knows a repeated request by (client id, sequence, digest).
So every request follows from the load, the Spark partition and the rows alone. Rows are cut into runs by count and
bytes, whatever the Arrow batches are. Run i of Spark partition p goes to partition (p + i) mod n of the topic. One
run of each partition is under way at a time, so its runs count up from 1. The client id is a digest of the load and
the Spark partition. The mesh remembers 256 requests of one client and partition: long before that a task goes on
under the next client id. Where messages have groups, these say to which partition each row of a run goes; then one
run at a time is under way, and each may make a request in every partition.

**Nothing at all if a repetition differs.** The mesh refuses a request that is repeated with other rows. But a later
request would count as new, although its rows may have been loaded in other requests. So each request waits for the
answer of the one before, until it is clear that this task never sent anything before.
"""

from __future__ import annotations

import hashlib
import socket
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from dueq import Client
from dueq.client.core.ports.shared_body import SharedBody
from dueq.client.numbered import NumberedProducer, mesh_time_ms
from dueq.client.times import warn_of_seconds
from dueq.errors import Disconnected, InvalidRequest, PartialFailure, Refused, SequenceReused
from dueq.limits import DEDUP_WINDOW
from dueq.spark.columns import DUE, GROUP, KEY, PAYLOAD, RANK, REASON, ROW
from dueq.spark.runs import Run, piece_of, runs_of
from dueq_codecs.groups import home_of_group
from dueq_codecs.meta import Meta

if TYPE_CHECKING:
    from dueq.client.jobs import Job
    from dueq.client.receipt import Receipt

_NEWS = pa.schema([
    ("task", pa.int32()), ("partition", pa.int32()), ("rows", pa.int64()), ("deduplicated", pa.int64()),
    ("keys", pa.list_(pa.string())), ("ids", pa.list_(pa.string())), ("refusal", pa.string()), ("why", pa.string()),
    ("place", pa.int64()), ("reason", pa.string()), ("row", pa.string()),
])  # fmt: skip
NEWS_SCHEMA = (
    "task int, partition int, rows bigint, deduplicated bigint, keys array<string>, ids array<string>, "
    "refusal string, why string, place bigint, reason string, row string"
)
"""One row per answered request; or, with `refusal` (an error's class) and `why`, the end of a task; or, with
`reason`, a row that cannot be a message: its place in the task and its content."""
_RUNS_PER_CLIENT = DEDUP_WINDOW // 2
_CONNECT_S = 15.0
_UNDER_WAY_MAX = 4
_PIECE_ROWS = 1 << 15
_SHOWN_BYTES = 40


@dataclass(frozen=True)
class Load:
    """The load, the same in each attempt: plain values that travel to the executors, no connection.

    Attributes:
        name: 16 bytes or more from which client ids are made.
        topic: its name.
        partitions: how many the topic was created with. A repeated load must come to the same ones, whatever was
            added meanwhile.
        endpoints: brokers to begin with.
        batch_rows: rows of one request at most.
        timeout: seconds for each request, while the mesh is busy or short of replicas too.
        job: what the messages belong to.
        began_ms: mesh time, Unix ms; rows that were appended before it were loaded by an earlier call.
        keyed: whether messages have keys.
        with_ids: whether ids are reported by key.
        ranked, grouped: whether messages have ranks, and groups.
        collect: whether rows that cannot be messages are news; otherwise the first ends the task.
        send: otherwise rows are only checked and counted.
        shared: the body of all messages; empty: each has a payload of its own.
    """

    name: bytes
    topic: str
    partitions: int
    endpoints: tuple[str, ...]
    batch_rows: int
    timeout: float
    job: Job | None = None
    began_ms: int = 0
    keyed: bool = False
    with_ids: bool = False
    ranked: bool = False
    grouped: bool = False
    collect: bool = False
    send: bool = True
    shared: bytes = b""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Schedule all rows of one Spark partition (for `mapInArrow`).

        A refusal is news, not an exception: Spark would repeat the task for nothing. Errors that a repetition can
        help with are raised, and Spark repeats the task.
        """
        context = TaskContext.get()
        number = context.partitionId() if context is not None else 0
        task = Task(self, number)
        try:
            yield from task.news(batches)
        except Refused as error:
            yield news(task=number, refusal=type(error).__name__, why=str(error))

    def client_id(self, number: int, generation: int) -> bytes:
        """The client id of Spark partition `number`: the same in each attempt."""
        text = b"%s/%d/%d" % (self.name, number, generation)
        return hashlib.blake2b(text, digest_size=16, person=b"dueq.spark").digest()


class Task:
    """One Spark partition of a load: its requests in order, a few under way, each in another partition.

    Args:
        load: what is loaded.
        number: of the Spark partition.
    """

    def __init__(self, load: Load, number: int) -> None:
        self._load = load
        self._number = number
        self._rejected: list[pa.RecordBatch] = []

    def news(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Send everything; connects when there is a first row.

        Raises:
            InvalidRequest: a row cannot be a message, and such rows are not collected.
            Refused: the mesh refused a request.
            DueqError: a repetition may help.
        """
        runs = runs_of(self._pieces(batches), self._load.batch_rows)
        if self._load.send:
            for answered in self._sent(runs):
                if answered is not None:
                    yield from self._told(*answered)
                yield from self._rejections()
        else:
            for run in runs:
                if run is not None:
                    yield news(self._number, -1, run.rows, run.rows)
                yield from self._rejections()

    def _told(self, partition: int, run: Run, receipt: Receipt) -> Iterator[pa.RecordBatch]:
        is_old = receipt.stamp_ms < self._load.began_ms
        ids = receipt.ids() if self._load.with_ids else []
        keys = run.keys
        for home, rows in self._rows_at(partition, run):
            yield news(self._number, home, rows, rows if is_old else 0, keys, ids)
            keys, ids = [], []

    def _rows_at(self, partition: int, run: Run) -> list[tuple[int, int]]:
        """Return how many rows of a run went to which partitions."""
        if not any(run.groups):
            return [(partition, run.rows)]
        homes = np.array([home_of_group(name, self._load.partitions) for name in run.groups])[run.group]
        found, counts = np.unique(homes, return_counts=True)
        return list(zip(found.tolist(), counts.tolist(), strict=True))

    def counts(self, batches: Iterator[pa.RecordBatch]) -> tuple[int, int]:
        """Send everything (as `news`); return how many messages there are and how many were there before."""
        rows = again = 0
        for batch in self.news(batches):
            rows += batch.column("rows")[0].as_py()
            again += batch.column("deduplicated")[0].as_py()
        return rows, again

    def _sent(self, runs: Iterator[Run | None]) -> Iterator[tuple[int, Run, Receipt] | None]:
        """Yield the runs that are answered, and None where rows were put aside."""
        for first in runs:
            if first is not None:
                break
            yield None
        else:
            return
        load = self._load
        # No more are under way than there are partitions: then the previous run of the same partition has been
        # answered.
        most = 1 if load.grouped else min(load.partitions, _UNDER_WAY_MAX)
        runs_per_client = _RUNS_PER_CLIENT * (1 if load.grouped else load.partitions)
        under_way: deque[tuple[int, Run, Future[Receipt]]] = deque()
        with Client(list(load.endpoints), timeout=load.timeout) as client, ThreadPoolExecutor(most) as pool:
            _reach(client, load)
            began_ms = mesh_time_ms(client)
            producer: NumberedProducer | None = None
            shared = SharedBody(load.shared) if load.shared else None
            new = 0  # answers in a row of what was not there before; an earlier attempt may have left gaps of `most`
            number = 0
            for run in chain((first,), runs):
                if run is None:
                    yield None
                    continue
                while len(under_way) >= (most if new >= _UNDER_WAY_MAX else 1):
                    answered = self._answered(under_way.popleft())
                    new = new + 1 if answered[2].stamp_ms >= began_ms else 0
                    yield answered
                generation, place = divmod(number, runs_per_client)
                if place == 0 or producer is None:
                    identity = load.client_id(self._number, generation)
                    producer = NumberedProducer(client, load.topic, identity, load.job)
                partition = (self._number + number) % load.partitions
                answer = pool.submit(
                    producer.schedule_columns,
                    run.body,
                    run.size,
                    run.due,
                    partition,
                    keyed=Meta.KEY if load.keyed else Meta.NONE,
                    shared=shared,
                    rank=run.rank,
                    group=run.group,
                    groups=run.groups,
                )
                under_way.append((partition, run, answer))
                number += 1
            while under_way:
                yield self._answered(under_way.popleft())

    def _answered(self, sent: tuple[int, Run, Future[Receipt]]) -> tuple[int, Run, Receipt]:
        partition, run, answer = sent
        try:
            return partition, run, answer.result()
        except (SequenceReused, PartialFailure) as error:
            if not isinstance(refusal := _refusal_in(error), SequenceReused):
                raise refusal or error from None
            job = f"job {self._load.job.job_id!r}" if self._load.job is not None else "this load"
            raise SequenceReused(
                f"{job} was loaded before, at least in part, with other rows in Spark partition {self._number}: were "
                "there other rows, another batch_rows or number of Spark partitions, or is a column computed anew "
                "each time? Nothing more is sent of it; cancel that job, and load these rows under another name"
            ) from None

    def _pieces(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Run | None]:
        """Good rows as columns; others are put aside, and None says so, or the first of them is raised."""
        row = 0
        for batch in _of_some_rows(batches):
            reasons = batch.column(REASON)
            good = batch
            if reasons.null_count < batch.num_rows:
                self._put_aside(batch.filter(reasons.is_valid()), row, reasons)
                yield None
                good = batch.filter(reasons.is_null())
            row += batch.num_rows
            if good.num_rows:
                key = good.column(KEY) if self._load.keyed else None
                warn_of_seconds(int(pc.min(good.column(DUE)).as_py()))
                rank = good.column(RANK) if self._load.ranked else None
                group = good.column(GROUP) if self._load.grouped else None
                yield piece_of(good.column(DUE), good.column(PAYLOAD), key, self._load.with_ids, rank, group)

    def _put_aside(self, bad: pa.RecordBatch, before: int, reasons: pa.Array) -> None:
        places = pc.indices_nonzero(reasons.is_valid()).cast(pa.int64()).to_pylist()
        if not self._load.collect:
            where = f"row {before + places[0]} of Spark partition {self._number}{named(bad)}"
            raise InvalidRequest(f"{where}: {bad.column(REASON)[0].as_py()}")
        rows, count = bad.column(ROW).to_pylist(), bad.num_rows
        nothing: dict[str, list[Any]] = {
            "task": [self._number] * count, "partition": [-1] * count, "rows": [0] * count,
            "deduplicated": [0] * count, "keys": [[]] * count, "ids": [[]] * count,
            "refusal": [None] * count, "why": [None] * count,
            "place": [before + place for place in places], "reason": bad.column(REASON).to_pylist(), "row": rows,
        }  # fmt: skip
        self._rejected.append(pa.RecordBatch.from_pydict(nothing, schema=_NEWS))

    def _rejections(self) -> Iterator[pa.RecordBatch]:
        put_aside, self._rejected = self._rejected, []
        return iter(put_aside)


def _refusal_in(error: SequenceReused | PartialFailure) -> Refused | None:
    """Return why the mesh refused a request, or the part of one in some partition; None: it refused nothing."""
    if not isinstance(error, PartialFailure):
        return error
    return next((outcome for outcome in error.outcomes if isinstance(outcome, Refused)), None)


def _of_some_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Cut batches of more rows than names of groups can be counted in."""
    for batch in batches:
        yield from (batch.slice(start, _PIECE_ROWS) for start in range(0, batch.num_rows, _PIECE_ROWS))


def _reach(client: Client, load: Load) -> None:
    """See that the mesh can be reached from this executor, and say which executor it is if not."""
    try:
        client.topics(timeout=min(load.timeout, _CONNECT_S))
    except Disconnected as error:
        endpoints = ", ".join(load.endpoints)
        text = f"the Spark executor on {socket.gethostname()} reaches no broker at {endpoints}: {error}"
        raise Disconnected(text) from error


def named(rows: pa.RecordBatch) -> str:
    """Return what a person finds the first of these rows by, wherever Spark has moved it: its key and payload."""
    known = [
        f"{name} {_shown(rows.column(name)[0].as_py())}"
        for name in (KEY, PAYLOAD)
        if name in rows.schema.names
    ]
    return f" ({', '.join(known)})"


def _shown(value: bytes | None) -> str:
    return "null" if value is None else repr(value[:_SHOWN_BYTES].decode(errors="replace"))


def news(
    task: int,
    partition: int = -1,
    rows: int = 0,
    deduplicated: int = 0,
    keys: list[str | None] | None = None,
    ids: list[str] | None = None,
    refusal: str | None = None,
    why: str | None = None,
) -> pa.RecordBatch:
    """Return one row of news (NEWS_SCHEMA)."""
    values = [task, partition, rows, deduplicated, keys or [], ids or [], refusal, why, None, None, None]
    arrays = [pa.array([value], field.type) for value, field in zip(values, _NEWS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_NEWS)
