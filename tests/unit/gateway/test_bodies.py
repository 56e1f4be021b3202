"""How slowly a body may come."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("fastapi")

from dueq import limits
from dueq.gateway import bodies
from dueq.gateway.problems import Refusal


def read(monkeypatch: pytest.MonkeyPatch, piece: bytes, seconds: int) -> bytes:
    """Read a body of 60 pieces, with so many seconds between them."""
    clock = itertools.count(0, seconds)
    monkeypatch.setattr(bodies, "time", SimpleNamespace(monotonic=lambda: next(clock)))

    async def stream() -> AsyncIterator[bytes]:
        for _ in range(60):
            yield piece

    async def run() -> bytes:
        state = SimpleNamespace(state=SimpleNamespace(room=bodies.BodyRoom()))
        request: Any = SimpleNamespace(headers={}, stream=stream, app=state)
        async with bodies.whole(request, 1 << 30) as found:
            return found

    return asyncio.run(run())


def test_a_body_may_take_its_time_while_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    piece = bytes(2 * limits.GATEWAY_BYTES_PER_S_MIN)
    assert read(monkeypatch, piece, 2) == piece * 60


def test_one_that_drips_is_refused_before_it_holds_room_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Refusal, match="less than 16384 bytes a second") as refused:
        read(monkeypatch, b"x", 10)
    assert refused.value.status_code == 408
