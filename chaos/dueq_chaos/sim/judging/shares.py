"""The settings of groups hold, looked at from outside.

A LEASE names no message of a paused group, and gives no group more than its `max_unacked`, but for triggered messages.
The settings of `a` hold for `a.b`, too. The count has the messages that are leased in the state applied then, and those
named by LEASE records that are in the log and not applied. The state is the naive reference's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

from dueq_chaos.sim.reference.naive import Naive
from dueq_codecs.records import Record, RecordKind


def broken_share(naive: Naive, earlier: Iterable[Record], record: Record) -> str:
    """Return which group's settings a LEASE ignores; "": it ignores none.

    Args:
        naive: the state that is applied.
        earlier: the records between that state and this one.
        record: a LEASE.
    """
    if not naive.groups.settings:
        return ""
    names = naive.groups.names
    out = set(naive.leased)
    for each in earlier:
        if each.kind == RecordKind.LEASE:
            out |= keys_of(each)
    given = {key for key in newly_leased(record) if not naive.is_triggered(key)}
    held = Counter(level for key in out | given for level in levels_of(naive, names, key))
    named = {level for key in given for level in levels_of(naive, names, key)}
    for level in sorted(named):
        settings = naive.groups.settings.get(level, {})
        if settings.get("paused"):
            return f"the LEASE {record.sequence} names a message of {level!r}, which is paused"
        if 0 < settings.get("max_unacked", 0) < held[level]:
            return (
                f"the LEASE {record.sequence} makes {held[level]} messages of {level!r} out, of"
                f" {settings['max_unacked']} at most"
            )
    return ""


def keys_of(record: Record) -> set[int]:
    """Return the keys of the messages that a record names."""
    columns = zip(record.target_sequence.tolist(), record.target_row.tolist(), strict=True)
    return {sequence << 16 | row for sequence, row in columns}


def newly_leased(record: Record) -> set[int]:
    """Return the keys of what a LEASE grants, without the leases that it renews."""
    if not len(record.token):
        return keys_of(record)
    columns = zip(
        record.target_sequence.tolist(), record.target_row.tolist(), record.token.tolist(), strict=True
    )
    return {sequence << 16 | row for sequence, row, token in columns if not token}


def levels_of(naive: Naive, names: dict[int, str], key: int) -> tuple[str, ...]:
    """Return the group of a message and those above it; none where the message is gone."""
    entry = naive.live.get(key)
    return _path_of(names.get(entry.group, "")) if entry is not None and entry.group else ()


@lru_cache(1024)
def _path_of(name: str) -> tuple[str, ...]:
    parts = name.split(".")
    return tuple(".".join(parts[: at + 1]) for at in range(len(parts)))
