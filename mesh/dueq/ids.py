"""Message ids: 16 bytes that sort by time, route themselves and find their own index entry.

Layout, big-endian: `first` (48 bits, Unix ms from which the message first waited) | partition uid (24)
| log sequence (40) | row (16). As text: 26 characters of Crockford base-32 (upper case, no I L O U),
which sort as the bytes do.

Inside a partition a message is named by its *key*, the integer `sequence << 16 | row`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dueq.errors import InvalidRequest

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
TEXT_LENGTH = 26

_PAIRS = np.array([first + second for first in ALPHABET for second in ALPHABET])
"""The text of ten bits."""
_PAIR_MASK = np.uint64(len(_PAIRS) - 1)
_AT_ONCE = 1024
_HIGH_SHIFTS = np.arange(56, 0, -10, dtype=np.uint64)
_LOW_SHIFTS = np.arange(50, -1, -10, dtype=np.uint64)
_VALUES = {c: i for i, c in enumerate(ALPHABET)}
_VALUES |= {c.lower(): i for c, i in _VALUES.items()}


class MessageId(NamedTuple):
    """A message id taken apart: `first` in Unix ms, partition uid, log sequence, row in its record."""

    first: int
    uid: int
    sequence: int
    row: int

    @property
    def key(self) -> int:
        """The message's name inside its partition: `sequence << 16 | row`."""
        return self.sequence << 16 | self.row

    def __str__(self) -> str:
        return to_text(self)


def to_text(message_id: MessageId) -> str:
    """Return the 26 characters of an id."""
    first, uid, sequence, row = message_id
    value = first << 80 | uid << 56 | sequence << 16 | row
    return "".join(ALPHABET[value >> shift & 31] for shift in range(125, -1, -5))


def first_instant(message_id: str) -> int:
    """Return the instant from which a message first waited to be delivered, Unix ms: of its window the one chosen.

    Raises:
        InvalidRequest: it is no message id.
    """
    try:
        return from_text(message_id).first
    except ValueError as error:
        raise InvalidRequest(str(error)) from None


def from_text(text: str) -> MessageId:
    """Take an id apart.

    Raises:
        ValueError: `text` is not 26 characters of Crockford base-32 of at most 128 bits.
    """
    if not isinstance(text, str) or len(text) != TEXT_LENGTH:
        raise ValueError(f"a message id has {TEXT_LENGTH} characters, not {text!r}")
    value = 0
    for character in text:
        digit = _VALUES.get(character)
        if digit is None:
            raise ValueError(
                f"message id {text!r} holds {character!r}, which is not a Crockford base-32 digit"
            )
        value = value << 5 | digit
    if value >> 128:
        raise ValueError(f"message id {text!r} is larger than 128 bits")
    return MessageId(value >> 80, value >> 56 & 0xFFFFFF, value >> 16 & 0xFFFFFFFFFF, value & 0xFFFF)


def texts(
    first: npt.NDArray[np.uint64],
    uid: int | npt.NDArray[np.uint64],
    sequence: npt.NDArray[np.uint64],
    row: npt.NDArray[np.uint16],
) -> list[str]:
    """Return the texts of many ids; the columns have one length, and `uid` is one for all or such a column."""
    count = len(first)
    if count == 0:
        return []
    of = np.full(count, uid, np.uint64) if isinstance(uid, int) else uid.astype(np.uint64)
    high = (first.astype(np.uint64) << np.uint64(16)) | (of >> np.uint64(8))
    low = of << np.uint64(56)
    low |= sequence.astype(np.uint64) << np.uint64(16)
    low |= row
    found: list[str] = []
    for begin in range(0, count, _AT_ONCE):
        found += _texts_of(high[begin : begin + _AT_ONCE], low[begin : begin + _AT_ONCE])
    return found


def _texts_of(high: npt.NDArray[np.uint64], low: npt.NDArray[np.uint64]) -> list[str]:
    """Return the texts of ids of which these are the halves."""
    pairs = np.empty((len(high), TEXT_LENGTH // 2), np.intp)
    pairs[:, :6] = (high[:, None] >> _HIGH_SHIFTS) & _PAIR_MASK
    # Six bits of the upper half are left, and four come from the lower one.
    pairs[:, 6] = ((high & np.uint64(63)) << np.uint64(4)) | (low >> np.uint64(60))
    pairs[:, 7:] = (low[:, None] >> _LOW_SHIFTS) & _PAIR_MASK
    found: list[str] = _PAIRS.take(pairs).view(f"U{TEXT_LENGTH}").ravel().tolist()
    return found
