"""Logging: structlog, readable on a terminal, one JSON object a line otherwise. Never a payload byte."""

from __future__ import annotations

import logging
import sys
import threading
from typing import Any, TextIO, cast

import structlog

from dueq.lossy_stream import LossyStream


def configure(level: str, form: str, broker_id: str) -> structlog.stdlib.BoundLogger:
    """Set logging up for this process.

    Args:
        level: debug, info, warning, error.
        form: auto, console, json.
        broker_id: bound to every line.

    Returns:
        The broker's logger.
    """
    console = form == "console" or (form == "auto" and sys.stderr.isatty())
    rendering: list[Any] = (
        [structlog.dev.ConsoleRenderer()]
        if console
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *rendering,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, LossyStream(sys.stderr))),
        cache_logger_on_first_use=True,
    )
    # kazoo speaks through the standard library; what matters of it comes as an event of the core.
    logging.basicConfig(level=logging.ERROR, stream=LossyStream(sys.stderr))
    logging.getLogger("dueq.cluster.kazoo").setLevel(logging.ERROR)
    logger: structlog.stdlib.BoundLogger = structlog.get_logger().bind(broker=broker_id)
    return logger


def log_broken_threads(log: structlog.stdlib.BoundLogger) -> None:
    """Have an exception that ends a thread logged like everything else."""

    def broken(hook: threading.ExceptHookArgs) -> None:
        name = hook.thread.name if hook.thread is not None else "?"
        if hook.exc_value is not None:
            error = (hook.exc_type, hook.exc_value, hook.exc_traceback)
            log.critical("thread.broken", thread=name, exc_info=error)

    threading.excepthook = broken
