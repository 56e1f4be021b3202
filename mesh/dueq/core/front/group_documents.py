"""Documents about groups: a page of them by name."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from dueq.core.front.pages import fitting
from dueq.core.state.group_table import Group
from dueq_codecs.groups import AS_CREATED

if TYPE_CHECKING:
    from dueq.core.partition.partition import Partition

PAGE_ROWS_MAX = 1_000
"""Groups of one partition in one document."""


def page(led: list[Partition], after: str) -> dict[str, Any]:
    """Return the next groups by name after a name, of each partition that is led here."""
    partitions = []
    for partition in led:
        found = partition.contents.groups_after(after, PAGE_ROWS_MAX + 1)
        shown = fitting(map(_shown, found[:PAGE_ROWS_MAX]), len(led))
        partitions.append(
            {
                "uid": partition.uid,
                "epoch": partition.epoch,
                "sequence": partition.applied,
                "groups": shown,
                "more": len(shown) < len(found),
            }
        )
    return {"partitions": partitions}


def _shown(group: Group) -> dict[str, Any]:
    settings = group.settings or AS_CREATED
    return {"name": group.name, "messages": group.messages, **asdict(settings)}
