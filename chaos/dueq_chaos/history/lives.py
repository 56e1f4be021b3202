"""Puts one message's rows together to a `Life`; recognises inserts of unknown outcome by their payload."""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property

import numpy as np

from dueq_chaos.history.columns import I64, History, Table
from dueq_chaos.history.judging import Change, Delivery, Life, Rules, Settling
from dueq_chaos.history.operations import FOREVER, Kind, Told

_Payload = tuple[int, int]


class Lives:
    """Lives of messages, made on demand.

    Args:
        history: all columns.
        rules: the benefits of the doubt.
        listened_until: by topic, Unix µs.
    """

    def __init__(self, history: History, rules: Rules, listened_until: I64) -> None:
        self._history, self._rules, self._listened_until = history, rules, listened_until
        self._closed = {
            int(history.operations.client[number]): int(history.operations.invoked[number])
            for number in np.flatnonzero(history.operations.kind == Kind.CLOSE).tolist()
        }
        self._runs: dict[int, tuple[I64, I64]] = {}

    def life(self, message: int) -> Life:
        """All that is known of one message."""
        history = self._history
        inserts = [self._change(history.inserts, row) for row in history.inserts.rows_of(message)]
        known = bool(inserts)
        if not known:
            inserts = self._explanations.get(message, [])
        topic = int(history.operations.topic[inserts[0].operation]) if inserts else 0
        return Life(
            message=message,
            known=known,
            inserts=inserts,
            moves=[self._change(history.moves, row) for row in history.moves.rows_of(message)],
            cancels=[self._change(history.cancels, row) for row in history.cancels.rows_of(message)],
            deliveries=[self._delivery(row) for row in history.deliveries.rows_of(message)],
            settlings=[self._settling(row) for row in history.settlings.rows_of(message)],
            listened_until_us=int(self._listened_until[topic]) if len(self._listened_until) else 0,
        )

    @property
    def explained(self) -> int:
        """Messages under an id that no client was told, which an insert of unknown outcome explains."""
        return len(self._explanations)

    # ------------------------------------------------------------ clients

    def alive_until(self, client: int, since: int) -> int:
        """How long a client went on to write lines, from an instant on, without a silence; µs."""
        if client not in self._runs:
            operations = self._history.operations
            mine = operations.client == client
            both = np.concatenate([operations.invoked[mine], operations.completed[mine]])
            lines = np.unique(both[both != FOREVER])
            silent = np.append(np.diff(lines) > self._rules.silence_us, True)
            ends = lines[silent]
            self._runs[client] = (lines, ends)
        lines, ends = self._runs[client]
        last = int(np.searchsorted(lines, since, side="right")) - 1
        if last < 0:
            return since
        return int(ends[np.searchsorted(ends, lines[last])])

    def closed_at(self, client: int) -> int:
        """When a client began to close, µs; FOREVER if it never did."""
        return self._closed.get(client, FOREVER)

    # ------------------------------------------------------------ ids that nobody was told

    @cached_property
    def _explanations(self) -> dict[int, list[Change]]:
        """Inserts of unknown outcome, by the message under whose id they may have come to light.

        Each insert stands for one message at most. Within one payload the earliest insert goes to the message that
        came first, which explains as many as can be explained.
        """
        history = self._history
        nameless = (history.inserts.message < 0) & (history.inserts.columns["told"] == Told.UNKNOWN)
        if not nameless.any():
            return {}
        unknown: dict[_Payload, list[Change]] = defaultdict(list)
        for row in np.flatnonzero(nameless).tolist():
            change = self._change(history.inserts, row)
            unknown[change.crc, change.size].append(change)
        told = np.zeros(len(history.ids), bool)
        told[history.inserts.message[history.inserts.message >= 0]] = True
        strange: dict[int, Delivery] = {}
        for row in np.flatnonzero(~told[history.deliveries.message]).tolist():
            delivery = self._delivery(row)
            message = int(history.deliveries.message[row])
            if message not in strange or delivery.released < strange[message].released:
                strange[message] = delivery
        found: dict[int, list[Change]] = {}
        taken: dict[_Payload, int] = defaultdict(int)
        for candidates in unknown.values():
            candidates.sort(key=lambda change: change.invoked)
        for message, delivery in sorted(strange.items(), key=lambda item: item[1].released):
            payload = delivery.crc, delivery.size
            candidates = unknown.get(payload, [])
            begun = [c for c in candidates if c.invoked <= delivery.released + self._rules.clock_us]
            if taken[payload] < len(begun):
                taken[payload] += 1
                found[message] = begun  # which of them it was cannot be told
        return found

    # ------------------------------------------------------------ rows

    def _change(self, table: Table, row: int) -> Change:
        operations, number = self._history.operations, int(table.operation[row])
        columns = table.columns
        payload = (int(columns["crc"][row]), int(columns["size"][row])) if "crc" in columns else (0, 0)
        told = Told(int(columns["told"][row]))
        return Change(
            kind=Kind(int(operations.kind[number])),
            client=int(operations.client[number]),
            invoked=int(operations.invoked[number]),
            completed=FOREVER if told is Told.UNKNOWN else int(operations.completed[number]),
            told=told,
            operation=number,
            due_us=int(columns["due"][row]) * 1000 if "due" in columns else 0,
            crc=payload[0],
            size=payload[1],
        )

    def _delivery(self, row: int) -> Delivery:
        history, table = self._history, self._history.deliveries
        number = int(table.operation[row])
        received = int(history.operations.completed[number])
        value = {name: int(column[row]) for name, column in table.columns.items()}
        return Delivery(
            client=int(history.operations.client[number]),
            received=received,
            released=int(self._released[row]),
            released_us=value["released"],
            received_us=int(history.clock.wall(np.array([received]))[0]),
            due_us=value["due"] * 1000,
            token=value["token"],
            attempt=value["attempt"],
            lease_until=received + value["lease_ms"] * 1000,
            crc=value["crc"],
            size=value["size"],
            operation=number,
        )

    def _settling(self, row: int) -> Settling:
        operations, table = self._history.operations, self._history.settlings
        number = int(table.operation[row])
        told = Told(int(table.columns["told"][row]))
        return Settling(
            kind=Kind(int(operations.kind[number])),
            client=int(operations.client[number]),
            invoked=int(operations.invoked[number]),
            completed=FOREVER if told is Told.UNKNOWN else int(operations.completed[number]),
            told=told,
            operation=number,
            token=int(table.columns["token"][row]),
            amount_us=int(operations.amount_ms[number]) * 1000,
        )

    @cached_property
    def _released(self) -> I64:
        return self._history.clock.mono(self._history.deliveries.columns["released"])
