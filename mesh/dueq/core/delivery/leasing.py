"""The next leases: credit is dealt to messages that are due soon, and LEASE records are proposed for them.

The payloads of leased messages are read meanwhile, as far as `LOOK_AHEAD_BYTES_MAX` allows.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Final

import numpy as np

from dueq import limits
from dueq.core.delivery.consumers import Consumers, ConsumerSession, Turn
from dueq.core.delivery.due_queue import NEVER_MS
from dueq.core.delivery.lane import Lane
from dueq.core.delivery.leases import NEVER_US, Phase
from dueq.core.delivery.staging import Stager, fit_bytes
from dueq.core.delivery.turns import Demand, Picks, Turns
from dueq.core.ports.entry import Entries, is_full
from dueq.core.state.entry_rows import Slots
from dueq.instant import Now
from dueq_codecs.records import LEVEL_OF_KINDS, U16, U64, Record, RecordKind

RETRY_US: Final = 5_000
"""After a refused proposal, or while an ISR member has not answered (or confirmed) lately."""
EXPIRED_US: Final = 1_000_000
"""Least time between two looks for what has expired while nobody has credit, if the first has found all of it."""
AGAIN_ROWS: Final = 512
"""Leases of one lane that are staged at a time to be pushed again."""


class Leasing:
    """The leases that one topic's dispatcher proposes.

    Args:
        lanes: the led partitions, by uid; the dispatcher's own.
        turns: whose turn it is, in topics of this kind.

    Attributes:
        retry_us: (mono) when a refused proposal is made again; NEVER_US: none was refused.
        is_cut: a record was full, or a look has ended before it had seen all: the next tick goes on at once.
        expiry_ms: when the first message that nobody has credit for expires, by mesh time; NEVER_MS: it does not.
        look_us: (mono) what has expired by then is looked for no sooner.
    """

    def __init__(self, lanes: dict[int, Lane], consumers: Consumers, stager: Stager, turns: Turns) -> None:
        self._lanes, self._consumers, self._stager, self._turns = lanes, consumers, stager, turns
        self.retry_us = NEVER_US
        self.is_cut = False
        self.expiry_ms = NEVER_MS
        self.look_us = 0
        self._room_bytes = 0
        self._turn = 0

    def begin_tick(self) -> None:
        """Begin a tick: a proposal that was refused in the last one may be made again."""
        self.retry_us = NEVER_US
        self.expiry_ms = NEVER_MS

    def lease(self, now: Now, mesh_ms: int, look_ahead_ms: int, *, recording: bool) -> None:
        """Lease the next messages, in the order of the topic's kind, if any is within the look-ahead.

        If a record is made in any case, messages soon after the look-ahead are reason enough.
        """
        self.is_cut = False
        self._turn += 1
        turn = Turn()
        self._lease_triggered(turn, now, mesh_ms)
        ahead_ms = mesh_ms + look_ahead_ms
        gather_ms = ahead_ms + limits.LEASE_GATHER_MS
        wanted_ms = ahead_ms + limits.LEASE_ALONG_MS if recording else ahead_ms
        if all(lane.queue.head_ms > wanted_ms for lane in self._lanes.values()):
            return
        lanes = [
            lane
            for lane in self._lanes.values()
            if lane.queue.head_ms <= gather_ms and not lane.is_silent(mesh_ms) and lane.allowed(now)
        ]
        for lane in lanes:
            lane.group_rates.begin(now)
            lane.begin_look(mesh_ms)
        free = self._consumers.free_rows(now, limits.RECORD_ROWS_MAX * len(lanes))
        if not free:
            self._look_for_expired(lanes, mesh_ms, now)
            return
        lanes = [lane for lane in lanes if lane.partition.in_touch(now)]
        picks = Picks(partial(self._room, now))
        free_bytes = partial(self._consumers.free_bytes, now)
        demand = Demand(free, free_bytes, mesh_ms, ahead_ms, gather_ms, recording)
        self._turns.choose([*lanes], demand, picks)
        self.is_cut = any(lane.is_cut for lane in lanes)
        for lane in lanes:
            self._end_look(lane, now)
        staged = self._staged_bytes()
        self._room_bytes = limits.LOOK_AHEAD_BYTES_MAX - staged
        for uid in picks.entries:
            lane = self._lanes[uid]
            leased = self._propose(lane, picks.of(uid), turn, mesh_ms, now)
            self.is_cut |= leased == limits.RECORD_ROWS_MAX and lane.queue.head_ms <= ahead_ms

    def _lease_triggered(self, turn: Turn, now: Now, mesh_ms: int) -> None:
        """Lease triggered messages before all others: no pause and no rate holds them, only their consumers' credit.

        What a pause holds back may fill the look-ahead for as long as it lasts: they have as much room again.
        """
        for lane in self._lanes.values():
            if not lane.partition.timeline.triggered:
                continue
            room = min(limits.RECORD_ROWS_MAX, limits.PARTITION_LEASES_MAX - len(lane.leases))
            free = self._consumers.free_rows(now, max(room, 0))
            if not free:
                continue
            entries = lane.triggered()
            entries = entries[entries["wait_at"] <= np.uint64(mesh_ms)]
            if not len(entries) or not lane.partition.in_touch(now):
                continue
            over = lane.over(entries, mesh_ms)
            if over.any():
                if not lane.lapse(entries[over][: limits.RECORD_ROWS_MAX], now):
                    self.retry_us = now.mono_us + RETRY_US
                entries = entries[~over]
            if len(entries):
                self._room_bytes = 2 * limits.LOOK_AHEAD_BYTES_MAX - self._staged_bytes()
                self._propose(lane, entries[:free], turn, mesh_ms, now, queued=False)

    def _look_for_expired(self, lanes: list[Lane], mesh_ms: int, now: Now) -> None:
        """End what has expired and is next, though nobody has credit: else it would stay where nobody consumes."""
        self.expiry_ms = 0 if lanes else NEVER_MS
        if not lanes or now.mono_us < self.look_us:
            return
        expiry_ms = NEVER_MS
        for lane in lanes:
            if not lane.partition.in_touch(now):
                expiry_ms = 0
                continue
            head = lane.take_waiting(mesh_ms, 1)
            if len(head):
                lane.queue.put_back(head)
            if is_full(head) and head["expires"].any():
                expiry_ms = min(expiry_ms, int(head["expires"][0]))
            self.is_cut |= lane.is_cut
            self._end_look(lane, now)
        self.expiry_ms = expiry_ms
        self.look_us = now.mono_us + (0 if self.is_cut else EXPIRED_US)

    def _end_look(self, lane: Lane, now: Now) -> None:
        """End messages that were found expired while others were chosen; those that cannot be ended go back."""
        expired = lane.take_expired()
        for at in range(0, len(expired), limits.RECORD_ROWS_MAX):
            gone = expired[at : at + limits.RECORD_ROWS_MAX]
            if not lane.lapse(gone, now):
                lane.queue.put_back(gone)
                self.retry_us, self.is_cut = now.mono_us + RETRY_US, False
        if lane.queue.guide is not None and lane.queue.guide.is_starving:
            lane.partition.read_on()

    def _staged_bytes(self) -> int:
        return sum(lane.leases.staged_bytes for lane in self._lanes.values())

    def _room(self, now: Now, uid: int) -> int:
        """Return how many messages of a lane may be leased in one turn."""
        lane = self._lanes[uid]
        return min(limits.RECORD_ROWS_MAX, limits.PARTITION_LEASES_MAX - len(lane.leases), lane.allowed(now))

    def _propose(
        self, lane: Lane, entries: Entries, turn: Turn, mesh_ms: int, now: Now, *, queued: bool = True
    ) -> int:
        """Append one LEASE record for messages of one lane; those that cannot be leased go back to its queue.

        Args:
            lane: whose they are.
            entries: the messages.
            turn: what was dealt in this turn before.
            mesh_ms: now, by mesh time.
            now: the instant.
            queued: they were taken out of the queue; else they were triggered, and cost no token.

        Returns:
            How many were leased.
        """
        count = fit_bytes(entries, self._room_bytes, self._room_bytes >= limits.LOOK_AHEAD_BYTES_MAX)
        if count < len(entries):
            _put_back(lane, entries[count:], queued=queued)
            entries = entries[:count]
        waits = np.maximum(entries["wait_at"], np.uint64(mesh_ms))
        strict = queued and self._turns.strict
        rows, owners, column = self._consumers.deal(entries["size"], waits, turn, now, strict=strict)
        if rows is not None:
            left = np.ones(len(entries), np.bool_)
            left[rows] = False
            _put_back(lane, entries[left], queued=queued)
            entries = entries.take(rows)
        if not len(entries):
            return 0
        numbers = np.array([session.number_here for session in owners], np.int64)[column]
        knows_detached = lane.partition.level >= LEVEL_OF_KINDS
        token = lane.partition.propose(_lease_record(lane.uid, entries, owners, column, knows_detached), now)
        if not token:
            self._consumers.give_back(numbers, entries["size"], now)
            _put_back(lane, entries, queued=queued)
            self.retry_us = now.mono_us + RETRY_US
            return 0
        if queued:
            lane.spend(entries, self._turn)
        slots = lane.leases.add(entries, numbers, token, Phase.PROPOSED, NEVER_US)
        before = lane.leases.staged_bytes
        self._stager.stage(lane, slots, entries)
        self._room_bytes -= lane.leases.staged_bytes - before
        return len(entries)

    def stage_again(self, again: deque[tuple[Lane, Slots, U64]], room: int) -> None:
        """Bring back payloads of leases that are to be pushed again, as far as there is room for them.

        Args:
            again: (lane, slots, tokens), taken from as far as they were staged.
            room: for all payloads in memory, bytes.
        """
        while again:
            if self._staged_bytes() >= room:
                return
            lane, slots, tokens = again.popleft()
            if self._lanes.get(lane.uid) is not lane:
                continue
            if len(slots) > AGAIN_ROWS:
                again.appendleft((lane, slots[AGAIN_ROWS:], tokens[AGAIN_ROWS:]))
                slots, tokens = slots[:AGAIN_ROWS], tokens[:AGAIN_ROWS]
            slots = slots[lane.leases.same(slots, tokens) & (lane.leases.phase[slots] == Phase.AGAIN)]
            if len(slots):
                entries = lane.leases.entry.take(slots)
                lane.leases.unstage(slots)
                self._stager.stage(lane, slots, entries)
                self._stager.send_ahead(lane, slots, entries)
                lane.schedule(slots, np.ascontiguousarray(entries["wait_at"]))


def _put_back(lane: Lane, entries: Entries, *, queued: bool) -> None:
    if queued:
        lane.queue.put_back(entries)


def _lease_record(
    uid: int, entries: Entries, owners: list[ConsumerSession], column: U16, knows_detached: bool
) -> Record:
    record = Record(RecordKind.LEASE, uid, 0, 0, 0)
    record.first = np.ascontiguousarray(entries["first"])
    record.target_sequence = np.ascontiguousarray(entries["sequence"])
    record.target_row = np.ascontiguousarray(entries["row"])
    record.consumer = column
    record.consumers = tuple(session.consumer_id for session in owners)
    record.lease_ms = np.array([session.lease_ms for session in owners], np.uint64)
    detached = [bool(session.pull) or (session.detached and knows_detached) for session in owners]
    if any(detached):
        record.detached = np.array(detached, np.uint8)
    return record
