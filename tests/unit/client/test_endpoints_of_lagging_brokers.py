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


def told(*parts: list[dict[str, Any]], silent: int = 0) -> Page:
    """Return what a look finds to which each broker answers with its rows, but for some that do not."""
    documents = {
        f"broker-{number}": json.dumps({"endpoints": part, "more": False})
        for number, part in enumerate(parts)
    }
    known = [*documents, *(f"silent-{number}" for number in range(silent))]
    return endpoints.page().finish(Inspection(_REPLY, dict.fromkeys(known, ""), documents))


def test_a_topic_that_was_made_again_counts_though_its_versions_have_begun_anew() -> None:
    former, new = row(7, 40, "invoice"), row(9, 1, "order")
    [found] = told([new], [former], [new]).endpoints
    assert (found.settings_version, found.document["filter"]) == (1, {"kind": ["order"]})


def test_of_one_topic_the_newest_settings_count() -> None:
    [found] = told([row(7, 2, "invoice")], [row(7, 3, "order")]).endpoints
    assert found.document["filter"] == {"kind": ["order"]}


def test_an_endpoint_that_all_brokers_tell_alike_is_agreed_on() -> None:
    """A pause may have come through to some of them only."""
    [found] = told([row(7, 2, "invoice")], [row(7, 2, "invoice")]).endpoints
    assert found.agreed
    paused = {**row(7, 2, "invoice"), "version": 3, "paused": True}
    [found] = told([paused], [row(7, 2, "invoice")]).endpoints
    assert (found.agreed, found.paused) == (True, True)


def test_an_endpoint_that_a_broker_tells_otherwise_is_not_agreed_on() -> None:
    [found] = told([row(7, 2, "invoice")], [row(7, 3, "order")]).endpoints
    assert not found.agreed


def test_an_endpoint_that_a_broker_does_not_know_is_not_agreed_on() -> None:
    """It may have been deleted, and its topic be made again without one."""
    mail = row(8, 1, "x", "mail")
    bills, other = told([row(7, 2, "invoice"), mail], [mail]).endpoints
    assert (bills.agreed, other.agreed) == (False, True)


def test_nothing_is_agreed_on_while_a_broker_is_silent() -> None:
    """It may be the only one that has heard of the last change."""
    [found] = told([row(7, 2, "invoice")], silent=1).endpoints
    assert not found.agreed
