"""What a waiting message takes on the disk beside its payload, in a topic of each kind: bounds of their own."""

from __future__ import annotations

import numpy as np
import pytest
from tests.property.test_fair import FairMesh
from tests.property.test_priority import START, UID, Mesh

from dueq.core.delivery.due_queue import DueQueue
from dueq.core.state.order import TIMELINE
from dueq.core.state.timeline import Timeline
from dueq.storage.ordered import layout
from dueq_codecs.records import Record, RecordKind

ROWS = 1_000
CLASSES = 50


class TimelineMesh(Mesh):
    order = TIMELINE

    def new_queue(self, timeline: Timeline) -> DueQueue:
        return DueQueue(timeline)


def bytes_of_rows(mesh: Mesh, tags: bytes) -> int:
    """All bytes of keys and values of these rows."""
    [timeline, _] = mesh.engines
    total = 0
    for tag in tags:
        head = layout.head(UID, bytes([tag]))
        total += sum(len(key) + len(value) for key, value in timeline.scan(head, layout.after(head)))
    return total


@pytest.mark.parametrize(
    ("kind", "each", "moved"),
    [(TimelineMesh, 45, 78), (Mesh, 74, 90), (FairMesh, 82, 98)],
    ids=["timeline", "priority", "fair"],
)
def test_a_waiting_message_takes_so_many_bytes_of_the_index_and_no_more(
    kind: type[Mesh], each: int, moved: int
) -> None:
    """Index, and where it says so the place of the message; before and after all were moved."""
    mesh = kind(1)
    record = Record(RecordKind.INSERT, UID, 0, 0, 0)
    record.due = START + 60_000 + np.arange(ROWS, dtype=np.uint64)
    record.size, record.crc = np.full(ROWS, 256, np.uint32), np.arange(1, ROWS + 1, dtype=np.uint32)
    if kind is not TimelineMesh:
        record.rank = np.arange(ROWS, dtype=np.uint16) % CLASSES
    if kind is FairMesh:
        record.groups = tuple(f"g{number}" for number in range(CLASSES))
        record.group = np.arange(ROWS, dtype=np.uint16) % CLASSES
    mesh.apply(record)
    mesh.checkpoint()
    assert bytes_of_rows(mesh, b"io") / ROWS <= each

    keys = [1 << 16 | row for row in range(ROWS)]
    later = record.due + np.uint64(5_000)
    mesh.apply(mesh.named(RecordKind.MOVE, keys, record.due.tolist(), due=later))
    mesh.checkpoint()
    assert bytes_of_rows(mesh, b"io") / ROWS <= moved
