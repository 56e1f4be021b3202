"""Whether a replica's state, in memory and as its disk would give it back, is the result of its log."""

from __future__ import annotations

from typing import Any

from dueq.core.partition.index_walk import IndexWalk
from dueq.core.partition.partition import Partition
from dueq.core.ports.entry import FLAG_UPLOAD, Entries, State, canonical, joined, keys_of
from dueq.core.ports.names import Lasting, unpack_name
from dueq.core.ports.persistence import (
    ChunkRead,
    IndexScanned,
    PartitionRead,
    PayloadsRead,
    ReadChunk,
    ReadPartition,
    ReadPayloads,
    ReadRemark,
    RemarkRead,
)
from dueq.core.state.order import Order
from dueq.core.state.timeline import Timeline
from dueq.limits import CHUNK_BYTES
from dueq.storage.ordered import layout
from dueq.storage.ordered.store import OrderedStore
from dueq_chaos.sim.judging.ledger import ANY_LEVEL

_DIFFERING = ("tombstones", "window", "remarks")
Names = dict[str, str]
"""Rows of unique keys, by their hashes, in hex."""


def differences(store: OrderedStore, partition: Partition, reference: Timeline, *, reopen: bool) -> list[str]:
    """Compare one replica with the reference state.

    Args:
        store: the replica's open store.
        partition: the replica.
        reference: the same records applied with everything in memory; nothing is compared while the replica has
            applied more or less.
        reopen: also compare what a process that starts now would find on the disk (it verifies the whole log).

    Returns:
        The differences, and the payloads that cannot be read; empty when all is well.
    """
    timeline = partition.timeline
    if timeline.applied != reference.applied or partition.replica.installing:
        return []
    whole: dict[str, Any] = reference.export()
    expected, expected_remarks = _comparable(whole), whole["remarks"]
    on_disk = waiting_on_disk(store, partition.uid, timeline.order)
    waiting = joined([on_disk, _dead_on_disk(store, partition.uid)])
    names = names_on_disk(store, partition.uid)
    found: dict[str, Any] = timeline.export()
    wrong = _compare("memory", completed(found, waiting, names), expected)
    wrong += _lacking(timeline, on_disk)
    wrong += _remarks_differ(store, partition.uid, found["remarks"], expected_remarks)
    if reopen:
        wrong += _reopened(store, partition, waiting, names, expected)
    live = _live(reference)
    # A replica that catches up applies what the members have synced while its own disk still takes it.
    return wrong + _unreadable(store, partition.uid, live[live["sequence"] <= partition.replica.synced])


def _reopened(
    store: OrderedStore, partition: Partition, waiting: Entries, names: Names, expected: dict[str, Any]
) -> list[str]:
    reopened = store.read(ReadPartition(0, partition.uid))
    assert isinstance(reopened, PartitionRead)
    if reopened.recovered.unreadable:
        return [f"the disk cannot be read: {reopened.recovered.unreadable}"]
    if reopened.recovered.damaged:
        return [f"the disk is damaged: {reopened.recovered.damaged}"]
    if reopened.recovered.applied != partition.timeline.applied:
        return []
    place = partition.index, partition.topic.home_partitions
    order = partition.timeline.order
    again = Timeline(partition.uid, reopened.recovered, place=place, order=order, build_level=ANY_LEVEL)
    return _compare("the disk", completed(again.export(), waiting, names), expected)


def _lacking(timeline: Timeline, on_disk: Entries) -> list[str]:
    """Look whether all that may be delivered is in memory, as far as the hot window reaches."""
    known = timeline._table.slot_of
    only = [at for at, key in enumerate(keys_of(on_disk).tolist()) if key not in known]
    inside = timeline._window.deliverable(on_disk.take(only))
    names = [f"{entry['sequence']}:{entry['row']} at {entry['wait_at']}" for entry in inside[:3]]
    return [f"memory lacks {len(inside)} messages inside the hot window: {names}"] if names else []


def _remarks_differ(
    store: OrderedStore, uid: int, found: dict[int, str | None], expected: dict[int, str | None]
) -> list[str]:
    """Compare why messages were given back, in memory or else on the disk."""
    wrong = []
    for key, text in expected.items():
        read = store.read(ReadRemark(0, uid, key)) if key not in found else None
        mine = read.text or None if isinstance(read, RemarkRead) else found.get(key)
        if mine != text:
            wrong.append(f"the reason of {key >> 16}:{key & 0xFFFF} is {mine!r}, should be {text!r}")
    return wrong


def completed(state: dict[str, Any], waiting: Entries, names: Names) -> dict[str, Any]:
    """Add to an exported state the entries and unique keys that only the disk has.

    Args:
        state: of `Timeline.export`.
        waiting: every waiting and dead entry on the disk.
        names: every unique key on the disk.
    """
    known = {(entry[3] << 16) | entry[_ROW] for entry in state["entries"]} | set(state["tombstones"])
    keys = keys_of(waiting).tolist() if len(waiting) else []
    only = [at for at, key in enumerate(keys) if key not in known]
    entries = state["entries"] + (canonical(waiting.take(only)) if only else [])
    in_memory = dict(state["names"])
    borne = {digest: row for digest, row in names.items() if _holds(row, state["age"])} | in_memory
    found = sorted((digest, row) for digest, row in borne.items() if row is not None)
    return _comparable(state | {"entries": sorted(entries), "names": found})


def _holds(row: str, age_ms: int) -> bool:
    """Whether a key is borne, or remembered still."""
    name = unpack_name(bytes.fromhex(row))
    return not isinstance(name, Lasting) or name.until >= age_ms


_ROW = 11
"""Place of the field `row` in the tuples of `canonical`."""


def _comparable(state: dict[str, Any]) -> dict[str, Any]:
    known = {name: value for name, value in state.items() if name not in _DIFFERING}
    return known | {"names": [(digest, row) for digest, row in state["names"] if row is not None]}


def _compare(where: str, found: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    wrong = []
    for name, value in expected.items():
        if found[name] != value:
            text = f"{where} differs in {name}: {_shown(found[name])} should be {_shown(value)}"
            if isinstance(value, list):
                extra = [item for item in found[name] if item not in value]
                missing = [item for item in value if item not in found[name]]
                text = f"{where} differs in {name}: has {_shown(extra)}, lacks {_shown(missing)}"
            wrong.append(text)
    return wrong


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) < 400 else text[:400] + "…"


def waiting_on_disk(store: OrderedStore, uid: int, order: Order) -> Entries:
    """Return every waiting entry that the disk of a replica has."""
    return _walked(store, IndexWalk(uid, order.class_bytes, 0))


def _dead_on_disk(store: OrderedStore, uid: int) -> Entries:
    return _walked(store, IndexWalk(uid, 0, 0, dead=True))


def _walked(store: OrderedStore, walk: IndexWalk) -> Entries:
    pages = []
    while not walk.ended:
        page = store.read(walk.request(0))
        assert isinstance(page, IndexScanned)
        pages.append(walk.take(page))
    return joined(pages)


def names_on_disk(store: OrderedStore, uid: int) -> Names:
    """Return every unique key that the disk of a replica has."""
    prefix = layout.head(uid, b"k")
    rows = store._timeline.scan(prefix, layout.after(prefix))
    return {key[4:].hex(): row.hex() for key, row in rows}


def _live(reference: Timeline) -> Entries:
    table = reference._table
    dead = table.take(table.slots_in(State.DEAD))
    return joined([reference.waiting_hot(), reference.leased(), dead])


def _unreadable(store: OrderedStore, uid: int, entries: Entries) -> list[str]:
    """Every live message's payload is there, and its checksum is right (invariant 2)."""
    if not len(entries):
        return []
    uploads = (entries["flags"] & FLAG_UPLOAD) != 0
    answer = store.read(ReadPayloads(0, uid, entries[~uploads]))
    assert isinstance(answer, PayloadsRead)
    lost = [
        f"{uid}:{int(entry['sequence'])}:{int(entry['row'])}"
        for entry, payload in zip(entries[~uploads], answer.payloads, strict=True)
        if payload is None
    ]
    for entry in entries[uploads]:
        chunks = -(-int(entry["size"]) // CHUNK_BYTES)
        for chunk in range(chunks):
            part = store.read(ReadChunk(0, uid, int(entry["place"]), chunk))
            if not isinstance(part, ChunkRead) or part.data is None:
                lost.append(f"{uid}:{int(entry['sequence'])}:{int(entry['row'])} chunk {chunk}")
    return [f"the payloads of {lost} cannot be read"] if lost else []
