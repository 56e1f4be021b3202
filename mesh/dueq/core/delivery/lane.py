"""The dispatcher's view of one led partition: messages that wait, are leased, or are to be pushed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from heapq import heappop, heappush
from typing import Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from dueq import limits
from dueq.core.delivery.due_queue import NEVER_MS, SPARE_PLACES
from dueq.core.delivery.group_rates import GroupRates
from dueq.core.delivery.hot_messages import HotMessages
from dueq.core.delivery.leases import FEW, NEVER_US, Body, LeaseTable, Phase, has_uploads
from dueq.core.delivery.prepared import Piece, Prepared
from dueq.core.delivery.token_bucket import TokenBucket
from dueq.core.delivery.turns import Turns
from dueq.core.ports.entry import NO_ENTRIES, Entries, State, are_triggered, is_full, joined, keys_of
from dueq.core.state.body_table import BodyTable
from dueq.core.state.entry_rows import Slots
from dueq.core.state.heading_table import HeadingTable
from dueq.core.state.job import Job
from dueq.core.state.window import Guide
from dueq.instant import Now
from dueq_codecs.records import U64, Record, RecordKind
from dueq_codecs.topic_settings import TopicSettings

PASSED_MAX: Final = 4096
"""Messages of undecided or cancelled jobs that one look takes out of a queue: the next look, at once, goes on."""
POPS_MAX: Final = 128
"""How often one look asks the queue again because of them: each time costs some 0.1 ms."""
BATCHES_MAX: Final = 1024
"""Batches of leases to be pushed; more become one."""
EXPIRED_REASON: Final = "it was not delivered before it expired"
"""Why a message is dead that nobody has given back."""


class LedTimeline(HotMessages, Protocol):
    """The applied state of a led partition, as far as dispatch reads it."""

    def leased(self) -> Entries:
        """Return every leased entry."""
        ...

    def deliverable_hot(self) -> Entries:
        """Return every waiting entry of the hot window that may be delivered."""
        ...

    @property
    def triggered(self) -> Mapping[int, int]:
        """The messages that wait and that no pause and no rate hold: `first` by key."""
        ...

    @property
    def headings(self) -> HeadingTable:
        """The headers that a NACK has replaced, for reading only."""
        ...

    @property
    def bodies(self) -> BodyTable:
        """The shared bodies of messages, for reading only."""
        ...

    @property
    def hot_count(self) -> int:
        """Waiting entries of the hot window."""
        ...

    def led_by(self, guide: Guide | None) -> None:
        """Let the window follow the order of turns; None: no leader here knows it."""
        ...

    def tell_cuts(self) -> None:
        """Tell the guide of which classes less is in memory since it was told."""
        ...


class LedPartition(Protocol):
    """A partition that this broker leads and serves."""

    @property
    def uid(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def timeline(self) -> LedTimeline: ...

    @property
    def settings(self) -> TopicSettings:
        """The topic's newest settings: at least those that are in force here."""
        ...

    def propose(self, record: Record, now: Now) -> int:
        """Append a record of the leader's own (columns filled in; sequence, epoch and stamp are set here).

        Returns:
            Its sequence; 0 when it was refused (too much is not applied yet) and nothing happened.
        """
        ...

    def confirmed(self, now: Now) -> bool:
        """Return whether every ISR member has acked in this epoch within `limits.PUSH_CONFIRM_MS`."""
        ...

    def ask(self, now: Now) -> None:
        """Have them do so: something waits for it."""
        ...

    def read_on(self) -> None:
        """Have read what the window wants: somebody whose turn it is waits for the disk."""
        ...

    def in_touch(self, now: Now) -> bool:
        """Return whether every ISR member has answered anything within that time."""
        ...

    @property
    def level(self) -> int:
        """Its feature level: no later rules may be relied on."""
        ...

    @property
    def leases_from_us(self) -> int:
        """(mono) Inherited leases count from no earlier instant."""
        ...

    def barred(self, rows: Entries) -> npt.NDArray[np.bool_] | None:
        """Return which entries must not be delivered, their job being undecided or at its end; None: all may."""
        ...

    def cached_payloads(self, entries: Entries) -> list[bytes | memoryview | None]:
        """Return the inline payloads that are still in memory, None for the others."""
        ...


class _Batch(NamedTuple):
    """Leases that are pushed when their time comes."""

    wait_ms: int
    """The first of `waits`."""
    order: int
    slots: Slots
    tokens: U64
    waits: U64
    """Growing."""


class Lane:
    """One led partition.

    Attributes:
        partition: the partition.
        queue: its waiting messages.
        leases: its leases.
        inherited_until: tokens up to this one were given by earlier leaders.
        act_us: (mono) no lease must be ended before this instant.
        tokens: how many may be leased by the topic's rate.
        group_rates: how many of each limited group.
        last_turn: number of the turn in which something of its queue was leased last; 0: nothing was.
        prepared: what is to be pushed, laid out; all else that is to be pushed is in `schedule`.
    """

    def __init__(self, partition: LedPartition, turns: Turns) -> None:
        self.partition = partition
        self.uid = partition.uid
        self.leases = LeaseTable()
        self.group_rates = GroupRates()
        self.queue = turns.queue(partition.timeline, self.leases, self.group_rates)
        self.prepared = Prepared(self.uid, self.leases)
        self.inherited_until = 0
        self.act_us = NEVER_US
        self.tokens = TokenBucket()
        self.last_turn = 0
        self._pending: list[_Batch] = []
        self._orders = 0
        self._late: list[tuple[Slots, U64]] = []
        # Rows of EXTENDs by message that are in the log and not applied yet.
        self._extending: Counter[int] = Counter()
        self._look_ms = -1
        self._passed = self._pops = 0
        self._is_cut = False
        self._expired: list[Entries] = []
        # Of LAPSEs that are in the log and not applied yet.
        self._lapsing: set[int] = set()

    def allowed(self, now: Now) -> int:
        """Return how many messages may be leased now by the topic's rate."""
        settings = self.partition.settings
        self.tokens.configure(settings.rate, settings.burst, now)
        return self.tokens.available(now)

    def spend(self, entries: Entries, turn: int) -> None:
        """These are leased in the turn of this number: they cost tokens where there is a rate."""
        self.last_turn = turn
        self.tokens.take(len(entries))
        self.group_rates.spend(entries, self.partition.timeline.groups)

    def is_silent(self, mesh_ms: int) -> bool:
        """Whether nothing may be leased or pushed now: the topic is paused.

        A partition that was just added to a paused topic has no settings in its log yet.
        """
        return mesh_ms < self.partition.settings.silent_until_ms

    def are_silent(self, entries: Entries) -> npt.NDArray[np.bool_] | None:
        """Return which messages must not leave, their group being paused; None: all may.

        No pause holds a triggered message.
        """
        paused = self.partition.timeline.groups.are_paused(entries)
        return paused & ~are_triggered(entries) if paused is not None else None

    # -------------------------------------------------------------- what is to be pushed

    @property
    def next_push_ms(self) -> int:
        """Instant of the next push that is not due yet; NEVER_MS when there is none."""
        return min(self.prepared.next_ms, self.next_unprepared_ms)

    @property
    def next_unprepared_ms(self) -> int:
        """Instant of the next push that was not laid out; NEVER_MS when there is none."""
        return self._pending[0].wait_ms if self._pending else NEVER_MS

    @property
    def has_late(self) -> bool:
        """Whether pushes are due that something else holds up."""
        return bool(self._late)

    def grant(self, slots: Slots, entries: Entries, mesh_ms: int) -> None:
        """Push these leases, which were just granted, at their instants; those not due yet are laid out."""
        waits = np.ascontiguousarray(entries["wait_at"])
        ahead = waits > np.uint64(mesh_ms)
        special = is_full(entries) and (entries["expires"].any() or entries["body"].any())
        headed = self.partition.timeline.headings.by_key
        is_headed = bool(headed) and not headed.keys().isdisjoint(keys_of(entries).tolist())
        if special or is_headed or has_uploads(entries) or not ahead.any():
            self.schedule(slots, waits)
        elif ahead.all():
            self.prepared.add(slots, entries)
        else:
            self.prepared.add(slots[ahead], entries[ahead])
            self.schedule(slots[~ahead], waits[~ahead])

    def unprepare(self, pieces: list[Piece]) -> None:
        """These are not as they were laid out, or not all that is due is: they go the general way."""
        for piece in pieces:
            self._enter(piece.slots, piece.tokens, np.full(len(piece.slots), piece.wait_ms, np.uint64))

    def schedule(self, slots: Slots, waits: U64) -> None:
        """Push these leases at their instants."""
        if len(waits) > 1 and (waits[1:] < waits[:-1]).any():
            order = np.argsort(waits, kind="stable")
            slots, waits = slots[order], waits[order]
        self._enter(slots, self.leases.token[slots], waits)

    def _enter(self, slots: Slots, tokens: U64, waits: U64) -> None:
        if len(self._pending) >= BATCHES_MAX:
            slots, tokens, waits = self._gathered(slots, tokens, waits)
            if not len(slots):
                return
        self._orders += 1
        heappush(self._pending, _Batch(int(waits[0]), self._orders, slots, tokens, waits))

    def _gathered(self, slots: Slots, tokens: U64, waits: U64) -> tuple[Slots, U64, U64]:
        """Take all batches out, and return their leases and these ones, each once.

        In a pause no batch leaves, and each attach of a consumer brings the leases that it lacks once more.
        """
        batches, self._pending = self._pending, []
        slots = np.concatenate([slots, *(batch.slots for batch in batches)])
        tokens = np.concatenate([tokens, *(batch.tokens for batch in batches)])
        waits = np.concatenate([waits, *(batch.waits for batch in batches)])
        alive = np.flatnonzero(self.leases.same(slots, tokens))
        alive = alive[np.unique(slots[alive], return_index=True)[1]]
        alive = alive[np.argsort(waits[alive], kind="stable")]
        return slots[alive], tokens[alive], waits[alive]

    def hold_up(self, slots: Slots) -> None:
        """These are due, but cannot leave now: look again."""
        if len(slots):
            self._late.append((slots, self.leases.token[slots]))

    def take_due(self, mesh_ms: int, now: Now) -> Slots | None:
        """Take the leases whose push may leave by lease, time and payload.

        A due lease whose payload is missing is kept for the next look. A lease that was withheld, has ended or has
        less than half of its length left is dropped here (the timer of the lease sees to it).
        """
        self.unprepare(self.prepared.take_due(mesh_ms))
        late, self._late = self._late, []
        for slots, tokens in late:
            # Mesh time may have gone back since they seemed to be due.
            slots = slots[self.leases.same(slots, tokens)]
            if len(slots):
                self.schedule(slots, np.ascontiguousarray(self.leases.entry["wait_at"][slots]))
        pieces: list[tuple[Slots, U64]] = []
        while self._pending and self._pending[0].wait_ms <= mesh_ms:
            batch = heappop(self._pending)
            count = int(np.searchsorted(batch.waits, np.uint64(mesh_ms), side="right"))
            if count < len(batch.waits):
                self._enter(batch.slots[count:], batch.tokens[count:], batch.waits[count:])
                batch = batch._replace(slots=batch.slots[:count], tokens=batch.tokens[:count])
            pieces.append((batch.slots, batch.tokens))
        if not pieces:
            return None
        slots, tokens = pieces[0]
        if len(pieces) > 1:
            slots = np.concatenate([piece[0] for piece in pieces])
            tokens = np.concatenate([piece[1] for piece in pieces])
        return self._in_time(self._pushable(slots, tokens, now), mesh_ms, now)

    def _in_time(self, slots: Slots, mesh_ms: int, now: Now) -> Slots:
        """Return those that may still be delivered; the others' leases are ended, if no consumer can have them."""
        leases = self.leases
        if not is_full(leases.entry):
            return slots
        over = self.over(leases.entry.take(slots), mesh_ms)
        if not over.any():
            return slots
        again = slots[over & (leases.phase[slots] == Phase.AGAIN)]
        # An earlier push may still arrive, or be at work: such a lease lasts as long as it says.
        leases.stay_pushed(again)
        self.end_now(slots[over & (leases.phase[slots] != Phase.PUSHED)], now)
        return slots[~over]

    @staticmethod
    def over(entries: Entries, mesh_ms: int) -> npt.NDArray[np.bool_]:
        """Return which messages are not to be delivered any more."""
        if not is_full(entries):
            return np.zeros(len(entries), np.bool_)
        found: npt.NDArray[np.bool_] = (entries["expires"] > 0) & (
            entries["expires"] <= np.uint64(max(mesh_ms, 0))
        )
        return found

    def lapse(self, entries: Entries, now: Now) -> bool:
        """Propose that messages end which are not to be delivered any more; returns whether that was taken.

        Args:
            entries: the messages, at most as many as a record has rows.
            now: the instant.
        """
        record = Record(RecordKind.LAPSE, self.uid, 0, 0, 0)
        record.first = np.ascontiguousarray(entries["first"])
        record.target_sequence = np.ascontiguousarray(entries["sequence"])
        record.target_row = np.ascontiguousarray(entries["row"])
        if self.partition.settings.expired == "dead":
            record.reasons, record.reason = (EXPIRED_REASON,), np.zeros(len(entries), np.uint16)
        if not self.partition.propose(record, now):
            return False
        self._lapsing.update(keys_of(entries).tolist())
        return True

    def lapsed(self, keys: list[int]) -> None:
        """A LAPSE of these messages was applied."""
        self._lapsing.difference_update(keys)

    def _pushable(self, slots: Slots, tokens: U64, now: Now) -> Slots:
        leases = self.leases
        if len(slots) <= FEW and leases.all_pushable(slots.tolist(), tokens.tolist(), now.mono_us):
            return slots
        phase = leases.phase[slots]
        same = leases.same(slots, tokens)
        good = same & (phase == Phase.GRANTED) & (leases.act_us[slots] > now.mono_us)
        again = same & (phase == Phase.AGAIN)
        if again.any():
            if len(slots) > len(set(slots.tolist())):  # asked for twice, by two attaches
                slots, first = np.unique(slots, return_index=True)
                return self._pushable(slots, tokens[first], now)
            half_us = leases.entry["lease_ms"][slots].astype(np.int64) * 500
            enough = leases.act_us[slots] - now.mono_us >= half_us
            leases.stay_pushed(slots[again & ~enough])
            good |= again & enough
        if not good.all():
            slots = slots[good]
        ready = leases.ready[slots]
        if ready.all():
            return slots
        self.hold_up(slots[ready == 0])
        found: Slots = slots[ready != 0]
        return found

    def leave(self, piece: Piece, now: Now) -> list[Body]:
        """Note that a piece is pushed; returns its payloads, in the order of its rows."""
        leases, slots = self.leases, piece.slots
        until_us = now.mono_us + piece.lease_us
        self.touch(until_us)
        if len(piece.places) <= FEW:
            return leases.push(piece.places, until_us)
        held = leases.bodies
        bodies = [held[slot] or b"" for slot in piece.places]
        leases.phase[slots] = Phase.PUSHED
        leases.act_us[slots] = until_us
        leases.unstage(slots)
        return bodies

    # -------------------------------------------------------------- extending leases

    def extending(self, keys: list[int]) -> None:
        """An EXTEND of these messages is being appended."""
        self._extending.update(keys)

    def extended(self, keys: list[int]) -> None:
        """An EXTEND of these messages was applied."""
        for key in keys:
            self._extending[key] -= 1
            if self._extending[key] <= 0:
                del self._extending[key]

    def are_extending(self, keys: list[int]) -> npt.NDArray[np.bool_]:
        """Return which of them another EXTEND is on its way for."""
        return np.array([key in self._extending for key in keys], np.bool_)

    # -------------------------------------------------------------- ending leases

    def touch(self, act_us: int) -> None:
        """A lease must be ended at this instant or later."""
        self.act_us = min(self.act_us, act_us)

    def end_now(self, slots: Slots, now: Now) -> None:
        """Have leases ended at the next look at the timers."""
        if len(slots):
            self.leases.act_us[slots] = now.mono_us
            self.touch(now.mono_us)

    def return_granted(self, slots: Slots, now: Now) -> None:
        """Have those of these leases ended that were never pushed."""
        self.end_now(slots[self.leases.phase[slots] == Phase.GRANTED], now)

    def return_pushed(self, slots: Slots, now: Now) -> None:
        """Have these leases ended at once though they were pushed: who had them is gone, or has said goodbye."""
        self.leases.phase[slots] = Phase.RETURNED
        self.end_now(slots, now)

    def take_back(self, slots: Slots, now: Now) -> None:
        """These cannot leave, their consumer being gone: what it may have already waits for it without a payload."""
        self.return_granted(slots, now)
        self.leases.stay_pushed(slots[self.leases.phase[slots] == Phase.AGAIN])

    def silenced(self, now: Now) -> None:
        """The topic is paused: have every lease ended that was not pushed, but for triggered messages."""
        slots = np.fromiter(self.leases.slot_of.values(), np.intp, len(self.leases))
        self.return_granted(slots[~are_triggered(self.leases.entry.take(slots))], now)

    def groups_silenced(self, now: Now) -> None:
        """Groups may be paused: have the leases of their messages ended that were not pushed."""
        slots = np.flatnonzero(self.leases.phase[: self.leases.high] == Phase.GRANTED)
        silent = self.are_silent(self.leases.entry.take(slots))
        if silent is not None:
            self.end_now(slots[silent], now)

    def end_leases(self, now: Now, look_us: int, retry_us: int) -> None:
        """Propose EXPIRE for leases that ran out at their consumer, RELEASE for those that never got there.

        Args:
            now: the instant.
            look_us: the least time until the next look, when this one has found something.
            retry_us: the same when a proposal was refused.
        """
        slots = self.leases.to_end(now.mono_us)
        refused = False
        if len(slots):
            phase = self.leases.phase[slots]
            ran_out = (phase == Phase.PUSHED) | (phase == Phase.AGAIN)
            for kind, some in ((RecordKind.EXPIRE, slots[ran_out]), (RecordKind.RELEASE, slots[~ran_out])):
                for at in range(0, len(some), limits.RECORD_ROWS_MAX):
                    refused |= not self._end(kind, some[at : at + limits.RECORD_ROWS_MAX], now)
        wait_us = retry_us if refused else look_us if len(slots) else 0
        following_us = self.leases.next_act_us()
        self.act_us = NEVER_US if following_us >= NEVER_US else max(following_us, now.mono_us + wait_us)

    def _end(self, kind: RecordKind, slots: Slots, now: Now) -> bool:
        leases = self.leases
        rows = leases.entry.take(slots)
        record = Record(kind, self.uid, 0, 0, 0)
        record.first = np.ascontiguousarray(rows["first"])
        record.target_sequence = np.ascontiguousarray(rows["sequence"])
        record.target_row = np.ascontiguousarray(rows["row"])
        record.token = leases.token[slots]
        if not self.partition.propose(record, now):
            return False
        leases.phase[slots] = Phase.ENDING
        leases.act_us[slots] = NEVER_US
        leases.unstage(slots)
        return True

    # -------------------------------------------------------------- the queue

    def requeue(self, keys: U64) -> None:
        """Enter again what still waits of these keys."""
        rows = self.partition.timeline.rows(keys)
        self.queue.add(rows[rows["state"] == State.WAITING])

    def go_back(self, mesh_ms: int) -> None:
        """Mesh time has gone back to this instant; nothing may be taken out meanwhile."""
        self.partition.timeline.tell_cuts()
        self.queue.go_back(self.partition.timeline.deliverable_hot(), mesh_ms)

    def drop_dead(self) -> None:
        """Make the queue anew when most of its places must be dead.

        A caller that has taken messages out must have leased them or put them back.
        """
        timeline = self.partition.timeline
        timeline.tell_cuts()
        if len(self.queue) > 2 * timeline.hot_count + SPARE_PLACES:
            self.queue.renew(timeline.deliverable_hot())

    def begin_look(self, mesh_ms: int) -> None:
        """Choose anew what is leased; what has expired by this instant is not."""
        self._look_ms, self._passed, self._pops, self._expired = mesh_ms, 0, 0, []
        self._is_cut = False

    @property
    def is_cut(self) -> bool:
        """Whether this look has passed over as much as one may: the next one finds more."""
        aside = sum(map(len, self._expired))
        is_over = self._passed >= PASSED_MAX or self._pops >= POPS_MAX or aside >= limits.RECORD_ROWS_MAX
        return is_over or self._is_cut

    def take_waiting(self, until_ms: int, limit: int, *, again: bool = False) -> Entries:
        """Take waiting messages out of the queue, to lease them or to put them back.

        A message that may not be delivered is passed over, and takes nothing from those behind it: neither credit nor
        the turn of its group. Messages of a job that is not committed come (back) when it is; expired ones are to be
        ended (`take_expired`).

        Args:
            until_ms: the latest instant, inclusive.
            limit: at most this many.
            again: not for the first time in this turn.
        """
        found: list[Entries] = []
        wanted = asked = limit
        while wanted and not self.is_cut:
            entries = self.queue.pop(until_ms, asked, self.leases.slot_of.keys(), again=again)
            self._is_cut |= self.queue.is_cut
            kept = self._pass_over(entries)
            if len(kept) > wanted:
                self.queue.put_back(kept[wanted:])
                kept = kept[:wanted]
            found.append(kept)
            wanted -= len(kept)
            if len(kept) == len(entries):
                break  # what else there is waits for something else
            again = True
            self._pops += 1
            # Where nobody has turns, many that are passed over cost a few steps. What was taken too much goes back.
            asked = wanted if self.queue.guide is not None else min(2 * asked, limits.RECORD_ROWS_MAX)
        return joined(found) if found else NO_ENTRIES

    def _pass_over(self, entries: Entries) -> Entries:
        """Return which of these, taken out just now, may be delivered; sets aside the expired ones."""
        barred = self.partition.barred(entries)
        if barred is None and not is_full(entries):
            return entries
        over = self.over(entries, self._look_ms)
        passed = over if barred is None else over | barred
        if not passed.any():
            return entries
        first = self.queue.pass_over(entries, passed)
        expired = over if barred is None else over & ~barred
        if self._lapsing:
            expired &= np.array([key not in self._lapsing for key in keys_of(entries).tolist()], np.bool_)
        if expired.any():
            self._expired.append(entries[expired])
        self._passed += int(np.count_nonzero(passed & ~expired))
        return entries[:first][~passed[:first]]

    def take_expired(self) -> Entries:
        """Return what this look has found to have expired: it is to be ended or put back."""
        found, self._expired = self._expired, []
        return joined(found) if found else NO_ENTRIES

    # -------------------------------------------------------------- triggered messages

    def triggered(self) -> Entries:
        """Return the triggered messages that wait and may be delivered, or ended, when their instant has come."""
        waiting = self.partition.timeline.triggered
        keys = [key for key in waiting if key not in self.leases.slot_of and key not in self._lapsing]
        if not keys:
            return NO_ENTRIES
        rows = self.partition.timeline.rows(np.array(keys, np.uint64))
        free = rows["state"] == State.WAITING
        barred = self.partition.barred(rows)
        return rows.take(np.flatnonzero(free if barred is None else free & ~barred))

    @property
    def triggered_ms(self) -> int:
        """Instant at which the first of them falls due; NEVER_MS when none waits."""
        if not self.partition.timeline.triggered:
            return NEVER_MS
        return int(self.triggered()["wait_at"].min(initial=NEVER_MS))

    @property
    def leases_triggered(self) -> bool:
        """Whether triggered messages may be leased."""
        return bool(are_triggered(self.leases.entry[: self.leases.high]).any())

    def only_triggered(self, slots: Slots) -> Slots:
        """Return the leases of triggered messages among these; the others are held up."""
        mine = are_triggered(self.leases.entry.take(slots))
        self.hold_up(slots[~mine])
        found: Slots = slots[mine]
        return found

    # -------------------------------------------------------------- jobs

    def job_decided(self, job: Job, now: Now) -> None:
        """Return the granted leases of a cancelled job: its messages shall not be pushed."""
        if job.ended and job.leased:
            leases = self.leases
            of_job = (leases.entry["job"] == job.number) & (leases.phase == Phase.GRANTED)
            self.return_granted(np.flatnonzero(of_job), now)
