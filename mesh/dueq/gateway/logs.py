"""The gateway's log: one line an event, on standard error; never a payload byte."""

from __future__ import annotations

import logging
import sys
from typing import Any, TextIO, cast

import structlog

from dueq.lossy_stream import LossyStream

log: Any = structlog.get_logger("dueq.gateway")


def configure(level: str) -> None:
    """Set logging up for this process.

    Args:
        level: debug, info, warning, error.
    """
    rendering = (
        [structlog.dev.ConsoleRenderer()]
        if sys.stderr.isatty()
        else [structlog.processors.JSONRenderer(default=str)]
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            *rendering,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, LossyStream(sys.stderr))),
    )
    # uvicorn speaks through the standard library: of its lines only those about defects matter.
    logging.basicConfig(level=logging.ERROR, stream=LossyStream(sys.stderr))
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
