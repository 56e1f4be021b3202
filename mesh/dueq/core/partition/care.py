"""The work of a partition's leader for its side tables, besides applying their records.

Each care is a module beside its table's (`jobs` for `state/job_table`): it proposes records, asks other partitions,
works off what was decided. None of this state is replicated: a new leader begins with what the table shows.
"""

from __future__ import annotations

from typing import Protocol

from dueq.core.delivery.dispatch import TopicDispatcher
from dueq.core.partition.checkpoints import Checkpoints
from dueq.core.ports.membership import Topic
from dueq.core.state.applied import Applied
from dueq.core.state.timeline import Timeline
from dueq.instant import Now
from dueq_codecs.records import Record
from dueq_codecs.topic_settings import TopicSettings


class CaredPartition(Protocol):
    """The members of a partition that the care for its tables needs."""

    @property
    def uid(self) -> int: ...
    @property
    def topic(self) -> Topic: ...
    @property
    def timeline(self) -> Timeline: ...
    @property
    def checkpoints(self) -> Checkpoints: ...

    @property
    def serving(self) -> bool:
        """Whether this broker leads it, and has applied the barrier of its leadership."""
        ...

    @property
    def log_end(self) -> int:
        """Sequence of the last record."""
        ...

    @property
    def settings(self) -> TopicSettings:
        """The newest settings of the topic that are known here."""
        ...

    @property
    def dispatcher(self) -> TopicDispatcher: ...

    def propose(self, record: Record, now: Now, body: bytes = b"") -> int:
        """Append a record of the leader's own; returns its sequence, 0 when it was refused."""
        ...


class Care(Protocol):
    """The care for one side table, at the leader."""

    def begin(self, now: Now) -> None:
        """The partition is served from now on."""
        ...

    def end(self) -> None:
        """The partition is led no more: nothing comes of the work under way."""
        ...

    def applied(self, record: Record, applied: Applied, now: Now) -> None:
        """A record was applied while the partition is served."""
        ...

    def tick(self, now: Now) -> bool:
        """Periodic care; returns whether anything is left to do."""
        ...
