"""Says of most keys that the disk does not have them, so that nobody has to ask it: Bloom filters, each four times the
last one.

A key sets four bits in each of two words of 64. One that was added is always said to be there, perhaps; of the others
one in a thousand is, too. Nothing is taken out.
"""

from __future__ import annotations

from hashlib import sha256
from itertools import islice
from typing import Final

import numpy as np
import numpy.typing as npt

from dueq.limits import KEY_FILTER_BYTES_MAX
from dueq_codecs.records import U64

_KEYS_FIRST: Final = 1 << 16
_GROWTH: Final = 4
_BITS_EACH: Final = 16
"""A power of two, like the others: so words are found without divisions."""
KEYS_MAX: Final = KEY_FILTER_BYTES_MAX * 8 // _BITS_EACH
"""It is of no use for more."""
_PATTERNS: Final = 1 << 12
_BITS_A_WORD: Final = 4
_PATTERN_SHIFTS: Final = np.array([[16], [28]], np.uint64)
"""Which bits of a key's first half choose its bits in either word; the lowest ones are alike in a partition."""
_WORD_SHIFTS: Final = np.array([[0], [32]], np.uint64)


def _pattern(number: int) -> int:
    """Return a word with four bits set, as good as drawn."""
    bits = dict.fromkeys(byte % 64 for byte in sha256(number.to_bytes(2, "big")).digest())
    return sum(1 << bit for bit in islice(bits, _BITS_A_WORD))


_BITS: Final = np.array([_pattern(number) for number in range(_PATTERNS)], np.uint64)


class KeyFilter:
    """The keys of one partition, by the halves of their hashes, which are spread evenly.

    Attributes:
        size: bytes.
    """

    def __init__(self) -> None:
        self.size = 0
        self._words: U64 = np.empty(0, np.uint64)  # all parts, one behind the other
        self._masks: U64 = np.empty(0, np.uint64)  # of each part: its words less one
        self._begins: U64 = np.empty(0, np.uint64)
        self._room = 0  # keys that the last part takes still

    @property
    def is_full(self) -> bool:
        """Whether it must not grow any more: it is of no use then."""
        return self.size > KEY_FILTER_BYTES_MAX

    def add(self, high: U64, low: U64) -> None:
        """Take keys in."""
        while len(low):
            if not self._room:
                self._grow()
            count = min(self._room, len(low))
            self._room -= count
            words = ((low[:count] >> _WORD_SHIFTS) & self._masks[-1]) + self._begins[-1]
            np.bitwise_or.at(self._words, words.astype(np.intp), _bits_of(high[:count]))
            high, low = high[count:], low[count:]

    def _grow(self) -> None:
        self._room = _KEYS_FIRST * _GROWTH ** len(self._masks)
        more = self._room * _BITS_EACH // 64
        self._masks = np.append(self._masks, np.uint64(more - 1))
        self._begins = np.append(self._begins, np.uint64(len(self._words)))
        words = np.zeros(len(self._words) + more, np.uint64)
        words[: len(self._words)] = self._words
        self._words, self.size = words, words.nbytes

    def perhaps(self, high: U64, low: U64) -> list[int]:
        """Return the places of those of these keys that may have been added."""
        if not len(self._masks) or not len(low):
            return []
        at = ((low >> _WORD_SHIFTS) & self._masks[:, None, None]) + self._begins[:, None, None]
        bits = _bits_of(high)
        found: list[int] = np.flatnonzero(
            ((self._words[at.astype(np.intp)] & bits) == bits).all(axis=1).any(axis=0)
        ).tolist()
        return found


def _bits_of(high: U64) -> npt.NDArray[np.uint64]:
    """Return the bits of each key in its first word, and in its second one."""
    return _BITS[((high >> _PATTERN_SHIFTS) & np.uint64(_PATTERNS - 1)).astype(np.intp)]
