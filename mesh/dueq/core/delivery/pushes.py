"""Push frames out of leases that may leave now: one or more per consumer, over all partitions of the topic.

Rows of a frame are in order of (wait_at, log sequence, row). A frame holds at most `PUSH_ROWS_MAX` rows and about
`PUSH_BYTES_MAX` of inline payload and replaced headers.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from dueq.core.delivery.consumers import ConsumerSession, SentPush
from dueq.core.delivery.lane import Lane
from dueq.core.delivery.leases import I64, Body, Phase, inline_sizes, total, upload_bytes
from dueq.core.delivery.prepared import lay_out, more_of
from dueq.core.ports.entry import Entries, is_full, is_wide, joined, keys_of
from dueq.core.state.entry_rows import Slots
from dueq.instant import Now
from dueq.limits import PUSH_BYTES_MAX, PUSH_ROWS_MAX
from dueq_codecs.messages import Push
from dueq_codecs.records import NO_U16, NO_U32, U16, U32, U64


class Leaving(NamedTuple):
    """Leases of one or more lanes that may be pushed now."""

    lanes: list[Lane]
    lane: Slots
    """Index into `lanes` per row."""
    slots: Slots
    entries: Entries
    owners: I64
    """Session number per row."""


def gather(parts: list[tuple[Lane, Slots]]) -> Leaving:
    """Put the leases of several lanes into columns."""
    lanes = [lane for lane, _ in parts]
    if len(parts) == 1:
        lane, slots = parts[0]
        at = np.zeros(len(slots), np.intp)
        return Leaving(lanes, at, slots, lane.leases.entry.take(slots), lane.leases.owner[slots])
    return Leaving(
        lanes,
        np.repeat(np.arange(len(parts), dtype=np.intp), [len(slots) for _, slots in parts]),
        np.concatenate([slots for _, slots in parts]),
        joined([lane.leases.entry.take(slots) for lane, slots in parts]),
        np.concatenate([lane.leases.owner[slots] for lane, slots in parts]),
    )


def _pick(leaving: Leaving, at: Slots) -> Leaving:
    lanes, lane, slots, entries, owners = leaving
    return Leaving(lanes, lane[at], slots[at], entries.take(at), owners[at])


def frames(leaving: Leaving) -> Iterator[tuple[int, Leaving]]:
    """Cut what leaves into frames; yields (session number, rows) in order of the numbers."""
    owners = leaving.owners
    first = int(owners[0])
    waits = leaving.entries["wait_at"]
    if is_wide(leaving.entries):
        leaving = _pick(
            leaving, np.lexsort((keys_of(leaving.entries), waits, leaving.entries["rank"], owners))
        )
        owners = leaving.owners
        starts = [0, *(np.flatnonzero(owners[1:] != owners[:-1]) + 1).tolist(), len(owners)]
    elif len(owners) > 1 and ((owners != first).any() or (waits[1:] <= waits[:-1]).any()):
        leaving = _pick(leaving, np.lexsort((keys_of(leaving.entries), waits, owners)))
        owners = leaving.owners
        starts = [0, *(np.flatnonzero(owners[1:] != owners[:-1]) + 1).tolist(), len(owners)]
    else:
        starts = [0, len(owners)]
    for begin, end in pairwise(starts):
        whole = begin == 0 and end == len(owners)
        mine = leaving if whole else _pick(leaving, np.arange(begin, end))
        for frame in _by_size(mine):
            yield int(owners[begin]), frame


def _by_size(leaving: Leaving) -> Iterator[Leaving]:
    if len(leaving.slots) == 1:
        yield leaving
        return
    sizes = inline_sizes(leaving.entries) + _heading_bytes(leaving)
    if len(sizes) <= PUSH_ROWS_MAX and total(sizes) <= PUSH_BYTES_MAX:
        yield leaving
        return
    ends = np.cumsum(sizes)
    begin = 0
    while begin < len(sizes):
        before = int(ends[begin - 1]) if begin else 0
        end = int(np.searchsorted(ends, before + PUSH_BYTES_MAX, side="right"))
        end = min(max(end, begin + 1), begin + PUSH_ROWS_MAX, len(sizes))
        yield _pick(leaving, np.arange(begin, end))
        begin = end


def build(
    leaving: Leaving,
    session: ConsumerSession,
    topic: str,
    leader: str,
    incarnation: int,
    released_us: int,
    now: Now,
) -> tuple[Push, list[Body]]:
    """Make one Push; its leases count as pushed from now on.

    Args:
        leaving: rows of this session only, within the size of a frame.
        session: the receiver; the push takes its next number.
        topic: name.
        leader, incarnation: this broker and its life.
        released_us: mesh time of this instant, Unix µs.
        now: this instant.
    """
    session.push_number += 1
    entries = leaving.entries
    parts, ahead = _parts(leaving), upload_bytes(entries)
    session.unseen.append(SentPush(session.push_number, now.mono_us, _is_first(leaving), parts, ahead))
    uid, left_ms, bodies = _release(leaving, now)
    push = Push(
        topic=topic,
        consumer_id=session.address,
        attach=session.attach,
        number=session.push_number,
        epoch=max(lane.partition.epoch for lane in leaving.lanes),
        released_at_us=released_us,
        leader=leader,
        rows=lay_out(entries, uid, left_ms),
        incarnation=incarnation,
        mono_us=now.mono_us,
        **more_of(entries)._asdict(),
    )
    push.groups, push.group = _groups_of(leaving)
    push.headings, push.heading = _headings_of(leaving)
    if is_full(entries) and entries["expires"].any():
        push.expires = np.ascontiguousarray(entries["expires"])
    push.shared, push.shared_size, bodies = _each_shared_once(leaving, bodies)
    return push, [bodies[0] if len(bodies) == 1 else b"".join(bodies)]


def _groups_of(leaving: Leaving) -> tuple[tuple[str, ...], U16]:
    """Return the names of the groups of what leaves, and the place of each row's among them; empty: there are none."""
    entries = leaving.entries
    if not is_wide(entries) or not entries["group"].any():
        return (), NO_U16
    tables = [lane.partition.timeline.groups for lane in leaving.lanes]
    numbers = entries["group"].tolist()
    return placed(
        [tables[lane].name_of(at) or "" for lane, at in zip(leaving.lane.tolist(), numbers, strict=True)]
    )


def _headings_of(leaving: Leaving) -> tuple[tuple[str, ...], U16]:
    """Return the headers that NACKs have replaced, and the place of each row's among them; empty: there are none."""
    return placed(_heading_texts(leaving))


def _heading_bytes(leaving: Leaving) -> I64:
    """Return how long these headers are; those that two rows have in common may go in two pushes."""
    texts = _heading_texts(leaving) or [""] * len(leaving.slots)
    return np.array([len(text.encode()) for text in texts], np.int64)


def _heading_texts(leaving: Leaving) -> list[str]:
    """Return the headers of each row that has got others ("": it has not); empty: none has."""
    tables = [lane.partition.timeline.headings.by_key for lane in leaving.lanes]
    if not any(tables):
        return []
    keys = keys_of(leaving.entries).tolist()
    return [tables[lane].get(key, "") for lane, key in zip(leaving.lane.tolist(), keys, strict=True)]


def placed(texts: list[str]) -> tuple[tuple[str, ...], U16]:
    """Return each text once, and the place of each row's among them; empty: there are none."""
    if not any(texts):
        return (), NO_U16
    places: dict[str, int] = {}
    column = [places.setdefault(text, len(places)) for text in texts]
    return tuple(places), np.array(column, np.uint16)


def _each_shared_once(leaving: Leaving, payloads: list[Body]) -> tuple[U16, U32, list[Body]]:
    """Take shared bodies off the ends of payloads, and put each of them behind these, once.

    Returns:
        Which of them each row's payload ends with, counted from 1; their bytes; the pieces to send.
    """
    entries = leaving.entries
    if not is_full(entries) or not entries["body"].any():
        return NO_U16, NO_U32, payloads
    tables = [lane.partition.timeline.bodies.by_number for lane in leaving.lanes]
    column, own = np.zeros(len(payloads), np.uint16), list(payloads)
    places: dict[bytes, int] = {}
    ends: list[Body] = []
    for row, (lane, number) in enumerate(zip(leaving.lane.tolist(), entries["body"].tolist(), strict=True)):
        body = tables[lane].get(number)
        if body is None:
            continue
        whole = memoryview(payloads[row])
        place = column[row] = places.setdefault(body.name, len(places) + 1)
        if place > len(ends):
            ends.append(whole[len(whole) - body.size :])
        own[row] = whole[: len(whole) - body.size]
    return column, np.array([len(end) for end in ends], np.uint32), own + ends


def _is_first(leaving: Leaving) -> bool:
    lanes, at, slots, _, _ = leaving
    if len(lanes) == 1:
        return Phase.AGAIN not in lanes[0].leases.phase[slots].tolist()
    return all(Phase.AGAIN not in lane.leases.phase[slots[at == i]].tolist() for i, lane in enumerate(lanes))


def _parts(leaving: Leaving) -> list[tuple[Lane, Slots, U64]]:
    """Return each lane that takes part, with slots and tokens."""
    lanes, at, slots, _, _ = leaving
    if len(lanes) == 1:
        return [(lanes[0], slots, lanes[0].leases.token[slots])]
    by_lane = [(lane, slots[at == index]) for index, lane in enumerate(lanes)]
    return [(lane, mine, lane.leases.token[mine]) for lane, mine in by_lane if len(mine)]


def _release(leaving: Leaving, now: Now) -> tuple[U32, I64, list[Body]]:
    """Note that the leases are pushed; return uid, lease that is left (ms) and payload per row."""
    count = len(leaving.slots)
    if len(leaving.lanes) == 1:
        lane = leaving.lanes[0]
        left_us, bodies = _release_lane(lane, leaving.slots, leaving.entries, now)
        return np.full(count, lane.uid, np.uint32), left_us // 1000, bodies
    uid = np.zeros(count, np.uint32)
    left_ms = np.zeros(count, np.int64)
    held: list[Body] = [b""] * count
    for at, lane in enumerate(leaving.lanes):
        rows = np.flatnonzero(leaving.lane == at)
        if len(rows):
            left_us, bodies = _release_lane(lane, leaving.slots[rows], leaving.entries.take(rows), now)
            uid[rows] = lane.uid
            left_ms[rows] = left_us // 1000
            for row, body in zip(rows.tolist(), bodies, strict=True):
                held[row] = body
    return uid, left_ms, held


def _release_lane(lane: Lane, slots: Slots, entries: Entries, now: Now) -> tuple[I64, list[Body]]:
    leases = lane.leases
    length_us = entries["lease_ms"].astype(np.int64) * 1000
    act_us = now.mono_us + length_us
    phase = leases.phase[slots]
    if Phase.AGAIN in phase.tolist():
        # Its deadline is that of the first push: the holder may count from there.
        act_us = np.where(phase == Phase.AGAIN, leases.act_us[slots], act_us)
    leases.phase[slots] = Phase.PUSHED
    leases.act_us[slots] = act_us
    lane.touch(int(act_us.min()))
    # Never more than its length: an inherited lease is counted here from later than any holder does.
    left_us = np.minimum(act_us - now.mono_us, length_us)
    bodies = [body if body is not None else b"" for body in map(leases.bodies.__getitem__, slots.tolist())]
    leases.unstage(slots)
    return left_us, bodies


def filler(number: int, session: ConsumerSession, topic: str, leader: str, released_us: int) -> Push:
    """Return an empty push in the place of one that was lost, whose rows go out under a new number."""
    return Push(topic, session.consumer_id, session.attach, number, 0, released_us, leader)
