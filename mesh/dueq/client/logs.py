"""The SDK's log: structlog events, handed to the standard library's logger `dueq.client`.

A library must not print: without configuration only warnings appear, on stderr.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from structlog.stdlib import BoundLogger


class Log:
    """A logger that is made at its first event: most programs never see one, and structlog takes long to import."""

    def __getattr__(self, name: str) -> Any:
        return getattr(_logger(), name)


@cache
def _logger() -> BoundLogger:
    import structlog

    made: BoundLogger = structlog.wrap_logger(
        logging.getLogger("dueq.client"),
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(key_order=["event"]),
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    return made


log = Log()
