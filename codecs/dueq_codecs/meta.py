"""Meta: the key and the headers of a message, put before its payload (docs/reference/protocol.md, "Meta").

    mode      before the payload
    NONE      nothing
    KEY       u8 length, key
    HEADERS   u8 length, key, u16 length, headers; each header: u8 length, name, u16 length, value

Size, CRC, blocks and uploads know nothing of it. Texts are UTF-8. A message without a key has an empty one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Final

KEY_BYTES_MAX: Final = 255
HEADERS_MAX: Final = 64
"""Headers of one message."""
HEADERS_BYTES_MAX: Final = 16 << 10
"""Most bytes of one message's headers: names, values, and 3 bytes each."""
HEADER_NAME_BYTES_MAX: Final = 255

_U16: Final = struct.Struct("<H")
_LENGTHS: Final = [bytes((length,)) for length in range(KEY_BYTES_MAX + 1)]


class Meta(IntEnum):
    """The beginning of a payload."""

    NONE = 0
    KEY = 1
    HEADERS = 2
    """Key and headers."""


PREFIX_BYTES_MAX: Final = (0, 1 + KEY_BYTES_MAX, 1 + KEY_BYTES_MAX + 2 + HEADERS_BYTES_MAX)
"""Most bytes that each mode adds to a payload."""


class MetaRefused(ValueError):
    """These bytes or texts cannot be the meta of a message; the text names the value and the limit."""


def with_key(key: bytes, payload: bytes) -> bytes:
    """Return the bytes that are stored and sent for a payload of this key.

    Args:
        key: 0 to KEY_BYTES_MAX bytes; none is the key of a message without one.
        payload: the bytes that the key names.

    Raises:
        ValueError: the key is longer.
    """
    return bytes((len(key),)) + key + payload


def prefix_of(mode: Meta, key: bytes, headers: bytes) -> bytes:
    """Return the bytes before a payload.

    Args:
        mode: KEY or HEADERS say what it holds; NONE: nothing.
        key: 0 to KEY_BYTES_MAX bytes.
        headers: what `packed_headers` returned; left out unless the mode is HEADERS.
    """
    if not mode:
        return b""
    named = bytes((len(key),)) + key
    return named if mode == Meta.KEY else named + _U16.pack(len(headers)) + headers


def key_prefixes(keys: Iterable[bytes]) -> list[bytes]:
    """Return the bytes before the payload of each key, in the mode KEY."""
    return [_LENGTHS[len(key)] + key for key in keys]


def packed_headers(headers: Mapping[str, str]) -> bytes:
    """Check headers and return their bytes, in the order of the mapping.

    Raises:
        MetaRefused: a name or value is no text, a name is empty or too long, or they are too many or too long.
    """
    if not isinstance(headers, Mapping):
        raise MetaRefused(f"headers are a mapping of str to str, not {headers!r:.80}")
    if len(headers) > HEADERS_MAX:
        raise MetaRefused(f"a message has at most {HEADERS_MAX} headers, not {len(headers)}")
    parts: list[bytes] = []
    for name, value in headers.items():
        key, data = _encoded(name, "name of a header"), _encoded(value, f"value of header {name!r:.80}")
        _check_name(key)
        if len(data) > HEADERS_BYTES_MAX:
            raise MetaRefused(
                f"the value of header {name!r:.80} has {len(data)} bytes, over {HEADERS_BYTES_MAX}"
            )
        parts += (bytes((len(key),)), key, _U16.pack(len(data)), data)
    packed = b"".join(parts)
    if len(packed) > HEADERS_BYTES_MAX:
        raise MetaRefused(
            f"the headers of a message take at most {HEADERS_BYTES_MAX} bytes, not {len(packed)}"
        )
    return packed


def _encoded(text: object, what: str) -> bytes:
    if not isinstance(text, str):
        raise MetaRefused(f"the {what} is a str, not {type(text).__name__}: {text!r:.80}")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise MetaRefused(f"the {what} is not Unicode text: {error.reason}") from None


def _check_name(name: bytes) -> None:
    if not 1 <= len(name) <= HEADER_NAME_BYTES_MAX:
        raise MetaRefused(
            f"the name of a header has 1 to {HEADER_NAME_BYTES_MAX} bytes of UTF-8, not {len(name)}"
        )


def prefix_bytes(mode: int, stored: bytes | memoryview) -> int:
    """Return how many of the stored bytes are meta; 0 where they are too few for what they begin with."""
    if not mode:
        return 0
    length = 1 + stored[0] if len(stored) else 1
    if mode == Meta.HEADERS:
        # The slice is shorter than 2 bytes where the payload ends.
        head = bytes(stored[length : length + 2])
        length += 2 + (_U16.unpack(head)[0] if len(head) == 2 else 0)
    return length if length <= len(stored) else 0


def keys_of_payloads(stored: Iterable[bytes | memoryview]) -> list[bytes | memoryview]:
    """Return the key of each of some payloads that begin with one; empty: it has none."""
    return [each[1 : 1 + each[0]] for each in stored]


def split_meta(mode: int, stored: bytes) -> tuple[str, dict[str, str], bytes]:
    """Return key, headers and payload of the stored bytes.

    Brokers refuse what is not well formed. If that comes all the same, it is a payload without meta, or one with
    fewer headers. Bytes that are no UTF-8 are replaced: keys of other clients may have such.
    """
    length = prefix_bytes(mode, stored)
    if not length:
        return "", {}, stored
    behind_key = 1 + stored[0]
    key = stored[1:behind_key].decode("utf-8", "replace")
    headers: dict[str, str] = {}
    if mode == Meta.HEADERS:
        try:
            for name, value in _headers(stored[behind_key + 2 : length]):
                headers[name.decode("utf-8", "replace")] = value.decode("utf-8", "replace")
        except MetaRefused:
            pass
    return key, headers, stored[length:]


def _headers(packed: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield names and values.

    Raises:
        MetaRefused: the lengths do not add up, or there are too many; those before were yielded.
    """
    at = count = 0
    while at < len(packed):
        count += 1
        if count > HEADERS_MAX:
            raise MetaRefused(f"a message has at most {HEADERS_MAX} headers")
        behind_name = at + 1 + packed[at]
        head = packed[behind_name : behind_name + 2]
        behind = behind_name + 2 + (_U16.unpack(head)[0] if len(head) == 2 else 0)
        if len(head) < 2 or behind > len(packed):
            raise MetaRefused(f"header {count} is longer than the {len(packed)} bytes of all headers")
        yield packed[at + 1 : behind_name], packed[behind_name + 2 : behind]
        at = behind


def fault_of_meta(mode: int, stored: bytes | memoryview) -> str | None:
    """Say why these bytes do not begin with the meta of a message, or None.

    Args:
        mode: what they begin with.
        stored: of a long payload as many bytes as its meta may have, at least.
    """
    if not mode:
        return None
    length = prefix_bytes(mode, stored)
    what = "key" if mode == Meta.KEY else "key and headers"
    if not length:
        return f"its {len(stored)} bytes are too few for the {what} that they begin with"
    if mode == Meta.KEY:
        return None
    behind_key = 1 + stored[0]
    packed = bytes(stored[behind_key + 2 : length])
    if len(packed) > HEADERS_BYTES_MAX:
        return f"its headers take {len(packed)} bytes, over {HEADERS_BYTES_MAX}"
    names: dict[bytes, None] = {}
    try:
        bytes(stored[1:behind_key]).decode()
        for name, value in _headers(packed):
            _check_name(name)
            if name in names:
                return f"it has two headers {name.decode()!r:.80}"
            names[name] = None
            name.decode()
            value.decode()
    except MetaRefused as refused:
        return str(refused)
    except UnicodeDecodeError as error:
        return f"its {what} are no UTF-8: byte {error.object[error.start]:#04x} of {error.object!r:.80}"
    return None
