"""Counts of the operations and messages in a history."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dueq_chaos.history.columns import I64, Bools, History, Table
from dueq_chaos.history.judging import Rules
from dueq_chaos.history.operations import FOREVER, Kind, Told


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of a history; messages, unless another thing is named.

    Attributes:
        seconds: from the first to the last line.
        clients: producers and consumers.
        calls: operations, as the clients called them.
        operations: rows of all of them: one message in one call.
        messages: ids that anybody was told or given.
        acknowledged: whose insert was confirmed.
        refused, unknown: rows of inserts.
        appeared: unknown ones that were delivered.
        moved, cancelled: confirmed.
        delivered: at least once.
        redelivered: deliveries beyond a message's first.
        acked: confirmed.
        pending: acknowledged, perhaps not cancelled, not delivered, and not yet missed.
        on_time: first deliveries that could be on time: inserted and moved before they were due.
        lateness_ms: their 50th and 99th percentile and maximum, by the mesh's clock; None without any.
        clocks_ms: the farthest that a client's wall clock was from the usual of its minute.
    """

    seconds: float
    clients: int
    calls: int
    operations: int
    messages: int
    acknowledged: int
    refused: int
    unknown: int
    appeared: int
    moved: int
    cancelled: int
    delivered: int
    redelivered: int
    acked: int
    pending: int
    on_time: int
    lateness_ms: tuple[float, float, float] | None
    clocks_ms: float


def count(history: History, listened_until: I64, rules: Rules, appeared: int) -> Counts:
    """Count.

    Args:
        history: all columns.
        listened_until: by topic, Unix µs.
        rules: the benefits of the doubt.
        appeared: messages that inserts of unknown outcome explain.
    """
    operations, inserts, deliveries = history.operations, history.inserts, history.deliveries
    acknowledged = _messages(history, inserts, Told.DONE)
    delivered = np.zeros(len(history.ids), bool)
    delivered[deliveries.message] = True
    cancelled = _messages(history, history.cancels, Told.DONE)
    perhaps = cancelled | _messages(history, history.cancels, Told.UNKNOWN)
    is_ack = operations.kind[history.settlings.operation] == Kind.ACK
    acked = np.zeros(len(history.ids), bool)
    acked[history.settlings.message[is_ack & (history.settlings.columns["told"] == Told.DONE)]] = True
    missed = _missed(history, listened_until, rules)
    late = _lateness_us(history)
    lateness = None
    if len(late):
        half, most = np.percentile(late, [50, 99])
        lateness = (float(half) / 1000, float(most) / 1000, float(late.max()) / 1000)
    tables = (inserts, history.moves, history.cancels, deliveries, history.settlings)
    first, last = (history.instants[0, 0], history.instants[-1, 0]) if len(history.instants) else (0, 0)
    return Counts(
        seconds=float(last - first) / 1e6,
        clients=len(history.clients),
        calls=int(np.sum(operations.kind != Kind.LOST)),
        operations=sum(len(table) for table in tables),
        messages=int((acknowledged | delivered).sum()),
        acknowledged=int(acknowledged.sum()),
        refused=int((inserts.columns["told"] == Told.REFUSED).sum()),
        unknown=int((inserts.columns["told"] == Told.UNKNOWN).sum()),
        appeared=appeared,
        moved=int(_messages(history, history.moves, Told.DONE).sum()),
        cancelled=int(cancelled.sum()),
        delivered=int(delivered.sum()),
        redelivered=len(deliveries) - int(delivered.sum()),
        acked=int(acked.sum()),
        pending=int((acknowledged & ~delivered & ~perhaps & ~missed & ~acked).sum()),
        on_time=len(late),
        lateness_ms=lateness,
        clocks_ms=history.clock.spread_us / 1000,
    )


def _messages(history: History, table: Table, told: Told) -> Bools:
    """Messages that have a row with this outcome."""
    found = np.zeros(len(history.ids), bool)
    rows = (table.columns["told"] == told) & (table.message >= 0)
    found[table.message[rows]] = True
    return found


def _missed(history: History, listened_until: I64, rules: Rules) -> Bools:
    """Messages due so early before the last consumer stopped that they had to come."""
    latest = np.full(len(history.ids), 1 << 60, np.int64)
    inserts = history.inserts
    known = inserts.message >= 0
    until = listened_until[history.operations.topic[inserts.operation[known]]] - rules.grace_us
    latest[inserts.message[known]] = inserts.columns["due"][known] * 1000
    moves = history.moves
    possible = np.isin(moves.columns["told"], (Told.DONE, Told.UNKNOWN))
    np.maximum.at(latest, moves.message[possible], moves.columns["due"][possible] * 1000)
    missed = np.zeros(len(history.ids), bool)
    missed[inserts.message[known]] = latest[inserts.message[known]] <= until
    return missed


def _lateness_us(history: History) -> I64:
    """Lateness of first deliveries of messages that were inserted and moved before they were due, µs."""
    operations, deliveries = history.operations, history.deliveries
    changed = np.full(len(history.ids), FOREVER, np.int64)
    done = history.inserts.message >= 0
    changed[history.inserts.message[done]] = operations.completed[history.inserts.operation[done]]
    np.maximum.at(changed, history.moves.message, operations.completed[history.moves.operation])
    first = (deliveries.columns["attempt"] == 1) & (changed[deliveries.message] != FOREVER)
    due_us = deliveries.columns["due"][first] * 1000
    released = deliveries.columns["released"][first]
    known_at = history.clock.wall(changed[deliveries.message[first]])
    return np.asarray((released - due_us)[known_at <= due_us], np.int64)
