"""Browsing against a naive twin: after any traffic, what the pages show is exactly what waits."""

from __future__ import annotations

from random import Random

import pytest

from dueq_chaos.scenarios.hand import Browsed, Request, Stored
from dueq_chaos.scenarios.stage import Stage
from dueq_codecs.records import Outcome, RecordKind

_FAR_MS = 3_600_000


class Traffic:
    """Random changes of one partition, one after the other, and what they must come to.

    Attributes:
        waiting: by (sequence, row): (wait_at, payload).
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.stage = Stage(seed=seed, hot_rows_total=12, log_retain_bytes=2_000)
        self.hand = self.stage.hand("producer")
        self.known: list[Stored] = []
        self.waiting: dict[tuple[int, int], tuple[int, bytes]] = {}

    def step(self) -> None:
        """One change, until it is answered."""
        kind = self.random.choice(("insert", "insert", "move", "cancel", "lead", "rest"))
        if kind == "insert":
            self.insert()
        elif kind == "lead":
            if self.random.random() < 0.2:
                self.change_leader()
        elif kind == "rest":
            self.stage.run_ms(self.random.choice((1, 50, 2_100)))
        elif self.known:
            chosen = self.random.sample(self.known, min(len(self.known), self.random.randint(1, 5)))
            self.move(chosen) if kind == "move" else self.cancel(chosen)

    def insert(self) -> None:
        rows = self.random.randint(1, 8)
        payloads = [self.random.randbytes(self.random.choice((0, 3, 900, 40_000))) for _ in range(rows)]
        dues = [self.stage.now_ms + _FAR_MS + self.random.randint(0, 40) for _ in range(rows)]
        for stored in self.stage.stored(*payloads, dues=dues):
            self.known.append(stored)
            self.waiting[stored.sequence, stored.row] = stored.first, stored.payload

    def move(self, chosen: list[Stored]) -> None:
        dues = [self.stage.now_ms + _FAR_MS + self.random.randint(0, 40) for _ in chosen]
        request = self.settled(self.hand.move(self.stage.leader, chosen, dues))
        for stored, due, outcome in zip(chosen, dues, request.outcomes, strict=True):
            key = stored.sequence, stored.row
            assert (outcome is Outcome.DONE) == (key in self.waiting)
            if outcome is Outcome.DONE:
                self.waiting[key] = due, stored.payload

    def cancel(self, chosen: list[Stored]) -> None:
        request = self.settled(self.hand.cancel(self.stage.leader, chosen))
        for stored, outcome in zip(chosen, request.outcomes, strict=True):
            assert (outcome is Outcome.DONE) == ((stored.sequence, stored.row) in self.waiting)
            self.waiting.pop((stored.sequence, stored.row), None)

    def settled(self, request: Request) -> Request:
        assert request.change.kind in (RecordKind.MOVE, RecordKind.CANCEL)
        return self.stage.settled(self.hand, request)

    def change_leader(self) -> None:
        gone = self.stage.leader
        self.stage.nodes[gone].crash()
        self.stage.until(lambda: self.stage.leader_of(self.stage.uid), "a leader")
        self.stage.nodes[gone].start()
        self.stage.until(self.stage.whole, "a whole mesh")

    def look(self) -> None:
        """Browse a random range in pages of a random length, and compare."""
        instants = sorted(wait_at for wait_at, _ in self.waiting.values()) or [1]
        start = self.random.choice((0, self.random.choice(instants)))
        end = self.random.choice((0, self.random.choice(instants)))
        limit, payloads = self.random.choice((1, 2, 7, 1024)), self.random.random() < 0.5
        broker = self.random.choice(self.stage.names)
        found = self.stage.browsed(
            self.stage.hand("reader"), broker, from_ms=start, until_ms=end, limit=limit, payloads=payloads
        )
        expected = sorted(
            (wait_at, *key, payload)
            for key, (wait_at, payload) in self.waiting.items()
            if start <= wait_at and (not end or wait_at < end)
        )
        assert [shown(row) for row in found] == [
            (wait_at, sequence, row, len(payload), payload if payloads else b"")
            for wait_at, sequence, row, payload in expected
        ]


def shown(row: Browsed) -> tuple[int, int, int, int, bytes]:
    return row.wait_at, row.sequence, row.row, row.size, row.body


@pytest.mark.parametrize("seed", range(6))
def test_browsing_shows_exactly_what_waits(seed: int) -> None:
    traffic = Traffic(seed)
    for step in range(60):
        traffic.step()
        if step % 5 == 0:
            traffic.look()
    traffic.look()
    assert traffic.waiting
    traffic.stage.finish()
