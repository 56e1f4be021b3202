"""Lists of waiting or dead messages, page by page, without anything kept in between.

The cursor says behind which message the next page begins: (partition, its place). Each page is a look
of its own at the mesh, so any gateway can answer it, at any time.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final, NamedTuple, cast

from dueq import AsyncClient, BrowsePage, ScheduledMessage, limits
from dueq.gateway.problems import Unfit


class Place(NamedTuple):
    """Behind which message a page begins; without an id at the beginning of a partition."""

    partition: int
    at: int
    id: str
    order: int = 0

    def text(self) -> str:
        """The place as a cursor."""
        return (
            urlsafe_b64encode(f"{self.partition}:{self.at}:{self.id}:{self.order}".encode())
            .decode()
            .rstrip("=")
        )

    @classmethod
    def of(cls, text: str) -> Place:
        """Read a cursor.

        Raises:
            Unfit: it is none.
        """
        try:
            partition, at, message_id, of = (
                urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode().split(":")
            )
            return cls(int(partition), int(at), message_id, int(of))
        except ValueError:
            raise Unfit(
                f"query.cursor is what the page before said, not {text!r:.80}", text, None, "query.cursor"
            ) from None


BEHIND_ALL: Final = Place(limits.PARTITIONS_MAX, 0, "")
"""Behind the last message of the last partition."""


@dataclass(slots=True)
class Page:
    """Some messages, and the cursor of the next page; None: there is none."""

    messages: list[ScheduledMessage] = field(default_factory=list)
    cursor: str | None = None

    @property
    def size(self) -> int:
        """How long its payloads are, or would be at most if it were read with them."""
        sizes = [each.size for each in self.messages]
        return min(sum(sizes), max(limits.GATEWAY_LIST_BYTES_MAX, *sizes, 0))


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which messages of a topic are listed.

    Attributes:
        topic: its name.
        state: waiting, or dead.
        begin_ms, end_ms: those that wait until an instant in between, or died then; None: no bound.
        key_prefix: those whose key begins like this.
        payloads: with their payloads.
        limit: of a page, which may have fewer: it holds GATEWAY_LIST_BYTES_MAX of payloads.
    """

    topic: str
    state: str
    begin_ms: int | None
    end_ms: int | None
    key_prefix: str
    payloads: bool
    limit: int

    async def page(self, client: AsyncClient, cursor: str) -> Page:
        """Read one page."""
        place = Place.of(cursor) if cursor else Place(0, 0, "")
        partitions = (await client.describe(self.topic)).partitions
        page, looked_at, held = Page(), 0, 0
        for partition in range(place.partition, partitions):
            if partition != place.partition:
                place = Place(partition, 0, "")
            async with aclosing(self._messages(client, place)) as messages:
                async for message in messages:
                    wanted = message.key.startswith(self.key_prefix)
                    held += len(message.payload or b"") if wanted else 0
                    full = len(page.messages) == self.limit or (
                        wanted and page.messages and held > limits.GATEWAY_LIST_BYTES_MAX
                    )
                    if full or looked_at == limits.GATEWAY_LOOKED_AT_MAX:
                        page.cursor = place.text()
                        return page
                    place, looked_at = Place(partition, *message.place), looked_at + 1
                    if wanted:
                        page.messages.append(message)
        return page

    async def _messages(self, client: AsyncClient, place: Place) -> AsyncGenerator[ScheduledMessage, None]:
        """The messages of one partition behind a place."""
        pages = client.browse_pages(
            self.topic, place.partition, start=self.begin_ms, end=self.end_ms, payloads=self.payloads,
            after=place[1:] if place.id else None,
            limit=None if self.key_prefix else self.limit + 1, state=self.state,
        )  # fmt: skip
        async with aclosing(cast("AsyncGenerator[BrowsePage, None]", pages)) as found:
            async for each in found:
                for message in each.messages():
                    yield message
