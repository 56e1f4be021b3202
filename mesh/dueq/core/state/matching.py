"""Which messages a pass is about: its filter, and what has not been changed since it was asked for.

A filter is a small JSON document. Today it names a state: `{"state": "waiting"}`.
"""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dueq.core.ports.entry import Entries, State

STATES: Final = {"waiting": State.WAITING}


class FilterRefused(ValueError):
    """A filter is not one; the text names the value and what there is."""


def filter_of(document: dict[str, Any]) -> State:
    """Return the state of the messages that a filter names.

    Raises:
        FilterRefused: it names something else, or a state that cannot be asked for.
    """
    state = document.get("state")
    if set(document) != {"state"} or not isinstance(state, str) or state not in STATES:
        raise FilterRefused(
            f'a filter is {{"state": …}} of {", ".join(STATES)}, not {json.dumps(document):.200}'
        )
    return STATES[state]


def matching(entries: Entries, state: State, before: int) -> npt.NDArray[np.bool_]:
    """Return which entries are in a state, and were neither inserted nor changed by this record or a later one."""
    last = entries["sequence"]
    if "version" in (entries.dtype.names or ()):
        last = np.maximum(last, entries["version"])
    found: npt.NDArray[np.bool_] = (entries["state"] == state) & (last < before)
    return found
