"""A golden file is the frames of one message, each behind its length (u32, little-endian).

Also here: how to compare what was read with what was written.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np


def pack_frames(frames: Sequence[bytes | memoryview]) -> bytes:
    """Put frames into one file."""
    return b"".join(struct.pack("<I", len(frame)) + bytes(frame) for frame in frames)


def unpack_frames(data: bytes) -> list[bytes | memoryview]:
    """Take the frames out of a file."""
    frames: list[bytes | memoryview] = []
    while data:
        end = 4 + struct.unpack_from("<I", data)[0]
        frames.append(data[4:end])
        data = data[end:]
    return frames


def plain(value: Any) -> Any:
    """Turn a message or record into nested tuples that `==` compares (and that keep types apart).

    `Record.encoded` is left out: it says how the bytes came about, not what they mean.
    """
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value) if field.name != "encoded"]
        return (type(value).__name__, *[(name, plain(getattr(value, name))) for name in names])
    if isinstance(value, np.ndarray):
        return (str(value.dtype), value.tolist())
    if isinstance(value, list | tuple):
        return (type(value).__name__, *map(plain, value))
    if isinstance(value, memoryview):
        return ("bytes", bytes(value))
    return (type(value).__name__, value)
