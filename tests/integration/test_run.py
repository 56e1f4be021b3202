"""`consumer.run`: handlers over the messages of a real mesh, in both faces."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading

import pytest

from dueq import AsyncClient, AsyncMessage, Backoff, Client, InvalidRequest, Message
from dueq.local import LocalMesh

pytestmark = pytest.mark.integration

CHILD = """
import sys, threading
from dueq import Client

def handler(message):
    sys.stdout.write("at work\\n")  # in one piece: print() of two threads may mix
    sys.stdout.flush()
    if message.payload == b"endless":
        threading.Event().wait()
    sys.stdin.readline()

with Client(sys.argv[1].split(",")) as client:
    print(tuple(client.consumer(sys.argv[2]).run(handler, workers=2, drain=5.0)), flush=True)
"""

ASYNC_CHILD = """
import asyncio, sys
from dueq import AsyncClient

async def handler(message):
    print("at work", flush=True)
    if message.payload == b"endless":
        await asyncio.Event().wait()
    await asyncio.to_thread(sys.stdin.readline)

async def main():
    async with AsyncClient(sys.argv[1].split(",")) as client:
        print(tuple(await client.consumer(sys.argv[2]).run(handler, workers=2, drain=3.0)), flush=True)

asyncio.run(main())
"""


def test_threads_ack_what_returns_and_give_back_what_raises(client: Client, topic: str) -> None:
    client.update_topic(topic, backoff=Backoff(first=0.02, factor=1.0, jitter=0.0))
    with client.producer(topic) as producer:
        producer.schedule_many([b"%d" % number for number in range(20)], 0)
    consumer = client.consumer(topic)
    lock, at_work, most, done = threading.Lock(), 0, 0, set()

    def handler(message: Message) -> None:
        nonlocal at_work, most
        with lock:
            at_work += 1
            most = max(most, at_work)
        try:
            if message.payload == b"7" and message.attempt == 1:
                raise ValueError("no such card")
            assert message.attempt == (2 if message.payload == b"7" else 1)
        finally:
            with lock:
                at_work -= 1
        with lock:
            done.add(message.payload)
            if len(done) == 20:
                consumer.stop()

    assert consumer.run(handler, workers=3) == (20, 1, 0)
    assert most <= 3
    assert not list(client.browse(topic))


def test_a_lease_is_extended_while_its_handler_works(client: Client, topic: str) -> None:
    with client.producer(topic) as producer:
        producer.schedule(b"x", 0)
    consumer = client.consumer(topic, lease=3.0)
    got: list[Message] = []

    def handler(message: Message) -> None:
        with client.consumer(topic) as other:
            got.extend(other.receive(timeout=4.0))
        consumer.stop()

    assert consumer.run(handler) == (1, 0, 0)
    assert not got
    assert not list(client.browse(topic))


def test_tasks_run_functions_of_both_sorts(mesh: LocalMesh, client: Client, topic: str) -> None:
    async def run_once(aclient: AsyncClient, plain: bool) -> None:
        consumer = aclient.consumer(topic)
        seen: list[bytes] = []

        def count(message: AsyncMessage) -> None:
            seen.append(message.payload)
            if len(seen) == 10:
                consumer.stop()

        async def handler(message: AsyncMessage) -> None:
            await asyncio.sleep(0)
            count(message)

        async with aclient.producer(topic) as producer:
            await producer.schedule_many([b"x"] * 10, 0)
        assert await consumer.run(count if plain else handler, workers=4) == (10, 0, 0)

    async def work() -> None:
        async with AsyncClient(mesh.endpoints) as aclient:
            await run_once(aclient, plain=True)
            await run_once(aclient, plain=False)

    asyncio.run(asyncio.wait_for(work(), 60))
    assert not list(client.browse(topic))


@pytest.mark.parametrize("code", [CHILD, ASYNC_CHILD], ids=["threads", "tasks"])
def test_sigterm_drains_and_releases_what_does_not_end(
    mesh: LocalMesh, client: Client, topic: str, code: str
) -> None:
    with client.producer(topic) as producer:
        producer.schedule_many([b"short", b"endless"], 0)
    command = [sys.executable, "-c", code, ",".join(mesh.endpoints), topic]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as child:
        assert child.stdout is not None
        assert [child.stdout.readline() for _ in range(2)] == ["at work\n"] * 2
        child.send_signal(signal.SIGTERM)
        out, err = child.communicate("\n", timeout=60)
    assert (child.returncode, out) == (0, "(1, 0, 1)\n")
    assert "handler.unfinished" in err
    with client.consumer(topic) as consumer:
        [message] = consumer.receive(timeout=30.0)
        assert (message.payload, message.attempt) == (b"endless", 1)
        message.ack(wait=True)


def test_what_cannot_be_run_is_refused(client: Client, topic: str) -> None:
    async def handler(message: Message) -> None: ...

    consumer = client.consumer(topic)
    with pytest.raises(InvalidRequest, match="handler is a coroutine function"):
        consumer.run(handler)
    for workers in (0, 1025):
        with pytest.raises(InvalidRequest, match="from 1 to 1024"):
            consumer.run(print, workers=workers)
