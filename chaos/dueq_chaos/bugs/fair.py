"""Planted bugs of fair topics: turns, slots, and the order inside a group."""

from __future__ import annotations

from typing import Final

from dueq_chaos.bugs.bug import Bug, change

_QUEUE = "core.delivery.fair_queue:FairQueue"
_SLOTS = "core.delivery.group_slots:GroupSlots"

FAIR: Final = (
    Bug(
        "first-group-keeps-its-turn",
        "The group in front keeps its turn until it has no messages, and the others wait.",
        "Shreedhar and Varghese 1996: a queue that has used its quantum goes to the back",
        (change(f"{_QUEUE}._charge", "elif node.left <= 0:", "elif False:"),),
        seeds=1065,
        finders=(
            355,
            419,
        ),
    ),
    Bug(
        "slots-of-one-level",
        "A lease takes a slot of its own group only, not of the levels above it.",
        "docs/explanation/kinds.md: a limit of a level counts all groups below it",
        (change(f"{_SLOTS}._count", "in levels_of(name):", "in (name,):"),),
        seeds=420,
        finders=(419,),
    ),
    Bug(
        "paused-group-below",
        "The messages of a group are delivered while the level above it is paused.",
        "docs/explanation/kinds.md: what is set for a group holds for those below it",
        (
            change(
                f"{_QUEUE}._closed_until",
                "if settings.paused:",
                "if settings.paused and (node.own is not None or node.is_leaf):",
            ),
        ),
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
    Bug(
        "one-slot-too-many",
        "Consumers get one more message of a group than its max_unacked.",
        "an off-by-one in a limit",
        (change(f"{_QUEUE}._closed_until", "node.drawn >= settings", "node.drawn > settings"),),
        seeds=420,
        finders=(419,),
    ),
    Bug(
        "slots-count-what-was-pushed",
        "A lease takes no slot unless it was pushed by an earlier leader.",
        "a quota that does not count what is admitted and does not run yet",
        (
            change(
                "core.delivery.leases:LeaseTable.add",
                "if self.group_slots is not None:",
                "if self.group_slots is not None and phase == Phase.PUSHED:",
            ),
            change(
                f"{_SLOTS}.end",
                "held = self._held[number]",
                'held = self._held.setdefault(number, _Held(""))',
            ),
        ),
        seeds=420,
        finders=(419,),
    ),
    Bug(
        "slot-that-is-free-opens-nothing",
        "A group that had no slot is not looked at again when one of its leases ends.",
        "a wait without anything that ends it",
        (change(f"{_QUEUE}._reopen_freed", "self._reopen(node)", "pass"),),
        seeds=420,
        finders=(419,),
    ),
    Bug(
        "end-of-pause-opens-nothing",
        "A group that was paused is not looked at again when its pause is over.",
        "a wait without anything that ends it",
        (
            change(
                "core.delivery.lease_changes:LeaseChanges.applied",
                "lane.queue.group_changed(record.name)",
                "pass",
            ),
        ),
        seeds=420,
        finders=(419,),
    ),
    Bug(
        "token-opens-nothing",
        "A group that had no token is not looked at again when it has one.",
        "a wait without anything that ends it",
        (change(f"{_QUEUE}._reopen_with_tokens", "if waits.next_us > now_us:", "if True:"),),
        seeds=420,
        finders=(419,),
    ),
    Bug(
        "one-message-beyond-the-weight",
        "In its turn, a group gets one message more than its weight.",
        "an off-by-one in a quantum",
        (change(f"{_QUEUE}._charge", "elif node.left <= 0:", "elif node.left < 0:"),),
        seeds=356,
        finders=(355,),
    ),
    Bug(
        "rate-of-group-ignored",
        "A message costs its group no token.",
        "rate limits that are configured, shown and never asked",
        (change("core.delivery.group_rates:GroupRates.spend", "bucket.take(count)", "bucket.take(0)"),),
        seeds=100,
        finders=(99,),
    ),
    Bug(
        "levels-above-pay-nothing",
        "A message costs a token of its own group only, not of those above it.",
        "limits of a level count all groups below it",
        (
            change(
                "core.delivery.group_rates:GroupRates.spend",
                'in levels_of(groups.name_of(number) or "")',
                'in (groups.name_of(number) or "",)',
            ),
        ),
        seeds=164,
        finders=(163,),
    ),
    Bug(
        "group-settings-not-saved",
        "A checkpoint has the groups without what is set for them.",
        "ARCHITECTURE.md: recovery loads the state of the last checkpoint, then replays the log",
        (
            change(
                "core.state.group_table:Group.pack",
                'self.settings.encode().encode() if self.settings else b""',
                'b""',
            ),
        ),
        seeds=918,
        finders=(306,),
    ),
    Bug(
        "group-number-given-again",
        "A checkpoint does not say which number was given last, so a replica that starts gives other numbers.",
        "a sequence that is not saved with what it numbers",
        (change("core.state.group_table:GroupTable._next_number", "self._given_changed = True", "pass"),),
        seeds=356,
        finders=(355,),
    ),
    Bug(
        "starving-group-not-read",
        "Of very many groups, one whose turn it is waits for the disk, and nobody reads what it needs.",
        "a wait without anything that ends it",
        (change("core.delivery.leasing:Leasing._end_look", "lane.partition.read_on()", "pass"),),
        seeds=292,
        finders=(291,),
    ),
    Bug(
        "groups-leased-ahead",
        "A fair topic leases what is due soon together with what is ready, and takes its groups' slots for it.",
        "docs/explanation/kinds.md: a lease ahead of its time takes what something ready may lack",
        (
            change(
                "core.delivery.turns:FairTurns.choose",
                "picks.take(lane, demand.mesh_ms, share)",
                "picks.take(lane, demand.gather_ms, share)",
            ),
        ),
        seeds=300,
        finders=(99,),
    ),
)
"""All of them."""
