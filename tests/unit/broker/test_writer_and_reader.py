"""The two threads that own the disk: orders in, events out."""

from __future__ import annotations

import errno
import itertools
import select
import time
from collections.abc import Iterator, Sequence
from threading import Event as Done
from types import SimpleNamespace

import pytest

from dueq.broker import reader as reader_module
from dueq.broker import writer as writer_module
from dueq.broker.inbox import Inbox
from dueq.broker.reader import Reader
from dueq.broker.writer import Writer
from dueq.core.ports.effects import Persist
from dueq.core.ports.events import Event, Persisted, StoreFailed, StorePressure
from dueq.core.ports.persistence import (
    CreatePartition,
    DropPartition,
    LogRead,
    PutChunk,
    ReadLog,
    SaveMeta,
    StoreRead,
    StoreWrite,
)
from dueq.storage.ordered import wiping
from dueq.storage.ordered.store import OrderedStore
from dueq.storage.port import Pressure
from dueq.storage.port import StoreFailed as Refused
from dueq_chaos.sim.environment.engine import ForgetfulEngine


class Disk:
    """A store on memory engines, and the inbox of a loop that is not there."""

    def __init__(self) -> None:
        self.timeline = ForgetfulEngine()
        self.store = OrderedStore.on(self.timeline, ForgetfulEngine(), "b1", "cluster", "s1")
        self.inbox = Inbox()

    def wait_for(self, kind: type[Event]) -> list[Event]:
        """Events up to and including the first of a kind."""
        events: list[Event] = []
        while not any(isinstance(event, kind) for event in events):
            assert select.select([self.inbox], [], [], 5.0)[0], f"no {kind.__name__}: {events}"
            events.extend(self.inbox.take())
        return events


@pytest.fixture
def disk() -> Iterator[Disk]:
    found = Disk()
    yield found
    found.inbox.close()


def test_what_is_persisted_is_in_the_store_when_it_is_said(disk: Disk) -> None:
    writer = Writer(disk.store, disk.inbox)
    writer.start()
    writer.order(Persist(1, [CreatePartition(5, "t"), SaveMeta(5, 3, 2)]))
    said = [event for event in disk.wait_for(Persisted) if isinstance(event, Persisted)]
    writer.stop(5)
    assert said[0].token == 1
    (recovered,) = disk.store.recover()
    assert (recovered.uid, recovered.epoch) == (5, 3)


def test_orders_that_wait_are_committed_together_and_answered_once(disk: Disk) -> None:
    writer = Writer(disk.store, disk.inbox)
    for token in range(1, 6):
        writer.order(Persist(token, [CreatePartition(token, "t")]))
    writer.start()
    said = [event for event in disk.wait_for(Persisted) if isinstance(event, Persisted)]
    writer.stop(5)
    assert [event.token for event in said] == [5]


def test_one_commit_has_so_many_orders_and_the_next_one_has_the_others(disk: Disk) -> None:
    """The last of a heap of orders is not what the first one waits for."""
    writer = Writer(disk.store, disk.inbox)
    for token in range(1, 301):
        writer.order(Persist(token, []))
    writer.start()
    said: list[Event] = []
    while not said or said[-1].token < 300:  # type: ignore[attr-defined]
        said += [event for event in disk.wait_for(Persisted) if isinstance(event, Persisted)]
    writer.stop(5)
    assert [event.token for event in said] == [256, 300]  # type: ignore[attr-defined]


def test_a_commit_is_under_way_until_it_is_said_to_be_done(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An idle broker whose last commit seemed to go on would end, as with a disk that hangs."""
    commit, seen = disk.store.commit, []
    writer = Writer(disk.store, disk.inbox)
    monkeypatch.setattr(writer_module, "_PRESSURE_S", 3600.0)

    def committed(writes: Sequence[StoreWrite]) -> None:
        seen.append(writer.under_way)
        commit(writes)

    monkeypatch.setattr(disk.store, "commit", committed)
    writer.start()
    for token in (1, 2):
        writer.order(Persist(token, []))
        disk.wait_for(Persisted)
        assert writer.under_way == 0
    writer.stop(5)
    assert 0 not in seen
    assert len(set(seen)) == len(seen) == 2


def test_a_look_at_the_free_space_is_under_way_like_a_commit(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network's file system that is gone holds this up first: no commit was ever seen to hang."""
    look, seen, enough = disk.store.pressure, [], Done()
    writer = Writer(disk.store, disk.inbox)
    monkeypatch.setattr(writer_module, "_PRESSURE_S", 0.0)
    monkeypatch.setattr(writer_module, "_IDLE_S", 0.0)

    def looked() -> Pressure:
        seen.append(writer.under_way)
        if len(seen) == 3:
            enough.set()
        return look()

    monkeypatch.setattr(disk.store, "pressure", looked)
    writer.start()
    assert enough.wait(5)
    writer.stop(5)
    assert writer.under_way == 0
    assert 0 not in seen
    assert len(set(seen)) == len(seen)


def test_a_failed_write_is_said_once_and_nothing_is_written_after_it(disk: Disk) -> None:
    writer = Writer(disk.store, disk.inbox)
    disk.timeline.fail_next = True
    writer.order(Persist(1, [CreatePartition(1, "t")]))
    writer.start()
    disk.wait_for(StoreFailed)
    writer.stop(5)
    writer.order(Persist(2, [CreatePartition(2, "t")]))
    disk.timeline.fail_next = False
    assert disk.store.recover() == []


def test_a_writer_with_nothing_else_to_do_goes_on_with_a_wipe(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker of a dropped partition may have no other."""
    monkeypatch.setattr(wiping, "WIPE_ROWS", 1)
    disk.store.commit([CreatePartition(5, "t"), *(PutChunk(5, upload, 0, b"x") for upload in range(9))])
    wiped, commit = Done(), disk.store.commit

    def committed(writes: Sequence[StoreWrite]) -> None:
        commit(writes)
        if not disk.store.wiping():
            wiped.set()

    monkeypatch.setattr(disk.store, "commit", committed)
    writer = Writer(disk.store, disk.inbox)
    writer.order(Persist(1, [DropPartition(5)]))
    writer.start()
    [said] = [event for event in disk.wait_for(Persisted) if isinstance(event, Persisted)]
    assert said.wiping == {5}
    assert wiped.wait(10)
    writer.stop(5)
    assert [event for event in disk.inbox.take() if isinstance(event, Persisted)] == []


def test_the_state_of_the_disk_is_said_before_the_first_commit(disk: Disk) -> None:
    writer = Writer(disk.store, disk.inbox)
    writer.order(Persist(1, [CreatePartition(1, "t")]))
    writer.start()
    events = disk.wait_for(Persisted)
    writer.stop(5)
    assert isinstance(events[0], StorePressure)


def test_a_store_that_is_behind_is_looked_at_again_soon_though_nothing_is_written(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inserts are refused meanwhile, and so there may be nothing else that makes the writer look."""
    states = [Pressure("busy", False)] * 100 + [Pressure("", False)]
    monkeypatch.setattr(disk.store, "pressure", lambda: states.pop(0) if len(states) > 1 else states[0])
    writer = Writer(disk.store, disk.inbox)
    writer.start()
    said: list[Event] = []
    while len(said) < 2:
        said += disk.wait_for(StorePressure)
    writer.stop(5)
    assert said == [StorePressure("busy", False), StorePressure("", False)]


def test_an_order_wakes_a_writer_that_has_nothing_to_do(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every ack of a quiet broker waits for it."""
    monkeypatch.setattr(writer_module, "_IDLE_S", 3_600.0)
    writer = Writer(disk.store, disk.inbox)
    writer.start()
    for token in range(1, 21):
        writer.order(Persist(token, [CreatePartition(token, "t")]))
        assert any(
            isinstance(event, Persisted) and event.token == token for event in disk.wait_for(Persisted)
        )
    assert writer.stop(5)


def test_reads_are_answered_in_order(disk: Disk) -> None:
    disk.store.commit([CreatePartition(1, "t")])
    reader = Reader(disk.store, disk.inbox)
    reader.start()
    for token in range(20):
        reader.order(ReadLog(token, 1, 1, 1000))
    tokens: list[int] = []
    while len(tokens) < 20:
        tokens.extend(event.token for event in disk.wait_for(LogRead) if isinstance(event, LogRead))
    reader.stop(5)
    assert tokens == list(range(20))


def test_snapshots_are_looked_through_by_the_clock_in_microseconds(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else those that nobody reads any more stay open, and the space that they hold is never free."""
    looked, seen = Done(), list[int]()

    def expire(mono_us: int) -> None:
        seen.append(mono_us)
        looked.set()

    monkeypatch.setattr(disk.store, "expire_snapshots", expire)
    began = time.monotonic()
    reader = Reader(disk.store, disk.inbox)
    reader.start()
    assert looked.wait(10)
    assert reader.stop(5)
    assert int(began * 1e6) <= seen[0] <= time.monotonic() * 1e6


def test_snapshots_are_looked_through_however_many_reads_there_are(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else those of browsers that were killed take the place of others for as long as anybody reads."""
    looked, seconds = list[int](), itertools.count(1000)
    monkeypatch.setattr(disk.store, "expire_snapshots", looked.append)
    monkeypatch.setattr(reader_module, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    disk.store.commit([CreatePartition(1, "t")])
    reader = Reader(disk.store, disk.inbox)
    for token in range(20):
        reader.order(ReadLog(token, 1, 1, 1000))
    reader.start()
    answered = 0
    while answered < 20:
        answered += len(disk.wait_for(LogRead))
    assert reader.stop(5)
    assert len(looked) >= 4


def test_told_to_stop_the_writer_commits_what_is_queued(disk: Disk) -> None:
    writer = Writer(disk.store, disk.inbox)
    for token in range(1, 1_001):
        writer.order(Persist(token, [SaveMeta(1, token, 0)] if token > 1 else [CreatePartition(1, "t")]))
    writer.start()
    assert writer.stop(5)
    assert disk.store.recover()[0].epoch == 1_000
    assert not any(isinstance(event, StoreFailed) for event in disk.inbox.take())


def test_the_state_of_the_disk_is_said_once_and_again_when_it_changes(disk: Disk) -> None:
    found = iter([Pressure("", False), Pressure("", False), Pressure("disk_full", True)])
    disk.store.pressure = lambda: next(found, Pressure("disk_full", True))  # type: ignore[method-assign]
    writer = Writer(disk.store, disk.inbox)
    writer.start()
    said: list[Event] = []
    while len(said) < 2:
        said += disk.wait_for(StorePressure)
    assert writer.stop(5)
    assert said + disk.inbox.take() == [StorePressure("", False), StorePressure("disk_full", True)]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("worker", ["writer", "reader"])
def test_a_thread_that_ends_by_a_bug_ends_the_broker(disk: Disk, worker: str) -> None:
    """Otherwise its orders would wait for ever."""
    broken: Writer | Reader
    if worker == "writer":
        broken = writer = Writer(disk.store, disk.inbox)
        writer.order(Persist(1, [object()]))  # type: ignore[list-item]
    else:
        broken = reader = Reader(disk.store, disk.inbox)
        disk.store.read = None  # type: ignore[assignment, method-assign]
        disk.store.commit([CreatePartition(1, "t")])
        reader.order(ReadLog(1, 1, 1, 1000))
    broken.start()
    (failed,) = [event for event in disk.wait_for(StoreFailed) if isinstance(event, StoreFailed)]
    assert worker in failed.reason
    # The thread's last words belong to this test.
    assert broken.stop(5)


def test_a_disk_that_cannot_be_looked_at_is_told_by_its_reason(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pressure() -> Pressure:
        raise OSError(errno.EIO, "Input/output error", "/data/b1")

    monkeypatch.setattr(disk.store, "pressure", pressure)
    writer = Writer(disk.store, disk.inbox)
    writer.start()
    assert disk.wait_for(StoreFailed) == [StoreFailed("[Errno 5] Input/output error: '/data/b1'")]
    assert writer.stop(5)


def test_a_read_that_fails_ends_the_broker_and_says_why(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(request: StoreRead) -> None:
        raise Refused("a sector cannot be read")

    monkeypatch.setattr(disk.store, "read", read)
    reader = Reader(disk.store, disk.inbox)
    reader.start()
    reader.order(ReadLog(1, 1, 1, 1000))
    assert disk.wait_for(StoreFailed) == [StoreFailed("a sector cannot be read")]
    assert reader.stop(5)


def test_a_reader_that_is_told_to_stop_says_nothing(disk: Disk) -> None:
    reader = Reader(disk.store, disk.inbox)
    reader.start()
    assert reader.stop(5)
    assert disk.inbox.take() == []


def test_who_wakes_a_loop_that_is_gone_does_no_harm() -> None:
    """A second signal while the process ends."""
    inbox = Inbox()
    inbox.close()
    inbox.put(Persisted(1, 1))
