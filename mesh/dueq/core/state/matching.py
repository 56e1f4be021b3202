"""Which messages a pass is about: those that match its filter and have not been changed since it was asked for.

A filter is a small JSON document: `{"state": "waiting"}`, with a "job" (its key in hex), a "key_prefix", a "group" and
"due_from", "due_until" (Unix ms) where they matter. All but the state of a message stays the same until it is changed.
So the leader chooses rows by the whole filter, and apply looks at state and version only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dueq.core.ports.entry import Entries, State, is_wide
from dueq.core.state.group_table import GroupTable
from dueq.core.state.job_table import JobTable
from dueq.limits import DUE_MS_MAX
from dueq_codecs.groups import GroupRefused, check_group
from dueq_codecs.meta import KEY_BYTES_MAX

Mask = npt.NDArray[np.bool_]
STATES: Final = {"waiting": State.WAITING, "dead": State.DEAD}
_JOB_BYTES: Final = 16


class FilterRefused(ValueError):
    """A filter is not one; the text names the value and what there is."""


class RowFilter(NamedTuple):
    """Messages that are all of these.

    Attributes:
        state: theirs.
        job: key of their job; empty: any or none.
        key_prefix: how their keys begin, which no entry says; empty: in any way.
        group: their group or one above it; empty: any or none.
        due_from, due_until: due_from ≤ due < due_until, Unix ms.
    """

    state: State
    job: bytes = b""
    key_prefix: bytes = b""
    group: str = ""
    due_from: int = 0
    due_until: int = DUE_MS_MAX + 1

    def mask(self, entries: Entries, jobs: JobTable, groups: GroupTable) -> Mask:
        """Return which entries have the right job, group and due."""
        due = entries["due"]
        found: Mask = (due >= np.uint64(self.due_from)) & (due < np.uint64(self.due_until))
        if self.job:
            job = jobs.by_key.get(self.job)
            found &= entries["job"] == job.number if job is not None else np.False_
        if self.group:
            if not is_wide(entries):
                return np.zeros(len(entries), np.bool_)
            numbers = set(entries["group"].tolist())
            inside = [number for number in numbers if _is_inside(groups.name_of(number) or "", self.group)]
            found &= np.isin(entries["group"], inside)
        return found


def _is_inside(name: str, group: str) -> bool:
    return name == group or name.startswith(f"{group}.")


def filter_of(document: Mapping[str, Any]) -> RowFilter:
    """Return the filter of a document.

    Raises:
        FilterRefused: it names something else, or a value that cannot be asked for.
    """
    known = {"state", "job", "key_prefix", "group", "due_from", "due_until"}
    state = document.get("state")
    if not document.keys() <= known or not isinstance(state, str) or state not in STATES:
        raise FilterRefused(
            f'a filter is {{"state": …}} of {", ".join(STATES)} and may have {", ".join(sorted(known - {"state"}))},'
            f" not {json.dumps(dict(document)):.200}"
        )
    instants = {
        name: _instant(name, document[name]) for name in ("due_from", "due_until") if name in document
    }
    return RowFilter(STATES[state], _job(document), _prefix(document), _group(document), **instants)


def _job(document: Mapping[str, Any]) -> bytes:
    if "job" not in document:
        return b""
    try:
        key = bytes.fromhex(document["job"])
    except (TypeError, ValueError):
        key = b""
    if len(key) != _JOB_BYTES:
        raise FilterRefused(f"the job of a filter is its key in hex, not {document['job']!r:.80}")
    return key


def _prefix(document: Mapping[str, Any]) -> bytes:
    if "key_prefix" not in document:
        return b""
    prefix = document["key_prefix"]
    encoded = prefix.encode(errors="replace") if isinstance(prefix, str) else b""
    if not 1 <= len(encoded) <= KEY_BYTES_MAX:
        raise FilterRefused(f"a key prefix has 1 to {KEY_BYTES_MAX} bytes of UTF-8, not {prefix!r:.300}")
    return encoded


def _group(document: Mapping[str, Any]) -> str:
    if "group" not in document:
        return ""
    group = document["group"]
    if not isinstance(group, str) or not group:
        raise FilterRefused(f"the group of a filter is the name of one, not {group!r:.80}")
    try:
        check_group(group)
    except GroupRefused as refused:
        raise FilterRefused(str(refused)) from refused
    return group


def _instant(name: str, value: object) -> int:
    if type(value) is not int or not 0 <= value <= DUE_MS_MAX:
        raise FilterRefused(f"{name} is 0 to {DUE_MS_MAX} ms, not {value!r:.80}")
    return value


def matching(entries: Entries, state: State, before: int) -> Mask:
    """Return which entries are in a state, and were neither inserted nor changed by this record or a later one."""
    last = entries["sequence"]
    if "version" in (entries.dtype.names or ()):
        last = np.maximum(last, entries["version"])
    found: Mask = (entries["state"] == state) & (last < before)
    return found
