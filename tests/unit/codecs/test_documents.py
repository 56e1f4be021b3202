"""A text of a client becomes a JSON object, or a ValueError that says why: never anything else."""

from __future__ import annotations

import tracemalloc

import pytest

from dueq_codecs.documents import DOCUMENT_DEPTH_MAX, decode_document


def nested(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


def test_an_object_is_returned() -> None:
    assert decode_document('{"a": [1, {"b": null}]}') == {"a": [1, {"b": None}]}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "Expecting value"),
        ("{", "Expecting property name"),
        ("[1]", "there is a JSON list"),
        ("null", "there is a JSON NoneType"),
        ('{"a":' + "9" * 5000 + "}", "4300 digits"),
        ("[" * 60_000, "nested more than 32 deep"),
        ('{"a":' * 60_000, "nested more than 32 deep"),
        ("[" * 800 + "]" * 800, "nested more than 32 deep"),
        ('{"a":["\\ud800"]}', "half of a surrogate pair"),
        ('{"\\uDFFF":1}', "half of a surrogate pair"),
        ('{"a":"\ud800"}', "surrogates not allowed"),
        (nested(DOCUMENT_DEPTH_MAX + 1), "nested more than 32 deep"),
    ],
)
def test_all_else_is_a_value_error_that_says_why(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        decode_document(text)


def test_pairs_depth_up_to_the_limit_and_brackets_in_strings_are_fine() -> None:
    assert list(decode_document(nested(DOCUMENT_DEPTH_MAX))) == ["a"]
    assert decode_document('{"a":"\\ud83d\\ude00"}') == {"a": "\U0001f600"}
    brackets = '\\"' + "[{" * 100
    assert decode_document('{"a":"' + brackets + '"}') == {"a": '"' + "[{" * 100}


def test_a_long_string_costs_little_more_than_itself() -> None:
    text = '{"a":"' + "x" * 1_000_000 + '","b":[' + "{}," * DOCUMENT_DEPTH_MAX + "1]}"
    tracemalloc.start()
    decode_document(text)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * len(text)
