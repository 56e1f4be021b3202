"""Keys: the names that owners give to messages, put before the payload (docs/explanation/storage.md).

One byte of length, the key, the payload. Size, CRC, blocks and uploads know nothing of it.
"""

from __future__ import annotations

from typing import Final

KEY_BYTES_MAX: Final = 255
PREFIX_BYTES_MAX: Final = 1 + KEY_BYTES_MAX
"""What a key adds to a payload at most."""


def with_key(key: bytes, payload: bytes) -> bytes:
    """Return what is stored and sent for a payload of this key.

    Args:
        key: 0 to KEY_BYTES_MAX bytes; none is the key of a message without one.
        payload: the bytes that the key names.

    Raises:
        ValueError: the key is longer.
    """
    return bytes((len(key),)) + key + payload


def prefix_bytes(stored: bytes | memoryview) -> int:
    """Return how many of the stored bytes are the key with its length; 0 where they are too few for that."""
    length = 1 + stored[0] if len(stored) else 0
    return length if length <= len(stored) else 0


def split_key(stored: bytes) -> tuple[str, bytes]:
    """Return key and payload of what `with_key` made.

    Brokers refuse anything else; should it come all the same, it is a payload without a key. Bytes that are no
    UTF-8, which other clients may use, are replaced.
    """
    length = prefix_bytes(stored)
    return stored[1:length].decode("utf-8", "replace"), stored[length:]
