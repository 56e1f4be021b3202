"""Rows in an order that does not depend on chance.

A task that Spark runs again must make the same requests. It does if its rows come in the same order each time. Rows
that are read from files or made of local data do, as long as only projections and filters follow. Rows that come
through a shuffle do not: which block arrives first is chance. Those are sorted inside their partition; rows that are
equal in all that is sent are interchangeable. No order helps against values that Spark computes again each time
(`rand`, `uuid`, `current_timestamp` in another call).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dueq.spark.columns import DUE, GROUP, KEY, PAYLOAD, RANK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SAME_EACH_TIME: Final = (
    "LocalTableScan", "Range", "Scan parquet", "Scan csv", "Scan json", "Scan orc", "Scan text", "FileScan",
    "BatchScan parquet", "BatchScan csv", "BatchScan json", "BatchScan orc",
    "Project", "Filter", "WholeStageCodegen", "InputAdapter", "ColumnarToRow", "Union", "Coalesce",
    "Generate", "Expand", "OneRowRelation",
)  # fmt: skip
"""Beginnings of the names of physical plan nodes that give the same rows in the same order in each attempt."""


def in_settled_order(frame: DataFrame) -> DataFrame:
    """Return the rows in an order that is the same in each attempt of a task; sorted only where it must be."""
    return frame if _comes_in_order(frame) else _sorted(frame)


def in_settled_places(frame: DataFrame, buckets: int) -> DataFrame:
    """Return the rows in partitions and an order that follow from the rows alone.

    So another Spark job makes the same requests of them, even on another cluster and over files that are cut
    differently.

    Args:
        frame: as `MessageColumns.checked` returns it.
        buckets: Spark partitions; must be the same each time.
    """
    return _sorted(frame.repartition(buckets, *_sent(frame)))


def _sorted(frame: DataFrame) -> DataFrame:
    return frame.sortWithinPartitions(*_sent(frame))


def _sent(frame: DataFrame) -> list[str]:
    return [name for name in (DUE, KEY, PAYLOAD, RANK, GROUP) if name in frame.columns]


def _comes_in_order(frame: DataFrame) -> bool:
    """Whether every node of the physical plan is known; behind Spark Connect it cannot be seen."""
    java: Any = getattr(frame, "_jdf", None)
    return java is not None and _known(java.queryExecution().executedPlan())


def _known(plan: Any) -> bool:
    name = plan.nodeName()
    if not name.startswith(_SAME_EACH_TIME):
        return False
    children = plan.children()
    return all(_known(children.apply(place)) for place in range(children.size()))
