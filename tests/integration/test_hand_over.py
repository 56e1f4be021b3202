"""Processes that consume end, die, and follow one another: what they had goes to others."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dueq import Client, Outcome
from dueq.local import LocalMesh
from tests.integration.waiting import until

pytestmark = pytest.mark.integration


@contextmanager
def consuming(mesh: LocalMesh, topic: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    """`dueq consume` as a process, which is killed in the end."""
    command = [sys.executable, "-m", "dueq.cli.main", "consume", topic, "-e", mesh.endpoints[0]]
    pipe = subprocess.PIPE
    with subprocess.Popen([*command, *options], stdout=pipe, stderr=pipe, text=True) as child:
        try:
            yield child
        finally:
            child.kill()


def line_of(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline()


def test_what_a_killed_process_had_goes_to_the_next_of_its_name(
    mesh: LocalMesh, client: Client, topic: str
) -> None:
    message_id = client.producer(topic).schedule(b"x", 0)
    with consuming(mesh, topic, "--name", "w", "--no-ack", "--json", "--lease", "600") as child:
        assert message_id in line_of(child)
        child.kill()
        child.wait()
        held = client.get(topic, message_id)
        assert held.state == "leased"
    with client.consumer(topic, name="w") as consumer:
        [message] = consumer.receive(timeout=60.0)
        assert (message.id, message.attempt) == (message_id, 2)
        assert client.get(topic, message_id).holder == held.holder
        assert client.settle(topic, [(message_id, message.token - 1)], "ack") == [Outcome.STALE]
        message.ack(wait=True)


def test_the_older_of_two_processes_ends_with_an_error(mesh: LocalMesh, client: Client, topic: str) -> None:
    client.producer(topic).schedule(b"x", 0)
    with consuming(mesh, topic, "--name", "w", "--no-ack") as child:
        assert line_of(child) == "x\n"
        with client.consumer(topic, name="w") as consumer:
            [message] = consumer.receive(timeout=60.0)
            message.ack(wait=True)
            _, err = child.communicate(timeout=60)
    assert child.returncode == 1
    assert "another process with the name of this consumer has followed" in err


def test_a_terminated_process_gives_back_at_once(mesh: LocalMesh, client: Client, topic: str) -> None:
    client.producer(topic).schedule(b"x", 0)
    with consuming(mesh, topic, "--no-ack", "--lease", "600") as child:
        assert line_of(child) == "x\n"
        child.send_signal(signal.SIGTERM)
        assert child.wait(timeout=60) == 0
    with client.consumer(topic) as consumer:
        [message] = consumer.receive(timeout=60.0)
        assert message.attempt == 1
        message.ack(wait=True)


def test_a_terminated_process_ends_though_nobody_reads(mesh: LocalMesh, client: Client, topic: str) -> None:
    with client.producer(topic) as producer:
        ids = producer.schedule_many([b"%08d" % number * 2048 for number in range(64)], 0)
    with consuming(mesh, topic, "--keys", "--drain", "0.1", "--lease", "600") as child:
        line_of(child)  # the pipe is full soon
        child.send_signal(signal.SIGTERM)
        assert child.wait(timeout=60) == 1
        assert child.stderr is not None
        assert "the rest was given back" in child.stderr.read()
    left: set[str] = set()

    def are_back() -> bool:
        left.update(message.id for message in client.browse(topic))
        return bool(left)

    until(are_back, "what was given back waits")
    assert left < set(ids)
    with client.consumer(topic) as consumer:
        while left:
            for message in consumer.receive(timeout=60.0):
                left.discard(message.id)
                message.ack()
