"""Rows of an array as bytes, each by itself: numpy cuts them several times faster than a loop does."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def cut_rows(rows: npt.NDArray[Any]) -> list[bytes]:
    """Return the bytes of each row of an array: of each element, or of each line of one with two dimensions."""
    if not len(rows):
        return []
    rows = np.ascontiguousarray(rows)
    width = rows.nbytes // len(rows)
    found: list[bytes] = rows.view(np.uint8).reshape(len(rows), width).view(f"V{width}").ravel().tolist()
    return found
