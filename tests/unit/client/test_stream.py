"""Scheduling what iterators give, without holding it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import count, islice, repeat
from typing import Any

import pytest

from dueq import AsyncClient, Client, Disconnected, InvalidRequest, Outcome, PartialFailure, limits
from dueq.client.aio.stream import AsyncStream
from dueq.client.batches import batches
from dueq.client.calls import Call
from dueq.client.core import PartsCall
from dueq.client.core.ports.change import Part
from dueq.client.core.ports.effects import Completed, Failed
from dueq.client.core.ports.events import Insert
from dueq.client.message_ids import MessageIds
from dueq_codecs.messages import ChangeReply, ChangeRequest, Code
from dueq_codecs.records import RecordKind
from tests.unit.client.fake_broker import FakeBroker

DUE = 4_000_000_000_000
ROWS = 1024


def test_rows_are_cut_by_number_and_by_bytes_and_none_is_taken_ahead_but_one() -> None:
    taken: list[int] = []

    def rows(size: int) -> Iterator[bytes]:
        for number in range(3 * ROWS):
            taken.append(number)
            yield bytes(size)

    cut = batches(rows(1), iter(range(3 * ROWS)), map(str, range(3 * ROWS)))
    first = next(cut)
    assert (first.first, len(first.payloads), len(taken)) == (0, ROWS, ROWS + 1)
    second = next(cut)
    assert (second.first, second.dues[0], second.keys[-1]) == (ROWS, ROWS, str(2 * ROWS - 1))
    assert len(next(batches(rows(1 << 20), DUE, None)).payloads) == 3
    assert [len(batch.payloads) for batch in batches([b"", bytes(4 << 20), b""], DUE, None)] == [1, 1, 1]
    assert list(batches([], DUE, None)) == []


@pytest.mark.parametrize(
    ("dues", "keys", "said"),
    [([DUE], None, "no due"), (DUE, ["a"], "no key"), ([DUE] * 3, None, "more dues"), (DUE, "ab", "many")],
)
def test_columns_of_different_lengths_are_refused(
    dues: int | list[int], keys: list[str] | None, said: str
) -> None:
    with pytest.raises(InvalidRequest, match=said):
        list(batches([b"a", b"b"], dues, keys))


def test_rows_before_the_one_that_lacks_something_are_yielded() -> None:
    taken = 0

    def rows() -> Iterator[bytes]:
        nonlocal taken
        for payload in (b"a", b"b", b"c", b"d"):
            taken += 1
            yield payload

    cut = batches(rows(), [DUE] * 4, iter(["1", "2"]), expires=DUE + 1)
    batch = next(cut)
    assert taken == 3
    assert (batch.payloads, batch.dues, batch.keys) == ([b"a", b"b"], [DUE] * 2, ["1", "2"])
    assert (batch.ranks, batch.expires) == (None, DUE + 1), "what is the same in all rows is not repeated"
    with pytest.raises(InvalidRequest, match="row 2: there is a payload, but no key"):
        next(cut)


def test_a_column_without_an_end_is_not_followed_behind_the_payloads() -> None:
    cut = batches([b"a", b"b"], count(DUE))
    assert next(cut).dues == [DUE, DUE + 1]
    with pytest.raises(InvalidRequest, match="more dues than payloads"):
        next(cut)
    assert len(list(batches([b"a", b"b"], repeat(DUE)))) == 1, "unless it is the same for all"


def test_a_mapping_gives_its_keys_row_by_row_but_as_headers_it_is_for_all_rows() -> None:
    kept = {f"k{number}": b"x" for number in range(ROWS + 3)}
    first, second = batches(iter(kept.values()), DUE, kept, headers={"a": "b"})
    assert (first.keys, second.keys) == (list(kept)[:ROWS], list(kept)[ROWS:])
    assert second.headers == {"a": "b"}


def test_rows_before_an_error_of_an_iterator_are_yielded() -> None:
    def rows() -> Iterator[bytes]:
        yield from [b"x"] * (ROWS + 3)
        raise KeyError("my table")

    cut = batches(rows(), DUE)
    assert [len(batch.payloads) for batch in islice(cut, 2)] == [ROWS, 3]
    with pytest.raises(KeyError, match="my table"):
        next(cut)


def test_ids_come_in_order_and_few_requests_are_under_way(client: Client, broker: FakeBroker) -> None:
    drawn = 0

    def rows() -> Iterator[bytes]:
        nonlocal drawn
        for _ in range(10 * ROWS + 7):
            drawn += 1
            yield b"x"

    with client.producer("departures") as producer:
        stream = producer.schedule_stream(rows(), timedelta(seconds=1), in_flight=2)
        first = next(stream)
        assert drawn <= 2 * ROWS + 1, "of a stream that nobody follows nothing is held but what is under way"
        ids = [first, *stream]
    assert (len(ids), len(set(ids)), drawn) == (10 * ROWS + 7, 10 * ROWS + 7, 10 * ROWS + 7)
    assert sorted(change.rows for change in broker.changes) == [7] + [ROWS] * 10


def test_the_ids_of_what_is_scheduled_do_not_wait_for_a_slow_source(client: Client) -> None:
    drawn = 0

    def rows() -> Iterator[bytes]:
        nonlocal drawn
        for _ in range(20 * ROWS):
            drawn += 1
            if drawn == 2 * ROWS:  # it takes until the request before this one is answered
                producer.schedule(b"another", DUE)
            yield b"x"

    with client.producer("departures") as producer:
        next(producer.schedule_stream(rows(), DUE))
    assert drawn == 2 * ROWS + 1


@pytest.mark.parametrize(
    ("given", "said"), [({"expires": ""}, "expires"), ({"max_attempts": ""}, "max_attempts")]
)
def test_an_empty_text_is_no_end_of_a_message(client: Client, given: dict[str, Any], said: str) -> None:
    with client.producer("departures") as producer:
        for payloads in (iter([b"x"]), [b"x"]):
            with pytest.raises(InvalidRequest, match=said):
                producer.schedule_many(payloads, DUE, **given)


def test_a_pause_of_who_follows_a_stream_does_not_empty_what_is_under_way() -> None:
    async def work() -> list[int]:
        world: Any = World()
        stream = AsyncStream(world, batches([b"x"] * (40 * ROWS), DUE), (b"", 0), None, None, None)
        under_way = []
        async for _ in stream.requests():
            under_way.append(world.under_way)
            world.came = True  # while whoever follows it did something else
        return under_way

    assert min(asyncio.run(work())[:30]) >= 2, "one is sent for each that is answered"


def test_a_failure_tells_what_was_sent_and_repeats_it(client: Client, broker: FakeBroker) -> None:
    came: list[ChangeRequest] = []

    def refuse(request: ChangeRequest) -> ChangeReply | None:
        came.append(request)
        return ChangeReply(request.request_id, Code.INVALID_REQUEST, "no") if len(came) == 3 else None

    broker.refuse = refuse
    found: list[str] = []
    with client.producer("departures") as producer:
        stream = producer.schedule_stream((b"x" for _ in range(20 * ROWS)), DUE, in_flight=3)
        with pytest.raises(PartialFailure, match=f"ended at row {2 * ROWS}: no") as raised:
            found.extend(stream)
        assert len(found) == 2 * ROWS
        outcomes = raised.value.outcomes
        assert all(isinstance(outcome, InvalidRequest) for outcome in outcomes[:ROWS])
        assert all(isinstance(outcome, str) for outcome in outcomes[ROWS:])
        sent = len(came)
        assert sent <= 5, "nothing is sent after a failure"
        assert len(outcomes) == (sent - 2) * ROWS
        again = raised.value.retry()
        assert again[ROWS:] == outcomes[ROWS:]
        assert len(set(again) | set(found)) == sent * ROWS
    assert len(came) == sent + 1


def test_a_row_that_is_none_ends_it_once_those_before_are_there(client: Client) -> None:
    def rows() -> Iterator[bytes]:
        yield from (b"x" for _ in range(2 * ROWS))
        yield "text"  # type: ignore[misc]

    found: list[str] = []
    with client.producer("departures") as producer:
        stream = producer.schedule_stream(rows(), DUE)
        with pytest.raises(InvalidRequest, match=rf"from {2 * ROWS} on.*str"):
            found.extend(stream)
    assert len(found) == 2 * ROWS


def test_tasks_stream_too(broker: FakeBroker) -> None:
    async def work() -> list[str]:
        async with AsyncClient(broker.endpoint) as client, client.producer("departures") as producer:
            rows = (b"x" for _ in range(3 * ROWS))
            return [message_id async for message_id in producer.schedule_stream(rows, DUE)]

    assert len(set(asyncio.run(asyncio.wait_for(work(), 60)))) == 3 * ROWS


def test_schedule_many_takes_iterators_and_draws_few_requests_ahead(
    client: Client, broker: FakeBroker
) -> None:
    drawn: list[int] = []
    answered: list[int] = []

    def rows() -> Iterator[bytes]:
        for number in range(rows_wanted):
            drawn.append(number)
            assert len(drawn) - sum(answered) <= 33 * ROWS + 1
            yield b"x"

    def answer(request: ChangeRequest) -> None:
        answered.append(request.rows)

    broker.refuse = answer
    rows_wanted = 40 * ROWS + 7
    with client.producer("departures") as producer:
        dues = iter(range(DUE, DUE + rows_wanted))
        ids = producer.schedule_many(rows(), dues, keys=map(str, range(rows_wanted)))
        assert isinstance(ids, MessageIds)
        assert len(ids) == len(set(ids)) == rows_wanted
        assert ids == list(ids)
        assert [ids[0], ids[ROWS], ids[-1]] == [list(ids)[place] for place in (0, ROWS, -1)]
        assert ids[ROWS - 1 : ROWS + 1] == list(ids)[ROWS - 1 : ROWS + 1]
        assert set(producer.cancel_many(ids)) == {Outcome.DONE}


class Watched(bytes):
    """A payload that counts how many of its kind there are, and the most that there ever were."""

    alive = most = 0

    def __init__(self, *_: object) -> None:
        Watched.alive += 1
        Watched.most = max(Watched.most, Watched.alive)

    def __del__(self) -> None:
        Watched.alive -= 1


class World:
    """Answers requests of a stream when it asks, without sockets: what the stream holds until then is to be seen."""

    topic = "departures"
    under_way = most = 0
    came = False

    async def clock(self, relative: bool, timeout: float | None) -> Callable[[], int]:
        return lambda: 0

    def send(self, call: Call[list[str]], timeout: float | None) -> World.Asked:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        return World.Asked(self, call)

    class Asked:
        def __init__(self, world: World, call: Call[list[str]]) -> None:
            self._world = world
            insert = call.build(1, 0)
            assert isinstance(insert, Insert)
            self._part = Part(
                RecordKind.INSERT, insert.topic, 1, bytes(16), len(insert.payloads), lambda part: None,
                due=insert.due, size=insert.size, crc=insert.crc, inline=insert.payloads,
            )  # fmt: skip

        async def came(self) -> bool:
            return self._world.came

        async def answer(self) -> Completed:
            self._world.under_way -= 1
            self._part.succeed(ChangeReply(1, Code.OK, uid=1, epoch=1, sequence=7))
            done = PartsCall(1, self._part.rows)
            done.parts.append(self._part)
            return Completed(1, done)

        def abandon(self) -> None:
            raise AssertionError("nothing fails")


def test_a_million_rows_need_the_memory_of_nine_requests_and_eight_bytes_an_id() -> None:
    million, apart = 1_000_000, 64
    rows = (Watched(b"x") if number % apart == 0 else b"x" for number in range(million))
    ids = MessageIds()

    async def work() -> None:
        world: Any = World()
        stream = AsyncStream(world, batches(rows, DUE), (b"", 0), 8, None, None)
        async for request in stream.requests():
            ids.add(request)

    asyncio.run(work())
    assert len(ids) == million
    assert Watched.most <= 9 * ROWS // apart + 1, "payloads are let go once their request is answered"
    assert sum(run.first.nbytes for run in ids._runs) == 8 * million  # type: ignore[union-attr]
    assert len(ids._runs) <= million // ROWS + 1


@pytest.mark.parametrize(
    ("payload", "keys", "in_flight", "most"),
    [(b"x", None, None, 8), (b"x", repeat("k"), None, 32), (bytes(1 << 20), repeat("k"), None, 8),
     (bytes(100 << 10), repeat("k"), None, 9), (b"x", repeat("k"), 3, 3), (b"x", None, 40, 40)],
)  # fmt: skip
def test_more_requests_are_under_way_where_keys_divide_them_and_they_are_small(
    payload: bytes, keys: Iterator[str] | None, in_flight: int | None, most: int
) -> None:
    async def work() -> int:
        world: Any = World()
        rows = [payload] * min(70 * ROWS, 12 * limits.REQUEST_BYTES_MAX // len(payload))
        stream = AsyncStream(world, batches(rows, DUE, keys), (b"", 0), in_flight, None, None)
        async for _ in stream.requests():
            pass
        return int(world.most)

    assert asyncio.run(work()) == most


def test_an_iterator_of_few_rows_is_one_request_that_is_checked_first(
    client: Client, broker: FakeBroker
) -> None:
    with client.producer("departures") as producer:
        assert producer.schedule_many(iter([]), DUE) == []
        with pytest.raises(InvalidRequest, match="row 1: a payload is bytes"):
            producer.schedule_many(iter([b"x", "text"]), DUE)  # type: ignore[arg-type]
        with pytest.raises(InvalidRequest, match="more dues"):
            producer.schedule_many(iter([b"x"]), [DUE, DUE])
        assert not broker.changes
        assert len(producer.schedule_many(iter([b"x", b"y"]), timedelta(seconds=1))) == 2
        assert [change.rows for change in broker.changes] == [2]
        broker.refuse = lambda request: ChangeReply(request.request_id, Code.INVALID_REQUEST, "no")
        with pytest.raises(InvalidRequest, match="no"):
            producer.schedule_many(iter([b"x"]), DUE)


def test_an_iterator_that_fails_tells_what_is_scheduled(client: Client, broker: FakeBroker) -> None:
    def rows() -> Iterator[bytes]:
        yield from (b"x" for _ in range(3 * ROWS))
        raise KeyError("my table")

    with client.producer("departures") as producer:
        with pytest.raises(PartialFailure, match=f"{3 * ROWS} messages are scheduled, then.*table") as raised:
            producer.schedule_many(rows(), DUE)
        assert isinstance(raised.value.__cause__, KeyError)
        *ids, last = raised.value.outcomes
        assert len(set(ids)) == 3 * ROWS
        assert isinstance(last, InvalidRequest)
        with pytest.raises(InvalidRequest):
            raised.value.retry()


def test_a_request_of_an_iterator_that_fails_is_repeated_by_retry(client: Client, broker: FakeBroker) -> None:
    came: list[ChangeRequest] = []

    def refuse(request: ChangeRequest) -> ChangeReply | None:
        came.append(request)
        return ChangeReply(request.request_id, Code.INVALID_REQUEST, "no") if len(came) == 3 else None

    broker.refuse = refuse
    with client.producer("departures") as producer:
        with pytest.raises(PartialFailure, match=f"ended at row {2 * ROWS}: no") as raised:
            producer.schedule_many((b"x" for _ in range(5 * ROWS)), DUE)
        outcomes = raised.value.outcomes
        scheduled = [isinstance(one, str) for one in outcomes[::ROWS]]
        assert [place for place, each in enumerate(scheduled) if not each] == [2]
        again = raised.value.retry()
    assert len(set(again)) == len(again) == len(outcomes) <= 5 * ROWS
    assert again[: 2 * ROWS] == outcomes[: 2 * ROWS]


def test_a_retry_that_fails_tells_of_all_rows_and_its_own_retry_ends_what_is_left(
    client: Client, broker: FakeBroker
) -> None:
    came: list[ChangeRequest] = []
    refused = {3, 5, 6, 7}  # two requests of the first try, and both of its first repetition

    def refuse(request: ChangeRequest) -> ChangeReply | None:
        came.append(request)
        return ChangeReply(request.request_id, Code.INVALID_REQUEST, "no") if len(came) in refused else None

    broker.refuse = refuse
    with client.producer("departures") as producer:
        with pytest.raises(PartialFailure) as first:
            producer.schedule_many((b"x" for _ in range(5 * ROWS)), DUE)
        with pytest.raises(PartialFailure, match="failed again: no") as second:
            first.value.retry()
        assert len(second.value.outcomes) == 5 * ROWS
        failed = [isinstance(one, InvalidRequest) for one in second.value.outcomes[::ROWS]]
        assert failed == [False, False, True, False, True]
        ids = second.value.retry()
        assert len(set(ids)) == len(ids) == len(broker.rows) == 5 * ROWS
        assert first.value.retry() == ids, "the first failure knows what became of it"
    assert len(came) == 9


def test_what_was_never_sent_is_scheduled_once_however_often_its_retry_fails() -> None:
    class Away(World):
        """Sends nothing, until only the second request of a repetition cannot be sent."""

        run = None

        def __init__(self) -> None:
            self.asked: list[bytes] = []
            self.scheduled: list[bytes] = []

        def send(self, call: Call[list[str]], timeout: float | None) -> World.Asked:
            world, asked = self, super().send(call, timeout)
            insert: Any = call.build(1, 0)
            rows = bytes(insert.payloads[0])
            self.asked.append(rows)
            sent = len(self.asked) > 3 and len(self.asked) != 5

            class Answered(World.Asked):
                async def answer(self) -> Any:
                    if not sent:
                        return Failed(1, Disconnected("no broker"))
                    world.scheduled.append(rows)
                    return await asked.answer()

            return Answered(self, call)

    async def work() -> tuple[list[bytes], list[bytes]]:
        world: Any = Away()
        rows = [b"%d" % (row // ROWS) for row in range(3 * ROWS)]
        stream = AsyncStream(world, batches(rows, DUE), (b"", 0), None, None, None)
        with pytest.raises(PartialFailure) as failed:
            await anext(stream.requests())
        with pytest.raises(PartialFailure, match="failed again: no broker") as again:
            await failed.value.retry()
        assert [isinstance(one, str) for one in again.value.outcomes[::ROWS]] == [True, False, True]
        assert len(await failed.value.retry()) == 3 * ROWS
        return world.asked, world.scheduled

    asked, scheduled = asyncio.run(work())
    assert asked == [b"0", b"1", b"2"] * 2 + [b"1"]
    assert scheduled == [b"0", b"2", b"1"]


def test_tasks_may_give_iterators_to_schedule_many(broker: FakeBroker) -> None:
    async def work() -> int:
        async with AsyncClient(broker.endpoint) as client, client.producer("departures") as producer:
            return len(set(await producer.schedule_many((b"x" for _ in range(3 * ROWS)), DUE)))

    assert asyncio.run(asyncio.wait_for(work(), 60)) == 3 * ROWS
