"""Reads for one replica's timeline: entries and unique keys that are only on the disk, the index behind the hot
window, and keys to be swept.
"""

from __future__ import annotations

from collections.abc import Callable

from dueq import limits
from dueq.core.ports.entry import Entries
from dueq.core.ports.persistence import (
    EntriesRead,
    ExpiredRead,
    HashesRead,
    IndexScanned,
    NamesRead,
    ReadEntries,
    ReadExpired,
    ReadHashes,
    ReadNames,
    ScanIndex,
    StoreRead,
)
from dueq.core.state.name_holds import NamesWanted
from dueq.core.state.residency import ScanWanted
from dueq.core.state.timeline import Timeline
from dueq.core.turn.context import Context
from dueq.instant import Now
from dueq_codecs.records import U16, U64


class ColdReading:
    """The reads of one replica.

    Args:
        timeline: what takes the answers.
        was_read: called when it has taken one that a record or a look-up may wait for.
        became_hot: called with what a scan has brought into the hot window.
    """

    def __init__(
        self,
        ctx: Context,
        timeline: Timeline,
        was_read: Callable[[Now], None],
        became_hot: Callable[[Entries], None],
    ) -> None:
        self._ctx, self._uid, self._was_read, self._became_hot = ctx, timeline.uid, was_read, became_hot
        self._life = 0
        self.begin(timeline)

    def begin(self, timeline: Timeline) -> None:
        """Go on with another timeline: answers for the last one count no more."""
        self.void()
        self._timeline = timeline

    def void(self) -> None:
        """Reads that are under way count no more: the replica is wiped, or its topic was deleted."""
        self._life += 1

    def entries(self, first: U64, sequence: U64, row: U16) -> None:
        """Read entries by their ids."""

        def take(answer: object) -> None:
            assert isinstance(answer, EntriesRead)
            self._timeline.entries_read(answer.entries, (first, sequence, row))

        self._read(lambda token: ReadEntries(token, self._uid, first, sequence, row), take)

    def names(self, wanted: NamesWanted) -> None:
        """Read unique keys, with the entries of the messages that bear them."""

        def take(answer: object) -> None:
            assert isinstance(answer, NamesRead)
            self._timeline.names_read(wanted, answer.found, answer.entries)

        self._read(lambda token: ReadNames(token, self._uid, wanted.hashes), take)

    def expired(self, number: int, before: int) -> None:
        """Read keys that are remembered no more, to be deleted."""

        def take(answer: object) -> None:
            assert isinstance(answer, ExpiredRead)
            self._timeline.swept(number, answer.expired, answer.following, answer.stale)

        self._read(lambda token: ReadExpired(token, self._uid, before, limits.SWEEP_ROWS), take)

    def hashes(self, after: bytes) -> None:
        """Read which unique keys the disk has."""

        def take(answer: object) -> None:
            assert isinstance(answer, HashesRead)
            self._timeline.hashes_read(answer.hashes, answer.ended)

        self._read(lambda token: ReadHashes(token, self._uid, after, limits.KEY_SCAN_ROWS), take)

    def scan(self, wanted: ScanWanted) -> None:
        """Read the index from the end of the hot window on."""
        asked_position = wanted.after_wait_at, wanted.after_key
        life = self._life

        def read(answer: object, _now: Now) -> None:
            assert isinstance(answer, IndexScanned)
            if life == self._life:
                hot = self._timeline.scanned(
                    answer.entries, answer.exhausted, asked_position, answer.looked_to, answer.left_out,
                    answer.following, answer.beyond,
                )  # fmt: skip
                self._became_hot(hot)

        self._ctx.read(lambda token: ScanIndex(token, self._uid, *wanted), read)

    def _read(self, request: Callable[[int], StoreRead], take: Callable[[object], None]) -> None:
        life = self._life

        def read(answer: object, now: Now) -> None:
            if life == self._life:
                take(answer)
                self._was_read(now)

        self._ctx.read(request, read)
