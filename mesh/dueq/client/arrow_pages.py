"""Pages of waiting messages as Arrow tables; needs PyArrow (`pip install 'dueq[spark]'`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from dueq.client.browsing import BrowsePage

INSTANT: Final = pa.timestamp("us", "UTC")
"""Spark's type of instants; those of messages are whole milliseconds."""

HEADERS: Final = pa.map_(pa.string(), pa.string())

TIMELINE_SCHEMA: Final = pa.schema([
    ("topic", pa.string()), ("partition", pa.int32()), ("id", pa.string()), ("key", pa.string()),
    ("due", INSTANT), ("waits_until", INSTANT), ("size", pa.int32()), ("attempt", pa.int32()), ("payload", pa.binary()),
    ("rank", pa.int32()), ("version", pa.int64()), ("headers", HEADERS),
    ("group", pa.string()),
])  # fmt: skip
"""The attributes of `ScheduledMessage`; `key`, `headers` and `group` are null where a message has none, `payload`
where it was not read."""


def batch_of(page: BrowsePage) -> pa.RecordBatch:
    """Return a page as rows of TIMELINE_SCHEMA."""
    count = len(page)
    columns = [
        pa.array([page.topic] * count, pa.string()), pa.array(np.full(count, page.partition, np.int32)),
        pa.array(page.ids, pa.string()), pa.array([key or None for key in page.keys], pa.string()),
        instants(page.due), instants(page.waits_until),
        pa.array(page.size.astype(np.int32)), pa.array(page.attempt.astype(np.int32)),
        pa.nulls(count, pa.binary()) if page.payloads is None else pa.array(page.payloads, pa.binary()),
        pa.array(page.rank.astype(np.int32)), pa.array(page.version.astype(np.int64)),
        pa.array([list(headers.items()) or None for headers in page.headers], HEADERS),
        pa.array([group or None for group in page.groups], pa.string()),
    ]  # fmt: skip
    return pa.RecordBatch.from_arrays(columns, schema=TIMELINE_SCHEMA)


def instants(whole_ms: Any) -> pa.Array:
    """Return a column of Unix ms as instants."""
    return pa.array(np.asarray(whole_ms).astype(np.int64) * 1000).cast(INSTANT)
