"""From an INSERT or FIRE record to index entries. A function of the record alone: every replica gets the same."""

from __future__ import annotations

import numpy as np

from dueq.core.ports.entry import ENTRY, FLAG_UPLOAD, FULL, WIDE, Entries, State, block_starts, meta_flags
from dueq.limits import BLOCK_BYTES
from dueq_codecs.records import NO_U32, U32, Record
from dueq_codecs.rules import first_instants, inline_bytes


def inserted_entries(record: Record, job: int = 0, groups: U32 = NO_U32, body: int = 0) -> Entries:
    """Return one waiting entry per row, in row order.

    Args:
        record: the record.
        job: number of its job; 0: none.
        groups: the number of each of its groups.
        body: number of its shared body; 0: none.

    `block_rows` counts the rows whose bytes are in the block: those with an upload are not among them.
    """
    count = record.rows
    wide = len(record.rank) or len(record.group) or len(record.recurrence)
    full = len(record.expires) or len(record.attempts_max) or body or len(record.key_high)
    rows = np.zeros(count, FULL if full else WIDE if wide else ENTRY)
    rows["wait_at"] = rows["first"] = first_instants(record.due, record.stamp, record.job_until)
    rows["due"] = record.due
    rows["sequence"] = record.sequence
    rows["size"] = record.size
    rows["crc"] = record.crc
    rows["state"] = State.WAITING
    rows["job"] = job
    if count > 1:
        rows["row"] = np.arange(count, dtype=np.uint16)
    if len(record.rank):
        rows["rank"] = record.rank
    if len(record.group):
        rows["group"] = groups[record.group]
    if len(record.recurrence):
        rows["recurrence"] = record.recurrence
    if len(record.expires):
        rows["expires"] = record.expires
    if len(record.attempts_max):
        rows["attempts_max"] = record.attempts_max
    if body:
        rows["body"] = body
    if len(record.key_high):
        rows["key_high"], rows["key_low"] = record.key_high, record.key_low
    _place(record, rows)
    if record.keyed:
        rows["flags"] |= meta_flags(record.keyed)
    return rows


def _place(record: Record, rows: Entries) -> None:
    """Say where each payload is: the block and the offset in it, or the upload."""
    count = len(rows)
    if not count:
        return
    uploaded = record.upload != 0 if len(record.upload) else None
    if uploaded is None and count == 1:
        rows["block_rows"] = 1
        return
    sizes = inline_bytes(record)
    starts = block_starts(sizes, BLOCK_BYTES)
    lengths = np.empty(len(starts), np.intp)
    np.subtract(starts[1:], starts[:-1], out=lengths[:-1])
    lengths[-1] = count - starts[-1]
    begins = sizes.cumsum(dtype=np.int64)
    begins -= sizes
    # Of each row of a block: where the block begins, as row and, taken off, as byte.
    rows["place"] = begins + ((starts << 32) - begins[starts]).repeat(lengths)
    if uploaded is None:
        rows["block_rows"] = lengths.repeat(lengths)
        return
    inline = np.add.reduceat(~uploaded, starts, dtype=np.intp)
    rows["block_rows"] = np.where(uploaded, 1, inline.repeat(lengths))
    rows["place"][uploaded] = record.upload[uploaded]
    rows["flags"][uploaded] = FLAG_UPLOAD
