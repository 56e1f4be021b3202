"""Planted bugs of shared bodies."""

from __future__ import annotations

from typing import Final

from dueq_chaos.bugs.bug import Bug, change

_RECURRENCES = "core.state.recurrence_table:RecurrenceTable"
_TABLE = "core.state.body_table:BodyTable"

BODIES: Final = (
    Bug(
        "body-goes-with-its-first-message",
        "A shared body counts as unnamed as soon as one of its messages has ended.",
        "a reference count that is a flag: the file is unlinked under those who still read it",
        (change(f"{_TABLE}._add_messages", "if body.messages:", "if count > 0:"),),
        seeds=60,
        finders=(8,),
    ),
    Bug(
        "bytes-outlive-their-body",
        "The bytes of a shared body stay when it is forgotten.",
        "object stores that leak the parts of what nobody names",
        (change(f"{_TABLE}.expire", "self.garbage.append((body.number, body.size))", "pass"),),
        seeds=60,
        finders=(2,),
    ),
    Bug(
        "grace-ends-the-body",
        "A body goes when its grace is over, though messages name it.",
        "a lifecycle rule that expires what is still referenced",
        (
            change(
                f"{_TABLE}.expire",
                "for body in self._idle.values() if body.until_ms <= age_ms",
                "for body in self.by_number.values() if body.until_ms <= age_ms",
            ),
            change(
                f"{_TABLE}.expire",
                "self.by_number[body.number], self._idle[body.number]",
                "self.by_number[body.number]; self._idle.pop(body.number, None)",
            ),
        ),
        seeds=60,
        finders=(8,),
    ),
    Bug(
        "grace-not-begun-anew",
        "New messages do not begin the grace of their shared body anew.",
        "a cache that expires by the age of an entry, and not by its last use",
        (
            change(
                f"{_TABLE}.name",
                "body.until_ms = max(body.until_ms, age_ms + BODY_GRACE_MS)",
                "pass",
            ),
        ),
        seeds=60,
        finders=(8,),
    ),
    Bug(
        "recurrence-does-not-hold-its-body",
        "A shared body is forgotten though a recurrence names it, whose messages have ended.",
        "a garbage collector that does not know one kind of reference",
        (change(f"{_TABLE}.hold", "self._add_messages(self.by_name[name], count)", "pass"),),
        seeds=60,
        finders=(4,),
    ),
    Bug(
        "recurrence-never-lets-its-body-go",
        "A recurrence that is deleted, or gets another payload, goes on holding its shared body.",
        "a reference that is counted and never given back",
        (change(f"{_RECURRENCES}._let_body_go", "if recurrence.body:", "if False:"),),
        seeds=60,
        finders=(12,),
    ),
)
