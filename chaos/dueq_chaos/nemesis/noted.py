"""Findings in the notes of a process of the traffic: ticks of recurrences, and messages known by keys."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

EARLY_MS: Final = 50
"""As clients and the mesh read one clock here, a message is early that comes so long before its instant."""
LEFT_US: Final = 50_000
"""By so much the mesh's clock and ours may differ."""


@dataclass
class Noted:
    """A verdict.

    Attributes:
        counts: how much of what there was.
        findings: sentences, by what must not happen; empty lists too.
    """

    counts: dict[str, int]
    findings: dict[str, list[str]] = field(default_factory=dict)


def read_notes(path: Path) -> Iterator[dict[str, Any]]:
    """Read a file of notes; a last line that was cut off is left out."""
    with path.open("rb") as lines:
        for line in lines:
            if line.endswith(b"\n"):
                yield json.loads(line)


def judge_ticks(notes: Iterable[dict[str, Any]], period_ms: int = 1000) -> Noted:
    """Judge recurrences: each tick has one message, at its instant or later.

    Args:
        notes: as `traffic.ticking` says.
        period_ms: of all recurrences.
    """
    first: dict[str, int] = {}
    since: dict[str, int] = {}
    until: dict[str, int] = {}
    ids: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
    findings: dict[str, list[str]] = {
        "tick missed": [],
        "tick twice": [],
        "tick early": [],
        "tick of nothing": [],
    }
    for note in notes:
        if "making" in note:
            first[note["making"]] = note["from"]
        elif "made" in note:
            since[note["made"]] = note["since"]
        elif "ended" in note:
            until[note["ended"]] = note["until"]
        else:
            name, due = note["tick"], note["due"]
            ids[name, due].add(note["id"])
            if note["at"] < due - EARLY_MS:
                findings["tick early"].append(f"{name}: the tick of {due} came {due - note['at']} ms early")
    expected = {
        (name, due)
        for name, begun in since.items()
        for due in range(first[name], until.get(name, begun), period_ms)
        if due >= begun
    }
    findings["tick missed"] += [
        f"{name}: the tick of {due} never came" for name, due in sorted(expected - ids.keys())
    ]
    for (name, due), found in ids.items():
        if len(found) > 1:
            findings["tick twice"].append(f"{name}: the tick of {due} came as {', '.join(sorted(found))}")
        if name not in first or due < first[name] or (due - first[name]) % period_ms:
            findings["tick of nothing"].append(f"{name}: no tick is due at {due}")
    return Noted({"ticks expected": len(expected), "ticks that came": len(ids)}, findings)


def judge_keys(notes: Iterable[dict[str, Any]], clocks_off_us: int = 0) -> Noted:
    """Judge messages with unique keys: each that is acknowledged comes, as one message, unless it is cancelled.

    Args:
        notes: as `traffic.keying` says.
        clocks_off_us: how far a broker's clock was set off.
    """
    asked: set[str] = set()
    scheduled: dict[str, str] = {}
    cancelling: set[str] = set()
    cancelled: dict[str, int] = {}
    came: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for note in notes:
        if "asked" in note:
            asked.update(note["asked"])
        elif "scheduled" in note:
            scheduled.update(zip(note["scheduled"], note["ids"], strict=True))
        elif "cancelling" in note:
            cancelling.add(note["cancelling"])
        elif "cancelled" in note:
            cancelled[note["cancelled"]] = note["at"]
        else:
            came[note["came"]].append(note)
    findings: dict[str, list[str]] = {
        "keyed message lost": [f"{key} never came" for key in scheduled if key not in came and key not in cancelling],
        "key twice": [], "keyed message early": [], "keyed message after its cancel": [],
        "keyed message of nothing": [f"{key} came, and was not asked for" for key in came if key not in asked],
    }  # fmt: skip
    for key, notes_of_it in came.items():
        ids = {note["id"] for note in notes_of_it} | ({scheduled[key]} if key in scheduled else set())
        if len(ids) > 1:
            findings["key twice"].append(f"{key} names {', '.join(sorted(ids))}")
        for note in notes_of_it:
            if note["at"] < (note["due"] - EARLY_MS) * 1000:
                findings["keyed message early"].append(
                    f"{key} came {note['due'] - note['at'] // 1000} ms early"
                )
            if key in cancelled and note["left"] > cancelled[key] + LEFT_US + clocks_off_us:
                late_ms = (note["left"] - cancelled[key]) // 1000
                findings["keyed message after its cancel"].append(f"{key} left {late_ms} ms after its cancel")
    counts = {
        "keyed messages acknowledged": len(scheduled),
        "keyed messages that came": len(came),
        "keyed messages cancelled": len(cancelled),
    }
    return Noted(counts, findings)
