"""How a simulated consumer treats what it receives."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Habits:
    """How a consumer treats a message; shares of all messages.

    Attributes:
        idle_us: how long it leaves received messages where they are.
        work_us: how long it works on one.
        nack, extend, forget, late, twice: what it does instead of (or before) a plain ack.
        shorten: share of the extensions that are to any length, and after which it works on for a while.
        patient: acks whose outcome it does not wait for.
        kill, back_off: share of what is given back that is never to come again, or is to wait as its topic says.
    """

    idle_us: tuple[int, int] = (20, 2_000)
    work_us: tuple[int, int] = (200, 5_000)
    nack: float = 0.0
    extend: float = 0.0
    forget: float = 0.0
    late: float = 0.0
    twice: float = 0.0
    shorten: float = 0.0
    patient: float = 0.0
    kill: float = 0.0
    back_off: float = 0.0
