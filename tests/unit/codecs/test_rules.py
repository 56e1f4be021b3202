"""What clients and brokers compute alike."""

from __future__ import annotations

from dataclasses import replace
from zlib import crc32

import numpy as np
import pytest

from dueq_codecs.messages import ChangeRequest
from dueq_codecs.meta import PREFIX_BYTES_MAX, Meta
from dueq_codecs.records import JobAction, OnDuplicate, RecordKind
from dueq_codecs.rules import batch_key, first_beyond_horizon, first_instants, first_too_long, home_of

JOB = bytes(range(16))
REQUEST = ChangeRequest(1, RecordKind.INSERT, "t", 7, b"c" * 16, 1, 0)


def dues(*values: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint64]]:
    return np.array(values, np.uint64)


def test_a_jobs_home_is_its_checksum_modulo_the_partitions() -> None:
    assert [home_of(JOB, partitions) for partitions in (1, 6, 7)] == [0, crc32(JOB) % 6, crc32(JOB) % 7]


def test_an_id_begins_with_the_latest_of_due_stamp_and_the_end_of_the_jobs_hiding() -> None:
    assert first_instants(dues(5, 90), 50, 0).tolist() == [50, 90]
    assert first_instants(dues(5, 90), 50, 70).tolist() == [70, 90]


def test_a_topic_without_a_horizon_takes_every_instant() -> None:
    assert first_beyond_horizon(dues(1 << 48), 0, 100) is None


def test_the_last_instant_of_a_horizon_belongs_to_it() -> None:
    assert first_beyond_horizon(dues(110), 10, 100) is None
    assert first_beyond_horizon(dues(110, 111, 112), 10, 100) == 1


def test_a_payload_may_be_as_long_as_the_topic_allows() -> None:
    size = np.array([10, 11, 12], np.uint32)
    assert first_too_long(size, Meta.NONE, 12) is None
    assert first_too_long(size, Meta.NONE, 10) == 1
    for mode in (Meta.KEY, Meta.HEADERS):
        assert first_too_long(size + PREFIX_BYTES_MAX[mode], mode, 10) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"kind": RecordKind.JOB},
        {"keyed": Meta.KEY},
        {"keyed": Meta.HEADERS},
        {"job": JOB},
        {"job_until": 1},
        {"job_action": JobAction.ABORT},
        {"on_duplicate": OnDuplicate.KEEP},
        {"retry": True},
        {"once_high": dues(1)},
        {"claim": True},
        {"shared": bytes(16)},
    ],
)
def test_requests_share_a_record_when_nothing_but_their_rows_differs(other: dict[str, object]) -> None:
    assert batch_key(replace(REQUEST, sequence=2, due=dues(1))) == batch_key(REQUEST)
    assert batch_key(replace(REQUEST, **other)) != batch_key(REQUEST)  # type: ignore[arg-type]
