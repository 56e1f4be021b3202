"""Groups of messages in a fair topic: their names, and the settings that each may have.

A name is UTF-8 text; dots divide it into levels: `acme.reports.eu` is a group of `acme.reports`, which is one of
`acme`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Protocol
from zlib import crc32

import numpy as np

from dueq_codecs.documents import decode_document
from dueq_codecs.records import NO_U16, U16
from dueq_codecs.topic_settings import RATE_MAX

GROUP_BYTES_MAX: Final = 255
"""Longest name of a group."""
GROUP_LEVELS_MAX: Final = 16
"""Most levels of a name."""
WEIGHT_MAX: Final = 1000
UNACKED_MAX: Final = 1_000_000


class GroupRefused(ValueError):
    """A name or setting of a group is outside its limits; the text names the value and the limit."""


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The settings of a group and all groups below it."""

    weight: int = 1
    """Messages that it gets when it is its turn, 1 to 1,000."""
    max_unacked: int = 0
    """Messages that consumers may hold at once; 0: no limit."""
    paused: bool = False
    """None of its messages is delivered."""
    rate: int = 0
    """Messages a second that are delivered at most; 0: no limit."""
    burst: int = 0
    """How many of them at once; 0: as many as in a second."""

    def encode(self) -> str:
        """Return the settings as JSON; equal ones have equal bytes."""
        return encode_group_changes(asdict(self))


AS_CREATED: Final = GroupSettings()
_LIMITS: Final = {
    "weight": (1, WEIGHT_MAX),
    "max_unacked": (0, UNACKED_MAX),
    "rate": (0, RATE_MAX),
    "burst": (0, RATE_MAX),
}


def check_group_changes(changes: Mapping[str, Any]) -> None:
    """Check the settings for a group.

    Raises:
        GroupRefused: a name is not known, or a value is outside its limits; or nothing is set.
    """
    if not changes:
        raise GroupRefused(f"nothing is set: a group has {', '.join(_LIMITS)}, paused")
    for name, value in changes.items():
        if name == "paused":
            if type(value) is not bool:
                raise GroupRefused(f"paused is true or false, not {value!r:.80}")
        elif name not in _LIMITS:
            raise GroupRefused(f"a group has no setting {name!r:.80}; it has {', '.join(_LIMITS)}, paused")
        elif type(value) is not int or not _LIMITS[name][0] <= value <= _LIMITS[name][1]:
            raise GroupRefused(f"{name} is {_LIMITS[name][0]} to {_LIMITS[name][1]}, not {value!r:.80}")


def encode_group_changes(changes: Mapping[str, Any]) -> str:
    """Return changes as JSON; equal ones have equal bytes."""
    return json.dumps(dict(changes), sort_keys=True, separators=(",", ":"))


def decode_group_changes(document: str) -> dict[str, Any]:
    """Return what a document sets for a group.

    Raises:
        GroupRefused: it is no such document.
    """
    try:
        found = decode_document(document)
    except ValueError as error:
        raise GroupRefused(
            f"settings of a group are a JSON object, not {document[:200]!r}: {error}"
        ) from error
    check_group_changes(found)
    return found


def check_group(name: str) -> None:
    """Check the name of a group; the empty one is that of messages without a group.

    Raises:
        GroupRefused: it is longer than 255 bytes of UTF-8, has an empty level, or more than 16 levels.
    """
    try:
        size = len(name.encode())
    except UnicodeEncodeError as error:
        raise GroupRefused(f"the group {name!r:.80} is not Unicode text: {error.reason}") from None
    if size > GROUP_BYTES_MAX:
        raise GroupRefused(f"a group has at most {GROUP_BYTES_MAX} bytes of UTF-8, not {size}: {name!r:.80}")
    levels = name.split(".")
    if name and "" in levels:
        raise GroupRefused(f"the group {name!r:.80} has an empty level; dots stand between levels")
    if len(levels) > GROUP_LEVELS_MAX:
        raise GroupRefused(f"a group has at most {GROUP_LEVELS_MAX} levels, not {len(levels)}: {name!r:.80}")


def levels_of(name: str) -> list[str]:
    """Return a group and those above it, the topmost first; none for messages without a group."""
    parts = name.split(".") if name else []
    return [".".join(parts[: at + 1]) for at in range(len(parts))]


def home_of_group(name: str, partitions: int) -> int:
    """Return the index in the topic of the partition that has a group: its first level decides.

    Args:
        name: of the group.
        partitions: how many of the topic are home to anything.
    """
    return crc32(name.partition(".")[0].encode()) % partitions


class Grouped(Protocol):
    """Rows that may have groups: a request, or a part of one."""

    @property
    def rows(self) -> int: ...
    @property
    def group(self) -> U16: ...
    @property
    def groups(self) -> tuple[str, ...]: ...


def joined_groups(pieces: Sequence[Grouped]) -> tuple[tuple[str, ...], U16]:
    """Return the names of all groups, each once, and the place of each row's among them; empty: there are none."""
    if not any(len(piece.group) for piece in pieces):
        return (), NO_U16
    places: dict[str, int] = {}
    columns = []
    for piece in pieces:
        named = np.array([places.setdefault(name, len(places)) for name in piece.groups or ("",)], np.uint16)
        columns.append(named[piece.group] if len(piece.group) else np.repeat(named, piece.rows))
    return tuple(places), np.concatenate(columns)
