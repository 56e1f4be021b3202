"""Leases that go to another process of one name: under new tokens, so that the older one settles nothing any more.

    PUSHED to the older ──wanted──► LEASE with the present token proposed ──applied──► GRANTED ──► pushed to the newer

The processes are those of a consumer with a name, or those that pull by a name.

Each counts as another attempt, since the older process may have failed at it. So a lease at its last attempt is not
renewed but ended, and so is one for which the credit of the newer process has no room. Leases of pulls are detached,
and last for their length then. The topic's rate and pauses hold for renewals as for all deliveries: not for triggered
messages. What a pause of its group holds is released: it would keep its place and the credit of a consumer that could
have messages of other groups meanwhile.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from dueq import limits
from dueq.core.delivery.consumers import Consumers, ConsumerSession
from dueq.core.delivery.lane import Lane
from dueq.core.delivery.leases import NEVER_US, NOBODY, Phase
from dueq.core.delivery.staging import Stager
from dueq.core.ports.entry import Entries, are_triggered, is_full
from dueq.core.state.entry_rows import Slots
from dueq.instant import Now
from dueq_codecs.records import LEVEL_OF_KINDS, U64, Record, RecordKind

RETRY_US: Final = 5_000
"""After a refused proposal, or while payloads in memory leave no room."""
ALLOWED_US: Final = 50_000
"""While the topic's rate or a pause allows none."""
ROWS_MAX: Final = 512
"""Leases of one record."""


class Renewals:
    """The leases of one topic that are to be renewed.

    Args:
        lanes: the led partitions, by uid; the dispatcher's own.

    Attributes:
        next_us: (mono) when `propose` is to be called again; NEVER_US: nothing is left to do.
    """

    def __init__(self, lanes: dict[int, Lane], consumers: Consumers, stager: Stager) -> None:
        self._lanes, self._consumers, self._stager = lanes, consumers, stager
        # By partition, session (its number here) and whether they were triggered: those that wait longest come first.
        self._wanted: dict[tuple[int, int, bool], tuple[Lane, Slots, U64]] = {}
        self.next_us = NEVER_US

    def want(self, lane: Lane, slots: Slots) -> None:
        """Renew leases of one session, which were pushed to another process than the one that has attached now."""
        if not len(slots):
            return
        # The older process may have lacked some: under their old tokens they come no more.
        lane.leases.stay_pushed(slots)
        lane.leases.to_renew[slots] = 1
        owner, triggered = int(lane.leases.owner[slots[0]]), are_triggered(lane.leases.entry.take(slots))
        for place, some in (
            ((lane.uid, owner, True), slots[triggered]),
            ((lane.uid, owner, False), slots[~triggered]),
        ):
            if len(some):
                self._enter(place, lane, some)

    def _enter(self, place: tuple[int, int, bool], lane: Lane, slots: Slots) -> None:
        known = self._wanted.get(place)
        if known is not None and known[0] is lane:  # each attach asks for all that is not renewed yet
            slots = np.union1d(_still_pushed(*known), slots)
        slots = slots[np.argsort(lane.leases.entry["wait_at"][slots], kind="stable")]
        self._wanted[place] = lane, slots, lane.leases.token[slots]

    def forget(self, session: ConsumerSession) -> None:
        """A pull is over: its leases wait for the next one of the name."""
        for uid in self._lanes:
            for triggered in (True, False):
                self._wanted.pop((uid, session.number_here, triggered), None)

    def are_older(self, lane: Lane, slots: Slots) -> npt.NDArray[np.bool_]:
        """Return which leases an older process of their name may have.

        To which process an earlier leader has pushed them, this one cannot know.
        """
        leases = lane.leases
        older: npt.NDArray[np.bool_] = leases.to_renew[slots] != 0
        older |= leases.token[slots] <= lane.inherited_until
        return older

    def choose(self, lane: Lane, slots: Slots, session: ConsumerSession) -> Slots:
        """Return which of another process's leases a pull is given; those that no pause and no rate hold come first.

        It is given none of a paused group.
        """
        if not len(slots):
            return slots
        entries = lane.leases.entry.take(slots)
        may = ~_last_attempts(entries, lane.partition.settings.max_attempts)
        silent = lane.are_silent(entries)
        if silent is not None:
            may &= ~silent
        order = np.lexsort((entries["wait_at"][may], ~are_triggered(entries)[may]))
        chosen: Slots = slots[may][order][: self._room(session)]
        return chosen

    def propose(self, now: Now, mesh_ms: int) -> None:
        """Propose records, as far as the topic allows, and the payloads find room in memory."""
        self.next_us = NEVER_US
        for place in list(self._wanted):
            lane, slots, tokens = self._wanted.pop(place)
            _, owner, triggered = place
            if owner not in self._consumers.by_number:
                continue
            rows = (
                ROWS_MAX if triggered else 0 if lane.is_silent(mesh_ms) else min(lane.allowed(now), ROWS_MAX)
            )
            silent = lane.are_silent(lane.leases.entry.take(slots))
            if silent is not None:
                lane.return_pushed(_still_pushed(lane, slots[silent], tokens[silent]), now)
                slots, tokens = slots[~silent], tokens[~silent]
            while len(slots) and self._lanes.get(lane.uid) is lane:
                some = _still_pushed(lane, slots[:rows], tokens[:rows]) if rows else slots
                if not rows or (len(some) and not self._renew(lane, some, now, triggered=triggered)):
                    self._wanted[place] = lane, slots, tokens
                    wait_us = RETRY_US if rows else ALLOWED_US
                    self.next_us = min(self.next_us, now.mono_us + wait_us)
                    break
                slots, tokens = slots[rows:], tokens[rows:]
                rows = ROWS_MAX if triggered else min(lane.allowed(now), ROWS_MAX)

    def _renew(self, lane: Lane, slots: Slots, now: Now, *, triggered: bool) -> bool:
        """Renew leases of one session, of triggered messages or of others; returns whether they are dealt with."""
        leases = lane.leases
        session = self._consumers.by_number.get(int(leases.owner[slots[0]]))
        if session is None or lane.partition.level < LEVEL_OF_KINDS:
            return True  # they end by themselves
        room = limits.LOOK_AHEAD_BYTES_MAX * (2 if triggered else 1)  # see `Leasing`
        if sum(each.leases.staged_bytes for each in self._lanes.values()) >= room:
            return False
        entries = leases.entry.take(slots)
        ends = _last_attempts(entries, lane.partition.settings.max_attempts)
        ends[self._room(session) :] = True
        if ends.any():
            if session.pull:
                self._consumers.give_back(leases.owner[slots[ends]], entries["size"][ends], now)
                leases.owner[slots[ends]] = NOBODY
            else:
                lane.end_now(slots[ends], now)
            slots, entries = slots[~ends], entries[~ends]
        if not len(slots):
            return True
        record = Record(RecordKind.LEASE, lane.uid, 0, 0, 0)
        record.first = np.ascontiguousarray(entries["first"])
        record.target_sequence = np.ascontiguousarray(entries["sequence"])
        record.target_row = np.ascontiguousarray(entries["row"])
        record.token = leases.token[slots]
        record.consumer = np.zeros(len(slots), np.uint16)
        record.consumers = (session.consumer_id,)
        record.lease_ms = np.array([session.lease_ms], np.uint64)
        token = lane.partition.propose(record, now)
        if not token:
            return False
        lane.tokens.take(int((~are_triggered(entries)).sum()))
        leases.unstage(slots)
        leases.token[slots], leases.phase[slots], leases.act_us[slots] = token, Phase.PROPOSED, NEVER_US
        leases.to_renew[slots] = 0
        self._consumers.note_pull(session)
        self._stager.stage(lane, slots, entries)
        return True

    def _room(self, session: ConsumerSession) -> int:
        """Return how many leases its credit leaves room for: all that it has count, but those that were not renewed."""
        owned = sum(
            len(_to_renew(lane, lane.leases.of_owner(session.number_here))) for lane in self._lanes.values()
        )
        return max(session.credit - (session.rows_out - owned), 0)


def _still_pushed(lane: Lane, slots: Slots, tokens: U64) -> Slots:
    return _to_renew(lane, slots[lane.leases.same(slots, tokens)])


def _to_renew(lane: Lane, slots: Slots) -> Slots:
    found: Slots = slots[(lane.leases.to_renew[slots] != 0) & (lane.leases.phase[slots] == Phase.PUSHED)]
    return found


def _last_attempts(entries: Entries, max_attempts: int) -> npt.NDArray[np.bool_]:
    """Return which messages may not be tried again."""
    most = np.full(len(entries), max_attempts, np.uint64)
    if is_full(entries):
        most = np.where(entries["attempts_max"] > 0, entries["attempts_max"], most)
    dies: npt.NDArray[np.bool_] = (most > 0) & (entries["attempt"] >= most)
    return dies
