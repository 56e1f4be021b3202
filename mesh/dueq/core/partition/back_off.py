"""Back-off, as the leader decides it: the wait of messages that are given back without a delay of their own.

Jitter spreads the delays. It is derived from the message and its attempt, not drawn: the same decision comes out
whenever it is taken again.
"""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

import numpy as np

from dueq.core.ports.entry import Entries, keys_of
from dueq_codecs.backoff import delay_ms
from dueq_codecs.messages import ChangeRequest
from dueq_codecs.records import NO_U16, U16, U64, Fate, Record
from dueq_codecs.topic_settings import TopicSettings


def delays(uid: int, settings: TopicSettings, rows: Entries) -> U64:
    """Return how long each message waits after its present attempt, ms."""
    keys, attempts = keys_of(rows).tolist(), rows["attempt"].tolist()
    return np.array(
        [
            delay_ms(settings.backoff, attempt, crc32(b"%d %d %d" % (uid, key, attempt)) / (1 << 32))
            for key, attempt in zip(keys, attempts, strict=True)
        ],
        np.uint64,
    )


def decide(record: Record, requests: Sequence[ChangeRequest], settings: TopicSettings, rows: Entries) -> None:
    """Fill in delays, fates and reasons of a NACK, whose other columns are there.

    Args:
        record: the NACK.
        requests: those that it answers, in order.
        settings: the topic's.
        rows: the messages that it names, as they are now.
    """
    record.reasons, record.reason = reasons(requests)
    fates = [each.fate if len(each.fate) else np.zeros(each.rows, np.uint8) for each in requests]
    fate = np.concatenate(fates)
    backs_off = fate == Fate.BACK_OFF
    if backs_off.any():
        record.amount_ms = np.where(backs_off, delays(record.uid, settings, rows), record.amount_ms)
    if (fate == Fate.DEAD).any():
        record.fate = np.where(backs_off, Fate.DELAY, fate).astype(np.uint8)


def reasons(requests: Sequence[ChangeRequest]) -> tuple[tuple[str, ...], U16]:
    """Return all reasons, each once, and the place of each row's among them; empty: there are none."""
    if not any(len(each.reason) for each in requests):
        return (), NO_U16
    places: dict[str, int] = {}
    column = []
    for each in requests:
        texts = [each.reasons[place] for place in each.reason.tolist()] or [""] * each.rows
        column += [places.setdefault(text, len(places)) for text in texts]
    return tuple(places), np.array(column, np.uint16)
