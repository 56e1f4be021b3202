"""One live message in the reference, and the effects of a record."""

from __future__ import annotations

from dataclasses import dataclass, field

from dueq.core.ports.entry import State
from dueq_chaos.sim.reference.naive_memory import Met
from dueq_codecs.messages import Code

Result = tuple[bytes, int, Code, int, int, int, list[int], bool, list[int], list[Met]]
"""The answer to a request: client, number, code, sequence, row, stamp, outcomes, repeated, windows, messages met."""


@dataclass(slots=True)
class NaiveEntry:
    """One live message; the fields of `FULL`."""

    first: int
    due: int
    sequence: int
    row: int
    size: int
    crc: int
    place: int
    block_rows: int
    flags: int
    job: int
    state: State = State.WAITING
    wait_at: int = 0
    token: int = 0
    attempt: int = 0
    lease_ms: int = 0
    consumer: bytes = bytes(16)
    rank: int = 0
    group: int = 0
    version: int = 0
    recurrence: int = 0
    key_high: int = 0
    key_low: int = 0
    expires: int = 0
    body: int = 0
    died_at: int = 0
    remark: int = 0
    attempts_max: int = 0

    def columns(self) -> tuple[int, ...]:
        """Return the fields in the order of `FULL`."""
        high, low = int.from_bytes(self.consumer[:8], "big"), int.from_bytes(self.consumer[8:], "big")
        return (
            self.wait_at, self.first, self.due, self.sequence, self.token, self.place, high, low, self.size, self.crc,
            self.lease_ms, self.row, self.attempt, self.block_rows, int(self.state), self.flags, self.job,
            self.rank, self.group, self.version, self.recurrence, self.key_high, self.key_low, self.expires, self.body,
            self.died_at, self.remark, self.attempts_max,
        )  # fmt: skip


@dataclass(slots=True)
class Told:
    """The result of a record: keys of messages, in order, and answers."""

    results: list[Result] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    """Began to wait, or may be delivered from now on."""
    leased: list[int] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)
    effective: bool = True
    """Some request takes effect, or the record has none: it does not only repeat what was answered before."""
