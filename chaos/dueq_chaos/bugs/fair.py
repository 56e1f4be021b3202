"""Planted bugs of fair topics: turns, slots, and the order inside a group."""

from __future__ import annotations

from typing import Final

from dueq_chaos.bugs.bug import Bug, change

_QUEUE = "core.delivery.fair_queue:FairQueue"

FAIR: Final = (
    Bug(
        "first-group-keeps-its-turn",
        "The group in front gets messages until it has none, and the others wait.",
        "Shreedhar and Varghese 1996: a queue that has used its quantum goes to the back",
        (change(f"{_QUEUE}._charge", "elif above.left <= 0:", "elif False:"),),
        seeds=1065,
        finders=(
            355,
            419,
        ),
    ),
    Bug(
        "slots-of-one-level",
        "What is leased counts for the group itself, not for the levels above it.",
        "docs/explanation/kinds.md: a limit of a level counts all groups below it",
        (
            change(
                f"{_QUEUE}._count_used",
                "below.used += count",
                "below.used += count if below.own is not None else 0",
            ),
        ),
        seeds=873,
        finders=(
            291,
            419,
        ),
    ),
    Bug(
        "paused-group-below",
        "The messages of a group are given while the level above it is paused.",
        "docs/explanation/kinds.md: what is set for a group holds for those below it",
        (change(f"{_QUEUE}._may_give", "settings.paused or", "settings.paused and node.own is not None or"),),
        seeds=681,
        finders=(
            227,
            547,
        ),
    ),
    Bug(
        "latest-of-a-group-first",
        "Inside a group, messages go by their number instead of their rank and instant.",
        "docs/explanation/kinds.md: inside a group the order is that of a priority topic",
        (
            change(
                f"{_QUEUE}._choose",
                "chosen.append((leaf, heappop(leaf.heap)))",
                "chosen.append((leaf, leaf.heap.pop()))",
            ),
        ),
        seeds=489,
        finders=(
            163,
            227,
        ),
    ),
)
"""All of them."""
