"""Processes that fork while a client is at work in another thread: in the child that thread does not exist."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Sequence

import pytest

from dueq import Client, ClientClosed, OutcomeUnknown
from dueq.client.runtime import Runtime
from dueq_codecs.messages import ChangeReply, Code
from tests.unit.client.fake_broker import FakeBroker

_IMPORTS = """
import sys, threading
from dueq import Client

class Finder:
    def find_spec(self, name, path, target=None):
        if threading.current_thread() is not threading.main_thread():
            found.append((threading.current_thread().name, name))

found = []
sys.meta_path.insert(0, Finder())
with Client(sys.argv[1]) as client:
    producer = client.producer("departures")
    ids = producer.schedule_many([b"x"] * 3, [4_000_000_000_000] * 3, groups=["a", "b", "a"])
    producer.cancel_many(ids)
    producer.schedule(bytes(100_000), 4_000_000_000_000)
    with client.consumer("departures") as consumer:
        consumer.receive(timeout=0)
assert not found, found
"""

_IMPORTING = """
import os, signal, sys, threading
from dueq import Client

class Finder:
    def find_spec(self, name, path, target=None):
        if name == "structlog":
            importing.set()
            forking.wait()

importing, forking = threading.Event(), threading.Event()
sys.meta_path.insert(0, Finder())
os.register_at_fork(before=forking.set)
threading.Thread(target=Client(sys.argv[1]).topics, daemon=True).start()
importing.wait()
child = os.fork()
if not child:
    signal.alarm(60)
    assert Client(sys.argv[1], timeout=10).topics()
    os._exit(0)
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0)
"""


def run(script: str, *arguments: str) -> None:
    """Run a script in a process of its own, which has imported nothing yet."""
    ended = subprocess.run(
        [sys.executable, "-c", script, *arguments], stderr=subprocess.PIPE, check=False, timeout=120
    )
    assert ended.returncode == 0, ended.stderr.decode()


def in_a_child(work: Callable[[], object]) -> None:
    """Do something in a forked process; a child that hangs is ended, and fails."""
    child = os.fork()
    if not child:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(60)
        try:
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_child_that_is_forked_while_another_thread_makes_the_first_call_works(broker: FakeBroker) -> None:
    beginning, go_on = threading.Event(), threading.Event()

    def begin(endpoints: Sequence[str]) -> Runtime:
        if threading.current_thread() is first:
            beginning.set()
            go_on.wait()
        return Runtime(endpoints)

    with Client(broker.endpoint, timeout=10) as client:
        client.connection._begin = begin
        first = threading.Thread(target=client.topics)
        first.start()
        beginning.wait()
        in_a_child(client.topics)
        go_on.set()
        first.join()
        assert client.topics()


def test_a_consumer_that_opens_in_another_thread_does_not_follow_into_a_forked_child(client: Client) -> None:
    consumer = client.consumer("departures")

    def use() -> None:
        with pytest.raises(ClientClosed, match="forked"):
            consumer.receive(timeout=0)
        consumer.close()

    with consumer._opening:  # as a thread has it that the child lacks
        in_a_child(use)
    assert consumer.receive(timeout=0) == []


def test_a_consumer_that_was_never_used_does_not_follow_into_a_forked_child(client: Client) -> None:
    """It has the id of the parent's one."""
    consumer = client.consumer("departures")

    def use() -> None:
        with pytest.raises(ClientClosed, match="forked"), consumer:
            pass

    in_a_child(use)
    assert consumer.receive(timeout=0) == []


def test_a_consumer_that_does_not_follow_into_a_forked_child_begins_nothing_there(client: Client) -> None:
    consumer = client.consumer("departures")

    def use() -> None:
        with pytest.raises(ClientClosed, match="forked"):
            consumer.receive(timeout=0)
        assert threading.active_count() == 1

    in_a_child(use)


def test_a_forked_child_closes_a_consumer_to_which_messages_came_as_it_was_forked(client: Client) -> None:
    with client.consumer("departures") as consumer:
        with consumer._inbox._lock:  # as the I/O thread has it that the child lacks
            in_a_child(consumer.close)
        assert consumer.receive(timeout=0) == []


def test_no_thread_of_a_client_imports_anything(broker: FakeBroker) -> None:
    """Nobody can know when that is; in a child that is forked meanwhile the module stays half imported."""
    run(_IMPORTS, broker.endpoint.replace("127.0.0.1", "localhost"))


def test_a_fork_waits_for_another_thread_that_imports_what_clients_need(broker: FakeBroker) -> None:
    run(_IMPORTING, broker.endpoint)


def test_a_call_that_failed_before_a_fork_is_repeated_by_the_process_that_made_it(
    broker: FakeBroker, client: Client
) -> None:
    broker.refuse = lambda request: ChangeReply(
        request.request_id, Code.OUTCOME_UNKNOWN, "who knows", epoch=1
    )
    producer = client.producer("departures")
    with pytest.raises(OutcomeUnknown, match="who knows") as caught:
        producer.schedule(b"of the parent", 4_000_000_000_000)
    broker.refuse = lambda request: None

    def use() -> None:
        found = producer.schedule(b"of the child", 4_000_000_000_000)
        with pytest.raises(ClientClosed, match="forked"):
            caught.value.retry()
        producer.cancel(found)

    in_a_child(use)
    assert not broker.rows
    assert len(caught.value.retry()) == 26
    assert [payload for payload, _ in broker.rows.values()] == [b"of the parent"]
    own = [request for request in broker.changes if request.client_id == broker.changes[0].client_id]
    assert [request.sequence for request in own] == [1, 1]
