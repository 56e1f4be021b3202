"""One look at the mesh for all open pages, and none while nobody looks."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

pytest.importorskip("fastapi")

from dueq import PartitionInfo, TopicInfo, limits
from dueq.client.calls import Call
from dueq.client.core.ports.events import Inspect
from dueq.client.statistics import StatisticsPart
from dueq.client.summaries import MeshSummary
from dueq.errors import Busy, Disconnected
from dueq.gateway.dashboard import feed as feeding
from dueq.gateway.dashboard.feed import Feed
from dueq.gateway.dashboard.snapshot import Ahead, Sight


class Mesh:
    """A service over a mesh of one topic, which counts every question."""

    def __init__(self) -> None:
        self.client = self.connection = self
        self.away = self.odd = False
        self.silent: tuple[str, ...] = ()
        self.looks = self.listed = self.catalogue = 0
        self.forecasts: list[tuple[str, int]] = []

    async def now_us(self) -> int:
        return (1_000_000 + self.looks) * 1_000_000

    async def topics(self, *, timeout: float) -> list[TopicInfo]:
        self.listed += 1
        partition = PartitionInfo(0, 0, "b1", 1, True, ("b1", *self.silent))
        return [TopicInfo("mail", "timeline", 0, 1, 1, 1 << 20, None, (partition,))]

    async def run(self, call: Call[Any], timeout: float) -> Any:
        asked = call.build(1, 1)
        assert isinstance(asked, Inspect)
        if asked.what == "summary":
            self.looks += 1
            if self.away:
                raise Disconnected("no broker was reached")
            if self.odd:
                raise KeyError("held")
            return MeshSummary({"b1": {"alive": True}}, {"b1": (1, self.catalogue)})
        if asked.what == "statistics":
            return StatisticsPart([], 0)
        if asked.what == "status":
            return {"topics": {"mail": {"partitions": [{"index": 0}]}}, "consumers": []}
        self.forecasts.append((asked.topic, asked.seconds))
        return [(1_000_000_000, 5)], 1_000_060_000


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def fed(mesh: Mesh) -> Feed:
    return Feed(mesh)  # type: ignore[arg-type]


def test_nobody_looks_and_nobody_is_asked() -> None:
    async def work() -> None:
        mesh = Mesh()
        feed = fed(mesh)
        assert await feed.newer(0, 0.0) is None
        await feed.close()
        assert mesh.looks == 0

    run(work())


def test_a_hundred_pages_see_the_same_look() -> None:
    async def work() -> None:
        mesh = Mesh()
        feed = fed(mesh)

        async def page() -> Any:
            with feed.watching():
                state = await feed.newer(0, 60)
                assert state is not None
                return state.sight

        sights = await asyncio.gather(*(page() for _ in range(100)))
        assert len({id(sight) for sight in sights}) == 1
        assert mesh.looks == 1
        await feed.close()

    run(work())


def test_a_topic_is_asked_for_its_forecast_while_somebody_looks_at_it() -> None:
    async def work() -> None:
        mesh = Mesh()
        feed = fed(mesh)
        with feed.watching("mail", 600):
            state = await feed.newer(0, 60)
        assert state is not None
        assert (mesh.forecasts, state.sight.forecasts) == (
            [("mail", 600)],
            {("mail", 600): Ahead([(1_000_000_000, 5)], 1_000_060_000)},
        )
        await feed.close()

    run(work())


def test_topics_are_asked_for_again_only_when_they_are_others() -> None:
    async def work() -> None:
        mesh = Mesh()
        feed = fed(mesh)
        number, listed = 0, []
        with feed.watching():
            for catalogue in (0, 0, 1, 1):
                mesh.catalogue = catalogue
                feed.acted({"act": "look", "topic": "", "status": 200, "by": ""})
                state = await feed.newer(number, 60)
                assert state is not None
                number = state.sight.number
                listed.append(mesh.listed)
        assert listed == [1, 1, 2, 2]
        await feed.close()

    run(work())


def test_only_topics_that_somebody_looks_at_have_partitions() -> None:
    async def work() -> None:
        feed = fed(Mesh())
        with feed.watching():
            first = await feed.newer(0, 60)
            assert first is not None
            with feed.watching("mail", 600):
                second = await feed.newer(first.sight.number, 60)
        assert second is not None
        assert [len(each.sight.topics["mail"].partitions) for each in (first, second)] == [0, 1]
        await feed.close()

    run(work())


def test_what_was_done_is_looked_at_soon_and_remembered_for_a_while() -> None:
    async def work() -> None:
        feed = fed(Mesh())
        for _ in range(2 * limits.DASHBOARD_ACTS_KEPT):
            feed.acted({"act": "pause", "topic": "mail", "status": 200, "by": ""})
        assert [act["number"] for act in feed.acts][-1] == 2 * limits.DASHBOARD_ACTS_KEPT
        assert len(feed.acts) == limits.DASHBOARD_ACTS_KEPT

    run(work())


def test_when_no_broker_answers_the_last_look_stays_with_the_reason() -> None:
    async def work() -> None:
        mesh = Mesh()
        feed = fed(mesh)
        with feed.watching():
            first = await feed.newer(0, 60)
            assert first is not None
            mesh.away = True
            blind = await feed.newer(first.sight.number, 60)
        assert blind is not None
        assert (blind.sight.fault, list(blind.sight.topics)) == ("no broker was reached", ["mail"])
        assert [alarm.key for alarm in blind.alarms] == ["blind"]
        assert blind.sight.seen_ms == first.sight.at_ms
        await feed.close()

    run(work())


def test_an_answer_that_nobody_understands_is_said_and_the_next_one_is_looked_at() -> None:
    async def work() -> None:
        mesh = Mesh()
        feed = fed(mesh)
        with feed.watching():
            first = await feed.newer(0, 60)
            assert first is not None
            mesh.odd = True
            broken = await feed.newer(first.sight.number, 60)
            assert broken is not None
            mesh.odd = False
            mended = await feed.newer(broken.sight.number, 60)
        assert mended is not None
        assert "a defect of the gateway: KeyError('held')" in broken.sight.fault
        assert broken.sight.seen_ms == first.sight.at_ms
        assert (mended.sight.fault, list(mended.sight.topics)) == ("", ["mail"])
        await feed.close()

    run(work())


def test_more_pages_than_the_limit_are_refused() -> None:
    async def work() -> None:
        feed = fed(Mesh())
        feed._watching = limits.DASHBOARD_TABS_MAX
        with pytest.raises(Busy, match=f"{limits.DASHBOARD_TABS_MAX} pages"), feed.watching():
            pass

    run(work())


def test_pages_that_were_closed_do_not_count() -> None:
    async def work() -> None:
        feed = fed(Mesh())
        for _ in range(limits.DASHBOARD_TABS_MAX + 1):
            with feed.watching("mail", 600):
                pass
        await feed.close()

    run(work())


def test_who_comes_after_a_while_does_not_see_what_was_so_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeding, "_LINGER_S", 0.0)

    async def work() -> None:
        feed = fed(Mesh())
        with feed.watching():
            assert await feed.newer(0, 60) is not None
        feed.acted({"act": "look", "topic": "", "status": 200, "by": ""})  # no long rest
        async with asyncio.timeout(60):
            while feed.state is not None:
                await asyncio.sleep(0)
        assert await feed.newer(0, 0.0) is None
        await feed.close()

    run(work())


def test_a_broker_that_no_broker_names_is_missed_for_what_it_holds() -> None:
    async def work() -> None:
        mesh = Mesh()
        mesh.silent = ("b2",)
        feed = fed(mesh)
        with feed.watching():
            state = await feed.newer(0, 60)
        assert state is not None
        assert {name: broker["alive"] for name, broker in state.sight.brokers.items()} == {
            "b1": True,
            "b2": False,
        }
        assert "away b2" in [alarm.key for alarm in state.alarms]
        await feed.close()

    run(work())


def test_waiting_for_a_broker_that_is_away_makes_no_look_rarer(monkeypatch: pytest.MonkeyPatch) -> None:
    costs: list[float] = []

    async def look(service: object, number: int, *rest: object) -> Sight:
        return Sight(number, number, took_s=0.1 if number == 1 else 1.2, waited=number == 2)

    async def rest(feed: Feed, cost_s: float) -> None:
        costs.append(cost_s)
        await asyncio.sleep(0)

    monkeypatch.setattr(feeding, "look", look)
    monkeypatch.setattr(Feed, "_rest", rest)

    async def work() -> None:
        feed = fed(Mesh())
        with feed.watching():
            state = await feed.newer(2, 60)
        assert state is not None
        await feed.close()

    run(work())
    assert costs[:3] == [0.1, 0.1, 1.2]


def test_a_broker_that_is_away_is_known_within_three_seconds() -> None:
    """It may have answered the last look; the next one begins after the pause, and waits for three quarters."""
    assert limits.DASHBOARD_PAUSE_MS / 1000 + feeding._PATIENCE_S * 3 / 4 < 3
