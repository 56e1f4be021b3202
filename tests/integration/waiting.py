"""Waiting for what the mesh tells nobody by itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from tests.integration.ledger import PATIENCE_S

_BETWEEN_S = 0.05
"""Between two questions: without a pause the asking takes the time from what is waited for."""


def until(holds: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
    """Ask until something is so.

    Args:
        holds: the question.
        what: what it would be, for the failure.
        patience_s: seconds.
    """
    pause, deadline = threading.Event(), time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < deadline, f"not within {patience_s:g} s: {what}"
        pause.wait(_BETWEEN_S)
