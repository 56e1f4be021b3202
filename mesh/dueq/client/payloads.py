"""Payloads of callers as columns: their bytes, sizes and CRCs."""

from __future__ import annotations

from collections.abc import Sequence
from operator import add
from typing import Any, Final, NamedTuple
from zlib import crc32

import numpy as np

from dueq import limits
from dueq.client.arguments import Payload
from dueq.client.core.changing.joined import Joined
from dueq.client.core.ports.shared_body import NamedBody, SharedBody
from dueq.client.per_row import NO_PREFIXES, Prefixes
from dueq.errors import InvalidRequest, PayloadTooLarge
from dueq_codecs.meta import PREFIX_BYTES_MAX
from dueq_codecs.records import U32
from dueq_codecs.rules import crc_joined

_BYTES_MAX: Final = 0xFFFFFFFF - max(PREFIX_BYTES_MAX)


class PayloadColumns(NamedTuple):
    """Payloads with their sizes and CRC-32.

    Attributes:
        shared: each payload goes on with it: `size` and `crc` count it, `payloads` have what comes before.
    """

    payloads: Sequence[bytes | memoryview]
    size: U32
    crc: U32
    shared: NamedBody | None = None


def payload_columns(payloads: Sequence[Payload], prefixes: Prefixes = NO_PREFIXES) -> PayloadColumns:
    """Check payloads; mutable ones are copied, since a request may be repeated later.

    Args:
        payloads: bytes-like each.
        prefixes: what goes before each.

    Raises:
        InvalidRequest: one is not bytes-like, or only some are a shared body.
    """
    if len(payloads) and isinstance(payloads[0], NamedBody):
        return _shared_columns(payloads, prefixes)
    taken: list[Any] = list(payloads)
    if set(map(type, taken)) != {bytes}:
        taken = [_as_bytes(row, payload) for row, payload in enumerate(taken)]
    sizes = list(map(len, taken))
    longest = max(sizes, default=0)
    if longest > _BYTES_MAX:
        raise InvalidRequest(
            f"row {sizes.index(longest)}: a payload of {longest} bytes is longer than any topic allows"
        )
    if prefixes.mode:
        taken = list(map(add, prefixes.rows, taken))
        sizes = list(map(len, taken))
    return PayloadColumns(taken, np.array(sizes, np.uint32), np.array(list(map(crc32, taken)), np.uint32))


def _as_bytes(row: int, payload: object) -> bytes:
    if not isinstance(payload, bytes | bytearray | memoryview):
        raise InvalidRequest(f"row {row}: a payload is bytes, not {type(payload).__name__}: {payload!r:.80}")
    return bytes(payload)


def _shared_columns(payloads: Sequence[Payload], prefixes: Prefixes) -> PayloadColumns:
    """Check that all payloads are one shared body."""
    body = payloads[0]
    assert isinstance(body, NamedBody)
    other = next(
        (row for row, payload in enumerate(payloads) if payload is not body and payload != body), None
    )
    if other is not None:
        raise InvalidRequest(f"row {other}: all rows of a call have the same shared body, or none has one")
    own = prefixes.rows if prefixes.mode else [b""] * len(payloads)
    return shared_columns(own, np.array(list(map(len, own)), np.uint32), body)


def shared_columns(own: Sequence[bytes | memoryview], size: U32, body: NamedBody) -> PayloadColumns:
    """Return the columns of payloads that go on with a shared body.

    Args:
        own: what comes before it in each.
        size: bytes of each of these.
        body: the shared body.
    """
    crcs = [crc_joined(crc32(each), body.crc, body.size) for each in own]
    return PayloadColumns(own, size + np.uint32(body.size), np.array(crcs, np.uint32), body)


def shared_body(data: bytes | bytearray | memoryview) -> SharedBody:
    """Check the bytes of a shared body.

    Raises:
        InvalidRequest: they are not bytes-like, or there are none.
        PayloadTooLarge: they are longer than a shared body may be.
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        raise InvalidRequest(f"a shared body is bytes, not {type(data).__name__}: {data!r:.80}")
    size = data.nbytes if isinstance(data, memoryview) else len(data)
    if not size:
        raise InvalidRequest("a shared body has at least 1 byte, not 0")
    if size > limits.BODY_BYTES_MAX:
        raise PayloadTooLarge(f"a shared body has at most {limits.BODY_BYTES_MAX} bytes, not {size}")
    return SharedBody(bytes(data))


def joined_columns(body: bytes | memoryview, size: U32) -> PayloadColumns:
    """Check payloads that are stored one after another in one buffer.

    Args:
        body: the bytes of all rows; they must not change any more.
        size: of each row, in order.

    Raises:
        InvalidRequest: the sizes do not add up to the body's length.
    """
    if int(size.sum(dtype=np.uint64)) != len(body):
        raise InvalidRequest(
            f"the sizes of {len(size)} payloads add up to {int(size.sum(dtype=np.uint64))} bytes, not {len(body)}"
        )
    payloads = Joined(body, size)
    return PayloadColumns(payloads, size, np.array(list(map(crc32, payloads)), np.uint32))
