"""What a store holds, and how it is read while the process lives."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.conformance.stores.conftest import EVERY, Place
from tests.conformance.stores.history import UID, entries, insert

from dueq.core.ports.entry import FLAG_UPLOAD, Entries, State, keys_of
from dueq.core.ports.names import Answered, Remembered, expiry_key, pack_name
from dueq.core.ports.persistence import (
    AppendLog,
    ChunkRead,
    CloseSnapshot,
    CreatePartition,
    DropPartition,
    DropUpload,
    EntriesRead,
    ExpiredRead,
    HashesRead,
    IndexScanned,
    InstallBegin,
    InstallEnd,
    InstallRows,
    LogRead,
    MarkProven,
    NamesRead,
    PartitionRead,
    PayloadsRead,
    PutChunk,
    ReadChunk,
    ReadEntries,
    ReadExpired,
    ReadHashes,
    ReadLog,
    ReadNames,
    ReadPartition,
    ReadPayloads,
    ReadSnapshot,
    RecoveredPartition,
    SaveCheckpoint,
    SaveMeta,
    ScanIndex,
    SnapshotRead,
    TrimLog,
    TruncateLog,
)
from dueq.core.ports.tables import TableRow
from dueq.errors import InvalidRequest
from dueq.limits import SNAPSHOT_IDLE_MS, WIPE_ROWS
from dueq.storage.port import Pressure, Store
from dueq_codecs.records import LogEntry, Record, RecordKind


@pytest.fixture
def begun(store: Store) -> Store:
    """A store with one empty partition."""
    store.recover()
    store.commit([CreatePartition(UID, "t")])
    return store


def found_in(store: Store, uid: int = UID) -> RecoveredPartition:
    answer = store.read(ReadPartition(1, uid))
    assert isinstance(answer, PartitionRead)
    assert not answer.recovered.damaged
    return answer.recovered


def log_of(store: Store, start: int = 1, bytes_max: int = 1 << 20) -> list[tuple[int, int, bytes]]:
    """(sequence, epoch, body) of what a reader of the log gets."""
    answer = store.read(ReadLog(4, UID, start, bytes_max))
    assert isinstance(answer, LogRead)
    assert (answer.token, answer.uid, answer.from_sequence) == (4, UID, start)
    return [(entry.record.sequence, entry.record.epoch, bytes(entry.body)) for entry in answer.entries]


def scan(store: Store, after: tuple[int, int] = (0, 0), limit: int = 100, **more: Any) -> IndexScanned:
    answer = store.read(ScanIndex(3, UID, *after, limit, **more))
    assert isinstance(answer, IndexScanned)
    return answer


def bodies(store: Store, rows: Entries) -> list[bytes | None]:
    answer = store.read(ReadPayloads(2, UID, rows))
    assert isinstance(answer, PayloadsRead)
    return answer.payloads


# ---------------------------------------------------------------- the store itself


def test_a_new_store_is_empty_and_has_an_id_of_its_own(store: Store) -> None:
    assert re.fullmatch("[0-9a-f]{16}", store.store_id)
    assert (store.recover(), store.set_aside) == ([], "")


def test_it_belongs_to_one_cluster(another: Callable[[str], Place]) -> None:
    for name in EVERY:
        store = another(name).open()
        store.bind_cluster("sim")
        store.bind_cluster("sim")
        with pytest.raises(InvalidRequest, match="belongs to cluster sim"):
            store.bind_cluster("another")


def test_an_almost_empty_store_feels_no_pressure(begun: Store) -> None:
    assert begun.pressure() == Pressure("", False)
    begun.release_reserve()


# ---------------------------------------------------------------- the log


def test_records_come_back_in_order_with_their_bodies(begun: Store) -> None:
    log = [
        insert(1, [b"a", b"", b"bc"]),
        LogEntry(Record(RecordKind.BARRIER, UID, 2, 1, 500)),
        insert(3, [b"d" * 99_000], 4),
    ]
    begun.commit([AppendLog(UID, log[:2]), SaveMeta(UID, 1, 1)])
    begun.commit([AppendLog(UID, log[2:]), SaveMeta(UID, 4, 2)])
    assert log_of(begun) == [(1, 1, b"abc"), (2, 1, b""), (3, 4, b"d" * 99_000)]
    assert log_of(begun, 2, 1) == [(2, 1, b"")]
    assert log_of(begun, 4) == []
    found = found_in(begun)
    assert (found.topic, found.epoch, found.commit, found.log_start, found.log_end) == ("t", 4, 2, 1, 3)
    assert found.epochs == [(0, 0), (1, 1), (4, 3)]


def test_it_says_what_the_log_before_the_checkpoint_weighs(begun: Store) -> None:
    """Without that, logs that grow little in each life of a broker would never be trimmed."""
    uploaded = insert(2, [b""])
    uploaded.record.size[0], uploaded.record.upload = 900_000, np.array([7], np.uint64)
    log = [insert(1, [b"d" * 99_000] * 2), uploaded]
    log += [LogEntry(Record(RecordKind.BARRIER, UID, n, 1, 500)) for n in range(3, 9)]
    log += [insert(9, [b"d" * 99_000] * 2)]
    begun.commit([AppendLog(UID, log)])
    assert found_in(begun).weights == []
    begun.commit([SaveCheckpoint(UID, 8, 0)])
    weights = found_in(begun).weights
    assert [last for last, _ in weights] == sorted(last for last, _ in weights)
    assert weights[-1][0] == 8
    assert 1_098_000 < sum(weight for _, weight in weights) < 1_102_000
    begun.commit([TrimLog(UID, 3)])
    [(last, weight)] = found_in(begun).weights
    assert last == 8
    assert 6 * 50 < weight < 6 * 500


def test_a_record_takes_the_place_of_one_that_was_cut_with_its_own_payload(begun: Store) -> None:
    begun.commit([AppendLog(UID, [insert(1, [b"kept"]), insert(2, [b"old"]), insert(3, [b"old" * 30_000])])])
    begun.commit([TruncateLog(UID, 2), SaveMeta(UID, 2, 1), AppendLog(UID, [insert(2, [b"new"], 2)])])
    assert log_of(begun) == [(1, 1, b"kept"), (2, 2, b"new")]
    assert found_in(begun).log_end == 2


def test_a_trimmed_log_begins_later_and_knows_the_epoch_before(begun: Store) -> None:
    begun.commit([AppendLog(UID, [insert(n, [b"x"], 1 + n // 3) for n in range(1, 7)])])
    begun.commit([SaveCheckpoint(UID, 4, 0), TrimLog(UID, 5)])
    found = found_in(begun)
    assert (found.applied, found.log_start, found.log_end) == (4, 5, 6)
    assert found.epochs[0][0] == 2
    assert log_of(begun, 1) == []
    assert [row[0] for row in log_of(begun, 5)] == [5, 6]
    begun.commit([SaveCheckpoint(UID, 6, 0), TrimLog(UID, 7), AppendLog(UID, [insert(7, [b"y"], 3)])])
    assert log_of(begun, 7) == [(7, 3, b"y")]


# ---------------------------------------------------------------- the state


@pytest.mark.parametrize("short", [False, True])
def test_waiting_messages_are_found_by_id_and_in_order(begun: Store, short: bool) -> None:
    payloads = [b"a", b"bb", b"", b"dddd"]
    rows = entries(1, payloads, [40, 20, 30, 10])
    save = SaveCheckpoint(UID, 1, 10, put=rows, short=short, summary=b"s")
    begun.commit([AppendLog(UID, [insert(1, payloads)]), save])
    assert scan(begun).entries["wait_at"].tolist() == [10, 20, 30, 40]
    half = scan(begun, limit=2)
    assert (half.entries["wait_at"].tolist(), half.exhausted) == ([10, 20], False)
    rest = scan(begun, half.looked_to or (0, 0))
    assert (rest.entries["wait_at"].tolist(), rest.exhausted) == ([30, 40], True)
    assert bodies(begun, rows) == payloads
    wanted = ReadEntries(
        1, UID, rows["first"][:2].astype("u8"), rows["sequence"][:2].astype("u8"), rows["row"][:2]
    )
    answer = begun.read(wanted)
    assert isinstance(answer, EntriesRead)
    assert sorted(answer.entries["row"].tolist()) == [0, 1]
    nothing = begun.read(ReadEntries(1, UID, np.array([41], "u8"), np.array([1], "u8"), np.array([0], "u2")))
    assert isinstance(nothing, EntriesRead)
    assert len(nothing.entries) == 0


@pytest.mark.parametrize("short", [False, True])
def test_one_scan_reads_several_classes_in_their_order(begun: Store, short: bool) -> None:
    payloads = [b"x"] * 8
    rows = entries(1, payloads, [10, 20, 30, 40, 10, 20, 10, 10])
    of = np.array([[0, 0]] * 4 + [[0, 7]] * 2 + [[1, 0], [255, 255]], np.uint8)
    log = [insert(1, payloads)]
    save = SaveCheckpoint(UID, 1, 10, put=rows, put_of=of, short=short, summary=b"s")
    begun.commit([AppendLog(UID, log), save])
    found = scan(begun, of=b"\0\0", each=2, onward=True)
    assert found.entries["row"].tolist() == [0, 1, 4, 5, 6, 7]
    assert (found.looked_to, found.exhausted, found.following) == ((20, 1 << 16 | 1), False, None)
    assert [(each.of, each.exhausted) for each in found.beyond] == [
        (b"\0\7", True), (b"\1\0", True), (b"\xff\xff", True),
    ]  # fmt: skip
    some = scan(begun, limit=3, of=b"\0\0", each=2, onward=True)
    assert (some.entries["row"].tolist(), some.following) == ([0, 1, 4], b"\1\0")
    assert some.beyond == ((b"\0\7", (10, 1 << 16 | 4), False),)
    named = scan(
        begun, (20, 1 << 16 | 1), of=b"\0\0", more=((b"\0\5", 0, 0), (b"\1\0", 10, 1 << 16 | 6)), each=1
    )
    assert (named.entries["row"].tolist(), named.exhausted) == ([2], False)
    assert named.beyond == ((b"\0\5", None, True), (b"\1\0", None, True))


def test_unique_keys_are_found_with_the_messages_that_bear_them(begun: Store) -> None:
    rows = entries(1, [b"w", b"m", b"l"], [10, 20, 30])
    rows["wait_at"][1], rows["state"][2] = 99, State.LEASED
    owners = list(zip(rows["first"].tolist(), keys_of(rows).tolist(), strict=True))
    hashes = [bytes([number]) * 16 for number in range(5)]
    over, answered = Remembered(7, 8, 9, 10, 11, 5_000), Answered(7, 8, 9, 10, 70_000)
    names = [(digest, pack_name(owner)) for digest, owner in zip(hashes, owners, strict=False)]
    kept = [(hashes[3], pack_name(over)), (hashes[4], pack_name(answered))]
    expiry = [(expiry_key(5_000, hashes[3]), b""), (expiry_key(70_000, hashes[4]), b"")]
    begun.commit(
        [
            AppendLog(UID, [insert(1, [b"w", b"m", b"l"])]),
            SaveCheckpoint(UID, 1, 10, put=rows, names=[*names, *kept], remembered=[*expiry]),
        ]
    )
    answer = begun.read(ReadNames(5, UID, [*hashes[:4], b"?" * 16]))
    assert isinstance(answer, NamesRead)
    assert answer.found == dict(zip(hashes[:3], owners, strict=True)) | {hashes[3]: over}
    assert sorted(answer.entries["row"].tolist()) == [0, 1]
    for before, limit, found, following in (
        (5_000, 9, [], 5_000), (5_001, 9, [(5_000, hashes[3])], 70_000), (80_000, 1, [(5_000, hashes[3])], 70_000),
        (80_000, 9, [(5_000, hashes[3]), (70_000, hashes[4])], None),
    ):  # fmt: skip
        expired = begun.read(ReadExpired(6, UID, before, limit))
        assert isinstance(expired, ExpiredRead)
        assert (expired.expired, expired.following, expired.stale) == (found, following, [])
    for after, limit, expected, ended in (
        (b"", 9, hashes, True), (b"", 2, hashes[:2], False), (hashes[1], 2, hashes[2:4], False),
        (hashes[3], 2, hashes[4:], True),
    ):  # fmt: skip
        listed = begun.read(ReadHashes(6, UID, after, limit))
        assert isinstance(listed, HashesRead)
        assert (listed.hashes, listed.ended) == (b"".join(expected), ended)
    assert found_in(begun).tables == {}
    begun.commit([SaveCheckpoint(UID, 1, 10, names=[(hashes[0], None)], remembered=[(expiry[0][0], None)])])
    gone = begun.read(ReadNames(5, UID, hashes[:2]))
    assert isinstance(gone, NamesRead)
    assert gone.found == {hashes[1]: owners[1]}
    left = begun.read(ReadExpired(6, UID, 80_000, 9))
    assert isinstance(left, ExpiredRead)
    assert left.expired == [(70_000, hashes[4])]


def test_only_keys_whose_own_rows_say_so_are_remembered_no_more(begun: Store) -> None:
    """The index of those may be out of date: a live message may bear the key, or it is remembered for longer."""
    borne, longer, nobody, over = (bytes([number]) * 16 for number in (4, 3, 2, 1))
    names = [
        (borne, pack_name((10, 1 << 16))),
        (longer, pack_name(Remembered(7, 8, 9, 10, 11, 5_000))),
        (over, pack_name(Answered(7, 8, 9, 10, 3_000))),
    ]
    untils = [(1_000, borne), (2_000, longer), (2_500, nobody), (3_000, over), (5_000, longer)]
    rows = [(expiry_key(*each), b"") for each in untils]
    begun.commit([SaveCheckpoint(UID, 0, 10, names=names, remembered=rows)])
    read = begun.read(ReadExpired(6, UID, 4_000, 9))
    assert isinstance(read, ExpiredRead)
    assert (read.expired, read.stale, read.following) == ([(3_000, over)], untils[:3], 5_000)
    read = begun.read(ReadExpired(6, UID, 4_000, 2))
    assert isinstance(read, ExpiredRead)
    assert (read.expired, read.stale, read.following) == ([], untils[:2], 2_500)


def test_a_message_that_was_moved_leased_or_finished_is_where_it_belongs(begun: Store) -> None:
    rows = entries(1, [b"m", b"l", b"f"], [10, 20, 30])
    later = [LogEntry(Record(RecordKind.BARRIER, UID, n, 1, 500)) for n in (2, 3)]
    log = [insert(1, [b"m", b"l", b"f"]), *later]
    begun.commit([AppendLog(UID, log), SaveCheckpoint(UID, 1, 10, put=rows)])
    moved, leased, finished = rows[:1].copy(), rows[1:2].copy(), rows[2:].copy()
    moved["wait_at"], leased["state"] = 99, State.LEASED
    gone = np.array(
        [[entry["wait_at"], key, entry["first"]] for entry, key in zip(rows, keys_of(rows), strict=True)],
        np.uint64,
    )
    begun.commit(
        [SaveCheckpoint(UID, 2, 10, put=np.concatenate([moved, leased]), unwait=gone, finished=finished)]
    )
    assert scan(begun).entries["wait_at"].tolist() == [99]
    assert found_in(begun).leased["row"].tolist() == [1]
    by_id = begun.read(ReadEntries(1, UID, np.array([10], "u8"), np.array([1], "u8"), np.array([0], "u2")))
    assert isinstance(by_id, EntriesRead)
    assert by_id.entries["wait_at"].tolist() == [99]
    assert bodies(begun, np.concatenate([moved, leased])) == [b"m", b"l"]
    begun.commit([SaveCheckpoint(UID, 3, 10, unlease=keys_of(leased), finished=leased)])
    assert len(found_in(begun).leased) == 0


def test_tables_and_the_summary_are_what_the_last_checkpoint_said(begun: Store) -> None:
    rows = [TableRow(b"k1", b"v1"), TableRow(b"k2", b"v2" * 500), TableRow(b"k3", b"")]
    begun.commit(
        [AppendLog(UID, [insert(1, [b""])]), SaveCheckpoint(UID, 1, 5, summary=b"one", tables={b"f": rows})]
    )
    begun.commit(
        [
            SaveCheckpoint(
                UID, 1, 6, summary=b"two", tables={b"f": [TableRow(b"k1", None), TableRow(b"k3", b"new")]}
            )
        ]
    )
    found = found_in(begun)
    assert (found.summary, found.low_water) == (b"two", 6)
    assert found.tables[b"f"] == [rows[1], TableRow(b"k3", b"new")]


def test_chunks_of_an_upload_stay_until_nothing_names_it(begun: Store) -> None:
    begun.commit([PutChunk(UID, 77, n, b"chunk %d" % n) for n in range(3)])

    def chunk(number: int) -> bytes | None:
        answer = begun.read(ReadChunk(1, UID, 77, number))
        assert isinstance(answer, ChunkRead)
        return answer.data

    assert [chunk(n) for n in range(4)] == [b"chunk 0", b"chunk 1", b"chunk 2", None]
    assert found_in(begun).uploads == [77]
    live = entries(1, [b"whatever"], [10])
    live["flags"], live["place"] = FLAG_UPLOAD, 77
    begun.commit(
        [AppendLog(UID, [insert(1, [b""])]), SaveCheckpoint(UID, 1, 0, put=live), DropUpload(UID, 77)]
    )
    assert chunk(0) == b"chunk 0"
    begun.commit([SaveCheckpoint(UID, 1, 0, finished=live), TrimLog(UID, 2), DropUpload(UID, 77)])
    assert chunk(0) is None


def test_a_large_replica_that_begins_anew_holds_only_what_comes_since(begun: Store) -> None:
    begun.commit([PutChunk(UID, number, 0, b"old") for number in range(1, 2 * WIPE_ROWS)])
    begun.commit([InstallBegin(UID, "t", 6), PutChunk(UID, 7, 0, b"new")])
    begun.commit([SaveMeta(UID, 7, 0), PutChunk(UID, WIPE_ROWS, 0, b"new")])
    while begun.wiping():
        begun.commit([])
    begun.commit([InstallEnd(UID, 0, 0, 7)])
    found = found_in(begun)
    assert (found.epoch, sorted(found.uploads)) == (7, [7, WIPE_ROWS])


def test_a_dropped_partition_leaves_nothing_for_one_that_comes_after(begun: Store) -> None:
    rows = entries(1, [b"a"], [10])
    begun.commit(
        [AppendLog(UID, [insert(1, [b"a"])]), SaveCheckpoint(UID, 1, 0, put=rows), SaveMeta(UID, 3, 1)]
    )
    begun.commit([CreatePartition(UID + 1, "other"), DropPartition(UID)])
    begun.commit([CreatePartition(UID, "again")])
    found = found_in(begun)
    assert (found.topic, found.epoch, found.log_end, found.applied) == ("again", 0, 0, 0)
    assert (len(scan(begun).entries), bodies(begun, rows)) == (0, [None])
    assert found_in(begun, UID + 1).topic == "other"


# ---------------------------------------------------------------- snapshots


def parts(store: Store, bytes_max: int = 700) -> tuple[list[SnapshotRead], int]:
    """Every part of a snapshot, each asked for twice; and the snapshot's number."""
    found: list[SnapshotRead] = []
    while not found or not found[-1].last:
        number = found[-1].snapshot if found else 0
        answer = store.read(ReadSnapshot(1, UID, number, len(found), bytes_max))
        assert isinstance(answer, SnapshotRead)
        again = store.read(ReadSnapshot(1, UID, answer.snapshot, len(found), bytes_max))
        assert isinstance(again, SnapshotRead)
        assert (answer.data, answer.failed, again.failed) == (again.data, False, False)
        found.append(answer)
    return found, found[0].snapshot


def fill(store: Store) -> None:
    """One record of two messages for each of 30 sequences, a third of them finished, and a table."""
    store.commit([AppendLog(UID, [insert(n, [b"%d" % n, b"z"]) for n in range(1, 31)]), SaveMeta(UID, 1, 30)])
    live = [entries(n, [b"%d" % n, b"z"], [1_000 + n, 2_000]) for n in range(1, 31) if n % 3]
    tables = {b"f": [TableRow(b"k", b"v")]}
    store.commit([SaveCheckpoint(UID, 30, 1_000, put=np.concatenate(live), summary=b"sum", tables=tables)])


@pytest.mark.parametrize("reader", EVERY)
def test_every_store_is_filled_by_a_snapshot_of_every_other(
    place: Place, reader: str, another: Callable[[str], Place]
) -> None:
    source, copy = place.open(), another(reader).open()
    source.commit([CreatePartition(UID, "t")])
    fill(source)
    found, number = parts(source)
    assert len(found) > 2
    source.commit(
        [SaveCheckpoint(UID, 30, 1_000, finished=entries(1, [b"1", b"z"], [1_001, 2_000])), TrimLog(UID, 31)]
    )
    copy.commit([InstallBegin(UID, "t", 6)])
    for part in found:
        copy.commit([InstallRows(UID, part.data)])
    assert found_in(copy).installing
    copy.commit([InstallEnd(UID, found[0].applied, found[0].applied_epoch, 6)])
    filled = found_in(copy)
    assert (filled.installing, filled.unproven) == (False, True)
    assert (filled.applied, filled.epoch, filled.log_start, filled.log_end) == (30, 6, 31, 30)
    assert (filled.summary, filled.tables[b"f"]) == (b"sum", [TableRow(b"k", b"v")])
    rows = scan(copy).entries
    assert rows["wait_at"].tolist() == sorted([1_000 + n for n in range(1, 31) if n % 3] + [2_000] * 20)
    assert bodies(copy, rows)[:2] == [b"1", b"2"]
    copy.commit([MarkProven(UID), AppendLog(UID, [insert(31, [b"next"], 6)])])
    assert not found_in(copy).unproven
    assert log_of(copy, 31) == [(31, 6, b"next")]
    assert source.read(CloseSnapshot(1, UID, number)) is None


def test_a_snapshot_shows_the_state_that_it_was_opened_at_and_ends_when_nobody_reads(begun: Store) -> None:
    fill(begun)
    first = begun.read(ReadSnapshot(1, UID, 0, 0, 300))
    assert isinstance(first, SnapshotRead)
    finished = np.concatenate(
        [entries(n, [b"%d" % n, b"z"], [1_000 + n, 2_000]) for n in range(1, 31) if n % 3]
    )
    gone = np.stack([finished["wait_at"], keys_of(finished), finished["first"]], axis=1).astype(np.uint64)
    begun.commit([SaveCheckpoint(UID, 30, 1_000, finished=finished, unwait=gone), TrimLog(UID, 31)])
    weight, part = len(first.data), first
    while not part.last:
        answer = begun.read(ReadSnapshot(1, UID, first.snapshot, part.part + 1, 300))
        assert isinstance(answer, SnapshotRead)
        assert not answer.failed
        weight, part = weight + len(answer.data), answer
    after, _ = parts(begun)
    assert weight > sum(len(found.data) for found in after)
    begun.expire_snapshots(SNAPSHOT_IDLE_MS * 1_000 + 1)
    late = begun.read(ReadSnapshot(1, UID, first.snapshot, part.part, 300))
    assert isinstance(late, SnapshotRead)
    assert late.failed
