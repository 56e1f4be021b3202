"""The shared bodies of all storms."""

from __future__ import annotations

from random import Random
from typing import Final

from dueq.client.core.ports.shared_body import SharedBody

_SIZES = (1, 700, 9_000, 40_000)
_BODIES = tuple(SharedBody(b"%d" % number * size) for number, size in enumerate(_SIZES))
BYTES: Final = {body.name: body.data for body in _BODIES}
"""The bytes of the bodies of all storms, by name."""


def body_of(random: Random) -> SharedBody:
    """Return one of the few bodies of all storms."""
    return _BODIES[random.randrange(len(_BODIES))]
