"""Steps that several calls of the client have."""

from __future__ import annotations

from typing import Final, TypeVar

from dueq.client.calls import Call, Steps
from dueq.errors import Unavailable

T = TypeVar("T")

_PAUSE_S: Final = 0.25


def surely(call: Call[T], timeout: float) -> Steps[T]:
    """Make a reading call, even if the partition that knows is between two leaders just now."""
    pauses = int(timeout / _PAUSE_S)
    while True:
        try:
            found: T = yield call
            return found
        except Unavailable:
            if pauses <= 0:
                raise
        pauses -= 1
        yield _PAUSE_S
