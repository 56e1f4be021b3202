"""What calls and consumers share, over a host whose time is the test's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from dueq.client.calls import Call
from dueq.client.core.ports import events
from dueq.client.core.ports.effects import Completed, Failed
from dueq.client.host import Answer
from dueq.client.runtime import Runtime
from dueq.client.sync.connection import Connection
from dueq.errors import ClientClosed, Disconnected, DueqError, NotLeader


class Host:
    """Fails each call after some time; its time is that alone."""

    forked = False

    def __init__(self, *takes_s: float | None) -> None:
        self.now_s = 0.0
        self.takes_s = list(takes_s)

    def mono_us(self) -> int:
        return int(self.now_s * 1e6)

    def call(self, build: object, seconds: float, settle: Callable[[Answer], object]) -> int:
        takes_s = self.takes_s.pop(0) if len(self.takes_s) > 1 else self.takes_s[0]
        error: DueqError = NotLeader("between two leaders")
        if takes_s is None or takes_s > seconds:
            takes_s, error = seconds, Disconnected("nobody answers")
        self.now_s += takes_s
        settle(Completed(1, "found") if not takes_s else Failed(1, error))
        return 1

    def take_dropped(self) -> list[object]:
        return []

    def wait_done(self, done: object, seconds: float) -> bool:
        return True

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def submit(self, event: events.Event) -> None:
        raise AssertionError(event)

    def stop(self, timeout: float = 5.0) -> None: ...


def connected(host: Host) -> Connection:
    return Connection("tcp://nobody:1", 10.0, lambda endpoints: host)  # type: ignore[arg-type, return-value]


def run(host: Host, *, reads: bool = True) -> Any:
    call = Call[str](lambda number, at: events.Inspect(number, at, "jobs", "t"), str, reads=reads)
    return connected(host).run(call, None)


def test_what_only_reads_is_asked_again_until_somebody_knows() -> None:
    assert run(Host(1.0, 2.0, 3.0, 0.0)) == "found"


@pytest.mark.parametrize("takes_s", [None, 0.001, 3.0, 9.9])
def test_what_only_reads_ends_when_its_time_is_over(takes_s: float | None) -> None:
    host = Host(takes_s)
    with pytest.raises((Disconnected, NotLeader)):
        run(host)
    assert 9.7 <= host.now_s <= 10.0


def test_what_changes_something_is_not_asked_again() -> None:
    host = Host(1.0)
    with pytest.raises(NotLeader):
        run(host, reads=False)
    assert host.now_s == 1.0


def test_consumers_are_closed_at_once() -> None:
    """One that waits for the mesh holds up none."""
    done: list[str] = []

    class Consumer:
        def begin_closing(self) -> None:
            done.append("begins")

        def close(self) -> None:
            done.append("is closed")

    connection, consumers = connected(Host(1.0)), [Consumer(), Consumer()]
    connection.live()
    for consumer in consumers:
        connection.closes(consumer)
    connection.close()
    assert done == ["begins", "begins", "is closed", "is closed"]


def test_what_is_begun_while_the_client_is_closed_ends() -> None:
    """Another thread makes the first call, or the handler of a signal closes the client."""
    begun: list[Runtime] = []

    def begin(endpoints: Sequence[str]) -> Runtime:
        connection.close()
        begun.append(Runtime(endpoints))
        return begun[0]

    connection = Connection("tcp://127.0.0.1:1", 10.0, begin)
    with pytest.raises(ClientClosed):
        connection.live()
    with pytest.raises(ClientClosed):
        connection.live()
    (runtime,) = begun
    runtime._thread.join(60)
    assert not runtime._thread.is_alive()
