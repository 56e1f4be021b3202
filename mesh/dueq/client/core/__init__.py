"""The SDK's session as a pure machine: `ClientCore.step(events, now) -> effects` (see machine.py)."""

from dueq.client.core.machine import ClientCore
from dueq.client.core.ports.delivery import Delivery
from dueq.client.core.ports.parts import PartsCall

__all__ = ["ClientCore", "Delivery", "PartsCall"]
