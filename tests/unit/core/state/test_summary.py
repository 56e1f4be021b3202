"""The fixed part of a checkpoint: a build that knows no levels reads it as long as no level was reached."""

from __future__ import annotations

import pytest

from dueq.core.state.summary import Summary
from dueq.errors import UnknownVersion


@pytest.mark.parametrize(("level", "version", "size"), [(1, 3, 41), (2, 4, 59), (300, 4, 59)])
def test_the_level_is_there_once_it_was_reached(level: int, version: int, size: int) -> None:
    summary = Summary(5, 4, 3, 2, 1, level, *((7, 8) if level > 1 else ()))
    packed = summary.pack()
    assert (packed[0], len(packed)) == (version, size)
    assert Summary.unpack(packed) == summary


def test_another_version_is_a_newer_builds() -> None:
    with pytest.raises(UnknownVersion, match="version 9; this build knows 3 and 4"):
        Summary.unpack(b"\x09" + bytes(50))
    assert Summary.unpack(b"") == Summary()
