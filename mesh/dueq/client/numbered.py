"""A producer whose requests carry names that the caller chooses, so that another process can repeat them."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from dueq.client import arguments, calls, times
from dueq.client.arguments import Payload
from dueq.client.core.changing.joined import Joined
from dueq.client.core.ports.shared_body import NamedBody
from dueq.client.jobs import Job, naming
from dueq.client.payloads import joined_columns, shared_columns
from dueq.client.receipt import Receipt
from dueq.client.sync import Client
from dueq.client.times import Due
from dueq.errors import InvalidRequest
from dueq_codecs.meta import Meta
from dueq_codecs.records import NO_U16, U16, U32, U64

_CLIENT_ID_BYTES = 16


class NumberedProducer:
    """Schedules messages under a given client id, each request in a given partition.

    The mesh knows a request by (client id, partition, number): the numbers of one client id and partition count
    from 1. A process that makes the same calls under the same client id again, in the same order, repeats the same
    requests: for 15 minutes, and for the last 256 of a partition, they take effect once; requests of a job for 7 days,
    and the last 65,536. So make one call at a time, each small enough for one request (1,024 rows, 3 MiB).

    Args:
        client: the connection.
        topic: an existing topic.
        client_id: 16 bytes that nobody else uses.
        job: of `Client.begin_job`: all messages belong to it. Its requests are counted apart: each job (and each
            attempt at one) has its own numbers under a client id.

    Raises:
        InvalidRequest: the topic's name, the client id or the job is malformed.
        JobEnded: the job takes no more messages.
    """

    def __init__(self, client: Client, topic: str, client_id: bytes, job: Job | None = None) -> None:
        if not isinstance(client_id, bytes) or len(client_id) != _CLIENT_ID_BYTES:
            raise InvalidRequest(f"a client id is {_CLIENT_ID_BYTES} bytes, not {client_id!r:.80}")
        self._client = client
        self.topic = arguments.topic_name(topic)
        self._job = naming(job, topic)
        self._client_id = client_id
        if job is not None:
            # Requests of an aborted attempt must not answer those of the next.
            self._client_id = blake2b(client_id + job.key, digest_size=_CLIENT_ID_BYTES).digest()

    def schedule_many(
        self,
        payloads: Iterable[Payload],
        dues: Due | Iterable[Due],
        partition: int,
        *,
        keys: Iterable[str | None] | None = None,
        ranks: int | Iterable[int] | None = None,
        groups: str | Iterable[str | None] | None = None,
        timeout: float | None = None,
    ) -> list[str]:
        """Schedule messages in one partition; returns when they are committed.

        Args:
            payloads: bytes-like each.
            dues: one per payload, or a single one for all.
            partition: its place in the topic, from 0.
            keys: one per payload (None: it has none), at most 255 bytes of UTF-8 each.
            ranks, groups: one per payload, or a single one for all, as for `Producer.schedule_many`. The first level
                of a group decides the partition in place of `partition`.
            timeout: seconds.

        Returns:
            One message id per payload, in order.

        Raises:
            DueqError: as `Producer.schedule_many`.
        """
        dues = times.held(dues)
        clock = self._client.connection.clock(times.is_relative(dues), timeout)
        call = calls.schedule_many(
            self.topic, payloads, dues, clock, self._client_id, partition, keys=keys, ranks=ranks, groups=groups,
            job=self._job,
        )  # fmt: skip
        return self._client.connection.run(call, timeout)

    def schedule_columns(
        self,
        body: bytes | memoryview,
        size: U32,
        due: U64,
        partition: int,
        *,
        keyed: Meta = Meta.NONE,
        shared: NamedBody | None = None,
        rank: U16 = NO_U16,
        group: U16 = NO_U16,
        groups: tuple[str, ...] = (),
        timeout: float | None = None,
    ) -> Receipt:
        """Schedule messages that are columns already, in one partition; returns when they are committed.

        Nothing is copied: the buffers must stay as they are until this returns or its error is dropped.

        Args:
            body: the payloads, one after another, each with what it begins with (`dueq_codecs.meta`).
            size: bytes of each payload, key and headers included; they add up to the body's length.
            due: Unix ms of each.
            partition: its place in the topic, from 0.
            keyed: what each begins with.
            shared: each payload goes on with it.
            rank: of each message; empty: 0.
            group: the place of each message's group among `groups`; empty: none has a group. The first level of a
                group decides the partition in place of `partition`.
            groups: names of groups.
            timeout: seconds; while the mesh is busy, short of replicas or of disk, the request is repeated.

        Returns:
            What was committed; ids are made when they are asked for.

        Raises:
            DueqError: as `Producer.schedule_many`.
        """
        call = calls.schedule_columns(
            self.topic,
            joined_columns(body, size)
            if shared is None
            else shared_columns(Joined(body, size), size, shared),
            due,
            keyed,
            self._client_id,
            partition,
            self._job,
            rank,
            group,
            groups,
        )
        return self._client.connection.run(call, timeout)


def mesh_time_ms(client: Client, timeout: float | None = None) -> int:
    """Return mesh time now, Unix ms: what the stamps of receipts are compared with.

    Raises:
        Disconnected: it was never measured, and no broker answers.
    """
    return client.connection.clock(True, timeout)() // 1000
