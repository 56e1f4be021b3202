"""One changing request: its columns, its number, and what is known about whether it took effect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from dueq.client.core.context import Timer
from dueq.client.core.parts import Part
from dueq.errors import DueqError
from dueq_codecs.digest import request_digest
from dueq_codecs.messages import ChangeRequest

if TYPE_CHECKING:
    from dueq.client.core.lanes import Lane

Body = bytes | memoryview
Scalar = TypeVar("Scalar", bound=np.generic)

_COLUMNS = ("first", "target_sequence", "target_row", "token", "due", "size", "crc", "upload", "amount_ms")


class Change:
    """A request and its attempts; it keeps its sequence, digest and rows for ever.

    Attributes:
        lane: (client id, partition) that numbers it.
        parts: whose rows it holds, in order; `waiting` those that still want the answer.
        request: what is sent, each time with the same request id.
        bodies: the inline payloads of an INSERT.
        link: number of the link that it went by last; 0 while it waits to be sent.
        to: broker id of the leader that it was meant for.
        attempts: how often it was sent.
        first_us: when it was first sent (monotonic), None before.
        uncertain: an attempt may have been appended: only an answer from a committed record settles it.
        refusal: the last definite refusal.
    """

    __slots__ = (
        "attempts",
        "bodies",
        "bytes",
        "first_us",
        "lane",
        "link",
        "parts",
        "refusal",
        "request",
        "timer",
        "to",
        "uncertain",
        "waiting",
    )

    def __init__(self, lane: Lane, parts: Sequence[Part], request_id: int, sequence: int) -> None:
        head = parts[0]
        self.lane = lane
        self.parts = parts
        self.waiting = dict.fromkeys(parts)
        self.request = ChangeRequest(
            request_id, head.kind, head.topic, head.uid, head.client_id, sequence, 0, **_columns(parts)
        )
        self.request.digest = request_digest(self.request)
        self.bodies = _bodies(parts)
        self.bytes = sum(map(len, self.bodies))
        self.link = 0
        self.to = ""
        self.attempts = 0
        self.first_us: int | None = None
        self.uncertain = False
        self.refusal: DueqError | None = None
        self.timer: Timer | None = None
        offset = 0
        for part in parts:
            part.change, part.offset = self, offset
            offset += part.rows

    @property
    def sequence(self) -> int:
        """Its number in its lane."""
        return self.request.sequence

    def set_uploads(self) -> None:
        """Take over the parts' upload numbers (they are not part of the digest)."""
        self.request.upload = _joined([part.upload for part in self.parts])

    def set_timer(self, timer: Timer | None) -> None:
        """Have at most one timer."""
        if self.timer is not None:
            self.timer.cancel()
        self.timer = timer


def _columns(parts: Sequence[Part]) -> dict[str, Any]:
    if len(parts) == 1:
        return {name: getattr(parts[0], name) for name in _COLUMNS}
    return {name: _joined([getattr(part, name) for part in parts]) for name in _COLUMNS}


def _joined(columns: Sequence[npt.NDArray[Scalar]]) -> npt.NDArray[Scalar]:
    return columns[0] if len(columns) == 1 else np.concatenate(columns)


def _bodies(parts: Sequence[Part]) -> list[Body]:
    pieces = [piece for part in parts for piece in part.inline]
    if not pieces:
        return []
    return pieces if len(pieces) == 1 else [b"".join(pieces)]
