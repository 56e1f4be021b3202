"""Users of idempotency keys: requests with few keys, repeated and changed, of which each key may take effect once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

from dueq.client import calls
from dueq.client.calls import Once
from dueq.client.core.ports import effects
from dueq.errors import DueqError
from dueq_chaos.sim.judging.claimed import ROW, Asked
from dueq_chaos.sim.users.keyed import KEYS
from dueq_chaos.sim.users.often import is_often

if TYPE_CHECKING:
    from dueq_chaos.sim.environment.sdk import SimClient

KINDS: Final = ("schedule once", "claim and schedule")
_NAMES: Final = tuple(b"once-%d" % number for number in range(6))
_WITH_KEY: Final = b"with-key-"
_KEYS: Final = 3
"""How many unique keys these idempotency keys share."""
_CLAIM_US: Final = 10_000_000
_EVERY: Final = 32
_AT: Final = (11,)
_OFTEN_AT: Final = (1, 11, 16, 27)
_FROM: Final = 256
"""Of every so many seeds these, but for the first, whose storms find other things; where it is often, more of them."""


def draw(seed: int, until_us: int) -> list[tuple[int, str, int]]:
    """Return when something of this is done, what, and the seed of the rest; from a stream of its own."""
    if seed < _FROM or seed % _EVERY not in (_OFTEN_AT if is_often(seed) else _AT):
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


def apart(names: Asked) -> Asked:
    """Return idempotency keys that are only for rows with unique keys: these say which partition decides."""
    return [once and Once(_WITH_KEY + once.name, once.digest) for once in names]


def key_of(once: Once | None) -> str | None:
    """Return the unique key of a row: it follows from the idempotency key, so that one partition decides of both."""
    return None if once is None else KEYS[once.name[-1] % _KEYS]


def claim(client: SimClient, random: Random, topic: str, rows: int, then: Callable[[Asked], None]) -> None:
    """Take a key for a request of many rows, and go on with the keys of these if no other request had it."""
    # A request of many rows never has the digest of one with a single message.
    once = Once(random.choice(_NAMES), random.choice([3, 3, 4]))
    call = calls.claim(topic, [once], lambda: client.world.wall_us)
    names: Asked = [Once(once.name + ROW + b"%d" % row, once.digest) for row in range(rows)]
    client.call(call.build, _CLAIM_US, partial(_claimed, names, then))


def _claimed(names: Asked, then: Callable[[Asked], None], value: Any, failed: effects.Failed | None) -> None:
    if failed is None and not isinstance(value.found()[0], DueqError):
        then(names)
