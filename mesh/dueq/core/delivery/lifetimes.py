"""How long a consumer's session lasts: from its first frame, or from leases that were inherited, to goodbye or silence.

Silence and goodbye differ. A goodbye returns leases at once and uncounted. A silent consumer keeps them for the
whole session, because its SDK still counts on them for two thirds of it (protocol case S8).

Detached leases last longer than their session: after silence, and if a goodbye lists them, they are nobody's. Then only
a decision or their length ends them. If their consumer attaches again, they are its own once more.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dueq.core.delivery.consumers import SESSION_US, Consumers, ConsumerSession
from dueq.core.delivery.lane import Lane
from dueq.core.delivery.leases import I64, NEVER_US, NOBODY, Phase, total
from dueq.core.delivery.replies import Replies
from dueq.core.delivery.resending import held_by
from dueq.core.ports.entry import FLAG_DETACHED, Entries, keys_of
from dueq.core.state.entry_rows import Slots
from dueq.instant import Now
from dueq_codecs.messages import ConsumerFrame

CHECK_US: Final = 100_000
"""Least time between two looks for silent sessions."""


class SessionStatus(NamedTuple):
    """A consumer as the status shows it."""

    consumer_id: str
    attached: bool
    credit: int
    leases: int
    leased_bytes: int
    heard_ms_ago: int


class Lifetimes:
    """The sessions of one topic's consumers with this leader: which there are, and until when.

    Args:
        lanes: the led partitions, by uid; the dispatcher's own.
        replies: asks consumers to attach again.
    """

    def __init__(self, consumers: Consumers, lanes: dict[int, Lane], replies: Replies) -> None:
        self._consumers, self._lanes, self._replies = consumers, lanes, replies
        self._check_us = NEVER_US

    @property
    def next_us(self) -> int:
        """(mono) when `end_silent` has something to do."""
        return self._check_us

    # -------------------------------------------------------------- signs of life

    def heard(self, session: ConsumerSession, now: Now) -> None:
        """A consumer has spoken, or its silence begins to count."""
        session.heard_us = now.mono_us
        self._check_us = min(self._check_us, now.mono_us + SESSION_US)

    def ran_out(self, owners: I64, now: Now) -> None:
        """Leases of these sessions ran out: a session that is silent gets nothing more, and is asked to speak.

        A consumer at work has beaten when it lost them, by its own count. If that was long before (an inherited
        lease counts from the take-over) or never (the push was lost), it has nothing to say until its next beat: so
        it is asked to attach again. One that has died is found out by the answer that cannot be sent.
        """
        for number in set(owners.tolist()):
            session = self._consumers.by_number.get(number)
            if session is not None and session.reachable and not session.pull:
                session.lapsed_us = now.mono_us
                session.must_attach |= session.is_muted
                self._replies.answer(session, now)

    def shift(self, gap_us: int) -> None:
        """The process was paused."""
        for session in self._consumers.by_id.values():
            session.shift(gap_us)
        if self._check_us < NEVER_US:
            self._check_us += gap_us

    # -------------------------------------------------------------- changes of leader

    def inherit(self, leased: Entries, now: Now) -> I64:
        """Find or open the sessions of inherited leases; returns the session number per row.

        Detached ones of a consumer that is not here are nobody's: they end by their length.
        """
        ids = np.empty((len(leased), 2), ">u8")
        ids[:, 0] = leased["consumer_high"]
        ids[:, 1] = leased["consumer_low"]
        packed = ids.tobytes()
        owners = np.empty(len(leased), np.int64)
        touched: dict[bytes, ConsumerSession] = {}
        detached = (leased["flags"] & FLAG_DETACHED).tolist()
        for row, size in enumerate(leased["size"].tolist()):
            consumer_id = packed[16 * row : 16 * row + 16]
            known = self._consumers.by_id.get(consumer_id)
            if detached[row] and (known is None or not known.detached):
                owners[row] = NOBODY
                continue
            session = known or self._consumers.open(consumer_id, now)
            session.rows_out += 1
            session.bytes_out += size
            owners[row] = session.number_here
            touched[consumer_id] = session
        for session in touched.values():
            # A consumer without leases here had nothing to say: its silence counts from now.
            self.heard(session, now)
            if session.route is not None:
                session.must_attach = True
                self._replies.answer(session, now)
        return owners

    def unled(self, uid: int, owners: I64) -> None:
        """Another broker leads this partition: these sessions, and all that stated leases of it, must attach again."""
        numbers = set(owners.tolist())
        for session in self._consumers.by_id.values():
            if session.route is not None and (session.number_here in numbers or uid in session.stated):
                session.must_attach = True

    def drop_idle(self) -> None:
        """Forget consumers that were only known from leases that are gone."""
        for session in list(self._consumers.by_id.values()):
            if session.route is None and not session.rows_out:
                self._consumers.drop(session)

    # -------------------------------------------------------------- ends

    def return_leases(
        self, session: ConsumerSession, frame: ConsumerFrame, now: Now
    ) -> list[tuple[Lane, Slots]]:
        """End the leases of a consumer that says goodbye, uncounted, but for the detached ones that it lists.

        Returns:
            Inherited ones, if the consumer has a name and has not attached since, or never here: a later process of
            the name may have them, which was attached at the earlier leader.
        """
        listed = held_by(frame)
        unsure: list[tuple[Lane, Slots]] = []
        for lane in self._lanes.values():
            leases = lane.leases
            slots = leases.of_owner(session.number_here)
            slots = slots[leases.phase[slots] != Phase.ENDING]
            pairs = listed.get(lane.uid)
            if pairs:
                keys, tokens = keys_of(leases.entry.take(slots)).tolist(), leases.token[slots].tolist()
                stays = [pairs.get(key) == token for key, token in zip(keys, tokens, strict=True)]
                slots = _left(lane, slots, np.array(stays, np.bool_))
            if frame.life and (session.must_attach or session.route is None):
                inherited = leases.token[slots] <= lane.inherited_until
                unsure.append((lane, slots[inherited]))
                slots = slots[~inherited]
            held = (leases.phase[slots] == Phase.PUSHED) | (leases.phase[slots] == Phase.AGAIN)
            leases.phase[slots[held]] = Phase.RETURNED
            lane.end_now(slots, now)
        return unsure

    def keep(self, consumer_id: bytes, unsure: list[tuple[Lane, Slots]], now: Now) -> None:
        """Keep leases for a later process of their name, as long as sessions last."""
        if not any(len(slots) for _, slots in unsure):
            return
        session = self._consumers.open(consumer_id, now)
        for lane, slots in unsure:
            lane.leases.stay_pushed(slots)
            lane.leases.owner[slots] = session.number_here
            session.rows_out += len(slots)
            session.bytes_out += total(lane.leases.entry["size"][slots])
        self.heard(session, now)

    def end_silent(self, now: Now) -> None:
        """End the leases of consumers that have not been heard for a whole session."""
        if now.mono_us < self._check_us:
            return
        for session in list(self._consumers.by_id.values()):
            if now.mono_us - session.heard_us >= SESSION_US:
                self._end(session, now)
        oldest_us = min((session.heard_us for session in self._consumers.by_id.values()), default=None)
        if oldest_us is None:
            self._check_us = NEVER_US
        else:
            self._check_us = max(oldest_us + SESSION_US, now.mono_us + CHECK_US)

    def _end(self, session: ConsumerSession, now: Now) -> None:
        for lane in self._lanes.values():
            slots = lane.leases.of_owner(session.number_here)
            slots = slots[lane.leases.phase[slots] != Phase.ENDING]
            slots = _left(lane, slots, np.ones(len(slots), np.bool_))
            lane.end_now(slots, now)
        self._consumers.drop(session)

    def adopt(self, session: ConsumerSession) -> None:
        """A consumer has attached: detached leases that it was parted from are its own again."""
        high, low = np.frombuffer(session.consumer_id, ">u8").tolist()
        for lane in self._lanes.values():
            leases = lane.leases
            slots = leases.of_owner(NOBODY)
            if not len(slots):
                continue
            rows = leases.entry.take(slots)
            mine = (rows["consumer_high"] == high) & (rows["consumer_low"] == low)
            mine &= rows["flags"] & FLAG_DETACHED != 0
            slots = slots[mine & (leases.phase[slots] != Phase.ENDING)]
            leases.owner[slots] = session.number_here
            session.rows_out += len(slots)
            session.bytes_out += total(leases.entry["size"][slots])

    # -------------------------------------------------------------- status

    def status(self, now: Now) -> list[SessionStatus]:
        """Return what the status shows of each consumer, in order of their first frame."""
        return [
            SessionStatus(
                session.consumer_id.hex(), session.reachable, session.credit, session.rows_out,
                session.bytes_out, (now.mono_us - session.heard_us) // 1000,
            )
            for session in self._consumers.by_id.values()
        ]  # fmt: skip


def _left(lane: Lane, slots: Slots, stays: npt.NDArray[np.bool_]) -> Slots:
    """Let detached leases of these that stay, and may be with their consumer, be nobody's; returns the others."""
    leases = lane.leases
    phase = leases.phase[slots]
    stays = stays & (leases.entry["flags"][slots] & FLAG_DETACHED != 0)
    stays &= (phase == Phase.PUSHED) | (phase == Phase.AGAIN)
    kept = slots[stays]
    leases.unstage(kept[leases.phase[kept] == Phase.AGAIN])
    leases.phase[kept], leases.owner[kept] = Phase.PUSHED, NOBODY
    return slots[~stays]
