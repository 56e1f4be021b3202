"""Scans of the index: one class from a position on, or many classes at once.

If a class has more entries than are wanted, the scan jumps over the rest. Small classes are read one after the other
as they lie on the disk. So a scan of a thousand small classes costs about as much as one of a large class.
"""

from __future__ import annotations

from typing import Final

from dueq.core.ports.persistence import ClassLooked, IndexScanned, ScanIndex
from dueq.limits import HOT_SCAN_ROWS, SCAN_CLASSES_MAX
from dueq.storage.ordered import layout
from dueq.storage.ordered.engine import Reader
from dueq.storage.ordered.short_rows import entries_of, job_of_row, place_of_row, row_of

_CLASS_AT: Final = 4
"""Of an index key: where the class begins."""


class _IndexScan:
    """One scan.

    Many rows are looked at for few that are wanted, so that hidden jobs are passed by in a few reads.

    Attributes:
        rows: the wanted rows, as `short_rows` has them.
        left_out: numbers of hidden jobs that were passed by.
        looked: the classes that were read.
    """

    def __init__(self, reader: Reader, request: ScanIndex) -> None:
        self._reader, self._limit = reader, request.limit
        self._head = layout.head(request.uid, _tag(request))
        self._width = len(request.of)
        self._each = request.each or request.limit
        self._hidden = request.hidden
        self._looks = max(request.limit, HOT_SCAN_ROWS) if request.hidden else request.limit
        self.rows: list[bytes] = []
        self.left_out: set[int] = set()
        self.looked: list[ClassLooked] = []

    @property
    def full(self) -> bool:
        return len(self.rows) >= self._limit or self._looks <= 0 or len(self.looked) >= SCAN_CLASSES_MAX

    def read(self, start: bytes, stop: bytes, of: bytes | None) -> bytes | None:
        """Read classes from a key on, as long as there is room.

        Args:
            start, stop: the range of keys.
            of: a class that counts as read, even if nothing of it is there.

        Returns:
            From where to go on; None: nothing is left.
        """
        last, taken = b"", 0
        for key, value in self._reader.scan(start, stop, limit=self._looks + 1):
            found = key[_CLASS_AT : _CLASS_AT + self._width]
            if found != of:
                if of is not None:
                    self._end(of, last, exhausted=True)
                if self.full:
                    return key
                of, last, taken = found, b"", 0
            elif taken >= self._each or self.full:
                self._end(of, last, exhausted=False)
                return layout.after(self._head + of)
            last = row_of(key, value)
            self._looks -= 1
            job = job_of_row(last) if self._hidden else 0
            if job in self._hidden:
                self.left_out.add(job)
            else:
                self.rows.append(last)
                taken += 1
        if of is not None:
            self._end(of, last, exhausted=True)
        return None

    def _end(self, of: bytes, last: bytes, *, exhausted: bool) -> None:
        looked_to = place_of_row(last) if last else None
        self.looked.append(ClassLooked(of, looked_to, exhausted))

    def onward(self) -> None:
        """Read the classes behind the last one that was read."""
        start: bytes | None = layout.after(self._head + self.looked[-1].of)
        stop = layout.after(self._head)
        while start is not None and not self.full:
            start = self.read(start, stop, None)


def scanned(timeline: Reader, request: ScanIndex) -> IndexScanned:
    """Answer a scan. If it reads several classes, the reader must show them as they were at one instant."""
    scan = _IndexScan(timeline, request)
    for of, wait_at, key in ((request.of, request.after_wait_at, request.after_key), *request.more):
        if not scan.full:
            tag = _tag(request)
            stop = layout.after(layout.head(request.uid, tag) + of)
            scan.read(index_after(request.uid, wait_at, key, of, tag), stop, of)
    if request.onward:
        scan.onward()
    first, *beyond = scan.looked
    return IndexScanned(
        request.token, request.uid, entries_of(scan.rows), first.exhausted, first.looked_to,
        frozenset(scan.left_out), next_class(timeline, request.uid, scan.looked[-1].of), tuple(beyond),
    )  # fmt: skip


def _tag(request: ScanIndex) -> bytes:
    return b"x" if request.dead else b"i"


def index_after(uid: int, wait_at: int, key: int, of: bytes, tag: bytes = b"i") -> bytes:
    """Return the first index key behind a position in a class; key -1: behind all of it that waits before `wait_at`."""
    prefix = layout.head(uid, tag) + of
    if key < 0:
        return prefix + wait_at.to_bytes(6, "big")
    at = wait_at << 56 | key
    return prefix + (at + 1).to_bytes(14, "big")[1:]


def next_class(timeline: Reader, uid: int, of: bytes) -> bytes | None:
    """Return the next class behind one that has entries; None: there is none, or the index has no classes."""
    if not of:
        return None
    index = layout.head(uid, b"i")
    found = timeline.scan(layout.after(index + of), layout.after(index), limit=1)
    return next((key[4 : 4 + len(of)] for key, _ in found), None)
