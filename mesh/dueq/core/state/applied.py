"""The result of applying one committed record: the answers to its requests, and news for dispatch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dueq.core.ports.entry import NO_ENTRIES, Entries
from dueq.core.state.job import Job
from dueq_codecs.messages import Code
from dueq_codecs.records import NO_U8, NO_U32, NO_U64, U8, U32, U64, Outcome
from dueq_codecs.topic_settings import TopicSettings

PRESENT: Final = np.dtype([("first", "<u8"), ("sequence", "<u8"), ("row", "<u2"), ("due", "<u8")])
"""A message that a row met: its id, and when it is due. All 0: nobody is told."""
Present = npt.NDArray[Any]
"""A one-dimensional array of dtype PRESENT."""
NO_PRESENT: Final[Present] = np.empty(0, PRESENT)


class Met(NamedTuple):
    """The messages that rows of an INSERT met because their keys named one already."""

    outcomes: U8
    """One Outcome per row; DONE: it took effect, or its request did before."""
    present: Present
    """The message that each row met that did not take effect."""

    def of(self, first: int, behind: int) -> Met:
        """Return the same of some of the rows; the messages only of those that did not take effect."""
        outcomes = self.outcomes[first:behind]
        return Met(outcomes, self.present[first:behind][outcomes != Outcome.DONE])


@dataclass(slots=True)
class RequestResult:
    """The answer to one request of the record: what its ChangeReply says."""

    client_id: bytes
    client_sequence: int
    code: Code
    """OK, SEQUENCE_REUSED, OUTCOME_UNKNOWN, JOB_ENDED or UNKNOWN_BODY."""
    sequence: int
    """Of the record that took effect (an earlier one when this request is a repeat)."""
    row: int
    """First row of the request in that record."""
    stamp: int
    """Stamp of that record."""
    outcomes: U8 = field(default_factory=lambda: NO_U8)
    """One Outcome per row; empty for an INSERT of which all rows took effect."""
    repeated: bool = False
    """The request had taken effect before; nothing was changed now."""
    window: U32 = field(default_factory=lambda: NO_U32)
    """INSERT: how much later each row is due than was asked for, ms; empty: not at all."""
    present: Present = field(default_factory=lambda: NO_PRESENT)
    """INSERT with outcomes: the messages that rows met which did not take effect, in their order."""


@dataclass(slots=True)
class Applied:
    """The result of `Timeline.apply`."""

    results: list[RequestResult] = field(default_factory=list)
    waiting: Entries = field(default_factory=lambda: NO_ENTRIES)
    """Entries that began to wait, or may be delivered from now on, and lie in the hot window, as they are now."""
    leased: Entries = field(default_factory=lambda: NO_ENTRIES)
    """LEASE: entries that were granted (token = this record). EXTEND: entries whose lease was extended."""
    refused: U64 = field(default_factory=lambda: NO_U64)
    """LEASE: keys that could not be granted (cancelled or moved meanwhile). LAPSE: keys that have not expired."""
    ended: Entries = field(default_factory=lambda: NO_ENTRIES)
    """Entries whose lease ended by this record, as they were before (token and consumer included)."""
    settings: TopicSettings | None = None
    """SETTINGS: those in force from now on; None: they were already, or newer ones."""
    met: Met | None = None
    """INSERT: rows of which some met messages of the same keys."""
    died: int = 0
    """Messages that are dead from now on."""
    job: Job | None = None
    """JOB: the job as it is now."""
