"""A changing call and its parts.

A call's rows are cut into *parts*, each of which goes to one partition in one request. Small parts of many
calls may share a request; then each owns some rows of it. A call is done when all of its parts are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from dueq import ids
from dueq.errors import DueqError, OutcomeUnknown
from dueq_codecs.messages import ChangeReply
from dueq_codecs.records import NO_U16, NO_U32, NO_U64, U16, U32, U64, Outcome, RecordKind

if TYPE_CHECKING:
    from dueq.client.core.change import Change

Body = bytes | memoryview
_TEXTS_TOGETHER = 8

T = TypeVar("T")

OUTCOMES = tuple(Outcome)


class Part:
    """Some rows of one call (or some settled leases) for one partition.

    Attributes:
        topic, uid, client_id: where it goes and whose deduplication window it uses.
        rows: how many.
        inline: the payloads of an INSERT that travel in the request.
        long: (row, payload) of those that are uploaded first.
        alone: never shares a request.
        change: the request that it is part of, once one was made.
        offset: its first row in that request.
        reply: the answer, once it has succeeded.
        error: why it failed.
        done: called once when `reply` or `error` is there.
    """

    __slots__ = (
        "alone",
        "amount_ms",
        "bytes",
        "change",
        "client_id",
        "crc",
        "done",
        "due",
        "error",
        "first",
        "inline",
        "kind",
        "long",
        "offset",
        "reply",
        "rows",
        "size",
        "target_row",
        "target_sequence",
        "token",
        "topic",
        "uid",
        "upload",
    )

    def __init__(
        self,
        kind: RecordKind,
        topic: str,
        uid: int,
        client_id: bytes,
        rows: int,
        done: Callable[[Part], None],
        *,
        first: U64 = NO_U64,
        target_sequence: U64 = NO_U64,
        target_row: U16 = NO_U16,
        token: U64 = NO_U64,
        due: U64 = NO_U64,
        size: U32 = NO_U32,
        crc: U32 = NO_U32,
        amount_ms: U64 = NO_U64,
        inline: Sequence[Body] = (),
        long: Sequence[tuple[int, Body]] = (),
    ) -> None:
        self.kind, self.topic, self.uid, self.client_id = kind, topic, uid, client_id
        self.rows, self.done = rows, done
        self.first, self.target_sequence, self.target_row, self.token = (
            first,
            target_sequence,
            target_row,
            token,
        )
        self.due, self.size, self.crc, self.amount_ms = due, size, crc, amount_ms
        self.inline, self.long = inline, long
        self.bytes = sum(map(len, inline))
        self.upload: U64 = NO_U64
        self.alone = bool(long)
        self.change: Change | None = None
        self.offset = 0
        self.reply: ChangeReply | None = None
        self.error: DueqError | None = None

    @property
    def resolved(self) -> bool:
        """There is an answer."""
        return self.reply is not None or self.error is not None

    def ids(self) -> list[str]:
        """The texts of an INSERT's new ids (`messages.ChangeReply` says how they follow)."""
        reply = self.reply
        assert reply is not None
        row = reply.row + self.offset
        first = np.maximum(self.due, np.uint64(reply.stamp))
        if self.rows < _TEXTS_TOGETHER:
            return [
                ids.to_text(ids.MessageId(instant, self.uid, reply.sequence, row + i))
                for i, instant in enumerate(first.tolist())
            ]
        sequence = np.full(self.rows, reply.sequence, np.uint64)
        return ids.texts(first, self.uid, sequence, np.arange(row, row + self.rows, dtype=np.uint16))

    def outcomes(self) -> list[Outcome]:
        """What became of each row of any other kind."""
        assert self.reply is not None
        rows = self.reply.outcomes[self.offset : self.offset + self.rows].tolist()
        return [OUTCOMES[value] if value < len(OUTCOMES) else Outcome.UNKNOWN for value in rows]


class PartsCall:
    """The result of an Insert or Alter call, and what a Repeat of it needs.

    Attributes:
        parts: in the order of the call's rows, or with `places`: the call's row of each part's rows.
    """

    __slots__ = ("call", "parts", "places", "rows", "unresolved")

    def __init__(self, call: int, rows: int) -> None:
        self.call = call
        self.rows = rows
        self.parts: list[Part] = []
        self.places: list[npt.NDArray[np.intp]] | None = None
        self.unresolved = 0

    @property
    def failures(self) -> list[DueqError]:
        """Why parts failed, in order."""
        return [part.error for part in self.parts if part.error is not None]

    def ids(self) -> list[str]:
        """One id per row of an Insert that succeeded."""
        if len(self.parts) == 1:
            return self.parts[0].ids()
        return [text for part in self.parts for text in part.ids()]

    def outcomes(self) -> list[Outcome]:
        """One Outcome per row of an Alter that succeeded."""
        if len(self.parts) == 1 and self.places is None:
            return self.parts[0].outcomes()
        return self._spread([part.outcomes() for part in self.parts])

    def mixed(self) -> list[str | Outcome | DueqError]:
        """One entry per row: its id or Outcome where it succeeded, the error where it did not."""
        columns: list[list[str | Outcome | DueqError]] = []
        for part in self.parts:
            if part.error is not None:
                columns.append([part.error] * part.rows)
            elif part.kind == RecordKind.INSERT:
                columns.append([*part.ids()])
            else:
                columns.append([*part.outcomes()])
        return self._spread(columns)

    def _spread(self, columns: list[list[T]]) -> list[T]:
        if self.places is None:
            return [value for column in columns for value in column]
        rows: dict[int, T] = {}
        for places, column in zip(self.places, columns, strict=True):
            rows.update(zip(places.tolist(), column, strict=True))
        return [rows[row] for row in range(self.rows)]

    def verdict(self) -> DueqError | None:
        """The one error of the whole call, or None when it succeeded."""
        failures = self.failures
        if not failures:
            return None
        for error in failures:
            if isinstance(error, OutcomeUnknown):
                return error
        return failures[0]
