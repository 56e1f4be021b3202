"""Documents about endpoints: a page of them by topic, with their secrets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dueq.core.ports.membership import Topic

PAGE_ROWS_MAX: Final = 128
"""Endpoints in one document: half a MiB."""


def page(topics: Mapping[str, Topic], after: str) -> dict[str, Any]:
    """Return the endpoints of the next topics by name after a name."""
    names = sorted(
        name for name, topic in topics.items() if name > after and topic.settings.endpoint is not None
    )
    return {
        "endpoints": [_shown(topics[name]) for name in names[:PAGE_ROWS_MAX]],
        "more": len(names) > PAGE_ROWS_MAX,
    }


def _shown(topic: Topic) -> dict[str, Any]:
    settings = topic.settings
    return {
        "topic": topic.name,
        "uid": topic.uid,
        "version": settings.version,
        "paused": settings.paused,
        "paused_until_ms": settings.paused_until_ms,
        "endpoint": settings.endpoint,
    }
