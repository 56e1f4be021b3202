"""Planted bugs of small records, which are applied row by row: one way goes wrong, the columnar one is right."""

from __future__ import annotations

from typing import Final

from dueq_chaos.bugs.bug import Bug, change

_SMALL = "core.state.small:SmallRecords"

SMALL: Final = (
    Bug(
        "small-lease-not-counted",
        "A lease by a small record does not count as an attempt.",
        "a fast path that forgets what the slow one does: SQS receive counts that depend on the batch",
        (change(f"{_SMALL}._lease", "min(row[_ATTEMPT] + 1, ATTEMPT_MAX)", "row[_ATTEMPT]"),),
        seeds=24,
        finders=(0,),
    ),
    Bug(
        "small-insert-in-one-place",
        "All payloads of a small record are looked for where the first one is.",
        "an offset that is right for the first row of a block",
        (change(f"{_SMALL}._insert", "place += size", "place += 0"),),
        seeds=24,
        finders=(0,),
    ),
    Bug(
        "small-ack-comes-back",
        "The ends of a small record's messages are not written to the disk, so a restart brings them back.",
        "a tombstone that is not written",
        (change(f"{_SMALL}._finish", "self._mark(slot)", "pass"),),
        seeds=24,
        finders=(0,),
    ),
    Bug(
        "small-move-leaves-the-window-full",
        "The hot window still counts the messages of a small record that wait no more.",
        "a cache whose count only grows, so that it evicts what it needs",
        (
            change(
                f"{_SMALL}._stop_waiting",
                "self._window.count -= self._window.holds(row[_WAIT_AT], _key(row))",
                "pass",
            ),
        ),
        seeds=24,
        finders=(0,),
    ),
)
"""All of them."""
