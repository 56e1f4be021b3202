"""Key and headers go before a payload, and come off again."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dueq_codecs.meta import (
    HEADER_NAME_BYTES_MAX,
    HEADERS_BYTES_MAX,
    HEADERS_MAX,
    KEY_BYTES_MAX,
    PREFIX_BYTES_MAX,
    Meta,
    MetaRefused,
    fault_of_meta,
    key_prefixes,
    keys_of_payloads,
    packed_headers,
    prefix_bytes,
    prefix_of,
    split_meta,
    with_key,
)

KEYS = st.text(max_size=KEY_BYTES_MAX).filter(lambda key: len(key.encode()) <= KEY_BYTES_MAX)
HEADERS = st.dictionaries(st.text(min_size=1, max_size=20), st.text(max_size=40), max_size=HEADERS_MAX)


@given(KEYS, HEADERS, st.binary(max_size=300))
def test_what_is_put_together_comes_apart(key: str, headers: dict[str, str], payload: bytes) -> None:
    for mode, expected in ((Meta.NONE, ("", {})), (Meta.KEY, (key, {})), (Meta.HEADERS, (key, headers))):
        stored = prefix_of(mode, key.encode(), packed_headers(headers)) + payload
        assert split_meta(mode, stored) == (*expected, payload)
        assert prefix_bytes(mode, stored) == len(stored) - len(payload) <= PREFIX_BYTES_MAX[mode]
        assert fault_of_meta(mode, stored) is None


def test_a_key_alone_is_a_byte_of_length_and_its_bytes() -> None:
    assert prefix_of(Meta.KEY, b"one", b"") + b"payload" == with_key(b"one", b"payload") == b"\x03onepayload"


def test_headers_follow_the_key() -> None:
    stored = prefix_of(Meta.HEADERS, b"k", packed_headers({"a": "bc", "d": ""}))
    assert stored == b"\x01k" + b"\x0a\x00" + b"\x01a\x02\x00bc" + b"\x01d\x00\x00"


@pytest.mark.parametrize("stored", [b"", b"\x05abc", b"\x01"])
def test_what_is_too_short_for_its_meta_is_a_payload_without(stored: bytes) -> None:
    for mode in (Meta.KEY, Meta.HEADERS):
        assert split_meta(mode, stored) == ("", {}, stored)
        assert prefix_bytes(mode, stored) == 0
        assert "too few for the key" in str(fault_of_meta(mode, stored))


def test_a_key_of_256_bytes_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="256"):
        with_key(b"k" * 256, b"")


def test_bytes_that_are_no_text_are_replaced() -> None:
    assert split_meta(Meta.KEY, b"\x02a\xffpayload") == ("a�", {}, b"payload")
    headers = b"\x01\xff\x01\x00\xfe"
    assert split_meta(Meta.HEADERS, prefix_of(Meta.HEADERS, b"", headers)) == ("", {"�": "�"}, b"")


@given(st.binary(max_size=200))
def test_no_bytes_at_all_keep_a_reader_from_reading(stored: bytes) -> None:
    for mode in Meta:
        key, headers, payload = split_meta(mode, stored)
        assert stored.endswith(payload)
        assert len(key.encode()) + len(payload) <= 3 * len(stored)
        if fault_of_meta(mode, stored) is None:
            assert len(stored) - len(payload) == prefix_bytes(mode, stored)
            assert packed_headers(headers) is not None


def _prefix(headers: bytes, key: bytes = b"") -> bytes:
    return bytes((len(key),)) + key + struct.pack("<H", len(headers)) + headers


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        (b"\0", "its 1 bytes are too few for the key and headers"),
        (b"\0\x05\0abc", "its 6 bytes are too few for the key and headers"),
        (_prefix(b"\x01"), "header 1 is longer than the 1 bytes of all headers"),
        (_prefix(b"\x01a\x09\0b"), "header 1 is longer than the 5 bytes of all headers"),
        (_prefix(b"\x01a\0\0\xff"), "header 2 is longer than the 5 bytes of all headers"),
        (_prefix(b"\0\0\0"), "the name of a header has 1 to 255 bytes of UTF-8, not 0"),
        (_prefix(b"\x01a\0\0" * 2), "it has two headers 'a'"),
        (_prefix(b"\x01a\x01\0\xff"), "its key and headers are no UTF-8: byte 0xff of"),
        (_prefix(b"", b"\xff"), "its key and headers are no UTF-8: byte 0xff of"),
        (_prefix(b"".join(b"\x02%02d\0\0" % n for n in range(65))), "a message has at most 64 headers"),
        (_prefix(bytes(HEADERS_BYTES_MAX + 1)), "its headers take 16385 bytes, over 16384"),
    ],
)
def test_bytes_that_are_no_meta_are_told_with_the_value_and_the_limit(stored: bytes, said: str) -> None:
    assert said in str(fault_of_meta(Meta.HEADERS, stored))


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ("a", "headers are a mapping of str to str, not 'a'"),
        ({"a": 1}, "the value of header 'a' is a str, not int: 1"),
        ({1: "a"}, "the name of a header is a str, not int: 1"),
        ({"": "a"}, "the name of a header has 1 to 255 bytes of UTF-8, not 0"),
        ({"n" * 256: "a"}, "the name of a header has 1 to 255 bytes of UTF-8, not 256"),
        ({"a": "\ud800"}, "the value of header 'a' is not Unicode text"),
        ({str(n): "" for n in range(65)}, "a message has at most 64 headers, not 65"),
        ({"a": "v" * 70_000}, "the value of header 'a' has 70000 bytes, over 16384"),
        (
            {"a": "v" * 9_000, "b": "v" * 9_000},
            "the headers of a message take at most 16384 bytes, not 18008",
        ),
    ],
)
def test_headers_that_cannot_be_are_refused_with_the_value_and_the_limit(headers: Any, said: str) -> None:
    with pytest.raises(MetaRefused) as refused:
        packed_headers(headers)
    assert said in str(refused.value)


def test_headers_may_take_all_the_bytes_that_there_are() -> None:
    packed = packed_headers({"a": "v" * (HEADERS_BYTES_MAX - 4)})
    assert len(packed) == HEADERS_BYTES_MAX
    assert fault_of_meta(Meta.HEADERS, prefix_of(Meta.HEADERS, b"k" * 255, packed)) is None


def test_keys_are_put_before_many_payloads_and_read_again() -> None:
    keys = [b"", b"k", b"k" * KEY_BYTES_MAX]
    stored = [prefix + b"payload" for prefix in key_prefixes(keys)]
    assert stored == [with_key(key, b"payload") for key in keys]
    assert keys_of_payloads(stored) == keys


def test_all_the_headers_that_a_message_may_have_are_read_and_found_well() -> None:
    headers = {f"{number:02}": "v" for number in range(HEADERS_MAX - 1)} | {"n" * HEADER_NAME_BYTES_MAX: ""}
    stored = prefix_of(Meta.HEADERS, b"k", packed_headers(headers)) + b"payload"
    assert fault_of_meta(Meta.HEADERS, stored) is None
    assert split_meta(Meta.HEADERS, stored) == ("k", headers, b"payload")


def test_headers_beyond_those_that_a_message_may_have_are_left_out_for_a_reader() -> None:
    packed = b"".join(b"\x02%02d\0\0" % number for number in range(HEADERS_MAX + 1))
    _, headers, payload = split_meta(Meta.HEADERS, prefix_of(Meta.HEADERS, b"", packed) + b"payload")
    assert (len(headers), payload) == (HEADERS_MAX, b"payload")
