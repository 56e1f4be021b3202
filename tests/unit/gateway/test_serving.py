"""Where a gateway listens."""

from __future__ import annotations

import asyncio
import os
import resource
import signal

import pytest

pytest.importorskip("fastapi")

import uvicorn
from starlette.types import Receive, Scope, Send

from dueq.errors import InvalidRequest
from dueq.gateway.bodies import parsed
from dueq.gateway.problems import Refusal
from dueq.gateway.serving import _Server, allow_files, listening, url_of


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


def test_it_ends_though_it_is_told_so_before_it_has_begun() -> None:
    """A signal may come while the application starts."""
    told = list[object]()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await receive()
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(0)
            await send({"type": "lifespan.startup.complete"})
            told.append(await receive())
            await send({"type": "lifespan.shutdown.complete"})

    with listening("127.0.0.1:0") as found:
        server = _Server(uvicorn.Config(app, lifespan="on", log_config=None), "", told.append, lambda: None)
        asyncio.run(asyncio.wait_for(server.serve([found]), 30))
    assert told == ["", {"type": "lifespan.shutdown"}]
