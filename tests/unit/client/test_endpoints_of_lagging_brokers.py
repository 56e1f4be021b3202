"""Endpoints as several brokers tell them, of which some have not heard of the last change."""

from __future__ import annotations

import json
from typing import Any

from dueq.client import endpoints
from dueq.client.core.asking.inspecting import Inspection
from dueq.client.endpoints import Page

_REPLY: Any = None


def row(uid: int, version: int, filtered: str, topic: str = "bills") -> dict[str, Any]:
    document = {"name": f"of-{topic}", "version": version, "filter": {"kind": [filtered]}}
    return {
        "topic": topic, "uid": uid, "version": version, "paused": False, "paused_until_ms": 0, "endpoint": document,
    }  # fmt: skip


def told(*parts: list[dict[str, Any]]) -> Page:
    """Return what a look finds to which each broker answers with its rows."""
    documents = {
        f"broker-{number}": json.dumps({"endpoints": part, "more": False})
        for number, part in enumerate(parts)
    }
    return endpoints.page().finish(Inspection(_REPLY, dict.fromkeys(documents, ""), documents))


def test_a_topic_that_was_made_again_counts_though_its_versions_have_begun_anew() -> None:
    former, new = row(7, 40, "invoice"), row(9, 1, "order")
    [found] = told([new], [former], [new]).endpoints
    assert (found.settings_version, found.document["filter"]) == (1, {"kind": ["order"]})


def test_of_one_topic_the_newest_settings_count() -> None:
    [found] = told([row(7, 2, "invoice")], [row(7, 3, "order")]).endpoints
    assert found.document["filter"] == {"kind": ["order"]}
