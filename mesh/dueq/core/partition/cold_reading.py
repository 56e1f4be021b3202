"""Reads of what applying the log needs: entries and unique keys that are only on the disk, and keys to be swept."""

from __future__ import annotations

from collections.abc import Callable

from dueq import limits
from dueq.core.ports.persistence import (
    EntriesRead,
    ExpiredRead,
    NamesRead,
    ReadEntries,
    ReadExpired,
    ReadNames,
    StoreRead,
)
from dueq.core.state.name_holds import NamesWanted
from dueq.core.state.timeline import Timeline
from dueq.core.turn.context import Context
from dueq.instant import Now
from dueq_codecs.records import U16, U64


class ColdReading:
    """The reads of one replica.

    Args:
        uid: its partition.
        current: returns its timeline, and a number that changes when what was asked for counts no more.
        was_read: called when its timeline has taken an answer.
    """

    def __init__(
        self,
        ctx: Context,
        uid: int,
        current: Callable[[], tuple[int, Timeline]],
        was_read: Callable[[Now], None],
    ) -> None:
        self._ctx, self._uid, self._current, self._was_read = ctx, uid, current, was_read

    def entries(self, first: U64, sequence: U64, row: U16) -> None:
        """Read entries by their ids."""

        def take(answer: object, timeline: Timeline) -> None:
            assert isinstance(answer, EntriesRead)
            timeline.entries_read(answer.entries, (first, sequence, row))

        self._read(lambda token: ReadEntries(token, self._uid, first, sequence, row), take)

    def names(self, wanted: NamesWanted) -> None:
        """Read unique keys, with the entries of the messages that bear them."""

        def take(answer: object, timeline: Timeline) -> None:
            assert isinstance(answer, NamesRead)
            timeline.names_read(wanted, answer.found, answer.entries)

        self._read(lambda token: ReadNames(token, self._uid, wanted.hashes), take)

    def expired(self, number: int, before: int) -> None:
        """Read keys that are remembered no more, to be deleted."""

        def take(answer: object, timeline: Timeline) -> None:
            assert isinstance(answer, ExpiredRead)
            timeline.swept(number, answer.expired, answer.following)

        self._read(lambda token: ReadExpired(token, self._uid, before, limits.SWEEP_ROWS), take)

    def _read(self, request: Callable[[int], StoreRead], take: Callable[[object, Timeline], None]) -> None:
        asked, _ = self._current()

        def read(answer: object, now: Now) -> None:
            number, timeline = self._current()
            if number == asked:
                take(answer, timeline)
                self._was_read(now)

        self._ctx.read(request, read)
