"""What a leadership has proposed and not applied bounds that leadership, and no later one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dueq import limits
from dueq.core.partition.proposals import Proposals
from dueq.instant import Now
from dueq_codecs.records import LogEntry, Record, RecordKind

UID = 1
NOW = Now(1_700_000_000_000_000, 5_000_000)


def test_what_an_ended_leadership_has_proposed_leaves_room_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "UNAPPLIED_BYTES_MAX", 8 << 10)
    log: list[LogEntry] = []

    def append(record: Record, body: bytes, now: Now) -> LogEntry:
        record.sequence = len(log) + 1
        log.append(LogEntry(record, body))
        return log[-1]

    gathering: Any = SimpleNamespace(end=lambda uid: None, leave=lambda uid: None)
    context: Any = SimpleNamespace(gathering=gathering, touch=lambda partition: None)
    replica: Any = SimpleNamespace(uid=UID, serving=True, append=append)
    nothing: Any = SimpleNamespace(contents=None, level=1)
    proposals = Proposals(context, nothing, replica, nothing, nothing, nothing)

    def propose() -> int:
        return proposals.propose(Record(RecordKind.LEASE, UID, 0, 0, 0), NOW, bytes(4 << 10))

    while propose():
        assert len(log) < 100
    proposals.leadership_lost(NOW)
    assert propose()
