"""Which requests of a record take effect, and the answer that each of them gets.

A request takes effect once: one that is remembered gets the answer that it got then.
"""

from __future__ import annotations

import numpy as np

from dueq.core.state.answers import Answer
from dueq.core.state.applied import Applied, RequestResult
from dueq.core.state.dedup import Deduplication, Verdict
from dueq.core.state.live import Index
from dueq.core.state.side_tables import SideTables
from dueq_codecs.messages import Code
from dueq_codecs.records import U8, Record, RecordKind, RequestRef


class Judging:
    """The verdicts over the requests of one partition."""

    def __init__(self, tables: SideTables) -> None:
        self._tables = tables

    def judge(self, record: Record, age_ms: int) -> tuple[list[Verdict], Index | None]:
        """Decide which requests take effect, and so which rows (None: all of them).

        Args:
            record: the next one.
            age_ms: the partition's age.
        """
        of_job = bool(record.job) and record.kind == RecordKind.INSERT
        memory = self._memory(record.kind, record.job)
        refused = of_job and self._tables.jobs.refuses(record)
        code = Code.JOB_ENDED
        if not refused and record.shared and record.kind != RecordKind.BODY:
            refused, code = self._tables.bodies.refuses(record), Code.UNKNOWN_BODY
        verdicts = []
        row = 0
        for position, request in enumerate(record.requests):
            if refused:
                verdict = memory.recall(request) or Verdict(code, None, False)
            else:
                verdict = memory.judge(request, record, position, row, age_ms)
            verdicts.append(verdict)
            row += request.rows
        if not refused and all(verdict.fresh for verdict in verdicts):
            return verdicts, None
        fresh = [verdict.fresh for verdict in verdicts]
        return verdicts, np.flatnonzero(np.repeat(fresh, [request.rows for request in record.requests]))

    def answer(self, record: Record, verdicts: list[Verdict], outcomes: U8, applied: Applied) -> None:
        """Fill in the answers of what took effect, then answer every request."""
        memory = self._memory(record.kind, record.job)
        row = 0
        for request, verdict in zip(record.requests, verdicts, strict=True):
            if verdict.fresh and verdict.answer is not None:
                if len(outcomes):
                    memory.fill_in(request, verdict.answer, outcomes[row : row + request.rows])
                elif applied.met is not None:
                    memory.fill_in_met(request, verdict.answer, applied.met.of(row, row + request.rows))
            row += request.rows
        for request, (code, answer, fresh) in zip(record.requests, verdicts, strict=True):
            if answer is not None and not fresh and answer.sequence == record.sequence:
                answer = verdicts[answer.position].answer  # repeated within the record
            applied.results.append(_result(request, code, answer, repeated=not fresh))

    def answered(self, request: RequestRef, kind: RecordKind, job: bytes) -> RequestResult | None:
        """Return what a request was answered that has taken effect; None: it has not, or that is not remembered."""
        verdict = self._memory(kind, job).recall(request)
        if verdict is None or verdict.answer is None:
            return None
        return _result(request, verdict.code, verdict.answer, repeated=True)

    def _memory(self, kind: RecordKind, job: bytes) -> Deduplication:
        """Where the answers to such requests are remembered."""
        return self._tables.job_dedup if job and kind == RecordKind.INSERT else self._tables.dedup


def _result(request: RequestRef, code: Code, answer: Answer | None, *, repeated: bool) -> RequestResult:
    if answer is None:
        return RequestResult(request.client_id, request.sequence, code, 0, 0, 0)
    return RequestResult(
        request.client_id, request.sequence, code, answer.sequence, answer.row, answer.stamp, answer.outcomes, repeated,
        answer.window, answer.present,
    )  # fmt: skip
