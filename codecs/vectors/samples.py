"""The messages and records that the golden frames beside this file hold, and how to compare such things.

`scripts/generate-codecs --vectors` writes the frames; the tests expect them.
"""

from __future__ import annotations

from dueq_codecs import messages as m
from vectors.changes import changes
from vectors.consumers import consumers
from vectors.packing import pack_frames, plain, unpack_frames
from vectors.peers import peers
from vectors.pieces import u8, u16, u32, u64
from vectors.reading import reading
from vectors.records import records
from vectors.sessions import sessions

__all__ = ["messages", "pack_frames", "plain", "records", "u8", "u16", "u32", "u64", "unpack_frames"]


def messages() -> dict[str, tuple[m.Message, list[bytes]]]:
    """At least one message of each kind, with its bodies, by the names of their files."""
    return sessions() | changes() | consumers() | reading() | peers()
