"""Effects of records on the leases and queues of a led partition, when a record is appended and when it is applied.

LEASE applied      proposed leases are granted: pushed when their time comes, unless it is too late or too far off
EXTEND taken       its leases do not run out while it is on its way; applied, they have their new end
SETTINGS applied   a pause ends what was granted and not pushed
CANCEL, MOVE       appended, they withhold what was not pushed; applied, what they have not ended is let go
GROUP applied      a pause ends what was granted and not pushed; what a pause or a limit held back may be leased
LAPSE applied      what had expired is no longer held to be on its end
ACK, NACK, RELEASE, EXPIRE applied    the leases are gone, and what waits again is in the queue
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from dueq import limits
from dueq.core.delivery.consumers import Consumers
from dueq.core.delivery.lane import Lane
from dueq.core.delivery.leases import I64, Phase
from dueq.core.delivery.staging import Stager
from dueq.core.delivery.tick_clock import TickClock
from dueq.core.ports.entry import Entries, are_triggered, keys_of
from dueq.core.state.applied import Applied
from dueq.core.turn.metrics import CoreMetrics
from dueq.instant import Now
from dueq_codecs.records import FILTERED, U64, Record, RecordKind
from dueq_codecs.shape import REVOKING

LEASED_AHEAD_US: Final = (limits.LOOK_AHEAD_MS_MAX + limits.LEASE_GATHER_MS) * 1000
"""Nothing is leased further ahead of its instant."""
_WITHHOLDING: Final = (*REVOKING, RecordKind.RECURRENCE)


class LeaseChanges:
    """The leases of one topic's led partitions, as the log changes them.

    Args:
        ran_out: called with the sessions whose leases have ended at their consumer.
    """

    def __init__(
        self,
        topic: str,
        metrics: CoreMetrics,
        consumers: Consumers,
        stager: Stager,
        clock: TickClock,
        ran_out: Callable[[I64, Now], None],
    ) -> None:
        self._topic, self._metrics = topic, metrics
        self._consumers, self._stager, self._clock = consumers, stager, clock
        self._ran_out = ran_out

    # -------------------------------------------------------------- what was committed

    def applied(self, lane: Lane, record: Record, applied: Applied, now: Now) -> None:
        """A record of a led partition was applied."""
        if record.kind == RecordKind.EXTEND:
            lane.extended(((record.target_sequence << np.uint64(16)) | record.target_row).tolist())
        elif record.kind == RecordKind.LAPSE:
            lane.lapsed(((record.target_sequence << np.uint64(16)) | record.target_row).tolist())
        if len(applied.leased):
            if record.kind == RecordKind.LEASE:
                self._granted(lane, applied.leased, record.sequence, now)
            else:
                self._extended(lane, applied.leased, now)
        if len(applied.ended):
            owners = self._ended(lane, keys_of(applied.ended), now)
            if record.kind == RecordKind.EXPIRE:
                self._metrics.messages["expire", self._topic] += len(applied.ended)
                self._ran_out(owners, now)
            elif record.kind == RecordKind.ACK and FILTERED in record.reasons:
                place = record.reasons.index(FILTERED)
                self._metrics.messages["filter", self._topic] += int((record.reason == place).sum())
        if applied.died:
            self._metrics.messages["die", self._topic] += applied.died
        if len(applied.refused):
            self._refused(lane, applied.refused, record.sequence, now)
        if len(applied.waiting):
            lane.queue.add(applied.waiting)
        if applied.settings is not None and lane.is_silent(self._clock.mesh_ms(now)):
            lane.silenced(now)
        if record.kind == RecordKind.GROUP:
            lane.queue.group_changed(record.name)
            lane.groups_silenced(now)
        if applied.job is not None:
            lane.job_decided(applied.job, now)
        if record.kind in _WITHHOLDING and record.token.any():
            self._let_go(lane, record, now)
        lane.drop_dead()

    def _let_go(self, lane: Lane, record: Record, now: Now) -> None:
        """End leases that a CANCEL or MOVE withheld and has not ended: it was a repetition, or refused."""
        leases, named = lane.leases, np.flatnonzero(record.token)
        keys = (record.target_sequence[named] << np.uint64(16)) | record.target_row[named]
        for key, token in zip(keys.tolist(), record.token[named].tolist(), strict=True):
            slot = leases.slot_of.get(key)
            if slot is not None and leases.phase[slot] == Phase.WITHHELD and leases.token[slot] == token:
                lane.end_now(np.array([slot]), now)

    def _refused(self, lane: Lane, keys: U64, token: int, now: Now) -> None:
        """A record does nothing to these: its leases were never granted, and what has no lease is looked at again.

        A renewal is refused when its lease has ended before. Then the message may be leased anew already, by a record
        that comes after: that lease stays.
        """
        leases = lane.leases
        others = [key for key in keys.tolist() if leases.token_of(key) not in (0, token)]
        if others:
            keys = keys[~np.isin(keys, np.array(others, np.uint64))]
        self._ended(lane, keys, now)
        lane.requeue(keys)

    def _granted(self, lane: Lane, entries: Entries, token: int, now: Now) -> None:
        self._metrics.messages["lease", self._topic] += len(entries)
        leases = lane.leases
        slots = leases.find(keys_of(entries))
        # Never proposed here: nobody counts it.
        if len(slots) < len(entries) or not leases.same(slots, token).all():
            return
        leases.rewrite(slots, entries)
        phase = leases.phase[slots]
        fresh = phase == Phase.PROPOSED
        waits = entries["wait_at"]
        mono_us = self._clock.mono_of(waits, now)
        half_us = mono_us + entries["lease_ms"].astype(np.int64) * 500
        far_us = now.mono_us + LEASED_AHEAD_US
        if lane.is_silent(self._clock.mesh_ms(now)):
            half_us[~are_triggered(entries)] = now.mono_us  # proposed before the pause
        elif mono_us.max() > far_us:
            # Moved between proposal and grant: the new instant is too far off to hold a lease for.
            half_us[mono_us > far_us] = now.mono_us
        silent = lane.are_silent(entries)
        if silent is not None:
            half_us[silent] = now.mono_us  # proposed before the pause of its group
        if not fresh.all():
            # Withheld or to be ended since it was proposed: only the timer matters, and it may be set
            # already.
            withheld = slots[phase == Phase.WITHHELD]
            leases.act_us[withheld] = np.minimum(leases.act_us[withheld], half_us[phase == Phase.WITHHELD])
            slots, half_us, entries = slots[fresh], half_us[fresh], entries[fresh]
            lane.touch(now.mono_us)
            if not len(slots):
                return
        leases.phase[slots] = Phase.GRANTED
        half_us = np.minimum(leases.act_us[slots], half_us)
        leases.act_us[slots] = half_us
        lane.touch(int(half_us.min()))
        alive = half_us > now.mono_us
        if not alive.all():  # what is to be ended at once must not lie here until its far instant
            slots, entries = slots[alive], entries[alive]
            if not len(slots):
                return
        lane.grant(slots, entries, self._clock.mesh_ms(now))
        self._stager.send_ahead(lane, slots, entries)

    def _extended(self, lane: Lane, entries: Entries, now: Now) -> None:
        leases = lane.leases
        slots = leases.find(keys_of(entries))
        if len(slots) < len(entries):
            return
        leases.rewrite(slots, entries)
        held = (leases.phase[slots] == Phase.PUSHED) | (leases.phase[slots] == Phase.AGAIN)
        if not held.all():  # what was laid out of the others says how long they were
            lane.unprepare(lane.prepared.take_all())
        slots, entries = slots[held], entries[held]
        length_us = entries["lease_ms"].astype(np.int64) * 1000
        # The end that the next EXTEND asks for stands already (see `extending`), and must not be taken back meanwhile.
        before_us = np.where(lane.are_extending(keys_of(entries).tolist()), leases.act_us[slots], 0)
        leases.act_us[slots] = np.maximum(now.mono_us + length_us, before_us)
        if len(length_us):
            lane.touch(now.mono_us + int(length_us.min()))

    def _ended(self, lane: Lane, keys: U64, now: Now) -> I64:
        """Forget leases; returns the numbers of the sessions that had them."""
        leases = lane.leases
        slots = leases.find(keys)
        owners = leases.owner[slots]
        if len(slots):
            self._consumers.give_back(owners, leases.entry["size"][slots], now)
            leases.remove(slots, keys.tolist())
        return owners

    # -------------------------------------------------------------- what is about to be appended

    def withhold(self, lane: Lane, keys: U64) -> U64:
        """Hold back what a CANCEL or MOVE is about to name; see `TopicDispatcher.withhold`."""
        tokens = np.zeros(len(keys), np.uint64)
        if not lane.leases.slot_of:
            return tokens
        leases = lane.leases
        for at, key in enumerate(keys.tolist()):
            slot = leases.slot_of.get(key)
            if slot is not None and Phase.PROPOSED <= leases.phase[slot] <= Phase.WITHHELD:
                leases.phase[slot] = Phase.WITHHELD
                tokens[at] = leases.token[slot]
        return tokens

    def extending(self, lane: Lane, keys: U64, tokens: U64, amount_ms: U64, now: Now) -> None:
        """An EXTEND was taken: its leases do not run out while it is on its way.

        Otherwise an EXPIRE that follows it in the log would end a lease that was just confirmed to be longer.
        """
        lane.extending(keys.tolist())
        leases = lane.leases
        for key, token, length_ms in zip(keys.tolist(), tokens.tolist(), amount_ms.tolist(), strict=True):
            slot = leases.slot_of.get(key)
            held = slot is not None and leases.phase[slot] in (Phase.PUSHED, Phase.AGAIN)
            if slot is not None and held and leases.token[slot] == token:
                until_us = now.mono_us + min(length_ms, limits.LEASE_MS_MAX) * 1000
                leases.act_us[slot] = max(int(leases.act_us[slot]), until_us)
