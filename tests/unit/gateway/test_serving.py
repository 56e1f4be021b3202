"""Where a gateway listens."""

from __future__ import annotations

import resource

import pytest

pytest.importorskip("fastapi")

from dueq.errors import InvalidRequest
from dueq.gateway.bodies import parsed
from dueq.gateway.problems import Refusal
from dueq.gateway.serving import allow_files, listening, url_of


@pytest.mark.parametrize(
    "where", ["0.0.0.0:0", "[::]:0", "192.0.2.1:0", "example.org:80", "127.0.0.1", "nowhere"]
)
def test_it_listens_on_the_loopback_only(where: str) -> None:
    with pytest.raises(InvalidRequest):
        listening(where)


def test_it_may_have_more_connections_than_a_shell_allows() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, before[1]), before[1]))
    try:
        allow_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= min(before[1], 16_384)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


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
