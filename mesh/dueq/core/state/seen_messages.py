"""The messages, as records of side tables see and change them (see `side_table.Messages`)."""

from __future__ import annotations

from dueq.core.ports.entry import Entries
from dueq.core.state.job import Job
from dueq.core.state.live import LiveMessages
from dueq.core.state.residency import Residency


class SeenMessages:
    """The messages of one partition."""

    def __init__(self, live: LiveMessages, residency: Residency) -> None:
        self._live, self._residency = live, residency

    @property
    def waiting(self) -> int:
        """How many wait."""
        return self._live.scheduled

    @property
    def dead(self) -> int:
        """How many are dead."""
        return self._live.dead

    def decided(self, job: Job) -> Entries:
        """Let a job's messages be delivered, or no more; returns those to deliver."""
        return self._residency.decided(job)
