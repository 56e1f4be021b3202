"""Calls that are repeated until their outcome is known."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from dueq.errors import DueqError, OutcomeUnknown, PartialFailure

T = TypeVar("T")
CALL_S: Final = 4.0
"""Deadline of one call."""
INSIST_S: Final = 40.0
"""How long a call is repeated."""
PAUSE_S: Final = 0.2


def insist(call: Callable[[], T]) -> T | None:
    """Make a call; repeat it as its error says until its outcome is known.

    Returns:
        The call's result; None if it was refused, or if its outcome stayed unknown for too long.
    """
    until = time.monotonic() + INSIST_S
    while time.monotonic() < until:
        try:
            return call()
        except (OutcomeUnknown, PartialFailure) as error:
            call = partial(error.retry, CALL_S)
        except DueqError:
            return None
    return None


def repeat(call: Callable[[], T], final: tuple[type[DueqError], ...] = ()) -> T | None:
    """Make a call that may be made twice; make it again after any error, as a process that knows nothing would.

    Args:
        call: what to do.
        final: errors after which it is not made again.

    Returns:
        The call's result; None after a final error, or if no call succeeded for too long.
    """
    until = time.monotonic() + INSIST_S
    while time.monotonic() < until:
        try:
            return call()
        except final:
            return None
        except DueqError:
            time.sleep(PAUSE_S)
    return None
