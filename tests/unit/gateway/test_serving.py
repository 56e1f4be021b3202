"""Where a gateway listens."""

from __future__ import annotations

import pytest

pytest.importorskip("fastapi")

from dueq.errors import InvalidRequest
from dueq.gateway.bodies import parsed
from dueq.gateway.problems import Refusal
from dueq.gateway.serving import listening, url_of


@pytest.mark.parametrize(
    "where", ["0.0.0.0:0", "[::]:0", "192.0.2.1:0", "example.org:80", "127.0.0.1", "nowhere"]
)
def test_it_listens_on_the_loopback_only(where: str) -> None:
    with pytest.raises(InvalidRequest):
        listening(where)


def test_it_says_where_it_is_reached() -> None:
    with listening("127.0.0.1:0") as found:
        assert url_of(found).startswith("http://127.0.0.1:")


@pytest.mark.parametrize(
    "body", [b"[" * 500_000, b'{"a":' * 65 + b"1" + b"}" * 65, b"NaN", b"\xff", b"{", b""]
)
def test_what_is_no_json_within_the_limits_is_refused(body: bytes) -> None:
    with pytest.raises(Refusal):
        parsed(body)


def test_brackets_in_strings_are_no_depth() -> None:
    assert parsed(b'"' + b"[" * 1000 + b'"') == "[" * 1000
