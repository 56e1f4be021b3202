"""Documents about recurrences: one of them, or a page of them by name."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any

from dueq.core.front.pages import fitting
from dueq.core.state.recurrence import Recurrence
from dueq.recurring.terms import unpacked

if TYPE_CHECKING:
    from dueq.core.partition.partition import Partition

PAGE_ROWS_MAX = 500
"""Recurrences of one partition in one document: some milliseconds of work."""


def one(led: list[Partition], name: str, now_ms: int) -> dict[str, Any]:
    """Return the recurrence of this name, with a payload of its own, of each partition that is led here and has it."""
    partitions = []
    for partition in led:
        found = partition.contents.recurrence(name)
        shown = [_shown(partition, found, now_ms)] if found is not None else []
        if found is not None and not found.body:
            shown[0]["payload"] = b64encode(found.payload).decode()
        partitions.append(_view(partition, shown, more=False))
    return {"partitions": partitions}


def page(led: list[Partition], after: str, now_ms: int) -> dict[str, Any]:
    """Return the next recurrences by name after a name, of each partition that is led here."""
    partitions = []
    for partition in led:
        found = partition.contents.recurrences_after(after, PAGE_ROWS_MAX + 1)
        shown = fitting((_shown(partition, each, now_ms) for each in found[:PAGE_ROWS_MAX]), len(led))
        partitions.append(_view(partition, shown, more=len(shown) < len(found)))
    return {"partitions": partitions}


def _view(partition: Partition, shown: list[dict[str, Any]], more: bool) -> dict[str, Any]:
    return {
        "uid": partition.uid,
        "epoch": partition.epoch,
        "sequence": partition.applied,
        "recurrences": shown,
        "more": more,
    }


def _shown(partition: Partition, recurrence: Recurrence, now_ms: int) -> dict[str, Any]:
    """Return the document of a recurrence; it hides that a tick is logged before it comes."""
    coming = [fired.tick for fired in recurrence.fired if fired.first > now_ms]
    come = [fired.tick for fired in recurrence.fired if fired.first <= now_ms]
    return {
        "name": recurrence.name,
        "terms": unpacked(recurrence.document),
        "payload_bytes": partition.contents.body_bytes(recurrence.body)
        if recurrence.body
        else len(recurrence.payload),
        "paused": recurrence.paused,
        "next": min(filter(None, (recurrence.next, *coming)), default=0),
        "last": max([recurrence.past, *come]),
        "unfinished": recurrence.unfinished,
        "messages": recurrence.messages,
        "skipped": recurrence.skipped,
    }
