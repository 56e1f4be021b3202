"""The kinds of stores, and how one is found by its name.

Kinds of other packages are entry points of the group `dueq.stores`: the name is the value of the setting `store`, and
the object is a `StoreKind`. A folder belongs to one kind. Kinds other than LevelDB's leave their name in a file of the
folder. A folder of LevelDB's has no such file, as there were such folders before there were kinds.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dueq.errors import InvalidRequest

if TYPE_CHECKING:  # a command line that asks for a name need not load what a store needs
    from dueq.storage.port import Store

GROUP: Final = "dueq.stores"
DEFAULT: Final = "leveldb"
_BUILT_IN: Final = {"leveldb": ("dueq.storage.leveldb", True), "memory": ("dueq.storage.memory", False)}
"""Module, and whether it is durable, so that the module need not be loaded to know it."""
_NAME_FILE: Final = "store"


@dataclass(frozen=True, slots=True)
class Opening:
    """The settings of a store, given when it is opened.

    Attributes:
        broker_id: whose it is.
        folder: where a store on the disk keeps everything; None for a kind that is not durable.
        memory_bytes: how much a store in memory may hold.
    """

    broker_id: str
    folder: Path | None
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class StoreKind:
    """One kind of store.

    Attributes:
        name: as the setting `store` has it.
        durable: what a commit has written is there after the process has ended, in whatever way. One that is not
            durable begins a new store, with a new `store_id`, at each opening.
        open: opens a broker's store, or begins it. Raises InvalidRequest where it is in use, or of another broker;
            UnknownVersion where only another build can read it; StoreFailed where the machine refuses.
    """

    name: str
    durable: bool
    open: Callable[[Opening], Store]


def names() -> list[str]:
    """Return every kind's name, sorted."""
    return sorted({*_BUILT_IN, *(found.name for found in entry_points(group=GROUP))})


def is_durable(name: str) -> bool:
    """Say whether a kind is durable, and so needs a folder.

    Raises:
        InvalidRequest: as `kind_of`.
    """
    return _BUILT_IN[name][1] if name in _BUILT_IN else kind_of(name).durable


def kind_of(name: str) -> StoreKind:
    """Find a kind.

    Raises:
        InvalidRequest: there is none of this name, or its package cannot be loaded.
    """
    if name in _BUILT_IN:
        built_in: StoreKind = import_module(_BUILT_IN[name][0]).KIND
        return built_in
    found = next(iter(entry_points(group=GROUP, name=name)), None)
    if found is None:
        raise InvalidRequest(f"there is no store {name!r}; there are {', '.join(names())}")
    return _loaded(found)


def _loaded(found: EntryPoint) -> StoreKind:
    try:
        kind = found.load()
    except (ImportError, AttributeError) as error:
        raise InvalidRequest(f"the store {found.name!r} ({found.value}) cannot be loaded: {error}") from error
    if not isinstance(kind, StoreKind) or kind.name != found.name:
        raise InvalidRequest(f"{found.value} is no StoreKind called {found.name!r}, but {kind!r}")
    return kind


def open_store(kind: StoreKind, opening: Opening) -> Store:
    """Open a broker's store.

    Raises:
        InvalidRequest: the folder holds another kind's store. Otherwise as `StoreKind.open`.
    """
    if opening.folder is not None:
        _claim(opening.folder, kind)
    return kind.open(opening)


def _claim(folder: Path, kind: StoreKind) -> None:
    found = kind_in(folder)
    if found not in ("", kind.name):
        raise InvalidRequest(
            f"the data folder {folder} holds a store of the kind {found!r}, not {kind.name!r}: "
            f"name another folder, or that kind"
        )
    if kind.durable and kind.name != DEFAULT and not found:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / _NAME_FILE).open("w", encoding="utf-8") as file:
            file.write(kind.name)
            file.flush()
            os.fsync(file.fileno())


def kind_in(folder: Path) -> str:
    """Return the name of the kind whose store a folder holds, "" if it holds none."""
    try:
        return (folder / _NAME_FILE).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return DEFAULT if (folder / "timeline").exists() else ""
