"""A message on its way from the session machine to the user, and what came with it in one push."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

import numpy as np

from dueq import ids
from dueq.client.core.ports.extending import Extension, Place
from dueq_codecs.messages import Push
from dueq_codecs.records import Outcome, RecordKind

NO_HEADERS: Final[Mapping[str, str]] = {}
_TEXTS_TOGETHER = 8
"""From this many rows on, the ids of a push are made all at once, as columns."""


class Pushed:
    """What most consumers never ask for, of one push: its ids are made when the first is wanted."""

    __slots__ = ("_push", "_texts")

    def __init__(self, push: Push) -> None:
        self._push = push
        self._texts: dict[int, str] = {}

    def text(self, index: int) -> str:
        """Return the id of the push's row `index`."""
        text = self._texts.get(index)
        if text is None:
            self._spell(index)
            text = self._texts[index]
        return text

    def rank(self, index: int) -> int:
        """Return the rank of the message in the push's row `index`."""
        column = self._push.rank
        return int(column[index]) if len(column) else 0

    def group(self, index: int) -> str:
        """Return the group of the message in the push's row `index`; "" when it has none."""
        push = self._push
        return push.groups[int(push.group[index])] if len(push.group) else ""

    def headers(self, index: int) -> dict[str, str] | None:
        """Return the headers that a nack has given the message in the push's row `index`; None: it has its own."""
        push = self._push
        text = push.headings[int(push.heading[index])] if len(push.heading) else ""
        return json.loads(text) if text else None

    def version(self, index: int) -> int:
        """Return the version of the message in the push's row `index`."""
        push = self._push
        return (int(push.version[index]) if len(push.version) else 0) or int(push.sequence[index])

    def expires(self, index: int) -> int:
        """Return when the message in the push's row `index` expires, Unix ms; 0: never."""
        column = self._push.expires
        return int(column[index]) if len(column) else 0

    def _spell(self, index: int) -> None:
        push = self._push
        if len(push.rows) < _TEXTS_TOGETHER:
            columns = (push.first, push.uid, push.sequence, push.row)
            self._texts[index] = ids.to_text(ids.MessageId(*(int(column[index]) for column in columns)))
            return
        uid = int(push.uid[index])
        rows = np.flatnonzero(push.uid == uid)
        texts = ids.texts(push.first[rows], uid, push.sequence[rows], push.row[rows])
        self._texts.update(zip(rows.tolist(), texts, strict=True))


class Delivery:
    """One leased message of one consumer.

    Attributes:
        name: its name in the cluster: uid << 56 | sequence << 16 | row.
        uid: its partition.
        first: from when it first waited, Unix ms (part of the id).
        sequence: log sequence of its insert.
        row: its row in that record.
        due: Unix ms.
        token: the lease.
        attempt: 1 for the first delivery.
        released_at_us: mesh time at which it left the leader, Unix µs.
        deadline_us: monotonic instant at which the lease is over, never later than at the leader.
        extension: what was asked of the lease's end; None: nothing.
        payload: the bytes, checksum checked.
        key: the name that the producer gave it, "" if none.
        headers: of its producer.
        handed: written by the face: the user has it (or it was given back unhandled).
        settling: ACK, NACK or RELEASE is on its way or done; `decided` says which.
        lost: the lease is over.
        outcome: of the settling, once confirmed.
    """

    __slots__ = (
        "_index",
        "_pushed",
        "attempt",
        "deadline_us",
        "decided",
        "due",
        "extension",
        "first",
        "handed",
        "headers",
        "key",
        "lost",
        "name",
        "outcome",
        "payload",
        "released_at_us",
        "row",
        "sequence",
        "settling",
        "token",
        "uid",
    )

    def __init__(
        self,
        name: int,
        uid: int,
        first: int,
        sequence: int,
        row: int,
        due: int,
        token: int,
        attempt: int,
        released_at_us: int,
        deadline_us: int,
        payload: bytes,
        pushed: Pushed,
        index: int,
        key: str = "",
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> None:
        self.name = name
        self.uid = uid
        self.first = first
        self.sequence = sequence
        self.row = row
        self.due = due
        self.token = token
        self.attempt = attempt
        self.released_at_us = released_at_us
        self.deadline_us = deadline_us
        self.payload = payload
        self.key = key
        self.headers = headers
        self.handed = False
        self.settling = False
        self.decided: RecordKind | None = None
        self.lost = False
        self.outcome: Outcome | None = None
        self.extension: Extension | None = None
        self._pushed = pushed
        self._index = index

    @property
    def id(self) -> str:
        """The message id as text."""
        return self._pushed.text(self._index)

    @property
    def rank(self) -> int:
        """The smallest goes first, in a priority topic."""
        return self._pushed.rank(self._index)

    @property
    def group(self) -> str:
        """Whose turn the message took, in a fair topic; "" when it has none."""
        return self._pushed.group(self._index)

    @property
    def version(self) -> int:
        """Log sequence of the record that changed the message last."""
        return self._pushed.version(self._index)

    @property
    def expires(self) -> int:
        """From this instant on (Unix ms) the message is not delivered any more; 0: never."""
        return self._pushed.expires(self._index)

    # -------------------------------------------------------------- extensions (see `extending`)

    def ask(self, until_us: int) -> None:
        """From now on, its lease may end at this instant."""
        if self.extension is None:
            self.extension = Extension(self.deadline_us)
        self.extension.ask(until_us)
        self.deadline_us = self.extension.until_us

    def answered(self, until_us: int, place: Place | None) -> None:
        """The request was applied at this place of the log; None: it was refused, and never will be."""
        assert self.extension is not None
        self.extension.answered(until_us, place)
        self.deadline_us = self.extension.until_us

    def __repr__(self) -> str:
        return f"Delivery({self.id}, due={self.due}, token={self.token}, attempt={self.attempt})"
