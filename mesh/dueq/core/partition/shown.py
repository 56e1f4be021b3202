"""Columns of a page of browsing for which entries only have numbers: groups and headers."""

from __future__ import annotations

from typing import Any

from dueq.core.delivery.pushes import placed
from dueq.core.ports.entry import Entries, is_wide, keys_of
from dueq.core.state.timeline import Timeline


def shown(timeline: Timeline, entries: Entries) -> dict[str, Any]:
    """Return the columns of a reply that say of which groups messages are, and which headers they have got."""
    found: dict[str, Any] = {}
    if is_wide(entries) and entries["group"].any():
        groups = timeline.groups
        names = [groups.name_of(number) or "" for number in entries["group"].tolist()]
        found["groups"], found["group"] = placed(names)
    if headed := timeline.headings.by_key:
        texts = [headed.get(key, "") for key in keys_of(entries).tolist()]
        found["headings"], found["heading"] = placed(texts)
    return found
