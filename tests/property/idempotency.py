"""Idempotency keys for the records of a run."""

from __future__ import annotations

from random import Random

import numpy as np

from dueq_codecs.meta import Meta
from dueq_codecs.records import Record


def name_requests(rng: Random, record: Record, rows: int) -> None:
    """Give rows keys of which there are few, with one digest or another; some INSERTs only claim them."""
    record.once_high = np.array([rng.choice([0, 11, 12, 13, 14]) for _ in range(rows)], np.uint64)
    record.once_low = record.once_high * np.uint64(5)
    record.once_digest = np.array([rng.choice([1, 1, 2]) for _ in range(rows)], np.uint64)
    if rng.random() < 0.2 and not (record.job or record.shared or len(record.key_high)):
        record.claim, record.keyed = True, Meta.NONE
        record.size = record.size * np.uint32(0)
