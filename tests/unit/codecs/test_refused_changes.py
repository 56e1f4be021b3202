"""Changes whose columns fit each other and say what cannot be: each beside one that may be, at the very boundary.

A broker that took one would look for a name, a body or a key that is not there, when it applies the record: on every
replica, and again after each start.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dueq_codecs import shape
from dueq_codecs.messages import ChangeRequest
from dueq_codecs.meta import Meta
from dueq_codecs.records import Fate, JobAction, OnDuplicate, Record, RecordKind
from dueq_codecs.rules import level_of

ID = bytes(16)


def u16(*values: int) -> Any:
    return np.array(values, np.uint16)


def u32(*values: int) -> Any:
    return np.array(values, np.uint32)


def u64(*values: int) -> Any:
    return np.array(values, np.uint64)


def request(kind: RecordKind, **fields: Any) -> ChangeRequest:
    return ChangeRequest(1, kind, "t", 1, ID, 1, 0, **fields)


def insert(**fields: Any) -> ChangeRequest:
    """An INSERT of two rows of five bytes each."""
    return request(RecordKind.INSERT, **{"due": u64(1, 2), "size": u32(5, 5), "crc": u32(1, 2)} | fields)


def nack(**fields: Any) -> ChangeRequest:
    names = {"first": u64(1), "target_sequence": u64(2), "target_row": u16(0), "token": u64(3)}
    return request(RecordKind.NACK, amount_ms=u64(0), **names | fields)


KEYS: dict[str, Any] = {
    "key_high": u64(1, 0), "key_low": u64(2, 0), "keyed": Meta.KEY, "on_duplicate": OnDuplicate.REFUSE,
}  # fmt: skip
ONCE: dict[str, Any] = {"once_high": u64(1, 2), "once_low": u64(3, 4), "once_digest": u64(5, 6)}
CLAIM: dict[str, Any] = ONCE | {"claim": True, "size": u32(0, 0)}
SHARED: dict[str, Any] = {"shared": b"s" * 32, "shared_size": 5}


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        (
            {"group": u16(0, 1), "groups": ("a", "b")},
            {"group": u16(0, 2)},
            "a row names group 2 of 2",
        ),
        (
            {"group": u16(0, 1), "groups": ("a", "b")},
            {"groups": ("a", "b", "c")},
            "3 groups are named for 2 rows",
        ),
        (KEYS, {"keyed": Meta.NONE}, "an INSERT has 2 hashes of keys, and no keys"),
        (KEYS, {"on_duplicate": OnDuplicate.NONE}, "an INSERT of 2 hashes of keys says NONE of duplicates"),
        ({}, {"retry": True}, "an INSERT of 0 hashes of keys says NONE of duplicates"),
        (CLAIM, {"size": u32(0, 1)}, "a INSERT claims 2 idempotency keys, and says more than that"),
        (CLAIM, {"job": ID}, "a INSERT claims 2 idempotency keys, and says more than that"),
        ({"size": u32(0, 0)}, {"claim": True}, "a INSERT claims 0 idempotency keys, and says more than that"),
        (SHARED, {"shared": b"s" * 31}, "a shared body has a name of 32 bytes, not 31"),
        (SHARED, {"shared_size": 0}, "a shared body has no bytes"),
        (
            SHARED | {"upload": u64(0, 0)},
            {"upload": u64(0, 7)},
            "a payload that goes on with a shared body is an upload",
        ),
        (SHARED, {"size": u32(5, 4)}, "a payload of 4 bytes goes on with a shared body of 5"),
        ({"job": ID, "job_until": 9}, {"job": b""}, "a INSERT names no job"),
    ],
)
def test_an_insert_names_nothing_that_is_not_there(
    right: dict[str, Any], wrong: dict[str, Any], said: str
) -> None:
    assert shape.fault_of_request(insert(**right)) is None
    assert shape.fault_of_request(insert(**right | wrong)) == said


def test_a_client_neither_clears_a_job_nor_brings_another_body_than_it_names() -> None:
    job = request(RecordKind.JOB, job=ID, job_action=JobAction.CANCEL)
    assert shape.fault_of_request(job) is None
    job.job_action = JobAction.CLEARED
    assert shape.fault_of_request(job) == "CLEARED is not an action of clients"
    body = request(RecordKind.BODY, size=u32(5), crc=u32(7), **SHARED)
    assert shape.fault_of_request(body) is None
    body.size = u32(6)
    assert shape.fault_of_request(body) == "a payload of 6 bytes goes on with a shared body of 5"


@pytest.mark.parametrize("rows", [1, 4, 5])
def test_a_lease_row_names_one_of_the_consumers_however_many_rows_there_are(rows: int) -> None:
    def lease(**fields: Any) -> Record:
        columns = {
            "first": u64(*[1] * rows),
            "target_sequence": u64(*[2] * rows),
            "target_row": u16(*range(rows)),
        }
        consumers = {"consumers": (ID, b"d" * 16), "lease_ms": u64(9, 9)}
        return Record(RecordKind.LEASE, 1, 1, 1, 1, **columns | consumers | fields)

    last = [0] * (rows - 1)
    assert shape.fault_of_record(lease(consumer=u16(*last, 1), detached=np.array([0, 1], np.uint8))) is None
    assert shape.fault_of_record(lease(consumer=u16(*last, 2))) == "a row names consumer 2 of 2"
    said = "a LEASE record has 2 consumers, 1 marks of detached ones"
    assert shape.fault_of_record(lease(consumer=u16(*last, 1), detached=np.array([1], np.uint8))) == said


# -------------------------------------------------------------- rules

OLD = [insert(), insert(job=ID, job_until=9), insert(keyed=Meta.KEY), nack(fate=np.array([1], np.uint8))]
RELEASE = {"first": u64(1), "target_sequence": u64(2), "target_row": u16(0), "token": u64(3)}
NEW = [
    insert(rank=u16(1, 2)),
    insert(group=u16(0, 0), groups=("a",)),
    insert(**KEYS),
    insert(**ONCE),
    insert(**SHARED),
    insert(window=u32(1, 0)),
    insert(expires=u64(9, 0)),
    insert(attempts_max=u16(1, 0)),
    insert(keyed=Meta.HEADERS),
    nack(fate=np.array([Fate.DEAD], np.uint8)),
    nack(document="{}"),
    nack(reason=u16(0), reasons=("why",)),
    request(RecordKind.RELEASE, amount_ms=u64(5), **RELEASE),
    request(RecordKind.CANCEL, expected=u64(2), **RELEASE),
    request(RecordKind.TRIGGER, **RELEASE),
]


def test_what_an_older_build_cannot_read_waits_until_no_replica_has_it() -> None:
    """One that gets such a record stops: it would apply something else than the others."""
    assert [level_of(each) for each in OLD] == [1] * len(OLD)
    assert all(level_of(each) > 1 for each in NEW), [each for each in NEW if level_of(each) == 1]
    assert all(shape.fault_of_request(each) is None for each in OLD + NEW)
