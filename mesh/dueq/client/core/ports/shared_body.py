"""Bytes that many messages have as their payload, stored once in each partition."""

from __future__ import annotations

from dataclasses import dataclass, field
from zlib import crc32

from dueq_codecs.rules import shared_name


@dataclass(frozen=True, slots=True)
class NamedBody:
    """A shared body as partitions know it, which keep its bytes.

    Attributes:
        name: SHA-256 of the bytes.
        size: how many they are.
        crc: their CRC-32.
    """

    name: bytes
    size: int
    crc: int


@dataclass(frozen=True, slots=True)
class SharedBody(NamedBody):
    """A payload for many messages, which the mesh stores once in each partition that uses it.

    `producer.body` makes one. It is given wherever a payload is: `schedule`, `schedule_many`, `schedule_stream`. Any
    producer of any client may use it, and another one of the same bytes is the same body.

    Attributes:
        data: the bytes.
        name: their SHA-256, by which partitions know them.
        size: how many they are.
        crc: their CRC-32.
    """

    name: bytes = field(init=False)
    size: int = field(init=False)
    crc: int = field(init=False, repr=False)
    data: bytes = field(repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", shared_name(self.data))
        object.__setattr__(self, "size", len(self.data))
        object.__setattr__(self, "crc", crc32(self.data))
