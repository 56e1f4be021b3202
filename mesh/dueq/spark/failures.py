"""Finds the failure again in Spark's own error: an exception of a task comes to the driver as text."""

from __future__ import annotations

import re

import dueq.errors
from dueq.errors import DueqError, OutcomeUnknown, PartialFailure

_RAISED = re.compile(r"^(?:.*\s)?dueq\.errors\.(\w+): (.+)$", re.MULTILINE)


def cause(error: BaseException) -> DueqError | None:
    """Return the last DueqError whose traceback is in the text of an exception of Spark; None without one.

    The rows of a PartialFailure stay with the task: here it is an OutcomeUnknown.
    """
    found = None
    for name, text in _RAISED.findall(str(error)):
        kind = getattr(dueq.errors, name, None)
        if isinstance(kind, type) and issubclass(kind, DueqError):
            found = (OutcomeUnknown if kind is PartialFailure else kind)(text.strip())
    return found
