# Made of aio/read_calls.py by scripts/generate-faces: write there.
"""The part of a client that looks at messages without touching them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from datetime import datetime
from functools import partial

from dueq import limits
from dueq.client import arguments, calls, message_state, surveys
from dueq.client.browsing import BrowsePage, ScheduledMessage, Walk
from dueq.client.message_state import MessageState
from dueq.client.statistics import StatisticsRow, StatisticsWalk
from dueq.client.sync.connection import Connection
from dueq.client.unique import one_of
from dueq.errors import Broken, SnapshotLost


class ReadCalls:
    """A client's calls that show messages, and counts of deliveries."""

    connection: Connection

    def browse(
        self,
        topic: str,
        *,
        start: int | datetime | None = None,
        end: int | datetime | None = None,
        payloads: bool = False,
        partitions: Iterable[int] | None = None,
        state: str = "waiting",
        timeout: float | None = None,
    ) -> Iterator[ScheduledMessage]:
        """Yield the waiting (or the dead) messages; nothing is leased, moved or counted.

        Partition by partition, each in order of the instants until which its messages wait, and each as it was when
        its first message was asked for. Messages that a consumer holds are not shown, nor those of a job that is not
        decided yet or is being withdrawn.

        Args:
            topic: name.
            start, end: only messages that wait until an instant with start ≤ instant < end: Unix ms or
                aware datetimes.
            payloads: read the payloads too.
            partitions: places in the topic; None: all.
            state: "waiting", or "dead": these come in order of their deaths, which `start` and `end` are about then.
            timeout: seconds for each request (a page of up to 1,024 messages).

        Raises:
            InvalidRequest: an argument is not of these (at once; what follows comes while iterating).
            TopicNotFound
            SnapshotLost: a leader is gone, or 30 seconds passed between two pages, after messages of its partition
                were yielded. The messages so far were right. The rest is not taken from another snapshot,
                since a message moved in between would show twice or never. Browse that partition again.
            Unavailable: the mesh could not answer in time; Busy: too many are browsing.
        """
        make = partial(Walk, topic, start=start, end=end, payloads=payloads, state=state)
        make(0)
        walks = None
        if partitions is not None:
            walks = [make(partition) for partition in arguments.rows_of(partitions, "partitions")]
        return self._browse(topic, make, walks, timeout)

    def browse_pages(
        self,
        topic: str,
        partition: int,
        *,
        start: int | datetime | None = None,
        end: int | datetime | None = None,
        payloads: bool = False,
        after: tuple[int, str] | tuple[int, str, int] | None = None,
        limit: int | None = None,
        state: str = "waiting",
        timeout: float | None = None,
    ) -> Iterator[BrowsePage]:
        """Yield one partition's pages, as columns; all are of one snapshot, and there is at least one, maybe empty.

        There is none where nothing can lie between `start` and `end`.

        Arguments and errors are those of `browse`. With `payloads` a page has about 1 MiB of them, or one message.

        Args:
            topic, partition, start, end, payloads, timeout: as there.
            after: `place` of the message behind which to begin, so that a walk can go on without its snapshot. Its
                (`waits_until`, `id`) will do in a topic of kind "timeline", or while the message waits.
            limit: messages of a page at most, up to 1,024.
            state: as there.
        """
        return self._pages(Walk(topic, partition, start, end, payloads, after, limit, state), timeout)

    def get(
        self,
        topic: str,
        message_id: str | None = None,
        *,
        key: str | None = None,
        group: str | None = None,
        payload: bool = False,
        linearizable: bool = False,
        timeout: float | None = None,
    ) -> MessageState:
        """Return one message as it is now; nothing is leased, moved or counted.

        Args:
            topic: name.
            message_id: which.
            key: instead of the id, in a topic with unique keys: the message that bears it.
            group: of the message with this key; only a fair topic in several partitions needs it.
            payload: read the payload too.
            linearizable: the leader makes sure that it still leads before it answers. So every change that was
                confirmed before this call is seen, whoever made it. Otherwise a leader that was just replaced without
                knowing it may answer with what it knows.
            timeout: seconds for each request (a long payload takes several).

        Raises:
            MessageNotFound: done, cancelled or expired, or never was.
            InvalidRequest: no message id or key, or not one of this topic; its keys are not unique.
            TopicNotFound
            Broken: the leader's disk cannot read the payload.
            Unavailable: no leader answered in time.
        """
        one_of(message_id, key)
        steps = (
            message_state.get_by_key(topic, key, group, payload, linearizable)
            if message_id is None
            else message_state.get(topic, message_id, payload, linearizable)
        )
        return self.connection.follow(steps, timeout)

    def leased(
        self,
        topic: str,
        *,
        after: str | None = None,
        limit: int = limits.LEASED_LISTED_MAX,
        timeout: float | None = None,
    ) -> list[MessageState]:
        """Return messages that consumers have, each with its holder and with when its lease runs out.

        Partition by partition, each in the order of ids. What is settled meanwhile may be missing. Fewer than `limit`:
        there are no more.

        Args:
            topic: name.
            after: id of the message behind which to go on: the last of the call before.
            limit: most of them, 1–1,000.
            timeout: seconds for each request (one message, or the names of 256).

        Raises:
            InvalidRequest: an argument is not of these.
            TopicNotFound
            Unavailable: a partition has no leader that answered in time.
        """
        return self.connection.follow(surveys.leased(topic, after, limit), timeout)

    def statistics(self, *, timeout: float | None = None) -> list[StatisticsRow]:
        """Return the deliveries and inserts of every broker in the last seven days, by hour, topic and
        broker.

        Brokers that do not answer are missing. A crash of a broker may cost its last minute.

        Args:
            timeout: seconds for each request (some hours of all brokers).

        Raises:
            Disconnected: no broker answered.
        """
        walk = StatisticsWalk()
        while not walk.done:
            walk.take(self.connection.run(calls.statistics(walk.hour), timeout))
        return walk.rows()

    def _browse(
        self, topic: str, make: Callable[[int], Walk], walks: Iterable[Walk] | None, timeout: float | None
    ) -> Iterator[ScheduledMessage]:
        if walks is None:
            count = self.connection.run(calls.partition_count(topic), timeout)
            walks = map(make, range(count))
        for walk in walks:
            with closing(self._pages(walk, timeout)) as pages:
                for page in pages:
                    for message in page.messages():
                        yield message

    def _pages(self, walk: Walk, timeout: float | None) -> Generator[BrowsePage, None, None]:
        try:
            while not walk.done:
                yield self._page(walk, timeout)
        finally:
            event = walk.ending()
            if event is not None:  # all was read, or the caller has stopped: close the snapshot
                self.connection.tell(event)

    def _page(self, walk: Walk, timeout: float | None) -> BrowsePage:
        while (call := walk.call()) is not None:
            try:
                walk.take(self.connection.run(call, timeout))
            except SnapshotLost as error:
                walk.lost(error)
            except Broken:
                if not walk.in_chunks:
                    raise
                walk.take(None)
        return walk.page()
