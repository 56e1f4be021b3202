"""Pages of documents about things that have names: bounded, since a page has to fit a frame."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

PAGE_CHARACTERS_MAX: Final = 512 << 10
"""Of a page as JSON, the parts of all partitions together."""


def fitting(shown: Iterable[dict[str, Any]], partitions: int) -> list[dict[str, Any]]:
    """Return as many of the first as fit one partition's part of a page; at least one, if there is any.

    Args:
        shown: documents, in order.
        partitions: how many share the page.
    """
    room, found = PAGE_CHARACTERS_MAX // partitions, list[dict[str, Any]]()
    for each in shown:
        room -= len(json.dumps(each))
        if room < 0 and found:
            break
        found.append(each)
    return found
