"""The state in which a power cut leaves a folder, built from the record of a process's system calls.

The model is that of a journaling file system (ext4 ordered, XFS). Each file keeps the content of its last sync. All
changes of names (made, renamed, removed) before any finished sync are kept, as a sync commits the journal. Chance
decides about later changes: the first few changes of names are kept, and a first part of each file's unsynced bytes. A
sync that had not returned at that instant has done nothing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from dueq_chaos.shell.traced import Call

_NOT_MODELLED = ("pwrite64", "writev", "ftruncate", "truncate", "renameat", "renameat2")


class NotModelled(Exception):
    """The process did something to its files that this model does not know."""


@dataclass
class _File:
    """An inode."""

    data: bytearray = field(default_factory=bytearray)
    durable: int = 0
    """Bytes of it that were synced."""


_Change = tuple[str, str, object]
"""("name", path, file), ("gone", path, None), ("moved", path, to), ("folder", path, None)."""


class Cut:
    """The folder as a power cut at some instant leaves it.

    Args:
        calls: in order; the folder was not there before.
        at_us: when, Unix µs.
    """

    def __init__(self, calls: list[Call], at_us: int) -> None:
        self._names: dict[str, _File] = {}
        self._changes: list[_Change] = []
        self._durable = 0
        pending: list[tuple[int, Call, int, _File | None, int]] = []
        for call in calls:
            if call.began_us > at_us:
                break
            self._finish(pending, call.began_us)
            if call.is_sync:
                file = self._names.get(call.paths[0])
                pending.append((call.done_us, call, len(self._changes), file, len(file.data) if file else 0))
            elif not call.wakes:
                self._change(call)
        self._finish(pending, at_us)

    def _finish(self, pending: list[tuple[int, Call, int, _File | None, int]], until_us: int) -> None:
        """Syncs that have returned by then: the state when they began is durable."""
        for sync in [sync for sync in pending if sync[0] <= until_us]:
            pending.remove(sync)
            _, _, changes, file, size = sync
            self._durable = max(self._durable, changes)
            if file is not None:
                file.durable = max(file.durable, size)

    def _change(self, call: Call) -> None:
        if call.name == "openat":
            path = call.paths[-1]
            if "O_CREAT" in call.flags and (path not in self._names or "O_TRUNC" in call.flags):
                self._names[path] = _File()
                self._changes.append(("name", path, self._names[path]))
        elif call.name == "write":
            self._names[call.paths[0]].data += call.data[: call.result]
        elif call.name == "rename":
            source, target = call.paths
            self._names[target] = self._names.pop(source, _File())
            self._changes.append(("moved", source, target))
        elif call.name in ("unlink", "unlinkat"):
            self._names.pop(call.paths[-1], None)
            self._changes.append(("gone", call.paths[-1], None))
        elif call.name in ("mkdir", "mkdirat"):
            self._changes.append(("folder", call.paths[-1], None))
        elif call.name in _NOT_MODELLED:
            raise NotModelled(f"{call.name} of {call.paths}")

    def leave(self, was: Path, into: Path, random: Random | None) -> None:
        """Write what is left into another folder.

        Args:
            was: the folder that the process had.
            into: where to.
            random: decides how much is left of unsynced changes; None: nothing.
        """
        kept = self._durable if random is None else random.randint(self._durable, len(self._changes))
        names: dict[str, _File] = {}
        folders: list[str] = []
        for what, path, other in self._changes[:kept]:
            if what == "name":
                assert isinstance(other, _File)
                names[path] = other
            elif what == "moved":
                names[str(other)] = names.pop(path, _File())
            elif what == "gone":
                names.pop(path, None)
            else:
                folders.append(path)
        for folder in [str(was), *folders]:
            (into / os.path.relpath(folder, was)).mkdir(parents=True, exist_ok=True)
        for path, file in names.items():
            size = file.durable if random is None else _some(file, random)
            (into / os.path.relpath(path, was)).write_bytes(file.data[:size])


def _some(file: _File, random: Random) -> int:
    unsynced = len(file.data) - file.durable
    return file.durable + random.choice([0, unsynced, random.randint(0, unsynced)])
