"""What cannot be trusted is put aside: both databases of a folder by renaming them, one replica by copying its rows.

Two renames are two steps, and after a crash in between one database would be begun anew beside the other's old state.
So a file first says which number is being given out, and the next start goes on from there.

A copy gets its name when it is whole and synced.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from dueq.storage.port import StoreFailed

_DATABASES: Final = ("timeline", "payload")
_COPYING: Final = ".copying"
_UNDER_WAY: Final = "putting-aside"
"""A file of this name holds the number."""


def put_aside(folder: Path) -> str:
    """Rename both databases of a folder; returns their new names.

    It survives a crash: `go_on_putting_aside` finishes it.

    Raises:
        StoreFailed: the machine refuses.
    """
    number = 1
    while any(_aside(folder, name, number).exists() for name in _DATABASES):
        number += 1
    try:
        _announce(folder, number)
        return _rename(folder, number)
    except OSError as error:
        raise StoreFailed(f"{folder} cannot be put aside: {error.strerror}") from error


def _announce(folder: Path, number: int) -> None:
    with (folder / _UNDER_WAY).open("w", encoding="ascii") as file:
        file.write(str(number))
        file.flush()
        os.fsync(file.fileno())
    _sync(folder)


def go_on_putting_aside(folder: Path) -> str:
    """Finish a renaming that a crash has interrupted; returns what was put aside, "" if none was under way."""
    under_way = folder / _UNDER_WAY
    if not under_way.exists():
        return ""
    text = under_way.read_text(encoding="ascii")
    if text.isdecimal():
        return f"a start that put it aside was interrupted; kept as {_rename(folder, int(text))}"
    under_way.unlink()  # the crash came before the number was written: nothing was renamed
    return ""


def _rename(folder: Path, number: int) -> str:
    for name in _DATABASES:
        if (folder / name).exists() and not _aside(folder, name, number).exists():
            (folder / name).rename(_aside(folder, name, number))
    _sync(folder)
    (folder / _UNDER_WAY).unlink()
    _sync(folder)
    return f"{folder}/{{{','.join(_DATABASES)}}}.damaged-{number}"


def _aside(folder: Path, name: str, number: int) -> Path:
    return folder / f"{name}.damaged-{number}"


def keep_rows(folder: Path, uid: int, rows: Iterable[bytes]) -> Path:
    """Write the rows of a replica to a new file; durable when this returns.

    Raises:
        OSError: the machine refuses. There is no file then.
    """
    number = 1
    while (kept := folder / f"partition-{uid}.damaged-{number}").exists():
        number += 1
    half = folder / f"partition-{uid}{_COPYING}"
    try:
        with half.open("wb") as file:
            file.writelines(rows)
            file.flush()
            os.fsync(file.fileno())
        half.rename(kept)
        _sync(folder)
    except OSError:
        half.unlink(missing_ok=True)  # half a copy would only take what space there is
        raise
    return kept


def drop_halves(folder: Path) -> None:
    """Delete copies that a crash has interrupted."""
    for half in folder.glob(f"partition-*{_COPYING}"):
        half.unlink()


def _sync(folder: Path) -> None:
    """Make the renamings in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
