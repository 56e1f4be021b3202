"""Planted bugs of recurrences: which ticks have a message, and which messages are taken back."""

from __future__ import annotations

from typing import Final

from dueq_chaos.bugs.bug import Bug, change

RECURRING: Final = (
    Bug(
        "pause-leaves-what-was-fired",
        "A recurrence that is paused, changed or deleted does not take back what it fired ahead.",
        "celery beat: what is in the queue already runs, whatever is done to its schedule",
        (
            change(
                "core.partition.recurrences:_coming",
                "return [fired for fired in recurrence.fired if fired.first > now_ms]",
                "return []",
            ),
        ),
        seeds=24,
        finders=(0,),
    ),
    Bug(
        "change-while-it-fires",
        "A recurrence is changed while a FIRE of it is on its way.",
        "a lost update: who reads, computes and writes has to know that nobody else does",
        (
            change(
                "core.partition.recurrences:Recurrences.refusal",
                "if request.name in self._under_way:",
                "if False:",
            ),
        ),
        seeds=96,
        finders=(4,),
    ),
    Bug(
        "new-leader-looks-at-none",
        "A new leader looks at no recurrence until somebody changes one.",
        "timers that live in the memory of one process",
        (
            change(
                "core.partition.recurrences:Recurrences.begin",
                "for recurrence in self._table.by_number.values():",
                "for recurrence in ():",
            ),
        ),
        seeds=24,
        finders=(4,),
    ),
    Bug(
        "overlap-decided-ahead",
        "Overlap is decided when a tick is logged, not when it comes.",
        "a check long before the use",
        (
            change(
                "core.partition.recurrences:Recurrences._waits_until_ms",
                'if terms.overlap == "skip" and recurrence.unfinished and recurrence.next > now_ms:',
                "if False:",
            ),
        ),
        seeds=48,
        finders=(4,),
    ),
    Bug(
        "unfinished-not-counted",
        "Messages of a recurrence are counted when they begin, and not when they end.",
        "a count beside the things counted that drifts from them",
        (
            change(
                "core.state.recurrence_table:RecurrenceTable.count",
                "recurrence.unfinished += (waiting + leased) * count",
                "recurrence.unfinished += max(waiting + leased, 0) * count",
            ),
        ),
        seeds=24,
        finders=(0,),
    ),
    Bug(
        "course-not-saved",
        "A checkpoint has no row of a recurrence that has fired, or whose messages have begun or ended.",
        "a cursor that is written when it is made, and never again",
        (
            change(
                "core.state.recurrence_table:RecurrenceTable.fire",
                "self._changed[recurrence.name] = None",
                "pass",
            ),
            change(
                "core.state.recurrence_table:RecurrenceTable.count",
                "self._changed[recurrence.name] = None",
                "pass",
            ),
        ),
        seeds=24,
        finders=(4,),
    ),
    Bug(
        "resumed-where-it-was-paused",
        "A recurrence that is resumed makes up for the ticks of its pause.",
        "docs/explanation/recurrences.md: what was paused waits for the next tick from then on",
        (
            change(
                "core.partition.recurrences:Recurrences._from_now_on",
                "elif wish.action == RESUME and known.paused:",
                "elif known.paused and (following := next_tick(terms, anchor_ms, known.past)) < 0:",
            ),
        ),
        seeds=24,
        finders=(4,),
    ),
    Bug(
        "update-loses-the-ticks-it-takes-back",
        "An update of the payload takes back what was fired ahead, and those ticks never come.",
        "docs/explanation/recurrences.md: an update that says nothing of when leaves no tick out",
        (
            change(
                "core.partition.recurrences:Recurrences._from_now_on",
                "elif coming := _coming(known, now_ms):",
                "elif False:",
            ),
        ),
        seeds=36,
        finders=(12,),
    ),
    Bug(
        "tick-has-two-messages",
        "A tick that is waited for again gets another message, though it has one that could not be taken back.",
        "docs/explanation/recurrences.md: one message a tick",
        (
            change(
                "core.partition.recurrences:Recurrences._step",
                "if recurrence.has_message(tick):",
                "if False:",
            ),
            change(
                "core.state.recurrence_table:RecurrenceTable._moves",
                "or (due and recurrence.has_message(tick))",
                "",
            ),
        ),
        seeds=0,
        finders=(88000039,),
    ),
    Bug(
        "ticks-before-one-that-stays-are-lost",
        "Ticks whose messages were taken back get none again if a later tick has kept its own.",
        "docs/explanation/recurrences.md: an update that says nothing of when leaves no tick out",
        (
            change(
                "core.state.recurrence:Recurrence.has_message",
                "any(fired.tick == tick for",
                "any(fired.tick >= tick for",
            ),
        ),
        seeds=0,
        finders=(88000266,),
    ),
)
