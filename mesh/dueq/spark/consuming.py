"""`spark.readStream.format("dueq")`: due messages, acknowledged when their micro-batch is committed.

**Where the leases are.** With one consumer, in the process that Spark runs beside the driver for this source. It
reads messages for a micro-batch and hands the rows over; executors hold nothing. While a micro-batch is under way its
leases are extended again and again. When Spark has committed the micro-batch, its messages are acknowledged.

**Guarantee: at least once.** If anything happens before the acknowledgement (a task fails for good, the query is
stopped, the driver dies), the messages come again in a later micro-batch, with `attempt` raised. So a micro-batch
that Spark repeats after a restart is empty: its messages were never acknowledged, and follow. A sink that must not
see a message twice keeps `id`; of two writers of one message the one with the higher `token` is the right one.

The offset is the number of the micro-batch; it names nothing in the mesh.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import SimpleDataSourceStreamReader

from dueq import Client, ids, limits
from dueq.client.logs import log
from dueq.client.numbered import mesh_time_ms
from dueq.errors import DueqError, StaleLease
from dueq.spark.loading import reach, topic_of
from dueq.spark.options import Options
from dueq.spark.rows import ARROW_SCHEMA

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:  # before Spark 4.2 such a query is one micro-batch

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Nothing that this Spark asks for."""


if TYPE_CHECKING:
    from dueq.client.sync import Message

OPTIONS: Final = ("topic", "endpoints", "max_messages", "lease", "wait", "order_slack")
_EXTENDS_PER_LEASE: Final = 3
_EXTENDED_BELOW: Final = 2 / _EXTENDS_PER_LEASE
"""The part of its lease that a message has left when it is taken: leases are extended within half of that."""
_WAIT_S: Final = 0.2
_LAST_WAIT_S: Final = 3.0
"""Wait for a further message, in a query that takes the present messages and ends."""


@dataclass(frozen=True)
class Consumption:
    """The source of a query.

    Attributes:
        topic: its name.
        endpoints: brokers.
        max_messages: of one micro-batch at most.
        lease_s: how long a lease lasts if this process dies.
        wait_s: how long to wait for a first message before telling Spark that there is none.
        slack_s: how long to hold a message back for others that are due earlier; None: messages are handed on as
            they come.
    """

    topic: str
    endpoints: tuple[str, ...]
    max_messages: int
    lease_s: float
    wait_s: float
    slack_s: float | None

    @classmethod
    def of(cls, options: Options) -> Consumption:
        """Read the options.

        Raises:
            InvalidRequest: one is missing or malformed.
        """
        slack = options.text("order_slack")
        return cls(
            options.needed("topic"),
            options.endpoints(),
            options.whole("max_messages", 4096, 1, limits.MICRO_BATCH_MESSAGES_MAX),
            options.seconds("lease", 60.0, 1.0, 12 * 3600.0),
            options.seconds("wait", _WAIT_S, 0.0, 60.0),
            options.seconds("order_slack", 0.0, 0.0, 60.0) if slack else None,
        )


class ConsumingReader(SimpleDataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Numbers micro-batches, and holds the leases of those that are under way.

    Args:
        what: the query's consumption. Nothing is connected before the first read: Spark makes readers that it never
            reads from.
    """

    def __init__(self, what: Consumption) -> None:
        self._what = what
        self._leases: Leases | None = None
        self._until_ms: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_what": self._what, "_leases": None, "_until_ms": None}

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """Return the offset before the first micro-batch."""
        return {"batch": 0}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Take what is due by now, and then end."""
        self._until_ms = self._live().now_ms()

    def read(self, start: dict[str, int]) -> tuple[Iterator[Any], dict[str, int]]:
        """Return the messages of the next micro-batch, and its offset; without messages `start` itself.

        Raises:
            DueqError: the topic is not there, or no broker can be reached at the beginning.
        """
        leases, number = self._live(), start["batch"] + 1
        # Spark asks for what follows a micro-batch when that is in its log of commits. It says so (`commit`) only
        # when there is a next one: the last messages of a quiet topic would stay leased, and come twice in the end.
        leases.settle(start["batch"])
        rows = leases.take(number, self._until_ms)
        if rows is None:
            return iter(()), start
        return iter([rows]), {"batch": number}

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[Any]:  # noqa: N802
        """Return nothing: what a micro-batch of an earlier process held comes again by itself."""
        return iter(())

    def commit(self, end: dict[str, int]) -> None:
        """Acknowledge what the micro-batches up to this one held."""
        if self._leases is not None:
            self._leases.settle(end["batch"])

    def _live(self) -> Leases:
        if self._leases is None:
            self._leases = Leases(self._what)
            # Spark does not tell a simple reader that the query has ended; it drops it, or ends the process.
            weakref.finalize(self, self._leases.close)
        return self._leases


class Leases:
    """A consumer, and the messages of micro-batches that are not committed yet.

    Args:
        what: the query's consumption.

    Raises:
        Disconnected: no broker can be reached.
        TopicNotFound: there is no such topic.
    """

    def __init__(self, what: Consumption) -> None:
        self._what = what
        self._client = Client(what.endpoints)
        reach(self._client, what.endpoints)
        self._index = self._placed()
        # Twice the messages of a micro-batch: the next one comes while this one is worked on.
        credit = 2 * what.max_messages
        self._consumer = self._client.consumer(what.topic, lease=what.lease_s, credit=credit)
        self._held: list[Message] = []
        self._lock = threading.Lock()
        self._under_way: dict[int, tuple[list[Message], pa.RecordBatch]] = {}
        self._ended = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="dueq-leases", daemon=True)
        self._keeper.start()

    def now_ms(self) -> int:
        """Mesh time."""
        return mesh_time_ms(self._client)

    def take(self, number: int, until_ms: int | None) -> pa.RecordBatch | None:
        """Receive the messages of a micro-batch; asked again, return the same.

        Args:
            number: of the micro-batch.
            until_ms: give back messages that are due later, Unix ms; None: none.

        Returns:
            The rows; None when there are no messages.
        """
        with self._lock:
            known = self._under_way.get(number)
        if known is not None:
            return known[1]
        messages = self._receive(until_ms)
        if not messages:
            return None
        rows = self._rows(messages)
        with self._lock:
            self._under_way[number] = messages, rows
        return rows

    def settle(self, number: int) -> None:
        """Acknowledge the messages of all micro-batches up to this one."""
        with self._lock:
            done = [self._under_way.pop(batch)[0] for batch in sorted(self._under_way) if batch <= number]
        for messages in done:
            try:
                self._consumer.ack(messages)
            except StaleLease as error:
                log.warning("spark.leases_over", topic=self._what.topic, error=str(error))
            except DueqError as error:
                # The client goes on repeating it; if it is lost the messages come again, which is allowed.
                log.warning("spark.ack_unknown", topic=self._what.topic, error=repr(error))

    def close(self) -> None:
        """Have what is under way delivered again (counted: the sink may have it), give the rest back."""
        self._ended.set()
        with self._lock:
            left = [message for messages, _ in self._under_way.values() for message in messages]
            self._under_way.clear()
        with suppress(DueqError):
            if left:
                self._consumer.nack(left, timeout=2.0)
        with suppress(DueqError):
            self._consumer.close(2.0)
        self._client.close()

    # -------------------------------------------------------------- inside

    def _receive(self, until_ms: int | None) -> list[Message]:
        what = self._what
        wait_s = what.wait_s if until_ms is None else _LAST_WAIT_S
        while True:
            found = list(self._held)
            later: list[Message] = []
            give_up = time.monotonic() + wait_s
            while len(found) < what.max_messages:
                rest_s = 0.0 if found else max(give_up - time.monotonic(), 0.0)
                batch = self._consumer.receive(what.max_messages - len(found), rest_s)
                if not batch:
                    break
                # What came while the micro-batch before was worked on may be nearly over.
                aged = [message for message in batch if message.lease < what.lease_s * _EXTENDED_BELOW]
                if aged:
                    self._consumer.extend(aged, what.lease_s, wait=False)
                # What is due later may come before what is not, of another partition. Given back at once it would
                # come again at once.
                later += [message for message in batch if until_ms is not None and _since(message) > until_ms]
                found += [message for message in batch if until_ms is None or _since(message) <= until_ms]
            if later:
                self._give_back(later)
            if what.slack_s is None:
                return found
            found = [message for message in found if not message.lost]
            found.sort(key=lambda message: (message.due, message.id))
            ripe_ms = self.now_ms() - int(what.slack_s * 1000)
            self._held = [message for message in found if message.due > ripe_ms]
            ripe = found[: len(found) - len(self._held)]
            # Without a message Spark would take a query for ended that takes what there is.
            if ripe or not self._held or until_ms is None:
                return ripe
            if self._ended.wait((self._held[-1].due - ripe_ms) / 1000):
                return []

    def _give_back(self, messages: list[Message]) -> None:
        try:
            self._consumer.release(messages)
        except DueqError as error:
            # They come again all the same: after their leases, which may have been over before.
            log.warning("spark.not_given_back", topic=self._what.topic, error=repr(error))

    def _placed(self) -> dict[int, int]:
        """The index of each partition by its uid."""
        placement = topic_of(self._client, self._what.topic).placement
        return {partition.uid: partition.index for partition in placement}

    def _rows(self, messages: list[Message]) -> pa.RecordBatch:
        uids = [ids.from_text(message.id).uid for message in messages]
        if not self._index.keys() >= {*uids}:  # partitions were added
            with suppress(DueqError):
                self._index = self._placed()
        columns = {
            "topic": [self._what.topic] * len(messages),
            "partition": [self._index.get(uid) for uid in uids],
            "id": [message.id for message in messages],
            "key": [message.key or None for message in messages],
            "due": [message.due * 1000 for message in messages],
            "waits_until": [None] * len(messages),
            "released_at": [message.released_at * 1000 for message in messages],
            "size": [len(message.payload) for message in messages],
            "attempt": [message.attempt for message in messages],
            "token": [message.token for message in messages],
            "payload": [bytes(message.payload) for message in messages],
            "rank": [message.rank for message in messages],
            "group": [message.group or None for message in messages],
            "version": [message.version for message in messages],
            "headers": [list(message.headers.items()) or None for message in messages],
        }
        return pa.RecordBatch.from_pydict(columns, schema=ARROW_SCHEMA)

    def _keep(self) -> None:
        """Extend the leases of what is under way, and of what is held back for longer than a lease, perhaps.

        Settling shares nothing with receiving but the client.
        """
        what = self._what
        while not self._ended.wait(what.lease_s / _EXTENDS_PER_LEASE):
            with self._lock:
                kept = [messages for messages, _ in self._under_way.values()]
            for messages in filter(None, (*kept, self._held)):
                try:
                    self._consumer.extend(messages, what.lease_s)
                except DueqError as error:
                    log.warning("spark.leases_not_extended", topic=what.topic, error=repr(error))


def _since(message: Message) -> int:
    """Return since when a message waits, Unix ms.

    One that was due when it was scheduled waits since then. The instant in an id stays as it is when its message is
    moved.
    """
    made = ids.from_text(message.id)
    return max(message.due, made.first) if message.version == made.sequence else message.due
