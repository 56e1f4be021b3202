"""The groups of one partition of a fair topic: the number of each name, and its settings.

Entries carry the number of their group. A group gets its number with its first message, or when something is set for
it. It is forgotten when it has neither messages nor settings. Its number is used again only when all others have been
given since: a topic may have millions of groups a day, each for one message. Everything happens inside `apply`: a
function of the log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from struct import Struct
from typing import Final

import numpy as np
import numpy.typing as npt
from sortedcontainers import SortedDict

from dueq.core.ports.entry import Entries, is_wide
from dueq.core.ports.tables import TableRow
from dueq.core.state.applied import Applied
from dueq.core.state.side_table import Messages
from dueq.errors import UnknownVersion, invariant
from dueq_codecs.groups import AS_CREATED, GroupSettings, decode_group_changes, levels_of
from dueq_codecs.records import U8, U32, Record

_HEAD: Final = Struct("<BQH")
_ROW_VERSION: Final = 1
_GIVEN: Final = b""
"""The key of the row that says which number was given last."""
_NUMBER_BYTES: Final = 4
_NUMBER_MAX: Final = (1 << 8 * _NUMBER_BYTES) - 1


@dataclass(slots=True)
class Group:
    """One group.

    Attributes:
        name: "acme.reports".
        number: in this partition; 0 is that of messages without a group.
        messages: how many it has, leased and dead ones included.
        settings: those set for it; None: none.
        saved: the disk has it.
    """

    name: str
    number: int
    messages: int = 0
    settings: GroupSettings | None = None
    saved: bool = False

    def pack(self) -> bytes:
        """Return the group as a row."""
        name, settings = self.name.encode(), self.settings.encode().encode() if self.settings else b""
        return _HEAD.pack(_ROW_VERSION, self.messages, len(name)) + name + settings


def _unpack(key: bytes, value: bytes) -> Group:
    version, messages, length = _HEAD.unpack_from(value)
    if version != _ROW_VERSION:
        raise UnknownVersion(f"a group of version {version}; this build knows {_ROW_VERSION}")
    end = _HEAD.size + length
    settings = GroupSettings(**decode_group_changes(value[end:].decode())) if len(value) > end else None
    return Group(value[_HEAD.size : end].decode(), int.from_bytes(key, "big"), messages, settings, saved=True)


class GroupTable:
    """All groups of one partition.

    Attributes:
        by_name: every group.
        by_number: the same.
        limited: groups for which something is set, by name.
        paused: the names of those that are paused.
        forgotten: the numbers of those that the last record has found to have nothing.
    """

    def __init__(self) -> None:
        self.by_name: SortedDict[str, Group] = SortedDict()
        self.by_number: dict[int, Group] = {}
        self.limited: dict[str, Group] = {}
        self.paused: set[str] = set()
        self.forgotten: list[int] = []
        self._given = 0
        self._idle: dict[int, None] = {}
        self._changed: dict[int, None] = {}
        self._given_changed = False

    def recover(self, rows: list[TableRow]) -> None:
        """Begin with what the last checkpoint left.

        Raises:
            UnknownVersion: a newer build wrote a row.
        """
        for key, value in rows:
            if value is None:
                continue
            if key == _GIVEN:
                self._given = int.from_bytes(value, "big")
            else:
                self._add(_unpack(key, value))

    def _add(self, group: Group) -> None:
        self.by_name[group.name] = self.by_number[group.number] = group
        if group.settings is not None:
            self._limit(group.name, group)
        if not group.messages:
            self._idle[group.number] = None

    @property
    def has_idle(self) -> bool:
        """Whether a group may have nothing, and is forgotten by the next record if so."""
        return bool(self._idle)

    # ------------------------------------------------------------ records

    def numbers(self, names: Sequence[str], used: Sequence[int]) -> U32:
        """Return the number of each name of an INSERT; new groups get theirs, in order.

        Args:
            names: as the record has them.
            used: the places among them of those that rows take effect for, ascending; the others get 0.
        """
        found = np.zeros(len(names), np.uint32)
        for place in used:
            found[place] = self._begin(names[place]).number if names[place] else 0
        return found

    def _begin(self, name: str) -> Group:
        group: Group | None = self.by_name.get(name)
        if group is None:
            group = Group(name, self._next_number())
            self._idle[group.number] = None  # until it has a message: a row with a unique key may have none
            self._add(group)
        return group

    def _next_number(self) -> int:
        """Return the number of a new group: the next one that none has."""
        self._given = self._given % _NUMBER_MAX + 1
        while self._given in self.by_number:
            self._given = self._given % _NUMBER_MAX + 1
        self._given_changed = True
        return self._given

    def apply(self, record: Record, age_ms: int, messages: Messages, applied: Applied) -> U8:
        """Apply a GROUP record: set something for a group, which keeps what the record does not name."""
        group = self._begin(record.name)
        settings = replace(group.settings or AS_CREATED, **decode_group_changes(record.document))
        group.settings = settings if settings != AS_CREATED else None
        self._limit(group.name, group if group.settings is not None else None)
        if group.settings is None:
            self._idle[group.number] = None
        self._changed[group.number] = None
        return np.zeros(1, np.uint8)

    def _limit(self, name: str, group: Group | None) -> None:
        """Something is set for a group; None: nothing is any more.

        Older builds let something be set for the empty name. It must not hold the messages that have no group.
        """
        if not name:
            return
        if group is None:
            self.limited.pop(name, None)
        else:
            self.limited[name] = group
        if group is not None and group.settings is not None and group.settings.paused:
            self.paused.add(name)
        else:
            self.paused.discard(name)

    def expire(self, age_ms: int, stamp: int) -> None:
        """Forget groups that have nothing."""
        self.forgotten = []
        for number in self._idle:
            group = self.by_number[number]
            if group.messages or group.settings is not None:
                continue
            del self.by_name[group.name], self.by_number[number]
            self.forgotten.append(number)
            if group.saved:
                self._changed[number] = None
            else:
                self._changed.pop(number, None)
        self._idle.clear()

    # ------------------------------------------------------------ messages

    def count(self, rows: Entries, waiting: int, leased: int, dead: int = 0) -> None:
        """Count messages that begin (1) or stop (-1) to wait, to be leased or to be dead."""
        if not is_wide(rows) or not self.by_number:
            return
        column = rows["group"]
        if not np.count_nonzero(column):
            return
        for number, count in Counter(column.tolist()).items():
            if not number:
                continue
            group = self.by_number[number]
            group.messages += (waiting + leased + dead) * count
            invariant(group.messages >= 0, "a group has fewer messages than none", group=group.name)
            self._changed[number] = None
            if not group.messages:
                self._idle[number] = None

    def are_paused(self, rows: Entries) -> npt.NDArray[np.bool_] | None:
        """Return which messages are of a group that is paused, or is below one that is; None: none is."""
        if not self.paused or not is_wide(rows):
            return None
        numbers, inverse = np.unique(rows["group"], return_inverse=True)
        names = (self.name_of(number) or "" for number in numbers.tolist())
        found = np.array([any(level in self.paused for level in levels_of(name)) for name in names], np.bool_)
        return found[inverse] if found.any() else None

    def name_of(self, number: int) -> str | None:
        """Return the name of a group; None: nothing is left of it."""
        if not number:
            return ""
        group = self.by_number.get(number)
        return group.name if group is not None else None

    def after(self, name: str, limit: int) -> list[Group]:
        """Return the next groups by name after a name, at most this many; forgotten ones are not among them."""
        names = self.by_name.irange(name, inclusive=(False, True))
        groups: list[Group] = []
        for each in names:
            if len(groups) == limit:
                break
            group: Group = self.by_name[each]
            if not self._is_gone(group):
                groups.append(group)
        return groups

    # ------------------------------------------------------------ checkpoints

    def changed_rows(self) -> list[TableRow]:
        """Return the rows that changed since the last call; from now on they count as being on disk."""
        rows = []
        if self._given_changed:
            rows.append(TableRow(_GIVEN, self._given.to_bytes(_NUMBER_BYTES, "big")))
            self._given_changed = False
        for number in self._changed:
            group = self.by_number.get(number)
            key = number.to_bytes(_NUMBER_BYTES, "big")
            rows.append(TableRow(key, group.pack() if group is not None else None))
            if group is not None:
                group.saved = True
        self._changed.clear()
        return rows

    def export(self) -> object:
        """Return everything known: numbers given, and each group's packed row."""
        return self._given, sorted(
            (group.number, group.pack().hex()) for group in self.by_name.values() if not self._is_gone(group)
        )

    def _is_gone(self, group: Group) -> bool:
        """Whether the next record forgets it."""
        return group.number in self._idle and not group.messages and group.settings is None
