"""The order of a topic's messages: which classes there are, and the bytes of a class on the disk.

There is one index: `class, wait_at, key`. Classes are looked at in the kind's order, and the first one whose head is
ready (waits until now or sooner) gives the next message. So no entry moves because time passes, and readiness is no
replicated state.

    kind        class               what is next
    timeline    there is only one   its head
    priority    the rank            the head of the smallest rank whose head is ready
    fair        group and rank      that of the group whose turn it is: the head of its smallest rank that is ready

A kind decides here what is a function of the log: which class a message is of, and which messages are in memory
(`Window`). The leader decides whose turn it is among the ready messages, and that is volatile:
`core/delivery/turns.py`.
"""

from __future__ import annotations

from typing import Final, Protocol

from dueq.core.ports.entry import Entries
from dueq.core.state.fair import FairOrder
from dueq.core.state.job_table import JobTable
from dueq.core.state.priority import PriorityOrder
from dueq.core.state.window import HotWindow, Window
from dueq.errors import UnknownVersion
from dueq_codecs.records import U64


class Order(Protocol):
    """The order of a topic's messages, by the topic's kind.

    Attributes:
        kind: as the topic names it.
        class_bytes: length of a class in the keys of the index, big-endian; 0: there is only one class.
        has_ranks: messages may be given a rank.
        has_groups: messages may be given a group.
    """

    @property
    def kind(self) -> str: ...
    @property
    def class_bytes(self) -> int: ...
    @property
    def has_ranks(self) -> bool: ...
    @property
    def has_groups(self) -> bool: ...

    def classes(self, rows: Entries) -> U64 | None:
        """Return the class of each row; None: all are of the one class (then nobody pays for classes)."""
        ...

    def window(self, jobs: JobTable, low_water: int | None) -> Window:
        """Return a window in which nothing is yet.

        Args:
            jobs: which say what may be delivered.
            low_water: everything on the disk waits at this instant or later; None: nothing is on the disk.
        """
        ...


class TimelineOrder:
    """The soonest first."""

    kind: Final = "timeline"
    class_bytes: Final = 0
    has_ranks: Final = False
    has_groups: Final = False

    def classes(self, rows: Entries) -> U64 | None:
        """None: there is one class."""
        return None

    def window(self, jobs: JobTable, low_water: int | None) -> Window:
        """Return a window that ends before everything that is on the disk."""
        return HotWindow((low_water, 0) if low_water is not None else None, jobs)


TIMELINE: Final = TimelineOrder()
ORDERS: Final[dict[str, Order]] = {order.kind: order for order in (TIMELINE, PriorityOrder(), FairOrder())}
"""By kind of topic. A new kind is a line here and one in `core/delivery/turns.py`."""


def order_of(kind: str) -> Order:
    """Return the order of a kind of topic.

    Raises:
        UnknownVersion: a newer build made the topic.
    """
    if kind not in ORDERS:
        raise UnknownVersion(f"the topic is of kind {kind!r}; this build knows {', '.join(ORDERS)}")
    return ORDERS[kind]
