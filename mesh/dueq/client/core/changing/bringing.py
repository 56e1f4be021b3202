"""Shared bodies on their way to partitions that lack them.

An INSERT names its body and goes out at once. A partition that does not keep the body refuses; then the body is brought
there, and the same request is repeated. Requests that are refused meanwhile wait for the same body.

Bodies have a client id of their own: in the window of those requests, which stay open, they would wait for the answers.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

import numpy as np

from dueq.client.core.ports.change import Change, Part
from dueq.client.core.ports.shared_body import NamedBody, SharedBody
from dueq.errors import DueqError
from dueq_codecs.records import U32, U64, RecordKind


def body_part(
    topic: str,
    uid: int,
    client_id: bytes,
    body: NamedBody,
    done: Callable[[Part], None],
    grace_ms: int | None = None,
) -> Part:
    """Return the part that brings a body, or keeps one that is there; with `grace_ms` for this long."""
    brings = grace_ms is None and isinstance(body, SharedBody)
    size: U32 = np.array([body.size] if brings else [], np.uint32)
    crc: U32 = np.array([body.crc] if brings else [], np.uint32)
    amount: U64 = np.array([] if grace_ms is None else [grace_ms], np.uint64)
    return Part(
        RecordKind.BODY, topic, uid, client_id, 1, done, size=size, crc=crc, amount_ms=amount,
        inline=[body.data] if brings and isinstance(body, SharedBody) else [], shared=body.name, shared_size=body.size,
    )  # fmt: skip


class Bringing:
    """The bodies that are being brought.

    Args:
        client_id: of the client.
        submit: takes a part on its way.
        ready: the body is there: send the request again.
        failed: it cannot be brought.

    Attributes:
        client_id: that of bodies.
    """

    def __init__(
        self,
        client_id: bytes,
        submit: Callable[[Part], None],
        ready: Callable[[Change], None],
        failed: Callable[[Change, DueqError], None],
    ) -> None:
        self.client_id = sha256(client_id + b"bodies").digest()[: len(client_id)]
        self._submit, self._ready, self._failed = submit, ready, failed
        self._waiting: dict[tuple[int, bytes], dict[Change, None]] = {}

    def wants(self, change: Change) -> bool:
        """Bring the body that a request was refused for; False: nobody here has its bytes."""
        body = next((part.body for part in change.parts if part.body is not None), None)
        if not isinstance(body, SharedBody):
            return False
        name = change.request.uid, body.name
        waiting = self._waiting.get(name)
        if waiting is not None:
            waiting[change] = None
            return True
        self._waiting[name] = {change: None}
        request = change.request
        part = body_part(request.topic, name[0], self.client_id, body, lambda part: self._brought(name, part))
        self._submit(part)
        return True

    def forget(self, change: Change) -> None:
        """Nobody waits for this request any more."""
        for waiting in self._waiting.values():
            waiting.pop(change, None)

    def _brought(self, name: tuple[int, bytes], part: Part) -> None:
        for change in self._waiting.pop(name):
            if part.error is not None:
                self._failed(change, part.error)
            else:
                self._ready(change)  # if it has gone again meanwhile, it is brought again
