"""What a receiver, or somebody else, wants of all gateways: a pause, or an end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("aiohttp")

from dueq.client.endpoints import StoredEndpoint
from dueq.errors import Disconnected
from dueq.gateway.webhooks.answers import Fate
from tests.unit.gateway.webhooks.stage import Stage, now_s, play


def test_after_a_retry_after_nothing_is_sent_and_the_topic_is_held() -> None:
    async def story() -> None:
        stage = Stage()
        stage.come(0)
        stage.answer("m0", 503, "60")
        assert await stage.begun.get() == "m0"
        assert await stage.settled.get() == ("m0", "release", 60.0)
        stage.come(1)
        stage.now_ms += 20_000
        assert await stage.settled.get() == ("m1", "release", 5.0)
        assert stage.asked == ["hold"]
        assert (stage.counters.held_until_ms, stage.counters.window) == (1_060_000, 1)
        assert stage.counters.fates[Fate.LATER] == 1
        stage.now_ms += 40_000
        for number in (2, 3):
            stage.come(number)
        assert await stage.begun.get() == "m2"
        assert stage.begun.empty()
        stage.answer("m2", 200)
        assert await stage.begun.get() == "m3"
        await stage.worker.stop(0)

    play(story)


def test_what_a_receiver_asks_for_last_is_told_to_the_mesh_before_a_worker_ends() -> None:
    """Other gateways would go on sending."""

    async def story() -> None:
        stage, ready, told = Stage(), asyncio.Event(), list[str]()

        async def follow(steps: Any, _timeout: float | None) -> bool:
            steps.close()
            await ready.wait()
            told.append(steps.__name__)
            return True

        stage.follow = follow  # type: ignore[method-assign]
        stage.come(0)
        await stage.begun.get()
        stopping = asyncio.create_task(stage.worker.stop())
        stage.answer("m0", 503, "60")
        assert (await stage.settled.get())[:2] == ("m0", "release")
        for _ in range(20):
            await asyncio.sleep(0)
        ready.set()
        await stopping
        assert told == ["hold"]

    play(story)


def test_what_a_former_receiver_asks_for_does_not_hold_up_its_successor_here() -> None:
    async def story() -> None:
        stage = Stage()
        for number in (0, 1):
            stage.come(number)
        assert [await stage.begun.get(), await stage.begun.get()] == ["m0", "m1"]
        stopping = asyncio.create_task(stage.worker.stop())
        await stage.closed.wait()
        stage.answer("m0", 503, "60")
        stage.answer("m1", 503, "3600")
        await stopping
        assert stage.counters.held_until_ms == 0
        assert stage.held[-1] == 4_600_000, "the mesh decides whether it still is the receiver"

    play(story)


def test_whoever_resumes_the_topic_ends_the_pause_here_too() -> None:
    async def story() -> None:
        stage = Stage()
        stage.come(0)
        stage.answer("m0", 429, "3600")
        await stage.settled.get()
        paused = StoredEndpoint("bills", 8, True, 4_600_000, stage.endpoint.document)
        stage.seen(stage.endpoint)  # read before the pause was stored
        assert stage.counters.held_until_ms
        stage.seen(paused)
        stage.seen(StoredEndpoint("bills", 9, False, 0, stage.endpoint.document))
        stage.come(1)
        assert await stage.begun.get() == "m0"
        assert await stage.begun.get() == "m1"
        await stage.worker.stop(0)

    play(story)


def test_a_pause_that_the_topic_was_told_of_ends_with_it_though_no_look_has_seen_it() -> None:
    """Somebody resumes the topic at once."""

    async def story() -> None:
        stage = Stage()
        stage.come(0)
        stage.answer("m0", 429, "3600")
        await stage.settled.get()
        while not stage.held:
            await asyncio.sleep(0)
        stage.seen(StoredEndpoint("bills", 9, False, 0, stage.endpoint.document))
        assert stage.counters.held_until_ms, "this look had begun before"
        stage.seen(StoredEndpoint("bills", 9, False, 0, stage.endpoint.document), now_s() + 1)
        assert not stage.counters.held_until_ms
        await stage.worker.stop(0)

    play(story)


def test_the_end_of_a_pause_ends_no_longer_one_that_a_receiver_has_asked_for_since() -> None:
    async def story() -> None:
        stage = Stage()
        stage.seen(StoredEndpoint("bills", 8, True, 1_030_000, stage.endpoint.document))
        stage.now_ms = 1_030_000
        stage.come(0)
        stage.answer("m0", 429, "3600")
        await stage.settled.get()
        stage.seen(StoredEndpoint("bills", 9, False, 0, stage.endpoint.document))
        stage.come(1)
        assert (await stage.settled.get())[:2] == ("m1", "release")
        await stage.worker.stop(0)

    play(story)


@pytest.mark.parametrize("ends_ms", [4_630_000, 0])
def test_the_end_of_a_pause_ends_what_a_receiver_has_asked_for_within_it(ends_ms: int) -> None:
    async def story() -> None:
        stage = Stage()
        stage.come(0)
        stage.answer("m0", 429, "3600")
        await stage.settled.get()
        stage.seen(StoredEndpoint("bills", 8, True, ends_ms, stage.endpoint.document))
        stage.seen(StoredEndpoint("bills", 9, False, 0, stage.endpoint.document))
        assert not stage.counters.held_until_ms
        await stage.worker.stop(0)

    play(story)


@pytest.mark.parametrize(("left_ms", "delay"), [(3_600_000, 5.0), (3_000, 3.0), (20, 1.0)])
def test_what_is_given_back_in_a_pause_does_not_stay_away_if_somebody_ends_it(
    left_ms: int, delay: float
) -> None:
    """The pause of the topic keeps it, and a resume has to find it there."""

    async def story() -> None:
        stage = Stage()
        paused = StoredEndpoint("bills", 8, True, stage.now_ms + left_ms, stage.endpoint.document)
        stage.seen(paused)
        stage.come(0)
        assert await stage.settled.get() == ("m0", "release", delay)
        await stage.worker.stop(0)

    play(story)


def test_a_pause_that_is_made_shorter_is_shorter_here_too() -> None:
    async def story() -> None:
        stage = Stage()
        for version, ends_ms in ((8, 4_600_000), (9, 1_004_000)):
            stage.seen(StoredEndpoint("bills", version, True, ends_ms, stage.endpoint.document))
        stage.now_ms = 1_004_000
        stage.come(0)
        assert await stage.begun.get() == "m0"
        await stage.worker.stop(0)

    play(story)


def test_a_shorter_pause_of_the_topic_ends_no_longer_one_that_it_was_not_told_of() -> None:
    async def story() -> None:
        stage = Stage()
        stage.seen(StoredEndpoint("bills", 8, True, 1_030_000, stage.endpoint.document))
        stage.now_ms = 1_030_000
        stage.come(0)
        stage.answer("m0", 429, "3600")
        await stage.settled.get()
        stage.seen(StoredEndpoint("bills", 9, True, 1_040_000, stage.endpoint.document))
        stage.now_ms = 1_040_000
        stage.come(1)
        assert (await stage.settled.get())[:2] == ("m1", "release")
        await stage.worker.stop(0)

    play(story)


def test_what_another_gateway_was_asked_for_holds_here_too() -> None:
    async def story() -> None:
        stage = Stage()
        stage.seen(StoredEndpoint("bills", 8, True, 1_030_000, stage.endpoint.document))
        stage.come(0)
        assert (await stage.settled.get())[:2] == ("m0", "release")
        stage.now_ms = 1_030_000
        stage.come(1)
        assert await stage.begun.get() == "m1"
        await stage.worker.stop(0)

    play(story)


def test_a_pause_without_an_end_holds_what_is_here_already_and_nothing_that_is_triggered_in_it() -> None:
    async def story() -> None:
        stage = Stage(in_flight=1)
        stage.come(0)
        stage.come(1)
        assert await stage.begun.get() == "m0"
        for version in (8, 9):
            stage.seen(StoredEndpoint("bills", version, True, 0, stage.endpoint.document))
            stage.now_ms += 2
        stage.come(2)
        stage.come(3, released_at=1_000_001)
        stage.answer("m0", 204)
        assert await stage.settled.get() == ("m0", "ack")
        assert await stage.settled.get() == ("m1", "release", 1.0)
        assert await stage.settled.get() == ("m2", "release", 1.0)
        assert await stage.begun.get() == "m3"
        stage.answer("m3", 204)
        assert await stage.settled.get() == ("m3", "ack")
        stage.seen(StoredEndpoint("bills", 10, False, 0, stage.endpoint.document))
        stage.come(4)
        assert await stage.begun.get() == "m4"
        await stage.worker.stop(0)

    play(story)


def test_another_pause_holds_what_has_come_since_the_one_that_was_seen() -> None:
    """Between two looks somebody has resumed the topic and paused it again; both are changes of its settings."""

    async def story() -> None:
        stage = Stage(in_flight=1)
        stage.come(0)
        assert await stage.begun.get() == "m0"
        stage.seen(StoredEndpoint("bills", 8, True, 0, stage.endpoint.document))
        stage.come(1, released_at=1_000_300)
        stage.now_ms = 1_000_600
        stage.seen(StoredEndpoint("bills", 10, True, 0, stage.endpoint.document))
        stage.come(2, released_at=1_000_601)
        assert await stage.settled.get() == ("m1", "release", 1.0)
        stage.answer("m0", 204)
        assert await stage.begun.get() == "m2", "it was triggered in the pause"
        await stage.worker.stop(0)

    play(story)


def test_410_disables_the_endpoint_once_and_gives_everything_back() -> None:
    async def story() -> None:
        stage = Stage()
        for number in (0, 1):
            stage.come(number)
            stage.answer(f"m{number}", 410)
        assert await stage.settled.get() == ("m0", "release", 1.0)
        assert await stage.settled.get() == ("m1", "release", 1.0)
        assert stage.asked == ["disable"]
        stage.come(2)
        assert await stage.settled.get() == ("m2", "release", 1.0)
        assert [await stage.begun.get(), await stage.begun.get()] == ["m0", "m1"]
        assert stage.begun.empty()
        await stage.worker.stop(0)

    play(story)


def test_what_waits_for_a_slot_is_given_back_after_410() -> None:
    async def story() -> None:
        stage = Stage(in_flight=1)
        stage.come(0)
        stage.come(1)
        assert await stage.begun.get() == "m0"
        stage.answer("m1", 204)
        stage.answer("m0", 410)
        assert await stage.settled.get() == ("m0", "release", 1.0)
        assert await stage.settled.get() == ("m1", "release", 1.0)
        assert stage.begun.empty()
        await stage.worker.stop(0)

    play(story)


def test_an_endpoint_that_cannot_be_disabled_is_tried_again() -> None:
    async def story() -> None:
        stage = Stage()
        stage.mesh = Disconnected("nobody there")
        stage.come(0)
        stage.answer("m0", 410)
        assert await stage.settled.get() == ("m0", "release", 1.0)
        stage.mesh = True
        stage.come(1)
        stage.answer("m1", 410)
        assert await stage.settled.get() == ("m1", "release", 1.0)
        assert stage.asked == ["disable", "disable"]
        await stage.worker.stop(0)

    play(story)


def test_an_endpoint_that_was_made_again_meanwhile_is_served_after_a_410_of_the_former_one() -> None:
    """It looks as before, so no other worker follows."""

    async def story() -> None:
        stage = Stage()
        stage.mesh = False
        stage.come(0)
        stage.answer("m0", 410)
        assert await stage.settled.get() == ("m0", "release", 1.0)
        stage.come(1)
        assert [await stage.begun.get(), await stage.begun.get()] == ["m0", "m1"]
        await stage.worker.stop(0)

    play(story)


def test_an_endpoint_that_was_made_again_after_it_was_disabled_is_served() -> None:
    """A look that began after it was disabled finds it as it was."""

    async def story() -> None:
        stage = Stage()
        stage.come(0)
        before_s = now_s()
        stage.answer("m0", 410)
        assert await stage.settled.get() == ("m0", "release", 1.0)
        stage.seen(stage.endpoint, before_s)
        stage.come(1)
        assert await stage.settled.get() == ("m1", "release", 1.0)
        stage.seen(stage.endpoint, now_s())
        stage.come(2)
        assert [await stage.begun.get(), await stage.begun.get()] == ["m0", "m2"]
        await stage.worker.stop(0)

    play(story)
