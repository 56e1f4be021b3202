"""What the reference knows of jobs and passes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dueq.core.state.pass_table import PassState
from dueq_codecs.records import JobState


@dataclass(slots=True)
class NaiveJob:
    """One job, as this partition knows it."""

    key: bytes
    number: int
    state: JobState
    until: int
    cleared: bool = False
    look_at: int = 0
    """Age of the partition at which to look whether it may be forgotten."""


@dataclass(slots=True)
class NaivePass:
    """One pass, as this partition knows it."""

    sequence: int
    work: dict[str, Any]
    total: int
    done: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    state: PassState = PassState.RUNNING
    ended: int = 0
