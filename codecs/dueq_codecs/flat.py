"""FlatBuffers for messages that are one flat table: scalars and vectors, no table inside a table.

The product does not use the generated classes of `_fb/`, and an installed dueq does not contain them. The generated
Builder costs a microsecond a field, and the generated readers trust every offset: FlatBuffers for Python has no
verifier, and a negative offset reads from the wrong end of the buffer without an error. This writer packs all
scalars of a table by one `struct` call, and this reader checks every position against the buffer before it looks
there. They write and read ordinary FlatBuffers; the tests exchange them with the generated classes in both directions.

The layout of the writer, all little-endian, positions from the start of the buffer:

    0   u32   where the table is
    4   vtable: u16 its own size, u16 the table's inline size, u16 per field: place in the table, 0 = absent
        zeros, so that the table begins at 4 modulo 8
        table: i32 distance back to the vtable; scalars, widest first; one u32 offset per present vector
        vectors, each from a multiple of 8: four zeros, u32 length, elements, 1 to 8 zeros

Empty vectors are absent. Every vector is so aligned that numpy can look at it in place. The vectors of one
table may not claim more bytes together than the buffer has, so a small buffer cannot claim large vectors by naming
the same bytes many times. Source: "FlatBuffers Internals" in the FlatBuffers documentation.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from itertools import compress
from operator import attrgetter
from typing import Any, Final, NamedTuple

from dueq_codecs.fields import Scalar, Vector
from dueq_codecs.frame_error import FrameError

_U32: Final = struct.Struct("<I")
_I32: Final = struct.Struct("<i")
_U16_PAIR: Final = struct.Struct("<HH")
_VECTOR_HEAD: Final = struct.Struct("<4xI")
_ZEROS: Final = tuple(bytes(count) for count in range(9))


class _Shape(NamedTuple):
    """How a table begins when a certain set of vectors is present."""

    prefix: bytes
    """Root offset, vtable, distance from table to vtable."""
    inline: struct.Struct
    """Scalars, then one offset per present vector, then zeros up to a multiple of 8."""
    reach: int
    """Bytes from the first vector's offset (in the table) to the first vector."""


class _Plan(NamedTuple):
    """How to read a table with a certain vtable."""

    inline: struct.Struct
    """The whole table: its scalars and the offsets of its vectors, in the order of their places."""
    names: tuple[str, ...]
    """The field of each number."""
    enumerations: tuple[tuple[str, dict[int, Any]], ...]
    vectors: tuple[tuple[Vector, int], ...]
    """With the place of each one's offset in the table."""


class Layout:
    """One table of the schema: its fields in the schema's order, and how to write and read it."""

    def __init__(
        self,
        message: type[Any],
        *fields: Scalar | Vector,
        vectors: Callable[[Any], tuple[Any, ...]] | None = None,
    ) -> None:
        """Declare it.

        Args:
            message: the class of the messages.
            fields: in the schema's order.
            vectors: takes the values of all vectors, in order, out of a message; None where the message
                has an attribute of each one's name.
        """
        self.message = message
        self.fields = fields
        self._scalars = sorted((f for f in fields if isinstance(f, Scalar)), key=lambda f: -f.inline_bytes)
        self._vectors = [field for field in fields if isinstance(field, Vector)]
        self._bits = [(field, 1 << index) for index, field in enumerate(self._vectors)]
        self._always = [index for index, field in enumerate(self._vectors) if field.absent is None]
        self._get_scalars = _getter([field.name for field in self._scalars])
        self._get_vectors = vectors or _getter([field.name for field in self._vectors])
        self._absent = {field.name: field.absent for field in fields}
        self._required = [field.name for field in fields if field.absent is None]
        self._vtable_bytes = 4 + 2 * len(fields)
        self._shape = lru_cache(maxsize=4096)(self._make_shape)
        # Frames of one kind have few vtables. A sender that invents new ones only makes its own frames slower to
        # read.
        self._plan = lru_cache(maxsize=1024)(self._make_plan)

    def write(self, message: Any) -> bytes:
        """Return the FlatBuffer of a message.

        Raises:
            ValueError: a value does not fit its field.
        """
        parts = [b"", b""]
        offsets: list[int] = []
        present = 0
        at = 4
        values = self._get_vectors(message)
        written = list(map(len, values))  # most vectors of most messages are empty
        for index in self._always:
            written[index] = 1
        for (field, bit), value in compress(zip(self._bits, values, strict=True), written):
            count, data = field.pack(value)
            zeros = _ZEROS[8 - len(data) % 8]
            parts += (_VECTOR_HEAD.pack(count), data, zeros)
            offsets.append(at)
            present |= bit
            # The next offset stands 4 bytes further on in the table, hence the difference.
            at += 4 + len(data) + len(zeros)
        parts[0], inline, reach = self._shape(present)
        try:
            parts[1] = inline.pack(*self._get_scalars(message), *[reach + offset for offset in offsets])
        except struct.error as error:
            raise ValueError(f"a number of {message!r} does not fit: {error}") from error
        return b"".join(parts)

    def read(self, body: memoryview, values: dict[str, Any]) -> None:
        """Read a FlatBuffer into `values`, scalars first: an error leaves those before it.

        Raises:
            FrameError: the bytes are not such a table.
        """
        values.update(self._absent)
        table, vtable = _open_table(body)
        plan = self._plan(vtable[: self._vtable_bytes])  # what it says of fields of newer builds is not kept
        length = budget = len(body)
        if table + plan.inline.size > length:
            raise FrameError("the table is longer than the frame")
        numbers = plan.inline.unpack_from(body, table)
        values.update(zip(plan.names, numbers, strict=True))
        for name, members in plan.enumerations:
            number = values[name]
            if number not in members:
                raise FrameError(f"{name} is {number}, which is none of its values")
            values[name] = members[number]
        for field, place in plan.vectors:
            head = table + place + values[field.name]
            if head + 4 > length:
                raise FrameError(f"the offset of {field.name} leads out of the frame")
            count: int = _U32.unpack_from(body, head)[0]
            used = 4 + count * field.item_bytes
            budget -= used
            if head + used > length:
                raise FrameError(f"{field.name} claims {count} items, more than the frame has")
            if budget < 0:
                raise FrameError("the vectors claim more bytes than the frame has")
            values[field.name] = field.unpack(body, head + 4, count) if count else field.absent
        for name in self._required:
            if values[name] is None:
                raise FrameError(f"{name} is missing")

    def _make_plan(self, vtable: bytes) -> _Plan:
        """Work out where a table with this vtable has its fields.

        Raises:
            FrameError: a field lies outside of the table, or upon another one.
        """
        inline_bytes = _U16_PAIR.unpack_from(vtable)[1]
        known = min((len(vtable) - 4) // 2, len(self.fields))
        places = struct.unpack_from(f"<{known}H", vtable, 4)
        present = [(place, field) for place, field in zip(places, self.fields, strict=False) if place]
        present.sort(key=lambda item: item[0])
        code, at = "<4x", 4
        for place, field in present:
            if place < at or place + field.inline_bytes > inline_bytes:
                raise FrameError(f"{field.name} lies outside of its table, or upon another field")
            code += f"{place - at}x{field.inline_code}"
            at = place + field.inline_bytes
        return _Plan(
            struct.Struct(f"{code}{inline_bytes - at}x"),
            tuple(field.name for _, field in present),
            tuple((f.name, f.members) for _, f in present if isinstance(f, Scalar) and f.members is not None),
            tuple((field, place) for place, field in present if isinstance(field, Vector)),
        )

    def _make_shape(self, present: int) -> _Shape:
        """Lay out a table in which exactly the vectors of the bit mask `present` are not absent."""
        places: dict[str, int] = {}
        at = 4
        code = "<"
        for scalar in self._scalars:
            places[scalar.name] = at
            at += scalar.inline_bytes
            code += scalar.code
        code += f"{-at % 4}x"
        at += -at % 4
        first_offset = at
        for index, vector in enumerate(self._vectors):
            if present >> index & 1:
                places[vector.name] = at
                at += 4
                code += "I"
        entries = [places.get(field.name, 0) for field in self.fields]
        while not entries[-1]:
            entries.pop()
        vtable = struct.pack(f"<{2 + len(entries)}H", 4 + 2 * len(entries), at, *entries)
        table = 4 + len(vtable) + -len(vtable) % 8
        prefix = _U32.pack(table) + vtable.ljust(table - 4, b"\0") + _I32.pack(table - 4)
        inline = struct.Struct(f"{code}{-(table + at) % 8}x")
        return _Shape(prefix, inline, inline.size + 4 - first_offset)


def _open_table(body: memoryview) -> tuple[int, bytes]:
    """Return the root table's position, and its vtable."""
    length = len(body)
    if length < 12:
        raise FrameError(f"a FlatBuffer of {length} bytes is too short")
    table: int = _U32.unpack_from(body, 0)[0]
    if table < 4 or table + 4 > length:
        raise FrameError("the table lies outside of the frame")
    vtable = table - _I32.unpack_from(body, table)[0]
    if vtable < 4 or vtable + 4 > length:
        raise FrameError("the vtable lies outside of the frame")
    vtable_bytes, inline_bytes = _U16_PAIR.unpack_from(body, vtable)
    if vtable_bytes < 4 or vtable_bytes % 2 or vtable + vtable_bytes > length:
        raise FrameError("the vtable is longer than the frame")
    if inline_bytes < 4:
        raise FrameError("the table is too short")
    return table, bytes(body[vtable : vtable + vtable_bytes])


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that takes attributes out of an object, always as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda message: tuple(getattr(message, name) for name in names)
