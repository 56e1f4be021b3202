"""What a receiver asks for after somebody has ended a longer pause."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("aiohttp")

from dueq.errors import Unavailable
from tests.unit.gateway.webhooks.stage import Stage, now_s, play


async def resumed() -> Stage:
    """Return a stage whose receiver has asked for an hour, of which the topic was told, and that somebody has ended."""
    stage = Stage(in_flight=1)
    stage.come(0)
    stage.answer("m0", 429, "3600")
    assert await stage.begun.get() == "m0"
    assert await stage.settled.get() == ("m0", "release", 3600.0)
    while not stage.held:
        await asyncio.sleep(0)
    stage.seen(replace(stage.endpoint, paused=True, paused_until_ms=stage.held[0]), now_s())
    stage.seen(stage.endpoint, now_s())
    assert not stage.counters.held_until_ms
    return stage


def test_a_pause_that_the_topic_cannot_be_told_of_holds_here_though_an_earlier_one_was_longer() -> None:
    async def story() -> None:
        stage = await resumed()
        stage.mesh = Unavailable("ZooKeeper is away")
        stage.come(1)
        stage.answer("m1", 429, "60")
        assert await stage.settled.get() == ("m1", "release", 60.0)
        while len(stage.held) < 2:
            await asyncio.sleep(0)
        stage.seen(stage.endpoint, now_s())
        assert stage.counters.held_until_ms == 1_060_000
        await stage.worker.stop(0)

    play(story)


def test_a_pause_holds_here_while_the_topic_is_being_told_of_it() -> None:
    async def story() -> None:
        stage, ready = await resumed(), asyncio.Event()
        follow = stage.follow

        async def slow(steps: Any, timeout: float | None) -> Any:
            await ready.wait()
            return await follow(steps, timeout)

        stage.follow = slow  # type: ignore[method-assign]
        stage.come(1)
        stage.answer("m1", 429, "60")
        assert await stage.settled.get() == ("m1", "release", 60.0)
        stage.seen(stage.endpoint, now_s())
        assert stage.counters.held_until_ms == 1_060_000
        ready.set()
        await stage.worker.stop()
        assert stage.held == [4_600_000, 1_060_000]

    play(story)


def test_a_worker_that_is_left_tells_the_topic_of_a_pause_though_an_earlier_one_was_longer() -> None:
    async def story() -> None:
        stage = await resumed()
        stage.come(1)
        while stage.begun.empty():
            await asyncio.sleep(0)
        stage.worker.leave()
        stage.answer("m1", 429, "60")
        await stage.worker.stop()
        assert stage.held == [4_600_000, 1_060_000]

    play(story)


def test_a_pause_that_is_asked_for_while_the_topic_is_told_of_a_longer_one_follows_it() -> None:
    """The longer one was stored, seen and ended before its answer came."""

    async def story() -> None:
        stage, ready = Stage(in_flight=1), asyncio.Event()
        follow = stage.follow

        async def slow(steps: Any, timeout: float | None) -> Any:
            found = await follow(steps, timeout)
            await ready.wait()
            return found

        stage.follow = slow  # type: ignore[method-assign]
        stage.come(0)
        stage.answer("m0", 429, "3600")
        await stage.settled.get()
        stage.seen(replace(stage.endpoint, paused=True, paused_until_ms=4_600_000), now_s())
        stage.seen(stage.endpoint, now_s())
        stage.come(1)
        stage.answer("m1", 429, "60")
        assert await stage.settled.get() == ("m1", "release", 60.0)
        ready.set()
        await stage.worker.stop()
        assert stage.held == [4_600_000, 1_060_000]

    play(story)
