"""Bodies of requests, within limits: bytes of one and of all together, pauses between their pieces, depth of JSON."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final

from fastapi import Request, Response
from fastapi.routing import APIRoute

from dueq import limits
from dueq.errors import Busy
from dueq.gateway.problems import Refusal
from dueq_codecs.documents import deeper_than

_HALF: Final = re.compile(rb"\\u[dD][89a-fA-F]")
"""An escape that may be half of a surrogate pair."""
_RETRY_S: Final = 0.5
_PAUSE_S: Final = limits.GATEWAY_PAUSE_MS / 1000


class BodyRoom:
    """The memory that bodies of all requests share, or those of all answers.

    Args:
        most: bytes at most.
        of: what takes it, for the refusal.

    Attributes:
        most: bytes at most.
        taken: bytes, as of now.
    """

    def __init__(
        self, most: int = limits.GATEWAY_BODIES_BYTES_MAX, of: str = "bodies are being read"
    ) -> None:
        self.most, self._of = most, of
        self.taken = 0

    def take(self, count: int) -> None:
        """Take room for this many bytes.

        Raises:
            Busy: there is not so much just now; nothing was taken.
        """
        if self.taken + count > self.most:
            raise Busy(f"{self.taken} bytes of {self._of}, and {self.most} are the limit", _RETRY_S)
        self.taken += count

    def give(self, count: int) -> None:
        """Give room back."""
        self.taken -= count


class Pace:
    """How fast a body comes, or one line of it, on the average since it began.

    Args:
        what: comes.
    """

    def __init__(self, what: str) -> None:
        self._what, self._begun = what, time.monotonic()

    def check(self, size: int) -> None:
        """Refuse what has this many bytes by now, and drips: it would hold its room for ever.

        Raises:
            Refusal: it comes too slowly.
        """
        slowest = limits.GATEWAY_BYTES_PER_S_MIN
        if size < (time.monotonic() - self._begun - _PAUSE_S) * slowest:
            raise Refusal(
                408, f"{self._what} comes at less than {slowest} bytes a second", size, slowest, True
            )


class JsonRoute(APIRoute):
    """A route whose body, if it has one, is JSON: its content type says so, and it is read within the limits."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return what answers a request."""
        answer = super().get_route_handler()
        body_field = self.body_field

        async def handler(request: Request) -> Response:
            if body_field is None:
                return await answer(request)
            async with whole(request, limits.GATEWAY_JSON_BYTES_MAX) as body:
                if body or body_field.field_info.is_required():
                    demand(request, "application/json")
                    request._json = parsed(body)
                # The model is made of what was read here.
                request._body = body
                return await answer(request)

        return handler


def content_type(request: Request) -> str:
    """Return the media type of the request's body, without parameters; "" if it says none.

    Raises:
        Refusal: it says several.
    """
    said = request.headers.getlist("content-type")
    if len(said) > 1:
        raise Refusal(400, f"a request has one content-type, not {len(said)}", ", ".join(said), 1)
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def demand(request: Request, wanted: str) -> None:
    """Refuse a body of another type.

    Raises:
        Refusal: its content type is not the wanted one.
    """
    if content_type(request) != wanted:
        given = request.headers.get("content-type", "")
        raise Refusal(
            415, f"the body is {wanted}, and its content-type says so, not {given!r:.80}", given, wanted
        )


@asynccontextmanager
async def whole(request: Request, most: int) -> AsyncGenerator[bytes, None]:
    """Read a body; the room that it takes is given back afterwards. Bytes that are only announced take none.

    Args:
        request: whose body.
        most: bytes at most.

    Raises:
        Refusal: it is longer, comes too slowly, or is compressed.
        Busy: all requests together hold too much.
    """
    room: BodyRoom = request.app.state.room
    _check_announced(request, most)
    held = 0
    parts: list[bytes] = []
    pace = Pace("the body")
    try:
        async for part in pieces(request):
            size = held + len(part)
            if size > most:
                raise _too_long(size, most)
            pace.check(size)
            room.take(len(part))
            held = size
            parts.append(part)
        yield b"".join(parts)
    finally:
        room.give(held)


async def pieces(request: Request) -> AsyncGenerator[bytes, None]:
    """Yield a body as it comes.

    Raises:
        Refusal: nothing came for too long, or it is compressed.
    """
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        given = request.headers["content-encoding"]
        raise Refusal(415, f"a body is sent as it is, not as {given!r:.80}", given, "identity")
    stream = request.stream()
    while True:
        try:
            async with asyncio.timeout(_PAUSE_S):
                part = await anext(stream)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise Refusal(
                408, f"nothing of the body came for {_PAUSE_S:g} seconds", None, _PAUSE_S, True
            ) from None
        if part:
            yield part


def parsed(body: bytes) -> Any:
    """Read JSON.

    Raises:
        Refusal: it is none, or nested too deeply.
    """
    if deeper_than(body, limits.GATEWAY_JSON_DEPTH_MAX):
        depth = limits.GATEWAY_JSON_DEPTH_MAX
        raise Refusal(400, f"arrays and objects are nested more than {depth} deep", None, depth)
    try:
        found = json.loads(body.decode(), parse_constant=_no_constant, object_pairs_hook=_object)
        if _HALF.search(body):
            json.dumps(found, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        raise Refusal(400, f"the body is not UTF-8: {error.reason} at byte {error.start}") from None
    except UnicodeEncodeError:
        raise Refusal(400, "the body has half of a surrogate pair: that is no Unicode text") from None
    except ValueError as error:
        raise Refusal(400, f"the body is not JSON: {error}") from None
    return found


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Of two fields of one name only one could count, and not everybody reads the same one."""
    found = dict(pairs)
    if len(found) < len(pairs):
        (name, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"the field {name!r:.80} comes twice in one object")
    return found


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _check_announced(request: Request, most: int) -> None:
    length = request.headers.get("content-length", "0")
    if not length.isascii() or not length.isdigit():
        raise Refusal(400, f"content-length is a number, not {length!r:.80}", length)
    if int(length) > most:
        raise _too_long(int(length), most)


def _too_long(size: int, most: int) -> Refusal:
    return Refusal(413, f"the body has at most {most} bytes, not {size}", size, most)
