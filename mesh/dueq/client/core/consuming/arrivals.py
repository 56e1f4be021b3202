"""Pushes taken apart: payloads cut out and checked, what was seen before dropped."""

from __future__ import annotations

from collections.abc import Iterable
from zlib import crc32

from dueq import limits
from dueq.client.core.ports.delivery import NO_HEADERS, Delivery, Pushed
from dueq_codecs.messages import Push, PushChunk
from dueq_codecs.meta import split_meta

Chunks = dict[int, bytes | memoryview]


def _shared_of(push: Push, view: memoryview) -> list[bytes]:
    """Return what payloads may end with: nothing, or one of the shared bodies at the end of the push's body."""
    ends = [b""]
    start = len(view) - sum(push.shared_size.tolist())
    for size in push.shared_size.tolist():
        ends.append(bytes(view[start : start + size]))
        start += size
    return ends


class Arrivals:
    """The pushes that have come in for one consumer.

    Attributes:
        held: deliveries whose lease is not finished, by message name.
        chunks: of long payloads whose push has not come, by (message name, token).
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = 2 * bytes_max + limits.PAYLOAD_BYTES_MAX
        self.held: dict[int, Delivery] = {}
        self._seen: dict[int, int] = {}
        self._seen_before: dict[int, int] = {}
        self.chunks: dict[tuple[int, int], Chunks] = {}
        self._bytes = 0

    def chunk(self, message: PushChunk, body: bytes | memoryview) -> None:
        """Keep a chunk of a long payload."""
        name = message.uid << 56 | message.sequence << 16 | message.row
        if self._is_seen(name, message.token):
            return
        chunks = self.chunks.setdefault((name, message.token), {})
        if message.chunk not in chunks:
            chunks[message.chunk] = bytes(body)
            self._bytes += len(body)
        while self._bytes > self._bytes_max and self.chunks:
            # Oldest first: their push was lost, and brings the chunks along when it is repeated.
            self._drop(next(iter(self.chunks)))

    def note(self, deliveries: Iterable[Delivery]) -> None:
        """These have come in another way."""
        self._seen.update((each.name, each.token) for each in deliveries)

    def push(
        self, push: Push, body: bytes | memoryview, released_us: int
    ) -> tuple[list[Delivery], list[Delivery], bool]:
        """Take a push apart.

        Args:
            push, body: as they came.
            released_us: when it left the leader at the earliest (monotonic): leases count from then.

        Returns:
            New deliveries; those whose payload is damaged; whether all rows were complete.
        """
        of_row = push.shared.tolist()
        ends = _shared_of(push, memoryview(body)) if of_row else []
        data = bytes(body)  # cut more quickly than a view
        seen, before, held = self._seen, self._seen_before, self.held
        pushed = Pushed(push)
        fresh: list[Delivery] = []
        damaged: list[Delivery] = []
        complete, start, is_headed = True, 0, len(push.heading) > 0
        released_at_us = push.released_at_us
        for index, columns in enumerate(push.each_row()):
            first, sequence, due, token, uid, left_ms, size, crc, keyed, row, attempt = columns
            name = uid << 56 | sequence << 16 | row
            at, inline = start, size <= limits.CHUNK_BYTES
            end = ends[of_row[index]] if of_row else b""
            if inline:
                start += size - len(end)
            if (name in seen or name in before or name in held) and self._is_seen(name, token):
                continue
            payload = data[at:start] + end if inline else self._assembled(name, token, size)
            if payload is None:
                complete = False
                continue
            seen[name] = token
            sound = crc32(payload) == crc
            key, headers = "", NO_HEADERS
            if keyed:
                key, headers, payload = split_meta(keyed, payload)
            if is_headed and (replaced := pushed.headers(index)) is not None:
                headers = replaced
            delivery = Delivery(
                name, uid, first, sequence, row, due, token, attempt, released_at_us,
                released_us + left_ms * 1000, payload, pushed, index, key, headers,
            )  # fmt: skip
            (fresh if sound else damaged).append(delivery)
        if len(self._seen) >= limits.DELIVERIES_SEEN_MAX:
            self._seen_before, self._seen = self._seen, {}
        return fresh, damaged, complete

    def _assembled(self, name: int, token: int, size: int) -> bytes | None:
        chunks = self.chunks.get((name, token), {})
        count = -(-size // limits.CHUNK_BYTES)
        if len(chunks) < count:
            return None
        pieces = [chunks[number] for number in range(count) if number in chunks]
        self._drop((name, token))
        # With another number of chunks they are of another payload: they come again with the push.
        return b"".join(pieces) if len(pieces) == count else None

    def _drop(self, key: tuple[int, int]) -> None:
        self._bytes -= sum(map(len, self.chunks.pop(key).values()))

    def _is_seen(self, name: int, token: int) -> bool:
        """Tokens of one message only grow, so an equal or smaller one has come before."""
        if token <= self._seen.get(name, 0) or token <= self._seen_before.get(name, 0):
            return True
        held = self.held.get(name)
        return held is not None and token <= held.token
