"""Pauses that end by themselves: the settings of a topic keep them, as nothing is written when they end."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from dueq import EndpointInfo, TopicInfo
from dueq.gateway import instants

_Paused = TypeVar("_Paused", TopicInfo, EndpointInfo)


def as_of(now_ms: int, info: _Paused) -> _Paused:
    """Return a topic or an endpoint as it is at an instant: without a pause that is over."""
    until = info.paused_until
    if until is None or instants.ms_of(until) > now_ms:
        return info
    return replace(info, paused=False, paused_until=None)
