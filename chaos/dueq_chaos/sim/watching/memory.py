"""Memory as an invariant: the memory of a broker depends on its present contents, not on its past.

Every container that can be reached from a broker's core is counted, by the class and the attribute that hold it. Once
all is quiet, none may have more elements than a small number for each object that holds one, and a few for each thing
that lives: messages in memory, leases, sessions, jobs, partitions, peers. The exceptions have bounds of their own, and
are looked at by name: the due queue, the log's cache and marks, the memory of past requests, the last goodbyes of
consumers, pushes that are not seen yet, and the headers that NACKs have given messages of which nothing else is in
memory.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import numpy as np

from dueq import limits
from dueq.core.broker import BrokerCore
from dueq.core.delivery import due_queue
from dueq.core.delivery.consumers import ConsumerSession
from dueq.core.delivery.departed import KEPT_MAX, KEPT_US, Departed
from dueq.core.delivery.fair_queue import FairQueue
from dueq.core.delivery.lane import Lane
from dueq.core.delivery.priority_queue import PriorityQueue
from dueq.core.partition.partition import Partition
from dueq.core.partition.uploads import Uploads
from dueq.core.ports.entry import State, are_triggered
from dueq.core.replication.log import resident_bytes
from dueq.core.replication.log_weight import MARKS_MAX, LogWeight
from dueq.core.state.heading_table import HeadingTable
from dueq.core.state.table import OnDisk
from dueq.core.state.timeline import Timeline
from dueq.instant import Now
from dueq_codecs.records import JobState

EACH_MAX: Final = 64
"""Elements that any object may have in one of its containers, however little there is."""
LIVE_MAX: Final = 4
"""Elements of one kind for each thing that lives."""
_CARE_US: Final = 2_000_000
"""Longest time until something that has ended is cleared away."""
_SAID_US: Final = 3_000_000
"""After this long a consumer that speaks has said that a push has come, or has been sent it again."""
_CONTAINERS: Final = (dict, list, deque, set, frozenset, tuple, array)
_PLAIN: Final = (int, float, str, bytes, bool, type(None))
_FIXED: Final = frozenset(
    (
        "Histogram.counts", "Histogram.bounds", "HourCounts.lateness", "LeaseTable.bodies", "LeaseTable._free",
        "ClassedWindow._free", "CoreMetrics.messages", "Job.key",
    )
)  # fmt: skip
"""As long as they are made, or as their owner's capacity."""
_OWN_BOUNDS: Final = frozenset(
    (
        "DueQueue._heap", "PriorityQueue._heaps", "PriorityQueue._sleeping", "PriorityQueue._alarms",
        "FairQueue._sleeping", "FairQueue._given", "FairQueue._counted", "FairQueue._alarms", "FairQueue._alarmed",
        "FairQueue._leaves", "Node.heap",
        "DurableLog._cache", "LogWeight._lasts", "LogWeight._weights", "Uploads._named",
        "Answers._older", "Answers._newer", "Answers._free", "Answers._mixed", "Answers._windows",
        "Answers._met", "Deduplication._clients", "Deduplication._active", "Deduplication._numbers",
        "Deduplication._empty", "Deduplication._changed",
        "_Client.sequences", "_Client.slots",
        "HeadingTable.by_key", "HeadingTable._saved", "Departed._ended", "ConsumerSession.unseen",
    )
)  # fmt: skip


class Census:
    """The containers and objects of one broker's core.

    Attributes:
        elements: of containers, by "Class.attribute".
        objects: how many objects have such a container.
        found: every object, by the name of its class.
    """

    def __init__(self, root: object, package: str) -> None:
        self.elements: Counter[str] = Counter()
        self.objects: Counter[str] = Counter()
        self.found: defaultdict[str, list[Any]] = defaultdict(list)
        self._package = package
        self._seen: set[int] = set()
        self._open: list[object] = [root]
        while self._open:
            self._look(self._open.pop())

    def _look(self, owner: object) -> None:
        if id(owner) in self._seen:
            return
        self._seen.add(id(owner))
        self.found[type(owner).__name__].append(owner)
        for name, value in _attributes(owner):
            what = f"{type(owner).__name__}.{name}"
            if isinstance(value, _CONTAINERS):
                self.objects[what] += 1
                self._count(what, value)
            elif self._is_ours(value):
                self._open.append(value)

    def _count(self, what: str, container: Any) -> None:
        self.elements[what] += len(container)
        values = container.values() if isinstance(container, dict) else container
        for value in _with_parts(values):
            if isinstance(value, _CONTAINERS):
                if not isinstance(value, tuple):
                    self._count(what, value)
                else:
                    self._open += [part for part in value if self._is_ours(part)]
            elif self._is_ours(value):
                self._open.append(value)

    def _is_ours(self, value: object) -> bool:
        return type(value).__module__.startswith(self._package)


def _with_parts(values: Any) -> Iterable[object]:
    """Return the elements of a container unless they are plain; all are of one kind."""
    first = next(iter(values), None)
    return () if isinstance(first, _PLAIN) else values


def _attributes(owner: object) -> Iterator[tuple[str, object]]:
    for kind in type(owner).__mro__:
        for name in kind.__dict__.get("__slots__", ()):
            if isinstance(name, str) and hasattr(owner, name):
                yield name, getattr(owner, name)
    yield from getattr(owner, "__dict__", {}).items()


def excess(core: BrokerCore, now: Now) -> list[str]:
    """Return what a broker that has nothing to do keeps too much of, the worst first."""
    census = Census(core, "dueq.core")
    wrong = [
        text for kind, look in _LOOKS.items() for owner in census.found[kind] for text in look(owner, now)
    ]
    live = sum(_lives(partition) for partition in census.found["Partition"])
    live += sum(len(census.found[kind]) for kind in ("ConsumerSession", "Job", "Peer", "Topic"))
    found = []
    for what, count in census.elements.items():
        bound = EACH_MAX * census.objects[what] + LIVE_MAX * live
        if count > bound and what not in _OWN_BOUNDS and what not in _FIXED:
            found.append((count - bound, f"{what} has {count} elements, {live} things live"))
    return wrong + [text for _, text in sorted(found, reverse=True)]


def _alarms(queue: PriorityQueue, now: Now) -> Iterator[str]:
    alarms, ranks, places = len(queue._sleeping), len(queue._heaps), len(queue)
    if alarms > places or ranks > places:
        yield f"a priority queue has {alarms} alarms and {ranks} ranks for {places} places"


def _groups(queue: FairQueue, now: Now) -> Iterator[str]:
    sleeping = sum(map(len, queue._sleeping.values()))
    ready = sum(len(leaf.heap or ()) for leaf in queue._leaves.values())
    alarms, places = len(queue._alarms), len(queue)
    unknown = queue._messages.unknown_count
    if sleeping + ready != places:
        yield f"a fair queue counts {places} places, {sleeping} sleep and {ready} are ready"
    if not all(queue._sleeping.values()):
        yield "a fair queue keeps groups that have no place"
    idle = sum(1 for leaf in queue._leaves.values() if not leaf.heap)
    if idle > unknown + EACH_MAX:  # the next look forgets those of which nothing is on the disk
        yield f"a fair queue keeps {idle} groups that have no place, {unknown} classes are on the disk"
    if alarms > 2 * (places + unknown) + due_queue.SPARE_PLACES + EACH_MAX:
        yield f"a fair queue has {alarms} alarms for {places} places, {unknown} classes are on the disk"


def _lives(partition: Partition) -> int:
    timeline = partition.timeline
    return 1 + timeline.hot_count + timeline.leased_count + timeline.dirty_rows


def _lane(lane: Lane, now: Now) -> Iterator[str]:
    places, hot = len(lane.queue), lane.partition.timeline.hot_count
    if places > 2 * hot + due_queue.SPARE_PLACES:
        yield f"p{lane.uid}: the due queue has {places} places for {hot} waiting messages"


def _partition(partition: Partition, now: Now) -> Iterator[str]:
    log, timeline = partition.replica.log, partition.timeline
    cached = [entry for at in range(log.cached_from, log.end + 1) if (entry := log.get(at)) is not None]
    weight = sum(map(resident_bytes, cached))
    if weight != log.cached_bytes:
        yield f"p{partition.uid}: the cache of the log counts {log.cached_bytes} bytes, and has {weight}"
    bound = min(limits.LOG_CACHE_BYTES, limits.LOG_CACHE_TOTAL_BYTES)
    done = min(timeline.applied, partition.replica.synced)
    applied = sum(resident_bytes(entry) for entry in cached if entry.record.sequence <= done)
    if applied > bound:
        yield f"p{partition.uid}: {applied} bytes of applied records are kept in memory, {bound} may be"
    if partition.broken or partition.replica.installing:
        return
    rows, wanted = timeline.memory_rows, timeline.hot_count + timeline.leased_count
    # Two checkpoints' worth of what has changed since, or is being written.
    if rows > 2 * wanted + 2 * limits.CHECKPOINT_ROWS_MAX + EACH_MAX:
        yield f"p{partition.uid}: {rows} rows are in memory, {wanted} are wanted there"


def _marks(weight: LogWeight, now: Now) -> Iterator[str]:
    if len(weight) > MARKS_MAX:
        yield f"a log has {len(weight)} marks of its weight"


def _past(timeline: Timeline, now: Now) -> Iterator[str]:
    """Judge the memory of past requests and jobs by the age of the partition."""
    for dedup in (timeline.dedup, timeline.job_dedup):
        oldest_ms = dedup.oldest_age_ms
        if oldest_ms is not None and oldest_ms < timeline.age_ms - dedup.limits.age_ms:
            yield f"p{timeline.uid}: an answer of age {oldest_ms} is remembered at age {timeline.age_ms}"
        if dedup.bytes > dedup.limits.bytes_max:
            yield f"p{timeline.uid}: answers weigh {dedup.bytes}, {dedup.limits.bytes_max} may be kept"
    for job in timeline.jobs.by_key.values():
        over = job.look_at_ms < timeline.age_ms and timeline.stamp > job.until + limits.JOB_MEMORY_MS
        if over and not job.messages and job.state != JobState.OPEN:
            yield f"p{timeline.uid}: job {job.key.hex()} is known at age {timeline.age_ms}"


def leaks(timeline: Timeline) -> list[str]:
    """Return the rows that memory has no use for, and that nothing will let go.

    They are not looked for while a read is under way, which may rest on them.
    """
    table, residency = timeline._table, timeline._residency
    if not residency.reads.settled:
        return []
    listed = np.zeros(len(table.state), np.bool_)
    for slots in residency._loose:
        listed[slots] = True
    slots = np.fromiter(table.slot_of.values(), np.intp, len(table.slot_of))
    slots = slots[~table.dirty[slots] & (table.pins[slots] == 0) & ~listed[slots]]
    rows = table.take(slots)
    waits = (table.state[slots] == State.WAITING) & (table.disk[slots] == OnDisk.WAITING)
    useless = (table.state[slots] == State.DEAD) & (table.disk[slots] == OnDisk.DEAD)
    useless |= (table.state[slots] == State.ABSENT) & (table.disk[slots] == OnDisk.NOTHING)
    inside = timeline._window.mask(rows)
    if inside is not None:
        useless |= waits & ~inside & ~are_triggered(rows)
    names = [f"{row['sequence']}:{row['row']}" for row in rows[useless]]
    return [f"{len(names)} rows stay in memory for good, and are of no use: {names[:3]}"] if names else []


def _uploads(uploads: Uploads, now: Now) -> Iterator[str]:
    since_us = uploads.untouched_since_us
    if since_us is not None and now.mono_us - since_us > limits.UPLOAD_IDLE_MS * 1000 + _CARE_US:
        yield f"an upload is kept that nobody has touched for {(now.mono_us - since_us) // 1000} ms"


def _headings(table: HeadingTable, now: Now) -> Iterator[str]:
    """Judge the headers by their bytes. That they are those of messages that live is judged by the reference."""
    if table.size > limits.HEADINGS_BYTES_MAX:
        yield f"headers of NACKs weigh {table.size}, {limits.HEADINGS_BYTES_MAX} may be kept"
    if len(table._saved) > len(table.by_key) + len(table._changed):
        yield f"{len(table._saved)} headers count as saved, {len(table.by_key)} are known"


def _pushes(session: ConsumerSession, now: Now) -> Iterator[str]:
    """Judge those that a consumer has not seen when it last spoke: if it is silent, its session ends."""
    late = sum(push.sent_us < session.heard_us - _SAID_US for push in session.unseen)
    if late > EACH_MAX:
        yield f"{late} pushes of {len(session.unseen)} to a consumer count as unseen for long"


def _goodbyes(departed: Departed, now: Now) -> Iterator[str]:
    """Judge them as of the last one: older ones are forgotten when one comes."""
    noted_us = [at_us for _, at_us in departed._ended.values()]
    if len(noted_us) > KEPT_MAX or any(at_us < noted_us[-1] - KEPT_US for at_us in noted_us):
        yield f"{len(noted_us)} goodbyes are kept of {(noted_us[-1] - min(noted_us)) // 1000} ms"


_LOOKS: Final[dict[str, Callable[[Any, Now], Iterator[str]]]] = {
    "Lane": _lane, "PriorityQueue": _alarms, "FairQueue": _groups, "Partition": _partition, "LogWeight": _marks,
    "Timeline": _past, "Uploads": _uploads, "HeadingTable": _headings, "Departed": _goodbyes,
    "ConsumerSession": _pushes,
}  # fmt: skip
