"""Says of most keys that the disk does not have them, so that nobody has to ask it: Bloom filters, each four times the
last one.

A key that was added is always said to be there, perhaps. Of the others one in fifty is, too. Nothing is taken out.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from dueq.core.ports.names import HASH_BYTES
from dueq.limits import KEY_FILTER_BYTES_MAX
from dueq_codecs.records import U64

_KEYS_FIRST: Final = 1 << 16
_GROWTH: Final = 4
_BITS_EACH: Final = 16
"""A power of two, like the others: so places are found without divisions."""
_PROBES: Final = np.arange(3, dtype=np.uint64)


class KeyFilter:
    """The keys of one partition, by their hashes, which are spread evenly.

    Attributes:
        size: bytes.
    """

    def __init__(self) -> None:
        self.size = 0
        self._parts: list[npt.NDArray[np.uint8]] = []
        self._room = 0  # keys that the last part takes still

    @property
    def is_full(self) -> bool:
        """Whether it must not grow any more: it is of no use then."""
        return self.size > KEY_FILTER_BYTES_MAX

    def add(self, hashes: list[bytes]) -> None:
        """Take keys in."""
        while hashes:
            if not self._room:
                self._room = _KEYS_FIRST * _GROWTH ** len(self._parts)
                self._parts.append(np.zeros(self._room * _BITS_EACH // 8, np.uint8))
                self.size += len(self._parts[-1])
            some, hashes = hashes[: self._room], hashes[self._room :]
            self._room -= len(some)
            part = self._parts[-1]
            place, bit = _places(_halves(some), part)
            np.bitwise_or.at(part, place.ravel(), bit.ravel())

    def perhaps(self, hashes: list[bytes]) -> list[bytes]:
        """Return those of these keys that may have been added."""
        if not self._parts or not hashes:
            return []
        halves = _halves(hashes)
        found = np.zeros(len(hashes), np.bool_)
        for part in self._parts:
            place, bit = _places(halves, part)
            found |= ((part[place] & bit) != 0).all(axis=1)
        return [hashes[at] for at in np.flatnonzero(found).tolist()]


def _halves(hashes: list[bytes]) -> U64:
    return np.frombuffer(b"".join(hashes), ">u8").reshape(-1, HASH_BYTES // 8).astype(np.uint64)


def _places(halves: U64, part: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.uint8]]:
    """Return where the bits of each key are: bytes, and bits in them."""
    at = (halves[:, :1] + (halves[:, 1:] | np.uint64(1)) * _PROBES) & np.uint64(8 * len(part) - 1)
    return (at >> np.uint64(3)).astype(np.intp), np.uint8(1) << (at & np.uint64(7)).astype(np.uint8)
