"""The status document, made a few partitions at a time.

With ten thousand partitions it takes half a second, during which nothing would be delivered. So each turn makes a part
of it, and the loop reads its input in between. The parts of later turns are newer by a few milliseconds than those
before: status may be stale anyhow.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dueq import limits
from dueq.core.ports.events import Route
from dueq.core.turn.context import Context
from dueq.instant import Now
from dueq_codecs.messages import Code, Reply

if TYPE_CHECKING:
    from dueq.core.front.status import Status
    from dueq.core.partition.partition import Partition

AT_ONCE = 200
"""Partitions per turn: a few milliseconds."""
_BYTES_MAX = limits.FRAME_BYTES_MAX - (64 << 10)
_WAITING_MAX = 64


@dataclass(slots=True)
class _Overview:
    """One document that is being made.

    Attributes:
        asked: whose question it answers.
        head: the JSON of everything but the partitions.
        uids: partitions that are still missing, the next one last: those led here come first.
        parts: the JSON of those that are done.
        size: characters of all parts.
        left_out: partitions that did not fit into a frame.
    """

    asked: list[tuple[Route, int]]
    head: str
    uids: list[int]
    parts: list[str] = field(default_factory=list)
    size: int = 0
    left_out: int = 0


class Overviews:
    """The requests for the status document, and the document that is being made."""

    def __init__(self, ctx: Context, status: Status, partitions: dict[int, Partition]) -> None:
        self._ctx, self._status, self._partitions = ctx, status, partitions
        self._waiting: list[tuple[Route, int, str]] = []
        self._making: _Overview | None = None

    def ask(self, route: Route, request_id: int, topic: str = "") -> None:
        """Answer with the status of this broker, or of one topic here, made after the question came."""
        if len(self._waiting) >= _WAITING_MAX:
            text = f"{len(self._waiting)} questions for the status wait already"
            self._ctx.reply(route, Reply(request_id, Code.BUSY, text, retry_after_ms=1000))
            return
        self._waiting.append((route, request_id, topic))

    def work(self, now: Now) -> None:
        """Do this turn's share; asks for another turn at once while something is left."""
        if self._making is None:
            if not self._waiting:
                return
            self._making = self._begin(now)
        overview = self._making
        some = overview.uids[-AT_ONCE:]
        del overview.uids[-AT_ONCE:]
        for uid in reversed(some):
            partition = self._partitions.get(uid)
            if partition is not None:
                self._add(overview, json.dumps(self._status.partition(partition, now), separators=(",", ":")))
        if not overview.uids:
            self._answer(overview)
            self._making = None
        self._ctx.again = self._ctx.again or self._making is not None or bool(self._waiting)

    def _begin(self, now: Now) -> _Overview:
        topic = self._waiting[0][2]
        asked = [(route, request_id) for route, request_id, about in self._waiting if about == topic]
        self._waiting = [each for each in self._waiting if each[2] != topic]
        wanted = self._status.uids_of(topic) if topic else self._partitions
        uids = sorted(wanted, key=lambda uid: (self._partitions[uid].replica.is_leader, -uid))
        head = json.dumps(self._status.head(now, topic), separators=(",", ":"))
        return _Overview(asked, head, uids, size=len(head))

    @staticmethod
    def _add(overview: _Overview, part: str) -> None:
        """Partitions that are led here come first: another broker tells of those that are left out."""
        if overview.size + len(part) + 1 > _BYTES_MAX:
            overview.left_out += 1
            return
        overview.parts.append(part)
        overview.size += len(part) + 1

    def _answer(self, overview: _Overview) -> None:
        left_out = f',"partitions_left_out":{overview.left_out}' if overview.left_out else ""
        document = f'{overview.head[:-1]}{left_out},"partitions":[{",".join(overview.parts)}]}}'
        for route, request_id in overview.asked:
            self._ctx.reply(route, Reply(request_id, Code.OK, document=document))
