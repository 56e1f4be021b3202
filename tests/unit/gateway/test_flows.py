"""What streams have out: leases that others extend and end, and credit that changes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("fastapi")

from dueq import Outcome
from dueq.client.pulls import Lease
from dueq.errors import DueqError, InvalidRequest, MessageNotFound, Superseded, TopicNotFound, Unavailable
from dueq.gateway import flows
from dueq.gateway.flows import Flow, Flows
from dueq.gateway.service import Service
from dueq.testing import amesh


@pytest.fixture(autouse=True)
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """No stream asks again by itself while a test looks."""
    monkeypatch.setattr(flows, "_ASK_S", 600.0)
    monkeypatch.setattr(flows, "_AGAIN_S", 600.0)


def delivered(name: str, lease: float = 0.0) -> Any:
    """A message of a pull; by default its lease is over as soon as it is sent, as far as the stream knows."""
    return SimpleNamespace(id=name, token=7, lease=lease)


class Mesh:
    """A client, and what receives at its gateway."""

    stopped = False

    def __init__(self) -> None:
        self.client = self.connection = self
        self.flows = Flows(self, self)  # type: ignore[arg-type]
        self.ready = asyncio.Queue[list[Any]]()
        self.taking = asyncio.Queue[tuple[int, list[str]]]()
        self.leased: dict[str, tuple[int, int | None]] = {}
        self.asked, self.released = list[str](), list[str]()
        self.orders = list[int]()
        self.at_once = self.most_at_once = 0

    async def clock(self, *_: Any) -> Callable[[], int]:
        return lambda: time.time_ns() // 1000

    async def take(
        self,
        _topic: str,
        most: int,
        _wait: None,
        _lease: timedelta,
        _name: str = "",
        held: Sequence[Lease] = (),
        order: int = 0,
    ) -> list[Any]:
        self.orders.append(order)
        self.taking.put_nowait((most, [message_id for message_id, _ in held]))
        return await self.ready.get()

    async def get(self, _topic: str, message_id: str, timeout: float) -> Any:
        self.asked.append(message_id)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        if message_id not in self.leased:
            raise MessageNotFound(message_id)
        token, ends = self.leased[message_id]
        if ends is None:
            raise Unavailable("nobody leads")
        return SimpleNamespace(token=token, lease_ends=ends)

    def release(self, _topic: str, messages: Sequence[Any]) -> None:
        self.released += [each.id for each in messages]

    async def open(self, credit: int, name: str | None = None) -> Flow:
        return await self.flows.open("t", name, timedelta(seconds=30), credit)


def ahead(seconds: float) -> int:
    return time.time_ns() // 1_000_000 + int(seconds * 1000)


def run(story: Callable[[Mesh], Coroutine[Any, Any, None]]) -> None:
    async def told() -> None:
        await story(Mesh())

    asyncio.run(asyncio.wait_for(told(), 30))


async def turns() -> None:
    """Let everything go on that waits for its turn only."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_a_lease_that_was_extended_elsewhere_takes_credit() -> None:
    async def story(mesh: Mesh) -> None:
        flow = await mesh.open(credit=1)
        mesh.leased["a"] = 7, ahead(600)
        flow.sent([delivered("a")])
        coming = asyncio.create_task(flow.more())
        await turns()
        assert (mesh.asked, mesh.taking.empty()) == (["a"], True)
        mesh.flows.settled("t", [("a", 7)], [Outcome.DONE], None)
        assert await mesh.taking.get() == (1, [])
        mesh.ready.put_nowait([delivered("b")])
        assert [each.id for each in await coming] == ["b"]

    run(story)


def test_a_named_stream_still_holds_what_was_extended_elsewhere() -> None:
    """It was brought again, with the same token, while the client worked on it."""

    async def story(mesh: Mesh) -> None:
        flow = await mesh.open(credit=4, name="me")
        mesh.leased.update({"a": (7, ahead(600)), "b": (9, ahead(600))})
        flow.sent([delivered(name) for name in "abc"])  # b was leased again since, and c is gone
        coming = asyncio.create_task(flow.more())
        assert await mesh.taking.get() == (3, ["a"])
        coming.cancel()

    run(story)


def test_leases_without_number_that_are_over_are_asked_about_a_few_at_once() -> None:
    async def story(mesh: Mesh) -> None:
        flow = await mesh.open(credit=1000)
        flow.sent([delivered(str(number)) for number in range(1000)])
        coming = asyncio.create_task(flow.more())
        assert await mesh.taking.get() == (1000, [])
        assert (len(mesh.asked), mesh.most_at_once) == (1000, 8)
        coming.cancel()

    run(story)


def test_leases_that_were_settled_here_are_not_asked_about() -> None:
    async def story(mesh: Mesh) -> None:
        flow = await mesh.open(credit=2)
        flow.sent([delivered("a"), delivered("b")])
        mesh.flows.settled("t", [("a", 7), ("b", 7)], [Outcome.DONE, Outcome.STALE], None)
        coming = asyncio.create_task(flow.more())
        assert await mesh.taking.get() == (2, [])
        assert mesh.asked == []
        coming.cancel()

    run(story)


def test_while_the_mesh_does_not_answer_a_lease_takes_credit() -> None:
    """Each is asked about once in a while."""

    async def story(mesh: Mesh) -> None:
        flow = await mesh.open(credit=20)
        mesh.leased.update(dict.fromkeys(map(str, range(20)), (7, None)))
        flow.sent([delivered(str(number)) for number in range(20)])
        coming = asyncio.create_task(flow.more())
        await turns()
        assert (sorted(mesh.asked, key=int), mesh.taking.empty()) == (list(map(str, range(20))), True)
        mesh.flows.settled("t", [("3", 7)], [Outcome.DONE], None)
        assert await mesh.taking.get() == (1, [])
        coming.cancel()

    run(story)


def test_messages_without_an_answer_hold_up_no_others() -> None:
    """One partition has no leader: what is over elsewhere gives its credit back."""

    async def story(mesh: Mesh) -> None:
        flow = await mesh.open(credit=40)
        mesh.leased.update(dict.fromkeys(map(str, range(8)), (7, None)))
        flow.sent([delivered(str(number)) for number in range(40)])
        coming = asyncio.create_task(flow.more())
        most, _ = await mesh.taking.get()
        while most < 32:  # it takes what there is room for, and goes on to ask
            mesh.ready.put_nowait([])
            most, _ = await mesh.taking.get()
        assert (most, sorted(flow.out)) == (32, list(map(str, range(8))))
        coming.cancel()

    run(story)


def test_a_few_messages_without_an_answer_are_soon_asked_about_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """One partition had no leader for a moment: however many others are out, credit does not stay taken for minutes."""
    monkeypatch.setattr(flows, "_UNANSWERED_S", 0.3)

    async def story(mesh: Mesh) -> None:
        flow = await mesh.open(credit=1000)
        mesh.leased.update(dict.fromkeys(map(str, range(8)), (7, None)))
        flow.sent([delivered(str(number)) for number in range(1000)])
        coming = asyncio.create_task(flow.more())
        most, _ = await mesh.taking.get()
        while most < 992:
            mesh.ready.put_nowait([])
            most, _ = await mesh.taking.get()
        mesh.leased.clear()
        while most < 1000:
            mesh.ready.put_nowait([])
            most, _ = await mesh.taking.get()
        coming.cancel()

    run(story)


def test_a_full_stream_learns_what_was_settled_elsewhere_beside_messages_without_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """These end again and again, and each end is a reason to look."""
    monkeypatch.setattr(flows, "_ASK_S", 0.01)
    monkeypatch.setattr(flows, "_ASK_S_MAX", 0.02)
    monkeypatch.setattr(flows, "_UNANSWERED_S", 0.005)

    async def story(mesh: Mesh) -> None:
        flow = await mesh.open(credit=2)
        mesh.leased["a"] = 7, None
        flow.sent([delivered("a"), delivered("b", lease=600.0)])  # b was settled at another gateway
        coming = asyncio.create_task(flow.more())
        assert await mesh.taking.get() == (1, [])
        coming.cancel()

    run(story)


@pytest.mark.parametrize("gone", [TopicNotFound("t"), InvalidRequest("partition 1 is not one of topic t")])
def test_messages_of_a_topic_that_is_gone_take_no_credit(gone: DueqError) -> None:
    """It may be there again, under the same name: the stream would wait for ever."""

    class Gone(Mesh):
        async def get(self, _topic: str, message_id: str, timeout: float) -> Any:
            raise gone

    async def story() -> None:
        mesh = Gone()
        flow = await mesh.open(credit=1)
        flow.sent([delivered("a")])
        coming = asyncio.create_task(flow.more())
        assert await mesh.taking.get() == (1, [])
        coming.cancel()

    asyncio.run(asyncio.wait_for(story(), 30))


# ---------------------------------------------------------------- streams of one name


def test_a_stream_that_is_followed_while_it_asks_takes_nothing_more() -> None:
    async def story(mesh: Mesh) -> None:
        flow = await mesh.open(credit=1, name="me")
        flow.sent([delivered("a")])
        coming = asyncio.create_task(flow.more())
        while not mesh.asked:
            await asyncio.sleep(0)
        await mesh.open(credit=1, name="me")
        with pytest.raises(Superseded):
            await coming
        assert mesh.taking.empty()

    run(story)


def test_a_stream_that_waits_ends_at_once_when_a_later_one_has_its_name() -> None:
    """The later one may have no room: no pull of its own ended the earlier one, whose client got the next message."""

    async def story(mesh: Mesh) -> None:
        flow = await mesh.open(credit=1, name="me")
        coming = asyncio.create_task(flow.more())
        await mesh.taking.get()
        await mesh.open(credit=0, name="me")
        with pytest.raises(Superseded):
            await coming

    run(story)


def test_what_comes_as_a_later_stream_takes_the_name_goes_back() -> None:
    async def story(mesh: Mesh) -> None:
        flow = await mesh.open(credit=1, name="me")
        coming = asyncio.create_task(flow.more())
        await mesh.taking.get()
        assert flow._taking is not None
        flow._taking.add_done_callback(lambda _: flow.supersede())
        mesh.ready.put_nowait([delivered("a")])
        with pytest.raises(Superseded):
            await coming
        assert mesh.released == ["a"]

    run(story)


def test_a_stream_that_begins_to_pull_late_is_still_older_than_one_that_began_after_it() -> None:
    """The later one is at another gateway: only the mesh can say which of them ends."""

    async def story(mesh: Mesh) -> None:
        earlier = await mesh.open(credit=1, name="me")
        earlier.sent([delivered("a", lease=600.0)])
        full = asyncio.create_task(earlier.more())
        await turns()
        elsewhere = Flows(mesh, mesh)  # type: ignore[arg-type]
        later = await elsewhere.open("t", "me", timedelta(seconds=30), 1)
        pulling = asyncio.create_task(later.more())
        await mesh.taking.get()
        mesh.flows.settled("t", [("a", 7)], [Outcome.DONE], None)
        await mesh.taking.get()
        assert mesh.orders[0] > mesh.orders[1] > 0
        full.cancel()
        pulling.cancel()

    run(story)


# ---------------------------------------------------------------- credit


def test_a_stream_without_credit_that_has_nothing_out_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing to ask about: it must not look at each turn of the loop."""
    monkeypatch.setattr(flows, "_ASK_S", 0.001)

    async def story(mesh: Mesh) -> None:
        flow, looks, third = await mesh.open(credit=0), 0, asyncio.Event()

        async def look() -> None:
            nonlocal looks
            looks += 1
            if looks == 3:
                third.set()

        monkeypatch.setattr(flow, "_forget_ended", look)
        coming = asyncio.create_task(flow.more())
        await third.wait()
        for _ in range(20):
            await turns()
        assert looks < 20
        coming.cancel()

    run(story)


def test_it_has_too_many_out_once_its_credit_is_lower() -> None:
    async def story(mesh: Mesh) -> None:
        flow = await mesh.open(credit=5)
        flow.sent([delivered(str(number), lease=30.0) for number in range(5)])
        assert flow.excess == 0
        flow.give(2)
        assert flow.excess == 3

    run(story)


@pytest.mark.parametrize("name", [None, "me"])
def test_a_stream_whose_credit_is_taken_away_gets_nothing_more(name: str | None) -> None:
    """It went on waiting for as many messages as it had room for before."""

    async def told() -> None:
        with amesh() as mesh:
            client = mesh.client()
            await client.create_topic("t", partitions=1)
            service = Service(client)
            flow = await service.flows.open("t", name, timedelta(seconds=30), 50)
            coming = asyncio.create_task(flow.more())
            await mesh.advance(1)
            flow.give(0)
            await mesh.advance(1)
            await client.producer("t").schedule_many([b"x"] * 60, timedelta(0))
            await mesh.advance(5)
            info = await client.describe("t")
            assert (coming.done(), info.ready, info.leased) == (False, 60, 0)
            flow.give(20)
            await mesh.advance(1)
            assert [message.attempt for message in await coming] == [1] * 20
            assert (await client.describe("t")).leased == 20

    asyncio.run(asyncio.wait_for(told(), 30))


def test_only_a_credit_that_leaves_less_room_begins_anew() -> None:
    async def story(mesh: Mesh) -> None:
        flow = await mesh.open(credit=5)
        coming = asyncio.create_task(flow.more())
        assert await mesh.taking.get() == (5, [])
        flow.give(9)
        flow.give(5)
        await turns()
        assert mesh.taking.empty()
        flow.give(3)
        assert await mesh.taking.get() == (3, [])
        mesh.ready.put_nowait([delivered(name) for name in "abc"])
        assert [each.id for each in await coming] == ["a", "b", "c"]

    run(story)


def test_what_has_come_beyond_a_new_credit_goes_back() -> None:
    async def story(mesh: Mesh) -> None:
        flow = await mesh.open(credit=5)
        coming = asyncio.create_task(flow.more())
        await mesh.taking.get()
        assert flow._taking is not None
        flow._taking.add_done_callback(lambda _: flow.give(1))
        mesh.ready.put_nowait([delivered(name) for name in "abc"])
        assert [each.id for each in await coming] == ["a"]
        assert mesh.released == ["b", "c"]

    run(story)
