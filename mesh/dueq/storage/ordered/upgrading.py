"""A store of an older format: steps, each from one format to the next, and how they survive a crash.

A step only reads, and yields changes. They go into a *journal* first, in both databases, under keys that no build looks
at: until then the store is of the old format, and the old build can still open it. One synced write of
`timeline/` then sets the format's number: from now on the store is of the new format. The journal is carried out after
that, in bounded batches, each of which also deletes its part of the journal; a crash leaves the rest to the next start.

So a build that opens a store finds the old format or the new one, never something in between, and a step need not
be written for crashes. As long as the upgrade lasts, the changed rows take their room a second time.

    old ──► journal (begun anew after a crash) ──► number set ──► carried out (goes on after a crash) ──► new
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final

from dueq.storage.ordered import layout
from dueq.storage.ordered.engine import Engine, Operation, Reader
from dueq.storage.ordered.format import Formats, Step, check_format, format_row

_HEAD: Final = Struct(">?H")
"""Of a journal's row: whether there is a value; length of the key. Key and value follow."""
_BATCH_ROWS: Final = 2_000
_BATCH_BYTES: Final = 4 << 20


def upgrade(timeline: Engine, payload: Engine, formats: Formats) -> None:
    """Bring a store to the newest format, or go on with that after a crash.

    Args:
        timeline, payload: the two databases of one store, which is not empty.
        formats: what this build can open.

    Raises:
        UnknownVersion: it is of a format that this build cannot open; nothing was changed.
    """
    at = check_format(timeline, formats)
    _finish(timeline, payload)
    for step in formats.steps[at - formats.oldest :]:
        assert step.before == at, "the steps of a build have no gaps"
        _prepare(timeline, payload, step)
        at += 1
        mark: Operation = (layout.UPGRADING, b"")
        timeline.write([format_row(at), mark], sync=True)
        _finish(timeline, payload)


def _prepare(timeline: Engine, payload: Engine, step: Step) -> None:
    """Write the step's changes into the journals; what an interrupted attempt has left goes first."""
    databases = timeline, payload
    for database in databases:
        for batch in _batches(
            (key, None) for key in database.keys(layout.JOURNAL, layout.after(layout.JOURNAL))
        ):
            database.write(batch, sync=True)
    views = timeline.snapshot(), payload.snapshot()
    try:
        batches: tuple[list[Operation], list[Operation]] = [], []
        weights, counts = [0, 0], [0, 0]
        for which, key, value in step.changes(*views):
            assert key >= layout.FIRST_UID, "rows of the store itself stay as they are"
            row = layout.JOURNAL + counts[which].to_bytes(8, "big")
            entry = _HEAD.pack(value is not None, len(key)) + key + (value or b"")
            counts[which] += 1
            weights[which] += len(row) + len(entry)
            batches[which].append((row, entry))
            if len(batches[which]) >= _BATCH_ROWS or weights[which] >= _BATCH_BYTES:
                databases[which].write(batches[which], sync=True)
                batches[which].clear()
                weights[which] = 0
        for which, batch in enumerate(batches):
            if batch:
                databases[which].write(batch, sync=True)
    finally:
        for view in views:
            view.close()


def _finish(timeline: Engine, payload: Engine) -> None:
    """Carry out the rest of the journals, if the format's number was set."""
    if timeline.get(layout.UPGRADING) is None:
        return
    for database in (payload, timeline):
        for batch in _batches(_carried_out(database)):
            database.write(batch, sync=True)
    timeline.write([(layout.UPGRADING, None)], sync=True)


def _carried_out(database: Reader) -> Iterator[Operation]:
    for row, entry in database.scan(layout.JOURNAL, layout.after(layout.JOURNAL)):
        is_put, length = _HEAD.unpack_from(entry)
        end = _HEAD.size + length
        yield entry[_HEAD.size : end], entry[end:] if is_put else None
        yield row, None


def _batches(operations: Iterable[Operation]) -> Iterator[list[Operation]]:
    """Split into batches of bounded size, each of an even number: a change and its row of the journal stay together."""
    batch: list[Operation] = []
    weight = 0
    for operation in operations:
        batch.append(operation)
        weight += len(operation[0]) + len(operation[1] or b"")
        if len(batch) % 2 == 0 and (len(batch) >= _BATCH_ROWS or weight >= _BATCH_BYTES):
            yield batch
            batch, weight = [], 0
    if batch:
        yield batch
