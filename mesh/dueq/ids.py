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

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
TEXT_LENGTH = 26

_DIGITS = np.frombuffer(ALPHABET.encode(), dtype=np.uint8)
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
        ValueError: it is no message id.
    """
    return from_text(message_id).first


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
    first: npt.NDArray[np.uint64], uid: int, sequence: npt.NDArray[np.uint64], row: npt.NDArray[np.uint16]
) -> list[str]:
    """Return the texts of many ids of one partition; the three columns have one length."""
    count = len(first)
    if count == 0:
        return []
    high = (first.astype(np.uint64) << np.uint64(16)) | np.uint64(uid >> 8)
    low = (
        np.uint64((uid & 0xFF) << 56) | (sequence.astype(np.uint64) << np.uint64(16)) | row.astype(np.uint64)
    )
    characters = np.empty((count, TEXT_LENGTH), dtype=np.uint8)
    for position in range(TEXT_LENGTH):
        shift = 125 - 5 * position
        if shift >= 64:
            digits = high >> np.uint64(shift - 64)
        elif shift + 5 <= 64:
            digits = low >> np.uint64(shift)
        else:
            digits = (high << np.uint64(64 - shift)) | (low >> np.uint64(shift))
        characters[:, position] = _DIGITS[(digits & np.uint64(31)).astype(np.intp)]
    joined = characters.tobytes().decode("ascii")
    return [joined[i : i + TEXT_LENGTH] for i in range(0, len(joined), TEXT_LENGTH)]
