"""One way through all waiting messages of a partition, as of its last checkpoint: page by page, class by class."""

from __future__ import annotations

from dueq.core.ports.entry import Entries, keys_of
from dueq.core.ports.persistence import IndexScanned, ScanIndex
from dueq.limits import HOT_SCAN_ROWS


class IndexWalk:
    """A position in the index.

    Args:
        uid: the partition.
        class_bytes: how long a class is in the topic's order; 0: there is only one class.
        from_ms, until_ms: the instants (inclusive) at which messages wait that are looked for; until_ms None: no end.
        dead: look for dead messages instead, which have one class: these are the instants of their deaths.

    Attributes:
        ended: nothing is left to read.
    """

    def __init__(
        self, uid: int, class_bytes: int, from_ms: int, until_ms: int | None = None, dead: bool = False
    ) -> None:
        self._dead = dead
        self._uid, self._from_ms, self._until_ms = uid, from_ms, until_ms
        self._of = b"" if dead else bytes(class_bytes)
        self._after = from_ms, -1
        self.ended = False

    @property
    def place(self) -> tuple[int, int, bytes]:
        """The place behind which it goes on: (wait_at, key) in a class."""
        return *self._after, self._of

    def go_to(self, wait_at: int, key: int, of: bytes) -> None:
        """Go on where an earlier walk was."""
        self._after, self._of = (wait_at, key), of

    def request(self, token: int) -> ScanIndex:
        """Return the order to read the next page."""
        return ScanIndex(token, self._uid, *self._after, HOT_SCAN_ROWS, of=self._of, dead=self._dead)

    def take(self, page: IndexScanned) -> Entries:
        """Go on behind a page; returns its entries, those behind `until_ms` included."""
        entries = page.entries
        if len(entries):
            at = entries["died_at" if self._dead else "wait_at"][-1]
            self._after = int(at), int(keys_of(entries[-1:])[0])
        beyond = self._until_ms is not None and self._after[0] > self._until_ms
        if page.exhausted or beyond:
            self.ended = page.following is None
            self._of = page.following or self._of
            self._after = self._from_ms, -1
        return entries
