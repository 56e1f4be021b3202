"""Users of idempotency keys: requests with few keys, repeated and changed, of which each key may take effect once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

from dueq import limits
from dueq.client import calls
from dueq.client.calls import Once
from dueq.client.core.ports import effects
from dueq.errors import DueqError

if TYPE_CHECKING:
    from dueq_chaos.sim.sdk import SimClient

KINDS: Final = ("schedule once", "claim and schedule")
_NAMES: Final = tuple(b"once-%d" % number for number in range(6))
_CLAIM_US: Final = 10_000_000
_ROW: Final = b"\xff"
_EVERY: Final = 32
_AT: Final = 11
_FROM: Final = 256
"""Of every so many seeds one, but for the first, whose storms find other things."""

Asked = list[Once | None]


def draw(seed: int, until_us: int) -> list[tuple[int, str, int]]:
    """Return when something of this is done, what, and the seed of the rest; from a stream of its own."""
    if seed < _FROM or seed % _EVERY != _AT:
        return []
    random = Random(seed * 0x27D4EB2F + 61)
    return [
        (random.randint(0, until_us), random.choice(KINDS), random.getrandbits(32))
        for _ in range(random.randint(8, 24))
    ]


def draw_names(random: Random, rows: int) -> Asked:
    """Return an idempotency key for each row, as NDJSON has them; some have none."""
    return [
        None if random.random() < 0.1 else Once(random.choice(_NAMES), random.choice([1, 1, 2]))
        for _ in range(rows)
    ]


def claim(client: SimClient, random: Random, topic: str, rows: int, then: Callable[[Asked], None]) -> None:
    """Take a key for a request of many rows, and go on with the keys of these if no other request had it."""
    # A request of many rows never has the digest of one with a single message.
    once = Once(random.choice(_NAMES), random.choice([3, 3, 4]))
    call = calls.claim(topic, [once], lambda: client.world.wall_us)
    names: Asked = [Once(once.name + _ROW + b"%d" % row, once.digest) for row in range(rows)]
    client.call(call.build, _CLAIM_US, partial(_claimed, names, then))


def _claimed(names: Asked, then: Callable[[Asked], None], value: Any, failed: effects.Failed | None) -> None:
    if failed is None and not isinstance(value.found()[0], DueqError):
        then(names)


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
        base = once.name.partition(_ROW)[0]
        whole = self._firsts.setdefault((topic, base), _First(payload, once.digest, asked_ms))
        if abs(found.asked_ms - asked_ms) >= limits.ONCE_MS // 2:
            return ""  # one may be forgotten
        if found.payload != payload:
            return f"has the idempotency key {once.name!r} of {found.payload!r}"
        if whole.digest != once.digest:
            return f"has the idempotency key {base!r} of another request, that of {whole.payload!r}"
        return ""
