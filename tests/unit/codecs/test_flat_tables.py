"""A flat table is read only where it lies in its frame, and written so that numpy can look at it."""

from __future__ import annotations

import struct
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dueq_codecs.fields import Column, Id, Numbers, Octets, Scalar, Structs, Text, Texts, vector_at
from dueq_codecs.flat import Layout
from dueq_codecs.frame_error import FrameError


class Kind(IntEnum):
    """Without a 0: such a number may not be absent."""

    ONE = 1
    TWO = 2


class Outcome(IntEnum):
    """Of items of a column."""

    NONE = 0
    DONE = 1


PAIR = np.dtype([("a", "<u4"), ("b", "<u4")])
NUMBER = Layout(SimpleNamespace, Scalar("number", "I"))
OCTETS = Layout(SimpleNamespace, Octets("octets"))
NAMES = Layout(SimpleNamespace, Texts("names"))


def read(layout: Layout, body: bytes) -> dict[str, Any]:
    values: dict[str, Any] = {}
    layout.read(memoryview(body), values)
    return values


def write(layout: Layout, **values: Any) -> bytes:
    whole = {field.name: field.absent for field in layout.fields} | values
    return layout.write(SimpleNamespace(**whole))


def assembled(
    places: list[int], inline: bytes, behind: bytes = b"", inline_bytes: int | None = None
) -> bytes:
    """A table made by hand: the place of each field, the bytes inside the table, and what comes behind it."""
    size = 4 + len(inline) if inline_bytes is None else inline_bytes
    vtable = struct.pack(f"<{2 + len(places)}H", 4 + 2 * len(places), size, *places)
    vtable += bytes(-len(vtable) % 4)
    table = 4 + len(vtable)
    return struct.pack("<I", table) + vtable + struct.pack("<i", table - 4) + inline + behind


def refused(layout: Layout, body: bytes, said: str) -> None:
    with pytest.raises(FrameError, match=said):
        read(layout, body)


# ---------------------------------------------------------------- the table


def test_a_table_that_fits_its_frame_exactly_is_read_and_a_shorter_one_is_not() -> None:
    body = assembled([4], struct.pack("<I", 7))
    assert read(NUMBER, body) == {"number": 7}
    for length in range(len(body) - 3, len(body)):
        refused(NUMBER, body[:length], "the table is longer than the frame")
    for length in range(12):
        refused(NUMBER, body[:length], "too short")


@pytest.mark.parametrize("table", [0, 3, 17, 18, 1 << 31])
def test_a_table_is_inside_the_frame_and_behind_its_first_word(table: int) -> None:
    body = assembled([4], struct.pack("<I", 7))
    assert len(body) == 20
    refused(NUMBER, struct.pack("<I", table) + body[4:], "the table lies outside of the frame")


@pytest.mark.parametrize("vtable", [-4, 0, 3, 17, 20])
def test_a_vtable_is_inside_the_frame_and_behind_its_first_word(vtable: int) -> None:
    """A negative place would be read from the other end."""
    body = bytearray(assembled([4], struct.pack("<I", 7)))
    struct.pack_into("<i", body, 12, 12 - vtable)
    refused(NUMBER, bytes(body), "the vtable lies outside of the frame")


@pytest.mark.parametrize("size", [0, 2, 5, 18, 1 << 15])
def test_a_vtable_has_its_own_head_and_whole_places_and_ends_inside_the_frame(size: int) -> None:
    body = bytearray(assembled([4], struct.pack("<I", 7)))
    struct.pack_into("<H", body, 4, size)
    refused(NUMBER, bytes(body), "the vtable is longer than the frame")


@pytest.mark.parametrize("size", [0, 3])
def test_a_table_has_room_for_its_own_head(size: int) -> None:
    refused(NUMBER, assembled([0], bytes(4), inline_bytes=size), "the table is too short")


@pytest.mark.parametrize(
    ("places", "size"),
    [([4, 4], 12), ([4, 6], 12), ([3, 8], 12), ([4, 9], 12), ([4, 8], 11), ([8, 4], 11)],
    ids=["one place", "overlapping", "upon the head", "beyond the end", "cut off", "cut off, turned"],
)
def test_fields_lie_beside_each_other_inside_of_their_table(places: list[int], size: int) -> None:
    layout = Layout(SimpleNamespace, Scalar("one", "I"), Scalar("two", "I"))
    refused(layout, assembled(places, bytes(12), inline_bytes=size), "lies outside of its table, or upon")


def test_fields_may_stand_in_any_order_and_what_a_newer_build_adds_is_passed_by() -> None:
    layout = Layout(SimpleNamespace, Scalar("one", "I"), Scalar("two", "H"))
    inline = struct.pack("<HHII", 2, 0, 1, 9)
    assert read(layout, assembled([8, 4, 12], inline)) == {"one": 1, "two": 2}
    assert read(layout, assembled([8], inline)) == {"one": 1, "two": 0}


# ---------------------------------------------------------------- numbers inside the table


def test_a_number_of_an_enumeration_is_one_of_its_members_and_not_absent_without_a_zero() -> None:
    layout = Layout(SimpleNamespace, Scalar("kind", "B", Kind), Scalar("flag", "?"))
    assert read(layout, write(layout, kind=2, flag=True)) == {"kind": Kind.TWO, "flag": True}
    refused(layout, assembled([4, 5], b"\3\0\0\0"), "kind is 3, which is none of its values")
    refused(layout, assembled([4, 5], b"\0\0\0\0"), "kind is 0, which is none of its values")
    refused(layout, assembled([4, 5], b"\1\2\0\0"), "flag is 2, which is none of its values")
    refused(layout, assembled([0, 5], b"\1\1\0\0"), "kind is missing")


@pytest.mark.parametrize("number", [-1, 1 << 32])
def test_a_number_that_does_not_fit_is_not_written(number: int) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        write(NUMBER, number=number)


# ---------------------------------------------------------------- vectors


def test_a_vector_may_end_with_its_frame_and_no_later() -> None:
    offset = struct.pack("<I", 4)
    assert read(OCTETS, assembled([4], offset, struct.pack("<I", 3) + b"abc")) == {"octets": b"abc"}
    refused(OCTETS, assembled([4], offset, struct.pack("<I", 4) + b"abc"), "claims 4 items")
    for missing in (1, 2, 3, 4):
        body = assembled([4], offset, bytes(4 - missing))
        refused(OCTETS, body, "the offset of octets leads out of the frame")
    refused(OCTETS, assembled([4], struct.pack("<I", 1 << 31), bytes(8)), "leads out of the frame")


def test_a_vector_of_numbers_claims_the_bytes_of_all_of_them() -> None:
    layout = Layout(SimpleNamespace, Column("column", "I"))
    vector = struct.pack("<III", 2, 5, 6)
    body = assembled([4], struct.pack("<I", 4), vector)
    assert read(layout, body)["column"].tolist() == [5, 6]
    refused(layout, body[:-1], "column claims 2 items")


def test_vectors_do_not_claim_more_bytes_together_than_there_are() -> None:
    layout = Layout(SimpleNamespace, Octets("one"), Octets("two"))
    both = struct.pack("<II", 8, 4) + struct.pack("<I", 100) + bytes(100)
    refused(layout, assembled([4, 8], both), "the vectors claim more bytes than the frame has")


@pytest.mark.parametrize("length", range(1, 18))
def test_vectors_are_where_numpy_can_look_at_them_and_texts_end_with_a_zero(length: int) -> None:
    """Other readers take a text for one of C."""
    layout = Layout(SimpleNamespace, Scalar("small", "B"), Text("text"), Column("column", "Q"), Text("last"))
    text, column = "t" * length, np.array([1 << 63, 5], np.uint64)
    body = write(layout, small=1, text=text, column=column, last="z" * length)
    assert body.index(column.tobytes()) % 8 == 0
    for written in (text.encode(), b"z" * length):
        at = body.index(written)
        assert at % 8 == 0
        assert body[at + length] == 0
    values = read(layout, body)
    assert (values["text"], values["column"].tolist(), values["last"]) == (text, [1 << 63, 5], "z" * length)


def test_an_id_has_sixteen_bytes_and_is_never_absent() -> None:
    layout = Layout(SimpleNamespace, Id("who"))
    assert read(layout, write(layout, who=bytes(16))) == {"who": bytes(16)}
    for wrong in (b"", bytes(15), bytes(17)):
        with pytest.raises(ValueError, match=f"who has {len(wrong)} bytes, not 16"):
            write(layout, who=wrong)
    refused(
        layout, assembled([4], struct.pack("<I", 4), struct.pack("<I", 15) + bytes(15)), "15 bytes, not 16"
    )
    refused(layout, assembled([0], bytes(4)), "who is missing")


def test_columns_hold_what_they_say_and_nothing_else() -> None:
    outcomes = Layout(SimpleNamespace, Column("outcomes", "B", Outcome))
    assert read(outcomes, write(outcomes, outcomes=np.array([1, 0], np.uint8)))["outcomes"].tolist() == [1, 0]
    body = assembled([4], struct.pack("<I", 4), struct.pack("<I", 2) + b"\0\2")
    refused(outcomes, body, "outcomes holds 2, which is none of its values")
    with pytest.raises(ValueError, match="dtype uint16, not uint8"):
        write(outcomes, outcomes=np.array([1], np.uint16))
    flags = Layout(SimpleNamespace, Numbers("flags", "?"))
    assert read(flags, write(flags, flags=(True, False)))["flags"] == (True, False)
    refused(
        flags,
        assembled([4], struct.pack("<I", 4), struct.pack("<I", 2) + b"\0\2"),
        "other than false and true",
    )
    pairs = Layout(SimpleNamespace, Structs("pairs", PAIR, "Pair"))
    value = np.array([(1, 2)], PAIR)
    assert read(pairs, write(pairs, pairs=value))["pairs"].tolist() == [(1, 2)]
    with pytest.raises(ValueError, match="pairs has dtype"):
        write(pairs, pairs=value.astype([("a", "<u4"), ("b", "<u8")]))


# ---------------------------------------------------------------- lists of texts


def names(first: int, text: bytes, length: int | None = None) -> bytes:
    """A list of one text, at an offset from its slot."""
    size = len(text) if length is None else length
    return assembled([4], struct.pack("<I", 4), struct.pack("<III", 1, first, size) + text)


@pytest.mark.parametrize("length", range(1, 10))
def test_each_text_of_a_list_is_read_and_ends_with_a_zero(length: int) -> None:
    value = ("a" * length, "", "ü" * length, "a" * length)
    body = write(NAMES, names=value)
    assert read(NAMES, body) == {"names": value}
    for text in value[0], value[2]:
        assert body[body.index(text.encode()) + len(text.encode())] == 0


def test_a_text_of_a_list_lies_inside_of_the_frame() -> None:
    assert read(NAMES, names(4, b"abc")) == {"names": ("abc",)}
    refused(NAMES, names(4, b"abc", 4), "names claims 4 items")
    for offset in (8, 11, 1 << 31):
        refused(NAMES, names(offset, b"abc"), "the offset of names leads out of the frame")


def test_text_is_utf_8_alone_and_in_a_list() -> None:
    layout = Layout(SimpleNamespace, Text("text"))
    refused(layout, assembled([4], struct.pack("<I", 4), struct.pack("<I", 1) + b"\xff"), "text is not UTF-8")
    refused(NAMES, names(4, b"\xff"), "names is not UTF-8")


def test_where_a_vector_lies_is_told_only_if_all_of_it_is_there() -> None:
    body = memoryview(struct.pack("<III", 4, 2, 0))
    assert vector_at(body, 12, 0, 2, "items") == (8, 2)
    with pytest.raises(FrameError, match="items claims 2 items"):
        vector_at(body, 11, 0, 2, "items")
    with pytest.raises(FrameError, match="leads out of the frame"):
        vector_at(body, 7, 0, 2, "items")
