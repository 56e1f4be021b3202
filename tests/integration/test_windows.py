"""Windows in real processes: a burst comes out level, and every answer says when its message is due."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from datetime import timedelta

import pytest

from dueq import AsyncClient, Client, first_instant
from dueq.cli.main import run
from dueq.errors import InvalidRequest
from dueq.local import LocalMesh
from tests.integration.ledger import PATIENCE_S, now_ms

pytestmark = pytest.mark.integration

ROWS = 100_000
WIDTH_S = 600


def test_a_hundred_thousand_for_one_instant_come_out_level_beside_others(client: Client, topic: str) -> None:
    due = (now_ms() // 3_600_000 + 30) * 3_600_000
    with client.producer(topic) as producer:
        before = producer.schedule_many(
            [b"before"] * 6_000, [due + row * 7919 % 60_000 for row in range(6_000)]
        )
        ids = producer.schedule_many([b"r"] * ROWS, due, window=WIDTH_S)
        one = producer.schedule(b"one", due, window=1)
    assert due <= first_instant(one) <= due + 1000
    instants = [first_instant(each) for each in ids]
    assert due <= min(instants)
    assert max(instants) <= due + WIDTH_S * 1000
    seconds = Counter(instant // 1000 for instant in instants)
    assert max(seconds.values()) <= 1.5 * ROWS / WIDTH_S
    seconds.update(first_instant(each) // 1000 for each in before)
    assert max(seconds.values()) <= 1.5 * (ROWS + 6_000) / WIDTH_S


def test_what_is_chosen_is_when_the_message_waits_and_comes(
    client: Client, topic: str, mesh: LocalMesh, capsys: pytest.CaptureFixture[str]
) -> None:
    far = now_ms() + 3_600_000
    with client.producer(topic) as producer:
        ids = producer.schedule_many([b"%d" % row for row in range(50)], far, window=100)
        rows = (b"i%d" % row for row in range(50))
        ids += producer.schedule_many(rows, far, window=timedelta(seconds=100))
        waits = {message.id: (message.due, message.waits_until) for message in client.browse(topic)}
        assert waits == {each: (first_instant(each), first_instant(each)) for each in ids}
        producer.cancel_many(ids)
        soon = producer.schedule(b"soon", now_ms() + 100, window=0.5)
    with client.consumer(topic) as consumer:
        (message,) = consumer.receive(1, timeout=PATIENCE_S)
        assert (message.id, message.due) == (soon, first_instant(soon))
        assert message.released_at >= message.due
        message.ack(wait=True)
    mesh_options = ["--endpoint", mesh.endpoints[0]]
    assert run(["schedule", topic, "x", "--in", "1h", "--window", "10m", "--json", *mesh_options]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["first_instant"] == first_instant(said["id"])


@pytest.mark.parametrize("window", [-1, "ten", 8 * 86_400, float("nan")])
def test_windows_that_cannot_be_are_refused(client: Client, topic: str, window: float) -> None:
    with (
        client.producer(topic) as producer,
        pytest.raises(InvalidRequest, match=r"window is 0 to 604800 seconds, not"),
    ):
        producer.schedule(b"x", now_ms(), window=window)


def test_the_asyncio_face_has_windows_too(mesh: LocalMesh, topic: str) -> None:
    async def schedule() -> list[str]:
        async with AsyncClient(mesh.endpoints) as client, client.producer(topic) as producer:
            due = now_ms() + 3_600_000
            ids = [await producer.schedule(b"a", due, window=5)]
            return ids + [each async for each in producer.schedule_stream([b"b", b"c"], due, window=5)]

    assert len({first_instant(each) for each in asyncio.run(schedule())}) > 1
