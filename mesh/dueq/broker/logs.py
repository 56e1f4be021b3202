"""Logging: structlog, readable on a terminal, one JSON object a line otherwise. Never a payload byte."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog


def configure(level: str, form: str, broker_id: str) -> structlog.stdlib.BoundLogger:
    """Set logging up for this process.

    Args:
        level: debug, info, warning, error.
        form: auto, console, json.
        broker_id: bound to every line.

    Returns:
        The broker's logger.
    """
    number = getattr(logging, level.upper())
    console = form == "console" or (form == "auto" and sys.stderr.isatty())
    renderer: Any = structlog.dev.ConsoleRenderer() if console else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    # kazoo speaks through the standard library; what matters of it comes as an event of the core.
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    logging.getLogger("dueq.cluster.kazoo").setLevel(logging.ERROR)
    logger: structlog.stdlib.BoundLogger = structlog.get_logger().bind(broker=broker_id)
    return logger
