"""The 16 bytes in front of every FlatBuffer: its kind, its length, and whether it arrived whole.

0  4 bytes  magic "dueq"
4  u8       protocol version
5  u8       kind (see `layouts.Kind`)
6  u16      flags, none yet
8  u32      length of the FlatBuffer
12 u32      CRC-32 over the first 12 bytes and the FlatBuffer
"""

from __future__ import annotations

import struct
from typing import Final
from zlib import crc32

from dueq_codecs.frame_error import FrameError
from dueq_codecs.messages import PROTOCOL_VERSION, Code

MAGIC: Final = b"dueq"
ENVELOPE_BYTES: Final = 16

_HEAD: Final = struct.Struct("<4sBBHI")
_CRC: Final = struct.Struct("<I")


def seal(kind: int, body: bytes, version: int = PROTOCOL_VERSION) -> bytes:
    """Put the envelope in front of a FlatBuffer."""
    head = _HEAD.pack(MAGIC, version, kind, 0, len(body))
    return b"".join((head, _CRC.pack(crc32(body, crc32(head))), body))


def unseal(frame: bytes | memoryview) -> tuple[int, memoryview]:
    """Check an envelope; return the kind's number and a read-only view of the FlatBuffer.

    Raises:
        FrameError: it is none of ours, damaged, or (WRONG_VERSION) of another protocol version.
    """
    view = memoryview(frame).toreadonly()
    if view.nbytes < ENVELOPE_BYTES or not view.c_contiguous:
        raise FrameError(f"a frame of {view.nbytes} bytes is too short")
    if view.format != "B" or view.ndim != 1:
        view = view.cast("B")
    magic, version, kind, flags, length = _HEAD.unpack_from(view)
    if magic != MAGIC:
        raise FrameError(f"a frame begins with {magic!r}, not {MAGIC!r}")
    if version != PROTOCOL_VERSION:
        raise FrameError(
            f"protocol version {version} is not {PROTOCOL_VERSION}, which this build speaks",
            Code.WRONG_VERSION,
        )
    body = view[ENVELOPE_BYTES:]
    if length != len(body):
        raise FrameError(f"an envelope announces {length} bytes and {len(body)} follow")
    if crc32(body, crc32(view[:12])) != _CRC.unpack_from(view, 12)[0]:
        raise FrameError("the CRC does not fit")
    if flags:
        raise FrameError(f"flags {flags:#x} are not known")
    return kind, body
