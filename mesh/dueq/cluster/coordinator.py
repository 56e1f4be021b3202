"""The port of the coordinator, which holds the cluster's small facts, and the errors of a start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from dueq.core.ports.membership import CoordinatorEvent, CoordinatorOrder, Registration
from dueq.errors import Broken, Refused, Unavailable

Deliver = Callable[[CoordinatorEvent], None]
"""Takes one event; called from any thread, so it may only enqueue."""


class CoordinatorUnavailable(Unavailable):
    """The coordinator could not be reached in time; nothing is registered."""


class BrokerIdTaken(Refused):
    """Another living broker, with another data folder, is registered under this broker's id."""


class CoordinatorUnreadable(Broken):
    """A fact that the coordinator holds is damaged, or of a format that this build does not know."""


class Coordinator(Protocol):
    """Registration, topics and the partitions' nodes: ZooKeeper, or a stand-in.

    Events of one coordinator are delivered one after the other, in an order in which they happened. CONNECTED comes
    only while the registration is in place. After it everything is told again: RegistrationsSeen, TopicsSeen,
    NodeSeen, a topic before its partitions' nodes. The nodes of a new topic come after it, without being asked for.
    The same thing may be delivered twice. One creation id makes one topic: an order that comes again after that topic
    was deleted makes none, as long as that is one of the last deletions (see `CREATIONS_KNOWN`).

    Each CompareAndSet is answered exactly once by CompareAndSetDone, and each CreateTopic and DeleteTopic exactly
    once by TopicOrderDone, unless `stop` comes first. A ReadNode is answered by a NodeSeen, unless the connection is
    lost first; the next CONNECTED reads everything.
    """

    @property
    def cluster_id(self) -> str:
        """The cluster's random id, made by the first broker ever; known once `start` has returned."""
        ...

    def start(self, registration: Registration, deliver: Deliver) -> None:
        """Connect, register, and deliver CONNECTED; blocks until then.

        Args:
            registration: this life of this broker; put back as it is whenever a session was lost.
            deliver: gets every event, from any thread; only enqueues.

        Raises:
            CoordinatorUnavailable: nobody answered in time.
            BrokerIdTaken: another living broker has this id.
            CoordinatorUnreadable: the cluster is of a format or feature level that this build does not know.
        """
        ...

    def submit(self, order: CoordinatorOrder) -> None:
        """Take an order; never blocks, may be called from any thread. The answer is an event."""
        ...

    def stop(self) -> None:
        """Remove the registration and end, within seconds; nothing is delivered afterwards."""
        ...
