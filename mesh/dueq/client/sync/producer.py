# Made of aio/producer.py by scripts/generate-faces: write there.
"""Scheduling, moving, changing and cancelling."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import closing
from functools import partial
from itertools import chain, islice
from types import TracebackType
from typing import Self, TypeVar, overload

from dueq.client import calls, times
from dueq.client import keys as by_key
from dueq.client.arguments import Payload
from dueq.client.batches import Batch, batches
from dueq.client.calls import Versions
from dueq.client.core.ports.shared_body import SharedBody
from dueq.client.jobs import Job, naming
from dueq.client.message_ids import MessageIds
from dueq.client.payloads import shared_body
from dueq.client.per_row import Headers
from dueq.client.sync.connection import Connection
from dueq.client.sync.stream import Stream
from dueq.client.sync.topic_calls import TopicCalls
from dueq.client.times import Due, Expiries, Seconds
from dueq.errors import DueqError, InvalidRequest, PartialFailure
from dueq_codecs.records import Outcome

T = TypeVar("T")


class Producer:
    """Schedules, moves and cancels messages of one topic. Thread-safe.

    Every call returns when its effect is committed: synced on all in-sync replicas. Calls of many threads
    share requests. All raise, besides what they name:

    - `Refused` subclasses: nothing was changed and a repetition changes nothing either;
    - `Unavailable` subclasses (`Busy`, `DiskFull`, `NotEnoughReplicas`, `NotLeader`, `Disconnected`): nothing was
      changed within the time-out, a repetition may work;
    - `OutcomeUnknown`: it may or may not have happened; its `retry()` repeats the same request safely;
    - `ClientClosed`.
    """

    def __init__(self, connection: Connection, topic: str) -> None:
        self._calls = TopicCalls(connection, topic)
        self.topic = topic

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Refuse further calls; there is nothing to flush."""
        self._calls.closed = True

    def body(self, data: bytes | bytearray | memoryview) -> SharedBody:
        """Return a payload for many messages, which each partition that uses it stores once.

        Give it wherever a payload is asked for. Nothing is sent by this call: a partition is brought the bytes
        with the first message that names them there. It keeps them while a message has them, and for an hour of its
        records' time after they were named last; then they go, and are brought again if they are named again.

        Args:
            data: 1 byte to 224 KiB, copied.

        Raises:
            InvalidRequest: not bytes-like, or empty.
            PayloadTooLarge: longer than that.
        """
        return shared_body(data)

    def close_body(self, body: SharedBody, *, timeout: float | None = None) -> int:
        """Let a shared body go with the last of its messages, without the hour.

        Returns:
            How many partitions had it. Messages keep it, and whoever names it later brings it again.

        Raises:
            InvalidRequest: it is no shared body.
            TopicNotFound: there is no such topic.
        """
        return self._calls.run(calls.end_body(self.topic, body), timeout)

    def schedule(
        self,
        payload: Payload,
        due: Due,
        *,
        key: str | None = None,
        rank: int | None = None,
        group: str | None = None,
        headers: Mapping[str, str] | None = None,
        window: Seconds | None = None,
        expires: Due | None = None,
        max_attempts: int | None = None,
        on_duplicate: str | None = None,
        timeout: float | None = None,
    ) -> str:
        """Have `payload` delivered at `due`, never before.

        Args:
            payload: bytes-like, or a shared `body`.
            due: Unix ms, an aware datetime (rounded up to ms), or a timedelta from now by the mesh's clock. In the
                past: at once.
            key: the message's name for its owner, at most 255 bytes of UTF-8: `message.key`, and while browsing.
            rank: of a priority or fair topic, 0 to 65,535; the smallest goes first. None: 0.
            group: of a fair topic: whose turn it takes, such as "acme.reports", at most 255 bytes of UTF-8.
            headers: what is to be known of it beside the payload, such as {"content_type": "application/json"}: at
                most 64 texts, of together at most 16 KiB (3 bytes for each count, too).
            window: it may be due up to this many seconds later, at most 7 days: the mesh chooses an instant at which
                few other messages are due. `first_instant` of the id says which.
            expires: from this instant on, given as `due`, it is not delivered any more; the topic's `expired` says what
                becomes of it. None: never.
            max_attempts: how often it is delivered before it is dead, 1 to 65,535; None: as the topic says.
            on_duplicate: in a topic with unique keys, what is done if the key names a message already: "refuse" (the
                usual); "keep": that one stays, and its id is returned; "replace": this message takes its place, unless
                a consumer has it or it is finished.
            timeout: seconds.

        Returns:
            The message id.

        Raises:
            InvalidRequest: due, payload, key, rank, group or headers are not of these; due is beyond the topic's
                horizon; the topic has no ranks or groups.
            PayloadTooLarge: longer than the topic allows.
            KeyTaken: the key names another message; `.present` is its id, and `.due` when it is due.
            MessageLeased: it is not replaced, since a consumer has it.
            TopicNotFound: there is no such topic.
        """
        relative = times.is_relative(due) or times.is_relative(expires)
        clock = self._calls.clock(relative, timeout)
        return self._calls.run(
            calls.schedule(
                self.topic,
                payload,
                due,
                clock,
                key,
                rank,
                group,
                headers,
                window,
                expires,
                max_attempts,
                on_duplicate,
            ),
            timeout,
        )

    @overload
    def schedule_many(
        self,
        payloads: Collection[Payload],
        dues: Due | Iterable[Due],
        *,
        keys: Iterable[str | None] | None = None,
        ranks: int | Iterable[int] | None = None,
        groups: str | Iterable[str | None] | None = None,
        headers: Headers | None = None,
        expires: Expiries | None = None,
        max_attempts: int | Iterable[int | None] | None = None,
        window: Seconds | None = None,
        on_duplicate: str | None = None,
        job: Job | None = None,
        timeout: float | None = None,
    ) -> list[str]: ...
    @overload
    def schedule_many(
        self,
        payloads: Iterable[Payload],
        dues: Due | Iterable[Due],
        *,
        keys: Iterable[str | None] | None = None,
        ranks: int | Iterable[int] | None = None,
        groups: str | Iterable[str | None] | None = None,
        headers: Headers | None = None,
        expires: Expiries | None = None,
        max_attempts: int | Iterable[int | None] | None = None,
        window: Seconds | None = None,
        on_duplicate: str | None = None,
        job: Job | None = None,
        timeout: float | None = None,
    ) -> Sequence[str]: ...
    def schedule_many(
        self,
        payloads: Iterable[Payload],
        dues: Due | Iterable[Due],
        *,
        keys: Iterable[str | None] | None = None,
        ranks: int | Iterable[int] | None = None,
        groups: str | Iterable[str | None] | None = None,
        headers: Headers | None = None,
        expires: Expiries | None = None,
        max_attempts: int | Iterable[int | None] | None = None,
        window: Seconds | None = None,
        on_duplicate: str | None = None,
        job: Job | None = None,
        timeout: float | None = None,
    ) -> Sequence[str]:
        """Schedule many messages.

        Up to 1,024 rows (of together at most 3 MiB, longer payloads not counted) are one request: all or
        nothing. More are divided into such runs over the partitions.

        If `payloads` is a list or another collection, all rows are checked before anything is sent. If it
        is an iterator, rows are taken, checked and sent while earlier ones are in flight: a million rows
        need the memory of about ten requests and 8 bytes for each id (with keys: of some thirty, of together at most
        24 MiB unless ten are more, and 14 bytes).

        Args:
            payloads: bytes-like each, or a shared `body` for all.
            dues: one per payload, or a single one for all. With an iterator of payloads, a timedelta counts from when
                its request is made.
            keys: one per payload (None: it has none), at most 255 bytes of UTF-8 each.
            ranks: of a priority or fair topic: one per payload, or a single one for all; None: all are 0.
            groups: of a fair topic: one per payload (None: it has none), or a single one for all.
            headers: one mapping per payload (None: it has none), or a single one for all.
            expires: as in `schedule`: one per payload (None: never), or a single one for all.
            max_attempts: as in `schedule`: one per payload (None: as the topic says), or a single one for all.
            window: each may be due up to this many seconds later, as in `schedule`.
            on_duplicate: as in `schedule`, for all rows.
            job: of `Client.begin_job`: the messages belong to it.
            timeout: seconds; with an iterator of payloads, for each request.

        Returns:
            One message id per payload, in order: a list, or for an iterator a sequence that holds ids as numbers.

        Raises:
            InvalidRequest, PayloadTooLarge, TopicNotFound: as `schedule`; nothing was sent.
            JobEnded: the job takes no more messages.
            KeyTaken: the only row was refused, as in `schedule`.
            PartialFailure: some of several runs failed, or rows were refused whose keys are taken; `.outcomes` has an
                id or error per row, `.retry()` repeats the failed runs and returns all ids.
                With an iterator of payloads, nothing is sent after a
                failure, and `.outcomes` and `.retry()` cover the rows that were sent. Once rows were sent,
                an invalid row or an error of the iterators is raised in the same way, as the last outcome.
        """
        if not isinstance(payloads, Sized):
            cut = batches(payloads, dues, keys, ranks, groups, headers, expires, max_attempts)
            return self._schedule_iterated(cut, naming(job, self.topic), timeout, window, on_duplicate)
        dues, (until, attempts) = times.held(dues), times.held_ends(expires, max_attempts)
        relative = times.is_relative(dues) or times.is_relative(until)
        clock = self._calls.clock(relative, timeout)
        named = naming(job, self.topic)
        return self._calls.run(
            calls.schedule_many(
                self.topic,
                payloads,
                dues,
                clock,
                keys=keys,
                ranks=ranks,
                groups=groups,
                headers=headers,
                expires=until,
                max_attempts=attempts,
                window=window,
                on_duplicate=on_duplicate,
                job=named,
            ),
            timeout,
        )

    def schedule_stream(
        self,
        payloads: Iterable[Payload],
        dues: Due | Iterable[Due],
        *,
        keys: Iterable[str | None] | None = None,
        ranks: int | Iterable[int] | None = None,
        groups: str | Iterable[str | None] | None = None,
        headers: Headers | None = None,
        expires: Expiries | None = None,
        max_attempts: int | Iterable[int | None] | None = None,
        window: Seconds | None = None,
        on_duplicate: str | None = None,
        job: Job | None = None,
        in_flight: int | None = None,
        timeout: float | None = None,
    ) -> Iterator[str]:
        """Schedule the messages of iterators, in bounded memory, and yield their ids.

        Rows are taken, checked and sent as ids are asked for, in requests of up to 1,024 rows and 3 MiB (or of one
        longer payload), each all or nothing. Nothing is sent unless you iterate. If you leave the loop
        early, the outcome of requests in flight is unknown.

            for message_id in producer.schedule_stream(rows, timedelta(hours=1)):
                ...

        Args:
            payloads: bytes-like each, or shared bodies.
            dues: one per payload, or a single one for all; a timedelta counts from when its request is made.
            keys: one per payload (None: it has none).
            ranks: of a priority or fair topic: one per payload, or a single one for all; None: all are 0.
            groups: of a fair topic: one per payload (None: it has none), or a single one for all.
            headers: one mapping per payload (None: it has none), or a single one for all.
            expires: as in `schedule`: one per payload (None: never), or a single one for all.
            max_attempts: as in `schedule`: one per payload (None: as the topic says), or a single one for all.
            window: each may be due up to this many seconds later, as in `schedule`.
            on_duplicate: as in `schedule`, for all rows.
            job: of `Client.begin_job`: the messages belong to it.
            in_flight: requests in flight at once, 1–64; None: 8, or with keys up to 32 of together 24 MiB.
            timeout: seconds for each request.

        Yields:
            Message ids in order, each when its message is committed.

        Raises:
            PartialFailure: a request failed. No other was sent after that, and those in flight were waited
                for. The ids that were yielded are scheduled; `.outcomes` has an id or error for each row
                that follows, as far as rows were sent; `.retry()` repeats what failed and returns the ids
                of these rows. Later rows were not sent.
            InvalidRequest: a row is not valid, or one column ends before another. All rows of the requests before were
                yielded, nothing else was sent. The same holds for errors of the iterators.
        """
        stream = Stream(
            self._calls,
            batches(payloads, dues, keys, ranks, groups, headers, expires, max_attempts),
            naming(job, self.topic),
            in_flight,
            timeout,
            window,
            on_duplicate,
        )
        with closing(stream.requests()) as requests:
            for request in requests:
                for message_id in request.ids():
                    yield message_id

    def cancel(
        self,
        message_id: str | None = None,
        *,
        key: str | None = None,
        group: str | None = None,
        if_version: int | None = None,
        timeout: float | None = None,
    ) -> None:
        """Cancel a message: once this returns it is never delivered.

        Args:
            message_id: which.
            key: instead of the id, in a topic with unique keys: the message that bears it.
            group: of the message with this key; only a fair topic in several partitions needs it.
            if_version: it must have this version.
            timeout: seconds for each request; by key there are two.

        Raises:
            MessageLeased: too late, a consumer has it.
            VersionDiffers: it was moved or changed, and has not `if_version` any more.
            MessageNotFound: done, cancelled or expired, or never was.
            InvalidRequest: no message id or key, or not one of this topic; its keys are not unique.
        """
        steps = by_key.done(
            self.topic,
            message_id,
            key,
            group,
            lambda each: calls.cancel(self.topic, calls.one_id(each), if_version),
        )
        self._calls.follow(steps, timeout)

    def move(
        self,
        message_id: str | None = None,
        due: Due | None = None,
        *,
        key: str | None = None,
        group: str | None = None,
        if_version: int | None = None,
        timeout: float | None = None,
    ) -> None:
        """Give a message another instant; its id and its key stay. Arguments and errors are those of `cancel`."""
        if due is None:
            raise InvalidRequest("due is missing: a message is moved to another instant")
        clock = self._calls.clock(times.is_relative(due), timeout)
        steps = by_key.done(
            self.topic, message_id, key, group,
            lambda each: calls.move(self.topic, calls.one_id(each), due, clock, if_version),
        )  # fmt: skip
        self._calls.follow(steps, timeout)

    def change(
        self,
        message_id: str | None = None,
        *,
        rank: int,
        key: str | None = None,
        group: str | None = None,
        if_version: int | None = None,
        timeout: float | None = None,
    ) -> None:
        """Give a message of a priority or fair topic another rank; its id, and the instant since when it waits, stay.

        Args:
            message_id: which.
            rank: 0 to 65,535; the smallest goes first.
            key: as in `cancel`.
            group: as there.
            if_version: it must have this version.
            timeout: seconds for each request.

        Raises:
            MessageLeased, MessageNotFound: as `cancel`.
            InvalidRequest: no message id, key or rank, or the topic has no ranks.
        """
        steps = by_key.done(
            self.topic, message_id, key, group,
            lambda each: calls.change(self.topic, calls.one_id(each), rank, if_version),
        )  # fmt: skip
        self._calls.follow(steps, timeout)

    def cancel_many(
        self, message_ids: Iterable[str], *, if_versions: Versions = None, timeout: float | None = None
    ) -> list[Outcome]:
        """Cancel many messages.

        Returns:
            One `Outcome` per id: DONE, LEASED (too late), CHANGED (not of its version in `if_versions`), NOT_FOUND or
            UNKNOWN.

        Raises:
            PartialFailure: some of several requests (one per partition) failed.
        """
        return self._calls.run(calls.cancel(self.topic, message_ids, if_versions), timeout)

    def move_many(
        self,
        message_ids: Iterable[str],
        dues: Due | Iterable[Due],
        *,
        if_versions: Versions = None,
        timeout: float | None = None,
    ) -> list[Outcome]:
        """Move many messages, to one instant each or all to a single one; returns and raises as `cancel_many`."""
        dues = times.held(dues)
        clock = self._calls.clock(times.is_relative(dues), timeout)
        return self._calls.run(calls.move(self.topic, message_ids, dues, clock, if_versions), timeout)

    def change_many(
        self,
        message_ids: Iterable[str],
        *,
        ranks: int | Iterable[int],
        if_versions: Versions = None,
        timeout: float | None = None,
    ) -> list[Outcome]:
        """Give many messages other ranks, one each or all a single one; returns and raises as `cancel_many`."""
        return self._calls.run(calls.change(self.topic, message_ids, ranks, if_versions), timeout)

    def redrive_many(
        self,
        message_ids: Iterable[str],
        dues: Due | Iterable[Due] | None = None,
        *,
        if_versions: Versions = None,
        timeout: float | None = None,
    ) -> list[Outcome]:
        """Let dead messages wait again as if they had never been tried: from now on, or until one instant or one each.

        Returns:
            One `Outcome` per id: DONE, NOT_FOUND (it is not dead, or not there), CHANGED (not of its version in
            `if_versions`: it was redriven meanwhile, and is dead again), TAKEN (another message has its unique key)
            or UNKNOWN.

        Raises:
            PartialFailure: some of several requests (one per partition) failed.
        """
        dues = dues if dues is None else times.held(dues)
        clock = self._calls.clock(dues is not None and times.is_relative(dues), timeout)
        return self._calls.run(calls.redrive(self.topic, message_ids, dues, clock, if_versions), timeout)

    def discard_many(
        self, message_ids: Iterable[str], *, if_versions: Versions = None, timeout: float | None = None
    ) -> list[Outcome]:
        """Discard dead messages: they are gone; returns and raises as `redrive_many`."""
        return self._calls.run(calls.discard(self.topic, message_ids, if_versions), timeout)

    def _schedule_iterated(
        self,
        cut: Iterator[Batch],
        job: tuple[bytes, int],
        timeout: float | None,
        window: Seconds | None,
        on_duplicate: str | None,
    ) -> MessageIds:
        # Errors in the first request's rows are found before anything is sent.
        head = list(islice(cut, 2))
        stream = Stream(self._calls, chain(head, cut), job, None, timeout, window, on_duplicate)
        ids = MessageIds()
        if len(head) == 1:
            return self._calls.run(calls.unread(stream.call(head[0])), timeout)
        try:
            with closing(stream.requests()) as requests:
                for request in requests:
                    ids.add(request)
        except PartialFailure as failure:
            raise self._behind(ids, failure) from None
        except Exception as error:
            if not ids:
                raise
            said = error if isinstance(error, DueqError) else InvalidRequest(f"row {len(ids)}: {error!r}")
            text = f"{len(ids)} messages are scheduled, then: {error}"
            raise PartialFailure(text, ids.joined([said]), partial(self._refuse, said)) from error
        return ids

    def _behind(self, ids: MessageIds, failure: PartialFailure) -> PartialFailure:
        """Return the failure of rows that follow others."""
        return PartialFailure(str(failure), ids.joined(failure.outcomes), partial(self._repeat, ids, failure))

    def _repeat(self, ids: MessageIds, failure: PartialFailure, timeout: float | None) -> MessageIds:
        try:
            return ids.joined(failure.retry(timeout))
        except PartialFailure as again:
            raise self._behind(ids, again) from None

    def _refuse(self, error: DueqError, timeout: float | None) -> MessageIds:
        raise error
