"""NDJSON of any length: a message a line, scheduled while later lines are read, in bounded memory."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any, Final

from fastapi import Request
from fastapi.responses import StreamingResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from dueq import limits
from dueq.errors import (
    Busy,
    DueqError,
    InvalidRequest,
    KeyTaken,
    PartialFailure,
    PayloadTooLarge,
    Refused,
    RequestDiffers,
)
from dueq.gateway import bodies, problems
from dueq.gateway.problems import Refusal
from dueq.gateway.service import NO_LOAD, Load, NewMessage, Service, by_bodies

_ROW_FAULTS: Final = (InvalidRequest, PayloadTooLarge)
"""Refusals that may be the fault of one row, while the others are sound."""
_ROW_REFUSALS: Final = (*_ROW_FAULTS, KeyTaken, RequestDiffers)
"""Refusals that say nothing about later rows."""


class Answers(StreamingResponse):
    """An answer that is sent while the request is still being read: nobody else waits for what the client sends."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        with suppress(ClientDisconnect):  # nobody reads the rest
            await self.stream_response(send)


@dataclass(slots=True)
class _Line:
    """A line, and its request; or the reason why it is wrong."""

    number: int
    message: NewMessage | None
    problem: problems.Document | None = None
    message_id: str = ""

    def outcome(self) -> dict[str, Any]:
        """Return the line's result, as the client gets it."""
        if self.problem is not None:
            return {"line": self.number, "status": self.problem["status"], "problem": self.problem}
        return {"line": self.number, "status": 201, "id": self.message_id}


class Loading:
    """One request of NDJSON.

    Args:
        service: of the gateway.
        topic: its name.
        read: makes a message of a line's JSON; the other arguments are mesh time, Unix µs, and the line as it came.
        load: what holds of all messages.
    """

    def __init__(
        self,
        service: Service,
        topic: str,
        read: Callable[[Any, int, bytes], NewMessage],
        load: Load = NO_LOAD,
    ) -> None:
        self._service, self._topic, self._read, self._load = service, topic, read, load
        self._lines = self._accepted = self._failed = 0
        self._stopped: problems.Document | None = None

    async def summary(self, request: Request) -> dict[str, Any]:
        """Schedule all lines and return the counts, and the first failures."""
        failures: list[dict[str, Any]] = []
        async with aclosing(self._batches(request)) as batches:
            async for batch in batches:
                await self._schedule(batch)
                room = limits.GATEWAY_ITEMS_MAX - len(failures)
                failed = [line for line in batch if line.problem is not None]
                failures += [{"line": line.number, "problem": line.problem} for line in failed[:room]]
                if self._stopped is not None:
                    break
        counts = {
            "lines": self._lines,
            "accepted": self._accepted,
            "failed": self._failed,
            "failures": failures,
        }
        return counts if self._stopped is None else counts | {"problem": self._stopped}

    async def each(self, request: Request) -> AsyncGenerator[bytes, None]:
        """Schedule all lines; yield an answer for each, and the counts at the end."""
        async with aclosing(self._batches(request)) as batches:
            async for batch in batches:
                await self._schedule(batch)
                yield b"".join(_row(line.outcome()) for line in batch)
                if self._stopped is not None:
                    break
        end: dict[str, Any] = {
            "done": self._stopped is None,
            "accepted": self._accepted,
            "failed": self._failed,
        }
        yield _row(end if self._stopped is None else end | {"problem": self._stopped})

    # -------------------------------------------------------------- reading

    async def _batches(self, request: Request) -> AsyncGenerator[list[_Line], None]:
        """Yield lines as soon as they have come: up to 1,000 of them and about 1 MiB. They share the room of bodies.

        A client may take its time between lines; within one it comes as fast as a body has to.
        """
        room: bodies.BodyRoom = request.app.state.room
        rest, held, pace = b"", 0, bodies.Pace("line 1")
        try:
            async for piece in bodies.pieces(request):
                room.take(len(piece))
                held += len(piece)
                begins = not rest
                *whole, rest = (rest + piece).split(b"\n")
                if len(rest) > limits.GATEWAY_JSON_BYTES_MAX:
                    most = limits.GATEWAY_JSON_BYTES_MAX
                    raise Refusal(413, f"line {self._lines + 1} is longer than {most} bytes", len(rest), most)
                for start in range(0, len(whole), limits.GATEWAY_ITEMS_MAX):
                    if batch := await self._parsed(whole[start : start + limits.GATEWAY_ITEMS_MAX]):
                        yield batch
                room.give(held - len(rest))
                held = len(rest)
                if whole or begins:
                    # What it took to schedule those before, or until this began, does not count.
                    pace = bodies.Pace(f"line {self._lines + 1}")
                else:
                    pace.check(len(rest))
            if batch := await self._parsed([rest]):
                yield batch
        except HTTPException as error:
            self._stopped = problems.of_status(error.status_code, error.detail)
        except Busy as error:
            self._stopped = problems.of_error(error)
        finally:
            room.give(held)

    async def _parsed(self, raw: list[bytes]) -> list[_Line]:
        now_us = await self._service.now_us()
        found = []
        for text in raw:
            if text.strip():
                self._lines += 1
                found.append(self._line(text, now_us))
        return found

    def _line(self, text: bytes, now_us: int) -> _Line:
        number, most = self._lines, limits.GATEWAY_JSON_BYTES_MAX
        try:
            if len(text) > most:
                raise Refusal(413, f"line {number} is longer than {most} bytes", len(text), most)
            return _Line(number, self._read(bodies.parsed(text), now_us, text))
        except ValidationError as error:
            return _Line(number, None, problems.of_validation(error.errors(), "line"))
        except HTTPException as error:
            return _Line(number, None, problems.of_status(error.status_code, error.detail))
        except DueqError as error:
            return _Line(number, None, problems.of_error(error))

    # -------------------------------------------------------------- scheduling

    async def _schedule(self, batch: list[_Line]) -> None:
        sound = [line for line in batch if line.message is not None]
        begin = 0
        for count in by_bodies(line.message for line in sound if line.message):
            await self._sound(sound[begin : begin + count])
            begin += count
            if self._stopped is not None:
                break
        for line in sound[begin:]:
            line.problem = self._stopped
        failed = sum(line.problem is not None for line in batch)
        self._failed += failed
        self._accepted += len(batch) - failed

    async def _sound(self, lines: list[_Line]) -> None:
        """Schedule lines that look sound; those that the mesh refuses are found by halves."""
        if not lines:
            return
        try:
            messages = [line.message for line in lines if line.message]
            ids = await self._service.schedule(self._topic, messages, self._load)
        except PartialFailure as error:
            self._some(lines, error)
            return
        except DueqError as error:
            if isinstance(error, _ROW_FAULTS) and len(lines) > 1:
                await self._sound(lines[: len(lines) // 2])
                await self._sound(lines[len(lines) // 2 :])
                return
            problem = problems.of_error(error)
            for line in lines:
                line.problem = problem
            if not isinstance(error, _ROW_REFUSALS):
                self._stopped = problem
            return
        for line, message_id in zip(lines, ids, strict=True):
            line.message_id = message_id

    def _some(self, lines: list[_Line], failure: PartialFailure) -> None:
        """Some lines are scheduled: the keys of the others are taken, or their partitions have failed."""
        for line, outcome in zip(lines, failure.outcomes, strict=True):
            if isinstance(outcome, str):
                line.message_id = outcome
                continue
            line.problem = problems.of_error(outcome)
            if not isinstance(outcome, Refused):
                self._stopped = line.problem


def _row(document: dict[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
