"""Planted bugs of passes: filters, shifts, spreads, and the messages that they leave behind."""

from __future__ import annotations

from typing import Final

from dueq_chaos.bugs.bug import Bug, change

SURGERY: Final = (
    Bug(
        "filter-begins-too-soon",
        "A pass changes messages that are due before its filter begins.",
        "`due_from` of a filter: due_from <= due",
        (change("core.state.matching:RowFilter.mask", "(due >= np.uint64(self.due_from)) & ", ""),),
        seeds=822,
        finders=(274,),
    ),
    Bug(
        "pass-ignores-groups",
        "A pass changes messages of all groups.",
        "`group` of a filter: their group, or one above it",
        (change("core.state.matching:RowFilter.mask", "if self.group:", "if False:"),),
        seeds=918,
        finders=(306,),
    ),
    Bug(
        "pass-reads-an-old-index",
        "A pass reads the disk before the messages in memory have been written there.",
        "docs/how-to/change-many.md: a pass is about all that was inserted before it",
        (
            change(
                "core.partition.passes:Passes._start",
                "self._partition.checkpoints.after(durable, now)",
                "durable(frozenset(), now)",
            ),
        ),
        seeds=822,
        finders=(274,),
    ),
    Bug(
        "pass-leaves-half-a-page",
        "A pass changes the first half of what it finds.",
        "docs/how-to/change-many.md: a pass is about all that was inserted before it",
        (
            change(
                "core.partition.passes:Passes._go_on",
                "some = work.chosen[:PASS_ROWS_MAX]",
                "some = work.chosen[: max(len(work.chosen) // 2, 1)]",
            ),
        ),
        seeds=822,
        finders=(274,),
    ),
    Bug(
        "pass-misses-what-runs-out",
        "A pass does not look again for messages whose leases have run out since it went past them.",
        "docs/how-to/change-many.md: what is given back before a pass ends is met on another way",
        (
            change(
                "core.partition.passes:Passes.applied",
                "record.kind in _GIVING_BACK",
                "record.kind == RecordKind.NACK",
            ),
        ),
        seeds=0,
        finders=(95011030,),
    ),
    Bug(
        "pass-spreads-too-far",
        "A pass spreads messages over twice the interval.",
        "`spread` of move_where: evenly over an interval",
        (change("core.partition.passes:Passes._dues", "(places * spread_ms)", "(places * spread_ms * 2)"),),
        seeds=1119,
        finders=(373,),
    ),
    Bug(
        "shifted-from-where-it-waits",
        "A shift counts from the instant at which a message began to wait.",
        "`by` of shift_where: from its due",
        (
            change(
                "core.partition.passes:Passes._dues",
                'entries["due"].astype(np.int64) + asked["by_ms"]',
                'entries["wait_at"].astype(np.int64) + asked["by_ms"]',
            ),
        ),
        seeds=822,
        finders=(274,),
    ),
    Bug(
        "pass-overtakes-what-is-revealed",
        "A pass begins while a job is revealed, and leaves what moves to places that it has passed.",
        "a scan of an index by pages, of rows whose key is changed meanwhile",
        (
            change("core.partition.passes:Passes.applied", "in _GIVING_BACK", "in _GIVING_BACK[:3]"),
            change(
                "core.partition.passes:Passes.tick", "elif not self._work.unrevealed & unrevealed:", "else:"
            ),
        ),
        seeds=0,
        finders=(94036290, 94024353),
    ),
)
"""All of them."""
