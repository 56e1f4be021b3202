"""The kinds of fields that a table can have: each knows its bytes and its value in Python."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Final

import numpy as np

from dueq_codecs.frame_error import FrameError

ID_BYTES: Final = 16
_TEXTS_MAX: Final = 1 << 16
"""Texts of one list: rows name them by u16, and reading each takes as long as a row."""

_U32: Final = struct.Struct("<I")
_ZEROS: Final = tuple(bytes(count) for count in range(5))

_SCHEMA_TYPES: Final = {"Q": "ulong", "q": "long", "I": "uint", "H": "ushort", "B": "ubyte", "?": "bool"}


class Scalar:
    """A number inside the table; an absent one is 0 (and an error where the enumeration has no 0)."""

    def __init__(self, name: str, code: str, values: type[IntEnum] | None = None) -> None:
        """Declare it.

        Args:
            name: the field's name, in the schema and in the message.
            code: its `struct` character.
            values: the enumeration that it must be a member of.
        """
        self.name = name
        self.code = code
        self.inline_code = code.replace("?", "B")
        self.inline_bytes = struct.calcsize("<" + self.inline_code)
        self.members: dict[int, Any] | None = {member.value: member for member in values} if values else None
        """The value of each number; None: the number itself."""
        if code == "?":
            self.members = {0: False, 1: True}
        self.absent: Any = self.members.get(0) if self.members else 0
        self.schema_type = _SCHEMA_TYPES[code]


class Vector:
    """A sequence of equal items outside the table. Subclasses say what the items are in Python."""

    inline_bytes = 4
    """Of the offset inside the table."""
    inline_code = "I"
    item_bytes = 1
    absent: Any = ()
    """The value of an absent (or empty) vector; None when there has to be one."""
    schema_type = "[ubyte]"

    def __init__(self, name: str) -> None:
        self.name = name

    def pack(self, value: Any) -> tuple[int, bytes]:
        """Return the number of items and their bytes.

        Raises:
            ValueError: the value does not fit this field.
        """
        raise NotImplementedError

    def unpack(self, body: memoryview, start: int, count: int) -> Any:
        """Return the value of `count` items from `start`; the caller has checked that they lie inside `body`.

        Raises:
            FrameError: the items are not what they must be.
        """
        raise NotImplementedError


class Text(Vector):
    """A string, UTF-8."""

    absent = ""
    schema_type = "string"

    def pack(self, value: str) -> tuple[int, bytes]:
        data = value.encode()
        return len(data), data

    def unpack(self, body: memoryview, start: int, count: int) -> str:
        try:
            return str(body[start : start + count], "utf-8")
        except UnicodeDecodeError as error:
            raise FrameError(f"{self.name} is not UTF-8") from error


class Octets(Vector):
    """Opaque bytes of any length."""

    absent: Any = b""

    def pack(self, value: bytes) -> tuple[int, bytes]:
        return len(value), value

    def unpack(self, body: memoryview, start: int, count: int) -> bytes:
        return bytes(body[start : start + count])


class Id(Octets):
    """An id of exactly 16 bytes; never absent."""

    absent = None

    def pack(self, value: bytes) -> tuple[int, bytes]:
        if len(value) != ID_BYTES:
            raise ValueError(f"{self.name} has {len(value)} bytes, not {ID_BYTES}")
        return ID_BYTES, value

    def unpack(self, body: memoryview, start: int, count: int) -> bytes:
        if count != ID_BYTES:
            raise FrameError(f"{self.name} has {count} bytes, not {ID_BYTES}")
        return bytes(body[start : start + count])


class Ids(Vector):
    """A tuple of ids of 16 bytes, one after the other."""

    def pack(self, value: Sequence[bytes]) -> tuple[int, bytes]:
        if any(len(item) != ID_BYTES for item in value):
            raise ValueError(f"{self.name} holds an id that has not {ID_BYTES} bytes")
        data = b"".join(value)
        return len(data), data

    def unpack(self, body: memoryview, start: int, count: int) -> tuple[bytes, ...]:
        if count % ID_BYTES:
            raise FrameError(f"{self.name} has {count} bytes, which is no multiple of {ID_BYTES}")
        data = bytes(body[start : start + count])
        return tuple(data[at : at + ID_BYTES] for at in range(0, count, ID_BYTES))


class Column(Vector):
    """A numpy column; reading gives a read-only view of the frame."""

    def __init__(self, name: str, code: str, values: type[IntEnum] | None = None) -> None:
        """Declare it.

        Args:
            name: the field's name, in the schema and in the message.
            code: `struct` character of the items.
            values: the enumeration that each item must be a member of; its members are 0, 1, 2, …
        """
        super().__init__(name)
        self.dtype = np.dtype("<" + code)
        self.item_bytes = self.dtype.itemsize
        self.schema_type = f"[{_SCHEMA_TYPES[code]}]"
        self.absent = np.empty(0, self.dtype)
        self.largest = max(values) if values else None

    def pack(self, value: Any) -> tuple[int, bytes]:
        if value.dtype != self.dtype:
            raise ValueError(f"column {self.name} has dtype {value.dtype}, not {self.dtype}")
        return len(value), value.tobytes()

    def unpack(self, body: memoryview, start: int, count: int) -> Any:
        column = np.frombuffer(body, self.dtype, count, start)
        if self.largest is not None and int(column.max()) > self.largest:
            raise FrameError(f"{self.name} holds {int(column.max())}, which is none of its values")
        return column


class Structs(Vector):
    """A vector of structs: a structured numpy array without gaps; reading gives a read-only view of the frame."""

    def __init__(self, name: str, dtype: np.dtype[Any], schema_name: str) -> None:
        """Declare it.

        Args:
            name: the field's name, in the schema and in the message.
            dtype: of the items, field by field as in the schema's struct.
            schema_name: of that struct.
        """
        super().__init__(name)
        self.dtype = dtype
        self.item_bytes = dtype.itemsize
        self.schema_type = f"[{schema_name}]"
        self.absent = np.empty(0, dtype)

    def pack(self, value: Any) -> tuple[int, bytes]:
        if value.dtype != self.dtype:
            raise ValueError(f"{self.name} has dtype {value.dtype}, not {self.dtype}")
        return len(value), value.tobytes()

    def unpack(self, body: memoryview, start: int, count: int) -> Any:
        return np.frombuffer(body, self.dtype, count, start)


class Numbers(Vector):
    """A tuple of Python integers (or booleans), for columns that are turned into objects anyway."""

    def __init__(self, name: str, code: str) -> None:
        super().__init__(name)
        self.code = code
        self.item_bytes = struct.calcsize("<" + code)
        self.schema_type = f"[{_SCHEMA_TYPES[code]}]"

    def pack(self, value: Sequence[int]) -> tuple[int, bytes]:
        try:
            return len(value), struct.pack(f"<{len(value)}{self.code}", *value)
        except struct.error as error:
            raise ValueError(f"a number of {self.name} does not fit: {error}") from error

    def unpack(self, body: memoryview, start: int, count: int) -> tuple[int, ...]:
        if self.code == "?" and not set(body[start : start + count]) <= {0, 1}:
            raise FrameError(f"{self.name} holds something other than false and true")
        return struct.unpack_from(f"<{count}{self.code}", body, start)


class Texts(Vector):
    """A tuple of strings: offsets to strings, which the writer puts right behind the offsets."""

    item_bytes = 4
    schema_type = "[string]"

    def pack(self, value: Sequence[str]) -> tuple[int, bytes]:
        offsets: list[int] = []
        parts: list[bytes] = []
        at = 4 * len(value)
        written: dict[str, bytes] = {}  # the same few brokers and kinds stand in it thousands of times
        for index, text in enumerate(value):
            data = written.get(text)
            if data is None:
                data = text.encode()
                written[text] = data = _U32.pack(len(data)) + data + _ZEROS[4 - len(data) % 4]
            offsets.append(at - 4 * index)
            parts.append(data)
            at += len(data)
        return len(value), struct.pack(f"<{len(value)}I", *offsets) + b"".join(parts)

    def unpack(self, body: memoryview, start: int, count: int) -> tuple[str, ...]:
        if count > _TEXTS_MAX:
            raise FrameError(f"{self.name} has {count} texts, more than {_TEXTS_MAX}")
        text = Text(self.name)
        budget = len(body)
        texts: list[str] = []
        for slot in range(start, start + 4 * count, 4):
            at, length = vector_at(body, len(body), slot, 1, self.name)
            budget -= 4 + length
            if budget < 0:
                raise FrameError(f"the strings of {self.name} claim more bytes than the frame has")
            texts.append(text.unpack(body, at, length))
        return tuple(texts)


def vector_at(body: memoryview, length: int, slot: int, item_bytes: int, name: str) -> tuple[int, int]:
    """Follow the offset at `slot` (which the caller has checked) to a vector; `length` is that of `body`.

    Returns:
        Where its items begin, and how many there are; all of them lie inside `body`.

    Raises:
        FrameError: they do not.
    """
    head = slot + _U32.unpack_from(body, slot)[0]
    if head + 4 > length:
        raise FrameError(f"the offset of {name} leads out of the frame")
    count: int = _U32.unpack_from(body, head)[0]
    if head + 4 + count * item_bytes > length:
        raise FrameError(f"{name} claims {count} items, more than the frame has")
    return head + 4, count
