"""A user who browses while the storm goes on: all pages of a walk are the state after one record.

The result of a walk is compared with the state of the committed records, applied up to that record.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

import numpy as np

from dueq import ids
from dueq.client.browsing import BrowsePage, Walk
from dueq.client.core.asking.browsing import PageAnswer
from dueq.client.core.ports import effects, events
from dueq.core.ports.entry import keys_of, versions_of
from dueq.core.state.fair import group_classes
from dueq.core.state.priority import ranks_of
from dueq.core.state.timeline import Timeline
from dueq.errors import SnapshotLost
from dueq_chaos.sim.environment.mesh import SimMesh
from dueq_chaos.sim.environment.sdk import SimClient

_CALL_US: Final = 10_000_000
_AT_LEISURE: Final = 8
"""Number of pages after which it reads on without a rest: a storm ends when its calls have ended."""

Shown = tuple[str, int, int, int, int, int]
"""(id, instant until which it waits, due, attempt, rank, version)"""


class Seen:
    """The result of one whole walk.

    Attributes:
        place: of the partition in its topic.
        applied: the record after which it is the state, as the first page says.
        rows: in order.
    """

    def __init__(self, place: int, applied: int) -> None:
        self.place, self.applied = place, applied
        self.rows: list[Shown] = []
        self.pages = 0

    def add(self, page: BrowsePage) -> None:
        """Take the next page."""
        self.pages += 1
        columns = zip(
            page.ids, page.waits_until.tolist(), page.due.tolist(), page.attempt.tolist(), page.rank.tolist(),
            page.version.tolist(), strict=True,
        )  # fmt: skip
        self.rows += columns


def shown_of(uid: int, state: Timeline) -> list[Shown]:
    """Return the part of a state that browsing shows: waiting messages that may be delivered, in order."""
    entries = state.waiting_hot()
    barred = state.jobs.barred(entries)
    if barred is not None:
        entries = entries[~barred]
    entries = entries[np.lexsort((keys_of(entries), entries["wait_at"], group_classes(entries)))]
    columns = [entries[name].tolist() for name in ("first", "sequence", "row", "wait_at", "due", "attempt")]
    columns += [ranks_of(entries).tolist(), versions_of(entries).tolist()]
    return [
        (ids.to_text(ids.MessageId(first, uid, sequence, row)), wait_at, due, attempt, rank, version)
        for first, sequence, row, wait_at, due, attempt, rank, version in zip(*columns, strict=True)
    ]


class BrowsingUser:
    """Walks over one partition after the other, a few rows at a time, at leisure.

    Args:
        mesh: where.
        topic: what is read.
        wire: whether its frames go through the codecs.
    """

    def __init__(self, mesh: SimMesh, topic: str, wire: bool) -> None:
        self.mesh, self.topic = mesh, topic
        self.client: SimClient = mesh.sdk("reader")
        self.client.wire = wire
        self.client.asks_nonsense = ("partitions, not one",)  # it knows of new ones before any broker does

    @property
    def uids(self) -> list[int]:
        """The topic's partitions, by place; there may be more by and by."""
        return [partition.uid for partition in self.mesh.coordinator.topics[self.topic].partitions]

    def browse(self, random: Random) -> None:
        """Begin a walk."""
        place = random.randrange(len(self.uids))
        walk = Walk(self.topic, place, payloads=random.random() < 0.3)
        limit, rest_us = random.choice([1, 3, 10, 100]), random.choice([1_000, 300_000, 3_000_000])
        self._ask(walk, place, None, limit, rest_us)

    def _ask(self, walk: Walk, place: int, seen: Seen | None, limit: int, rest_us: int) -> None:
        call = walk.call()
        assert call is not None

        def build(number: int, deadline_us: int) -> events.Event:
            event = call.build(number, deadline_us)
            assert isinstance(event, events.Browse)
            event.limit = limit
            return event

        self.client.call(build, _CALL_US, partial(self._answered, walk, place, seen, limit, rest_us))

    def _answered(
        self, walk: Walk, place: int, seen: Seen | None, limit: int, rest_us: int, value: PageAnswer | None,
        failed: effects.Failed | None,
    ) -> None:  # fmt: skip
        if failed is not None:
            if not isinstance(failed.error, SnapshotLost):
                return
            try:
                walk.lost(failed.error)
            except SnapshotLost:
                return  # as it must be: the messages shown are right, and no more follow
        else:
            walk.take(value)
        if walk.call() is None:
            page = walk.page()
            seen = seen or Seen(place, page.applied)
            if page.applied != seen.applied:
                self._wrong(place, f"pages of the states after records {seen.applied} and {page.applied}")
            seen.add(page)
            if walk.done:
                self._judge(walk, seen)
                return
        if seen is not None and seen.pages >= _AT_LEISURE:
            rest_us = 0
        self._later(rest_us, partial(self._ask, walk, place, seen, limit, rest_us))

    def _judge(self, walk: Walk, seen: Seen) -> None:
        ending = walk.ending()
        if ending is not None:
            self.client.submit(ending)
        uid = self.uids[seen.place]
        state = self.mesh.state_after(uid, seen.applied)
        expected = shown_of(uid, state) if state is not None else seen.rows
        if expected != seen.rows:
            missing = [row for row in expected if row not in seen.rows]
            strange = [row for row in seen.rows if row not in expected]
            self._wrong(
                seen.place,
                f"the state after record {seen.applied} lacks {missing}, has {strange} beyond it",
            )
        self.mesh.world.tell("reader", f"has seen {len(seen.rows)} rows after record {seen.applied}")

    def _wrong(self, place: int, what: str) -> None:
        self.mesh.history.misanswered(f"browsing partition {self.uids[place]}: {what}")

    def _later(self, after_us: int, action: Callable[[], None]) -> None:
        client = self.client
        client.waiting += 1

        def run() -> None:
            client.waiting -= 1
            if client.core is not None:
                action()

        self.mesh.world.after(after_us, run)
