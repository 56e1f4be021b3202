"""The conversation with a topic's consumers: attach, beat, goodbye, and silence.

A consumer's connection promises nothing. Its leases are settled by two exchanges (protocol case B8): on
attaching it lists the leases it holds, and what is missing is pushed again under the same token; in each
beat it says up to which number every push has arrived, and what was sent a second ago and is not among them
goes out again under a new number (an empty push fills the old one's place, so that the count can go on).

Silence and goodbye differ: a goodbye returns leases at once and uncounted, and an attach that it has ended opens
nothing any more, however late it comes (`departed`); a silent consumer keeps them for the whole session,
because its SDK still counts on them for two thirds of it (protocol case S8).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

import numpy as np

from dueq import limits
from dueq.core.delivery.consumers import SESSION_US, Consumers, ConsumerSession, SentPush
from dueq.core.delivery.departed import Departed
from dueq.core.delivery.lane import Lane
from dueq.core.delivery.leases import I64, NEVER_US, Phase, Slots
from dueq.core.delivery.pushes import filler
from dueq.core.delivery.staging import Stager
from dueq.core.ports.entry import Entries, keys_of
from dueq.core.ports.events import Route
from dueq.instant import Now
from dueq_codecs.messages import BrokerMessage, Code, ConsumerAction, ConsumerFrame, ConsumerReply, Push
from dueq_codecs.records import U64

AGAIN_MAX: Final = 256
"""Lists of leases to be pushed again; more become one for each lane."""
RESEND_US: Final = 1_000_000
"""A push that was sent so long ago should have been seen."""
FILLERS_MAX: Final = 256
"""Lost pushes that one beat repairs."""
UNSEEN_MAX: Final = 32_768
"""Pushes to one consumer that it has not confirmed to have seen; one that leaves more so has to attach again."""
TELL_US: Final = 500_000
"""Least time between two unasked-for replies to one consumer."""
CONFIRM_RETRY_US: Final = 5_000
"""Answers that wait until a leadership is confirmed are looked at again so soon."""
COUNT_US: Final = 50_000
"""A count of waiting messages serves the replies of so long."""
CHECK_US: Final = 100_000
"""Least time between two looks for silent sessions."""


class LaneCounts(NamedTuple):
    """The part of a partition's status that concerns delivery."""

    ready: int
    """Due and not leased (about, and in the hot window only)."""
    leased: int
    """Proposed leases included."""
    unpushed: int
    """Leases whose push has not left."""


class SessionStatus(NamedTuple):
    """A consumer as the status shows it."""

    consumer_id: str
    attached: bool
    credit: int
    leases: int
    leased_bytes: int
    heard_ms_ago: int


class Demand(Protocol):
    """What waits for credit."""

    def has_waiting(self, now: Now) -> bool:
        """Whether due messages wait and nobody has credit for them."""
        ...

    def waiting(self, now: Now) -> int:
        """About how many, up to some limit."""
        ...


class Sessions:
    """The sessions of one topic's consumers with this leader.

    Attributes:
        again: leases whose consumer lacks them, to be staged and pushed once more.
    """

    def __init__(
        self,
        topic: str,
        broker_id: str,
        incarnation: int,
        consumers: Consumers,
        lanes: dict[int, Lane],
        stager: Stager,
        send: Callable[[Route, BrokerMessage], None],
        demand: Demand,
    ) -> None:
        self.again: deque[tuple[Lane, Slots, U64]] = deque()
        self._topic = topic
        self._broker_id, self._incarnation = broker_id, incarnation
        self._consumers = consumers
        self._departed = Departed()
        self._lanes = lanes
        self._stager = stager
        self._send = send
        self._demand = demand
        self._check_us = NEVER_US
        self._tell_us = NEVER_US
        self._round = 0
        self._were_waiting = False
        self._counted = (-COUNT_US, 0)
        # Numbers of sessions whose answer waits until the leaderships are confirmed on which it rests.
        self._late: dict[int, None] = {}
        self._late_us = NEVER_US
        # (mono) instant, and what was not confirmed then: one look serves all answers of a turn.
        self._unconfirmed: tuple[int, list[Lane]] = (-1, [])

    @property
    def next_us(self) -> int:
        """(mono) when `end_silent`, `tell_waiting` or `answer_late` has something to do."""
        return min(self._check_us, self._tell_us, self._late_us)

    # -------------------------------------------------------------- frames

    def frame(self, route: Route, frame: ConsumerFrame, now: Now) -> None:
        """Take a consumer's frame and answer it; a frame of an older attach is ignored."""
        session = self._consumers.by_id.get(frame.consumer_id)
        attaching = frame.action == ConsumerAction.ATTACH
        if frame.action == ConsumerAction.GOODBYE:
            self._departed.note(frame.consumer_id, frame.attach, now.mono_us)
        held = len(frame.held_uid)
        if len(frame.consumer_id) != 16 or not (
            len(frame.held_sequence) == len(frame.held_row) == len(frame.held_token) == held
        ):
            self._refuse(
                route, frame, Code.INVALID_REQUEST, "consumer_id has 16 bytes, held columns one length"
            )
        elif len(stated := set(frame.held_uid.tolist())) > limits.PARTITIONS_MAX:
            self._refuse(
                route, frame, Code.INVALID_REQUEST, f"{len(stated)} partitions: more than a topic has"
            )
        elif attaching and self._departed.has_ended(frame.consumer_id, frame.attach, now.mono_us):
            self._refuse(route, frame, Code.UNKNOWN_SESSION, "this attach was ended by a goodbye")
        elif attaching:
            self._on_attach(session, route, frame, now)
        elif session is None or (session.route is None and frame.action == ConsumerAction.BEAT):
            self._refuse(route, frame, Code.UNKNOWN_SESSION, "attach first")
        elif frame.attach < session.attach:
            return
        elif frame.action == ConsumerAction.BEAT:
            self._on_beat(session, route, frame, now)
        else:
            self._on_goodbye(session, route, frame, now)

    def _on_attach(
        self, session: ConsumerSession | None, route: Route, frame: ConsumerFrame, now: Now
    ) -> None:
        if session is None:
            if len(self._consumers.by_id) >= limits.SESSIONS_MAX:
                text = f"this leader has {limits.SESSIONS_MAX} consumers of the topic"
                self._refuse(route, frame, Code.BUSY, text)
                return
            session = self._consumers.open(frame.consumer_id, now)
        elif session.route is not None and frame.attach < session.attach:
            return
        repeated = session.route is not None and frame.attach == session.attach
        session.route = route
        if repeated:
            self._heard(session, frame, now)
            return
        session.attach = frame.attach
        session.push_number = 0
        session.unseen.clear()
        session.reachable = True
        session.must_attach = False
        session.credit_number = -1
        session.stated = frozenset(frame.held_uid.tolist())
        self._settle_held(session, frame)
        self._heard(session, frame, now)

    def _heard(self, session: ConsumerSession, frame: ConsumerFrame, now: Now) -> None:
        """Take note of a valid frame of the present attach, and answer it."""
        session.heard_us = now.mono_us
        self._check_us = min(self._check_us, now.mono_us + SESSION_US)
        if frame.number > session.credit_number:
            session.restate(frame)
        self._consumers.offer(session, now)
        self._reply(session, now)

    def _on_beat(self, session: ConsumerSession, route: Route, frame: ConsumerFrame, now: Now) -> None:
        if frame.attach > session.attach:
            self._refuse(route, frame, Code.UNKNOWN_SESSION, "the attach of this number has not arrived")
            return
        session.route = route
        unseen = session.unseen
        while unseen and unseen[0].number <= frame.push_seen:
            unseen.popleft()
        if len(unseen) > UNSEEN_MAX:
            session.reachable = False
            session.must_attach = True
        self._heard(session, frame, now)
        if session.reachable and unseen and unseen[0].sent_us <= now.mono_us - RESEND_US:
            self._resend(session, route, now)

    def _on_goodbye(self, session: ConsumerSession, route: Route, frame: ConsumerFrame, now: Now) -> None:
        for lane in self._lanes.values():
            leases = lane.leases
            slots = leases.of_owner(session.number_here)
            slots = slots[leases.phase[slots] != Phase.ENDING]
            held = (leases.phase[slots] == Phase.PUSHED) | (leases.phase[slots] == Phase.AGAIN)
            leases.phase[slots[held]] = Phase.RETURNED
            if len(slots):
                lane.end_now(slots, now)
        session.route = route
        session.attach = frame.attach
        session.must_attach = False
        session.credit_number = frame.number
        self._answer(session, now)
        self._consumers.drop(session)

    # -------------------------------------------------------------- repairs

    def _settle_held(self, session: ConsumerSession, frame: ConsumerFrame) -> None:
        """Compare what a consumer holds with its leases here: what it lacks is to be pushed again."""
        held: dict[int, dict[int, int]] = {}
        keys = (frame.held_sequence << np.uint64(16)) | frame.held_row
        for uid, key, token in zip(
            frame.held_uid.tolist(), keys.tolist(), frame.held_token.tolist(), strict=True
        ):
            held.setdefault(uid, {})[key] = token
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
            leases.phase[pushed[~missing]] = Phase.PUSHED
            self._push_again(lane, pushed[missing])
            granted = slots[phase == Phase.GRANTED]
            self._stager.send_ahead(lane, granted, leases.entry.take(granted))

    def _push_again(self, lane: Lane, slots: Slots) -> None:
        if not len(slots):
            return
        entries = lane.leases.entry.take(slots)
        slots = slots[np.lexsort((keys_of(entries), entries["wait_at"]))]
        lane.leases.phase[slots] = Phase.AGAIN
        lane.leases.ready[slots] = 0
        self.again.append((lane, slots, lane.leases.token[slots]))
        if len(self.again) > AGAIN_MAX:
            self._gather_again()

    def _gather_again(self) -> None:
        """Once for each lane what attaches have asked for, some of it many times, while nothing could be staged."""
        self.again.clear()
        for lane in self._lanes.values():
            slots = np.flatnonzero(lane.leases.phase == Phase.AGAIN)
            if len(slots):
                self.again.append((lane, slots, lane.leases.token[slots]))

    def _resend(self, session: ConsumerSession, route: Route, now: Now) -> None:
        """Push again what should have arrived by now; each lost number is filled by an empty push."""
        late = [push for push in session.unseen if push.sent_us <= now.mono_us - RESEND_US][:FILLERS_MAX]
        for number, _, _, parts in late:
            for uid, slots, tokens in parts:
                lane = self._lanes.get(uid)
                if lane is not None:
                    still = lane.leases.same(slots, tokens) & (lane.leases.phase[slots] == Phase.PUSHED)
                    self._push_again(lane, slots[still])
            self._send(route, filler(number, session, self._topic, self._broker_id, now.wall_us))
        sent_again = {push.number for push in late}
        session.unseen = deque(
            SentPush(push.number, now.mono_us, False, []) if push.number in sent_again else push
            for push in session.unseen
        )

    def route_lost(self, route: Route, unsent: BrokerMessage, now: Now) -> None:
        """Nothing arrives there: stop pushing, and have its consumers attach again.

        What was leased to them and cannot have arrived is returned, uncounted: others need not wait for it.
        """
        for session in self._consumers.by_id.values():
            if session.route != route:
                continue
            session.reachable = False
            session.must_attach = True
            for lane in self._lanes.values():
                lane.return_granted(lane.leases.of_owner(session.number_here), now)
            if isinstance(unsent, Push) and unsent.attach == session.attach:
                self._return_unsent(session, unsent.number, now)

    def _return_unsent(self, session: ConsumerSession, number: int, now: Now) -> None:
        for push in session.unseen:
            if push.number == number and push.first:
                for uid, slots, tokens in push.parts:
                    lane = self._lanes.get(uid)
                    if lane is not None:
                        still = lane.leases.same(slots, tokens) & (lane.leases.phase[slots] == Phase.PUSHED)
                        lane.leases.phase[slots[still]] = Phase.RETURNED
                        lane.end_now(slots[still], now)

    def ran_out(self, owners: I64, now: Now) -> None:
        """Leases of these sessions ran out: who does not speak gets nothing more, and is asked to.

        A consumer at work has beaten when it lost them, by its own count. Where that was long before (an inherited
        lease counts from the take-over) or never (the push was lost), it has nothing to say until its next beat: so
        it is asked to attach again. One that has died is found out by the answer that cannot be sent.
        """
        for number in set(owners.tolist()):
            session = self._consumers.by_number.get(number)
            if session is not None and session.reachable:
                session.lapsed_us = now.mono_us
                session.must_attach |= session.is_muted
                self._reply(session, now)

    # -------------------------------------------------------------- inherited leases

    def inherit(self, leased: Entries, now: Now) -> I64:
        """Find or open the sessions of inherited leases; returns the session number per row."""
        ids = np.empty((len(leased), 2), ">u8")
        ids[:, 0] = leased["consumer_high"]
        ids[:, 1] = leased["consumer_low"]
        packed = ids.tobytes()
        owners = np.empty(len(leased), np.int64)
        touched: dict[bytes, ConsumerSession] = {}
        for row, size in enumerate(leased["size"].tolist()):
            consumer_id = packed[16 * row : 16 * row + 16]
            session = self._consumers.by_id.get(consumer_id) or self._consumers.open(consumer_id, now)
            session.rows_out += 1
            session.bytes_out += size
            owners[row] = session.number_here
            touched[consumer_id] = session
        for session in touched.values():
            # A consumer without leases here had nothing to say: its silence counts from now.
            session.heard_us = now.mono_us
            self._check_us = min(self._check_us, now.mono_us + SESSION_US)
            if session.route is not None:
                session.must_attach = True
                self._reply(session, now)
        return owners

    def unled(self, uid: int, owners: I64) -> None:
        """Another leads this partition: these, and who has stated to hold something of it, must state it there."""
        numbers = set(owners.tolist())
        for session in self._consumers.by_id.values():
            if session.route is not None and (session.number_here in numbers or uid in session.stated):
                session.must_attach = True

    def tell_moved(self) -> None:
        """Have consumers ask who leads: what they were given from here comes from another broker now."""
        for session in self._consumers.by_id.values():
            if session.reachable and session.route is not None:
                reply = ConsumerReply(
                    self._topic, session.consumer_id, session.attach, session.credit_number, Code.NOT_LEADER,
                    "a partition has another leader", leader=self._broker_id,
                )  # fmt: skip
                self._send(session.route, reply)

    def drop_idle(self) -> None:
        """Forget consumers that were only known from leases that are gone."""
        for session in list(self._consumers.by_id.values()):
            if session.route is None and not session.rows_out:
                self._consumers.drop(session)

    # -------------------------------------------------------------- time

    def shift(self, gap_us: int) -> None:
        """The process was paused."""
        for session in self._consumers.by_id.values():
            session.heard_us += gap_us
            session.unseen = deque(push._replace(sent_us=push.sent_us + gap_us) for push in session.unseen)
        if self._check_us < NEVER_US:
            self._check_us += gap_us

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
            if len(slots):
                lane.end_now(slots, now)
        self._consumers.drop(session)

    def tell_waiting(self, now: Now) -> None:
        """Tell consumers without credit that messages have begun to wait for it."""
        if not self._demand.has_waiting(now):
            self._were_waiting = False
            self._tell_us = NEVER_US
            return
        if not self._were_waiting:
            self._were_waiting = True
            self._round += 1
        elif now.mono_us < self._tell_us:
            return
        self._tell_us = NEVER_US
        coming: Counter[int] = Counter()
        for lane in self._lanes.values():
            coming.update(lane.leases.unpushed().tolist())
        for session in self._consumers.by_id.values():
            if not session.reachable or session.told_round == self._round:
                continue
            if now.mono_us - session.told_us < TELL_US:
                self._tell_us = min(self._tell_us, session.told_us + TELL_US)
            else:
                self._reply(session, now, coming[session.number_here])

    # -------------------------------------------------------------- answers

    def _reply(self, session: ConsumerSession, now: Now, coming: int | None = None) -> None:
        """Answer, or once it is certain that nobody else leads what the session's leases rest on.

        An answer keeps leases alive at their holder, however long they are. A leader that was replaced must not do
        that: its successor ends the session that it does not hear of.
        """
        if session.must_attach:
            self._answer(session, now, coming)
        elif not session.stated <= self._lanes.keys():
            # It holds what another leads by now, and takes this broker for its leader. It asks around, and comes again.
            return
        elif session.rows_out and not self._is_confirmed(session, now):
            self._late[session.number_here] = None
            self._late_us = now.mono_us + CONFIRM_RETRY_US
        else:
            self._answer(session, now, coming)

    def _is_confirmed(self, session: ConsumerSession, now: Now) -> bool:
        if self._unconfirmed[0] != now.mono_us:
            lanes = [lane for lane in self._lanes.values() if len(lane.leases)]
            self._unconfirmed = now.mono_us, [lane for lane in lanes if not lane.partition.confirmed(now)]
        confirmed = True
        for lane in self._unconfirmed[1]:
            if len(lane.leases.of_owner(session.number_here)):
                lane.partition.ask(now)
                confirmed = False
        return confirmed

    def answer_late(self, now: Now) -> None:
        """Answer those who wait for it."""
        if not self._late:
            return
        late, self._late, self._late_us = self._late, {}, NEVER_US
        for number in late:
            session = self._consumers.by_number.get(number)
            if session is not None:
                self._reply(session, now)

    def _answer(self, session: ConsumerSession, now: Now, coming: int | None = None) -> None:
        """Answer; `coming`: how many leases of the session have not been pushed, if the caller knows."""
        if session.route is None:
            return
        if coming is None:
            coming = sum(
                int(np.count_nonzero(lane.leases.unpushed() == session.number_here))
                for lane in self._lanes.values()
            )
        waiting = self._count_waiting(now)
        if waiting:
            session.told_round = self._round
            session.told_us = now.mono_us
        code = Code.UNKNOWN_SESSION if session.must_attach else Code.OK
        text = "attach again and state what is held" if session.must_attach else ""
        self._send(
            session.route,
            ConsumerReply(
                self._topic, session.consumer_id, session.attach, session.credit_number, code, text, waiting,
                session.push_number, self._broker_id, coming, self._incarnation, now.mono_us,
            ),
        )  # fmt: skip

    def _count_waiting(self, now: Now) -> int:
        if not self._demand.has_waiting(now):
            return 0
        at_us, count = self._counted
        if not 0 <= now.mono_us - at_us < COUNT_US or not count:
            count = self._demand.waiting(now)
            self._counted = (now.mono_us, count)
        return count

    def _refuse(self, route: Route, frame: ConsumerFrame, code: Code, text: str) -> None:
        reply = ConsumerReply(self._topic, frame.consumer_id, frame.attach, frame.number, code, text)
        reply.leader = self._broker_id
        self._send(route, reply)

    def status(self, now: Now) -> list[SessionStatus]:
        """Return what the status shows of each consumer."""
        return [
            SessionStatus(
                session.consumer_id.hex(), session.reachable, session.credit, session.rows_out,
                session.bytes_out, (now.mono_us - session.heard_us) // 1000,
            )
            for session in self._consumers.by_id.values()
        ]  # fmt: skip
