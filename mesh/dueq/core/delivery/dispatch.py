"""Dispatch: from waiting to a consumer's hands, for one topic at one of its leaders.

    due queue ──look-ahead──► LEASE proposed ──committed──► GRANTED ──at the due instant──► Push
        ▲                         payload read meanwhile                                     │
        └───────────── RELEASE, EXPIRE, NACK applied ◄───────────────────────────────────────┤
                                              ACK applied: gone ◄────────────────────────────┘

The leader looks ahead by a few commits: it chooses a consumer with credit, commits the lease and reads the
payload *before* the due instant and pushes *at* it, so durability costs no lateness. Three checks at the moment of
the push keep it safe: mesh time has reached the message's instant; the lease is committed in a state that this epoch
owns, and at least half of it is left; every ISR member has acked in this epoch within 500 ms, so nobody has led after
it (protocol case B13, `confirming`).

Nothing here is replicated. All of it follows from the timeline, the frames of consumers and the clock, and
a new leader begins with what the timeline shows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from dueq import limits
from dueq.core.delivery.consumers import Consumers, ConsumerSession
from dueq.core.delivery.due_queue import NEVER_MS
from dueq.core.delivery.lane import Lane, LedPartition
from dueq.core.delivery.lease_changes import LEASED_AHEAD_US, LeaseChanges
from dueq.core.delivery.leases import NEVER_US, Body, Phase
from dueq.core.delivery.leasing import RETRY_US, Leasing
from dueq.core.delivery.lifetimes import Lifetimes, SessionStatus
from dueq.core.delivery.pulls import Pulls
from dueq.core.delivery.pushing import Pushing
from dueq.core.delivery.renewals import Renewals
from dueq.core.delivery.replies import Replies
from dueq.core.delivery.resending import Resending
from dueq.core.delivery.sessions import Sessions
from dueq.core.delivery.staging import Stager
from dueq.core.delivery.successors import Successors
from dueq.core.delivery.tick_clock import TickClock
from dueq.core.delivery.turns import TIMELINE_TURNS, Turns
from dueq.core.ports.entry import Entries
from dueq.core.ports.events import Route
from dueq.core.ports.persistence import ChunkRead, PayloadsRead, ReadChunk, ReadPayloads
from dueq.core.state.applied import Applied
from dueq.core.turn.mesh_time import MeshTime
from dueq.core.turn.metrics import CoreMetrics
from dueq.instant import Now
from dueq_codecs.messages import BrokerMessage, ConsumerAction, ConsumerFrame, Push, PushChunk
from dueq_codecs.records import U64, Record

LOOK_US: Final = 20_000
"""Least time between two looks at the timers of leases."""
TICK_US: Final = 50_000
"""Longest time between two ticks while messages are pushed."""
SAFETY_US: Final = 100_000
"""How often work that something else holds up is looked at again, whatever happens."""
WAITING_MAX: Final = 4096
"""Most waiting messages that are counted for a ConsumerReply."""


class LaneCounts(NamedTuple):
    """The part of a partition's status that concerns delivery."""

    ready: int
    """Due and not leased (about, and in the hot window only)."""
    leased: int
    """Proposed leases included."""
    unpushed: int
    """Leases whose push has not left."""


class LeaseSeen(NamedTuple):
    """A lease as its leader sees it."""

    pushed: bool
    """Its consumer may have it."""
    ends_ms: int | None
    """When it ends by mesh time, Unix ms; None: just now."""


class TopicDispatcher:
    """Leases and pushes of one topic, over all its partitions that this broker leads and serves.

    One caller; every method takes effect at once. Outputs are fetched with `take_sends` and `take_reads`.

    Args:
        topic: name.
        broker_id, incarnation: this broker and its life, named in every frame to a consumer.
        metrics: counters.
        new_token: gives out numbers for read orders.
        turns: whose turn it is, in topics of this kind.
    """

    def __init__(
        self,
        topic: str,
        broker_id: str,
        incarnation: int,
        metrics: CoreMetrics,
        new_token: Callable[[], int],
        turns: Turns = TIMELINE_TURNS,
    ) -> None:
        self.topic = topic
        self._turns = turns
        self._broker_id, self._incarnation = broker_id, incarnation
        self._metrics = metrics
        self._lanes: dict[int, Lane] = {}
        self._consumers = Consumers()
        self._sends: list[tuple[Route, BrokerMessage, list[Body]]] = []
        self._clock = TickClock()
        self._stager = Stager(topic, metrics, new_token, self._consumers, self._send_chunk)
        self._replies = Replies(topic, broker_id, incarnation, self._consumers, self._lanes, self._send, self)
        self._resending = Resending(topic, broker_id, self._lanes, self._stager, self._send)
        self._lifetimes = Lifetimes(self._consumers, self._lanes, self._replies)
        self._renewals = Renewals(self._lanes, self._consumers, self._stager)
        self._sessions = Sessions(
            self._consumers, self._lanes, self._replies, self._resending, self._lifetimes, self._renewals
        )
        self._pulls = Pulls(
            topic, broker_id, incarnation, self._consumers, self._lanes, self._resending, self._renewals,
            self._send,
        )  # fmt: skip
        self._leasing = Leasing(self._lanes, self._consumers, self._stager, turns)
        self._changes = LeaseChanges(
            topic, metrics, self._consumers, self._stager, self._clock, self._lifetimes.ran_out
        )
        self._pushing = Pushing(
            topic, broker_id, incarnation, metrics, self._lanes, self._consumers, self._send_push
        )
        self._successors = Successors()
        self._look_ahead_ms = limits.LOOK_AHEAD_MS_MIN if turns.looks_ahead else 0
        self._latest_ms = 0  # by mesh time, of all ticks since it went back
        self._paused = True
        self._dirty = False  # something was handed in since the last tick
        # (mono) When `tick` is wanted at the latest, pushes that are laid out left aside.
        self._tick_us = 0
        self._pushed = False  # `push` was enough before this turn
        self._left_due = False  # the last tick has left what was laid out to the next `push`

    # -------------------------------------------------------------- what is led

    def lead(self, partition: LedPartition, now: Now) -> None:
        """Begin to dispatch a partition whose barrier has been applied.

        Inherited leases count as pushed. Their deadlines begin now (or when due, or when no earlier leader can
        push them any more, if that is later), so never earlier than their holders believe; holders that are
        attached are asked to attach again, so that what they do not have is pushed anew (protocol case B8).
        """
        self.unlead(partition.uid, now)
        self._successors.led(partition.uid)
        lane = self._lanes[partition.uid] = Lane(partition, self._turns)
        lane.queue.add(partition.timeline.deliverable_hot())
        partition.timeline.led_by(lane.queue.guide)
        leased = partition.timeline.leased()
        if len(leased):
            owners = self._lifetimes.inherit(leased, now)
            # They were granted, so they are due within the look-ahead: a clock that is behind must not hold them
            # for as long as it is.
            latest_us = now.mono_us + LEASED_AHEAD_US
            due_us = np.minimum(self._clock.mono_of(leased["wait_at"], now), latest_us)
            from_us = np.maximum(due_us, partition.leases_from_us)
            deadline_us = from_us + leased["lease_ms"].astype(np.int64) * 1000
            lane.leases.add(leased, owners, leased["token"], Phase.PUSHED, deadline_us)
            lane.inherited_until = int(leased["token"].max())
            lane.touch(int(deadline_us.min()))
        self._dirty = True

    def unlead(self, uid: int, now: Now) -> None:
        """Stop at once: the partition is led by another, or by nobody."""
        lane = self._lanes.pop(uid, None)
        if lane is None:
            return
        self._dirty = True
        self._successors.unled(uid)
        lane.partition.timeline.led_by(None)
        self._stager.forget(lane)
        slots = np.fromiter(lane.leases.slot_of.values(), np.intp, len(lane.leases))
        if len(slots):
            leases = lane.leases
            self._consumers.give_back(leases.owner[slots], leases.entry["size"][slots], now)
        self._lifetimes.unled(uid, lane.leases.owner[slots])
        self._lifetimes.drop_idle()
        if not self._lanes:
            self._pulls.moved(now)

    def served_by(self, uid: int, broker_id: str, now: Now) -> None:
        """Another broker serves a partition: if this one led it, its consumers are told to look for who leads."""
        if self._successors.is_news(uid, broker_id, now):
            self._replies.tell_moved()
            self._pulls.moved(now)

    @property
    def leads(self) -> bool:
        """Whether any partition is led."""
        return bool(self._lanes)

    # -------------------------------------------------------------- what was committed

    def applied(self, uid: int, record: Record, applied: Applied, now: Now) -> None:
        """A record of a led partition was applied."""
        lane = self._lanes.get(uid)
        if lane is None:
            return
        self._dirty = True
        self._changes.applied(lane, record, applied, now)

    def wake(self) -> None:
        """Triggered messages were brought to memory."""
        self._dirty = True

    def became_hot(self, uid: int, entries: Entries) -> None:
        """The timeline has loaded waiting entries into its hot window."""
        lane = self._lanes.get(uid)
        if lane is not None:
            lane.queue.add(entries)
            lane.drop_dead()
            self._dirty = True

    def window_kept(self, uid: int) -> None:
        """The timeline may have let waiting entries go from its hot window: their places go, too."""
        lane = self._lanes.get(uid)
        if lane is not None:
            lane.drop_dead()

    # -------------------------------------------------------------- cancel, move, extend

    def withhold(self, uid: int, keys: U64) -> U64:
        """A CANCEL or MOVE of these messages is about to be appended: hold back those that were not pushed.

        Returns:
            Per key the token of its lease, to be carried by that record; 0 where no lease is proposed or
            granted, or its push has left, or an earlier leader granted it.
        """
        lane = self._lanes.get(uid)
        if lane is None:
            return np.zeros(len(keys), np.uint64)
        return self._changes.withhold(lane, keys)

    def extending(self, uid: int, keys: U64, tokens: U64, amount_ms: U64, now: Now) -> None:
        """An EXTEND was taken: its leases do not run out while it is on its way."""
        lane = self._lanes.get(uid)
        if lane is not None:
            self._changes.extending(lane, keys, tokens, amount_ms, now)

    # -------------------------------------------------------------- consumers

    def consumer_frame(self, route: Route, frame: ConsumerFrame, now: Now) -> None:
        """A consumer attaches, beats, says goodbye or pulls; a ConsumerReply answers it."""
        self._dirty = True
        if frame.action == ConsumerAction.PULL:
            self._pulls.frame(route, frame, now)
            return
        if frame.action == ConsumerAction.WAITING:
            self._pulls.waiting(route, frame, now)
            return
        ends = frame.action == ConsumerAction.GOODBYE and frame.consumer_id not in self._consumers.by_id
        if not ends or not self._pulls.goodbye(frame, now):
            self._sessions.frame(route, frame, now)

    def route_lost(self, route: Route, unsent: BrokerMessage, now: Now) -> None:
        """A frame could not be sent to this route: nothing is pushed there until its consumers attach again."""
        self._dirty = True
        self._sessions.route_lost(route, unsent, now)
        self._pulls.route_lost(route, unsent, now)

    def routes(self) -> set[Route]:
        """Return the routes of all consumers and pulls."""
        sessions = self._consumers.by_number.values()
        return {session.route for session in sessions if session.route is not None}

    def shift(self, gap_us: int, now: Now) -> None:
        """The process was paused: leases and sessions have lived shorter than the clock says."""
        for lane in self._lanes.values():
            lane.leases.shift(gap_us)
            if lane.act_us < NEVER_US:
                lane.act_us += gap_us
        self._lifetimes.shift(gap_us)
        self._pulls.shift(gap_us)
        self._dirty = True

    # -------------------------------------------------------------- payloads

    def payloads_read(self, done: PayloadsRead | ChunkRead, now: Now) -> bool:
        """A read that `take_reads` gave out was answered; returns whether all that is still wanted could be read."""
        self._dirty = True
        if isinstance(done, ChunkRead):
            return self._stager.chunk_read(done, now)
        return self._stager.payloads_read(done)

    # -------------------------------------------------------------- work

    def tick(
        self, now: Now, clock: MeshTime, look_ahead_ms: int, paused: bool, recording: bool = False
    ) -> None:
        """Do all that is due.

        Args:
            now: the instant; all input of this turn has been handed in before.
            clock: mesh time.
            look_ahead_ms: how far ahead of their instant messages are leased.
            paused: nothing may be leased or pushed (the clock is on hold, or the process was paused).
            recording: a record is being made in this turn: a LEASE costs no sync of its own.
        """
        mesh_us = clock.mesh_now_us(now)
        self._clock.tick(mesh_us, now)
        self._note_instant(mesh_us // 1000)
        self._tick_us = now.mono_us
        self._left_due = False
        look_ahead_ms = look_ahead_ms if self._turns.looks_ahead else 0
        self._look_ahead_ms = look_ahead_ms
        self._paused = paused
        self._leasing.begin_tick()
        self._lifetimes.end_silent(now)
        for lane in self._lanes.values():
            if lane.act_us <= now.mono_us:
                lane.end_leases(now, LOOK_US, RETRY_US)
        if not paused:
            # Messages that came due since the push before this turn leave in one frame with those that come due in it.
            self._left_due = self._pushed and self._pushing.is_laid_out(mesh_us // 1000)
            if not self._left_due:
                self._pushing.push(now, mesh_us)
            # New leases come last: they would take all the room in memory that there is for payloads.
            self._leasing.stage_again(self._resending.triggered, 2 * limits.LOOK_AHEAD_BYTES_MAX)
            self._leasing.stage_again(self._resending.again, limits.LOOK_AHEAD_BYTES_MAX)
            self._renewals.propose(now, mesh_us // 1000)
            self._leasing.lease(now, mesh_us // 1000, look_ahead_ms, recording=recording)
        self._pulls.step(now)
        self._replies.tell_waiting(now)
        self._replies.answer_late(now)
        self._pushing.count()
        self._dirty = self._pushed = False

    def _note_instant(self, mesh_ms: int) -> None:
        """Let queues begin anew if mesh time has gone back: a clock that was ahead was set right."""
        if mesh_ms < self._latest_ms - limits.CLOCK_STEP_MS:
            for lane in self._lanes.values():
                lane.go_back(mesh_ms)
            self._latest_ms = mesh_ms
        self._latest_ms = max(self._latest_ms, mesh_ms)

    def push(self, now: Now, clock: MeshTime) -> bool:
        """Push what was laid out for this instant, if nothing else is to be done.

        Most turns of a busy leader are nothing else. The other work of `tick` has instants of its own.

        Returns:
            Whether that was all; if not, `tick` is to be called in this turn.
        """
        if self._dirty or self._paused or now.mono_us >= self._tick_us or self._consumers.dealt_pulls:
            return False
        mesh_us = clock.mesh_now_us(now)
        self._clock.tick(mesh_us, now)
        self._pushed = self._pushing.push_laid_out(now, mesh_us)
        self._left_due = False
        return self._pushed

    def next_push_us(self, now: Now) -> int:
        """Return when (mono, µs) `push` or `tick` must be called again, after a `push` that was all."""
        at_us = self._tick_us
        for lane in self._lanes.values():
            at_us = min(at_us, lane.act_us)
        self._tick_us = at_us
        push_ms = self._pushing.next_ms
        if push_ms < NEVER_MS:
            at_us = min(at_us, now.mono_us + push_ms * 1000 - self._clock.mesh_us(now))
        return max(at_us, now.mono_us)

    # -------------------------------------------------------------- deadlines

    def next_deadline_us(self, now: Now) -> int | None:
        """Return when (mono, µs) `tick` must be called again at the latest; None: only after some input.

        By mesh time as it was at the last tick.
        """
        self._tick_us = now.mono_us
        if self._dirty or (self._leasing.is_cut and not self._paused):
            return now.mono_us
        best_us = min(
            self._lifetimes.next_us, self._replies.next_us, self._leasing.retry_us, self._pulls.next_us,
            NEVER_US if self._paused else self._renewals.next_us,
        )  # fmt: skip
        mesh_us = self._clock.mesh_us(now)
        mesh_ms = mesh_us // 1000
        if self._leasing.expiry_ms < NEVER_MS and not self._paused:
            expiry_us = now.mono_us + self._leasing.expiry_ms * 1000 - mesh_us
            best_us = min(best_us, max(expiry_us, self._leasing.look_us))
        soonest_ms = other_ms = NEVER_MS
        have_credit = not self._paused and self._consumers.free_rows(now, 1) > 0
        for lane in self._lanes.values():
            best_us = min(best_us, lane.act_us)
            if self._paused:
                continue
            best_us = min(best_us, now.mono_us + self._triggered_us(lane, mesh_us, have_credit, now))
            if lane.is_silent(mesh_ms):
                soonest_ms = min(soonest_ms, lane.partition.settings.silent_until_ms)
                other_ms = min(other_ms, soonest_ms)
                continue
            head_ms, push_ms = lane.queue.head_ms, lane.next_push_ms
            near = head_ms <= mesh_ms + self._look_ahead_ms
            if near:
                if not lane.allowed(now):
                    best_us = min(best_us, lane.tokens.next_us(now))
                elif have_credit:
                    best_us = min(best_us, max(lane.group_rates.next_us, now.mono_us))
            if mesh_ms < push_ms < soonest_ms:
                soonest_ms = push_ms
            pushes = push_ms <= mesh_ms or lane.has_late
            if pushes or (near and have_credit):
                best_us = min(
                    best_us, now.mono_us + self._look_again_us(lane, pushes, near and have_credit, now)
                )
            # Without credit it begins to wait at that instant, and consumers are told.
            ahead_ms = self._look_ahead_ms if have_credit else 0
            for wake_ms in (head_ms - ahead_ms, lane.queue.later_ms - ahead_ms):
                if mesh_ms < wake_ms:
                    soonest_ms, other_ms = min(soonest_ms, wake_ms), min(other_ms, wake_ms)
            if mesh_ms < lane.next_unprepared_ms < other_ms:
                other_ms = lane.next_unprepared_ms
        self._tick_us = min(best_us, now.mono_us + TICK_US, now.mono_us + other_ms * 1000 - mesh_us)
        if self._left_due:
            return now.mono_us
        if soonest_ms < NEVER_MS:
            best_us = min(best_us, now.mono_us + soonest_ms * 1000 - mesh_us)
        return best_us if best_us < NEVER_US else None

    def next_end_us(self) -> int | None:
        """Return when (mono, µs) the next lease of a pushed message ends; for a mesh inside a test."""
        ends = [end for lane in self._lanes.values() if (end := lane.leases.next_end_us()) < NEVER_US]
        return min(ends, default=None)

    def _look_again_us(self, lane: Lane, pushes: bool, wanted: bool, now: Now) -> int:
        """Return how long what is held up waits for another look: whatever frees it should bring a tick by
        itself, but nothing may be forgotten because it did not."""
        ready = wanted and lane.allowed(now) > 0
        if not ready and not pushes:
            return NEVER_US
        if (pushes and not lane.partition.confirmed(now)) or (ready and not lane.partition.in_touch(now)):
            return RETRY_US
        return SAFETY_US

    def _triggered_us(self, lane: Lane, mesh_us: int, have_credit: bool, now: Now) -> int:
        """Return how long triggered messages of a lane wait for another look, though its topic may be paused."""
        late = lane.has_late and lane.is_silent(mesh_us // 1000) and lane.leases_triggered
        if late and not lane.partition.confirmed(now):
            return RETRY_US
        head_us = lane.triggered_ms * 1000
        if head_us > mesh_us:
            ahead_us = head_us - mesh_us
            return min(ahead_us, SAFETY_US) if late else ahead_us
        if have_credit:
            return SAFETY_US if lane.partition.in_touch(now) else RETRY_US
        return SAFETY_US if late else NEVER_US

    # -------------------------------------------------------------- outputs and counts

    def _send(self, route: Route, message: BrokerMessage) -> None:
        self._sends.append((route, message, []))

    def _send_push(self, route: Route, push: Push, bodies: list[Body]) -> None:
        self._sends.append((route, push, bodies))

    def _send_chunk(self, session: ConsumerSession, message: PushChunk, data: bytes) -> None:
        if session.route is not None:
            message.leader = self._broker_id
            self._sends.append((session.route, message, [data]))

    def take_sends(self) -> list[tuple[Route, BrokerMessage, list[Body]]]:
        """Return the frames to send since the last call, in order."""
        sends, self._sends = self._sends, []
        return sends

    def take_reads(self) -> list[ReadPayloads | ReadChunk]:
        """Return the read orders since the last call."""
        reads, self._stager.reads = self._stager.reads, []
        return reads

    def has_waiting(self, now: Now) -> bool:
        """Whether due messages wait that may be delivered, and nobody has credit for them."""
        mesh_ms = self._clock.mesh_ms(now)
        if not any(
            (lane.queue.head_ms <= mesh_ms and not lane.is_silent(mesh_ms) and lane.allowed(now))
            or lane.triggered_ms <= mesh_ms
            for lane in self._lanes.values()
        ):
            return False
        return not self._consumers.free_rows(now, 1)

    def waiting(self, now: Now) -> int:
        """Return about how many due messages could be leased, counted up to `WAITING_MAX`."""
        count, mesh_ms = 0, self._clock.mesh_ms(now)
        for lane in self._lanes.values():
            if not lane.is_silent(mesh_ms):
                count += lane.queue.count_until(mesh_ms, min(WAITING_MAX - count, lane.allowed(now)))
        return count

    def ready_count(self, uid: int, now: Now) -> int:
        """Return about how many messages of a partition are due and not leased (its hot window only)."""
        lane = self._lanes.get(uid)
        if lane is None:
            return 0
        return lane.queue.count_until(self._clock.mesh_ms(now), len(lane.queue))

    def counts(self, uid: int, now: Now) -> LaneCounts:
        """Return what a partition's status shows."""
        lane = self._lanes.get(uid)
        if lane is None:
            return LaneCounts(0, 0, 0)
        return LaneCounts(self.ready_count(uid, now), len(lane.leases), len(lane.leases.unpushed()))

    def lease_of(self, uid: int, key: int, now: Now) -> LeaseSeen:
        """Return what there is to say of the lease of a message that is leased."""
        lane = self._lanes.get(uid)
        slot = lane.leases.slot_of.get(key) if lane is not None else None
        if lane is None or slot is None:
            return LeaseSeen(pushed=True, ends_ms=None)
        phase, act_us = int(lane.leases.phase[slot]), int(lane.leases.act_us[slot])
        if phase <= Phase.WITHHELD:
            return LeaseSeen(pushed=False, ends_ms=None)
        ends = phase <= Phase.AGAIN and act_us < NEVER_US
        mesh_us = self._clock.mesh_us(now)
        return LeaseSeen(pushed=True, ends_ms=(mesh_us + act_us - now.mono_us) // 1000 if ends else None)

    def sessions(self, now: Now) -> list[SessionStatus]:
        """Return what the status shows of each consumer, in order of their first frame."""
        return self._lifetimes.status(now)
