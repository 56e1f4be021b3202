"""Requests by their idempotency keys: of those with one key, one may take effect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dueq import limits
from dueq.client.calls import Once

ROW: Final = b"\xff"
"""Stands between a request's key and the number of one of its rows."""

Asked = list[Once | None]
"""The idempotency key of each row."""


@dataclass(slots=True)
class _First:
    payload: bytes
    digest: int
    asked_ms: int


class Requests:
    """Which payload came with which idempotency key, and which of them was a message."""

    def __init__(self) -> None:
        self._asked: dict[bytes, tuple[str, Once, int]] = {}
        self._firsts: dict[tuple[str, bytes], _First] = {}

    def ask(self, topic: str, payloads: list[bytes], names: Asked, now_ms: int) -> None:
        """Note what is asked for."""
        for payload, once in zip(payloads, names, strict=True):
            if once is not None:
                self._asked[payload] = topic, once, now_ms

    def seen(self, payload: bytes) -> str:
        """A payload is that of a message: say what is wrong with that, if another one has its key."""
        if payload not in self._asked:
            return ""
        topic, once, asked_ms = self._asked[payload]
        found = self._firsts.setdefault((topic, once.name), _First(payload, once.digest, asked_ms))
        base = once.name.partition(ROW)[0]
        whole = self._firsts.setdefault((topic, base), _First(payload, once.digest, asked_ms))
        if abs(found.asked_ms - asked_ms) >= limits.ONCE_MS // 2:
            return ""  # one may be forgotten
        if found.payload != payload:
            return f"has the idempotency key {once.name!r} of {found.payload!r}"
        if whole.digest != once.digest:
            return f"has the idempotency key {base!r} of another request, that of {whole.payload!r}"
        return ""
