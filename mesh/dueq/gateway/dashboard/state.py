"""The data that pages are made of."""

from __future__ import annotations

from dataclasses import dataclass

from dueq.gateway.dashboard.alarms import Alarm
from dueq.gateway.dashboard.history import History
from dueq.gateway.dashboard.snapshot import Sight


@dataclass(frozen=True, slots=True)
class State:
    """The findings of a look and of those before it.

    Attributes:
        sight: the last look.
        alarms: what is wrong, the worst first.
        history: of deliveries.
    """

    sight: Sight
    alarms: list[Alarm]
    history: History
