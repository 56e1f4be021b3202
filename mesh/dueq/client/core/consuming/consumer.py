"""One consumer: a session with every leader of its topic, the leases that it holds, its credit.

Three clocks of patience run here, each shorter than the leader's: a session without an answer for two thirds
of CONSUMER_SESSION_MS gives up its leases before the leader does, and gives back what was never handed out; a
lease is counted from the earliest that its push can have left, and never handed out when it is over; and what
the user will not reach in time is given back before that, uncounted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from dueq import limits
from dueq.client.core.asking.directory import Directory, Topic
from dueq.client.core.changing.lanes import Lanes
from dueq.client.core.consuming.arrivals import Arrivals
from dueq.client.core.consuming.credit import affordable, wanted
from dueq.client.core.consuming.session import Attaches, Session
from dueq.client.core.consuming.settling import Batch, Settling
from dueq.client.core.links.calls import Calls
from dueq.client.core.links.context import Context
from dueq.client.core.links.links import Link, Links
from dueq.client.core.links.refusals import error_of
from dueq.client.core.ports.delivery import Delivery
from dueq.client.core.ports.effects import ConsumerFailed, Deliver, LeaseLost, Reclaim
from dueq.client.core.ports.events import CloseConsumer, OpenConsumer, Settle
from dueq.client.core.ports.timers import Timer
from dueq.errors import DueqError
from dueq_codecs.messages import Code, ConsumerAction, ConsumerFrame, ConsumerReply, Push, PushChunk
from dueq_codecs.records import NO_U16, NO_U32, NO_U64, Outcome, RecordKind

BEAT_US: Final = limits.CONSUMER_BEAT_MS * 1000
LOST_US: Final = limits.CONSUMER_SESSION_MS * 1000 * 2 // 3
REPEAT_US: Final = 1_000_000
"""A frame without an answer for this long is sent again."""
HURRY_US: Final = 100_000
"""A session that nobody knows is not opened anew more often than this."""
REFRESH_US: Final = 2_000_000
"""How often a consumer asks who leads."""
LOOK_AGAIN_US: Final = 200_000
"""Who hears of another leader asks once more after this time: the broker that answered may hear of it later."""
RECLAIM_US_MAX: Final = 2_000_000
LEASE_LOOK_US_MIN: Final = 20_000
GOODBYE_US: Final = 300_000
GOODBYES: Final = 3
DAMAGED_DELAY_MS: Final = 1_000


class Consumer:
    """The machine of one consumer."""

    def __init__(
        self,
        context: Context,
        calls: Calls,
        links: Links,
        directory: Directory,
        lanes: Lanes,
        event: OpenConsumer,
    ) -> None:
        self._context, self._calls, self._links = context, calls, links
        self._directory = directory
        self.consumer_id, self.topic = event.consumer_id, event.topic
        self._credit, self._credit_bytes, self._lease_ms = event.credit, event.credit_bytes, event.lease_ms
        self._arrivals = Arrivals(event.credit_bytes)
        self._settling = Settling(
            context, calls, lanes, event.topic, event.linger_us, max(event.credit // 4, 1), self._settled
        )
        self._sessions: dict[str, Session] = {}
        self._routes: dict[str, int] = {}
        self._leaders: dict[int, str] = {}
        self._counts: Counter[int] = Counter()
        self._alive_us: dict[int, int] = {}
        self._newest: dict[int, int] = {}
        """Highest token pushed, by partition."""
        self._attaches = Attaches(context.mono_us)
        self._served = 0
        self._lease_look_us: int | None = None
        self._refresh_us = 0
        self._timer: Timer | None = None
        self._closing: CloseConsumer | None = None
        self._goodbyes = 0
        self.closed = False

    @property
    def held(self) -> dict[int, Delivery]:
        """Deliveries whose lease is not finished, by message name."""
        return self._arrivals.held

    # -------------------------------------------------------------- what happens

    def topic_changed(self, topic: Topic) -> None:
        """Leaders are known anew: attach to new ones, leave those that lead nothing any more."""
        if self._closing is not None:
            return
        self._leaders = {uid: partition.leader for uid, partition in topic.partitions.items()}
        led: dict[str, set[tuple[int, int]]] = {}
        for uid, partition in topic.partitions.items():
            if partition.leader:
                led.setdefault(partition.leader, set()).add((uid, partition.epoch))
        for leader in [leader for leader in self._sessions if leader not in led]:
            del self._sessions[leader]
            self._routes.pop(leader, None)
        gained = []
        for leader, uids in led.items():
            session = self._sessions.get(leader)
            if session is None:
                session = self._sessions[leader] = Session(leader, self._attaches, self._context.mono_us)
            if not frozenset(uids) <= session.uids:
                gained.append(session)
            session.uids = frozenset(uids)
        if gained:
            # It must hear what we hold of the partitions that it has taken over, and push the rest.
            self._balance(quietly=True)
            for session in gained:
                self._attach(session)
        self._arm()

    def link_up(self) -> None:
        """Attach by better or first routes."""
        if not self.closed:
            for session in list(self._sessions.values()):
                link = self._route(session.leader)
                if link is not None and link.number != self._routes.get(session.leader):
                    self._attach(session)
            self._arm()

    def link_down(self, number: int) -> None:
        """Attach by another link to those that were reached by this one."""
        lost = [leader for leader, route in self._routes.items() if route == number]
        if lost and not self.closed:
            self._directory.refresh(self.topic)
            for session in [self._sessions[leader] for leader in lost if leader in self._sessions]:
                self._attach(session)
            self._arm()

    def gone(self, error: DueqError) -> None:
        """The topic is no more."""
        if self._closing is None and not self.closed:
            self._lose(list(self.held.values()))
            self._context.emit(ConsumerFailed(self.consumer_id, error))
            self._end()

    def replied(self, reply: ConsumerReply, link: Link) -> None:
        """A leader has answered a frame, or reports that messages wait."""
        leader = reply.leader or link.broker_id
        session = self._sessions.get(leader)
        if session is None or reply.attach != session.attach:
            return
        if reply.code is not Code.OK:
            self._refused(session, reply)
            return
        session.attached = True
        session.confirm(reply.number, reply.incarnation, reply.mono_us)
        session.waiting, session.coming = reply.waiting, reply.coming
        for uid, _ in session.uids:
            self._alive_us[uid] = max(self._alive_us.get(uid, 0), session.answered_us)
        if session.goodbye and reply.number >= session.goodbye:
            del self._sessions[leader]
            self._finish_goodbye()
            return
        session.push_sent = max(session.push_sent, reply.push_sent)
        self._balance()
        self._arm()

    def pushed(self, push: Push, body: bytes | memoryview, link: Link) -> None:
        """Messages have come."""
        session = self._sessions.get(push.leader or link.broker_id)
        if session is None or self._closing is not None:
            return
        fresh, damaged, complete = self._arrivals.push(push, body, session.released_us(push))
        if push.attach == session.attach and complete:
            session.saw_push(push.number)
        self._note_leader(push, session.leader)
        session.used(len(fresh))
        self._hold(fresh)
        self._hold(damaged)
        if session.waiting:
            self._balance()
        if damaged:
            self._give_back_damaged(damaged)
        if fresh:
            self._context.emit(Deliver(self.consumer_id, fresh))
        self._arm()

    def chunk_pushed(self, chunk: PushChunk, body: bytes | memoryview) -> None:
        """A part of a long payload has come."""
        self._arrivals.chunk(chunk, body)

    def settle(self, event: Settle) -> None:
        """The user has decided about messages."""
        self._settling.settle(event)
        if event.kind is RecordKind.EXTEND and event.deliveries:
            self._look_at_leases(min(delivery.deadline_us for delivery in event.deliveries))
            self._arm()

    # -------------------------------------------------------------- closing

    def close(self, event: CloseConsumer) -> None:
        """Give back what nobody handled, confirm the rest, say goodbye; never longer than the deadline."""
        self._closing = event
        self._calls.begin(event.call, event.deadline_us, self._close_now)
        if event.unhandled:
            self._settling.settle(Settle(self.consumer_id, RecordKind.RELEASE, event.unhandled))
        self._settling.flush()
        if not self._settling.idle:
            for session in self._sessions.values():
                self._speak(session, ConsumerAction.BEAT, 0)
        self._maybe_goodbye()

    def _maybe_goodbye(self) -> None:
        if self._closing is not None and not self._goodbyes and self._settling.idle:
            self._goodbye()

    def _goodbye(self) -> None:
        """Say goodbye to every leader; a few times, since it may get lost."""
        if self.closed:
            return
        self._goodbyes += 1
        for session in list(self._sessions.values()):
            if self._goodbyes > GOODBYES or not session.attach or self._route(session.leader) is None:
                del self._sessions[session.leader]
            else:
                self._speak(session, ConsumerAction.GOODBYE, 0)
                session.goodbye = session.goodbye or session.number
        self._context.after(GOODBYE_US, self._goodbye)
        self._finish_goodbye()

    def _finish_goodbye(self) -> None:
        if not self._sessions:
            self._end()

    def _close_now(self) -> None:
        """The user's time is over."""
        if not self._goodbyes:
            self._goodbye()
        self._end()

    def _end(self) -> None:
        if self.closed:
            return
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._settling.close()
        if self._closing is not None:
            self._calls.complete(self._closing.call)

    # -------------------------------------------------------------- frames

    def _route(self, leader: str) -> Link | None:
        """The link to a leader; else the one used before, so that a relayed session does not wander."""
        direct = self._links.to_broker(leader)
        return direct or self._links.get(self._routes.get(leader, 0)) or self._links.any_up()

    def _attach(self, session: Session) -> None:
        """Say what we hold; what is missing there will be pushed again."""
        if self._closing is not None:
            return
        session.begin(self._context.mono_us)
        session.hurried = False
        self._speak(session, ConsumerAction.ATTACH, session.asked)

    def _speak(self, session: Session, action: ConsumerAction, credit: int) -> None:
        link = self._route(session.leader)
        now_us = self._context.mono_us
        if link is None:
            session.sent_us = max(session.sent_us, now_us)
            self._routes.pop(session.leader, None)
            return
        if link.number != self._routes.get(session.leader) and action is ConsumerAction.BEAT:
            session.asked = credit
            self._routes[session.leader] = link.number
            self._attach(session)
            return
        self._routes[session.leader] = link.number
        session.state(credit, now_us)
        frame = ConsumerFrame(
            action, self.topic, self.consumer_id, session.attach, session.number, credit,
            self._credit_bytes, self._lease_ms, session.push_seen, session.leader,
        )  # fmt: skip
        if action is ConsumerAction.ATTACH:
            self._state_held(frame, session)
        self._links.send(link, frame)

    def _state_held(self, frame: ConsumerFrame, session: Session) -> None:
        """List what we hold or are settling of the partitions that this leader may lead.

        A leader does not answer who states what another one may lead, and where nobody leads what is being settled
        stays so. It needs no answer, and who has been silent so long has nothing to keep alive by one: so it is left
        out, and at worst is pushed again, under a token that was seen.
        """
        others = {uid for uid, name in self._leaders.items() if name and name != session.leader}
        stated = self.held | {delivery.name: delivery for delivery in self._settling.finishing}
        only_open = self._is_silent(session)
        held = [
            delivery
            for delivery in stated.values()
            if delivery.uid not in others and not (only_open and delivery.settling)
        ]
        frame.held_uid = np.array([delivery.uid for delivery in held], np.uint32) if held else NO_U32
        frame.held_sequence = (
            np.array([delivery.sequence for delivery in held], np.uint64) if held else NO_U64
        )
        frame.held_row = np.array([delivery.row for delivery in held], np.uint16) if held else NO_U16
        frame.held_token = np.array([delivery.token for delivery in held], np.uint64) if held else NO_U64

    def _refused(self, session: Session, reply: ConsumerReply) -> None:
        code, hurried = reply.code, self._context.mono_us - session.sent_us < HURRY_US
        if session.goodbye:
            if reply.number >= session.goodbye:  # a refusal of the goodbye, not word of another leader
                del self._sessions[session.leader]
                self._finish_goodbye()
        elif code is Code.UNKNOWN_SESSION:
            again = session.attached or not hurried
            session.attached = False
            if again:
                self._attach(session)
            else:
                session.hurried = True
                self._arm()
        elif code in (Code.NOT_LEADER, Code.TOPIC_NOT_FOUND):
            self._directory.refresh(self.topic)
            self._refresh_us = min(self._refresh_us, self._context.mono_us + LOOK_AGAIN_US)
            self._arm()
        elif code in (Code.BUSY, Code.OUTCOME_UNKNOWN, Code.COORDINATOR_UNAVAILABLE):
            self._context.log("warning", "consumer.put_off", leader=session.leader, text=reply.text)
        else:
            self.gone(error_of(code, reply.text))

    # -------------------------------------------------------------- credit

    def _balance(self, quietly: bool = False) -> None:
        """Divide the credit anew where that helps; `quietly`: the frames follow anyway."""
        sessions = [session for session in self._sessions.values() if not self._is_silent(session)]
        if not sessions or self._closing is not None:
            return
        held: Counter[str] = Counter()
        for uid, count in self._counts.items():
            held[self._leaders.get(uid, "")] += count
        now_us = self._context.mono_us
        shares = [session.share(held[session.leader], now_us) for session in sessions]
        starving = any(share.waiting and share.held >= share.most for share in shares)
        idle = self._credit - sum(share.most for share in shares)
        if not (starving or quietly or idle > 0):
            return
        targets = wanted(self._credit, shares)
        told = affordable(self._credit, shares, targets)
        step = max(self._credit // 16, 1)
        for session, credit, share in zip(sessions, told, shares, strict=True):
            fresh = quietly and not session.attach
            hungry = credit > session.asked and share.waiting and share.held >= session.asked
            if not (fresh or hungry or abs(credit - session.asked) >= step or (credit and not session.asked)):
                continue
            if credit > session.asked:
                self._served += 1
                session.promise(credit - session.asked, self._served, now_us)
            if fresh:
                session.asked = session.limit = credit
            else:
                self._speak(session, ConsumerAction.BEAT if session.attach else ConsumerAction.ATTACH, credit)

    def _is_silent(self, session: Session) -> bool:
        return self._context.mono_us - session.answered_us >= LOST_US and session.unanswered

    def _note_leader(self, push: Push, leader: str) -> None:
        """The sender of a lease newer than any before leads: decisions on short leases cannot wait for an answer."""
        for uid in set(push.uid.tolist()):
            token = int(push.token[push.uid == uid].max())
            if token > self._newest.get(uid, 0):
                self._newest[uid] = token
                if self._directory.leader(self.topic, uid) != leader:
                    self._directory.hint(uid, leader)

    # -------------------------------------------------------------- leases

    def _hold(self, deliveries: Sequence[Delivery]) -> None:
        held = self._arrivals.held
        earliest: int | None = None
        for delivery in deliveries:
            old = held.get(delivery.name)
            if old is not None:
                self._lose([old])
            held[delivery.name] = delivery
            if earliest is None or delivery.deadline_us < earliest:
                earliest = delivery.deadline_us
        for uid, count in Counter([delivery.uid for delivery in deliveries]).items():
            self._counts[uid] += count
            self._alive_us.setdefault(uid, self._context.mono_us)
        if earliest is not None:
            self._look_at_leases(earliest - self._margin_us)

    @property
    def _margin_us(self) -> int:
        """How long before its end an unhandled lease is given back, µs."""
        return min(self._lease_ms * 250, RECLAIM_US_MAX)

    def _look_at_leases(self, at_us: int) -> None:
        if self._lease_look_us is None or at_us < self._lease_look_us:
            self._lease_look_us = at_us

    def _check_leases(self) -> None:
        """Give back what will not be reached in time; lose what is over."""
        now_us, margin_us = self._context.mono_us, self._margin_us
        late: list[Delivery] = []
        over: list[Delivery] = []
        following: int | None = None
        for delivery in self.held.values():
            if delivery.settling:
                continue
            at_us = delivery.deadline_us
            if at_us <= now_us:
                over.append(delivery)
                continue
            if not delivery.handed:
                if at_us - margin_us <= now_us:
                    late.append(delivery)
                else:
                    at_us -= margin_us
            following = at_us if following is None else min(following, at_us)
        self._lease_look_us = None if following is None else max(following, now_us + LEASE_LOOK_US_MIN)
        if late:
            self._context.emit(Reclaim(self.consumer_id, late))
        if over:
            self._lose(over)
            self._balance()  # before the leader takes what is free for the next of its own
            self._show_life(dict.fromkeys(self._leaders.get(delivery.uid, "") for delivery in over))

    def _show_life(self, leaders: Iterable[str]) -> None:
        """Leases ran out here: those leaders give nothing more to us until they hear that we live."""
        for leader in leaders:
            session = self._sessions.get(leader)
            if session is not None and session.attached and self._closing is None:
                self._speak(session, ConsumerAction.BEAT, session.asked)

    def _lose(self, deliveries: Sequence[Delivery], *, returning: bool = False) -> None:
        if not deliveries:
            return
        for delivery in deliveries:
            delivery.lost = True
            self._drop(delivery)
        self._context.log(
            "warning", "leases.lost", topic=self.topic, count=len(deliveries), first=deliveries[0].id
        )
        self._context.emit(LeaseLost(self.consumer_id, list(deliveries), returning))

    def _drop(self, delivery: Delivery) -> None:
        if self.held.get(delivery.name) is delivery:
            del self.held[delivery.name]
            self._counts[delivery.uid] -= 1
            if not self._counts[delivery.uid]:
                del self._counts[delivery.uid]

    def _settled(self, batch: Batch, outcomes: list[Outcome]) -> None:
        """Decisions are confirmed, or refused."""
        refused: list[Delivery] = []
        for delivery, outcome in zip(batch.deliveries, outcomes, strict=True):
            if batch.kind is RecordKind.EXTEND and outcome in (Outcome.DONE, Outcome.UNKNOWN):
                continue  # the lease has the end that may be believed, and is looked at before it
            if outcome is Outcome.DONE or batch.kind is RecordKind.RELEASE:
                self._drop(delivery)
            elif not delivery.lost:
                refused.append(delivery)
        self._lose(refused)
        if self._closing is not None:
            self._maybe_goodbye()
        elif any(session.waiting for session in self._sessions.values()):
            self._balance()
            self._arm()

    def _give_back_damaged(self, damaged: list[Delivery]) -> None:
        for delivery in damaged:
            self._context.log(
                "error", "payload.damaged", topic=self.topic, id=delivery.id, token=delivery.token
            )
            delivery.handed = True
        self.settle(Settle(self.consumer_id, RecordKind.NACK, damaged, DAMAGED_DELAY_MS))

    # -------------------------------------------------------------- time

    def _tick(self) -> None:
        self._timer = None
        now_us = self._context.mono_us
        for session in list(self._sessions.values()):
            if now_us >= self._speak_at(session):
                self._remind(session)
        self._lose_silent(now_us)
        if self._lease_look_us is not None and now_us >= self._lease_look_us:
            self._check_leases()
        if now_us >= self._refresh_us and self._closing is None:
            self._refresh_us = now_us + REFRESH_US
            self._directory.refresh(self.topic)
        self._balance()
        self._arm()

    def _remind(self, session: Session) -> None:
        """Its next beat is due, or its last frame has not been answered."""
        if self._closing is not None:
            session.sent_us = self._context.mono_us
            if session.attached and not self._goodbyes:
                self._speak(session, ConsumerAction.BEAT, 0)
            return
        if session.unanswered or not session.attached:
            self._directory.refresh(self.topic)
        if self._is_silent(session):
            session.asked, session.attached = 0, False
        if session.attached:
            self._speak(session, ConsumerAction.BEAT, session.asked)
        else:
            self._attach(session)

    def _lose_silent(self, now_us: int) -> None:
        silent = {uid for uid in self._counts if now_us - self._alive_us.get(uid, now_us) >= LOST_US}
        if silent:
            self._alive_us |= dict.fromkeys(silent, now_us)
            # Heard again before its patience is over, a leader would keep them to the end of their leases.
            self._lose([d for d in self.held.values() if d.uid in silent and not d.settling], returning=True)

    def _speak_at(self, session: Session) -> int:
        waits = session.unanswered or not session.attached or session.behind
        return session.sent_us + (HURRY_US if session.hurried else REPEAT_US if waits else BEAT_US)

    def _arm(self) -> None:
        """Have the timer at the next thing to do."""
        if self.closed:
            return
        now_us = self._context.mono_us
        at_us = self._refresh_us if self._closing is None else now_us + BEAT_US
        for session in self._sessions.values():
            at_us = min(at_us, self._speak_at(session))
            if session.promised and session.promised_until_us > now_us:
                at_us = min(at_us, session.promised_until_us)
        if self._lease_look_us is not None:
            at_us = min(at_us, self._lease_look_us)
        if self._counts:
            at_us = min(at_us, min(self._alive_us.get(uid, now_us) for uid in self._counts) + LOST_US)
        at_us = max(at_us, now_us + 1000)
        if self._timer is not None:
            if self._timer.at_us <= at_us:
                return
            self._timer.cancel()
        self._timer = self._context.timers.at(at_us, self._tick)
