"""The unique keys of a partition, once more: a dictionary, and no disk."""

from __future__ import annotations

from dataclasses import dataclass

from dueq.limits import WINDOW_MS_MAX
from dueq_chaos.sim.naive_memory import Met
from dueq_codecs.records import Record

Digest = tuple[int, int]


@dataclass(slots=True)
class NaiveName:
    """What a key names.

    Attributes:
        first, key: the message.
        until: age of the partition up to which it is remembered; None: the message lives.
        last: due, size, crc of one that is remembered.
    """

    first: int
    key: int
    until: int | None = None
    last: tuple[int, int, int] = (0, 0, 0)


class NaiveKeys:
    """What unique keys name.

    Attributes:
        names: by their hashes.
        met: of the record that is being applied, what the rows met that did not take effect.
        replaced: of the same record, the messages that have lost their keys, and gone.
    """

    def __init__(self) -> None:
        self.names: dict[Digest, NaiveName] = {}
        self.met: dict[int, Met] = {}
        self.replaced: list[int] = []

    def forget(self, age: int) -> None:
        """Forget what is remembered no more at this age of the partition."""
        self.names = {
            digest: name for digest, name in self.names.items() if name.until is None or name.until >= age
        }

    @staticmethod
    def is_own(record: Record, at: int, last: tuple[int, int, int]) -> bool:
        """Whether a message of this due, size and CRC is what an earlier attempt of a row has left."""
        due, size, crc = last
        window = int(record.window[at]) if len(record.window) else None
        asked = int(record.due[at]) - (window or 0)
        same_due = due == asked if window is None else asked <= due <= asked + WINDOW_MS_MAX
        return record.retry and same_due and (size, crc) == (int(record.size[at]), int(record.crc[at]))

    def take(self, digest: Digest, first: int, key: int) -> None:
        """Let a message bear a key."""
        self.names[digest] = NaiveName(first, key)

    def is_borne_by(self, digest: Digest, key: int) -> bool:
        """Whether a live message bears the key."""
        name = self.names.get(digest)
        return name is not None and name.until is None and name.key == key

    def may_be_had_by(self, digest: Digest, key: int) -> bool:
        """Whether the key is free, or remembered of this message."""
        name = self.names.get(digest)
        return name is None or name.key == key

    def end(self, digest: Digest, last: tuple[int, int, int], until: int | None) -> None:
        """Let go of a key; `until`: the age up to which it is remembered."""
        name = self.names.pop(digest)
        if until is not None:
            self.names[digest] = NaiveName(name.first, name.key, until, last)
