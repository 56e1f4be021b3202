"""Everything that the writing thread reports as synced is on the disk: the real writer and store, over LevelDB.

A tap lies between the store and its two databases. It keeps a journal of all writes with their sync flags, beside what
the writer says, and can refuse a write as a broken or full disk does. The journal is judged, so that each bug that is
planted here is one that the judge must find.
"""

from __future__ import annotations

import errno
import os
import select
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dueq.broker.inbox import Inbox
from dueq.broker.reader import Reader
from dueq.broker.writer import Writer
from dueq.core.ports.effects import Persist
from dueq.core.ports.events import Event, Persisted, StoreFailed
from dueq.core.ports.persistence import (
    AppendLog,
    CloseSnapshot,
    CreatePartition,
    ReadPage,
    ReadPartition,
    ReadSnapshot,
    SaveCheckpoint,
    SaveMeta,
)
from dueq.storage.ordered import identity, layout
from dueq.storage.ordered.engine import Engine, Operation
from dueq.storage.ordered.leveldb import LevelDbEngine
from dueq.storage.ordered.store import OrderedStore
from dueq.storage.port import StoreFailed as Refused
from dueq_chaos.bugs.bug import change
from dueq_chaos.bugs.patching import Rewrite, rewritten
from tests.unit.storage.ordered.test_store import barrier, insert

UID = 9
ORDERS = 60


@dataclass
class Journal:
    """The events in order: (database, sync, keys) of each write, and the tokens that were reported.

    Attributes:
        left: so many writes are still taken; then `refusal` is raised, for good.
        reaches: the write that is refused is on the disk all the same.
        entered: a write has begun.
        gate: no write goes on before it is set.
    """

    lines: list[tuple[str, bool, frozenset[bytes]] | int] = field(default_factory=list)
    left: int = 1 << 40
    refusal: int = errno.EIO
    reaches: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)
    entered: threading.Event = field(default_factory=threading.Event)
    gate: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.gate.set()

    def syncs_of(self, key: bytes) -> Iterator[tuple[int, bool]]:
        """Where a key was written, and whether synced."""
        for at, line in enumerate(self.lines):
            if not isinstance(line, int) and key in line[2]:
                yield at, line[1]


class Tap:
    """An engine whose writes go through the journal."""

    def __init__(self, name: str, engine: Engine, journal: Journal) -> None:
        self._name, self._engine, self._journal = name, engine, journal
        self.get, self.scan, self.keys = engine.get, engine.scan, engine.keys
        self.level0_files, self.close = engine.level0_files, engine.close
        self.before_snapshot: Callable[[], None] = lambda: None

    def snapshot(self) -> Any:
        self.before_snapshot()
        return self._engine.snapshot()

    def write(self, operations: Iterable[Operation], *, sync: bool) -> None:
        operations, journal = list(operations), self._journal
        journal.entered.set()
        assert journal.gate.wait(10)
        journal.left -= 1
        refused = journal.left < 0
        if not refused or (journal.reaches and journal.left == -1):
            self._engine.write(operations, sync=sync)
        if refused:
            raise Refused(os.strerror(journal.refusal))
        keys = frozenset(key for key, value in operations if value is not None)
        journal.lines.append((self._name, sync, keys))


class TellingInbox(Inbox):
    """Notes in the journal what the writer says."""

    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self._journal = journal

    def put(self, event: Event) -> None:
        if isinstance(event, Persisted):
            self._journal.lines.append(event.token)
        super().put(event)


class Shell:
    """A store in a folder with taps, and the writer on top of it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.journal = folder, Journal()
        self.taps: dict[str, Tap] = {}

        def tapped(path: Path, *, write_buffer_bytes: int) -> Tap:
            engine = LevelDbEngine(path, write_buffer_bytes=write_buffer_bytes)
            tap = self.taps[path.name] = Tap(path.name, engine, self.journal)
            return tap

        monkeypatch.setattr(identity, "LevelDbEngine", tapped)
        self.store = OrderedStore.open(folder, "b1", "one")
        self.store.commit([CreatePartition(UID, "t")])
        self.inbox = TellingInbox(self.journal)
        self.writer = Writer(self.store, self.inbox)
        self.reader = Reader(self.store, self.inbox)
        self.events: list[Event] = []
        self.closed = False

    def until(self, done: Callable[[], bool]) -> None:
        while not done():
            assert select.select([self.inbox], [], [], 10.0)[0], self.events
            self.events += self.inbox.take()

    def said(self) -> int:
        """The last token that was said to be persisted."""
        return max((line for line in self.journal.lines if isinstance(line, int)), default=0)

    def failed(self) -> bool:
        return any(isinstance(event, StoreFailed) for event in self.events)

    def load(self) -> None:
        """Order by order while the writer syncs, with reads of snapshots beside them; to the end, or to a failure."""
        self.writer.start()
        self.reader.start()
        for token in range(1, ORDERS + 1):
            self.writer.order(Persist(token, list(writes_of(token))))
            if token % 7 == 0:
                self.reader.order(ReadSnapshot(token, UID, 0, 0, 1 << 16))
            # At any speed the first five are committed one after the other, and those from 42 on come while 41 is.
            if token % 20 == 0 or token <= 5:
                self.until(lambda token=token: self.said() >= token or self.failed())  # type: ignore[misc]
            if token == 40:
                self.journal.gate.clear()
                self.journal.entered.clear()
            elif token == 41:
                assert self.failed() or self.journal.entered.wait(10)
            elif token == 45:
                self.journal.gate.set()
        self.until(lambda: self.said() >= ORDERS or self.failed())

    def close(self) -> None:
        """End; again, nothing happens."""
        if self.closed:
            return
        self.closed = True
        for worker in (self.writer, self.reader):
            assert not worker._thread.ident or worker.stop(10)
        self.inbox.close()
        self.store.close()


def writes_of(token: int) -> Iterator[Any]:
    """One order: a record with payloads, every third one without, and now and then a checkpoint."""
    entry = barrier(token, 1) if token % 3 == 0 else insert(token, [b"%d" % token * 100])
    yield AppendLog(UID, [entry])
    yield SaveMeta(UID, 1, token)
    if token % 10 == 0:
        yield SaveCheckpoint(UID, token, 0)


def judge(journal: Journal) -> list[str]:
    """Return what is wrong: an unsynced write, a record ahead of its payload, a token ahead of its writes."""
    wrong = [
        f"write {at} to {line[0]} was not synced"
        for at, line in enumerate(journal.lines)
        if not isinstance(line, int) and not line[1]
    ]
    said_at = [(line, at) for at, line in enumerate(journal.lines) if isinstance(line, int)]
    for token in range(1, max(said_at, default=(0, 0))[0] + 1):
        answered_at = min(at for later, at in said_at if later >= token)
        record_at = min((at for at, _ in journal.syncs_of(layout.log_key(UID, token))), default=1 << 40)
        if record_at > answered_at:
            wrong.append(f"order {token} was answered before its record was written")
        if token % 3:
            body_at = min(
                (at for at, _ in journal.syncs_of(layout.block_key(UID, token, 0))), default=1 << 40
            )
            if body_at > min(record_at, answered_at):
                wrong.append(f"record {token} was written, or answered, before its payload")
    return wrong


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Shell]]:
    shells: list[Shell] = []

    def begun() -> Shell:
        shells.append(Shell(tmp_path / "d", monkeypatch))
        return shells[-1]

    yield begun
    for shell in shells:
        shell.close()


def test_what_is_said_to_be_persisted_was_synced_payloads_first(begin: Callable[[], Shell]) -> None:
    shell = begin()
    shell.load()
    assert judge(shell.journal) == []
    answers = sum(isinstance(line, int) for line in shell.journal.lines)
    assert 3 < answers < ORDERS, "some were committed together, some one after the other"


@pytest.mark.parametrize("reaches", [False, True], ids=["lost", "written"])
@pytest.mark.parametrize("refusal", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
@pytest.mark.parametrize("left", [1, 2, 3, 5, 8])
def test_after_a_refused_write_nothing_is_said_that_is_not_on_the_disk(
    begin: Callable[[], Shell], left: int, refusal: int, reaches: bool
) -> None:
    shell = begin()
    shell.journal.left, shell.journal.refusal, shell.journal.reaches = left, refusal, reaches
    shell.load()
    assert shell.failed()
    assert shell.journal.left == -1, "after a write that failed nothing is written any more"
    assert judge(shell.journal) == []
    said = shell.said()
    shell.close()
    shell.journal.left = 1 << 40
    again = OrderedStore.open(shell.folder, "b1", "one")
    (found,) = again.recover()
    assert (again.set_aside, found.damaged) == ("", "")
    assert found.log_end >= said
    bodies = {entry.record.sequence: bytes(entry.body) for entry in found.tail}
    for token in range(max(found.applied, 0) + 1, said + 1):
        assert bodies[token] == (b"%d" % token * 100 if token % 3 else b"")
    again.close()


@pytest.mark.parametrize(
    "read",
    [ReadSnapshot(1, UID, 0, 0, 1 << 16), ReadPage(1, UID, 1, True, 0, 0, (0, 0), 10, 1 << 16, True)],
    ids=["a follower's", "who browses"],
)
def test_no_commit_comes_between_the_two_halves_of_a_snapshot(begin: Callable[[], Shell], read: Any) -> None:
    shell = begin()
    assert not comes_between(shell, read)


def comes_between(shell: Shell, read: Any) -> bool:
    """Whether a commit is done while the second database is about to be looked at."""
    committed = threading.Event()

    def commit() -> None:
        shell.store.commit(list(writes_of(1)))
        committed.set()

    thread = threading.Thread(target=commit)
    found: list[bool] = []

    def pause() -> None:
        if not found:
            thread.start()
            found.append(committed.wait(0.3))

    shell.taps["payload"].before_snapshot = pause
    shell.store.read(read)
    thread.join()
    shell.store.read(CloseSnapshot(1, UID, 1))
    return found[0]


def test_a_replica_is_read_back_while_nothing_is_written(begin: Callable[[], Shell]) -> None:
    """Damage that is found is set aside. A commit in between would be lost with it."""
    shell = begin()
    blocked: list[bool] = []
    threads: list[threading.Thread] = []
    plain = shell.store._recovery.one

    def one(uid: int) -> Any:
        thread = threading.Thread(target=shell.store.commit, args=([SaveMeta(UID, 1, 0)],))
        threads.append(thread)
        thread.start()
        thread.join(0.2)
        blocked.append(thread.is_alive())
        return plain(uid)

    shell.store._recovery.one = one  # type: ignore[method-assign]
    shell.store.read(ReadPartition(1, UID))
    assert blocked == [True]
    threads[0].join(5)


# ---------------------------------------------------------------- the judge is judged

_FLUSH = "storage.ordered.store:OrderedStore._flush"
_PAYLOAD, _TIMELINE = "self._payload.write(payload, sync=True)", "self._timeline.write(timeline, sync=True)"
_BOTH = f"    if payload:\n        {_PAYLOAD}\n    if timeline:\n        {_TIMELINE}\n"
_IN_REVERSE = f"    if timeline:\n        {_TIMELINE}\n    if payload:\n        {_PAYLOAD}\n"
_SAY = "    self._inbox.put(Persisted(group[-1].token, took_us, self._store.wiping()))\n"

WRITING: dict[str, tuple[Rewrite, ...]] = {
    "payloads not synced": (change(_FLUSH, _PAYLOAD, "self._payload.write(payload, sync=False)"),),
    "records not synced": (change(_FLUSH, _TIMELINE, "self._timeline.write(timeline, sync=False)"),),
    "flag dropped on the way": (change("storage.ordered.pair:Half.write", "sync=sync", "sync=False"),),
    "records before payloads": (change(_FLUSH, _BOTH, _IN_REVERSE),),
    "said before it is written": (
        change("broker.writer:Writer._commit", _SAY, ""),
        change(
            "broker.writer:Writer._commit",
            "    self._store_commit(writes)\n    took_us = (time.perf_counter_ns() - began_ns) // 1000\n",
            "    took_us = (time.perf_counter_ns() - began_ns) // 1000\n" + _SAY + "    self._store_commit(writes)\n",
        ),
    ),
    "said for what is still queued": (
        change("broker.writer:Writer._commit", "group[-1].token", "max(o.token for o in [*group, *self._orders])"),
    ),
}  # fmt: skip
"""Careless commits that the journal's judge must find."""


@pytest.mark.parametrize("bug", WRITING)
def test_the_judge_finds(begin: Callable[[], Shell], bug: str) -> None:
    shell = begin()
    with rewritten(WRITING[bug]):
        shell.load()
    assert judge(shell.journal)


@pytest.mark.parametrize(
    ("target", "read"),
    [
        ("storage.ordered.snapshots:Snapshots._begin", ReadSnapshot(1, UID, 0, 0, 1 << 16)),
        (
            "storage.ordered.browsing:Browsing.read",
            ReadPage(1, UID, 1, True, 0, 0, (0, 0), 10, 1 << 16, True),
        ),
    ],
    ids=["a follower's", "who browses"],
)
def test_a_snapshot_without_its_lock_is_found(begin: Callable[[], Shell], target: str, read: Any) -> None:
    shell = begin()
    with rewritten([change(target, "with self._lock:", "if True:")]):
        assert comes_between(shell, read)


def test_an_engine_that_has_failed_takes_no_more(begin: Callable[[], Shell]) -> None:
    """Everything behind a torn write in LevelDB's log would be lost with it."""
    engine: Any = begin().taps["timeline"]._engine
    engine._failed = "no space"
    with pytest.raises(Refused, match="an earlier write failed"):
        engine.write([(b"key", b"value")], sync=True)
