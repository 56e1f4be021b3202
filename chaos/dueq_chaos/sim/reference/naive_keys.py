"""The unique keys and idempotency keys of a partition, once more: a dictionary, and no disk."""

from __future__ import annotations

from dataclasses import dataclass

from dueq.limits import ONCE_MS, WINDOW_MS_MAX
from dueq_chaos.sim.reference.naive_memory import Met
from dueq_codecs.records import Outcome, Record

Digest = tuple[int, int]


@dataclass(slots=True)
class NaiveName:
    """The message that a key names.

    Attributes:
        first, key: the message.
        until: age of the partition up to which it is remembered; None: the message lives.
        last: due, size, crc of one that is remembered.
        answered: of an idempotency key: the digest of its request, and the message's due instant.
    """

    first: int
    key: int
    until: int | None = None
    last: tuple[int, int, int] = (0, 0, 0)
    answered: tuple[int, int] | None = None


def key_of(record: Record, at: int) -> Digest:
    """Return the hash of a row's unique key; 0, 0: it has none."""
    return (int(record.key_high[at]), int(record.key_low[at])) if len(record.key_high) else (0, 0)


def once_of(record: Record, at: int) -> Digest:
    """Return the hash of a row's idempotency key; 0, 0: it has none."""
    return (int(record.once_high[at]), int(record.once_low[at])) if len(record.once_high) else (0, 0)


class NaiveKeys:
    """The messages that unique keys name.

    Attributes:
        names: by their hashes.
        met: of the record that is being applied, the messages met by rows that did not take effect.
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

    def again(self, record: Record, at: int, age: int) -> Outcome | None:
        """Return the answer to a row whose idempotency key came before, or that only claims it; None: it goes on."""
        name = self.names.get(once_of(record, at))
        if name is None and record.claim:
            self.answer(record, at, age, (0, 0, 0))
            return Outcome.DONE
        if name is None:
            return None
        if name.answered is None or name.answered[0] != int(record.once_digest[at]):
            self.met[at] = (0, 0, 0, 0)
            return Outcome.DIFFERS
        self.met[at] = name.first, name.key >> 16, name.key & 0xFFFF, name.answered[1]
        return Outcome.KEPT

    def begin(self, record: Record, at: int, age: int, told: tuple[int, int, int]) -> None:
        """A row is a message, first, key and due: it bears its unique key, and answers for its idempotency key."""
        if (digest := key_of(record, at)) != (0, 0):
            self.take(digest, *told[:2])
        self.answer(record, at, age, told)

    def refused(self, record: Record, at: int, age: int, outcome: Outcome) -> Outcome:
        """A row has met another message by its unique key: if that is its answer, it is so for a repetition."""
        if outcome == Outcome.KEPT:
            first, sequence, row, due = self.met[at]
            self.answer(record, at, age, (first, sequence << 16 | row, due))
        return outcome

    def answer(self, record: Record, at: int, age: int, told: tuple[int, int, int]) -> None:
        """Keep what a row is told, first, key and due of a message, if it has an idempotency key."""
        digest = once_of(record, at)
        if digest != (0, 0):
            answered = int(record.once_digest[at]), told[2]
            self.names[digest] = NaiveName(told[0], told[1], age + ONCE_MS, answered=answered)

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
