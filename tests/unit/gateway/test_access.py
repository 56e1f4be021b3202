"""What every request passes costs no thread, and no look at the whole of the API."""

from __future__ import annotations

import inspect

import pytest

pytest.importorskip("fastapi")

from fastapi.routing import APIRoute

from dueq.gateway import probes
from dueq.gateway.access import known_query
from dueq.gateway.app import _ROUTERS
from dueq.gateway.dashboard import pages


def dependencies(of: object) -> list[object]:
    """All functions that a route depends on."""
    found = list(getattr(of, "dependencies", ()))
    return [each.call for each in found] + [deeper for each in found for deeper in dependencies(each)]


def test_nothing_that_a_request_passes_waits_for_a_thread() -> None:
    checked = 0
    for route in [route for router in (probes.router, pages.router, *_ROUTERS) for route in router.routes]:
        if not isinstance(route, APIRoute):
            continue
        for call in [known_query, route.endpoint, *dependencies(route.dependant)]:
            checked += 1
            assert inspect.iscoroutinefunction(call), f"{route.path}: {call}"
    assert checked > 100
