"""The report of a load, put together from the news of its tasks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import dueq.errors
from dueq.errors import Refused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row


@dataclass
class ScheduleReport:
    """The results of a call of `schedule`.

    Attributes:
        rows: rows of the DataFrame.
        messages: rows that are messages now, committed by the mesh; without rejected rows equal to `rows`.
        deduplicated: those of them that an earlier call with the same job id had scheduled.
        per_partition: messages by number of the topic's partition, from 0; those of a job that was complete
            before are not told apart.
        seconds: how long it took.
        job_id: the job's name: `client.job(topic, job_id)`, `client.cancel_job(topic, job_id)`.
        rejected_rows: rows that could not be messages.
        rejected: those rows, with `on_error="collect"`: `spark_partition`, `place` (of the row in it, from 0, in the
            order of sending), `reason`, `row` (the whole row as JSON).
        ids: message ids by key, when asked for.
    """

    rows: int = 0
    messages: int = 0
    deduplicated: int = 0
    per_partition: dict[int, int] = field(default_factory=dict)
    seconds: float = 0.0
    job_id: str = ""
    rejected_rows: int = 0
    rejected: DataFrame | None = None
    ids: dict[str, str] = field(default_factory=dict)

    def add(self, news: Iterable[Row]) -> None:
        """Take up the news of all tasks.

        Raises:
            DueqError: of the class and with the text that a task reported.
        """
        refusals: list[tuple[str, str]] = []
        for row in news:
            if row.refusal is not None:
                refusals.append((row.refusal, row.why))
                continue
            self.rows += row.rows
            self.messages += row.rows
            self.deduplicated += row.deduplicated
            if row.partition >= 0:
                self.per_partition[row.partition] = self.per_partition.get(row.partition, 0) + row.rows
            self.ids.update((key, text) for key, text in zip(row.keys, row.ids, strict=True) if key)
        self.per_partition = dict(sorted(self.per_partition.items()))
        if refusals:
            name, why = refusals[0]
            more = f"; {len(refusals) - 1} further tasks were refused too" if len(refusals) > 1 else ""
            raise getattr(dueq.errors, name, Refused)(f"{why}{more}")
