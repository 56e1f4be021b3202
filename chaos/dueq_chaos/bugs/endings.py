"""Planted bugs of how messages end: expiry, attempts, retention, reasons."""

from __future__ import annotations

from typing import Final

from dueq_chaos.bugs.bug import Bug, change

ENDINGS: Final = (
    Bug(
        "expiry-not-looked-at",
        "A leader leases and pushes messages whose time is over.",
        "docs/how-to/dead-letters.md: what has expired is not delivered",
        (change("core.delivery.lane:Lane.over", "if not is_full(entries):", "if True:"),),
        seeds=1023,
        finders=(373, 341),
    ),
    Bug(
        "discarded-too-soon",
        "Dead messages are discarded without regard to how long the topic keeps them.",
        "docs/how-to/dead-letters.md: a dead message stays for `dead_retention`",
        (
            change(
                "core.partition.dead_letters:DeadLetters._discard", "+ retention_ms <= mesh_ms", "<= mesh_ms"
            ),
        ),
        seeds=966,
        finders=(322,),
    ),
    Bug(
        "back-off-kills",
        "A message that should wait by its topic's back-off is dead at once.",
        "docs/how-to/dead-letters.md: a nack without a delay follows the back-off",
        (
            change(
                "core.partition.back_off:decide",
                "if (fate == Fate.DEAD).any():",
                "if (fate != Fate.DELAY).any():",
            ),
            change(
                "core.partition.back_off:decide",
                "np.where(backs_off, Fate.DELAY, fate)",
                "np.where(backs_off, Fate.DEAD, fate)",
            ),
        ),
        seeds=1167,
        finders=(389,),
    ),
    Bug(
        "redriven-onto-a-taken-key",
        "A dead message comes back though another has its unique key by now, and takes it from that.",
        "docs/how-to/unique-keys.md: of messages that live one has the key",
        (change("core.state.live:LiveMessages._take_back", "name[:2] == owner", "True"),),
        seeds=0,
        finders=(89000001,),
    ),
    Bug(
        "own-limit-of-attempts-ignored",
        "A message dies by the attempts that its topic allows, whatever it says itself.",
        "docs/how-to/dead-letters.md: `max_attempts` of a message comes before that of its topic",
        (
            change(
                "core.state.live:LiveMessages._dying",
                'np.where(rows["attempts_max"] > 0, rows["attempts_max"], most)',
                "most",
            ),
        ),
        seeds=0,
        finders=(89000001, 88000005),
    ),
    Bug(
        "dead-nack-is-only-a-nack",
        "A message that its consumer has said is dead waits again.",
        "docs/how-to/dead-letters.md: `nack(dead=True)`",
        (change("core.partition.back_off:decide", "if (fate == Fate.DEAD).any():", "if False:"),),
        seeds=0,
        finders=(89000001, 88000027),
    ),
    Bug(
        "replaced-headers-not-saved",
        "A checkpoint leaves out the headers that a nack has replaced: after a restart the old ones come back.",
        "an annotation that is kept in memory beside the log, and lost with the log's beginning",
        (
            change(
                "core.state.heading_table:HeadingTable.changed_rows",
                "rows.append(TableRow(name, document.encode()))",
                "pass",
            ),
        ),
        seeds=400,
        finders=(373,),
    ),
    Bug(
        "headers-pushed-as-they-were",
        "The next delivery shows the producer's headers, though a nack has replaced them.",
        "metadata of a retry that is stored, listed and never delivered",
        (
            change(
                "core.delivery.pushes:_heading_texts",
                "if not any(tables):",
                "if True:",
            ),
        ),
        seeds=400,
        finders=(322,),
    ),
    Bug(
        "reasons-forgotten",
        "A checkpoint does not write the reasons, so they are in memory only.",
        "docs/explanation/memory.md: what leaves memory is on the disk",
        (change("core.state.remarks:Remarks.take", "return list(taken.items())", "return []"),),
        seeds=966,
        finders=(322,),
    ),
)
"""All of them."""
