"""A key goes before its payload, and comes off again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dueq_codecs.keys import KEY_BYTES_MAX, prefix_bytes, split_key, with_key

KEYS = st.text(max_size=KEY_BYTES_MAX).filter(lambda key: len(key.encode()) <= KEY_BYTES_MAX)


@given(KEYS, st.binary(max_size=300))
def test_what_is_put_together_comes_apart(key: str, payload: bytes) -> None:
    stored = with_key(key.encode(), payload)
    assert split_key(stored) == (key, payload)
    assert prefix_bytes(stored) == len(stored) - len(payload) == 1 + len(key.encode())


@pytest.mark.parametrize("stored", [b"", b"\x05abc", b"\x01"])
def test_what_is_too_short_for_its_key_is_a_payload_without_one(stored: bytes) -> None:
    assert split_key(stored) == ("", stored)
    assert prefix_bytes(stored) == 0


def test_a_key_of_256_bytes_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="256"):
        with_key(b"k" * 256, b"")


def test_bytes_that_are_no_text_are_replaced() -> None:
    assert split_key(b"\x02a\xffpayload") == ("a�", b"payload")
