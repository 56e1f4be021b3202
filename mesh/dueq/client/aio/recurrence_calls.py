"""The part of a client that works with recurrences (see `recurrences`)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping

from dueq.client import arguments, recurrences
from dueq.client.aio.connection import AsyncConnection
from dueq.client.arguments import Payload
from dueq.client.recurrences import Instant, Missed, RecurrenceInfo
from dueq.client.times import Seconds


class AsyncRecurrenceCalls:
    """A client's calls that concern recurrences.

    All raise `Unavailable` subclasses and `OutcomeUnknown` as producers do.
    """

    connection: AsyncConnection

    async def create_recurrence(
        self,
        topic: str,
        name: str,
        *,
        cron: str | None = None,
        every: Seconds | None = None,
        at: Iterable[Instant] | None = None,
        zone: str | None = None,
        payload: Payload = b"",
        start: Instant | None = None,
        end: Instant | None = None,
        jitter: Seconds | None = None,
        missed: Missed = "last",
        overlap: str = "allow",
        headers: Mapping[str, str] | None = None,
        rank: int | None = None,
        group: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Create a recurrence: from now on the mesh makes one message for each of its ticks, due at that instant.

        Give one of `cron`, `every` and `at`.

        Args:
            topic: an existing topic.
            name: of the recurrence, unique in its topic, 1–255 bytes of UTF-8.
            cron: a cron line of five fields, or of six with the seconds first.
            every: a period, 1 second to 366 days, from `start` on; without one, from now on.
            at: up to 1,000 instants, Unix ms or aware datetimes.
            zone: the time zone of the cron line, by its IANA name; None: UTC.
            payload: of each message, at most 64 KiB; or a shared body (`Producer.body`).
            start, end: no tick before the first, none at or after the second; Unix ms or aware datetimes.
            jitter: a message is due up to this long after its tick: seconds, or a timedelta. It is shorter than any
                period.
            missed: ticks that could not fire for 60 seconds: make up for "none", the "last", or "all" (at most the
                latest 100); or for this many of the latest.
            overlap: "skip" a tick while a message of the recurrence waits or is held by a consumer; or "allow" it.
            headers: of each message, as for `Producer.schedule`.
            rank, group: of each message, as for `Producer.schedule`. In a fair topic of several partitions the group
                says where the recurrence lives, and names are unique there.
            timeout: seconds.

        Raises:
            InvalidRequest: a value is outside its limits, or the recurrence never fires.
            PayloadTooLarge
            RecurrenceExists: the topic has a recurrence of this name.
            TooManyRecurrences: there is no room for it.
            TopicNotFound
        """
        document = recurrences.said(
            cron, every, at, zone, start, end, jitter, missed, overlap, headers, rank, group
        )
        clock = await self.connection.clock(True, timeout)
        terms = recurrences.checked(document, clock() // 1000)
        document = {"action": "create", **terms.document()}
        await self.connection.run(recurrences.act(topic, name, document, payload), timeout)

    async def update_recurrence(
        self,
        topic: str,
        name: str,
        *,
        cron: str | None = None,
        every: Seconds | None = None,
        at: Iterable[Instant] | None = None,
        zone: str | None = None,
        payload: Payload | None = None,
        start: Instant | None = None,
        end: Instant | None = None,
        jitter: Seconds | None = None,
        missed: Missed | None = None,
        overlap: str | None = None,
        headers: Mapping[str, str] | None = None,
        rank: int | None = None,
        group: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Change a recurrence; what is None stays as it is.

        One of `cron`, `every` and `at` replaces all three, and the zone. A `start`, `end` or `jitter` of 0 takes it
        away, and so do headers that are empty, a rank of 0 and an empty group. Messages whose instants are to come are
        made anew. From when this returns no message of before is newly delivered whose instant was to come.

        Args:
            topic: its topic.
            name: of the recurrence.
            cron, every, at, zone, payload, start, end, jitter, missed, overlap: as in `create_recurrence`.
            headers, rank, group: as in `create_recurrence`.
            timeout: seconds.

        Raises:
            InvalidRequest: nothing is named, or a value is outside its limits, or does not fit what stays.
            PayloadTooLarge
            RecurrenceNotFound: the topic has no recurrence of this name.
            TooManyRecurrences: there is no room for it any more.
            TopicNotFound
        """
        document = recurrences.said(
            cron, every, at, zone, start, end, jitter, missed, overlap, headers, rank, group
        )
        document = {"action": "update", **document}
        await self.connection.run(recurrences.act(topic, name, document, payload), timeout)

    async def pause_recurrence(self, topic: str, name: str, *, timeout: float | None = None) -> None:
        """Let a recurrence wait for no tick until `resume_recurrence`; ticks in between never come.

        From when this returns no message of it is newly delivered whose instant was to come.

        Raises:
            RecurrenceNotFound: the topic has no recurrence of this name.
        """
        await self.connection.run(recurrences.act(topic, name, {"action": "pause"}), timeout)

    async def resume_recurrence(self, topic: str, name: str, *, timeout: float | None = None) -> None:
        """Let a recurrence wait for its next tick again.

        Raises:
            RecurrenceNotFound: the topic has no recurrence of this name.
        """
        await self.connection.run(recurrences.act(topic, name, {"action": "resume"}), timeout)

    async def delete_recurrence(self, topic: str, name: str, *, timeout: float | None = None) -> None:
        """Delete a recurrence. Messages of it whose instants have come stay.

        Raises:
            RecurrenceNotFound: the topic has no recurrence of this name.
        """
        await self.connection.run(recurrences.act(topic, name, {"action": "delete"}), timeout)

    async def trigger_recurrence(self, topic: str, name: str, *, timeout: float | None = None) -> str:
        """Have a recurrence make one message at once, paused or not; no tick is used for it.

        Returns:
            The message's id.

        Raises:
            RecurrenceNotFound: the topic has no recurrence of this name.
        """
        return await self.connection.run(recurrences.trigger(topic, name), timeout)

    async def recurrence(
        self, topic: str, name: str, *, timeout: float | None = None
    ) -> RecurrenceInfo | None:
        """Return a recurrence with its payload; None: the topic has none of this name."""
        return await self.connection.run(recurrences.look(topic, name), timeout)

    def recurrences(self, topic: str, *, timeout: float | None = None) -> AsyncIterator[RecurrenceInfo]:
        """Yield the recurrences of a topic by name, without their payloads; some hundreds are read at a time.

        Args:
            topic: name.
            timeout: seconds for each request.
        """
        return self._recurrences(arguments.topic_name(topic), timeout)

    async def _recurrences(self, topic: str, timeout: float | None) -> AsyncIterator[RecurrenceInfo]:
        after: str | None = ""
        while after is not None:
            page = await self.connection.run(recurrences.page(topic, after), timeout)
            after = page.after or None
            for found in page.recurrences:
                yield found
