"""`spark.read.format("dueq")`: what waits, one Spark partition per partition of the topic, nothing consumed.

Each partition is read from one snapshot of its leader. When the snapshot is lost (its leader is) the task fails and
Spark repeats it, from a new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from dueq import Client
from dueq.client.arrow_pages import batch_of
from dueq.limits import DUE_MS_MAX
from dueq.spark.loading import reach, topic_of
from dueq.spark.options import Options
from dueq.spark.rows import ARROW_SCHEMA

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

    from dueq.client.browsing import BrowsePage

OPTIONS: Final = ("topic", "endpoints", "payloads", "start", "end", "timeout", "pushdown")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


@dataclass(frozen=True)
class Range:
    """The range to read.

    Attributes:
        topic: its name.
        endpoints: brokers.
        timeout: seconds for each page.
        payloads: whether payloads are read too.
        start, end: messages that wait until start ≤ instant < end, Unix ms; None: no bound.
        partitions: places of the topic's partitions; None: all.
    """

    topic: str
    endpoints: tuple[str, ...]
    timeout: float
    payloads: bool = False
    start: int | None = None
    end: int | None = None
    partitions: frozenset[int] | None = None

    @classmethod
    def of(cls, options: Options) -> Range:
        """Read the options.

        Raises:
            InvalidRequest: one is missing or malformed.
        """
        return cls(
            options.needed("topic"),
            options.endpoints(),
            options.seconds("timeout", 60.0, 0.1, 86_400),
            options.flag("payloads", False),
            options.instant("start"),
            options.instant("end"),
        )

    def within(self, start: int | None = None, end: int | None = None) -> Range:
        """Return the part of it from `start` on and before `end` (Unix ms; None: no bound)."""
        if start is not None:
            start = max(start, self.start or 0)
        if end is not None:
            end = min(end, DUE_MS_MAX if self.end is None else self.end)
        return replace(
            self, start=self.start if start is None else start, end=self.end if end is None else end
        )


class BrowsingReader(DataSourceReader):  # type: ignore[misc]
    """Reads pages; made on the driver, travels to the executors.

    Args:
        what: the range.

    Raises:
        Disconnected: no broker can be reached from the driver.
        TopicNotFound: there is no such topic.
    """

    def __init__(self, what: Range) -> None:
        self._what = what
        with Client(what.endpoints, timeout=what.timeout) as client:
            reach(client, what.endpoints)
            self._count = topic_of(client, what.topic).partitions

    def partitions(self) -> list[InputPartition]:
        """Return one task per partition of the topic."""
        wanted = self._what.partitions
        return [InputPartition(place) for place in range(self._count) if wanted is None or place in wanted]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one partition of the topic.

        Raises:
            SnapshotLost: the leader is gone, or 30 seconds passed between two pages.
        """
        what = self._what
        if partition.value is None:
            return  # Spark's own, where no partition of the topic fits the conditions
        with Client(what.endpoints, timeout=what.timeout) as client:
            pages = client.browse_pages(
                what.topic, partition.value, start=what.start, end=what.end, payloads=what.payloads
            )
            for page in pages:
                if len(page):
                    yield rows_of(page)


class FilteringReader(BrowsingReader):
    """Also takes a query's conditions as far as it can, so that only pages that may match are read."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Narrow the range; Spark still checks every condition, as instants here are whole milliseconds."""
        for condition in filters:
            self._narrow(condition)
        return filters

    def _narrow(self, condition: Any) -> None:
        kind, names = type(condition).__name__, getattr(condition, "attribute", ())
        value: Any = getattr(condition, "value", None)
        if names == ("partition",) and kind in ("EqualTo", "In"):
            chosen = frozenset(value if kind == "In" else (value,))
            known = self._what.partitions
            self._what = replace(self._what, partitions=chosen if known is None else chosen & known)
        elif names in (("waits_until",), ("due",)) and isinstance(value, datetime):
            # Nothing is ready before it is due: from `due` follows a bound on one side only.
            at_ms = (value - _EPOCH) // _MILLISECOND
            if kind in ("GreaterThan", "GreaterThanOrEqual", "EqualTo"):
                self._what = self._what.within(start=max(at_ms, 0))
            if names == ("waits_until",) and kind in ("LessThan", "LessThanOrEqual", "EqualTo"):
                self._what = self._what.within(end=min(max(at_ms + 1, 0), DUE_MS_MAX))


def rows_of(page: BrowsePage) -> pa.RecordBatch:
    """Return a page as rows of `dueq.spark.rows.ARROW_SCHEMA`."""
    batch = batch_of(page)
    known = set(batch.schema.names)
    columns = [
        batch.column(field.name) if field.name in known else pa.nulls(len(page), field.type)
        for field in ARROW_SCHEMA
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ARROW_SCHEMA)
