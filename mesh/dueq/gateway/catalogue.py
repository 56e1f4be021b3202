"""All topics with their settings, listed again only when a broker says that they have changed."""

from __future__ import annotations

from collections.abc import Mapping

from dueq import AsyncClient, TopicInfo
from dueq.client import calls
from dueq.client.reading import Mark


class Catalogue:
    """The last listing.

    Attributes:
        infos: the topics, by name.
        brokers: that should hold replicas.
    """

    def __init__(self) -> None:
        self.infos: list[TopicInfo] = []
        self.brokers: set[str] = set()
        self._marks: dict[str, Mark] = {}

    async def topics(self, client: AsyncClient) -> list[TopicInfo]:
        """Return them as the brokers know them, which is asked in a few bytes."""
        marks = await client.connection.run(calls.catalogues(), None)
        await self.refresh(client, marks, None)
        return self.infos

    async def refresh(self, client: AsyncClient, marks: Mapping[str, Mark], timeout_s: float | None) -> None:
        """Have them as they were when the brokers told their marks, or newer."""
        if marks.items() <= self._marks.items():
            return
        self.infos = await client.topics(timeout=timeout_s)
        self.brokers = {name for info in self.infos for part in info.placement for name in part.replicas}
        self._marks |= marks
