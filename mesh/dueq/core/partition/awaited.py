"""Requests that wait for their answers at one leader, each with all of its attempts.

A client repeats a request after a second of silence, while the first attempt may still wait for its commit. Such a
repetition needs no record of its own: it gets the answer to the attempt that waits. The attempts are forgotten with the
leadership. What has taken effect is remembered by the replicas (`core/state/dedup.py`).
"""

from __future__ import annotations

from typing import Final

from dueq.core.ports.events import Route
from dueq_codecs.messages import ChangeRequest
from dueq_codecs.records import RecordKind

ATTEMPTS_MAX: Final = 16
"""Attempts of one request that wait for its answer; the oldest are dropped, as their client has asked again."""


Attempt = tuple[Route, int]
"""Where one frame of a client came from, and its request id."""


class Awaited:
    """One request that waits, and its attempts, oldest first; there is at least one."""

    __slots__ = ("attempts", "digest", "name")

    def __init__(self, name: tuple[bool, bytes, int], digest: int, first: Attempt) -> None:
        self.name, self.digest = name, digest
        self.attempts = [first]


class AwaitedRequests:
    """All requests of one partition that wait."""

    def __init__(self) -> None:
        self._open: dict[tuple[bool, bytes, int], Awaited] = {}

    def joins(self, route: Route, request: ChangeRequest) -> bool:
        """Let a repetition wait with the attempt that waits already; False: there is none, or its content differs."""
        awaited = self._open.get(_name_of(request))
        if awaited is None or awaited.digest != request.digest:
            return False
        if len(awaited.attempts) == ATTEMPTS_MAX:
            del awaited.attempts[0]
        awaited.attempts.append((route, request.request_id))
        return True

    def begin(self, route: Route, request: ChangeRequest) -> Awaited:
        """A request begins to wait."""
        name = _name_of(request)
        awaited = Awaited(name, request.digest, (route, request.request_id))
        self._open.setdefault(name, awaited)
        return awaited

    def end(self, awaited: Awaited) -> list[Attempt]:
        """A request is answered now; returns the attempts that get the answer."""
        if self._open.get(awaited.name) is awaited:
            del self._open[awaited.name]
        return awaited.attempts


def _name_of(request: ChangeRequest) -> tuple[bool, bytes, int]:
    """The INSERTs of jobs are numbered, and remembered, apart from all others."""
    return bool(request.job) and request.kind == RecordKind.INSERT, request.client_id, request.sequence
