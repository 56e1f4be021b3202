"""The columns of what `format("dueq")` reads: the same for what waits and for what falls due.

Spark asks a data source for its columns without saying whether it is for a batch or a stream. So values that one of
the two does not know are null.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from dueq.client.arrow_pages import HEADERS, INSTANT

SCHEMA: Final = (
    "topic string, partition int, id string, key string, due timestamp, waits_until timestamp, "
    "released_at timestamp, size int, attempt int, token bigint, payload binary, rank int, version bigint, "
    "headers map<string, string>, group string"
)
"""`waits_until`: of what waits, the instant until which it waits (later than `due` after a nack). `released_at`,
`token`: of what fell due, when it left its broker, and its lease. `payload`: of what waits only when asked for. `key`,
`headers` and `group` are null where a message has none."""

ARROW_SCHEMA: Final = pa.schema([
    ("topic", pa.string()), ("partition", pa.int32()), ("id", pa.string()), ("key", pa.string()),
    ("due", INSTANT), ("waits_until", INSTANT), ("released_at", INSTANT),
    ("size", pa.int32()), ("attempt", pa.int32()), ("token", pa.int64()), ("payload", pa.binary()),
    ("rank", pa.int32()), ("version", pa.int64()), ("headers", HEADERS), ("group", pa.string()),
])  # fmt: skip
