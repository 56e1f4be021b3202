"""The memory that answers of all requests share: a client may ask for long payloads, and take nothing of them.

Answers leave piece by piece, so that a request is over only when its client has taken nearly all of the answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, Final, TypeVar

from fastapi import Depends
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dueq import limits
from dueq.gateway.bodies import BodyRoom

T = TypeVar("T")

PIECE: Final = limits.GATEWAY_BYTES_PER_S_MIN * limits.GATEWAY_PAUSE_MS // 1000
"""Bytes of an answer that leave at once: what a client takes in the longest pause at the least rate."""
_KEY: Final = "dueq.answer"


def shown(size: int) -> int:
    """Return how long a payload of so many bytes is in an answer: base64, at most, but for texts with many escapes."""
    return size * 4 // 3 + 4


_MOST: Final = shown(limits.PAYLOAD_BYTES_MAX)


class AnswerRoom:
    """The room of one answer.

    Args:
        room: of all.

    Attributes:
        divided: there are pieces that have not left yet.
    """

    def __init__(self, room: BodyRoom) -> None:
        self._room = room
        self._taken = 0
        self.divided = False

    async def read(self, get: Callable[[bool], Awaitable[T]], size: Callable[[T], int]) -> T:
        """Read something with payloads, once there is room for them.

        Args:
            get: reads it, with payloads or without.
            size: how long the payloads of what was read are, which may be without them.

        Raises:
            Busy: answers that others have not taken yet hold too much.
        """
        # While the room is nearly empty, it is known without asking that there is enough.
        enough = self._room.taken + _MOST <= self._room.most // 2
        self.take(_MOST if enough else shown(size(await get(False))))
        return await get(True)

    def take(self, size: int) -> None:
        """Take room for so many bytes more, of what has been read already.

        Raises:
            Busy: answers that others have not taken yet hold too much.
        """
        self._room.take(size)
        self._taken += size

    def hold(self, size: int) -> None:
        """Hold so many bytes from now on, whether there is room or not: they are here."""
        self._room.give(self._taken - size)
        self._taken = size


class InPieces:
    """Sends answers piece by piece, and gives their room back once they are sent."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = scope[_KEY] = AnswerRoom(scope["app"].state.answers)

        async def in_pieces(message: Message) -> None:
            if message["type"] != "http.response.body":
                await send(message)
                return
            body = message.get("body", b"")
            answer.hold(len(body))
            begin = 0
            while len(body) - begin > PIECE:
                answer.divided = True
                await send({**message, "body": body[begin : begin + PIECE], "more_body": True})
                begin += PIECE
            await send({**message, "body": body[begin:]} if begin else message)
            answer.divided = False
            answer.hold(0)  # a stream may have nothing more to say for long

        try:
            await self._app(scope, receive, in_pieces)
        finally:
            answer.hold(0)


def is_divided(scope: Mapping[str, Any] | None) -> bool:
    """Whether pieces of this request's answer have not left yet."""
    answer: AnswerRoom | None = scope.get(_KEY) if scope is not None else None
    return answer is not None and answer.divided


async def _answer(connection: HTTPConnection) -> AnswerRoom:
    answer: AnswerRoom = connection.scope[_KEY]
    return answer


TheAnswer = Annotated[AnswerRoom, Depends(_answer)]
"""A parameter of this type is the room of the request's answer."""
