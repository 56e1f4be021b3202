"""The SDK's log: structlog events, handed to the standard library's logger `dueq.client`.

A library must not print: without configuration only warnings appear, on stderr.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from structlog.stdlib import BoundLogger


_importing = threading.RLock()
os.register_at_fork(
    before=_importing.acquire,  # whoever imports it in the child, too, would wait for ever for another thread's import
    after_in_parent=_importing.release,
    after_in_child=_importing.release,
)


class Log:
    """A logger that is made with the first runtime: structlog takes long to import, and not every program connects."""

    def make(self) -> None:
        """Import structlog now, in the thread of the caller; a fork waits until that is done."""
        _logger()

    def __getattr__(self, name: str) -> Callable[..., None]:
        return partial(_write, name)


def _write(method: str, /, *arguments: Any, **fields: Any) -> None:
    """Log. What a handler or filter of the user's raises goes no further: it would end whoever has logged."""
    with suppress(Exception):
        getattr(_logger(), method)(*arguments, **fields)


@cache
def _logger() -> BoundLogger:
    with _importing:
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
