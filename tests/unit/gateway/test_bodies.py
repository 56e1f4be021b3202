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
from dueq.errors import Busy
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


def test_what_is_only_announced_takes_no_room() -> None:
    room = bodies.BodyRoom(100)

    async def slow() -> AsyncIterator[bytes]:
        yield b"x" * 40
        await asyncio.Event().wait()

    async def run() -> None:
        state = SimpleNamespace(state=SimpleNamespace(room=room))
        request: Any = SimpleNamespace(headers={"content-length": "90"}, stream=slow, app=state)

        async def take() -> None:
            async with bodies.whole(request, 100):
                pass

        readers = [asyncio.create_task(take()) for _ in range(3)]
        [refused], waiting = await asyncio.wait(readers, return_when=asyncio.FIRST_COMPLETED)
        assert isinstance(refused.exception(), Busy)
        assert (len(waiting), room.taken) == (2, 80)
        for reader in waiting:
            reader.cancel()
        await asyncio.wait(waiting)
        assert room.taken == 0

    asyncio.run(run())


def test_a_body_may_take_its_time_while_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    piece = bytes(2 * limits.GATEWAY_BYTES_PER_S_MIN)
    assert read(monkeypatch, piece, 2) == piece * 60


def test_one_that_drips_is_refused_before_it_holds_room_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Refusal, match="less than 16384 bytes a second") as refused:
        read(monkeypatch, b"x", 10)
    assert refused.value.status_code == 408
