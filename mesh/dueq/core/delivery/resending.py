"""Leases whose push did not arrive: they are pushed again under the same token, or returned.

A connection promises nothing, so two exchanges find what is missing (protocol case B8). On attaching, a consumer lists
the leases that it holds. In each beat it says up to which number every push has arrived. A push that was sent a second
ago and is not among them goes out again under a new number. An empty push fills the old number's place, so that the
count can go on. Chunks of long payloads go before their push, and may be on their way for longer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

import numpy as np

from dueq import limits
from dueq.core.delivery.consumers import ConsumerSession, SentPush
from dueq.core.delivery.lane import Lane
from dueq.core.delivery.leases import Phase
from dueq.core.delivery.pushes import filler
from dueq.core.delivery.staging import Stager
from dueq.core.ports.entry import are_triggered, keys_of
from dueq.core.ports.events import Route
from dueq.core.state.entry_rows import Slots
from dueq.instant import Now
from dueq_codecs.messages import BrokerMessage, ConsumerFrame
from dueq_codecs.records import U64

AGAIN_MAX: Final = 256
"""Lists of leases to be pushed again; more become two for each lane."""
RESEND_US: Final = 1_000_000
"""Age at which a push should have been seen, but for the chunks that go before it."""
SLOWEST_LINK: Final = 1 << 20
"""Bytes of chunks a second that every consumer's link is taken to carry: chunks sent anew would only clog it."""
TRAVEL_SHARE: Final = 4
"""Chunks are waited for during this part of a lease at most: to be pushed again, it needs half of its time."""
REPAIR_US: Final = 1_250_000
"""And no longer than leaves as much of that half: a consumer that lacks something says so each second, and what it
lacks may have to be read."""
FILLERS_MAX: Final = 256
"""Lost pushes that one beat repairs."""


class Resending:
    """Leases of one topic that are to be pushed again.

    Args:
        topic, broker_id: named in every push.
        lanes: the led partitions, by uid; the dispatcher's own.
        stager: sends chunks of long payloads ahead again.
        send: takes an empty push on its way.

    Attributes:
        again: leases whose consumer lacks them, to be staged and pushed once more.
        triggered: the same of triggered messages, which no pause holds.
    """

    def __init__(
        self,
        topic: str,
        broker_id: str,
        lanes: dict[int, Lane],
        stager: Stager,
        send: Callable[[Route, BrokerMessage], None],
    ) -> None:
        self.again: deque[tuple[Lane, Slots, U64]] = deque()
        self.triggered: deque[tuple[Lane, Slots, U64]] = deque()
        self._topic, self._broker_id = topic, broker_id
        self._lanes = lanes
        self._stager = stager
        self._send = send

    # -------------------------------------------------------------- what a consumer says

    def settle_held(
        self, session: ConsumerSession, frame: ConsumerFrame, lacking: Callable[[Lane, Slots], None]
    ) -> None:
        """Compare a consumer's list of leases with its leases here; `lacking` is called with the missing ones."""
        held = held_by(frame)
        for lane in self._lanes.values():
            leases = lane.leases
            slots = leases.of_owner(session.number_here)
            if not len(slots):
                continue
            phase = leases.phase[slots]
            pushed = slots[(phase == Phase.PUSHED) | (phase == Phase.AGAIN)]
            pairs = held.get(lane.uid, {})
            lacks = [
                pairs.get(key) != token
                for key, token in zip(
                    keys_of(leases.entry.take(pushed)).tolist(), leases.token[pushed].tolist(), strict=True
                )
            ]
            missing = np.array(lacks, np.bool_)
            leases.stay_pushed(pushed[~missing])
            lacking(lane, pushed[missing])
            granted = slots[phase == Phase.GRANTED]
            self._stager.send_ahead(lane, granted, leases.entry.take(granted))

    def seen(self, session: ConsumerSession, number: int) -> None:
        """Every push up to this number has arrived; a consumer that leaves too many unseen has to attach again."""
        unseen = session.unseen
        while unseen and unseen[0].number <= number:
            unseen.popleft()
        if len(unseen) > limits.PUSHES_UNSEEN_MAX:
            session.reachable = False
            session.must_attach = True

    def resend_late(self, session: ConsumerSession, route: Route, now: Now) -> None:
        """Push again what should have arrived by now; nothing goes to a consumer that has to attach again."""
        unseen = session.unseen
        if session.reachable and unseen and unseen[0].sent_us <= now.mono_us - RESEND_US:
            self._resend(session, route, now)

    # -------------------------------------------------------------- what is done about it

    def _resend(self, session: ConsumerSession, route: Route, now: Now) -> None:
        """Push again what was sent too long ago; an empty push fills each lost number."""
        late = _late(session, now)
        for number, _, _, parts, _ in late:
            for lane, slots, tokens in parts:
                if self._lanes.get(lane.uid) is lane:
                    self.push_again(lane, _still_with(session, lane, slots, tokens))
            self._send(route, filler(number, session, self._topic, self._broker_id, now.wall_us))
        sent_again = {push.number for push in late}
        session.unseen = deque(
            SentPush(push.number, now.mono_us, False, []) if push.number in sent_again else push
            for push in session.unseen
        )

    def push_again(self, lane: Lane, slots: Slots) -> None:
        """Have leases pushed once more, as soon as their payloads are at hand."""
        if not len(slots):
            return
        entries = lane.leases.entry.take(slots)
        slots = slots[np.lexsort((keys_of(entries), entries["wait_at"]))]
        # Their bytes are counted until then: those that wait already would keep the room that they need.
        lane.leases.unstage(slots)
        lane.leases.phase[slots] = Phase.AGAIN
        lane.leases.ready[slots] = lane.leases.to_renew[slots] = 0
        self._enter(lane, slots)
        if len(self.again) + len(self.triggered) > AGAIN_MAX:
            self._gather_again()

    def _enter(self, lane: Lane, slots: Slots) -> None:
        triggered = are_triggered(lane.leases.entry.take(slots))
        for again, some in ((self.triggered, slots[triggered]), (self.again, slots[~triggered])):
            if len(some):
                again.append((lane, some, lane.leases.token[some]))

    def _gather_again(self) -> None:
        """Once for each lane what attaches have asked for, some of it many times, while nothing could be staged."""
        self.again.clear()
        self.triggered.clear()
        for lane in self._lanes.values():
            slots = np.flatnonzero(lane.leases.phase == Phase.AGAIN)
            if len(slots):
                self._enter(lane, slots)

    def return_unsent(self, session: ConsumerSession, number: int, now: Now) -> None:
        """A push could not be sent: leases that cannot have arrived by an earlier push are returned, uncounted."""
        for push in session.unseen:
            if push.number == number and push.first:
                for lane, slots, tokens in push.parts:
                    if self._lanes.get(lane.uid) is lane:
                        still = _still_with(session, lane, slots, tokens)
                        lane.return_pushed(still, now)


def _late(session: ConsumerSession, now: Now) -> list[SentPush]:
    """Return the first pushes that should have been seen by now, with all that is on its way before them."""
    late, ahead = [], 0
    lease_us = session.lease_ms * 1000
    longest_us = max(min(lease_us // TRAVEL_SHARE, lease_us // 2 - RESEND_US - REPAIR_US), 0)
    for push in session.unseen:
        ahead += push.upload_bytes
        travel_us = min(ahead * 1_000_000 // SLOWEST_LINK, longest_us)
        if push.sent_us <= now.mono_us - RESEND_US - travel_us:
            late.append(push)
    return late[:FILLERS_MAX]


def _still_with(session: ConsumerSession, lane: Lane, slots: Slots, tokens: U64) -> Slots:
    """Return those of these leases whose last push went to this session: a pull may have taken them over since."""
    leases = lane.leases
    still = leases.same(slots, tokens) & (leases.phase[slots] == Phase.PUSHED)
    found: Slots = slots[still & (leases.owner[slots] == session.number_here)]
    return found


def held_by(frame: ConsumerFrame) -> dict[int, dict[int, int]]:
    """Return the leases that a frame lists: the token of each message, by partition and key."""
    held: dict[int, dict[int, int]] = {}
    keys = (frame.held_sequence << np.uint64(16)) | frame.held_row
    for uid, key, token in zip(
        frame.held_uid.tolist(), keys.tolist(), frame.held_token.tolist(), strict=True
    ):
        held.setdefault(uid, {})[key] = token
    return held
