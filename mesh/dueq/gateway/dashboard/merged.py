"""Messages of a topic as a person wants them: the soonest of all partitions first, page by page, nothing kept.

Each partition is read a little way. Messages at or before the place that all partitions have reached can be shown. The
cursor has the place of each partition, so a page left open costs nothing, and any gateway can show the next one.
"""

from __future__ import annotations

import asyncio
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, cast

from dueq import AsyncClient, BrowsePage, ScheduledMessage, TopicInfo, limits
from dueq.gateway.problems import Unfit

Order = tuple[int, ...]
Place = tuple[int, str, int]
"""`ScheduledMessage.place` of the message behind which to go on; no id: at the beginning."""

_BEGIN: Place = (0, "", 0)


@dataclass(slots=True)
class _Cursor:
    """Where the next page begins.

    Attributes:
        first: the first partition of those that are read together.
        places: of each of them; None: it is read to its end.
    """

    first: int = 0
    places: list[Place | None] = field(default_factory=list)

    def text(self) -> str:
        return urlsafe_b64encode(json.dumps([self.first, self.places]).encode()).decode()

    @classmethod
    def of(cls, text: str) -> _Cursor:
        try:
            first, places = json.loads(urlsafe_b64decode(text))
            made = [
                None if place is None else (int(place[0]), str(place[1]), int(place[2])) for place in places
            ]
            return cls(int(first), made)
        except (ValueError, TypeError, LookupError, OverflowError, RecursionError):
            raise Unfit(
                f"query.cursor is what the page before said, not {text!r:.80}", text, None, "query.cursor"
            ) from None


@dataclass(slots=True)
class _Some:
    """The rows read of one partition.

    Attributes:
        rows: that are wanted, with their orders.
        frontier: order of the last that was looked at.
        place: of it.
        done: there are no more.
    """

    rows: list[tuple[Order, Place, ScheduledMessage]]
    frontier: Order
    place: Place
    done: bool


@dataclass(frozen=True, slots=True)
class Merged:
    """Which messages of a topic a page shows.

    Attributes:
        topic: its name.
        state: waiting or dead.
        begin_ms, end_ms: those that wait until an instant in between, or died then; None: no bound.
        key_prefix: those whose key begins like this.
        limit: of a page.
    """

    topic: str
    state: str
    begin_ms: int | None
    end_ms: int | None
    key_prefix: str
    limit: int

    async def page(self, client: AsyncClient, cursor: str) -> tuple[list[ScheduledMessage], str | None]:
        """Return some messages, and the cursor of the next page; None: there is none."""
        info = await client.describe(self.topic)
        if info.kind != "fair" or self.state != "waiting":
            return await self._part(client, info, cursor, limits.DASHBOARD_MERGED_MAX, self.limit)
        # Turns of groups are of one partition each, and not to be merged: one partition follows the other.
        found: list[ScheduledMessage] = []
        following: str | None = cursor
        for _ in range(limits.DASHBOARD_MERGED_MAX):
            some, following = await self._part(client, info, following or "", 1, self.limit - len(found))
            found += some
            if following is None or len(found) == self.limit:
                break
        return found, following

    async def _part(
        self, client: AsyncClient, info: TopicInfo, cursor: str, width: int, limit: int
    ) -> tuple[list[ScheduledMessage], str | None]:
        """Return messages of this many partitions, and where to go on."""
        at = _Cursor.of(cursor) if cursor else _Cursor()
        width = min(width, info.partitions - at.first)
        if width <= 0:
            return [], None
        # Partitions may have been added since the page before.
        places: list[Place | None] = [*at.places, *[_BEGIN] * width][:width]
        found = await asyncio.gather(
            *(
                self._some(client, at.first + index, place, info.kind)
                for index, place in enumerate(places)
                if place is not None
            )
        )
        read = iter(found)
        some = [None if place is None else next(read) for place in places]
        shown, after = _merged(some, places, limit)
        if any(place is not None for place in after):
            return shown, _Cursor(at.first, after).text()
        beyond = at.first + width
        return shown, _Cursor(beyond).text() if beyond < info.partitions else None

    async def _some(self, client: AsyncClient, partition: int, place: Place, kind: str) -> _Some:
        most = limits.DASHBOARD_LOOKED_AT_MAX if self.key_prefix else self.limit
        pages = client.browse_pages(
            self.topic, partition, start=self.begin_ms, end=self.end_ms, after=place if place[1] else None, limit=most,
            state=self.state,
        )  # fmt: skip
        async with aclosing(cast("Any", pages)) as walk:
            page: BrowsePage | None = await anext(walk, None)
        if page is None:  # nothing can be in the interval
            return _Some([], (), place, done=True)
        rows: list[tuple[Order, Place, ScheduledMessage]] = []
        order: Order = ()
        for message in page.messages():
            at = message.died_at if self.state == "dead" else message.waits_until
            order = (message.rank, at) if kind == "priority" and self.state == "waiting" else (at,)
            place = message.place
            if message.key.startswith(self.key_prefix):
                rows.append((order, place, message))
        return _Some(rows, order, place, done=page.last)


def _merged(
    some: list[_Some | None], places: list[Place | None], limit: int
) -> tuple[list[ScheduledMessage], list[Place | None]]:
    """Return the rows that can be shown by now, and the places after them."""
    unfinished = [each.frontier for each in some if each is not None and not each.done]
    bound = min(unfinished, default=None)
    ready = sorted(
        (order, index, row, place, message)
        for index, each in enumerate(some)
        if each is not None
        for row, (order, place, message) in enumerate(each.rows)
        if bound is None or order <= bound
    )[:limit]
    taken = [0] * len(some)
    after: list[Place | None] = list(places)
    for _, index, row, place, _ in ready:
        taken[index], after[index] = row + 1, place
    for index, each in enumerate(some):
        if each is not None and taken[index] == len(each.rows):
            after[index] = None if each.done else each.place
    return [message for *_, message in ready], after
