"""Where the payloads of an INSERT lie, once more: row by row."""

from __future__ import annotations

from dueq.limits import BLOCK_BYTES
from dueq_codecs.records import Record


def places_of(record: Record) -> list[tuple[int, int]]:
    """Return (place, rows of the block) of each row of an INSERT."""
    uploads = record.upload.tolist() if len(record.upload) else [0] * record.rows
    places: list[list[int]] = []
    start = used = 0
    inline: dict[int, int] = {}
    for row, (size, upload) in enumerate(zip(record.size.tolist(), uploads, strict=True)):
        length = 0 if upload else size - record.shared_size
        if row > start and used + length > BLOCK_BYTES:
            start, used = row, 0
        places.append([start, used])
        inline[start] = inline.get(start, 0) + (not upload)
        used += length
    return [
        (upload, 1) if upload else (start << 32 | offset, inline[start])
        for (start, offset), upload in zip(places, uploads, strict=True)
    ]
