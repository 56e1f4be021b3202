"""The quick check of few rows agrees with the rules."""

from __future__ import annotations

import random

import numpy as np
import pytest

from dueq_codecs import shape
from dueq_codecs.messages import ChangeRequest
from dueq_codecs.records import JobAction, Record, RecordKind, RequestRef

JOBS = (RecordKind.JOB, RecordKind.REVEAL)


def random_columns(kind: RecordKind, names: tuple[str, ...], rng: random.Random) -> dict[str, object]:
    """Columns of a kind, mostly right: one or another is of a wrong length."""
    rows = rng.randint(0, 6)
    wanted = shape._ROWS[kind]
    columns: dict[str, object] = {}
    for name in names:
        right = rows if name in wanted or (name in ("upload", "token") and rng.random() < 0.1) else 0
        length = right if rng.random() < 0.97 else rng.randint(0, 5)
        columns[name] = np.zeros(length, np.uint64)
    return columns


@pytest.mark.parametrize("kind", RecordKind)
def test_the_lengths_of_few_rows_are_right_where_the_rules_say_so(
    kind: RecordKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(kind)
    job = {"job": bytes(16) if kind in JOBS else b"", "job_action": JobAction(kind == RecordKind.JOB)}
    named = (RecordKind.PASS, RecordKind.RECURRENCE, RecordKind.GROUP)
    job["document"] = "{}" if kind in (RecordKind.SETTINGS, *named) else ""
    job["name"] = "p" if kind in named else ""
    owners: list[Record | ChangeRequest] = []
    for _ in range(600):
        record = Record(kind, 1, 1, 1, 1, **random_columns(kind, shape.RECORD_COLUMNS, rng), **job)  # type: ignore[arg-type]
        if kind == RecordKind.LEASE:
            record.consumers = (bytes(16),) * rng.randint(0, 1)
            record.lease_ms = np.zeros(len(record.consumers), np.uint64)
        elif rng.random() < 0.5:
            record.requests = (RequestRef(bytes(16), 1, 1, rng.choice([1, record.rows])),)
        owners.append(record)
        columns = random_columns(kind, shape.REQUEST_COLUMNS, rng)
        owners.append(ChangeRequest(1, kind, "t", 1, bytes(16), 1, 0, **columns, **job))  # type: ignore[arg-type]
    found = [fault_of(owner) for owner in owners]
    monkeypatch.setattr(shape, "_RIGHT_RECORDS", {})
    monkeypatch.setattr(shape, "_RIGHT_REQUESTS", {})
    assert found == [fault_of(owner) for owner in owners]
    assert None in found
    assert len(set(found)) > 3


def fault_of(owner: Record | ChangeRequest) -> str | None:
    return shape.fault_of_record(owner) if isinstance(owner, Record) else shape.fault_of_request(owner)


def test_a_body_comes_with_its_size_and_its_crc() -> None:
    """The broker looks at the CRC wherever there is a size."""
    request = ChangeRequest(1, RecordKind.BODY, "t", 1, bytes(16), 1, 0, shared=b"s" * 32, shared_size=5)
    assert shape.fault_of_request(request) is None, "it keeps the body"
    request.size = np.array([5], np.uint32)
    assert shape.fault_of_request(request) == "a BODY has 1 sizes and 0 CRCs"
    request.crc = np.array([7], np.uint32)
    assert shape.fault_of_request(request) is None
    request.size = np.array([], np.uint32)
    assert shape.fault_of_request(request) == "a BODY has 0 sizes and 1 CRCs"
