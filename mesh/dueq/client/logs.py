"""The SDK's log: structlog events, handed to the standard library's logger `dueq.client`.

A library must not print: without configuration only warnings appear, on stderr.
"""

from __future__ import annotations

import logging

import structlog

log: structlog.stdlib.BoundLogger = structlog.wrap_logger(
    logging.getLogger("dueq.client"),
    processors=[
        structlog.stdlib.filter_by_level,
        structlog.processors.format_exc_info,
        structlog.processors.KeyValueRenderer(key_order=["event"]),
    ],
    wrapper_class=structlog.stdlib.BoundLogger,
    cache_logger_on_first_use=True,
)
