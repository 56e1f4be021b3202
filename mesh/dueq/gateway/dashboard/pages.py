"""The pages, their files, and what keeps them up to date."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi.responses import FileResponse, Response, StreamingResponse
from fastapi.staticfiles import StaticFiles
from starlette.requests import HTTPConnection
from starlette.types import Scope

from dueq import __version__, limits
from dueq.gateway.access import TheService
from dueq.gateway.dashboard import messages
from dueq.gateway.dashboard.feed import Feed
from dueq.gateway.dashboard.views import SORTS, View
from dueq.gateway.problems import Unfit
from dueq.gateway.service import Service

_FILES: Final = Path(__file__).parent / "static"
_BEAT_S: Final = 1.0
"""A page that hears nothing for some of these knows that it has lost the gateway."""

router = APIRouter(include_in_schema=False)


async def _feed(connection: HTTPConnection) -> Feed:
    feed: Feed = connection.app.state.feed
    return feed


TheFeed = Annotated[Feed, Depends(_feed)]


@router.get("/")
@router.get("/topic")
@router.get("/messages")
@router.get("/create")
async def page() -> Response:
    """Every page: its address says what it shows."""
    return FileResponse(_FILES / "index.html", media_type="text/html", headers={"cache-control": "no-cache"})


@router.get("/dashboard/about")
async def about(request: Request) -> dict[str, Any]:
    """Return this gateway's version, and whether it is read-only."""
    return {"version": __version__, "read_only": request.app.state.read_only}


@router.get("/dashboard/live")
async def live(
    service: TheService,
    feed: TheFeed,
    topic: Annotated[str, Query(max_length=255)] = "",
    search: Annotated[str, Query(max_length=255)] = "",
    sort: str = "trouble",
    skip: Annotated[int, Query(ge=0)] = 0,
    ahead: Annotated[int, Query(ge=60, le=limits.DASHBOARD_AHEAD_S_MAX)] = limits.DASHBOARD_AHEAD_S,
) -> Response:
    """Server-sent events: what a page shows, whenever that was looked at anew, and a beat each second."""
    if sort not in SORTS:
        raise Unfit(
            f"query.sort is one of {', '.join(sorted(SORTS))}, not {sort!r:.80}", sort, None, "query.sort"
        )
    view = View(topic, search, sort, skip, ahead)
    stack = ExitStack()
    stack.enter_context(feed.watching(topic, ahead))
    return _Live(_events(service, feed, view), stack)


class _Live(StreamingResponse):
    """A stream of events; the watch ends with it, however it ends."""

    def __init__(self, events: AsyncGenerator[bytes, None], stack: ExitStack) -> None:
        super().__init__(events, media_type="text/event-stream")
        self._stack = stack

    async def __call__(self, scope: Scope, receive: object, send: object) -> None:
        try:
            await super().__call__(scope, receive, send)  # type: ignore[arg-type]
        finally:
            self._stack.close()


async def _events(service: Service, feed: Feed, view: View) -> AsyncGenerator[bytes, None]:
    yield b"retry: 1000\n\n"
    number, shown = 0, feed.shown
    while not service.stopping.is_set():
        state = await feed.newer(number, _BEAT_S)
        if state is None:
            yield b"event: beat\ndata: 0\n\n"
        else:
            yield shown.told(view, state, feed.acts, number)
            number = state.sight.number


class _Files(StaticFiles):
    """Files that a browser asks for anew whenever they have changed."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        answer = await super().get_response(path, scope)
        answer.headers["cache-control"] = "no-cache"
        return answer


def install(app: FastAPI) -> None:
    """Add the pages and their files."""
    app.include_router(router)
    app.include_router(messages.router)
    app.mount("/dashboard/files", _Files(directory=_FILES))
