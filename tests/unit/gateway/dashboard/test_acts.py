"""Acts from pages are written down."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("fastapi")

from dueq.gateway.dashboard.acts import Acts


def written(method: str, path: str, act: str | None, status: int = 200) -> list[dict[str, Any]]:
    """The record that a request leaves."""
    found: list[dict[str, Any]] = []
    app = SimpleNamespace(state=SimpleNamespace(feed=SimpleNamespace(acted=found.append)))

    async def serve(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": status})

    async def send(message: Any) -> None:
        assert message["status"] == status

    headers = [] if act is None else [(b"x-dueq-act", act.encode())]
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "headers": headers,
        "app": app,
        "client": ("10.0.0.7", 1),
    }
    asyncio.run(Acts(serve)(scope, None, send))  # type: ignore[arg-type]
    return found


def test_an_act_has_its_words_topic_outcome_and_address() -> None:
    found = written("POST", "/v1/topics/mail/pause", "pause%20%E2%9C%93", 409)
    assert found == [{"act": "pause ✓", "topic": "mail", "status": 409, "by": "10.0.0.7"}]


def test_what_only_looks_and_what_programs_do_is_not_written_down() -> None:
    assert written("GET", "/v1/topics/mail", "look") == written("POST", "/v1/topics/mail/pause", None) == []


def test_words_cannot_forge_lines_of_the_log() -> None:
    (found,) = written("DELETE", "/v1/topics/a\nb", "x%0Ay%1B[2J" + "z" * 999)
    assert (found["act"][:8], len(found["act"]), found["topic"]) == ("x?y?[2Jz", 200, "a?b")
