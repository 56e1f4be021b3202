"""The settings of a broker's core."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from dueq import limits
from dueq_codecs.records import FEATURE_LEVEL


@dataclass(frozen=True, slots=True)
class CoreSettings:
    """Fixed for the life of the process."""

    broker_id: str
    incarnation: int
    """Drawn at this start: an epoch belongs to one incarnation."""
    store_id: str
    cluster_id: str
    endpoint: str
    """The address by which clients and peers reach this broker."""
    metrics: str = ""
    """Address of the metrics port, or empty."""
    _: KW_ONLY
    max_clock_offset_ms: int = limits.MAX_CLOCK_OFFSET_MS
    hot_rows_total: int = limits.HOT_ROWS_TOTAL
    log_retain_bytes: int = limits.LOG_RETAIN_BYTES
    """Bytes of each log that are kept for followers that were away: beyond it they need a snapshot."""
    alone_us: int = 1_000_000
    """Without peers and with nothing unfinished, a tick only has work that can wait so long."""
    feature_level: int = FEATURE_LEVEL
    """The newest feature level that this build knows."""
