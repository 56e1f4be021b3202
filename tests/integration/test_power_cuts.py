"""A real broker under load, and the power fails: at any instant of its life, what it had acknowledged is there.

The broker runs once, under strace. Any number of power cuts are made from the record of its system calls. Each one
builds the folder as that instant would have left it, opens the real store on it, and looks for every message.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from threading import Event
from typing import Any

import pytest

from dueq import Client
from dueq.core.ports.entry import FLAG_UPLOAD
from dueq.core.ports.persistence import (
    ChunkRead,
    IndexScanned,
    PayloadsRead,
    ReadChunk,
    ReadPayloads,
    RecoveredPartition,
    ScanIndex,
)
from dueq.ids import from_text
from dueq.limits import CHUNK_BYTES
from dueq.storage.ordered.store import OrderedStore
from dueq_chaos.shell import syncs, traced
from dueq_chaos.shell.powercut import Cut
from dueq_codecs.records import RecordKind

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        not traced.available(), reason="needs an strace that may trace (Debian: apt install strace)"
    ),
]

_PATIENCE_S = 60.0
_ALL_ROWS = 1 << 30
_FAR_MS = 86_400_000
_BROKER = """
import sys
from contextlib import ExitStack
from dueq.storage.ordered import identity
from dueq.storage.ordered.space import Buffers
from dueq_chaos.bugs import BUGS

# Small buffers: tables are written and compacted all the time.
identity.Buffers.on = classmethod(lambda cls, folder: cls(40_000, 80_000))
with ExitStack() as planted:
    for name in sys.argv.pop(1).split():
        planted.enter_context(BUGS[name].planted())
    from dueq.cli.main import main
    main()
"""


@dataclass
class Run:
    """One life of a broker, and what its client saw.

    Attributes:
        scheduled: (when it was acknowledged in Unix µs, partition, sequence, row, payload).
        cancelled: (when the request was sent and when it was answered, partition, sequence, row).
    """

    folder: Path
    calls: list[traced.Call] = field(default_factory=list)
    scheduled: list[tuple[int, int, int, int, bytes]] = field(default_factory=list)
    cancelled: dict[tuple[int, int, int], tuple[int, int]] = field(default_factory=dict)


def now_us() -> int:
    return time.time_ns() // 1000


def run(folder: Path, bugs: str = "", rounds: int = 25) -> Run:
    """Run a broker under strace, with traffic, and kill it.

    Args:
        folder: for its data, its log and the record.
        bugs: names of planted bugs, with spaces between them.
        rounds: how much traffic.
    """
    found = Run(folder / "data")
    record, log = folder / "calls", folder / "log"
    broker = [
        sys.executable, "-c", _BROKER, bugs, "broker", "--id", "b1", "--no-zookeeper", "--data", str(found.folder),
        "--listen", "tcp://127.0.0.1:0", "--metrics", "127.0.0.1:0", "--log-format", "json",
    ]  # fmt: skip
    with log.open("xb") as output:
        process = subprocess.Popen(
            traced.command(record, *broker), stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        traffic(started(log, process)["endpoint"], found, rounds)
    finally:
        os.kill(traced.pid_of(record), signal.SIGKILL)
        process.wait(_PATIENCE_S)
    found.calls = traced.read(record, found.folder)
    return found


def started(log: Path, process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """Wait for the broker's first word."""
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline and process.poll() is None:
        for line in log.read_text().rpartition("\n")[0].splitlines():
            if "broker.started" in line:
                fields: dict[str, Any] = json.loads(line)
                return fields
        Event().wait(0.02)
    raise AssertionError(log.read_text())


def traffic(endpoint: str, found: Run, rounds: int) -> None:
    """Schedule batches and single messages, some of them long, and cancel some."""
    random = Random(7)
    with Client(endpoint) as client:
        client.create_topic("t", partitions=2, replicas=1)
        with client.producer("t") as producer:
            for number in range(rounds):
                sizes = [300_000] if number % 12 == 5 else [random.randint(0, 3_000)] * random.randint(1, 12)
                payloads = [random.randbytes(size) for size in sizes]
                due = now_us() // 1000 + _FAR_MS
                ids = [str(one) for one in producer.schedule_many(payloads, due, timeout=_PATIENCE_S)]
                acked_us = now_us()
                for name, payload in zip(ids, payloads, strict=True):
                    found.scheduled.append((acked_us, *place_of(name), payload))
                if number % 4 == 3:
                    sent_us = now_us()
                    producer.cancel(ids[0], timeout=_PATIENCE_S)
                    found.cancelled[place_of(ids[0])] = sent_us, now_us()


def place_of(name: str) -> tuple[int, int, int]:
    """Partition, sequence and row of a message's id."""
    found = from_text(name)
    return found.uid, found.sequence, found.row


def lost(found: Run, at_us: int, into: Path, random: Random | None) -> list[str]:
    """Cut the power at an instant; return what was acknowledged by then and is not there."""
    Cut(found.calls, at_us).leave(found.folder, into, random)
    store = OrderedStore.open(into, "b1")
    try:
        if store.set_aside and at_us < found.scheduled[0][0]:
            return []  # LevelDB does not sync the first manifest of a new database, and nothing was in it
        wrong = [f"the store was put aside: {store.set_aside}"] if store.set_aside else []
        parts = store.recover()
        wrong += [f"partition {part.uid} is damaged: {part.damaged}" for part in parts if part.damaged]
        if wrong:
            return wrong
        held = {part.uid: payloads_in(store, part) for part in parts}
    finally:
        store.close()
    for acked_us, uid, sequence, row, payload in found.scheduled:
        cancelled = found.cancelled.get((uid, sequence, row))
        there = held.get(uid, {}).get((sequence, row))
        if acked_us <= at_us and (cancelled is None or at_us < cancelled[0]) and there != payload:
            wrong.append(
                f"{uid}:{sequence}:{row} was acknowledged {at_us - acked_us} µs before, and is not there"
            )
        if cancelled is not None and cancelled[1] <= at_us and there is not None:
            wrong.append(f"{uid}:{sequence}:{row} was cancelled, and is there")
    return wrong


def payloads_in(store: OrderedStore, part: RecoveredPartition) -> dict[tuple[int, int], bytes]:
    """Return what a replica holds, by sequence and row: its checkpoint, and the records after that."""
    held: dict[tuple[int, int], bytes] = {}
    scanned = store.read(ScanIndex(0, part.uid, 0, -1, _ALL_ROWS))
    assert isinstance(scanned, IndexScanned)
    entries = scanned.entries
    inline = entries[(entries["flags"] & FLAG_UPLOAD) == 0]
    read = store.read(ReadPayloads(0, part.uid, inline))
    assert isinstance(read, PayloadsRead)
    for entry, payload in zip(inline, read.payloads, strict=True):
        if payload is not None:
            held[int(entry["sequence"]), int(entry["row"])] = payload
    for entry in entries[(entries["flags"] & FLAG_UPLOAD) != 0]:
        long = uploaded(store, part.uid, int(entry["place"]), int(entry["size"]))
        held[int(entry["sequence"]), int(entry["row"])] = long
    for record, body in ((entry.record, bytes(entry.body)) for entry in part.tail):
        if record.kind == RecordKind.INSERT:
            at = 0
            uploads = record.upload.tolist() or [0] * record.rows
            for row, (size, upload) in enumerate(zip(record.size.tolist(), uploads, strict=True)):
                held[record.sequence, row] = (
                    uploaded(store, part.uid, upload, size) if upload else body[at : at + size]
                )
                at += 0 if upload else size
        elif record.kind == RecordKind.CANCEL:
            for sequence, row in zip(
                record.target_sequence.tolist(), record.target_row.tolist(), strict=True
            ):
                held.pop((sequence, row), None)
    return held


def uploaded(store: OrderedStore, uid: int, upload: int, size: int) -> bytes:
    """Return a long payload, as far as it is there."""
    found = b""
    for chunk in range(-(-size // CHUNK_BYTES)):
        read = store.read(ReadChunk(0, uid, upload, chunk))
        assert isinstance(read, ChunkRead)
        found += read.data or b""
    return found


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run(tmp_path_factory.mktemp("life"))


def test_nothing_is_told_that_was_not_synced_payloads_first(life: Run) -> None:
    assert syncs.judge(life.calls) == []
    assert syncs.groups(life.calls) > 25
    assert any(call.paths[0].endswith(".ldb") for call in life.calls if call.is_sync), "tables were written"


@pytest.mark.parametrize("left", ["what was synced", "some more"])
def test_after_a_power_cut_all_that_was_acknowledged_is_there(life: Run, tmp_path: Path, left: str) -> None:
    """At instants that chance chooses, and in those of acknowledgements, when the least has been synced since."""
    random = Random(11)
    first, last = life.calls[0].began_us, life.calls[-1].done_us
    instants = [random.randint(first, last) for _ in range(8)]
    instants += [random.choice(life.scheduled)[0] for _ in range(8)] + [last]
    for number, at_us in enumerate(instants):
        chance = None if left == "what was synced" else Random(at_us)
        wrong = lost(life, at_us, tmp_path / str(number), chance)
        assert not wrong, f"cut {at_us - first} µs after the beginning: {wrong[:5]}"


@pytest.mark.parametrize("bug", ["payloads-not-synced", "records-not-synced"])
def test_a_dropped_sync_is_seen_in_the_system_calls_and_loses_messages(tmp_path: Path, bug: str) -> None:
    found = run(tmp_path, bug, rounds=6)
    assert syncs.judge(found.calls)
    assert lost(found, found.scheduled[-1][0], tmp_path / "left", None)


def test_records_ahead_of_their_payloads_are_seen_when_the_power_fails_in_between(tmp_path: Path) -> None:
    found = run(tmp_path, "payload-after-record", rounds=6)
    synced = [
        call.done_us for call in found.calls
        if call.is_sync and "/timeline/" in call.paths[0] and call.paths[0].endswith(".log")
    ]  # fmt: skip
    cuts = (lost(found, at_us, tmp_path / str(at_us), None) for at_us in synced)
    assert any("damaged" in wrong for cut in cuts for wrong in cut)
