"""Targets whose deadline is longer than the time-out of their endpoint: their requests wait for a longer lease."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

pytest.importorskip("aiohttp")

from dueq import Target
from tests.unit.gateway.webhooks.stage import Message, Stage, now_s, play

SLOW = Target("https://example.org/", deadline=600.0)


class Leader:
    """Extends leases when the test says so.

    Attributes:
        asked: it was asked to.
        ready: it does.
    """

    def __init__(self, patched: pytest.MonkeyPatch) -> None:
        self.asked, self.ready = asyncio.Event(), asyncio.Event()
        patched.setattr(Message, "extend", self._extend)

    async def _extend(self, *_: object, **__: object) -> None:
        self.asked.set()
        await self.ready.wait()


@pytest.mark.parametrize("meanwhile", ["it expires", "its topic is paused"])
def test_no_request_begins_that_may_not_once_its_lease_is_longer(
    monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    async def story() -> None:
        stage, leader = Stage(targets=True), Leader(monkeypatch)
        stage.come(0, target=SLOW, expires=1_000_500)
        await leader.asked.wait()
        if meanwhile == "it expires":
            stage.now_ms = 1_000_500
        else:
            stage.seen(replace(stage.endpoint, paused=True), now_s())
        leader.ready.set()
        assert await stage.settled.get() == ("m0", "release", 1.0)
        assert stage.begun.empty()
        await stage.worker.stop(0)

    play(story)


def test_a_worker_that_was_left_begins_no_request_once_its_lease_is_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The endpoint is disabled, or has another URL."""

    async def story() -> None:
        stage, leader = Stage(targets=True), Leader(monkeypatch)
        stage.come(0, target=SLOW)
        await leader.asked.wait()
        stage.worker.leave()
        await stage.closed.wait()
        leader.ready.set()
        assert (await stage.settled.get())[:2] == ("m0", "release")
        assert stage.begun.empty()
        await stage.worker.stop(0)

    play(story)
