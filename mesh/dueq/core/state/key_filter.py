"""Says of most keys that the disk does not have them, so that the disk need not be asked: Bloom filters, each four
times the size of the last one.

A key sets four bits in each of two words of 64. For a key that was added the answer is always "perhaps". It is also
"perhaps" for one in ten thousand of the other keys, for each full filter. Nothing is taken out.
"""

from __future__ import annotations

from hashlib import sha256
from itertools import islice
from typing import Final

import numpy as np
import numpy.typing as npt

from dueq.limits import KEY_FILTER_BYTES_MAX
from dueq_codecs.records import U64

_WORDS_FIRST: Final = 1 << 14
_GROWTH: Final = 4
"""Powers of two: so words are found without divisions."""
_BITS_EACH: Final = 24
"""With 16 of them one new key in three hundred had to be looked for on the disk when there were some millions: one or
more of most INSERTs."""
KEYS_MAX: Final = KEY_FILTER_BYTES_MAX * 8 // _BITS_EACH
"""It is of no use for more."""
_PATTERNS: Final = 1 << 12
_BITS_A_WORD: Final = 4
_PATTERN_SHIFTS: Final = np.uint64(16), np.uint64(28)
"""Which bits of a key's first half choose its bits in either word; the lowest ones are alike in a partition."""
_WORD_SHIFTS: Final = np.uint64(0), np.uint64(32)


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
            for word in (0, 1):
                at = _places(low[:count], word, self._masks[-1], self._begins[-1])
                np.bitwise_or.at(self._words, at, _bits_of(high[:count], word))
            high, low = high[count:], low[count:]

    def _grow(self) -> None:
        more = _WORDS_FIRST * _GROWTH ** len(self._masks)
        self._room = more * 64 // _BITS_EACH
        self._masks = np.append(self._masks, np.uint64(more - 1))
        self._begins = np.append(self._begins, np.uint64(len(self._words)))
        words = np.zeros(len(self._words) + more, np.uint64)
        words[: len(self._words)] = self._words
        self._words, self.size = words, words.nbytes

    def perhaps(self, high: U64, low: U64) -> list[int]:
        """Return the places of those of these keys that may have been added."""
        if not len(self._masks) or not len(low):
            return []
        bits = _bits_of(high, 0)
        at = _places(low, 0, self._masks[:, None], self._begins[:, None])
        like = np.flatnonzero((self._words.take(at) & bits) == bits)
        if not len(like):
            return []
        # One in a hundred comes so far.
        part, place = like // len(low), like % len(low)
        bits = _bits_of(high.take(place), 1)
        at = _places(low.take(place), 1, self._masks.take(part), self._begins.take(part))
        return sorted(set(place[(self._words.take(at) & bits) == bits].tolist()))


def _places(low: U64, word: int, masks: U64 | np.uint64, begins: U64 | np.uint64) -> npt.NDArray[np.intp]:
    """Return where the first or the second word of each key is, in filters of these masks and beginnings."""
    return (((low >> _WORD_SHIFTS[word]) & masks) + begins).view(np.intp)


def _bits_of(high: U64, word: int) -> U64:
    """Return the bits of each key in its first or its second word."""
    return _BITS.take(((high >> _PATTERN_SHIFTS[word]) & np.uint64(_PATTERNS - 1)).view(np.intp))
