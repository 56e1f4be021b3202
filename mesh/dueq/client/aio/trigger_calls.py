"""The part of a client that has messages delivered at once."""

from __future__ import annotations

from collections.abc import Iterable

from dueq.client import calls, message_state
from dueq.client.aio.connection import AsyncConnection
from dueq.client.calls import Versions
from dueq_codecs.records import Outcome


class AsyncTriggerCalls:
    """A client's calls that have messages delivered at once."""

    connection: AsyncConnection

    async def trigger(
        self, topic: str, message_id: str, *, if_version: int | None = None, timeout: float | None = None
    ) -> None:
        """Have a message delivered now, whatever it waits for; its id stays, and it has a new version.

        It is due from now on, and goes before everything else: no pause and no rate of its topic or group holds it, and
        no group's `max_unacked`. Only a consumer with credit is needed. That counts until it is delivered once: given
        back after that, it waits like any other message.

        Args:
            topic: name.
            message_id: which.
            if_version: only if it has this version.
            timeout: seconds.

        Raises:
            MessageLeased: a consumer has it already.
            MessageNotFound: done, cancelled or expired, or never was; or it is dead (`redrive_where` lets it wait).
            Busy: 4,096 triggered messages of a partition wait for consumers.
            VersionDiffers: it has not `if_version`, but the `present` one.
            InvalidRequest: no message id, or not one of this topic.
            TopicNotFound
        """
        many = calls.trigger(topic, calls.one_id(message_id), if_version)
        await self.connection.follow(message_state.done(many, topic, message_id), timeout)

    async def trigger_many(
        self,
        topic: str,
        message_ids: Iterable[str],
        *,
        if_versions: Versions = None,
        timeout: float | None = None,
    ) -> list[Outcome]:
        """Have many messages delivered now, as `trigger` does.

        Returns:
            One `Outcome` per id: DONE, LEASED (a consumer has it), DEAD, CHANGED (not of its version in `if_versions`),
            NOT_FOUND or UNKNOWN.

        Raises:
            Busy: 4,096 triggered messages of a partition wait for consumers.
            PartialFailure: some of several requests (one per partition) failed.
            InvalidRequest: an id is none, or not one of this topic; nothing was changed.
            TopicNotFound
        """
        return await self.connection.run(calls.trigger(topic, message_ids, if_versions), timeout)
