"""Judges a whole history: columns sift out the few messages whose life needs to be looked at one by one.

A message that the sieve lets pass has exactly one acknowledged insert, at most one delivery (whole, and after the
latest due that may ever have been in force), no delivery if a cancel was confirmed, and an ack (or none of this, and is
pending, cancelled, or perhaps so). No rule of `judging` applies to such a message.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from dueq_chaos.history.columns import I64, Bools, History, Table
from dueq_chaos.history.counting import Counts, count
from dueq_chaos.history.judging import Judge, Rules, Verdict
from dueq_chaos.history.lives import Lives
from dueq_chaos.history.operations import FOREVER, Kind, Told


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that must not have happened.

    Attributes:
        verdict: which.
        message: number of the message.
        reason: a sentence.
    """

    verdict: Verdict
    message: int
    reason: str


@dataclass(slots=True)
class Judgement:
    """The result of a check.

    Attributes:
        rules: the benefits of the doubt that were given.
        findings: by verdict, in the order of message ids; one a message and verdict.
        counts: how much of what there was.
        examined: messages that were looked at one by one.
    """

    rules: Rules
    findings: dict[Verdict, list[Finding]]
    counts: Counts
    examined: int

    @property
    def clean(self) -> bool:
        """Nothing was found."""
        return not any(self.findings.values())


@dataclass
class Sieve:
    """Per message columns, computed once."""

    history: History
    rules: Rules
    listened_until: I64 = field(repr=False)
    """By topic: Unix µs until which somebody asked for its messages; -1 if nobody did."""

    def per_message(self, table: Table, rows: Bools | None = None) -> I64:
        """How many rows of a table (those that `rows` picks) each message has."""
        message = table.message if rows is None else table.message[rows]
        return np.bincount(message[message >= 0], minlength=len(self.history.ids)).astype(np.int64)

    def with_told(self, table: Table, *told: Told) -> Bools:
        """Rows with one of these outcomes."""
        return np.isin(table.columns["told"], told)

    @cached_property
    def due_max(self) -> I64:
        """The latest due, Unix ms, that may ever have been in force; -1 without an insert."""
        history = self.history
        latest = np.full(len(history.ids), -1, np.int64)
        for table in (history.inserts, history.moves):
            rows = self.with_told(table, Told.DONE, Told.UNKNOWN) & (table.message >= 0)
            np.maximum.at(latest, table.message[rows], table.columns["due"][rows])
        return latest

    @cached_property
    def suspects(self) -> I64:
        """Numbers of the messages that need to be looked at one by one, ascending."""
        history = self.history
        inserted = self.per_message(history.inserts)
        delivered = self.per_message(history.deliveries)
        cancelled = self.per_message(history.cancels, self.with_told(history.cancels, Told.DONE))
        perhaps_cancelled = self.per_message(
            history.cancels, self.with_told(history.cancels, Told.DONE, Told.UNKNOWN)
        )
        is_ack = history.operations.kind[history.settlings.operation] == Kind.ACK
        perhaps_acked = self.per_message(
            history.settlings, is_ack & self.with_told(history.settlings, Told.DONE, Told.UNKNOWN)
        )
        acked = self.per_message(history.settlings, is_ack & self.with_told(history.settlings, Told.DONE))
        overdue = self.due_max * 1000 <= self._listened() - self.rules.grace_us
        unfinished = (perhaps_cancelled == 0) & (perhaps_acked == 0) & overdue
        wrong = (
            ((inserted != 1) & (delivered + inserted > 0))
            | (delivered > 1)
            | ((delivered > 0) & (cancelled > 0))
            | (unfinished & (inserted > 0))
            | ((acked > 0) & (cancelled > 0) & (delivered > 0))
        )
        wrong[history.deliveries.message[self._doubtful_deliveries(inserted)]] = True
        return np.flatnonzero(wrong)

    def _doubtful_deliveries(self, inserted: I64) -> Bools:
        """Deliveries that are damaged, or before the latest due that may have been in force."""
        history = self.history
        rows = history.deliveries
        due_us = self.due_max[rows.message] * 1000
        received = history.clock.wall(history.operations.completed[rows.operation])
        doubtful = (rows.columns["released"] < due_us) | (received < due_us - self.rules.clock_us)
        known = history.inserts.message >= 0
        payload = np.zeros((len(history.ids), 2), np.int64)
        for place, name in enumerate(("crc", "size")):
            payload[history.inserts.message[known], place] = history.inserts.columns[name][known]
            doubtful |= payload[rows.message, place] != rows.columns[name]
        return np.asarray(doubtful & (inserted[rows.message] > 0))

    def _listened(self) -> I64:
        """By message: until when somebody asked for messages of its topic."""
        inserts = self.history.inserts
        topic = np.full(len(self.history.ids), 0, np.int64)
        known = inserts.message >= 0
        topic[inserts.message[known]] = self.history.operations.topic[inserts.operation[known]]
        return self.listened_until[topic] if len(self.listened_until) else topic


def listened_until(history: History) -> I64:
    """By topic: Unix µs until which somebody asked for its messages; far in the past if nobody did."""
    operations = history.operations
    receives = operations.kind == Kind.RECEIVE
    ends = np.where(operations.completed == FOREVER, operations.invoked, operations.completed)[receives]
    until = np.full(len(history.topics), -(1 << 60), np.int64)
    np.maximum.at(until, operations.topic[receives], history.clock.wall(ends))
    return until


def check(history: History, rules: Rules | None = None, *, thorough: bool = False) -> Judgement:
    """Judge a history.

    Args:
        history: of all clients.
        rules: the benefits of the doubt; None for the defaults.
        thorough: look at every message one by one (slow; the findings are the same).
    """
    rules = rules or Rules()
    until = listened_until(history)
    sieve = Sieve(history, rules, until)
    lives = Lives(history, rules, until)
    judge = Judge(rules, lives.alive_until, lives.closed_at)
    findings: dict[Verdict, list[Finding]] = {verdict: [] for verdict in Verdict}
    suspects: Sequence[int] = range(len(history.ids)) if thorough else sieve.suspects.tolist()
    for message in suspects:
        life = lives.life(message)
        if not life.inserts and not life.deliveries:
            continue  # a client asked for an id that never existed, and was told so
        reasons: dict[Verdict, list[str]] = defaultdict(list)
        for verdict, reason in judge.verdicts(life):
            reasons[verdict].append(reason)
        for verdict, several in reasons.items():
            more = f" (and {len(several) - 1} more)" if len(several) > 1 else ""
            findings[verdict].append(Finding(verdict, message, several[0] + more))
    counts = count(history, until, rules, lives.explained)
    return Judgement(rules, findings, counts, len(suspects))
