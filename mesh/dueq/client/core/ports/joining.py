"""The columns of a request, made of those of its parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from dueq_codecs.records import NO_U8, NO_U16, NO_U32, NO_U64, U16

Body = bytes | memoryview
Scalar = TypeVar("Scalar", bound=np.generic)

_ALIKE = ("first", "target_sequence", "target_row", "token", "due", "size", "crc", "upload", "key_high", "key_low",
          "once_high", "once_low", "once_digest")  # fmt: skip
"""Columns that all parts of a request have, or none."""
_FILLED: Final[dict[str, npt.NDArray[Any]]] = {
    "amount_ms": NO_U64, "rank": NO_U16, "expected": NO_U64, "window": NO_U32, "expires": NO_U64,
    "attempts_max": NO_U16, "fate": NO_U8,
}  # fmt: skip
"""Columns in which the rows of parts that do not say anything are 0; each without rows."""
_ALL: Final = (*_ALIKE, *_FILLED)


class Rows(Protocol):
    """What is looked at of a part, besides its columns."""

    rows: int
    reasons: Sequence[str]
    inline: Sequence[Body]


def columns_of(parts: Sequence[Rows]) -> dict[str, npt.NDArray[Any]]:
    """Return the columns of a request by their names."""
    if len(parts) == 1:
        return {name: getattr(parts[0], name) for name in _ALL}
    alike: dict[str, npt.NDArray[Any]] = {name: getattr(parts[0], name) for name in _ALIKE}
    for name, column in alike.items():
        if len(column):
            alike[name] = joined([getattr(part, name) for part in parts])
    return alike | {name: _filled(name, parts) for name in _FILLED}


def reasons_of(parts: Sequence[Rows]) -> tuple[tuple[str, ...], U16]:
    """Return all reasons, each once, and the place of each row's; empty: there are none."""
    if not any(part.reasons for part in parts):
        return (), NO_U16
    places: dict[str, int] = {}
    texts = [text for part in parts for text in part.reasons or [""] * part.rows]
    column = [places.setdefault(text, len(places)) for text in texts]
    return tuple(places), np.array(column, np.uint16)


def bodies_of(parts: Sequence[Rows]) -> list[Body]:
    """Return the payloads of all parts as one body, if there are any."""
    pieces = [piece for part in parts for piece in part.inline]
    if not pieces:
        return []
    return pieces if len(pieces) == 1 else [b"".join(pieces)]


def joined(columns: Sequence[npt.NDArray[Scalar]]) -> npt.NDArray[Scalar]:
    """Return columns one behind the other."""
    return columns[0] if len(columns) == 1 else np.concatenate(columns)


def _filled(name: str, parts: Sequence[Rows]) -> npt.NDArray[Any]:
    columns: list[npt.NDArray[Any]] = [getattr(part, name) for part in parts]
    empty = _FILLED[name]
    if not any(map(len, columns)):
        return empty
    return joined([
        column if len(column) else np.zeros(part.rows, empty.dtype)
        for part, column in zip(parts, columns, strict=True)
    ])  # fmt: skip
