"""One consumer: what its leaders say, what its user decides, and when to look again.

Its sessions with every leader of its topic are `Leaders`, the leases that it holds `Holding`.

Three clocks of patience run here, each shorter than the leader's: a session without an answer for two thirds
of CONSUMER_SESSION_MS gives up its leases before the leader does, and gives back what was never handed out; a
lease is counted from the earliest that its push can have left, and never handed out when it is over; and what
the user will not reach in time is given back before that, uncounted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dueq.client.core.asking.directory import Directory, Topic
from dueq.client.core.changing.request_windows import RequestWindows
from dueq.client.core.consuming.arrivals import Arrivals
from dueq.client.core.consuming.holding import Holding
from dueq.client.core.consuming.leaders import BEAT_US, HURRY_US, Leaders
from dueq.client.core.consuming.session import Session
from dueq.client.core.consuming.settling import Batch, Settling
from dueq.client.core.links.calls import Calls
from dueq.client.core.links.context import Context
from dueq.client.core.links.links import Link, Links
from dueq.client.core.links.refusals import error_of
from dueq.client.core.ports.delivery import Delivery
from dueq.client.core.ports.effects import ConsumerFailed, Deliver
from dueq.client.core.ports.events import CloseConsumer, OpenConsumer, Settle
from dueq.client.core.ports.timers import Timer
from dueq.errors import DueqError
from dueq_codecs.messages import Code, ConsumerAction, ConsumerReply, Push, PushChunk
from dueq_codecs.records import Outcome, RecordKind

REFRESH_US: Final = 2_000_000
"""How often a consumer asks who leads."""
STEADY_REFRESH_US: Final = 60_000_000
"""The same where leaders stay."""
LOOK_AGAIN_US: Final = 200_000
"""After news of another leader, a consumer asks once more after this time: the broker that answered may be behind."""
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
        windows: RequestWindows,
        event: OpenConsumer,
    ) -> None:
        self._context, self._calls = context, calls
        self._directory = directory
        self.consumer_id, self.topic = event.consumer_id, event.topic
        self._arrivals = Arrivals(event.credit_bytes)
        self._is_named = event.life != 0
        self._settling = Settling(
            context, calls, windows, event.topic, event.linger_us, max(event.credit // 4, 1), self._settled
        )
        self._holding = Holding(context, event, self._arrivals.held)
        self._leaders = Leaders(context, links, event, self._stated)
        self._newest: dict[int, int] = {}
        """Highest token pushed, by partition."""
        self._refresh_us = 0
        self._timer: Timer | None = None
        self._closing: list[int] = []
        self._goodbyes = 0
        self.closed = False

    @property
    def held(self) -> dict[int, Delivery]:
        """Deliveries whose lease is not finished, by message name."""
        return self._arrivals.held

    def _stated(self) -> dict[int, Delivery]:
        """What a leader is told that we hold: what we are settling, too, unless we hold a newer lease of the message.

        In a goodbye of a consumer with detached leases it is what stays leased: what was not given back.
        """
        return {delivery.name: delivery for delivery in self._settling.finishing} | self.held

    # -------------------------------------------------------------- what happens

    def topic_changed(self, topic: Topic) -> None:
        """Leaders are known anew: attach to new ones, leave those that lead nothing any more."""
        if self._closing:
            return
        gained = self._leaders.topic_changed(topic)
        if gained:
            # It must hear what we hold of the partitions that it has taken over, and push the rest.
            self._leaders.balance(self._holding.counts, quietly=True)
            for session in gained:
                self._leaders.attach(session)
        self._arm()

    def link_up(self) -> None:
        """Attach by better or first routes."""
        if not self.closed:
            self._leaders.attach_by_new_routes()
            self._arm()

    def link_down(self, number: int) -> None:
        """Attach by another link to those that were reached by this one."""
        lost = self._leaders.reached_by(number)
        if lost and not self.closed:
            self._directory.refresh(self.topic)
            sessions = self._leaders.sessions
            for session in [sessions[leader] for leader in lost if leader in sessions]:
                self._leaders.attach(session)
            self._arm()

    def gone(self, error: DueqError) -> None:
        """The topic is no more."""
        if not self._closing and not self.closed:
            self._holding.lose(list(self.held.values()))
            self._context.emit(ConsumerFailed(self.consumer_id, error))
            self._end()

    def replied(self, reply: ConsumerReply, link: Link) -> None:
        """A leader has answered a frame, or reports that messages wait."""
        leader = reply.leader or link.broker_id
        session = self._leaders.sessions.get(leader)
        if session is None or reply.attach != session.attach:
            return
        if reply.number > session.number:
            self._context.refuse(reply, f"frame {reply.number} was not sent, only {session.number} were")
            return
        if reply.code is not Code.OK:
            self._refused(session, reply)
            return
        session.attached = True
        session.confirm(reply.number, reply.incarnation, reply.mono_us)
        session.report(reply)
        self._holding.heard((uid for uid, _ in session.uids), session.answered_us)
        if session.goodbye and reply.number >= session.goodbye:
            del self._leaders.sessions[leader]
            self._finish_goodbye()
            return
        session.push_sent = max(session.push_sent, reply.push_sent)
        self._leaders.balance(self._holding.counts)
        self._arm()

    def pushed(self, push: Push, body: bytes | memoryview, link: Link) -> None:
        """Messages have come."""
        session = self._leaders.sessions.get(push.leader or link.broker_id)
        if session is None or self._closing:
            return
        if self._is_named and push.attach != session.attach:
            # The present attach has left it out, so it may have been renewed: it comes again, under its token of now.
            self._note_leader(push, session.leader)
            return
        fresh, damaged, complete = self._arrivals.push(push, body, session.released_us(push))
        if push.attach == session.attach:
            session.saw_push(push.number, complete=complete)
        self._note_leader(push, session.leader)
        session.used(len(fresh), push.attach, push.number)
        partitions, balances = len(self._holding.counts), session.waiting > 0
        self._holding.take([*fresh, *damaged])
        if balances:
            self._leaders.balance(self._holding.counts)
        if damaged:
            self._give_back_damaged(damaged)
        if fresh:
            self._context.emit(Deliver(self.consumer_id, fresh))
        if balances or damaged or partitions != len(self._holding.counts) or self._is_sooner(session):
            self._arm()

    def chunk_pushed(self, chunk: PushChunk, body: bytes | memoryview) -> None:
        """A part of a long payload has come."""
        self._arrivals.chunk(chunk, body)

    def settle(self, event: Settle) -> None:
        """The user has decided about messages."""
        self._settling.settle(event)
        if event.kind is RecordKind.EXTEND and event.deliveries:
            self._holding.look_at(min(delivery.deadline_us for delivery in event.deliveries))
            self._arm()

    # -------------------------------------------------------------- closing

    def close(self, event: CloseConsumer) -> None:
        """Give back what nobody handled, confirm the rest, say goodbye; never longer than the deadline.

        A later one joins the earlier: both are over when the consumer is closed, or when the time of one is over.
        """
        self._closing.append(event.call)
        self._leaders.closing = True
        self._calls.begin(event.call, event.deadline_us, self._close_now)
        # Of what has come since the user has closed he knows nothing.
        unhandled = [delivery for delivery in self.held.values() if not delivery.handed]
        unhandled += event.unhandled
        if unhandled:
            self._settling.settle(Settle(self.consumer_id, RecordKind.RELEASE, unhandled))
        self._settling.flush()
        if not self._settling.idle:
            for session in self._leaders.sessions.values():
                self._leaders.speak(session, ConsumerAction.BEAT, 0)
        self._maybe_goodbye()

    def _maybe_goodbye(self) -> None:
        if self._closing and not self._goodbyes and self._settling.idle:
            self._goodbye()

    def _goodbye(self) -> None:
        """Say goodbye to every leader; a few times, since it may get lost."""
        if self.closed:
            return
        if not self._goodbyes:
            self._leaders.leave_for_good()
        self._goodbyes += 1
        for session in list(self._leaders.sessions.values()):
            if self._goodbyes > GOODBYES or not session.attach or self._leaders.route(session.leader) is None:
                del self._leaders.sessions[session.leader]
            else:
                self._leaders.speak(session, ConsumerAction.GOODBYE, 0)
                session.goodbye = session.goodbye or session.number
        self._context.after(GOODBYE_US, self._goodbye)
        self._finish_goodbye()

    def _finish_goodbye(self) -> None:
        if not self._leaders.sessions:
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
        for call in self._closing:
            self._calls.complete(call)

    # -------------------------------------------------------------- frames

    def _refused(self, session: Session, reply: ConsumerReply) -> None:
        code, hurried = reply.code, self._context.mono_us - session.sent_us < HURRY_US
        if session.goodbye:
            if reply.number >= session.goodbye:  # a refusal of the goodbye, not word of another leader
                del self._leaders.sessions[session.leader]
                self._finish_goodbye()
        elif code is Code.UNKNOWN_SESSION:
            again = session.attached or not hurried
            session.attached = False
            if again:
                self._leaders.attach(session)
            else:
                session.hurried = True
                self._arm()
        elif code in (Code.NOT_LEADER, Code.TOPIC_NOT_FOUND):
            self._directory.refresh(self.topic)
            self._refresh_us = min(self._refresh_us, self._context.mono_us + LOOK_AGAIN_US)
            self._arm()
        elif code is Code.SUPERSEDED:
            self._superseded(error_of(code, reply.text))
        elif code in (Code.BUSY, Code.OUTCOME_UNKNOWN, Code.COORDINATOR_UNAVAILABLE):
            self._context.log("warning", "consumer.put_off", leader=session.leader, text=reply.text)
        else:
            self.gone(error_of(code, reply.text))

    def _superseded(self, error: DueqError) -> None:
        """Another process of this name has followed: what we have is its."""
        self._settling.flush()
        if self._closing:
            self._close_now()
            return
        for session in self._leaders.sessions.values():
            if session.attach:
                self._leaders.speak(session, ConsumerAction.GOODBYE, 0)
        self._leaders.leave_for_good()
        self.gone(error)

    # -------------------------------------------------------------- credit

    def _note_leader(self, push: Push, leader: str) -> None:
        """The sender of a lease newer than any before leads: decisions on short leases cannot wait for an answer."""
        for uid, token in push.newest_tokens().items():
            if token > self._newest.get(uid, 0):
                self._newest[uid] = token
                if self._directory.leader(self.topic, uid) != leader:
                    self._directory.hint(self.topic, uid, leader)

    # -------------------------------------------------------------- leases

    def _check_leases(self) -> None:
        """Give back what will not be reached in time; lose what is over."""
        over = self._holding.check()
        if over:
            self._holding.lose(over)
            self._leaders.balance(
                self._holding.counts
            )  # before the leader takes what is free for the next of its own
            self._show_life(dict.fromkeys(self._leaders.of(delivery.uid) for delivery in over))

    def _show_life(self, leaders: Iterable[str]) -> None:
        """Leases ran out here: those leaders give nothing more to us until they hear that we live."""
        for leader in leaders:
            session = self._leaders.sessions.get(leader)
            if session is not None and session.attached and not self._closing:
                self._leaders.speak(session, ConsumerAction.BEAT, session.asked)

    def _settled(self, batch: Batch, outcomes: list[Outcome]) -> None:
        """Decisions are confirmed, or refused."""
        final = batch.kind is not RecordKind.EXTEND
        if final and (batch.kind is RecordKind.RELEASE or outcomes.count(Outcome.DONE) == len(outcomes)):
            self._holding.drop(batch.deliveries)
        else:
            finished: list[Delivery] = []
            refused: list[Delivery] = []
            for delivery, outcome in zip(batch.deliveries, outcomes, strict=True):
                if not final and outcome in (Outcome.DONE, Outcome.UNKNOWN):
                    continue  # the lease has the end that may be believed, and is looked at before it
                if outcome is Outcome.DONE:
                    finished.append(delivery)
                elif not delivery.lost:
                    refused.append(delivery)
            self._holding.drop(finished)
            self._holding.lose(refused)
        if self._closing:
            self._maybe_goodbye()
        elif any(session.waiting for session in self._leaders.sessions.values()):
            self._leaders.balance(self._holding.counts)
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
        for session in list(self._leaders.sessions.values()):
            if now_us >= self._leaders.speak_at(session):
                self._remind(session)
        self._holding.lose_silent()
        if self._holding.look_us is not None and now_us >= self._holding.look_us:
            self._check_leases()
        if now_us >= self._refresh_us and not self._closing:
            self._refresh_us = now_us + (STEADY_REFRESH_US if self._context.steady else REFRESH_US)
            self._directory.refresh(self.topic)
        self._leaders.balance(self._holding.counts)
        self._arm()

    def _remind(self, session: Session) -> None:
        """Its next beat is due, or its last frame has not been answered."""
        if self._closing:
            session.sent_us = self._context.mono_us
            if session.attached and not self._goodbyes:
                self._leaders.speak(session, ConsumerAction.BEAT, 0)
            return
        if session.unanswered or not session.attached:
            self._directory.refresh(self.topic)
        if self._leaders.is_silent(session):
            session.attached = False
        if session.attached:
            self._leaders.speak(session, ConsumerAction.BEAT, session.asked)
        else:
            self._leaders.attach(session)

    def _is_sooner(self, session: Session) -> bool:
        """Whether a look at leases, or the next frame to this leader, is due before the timer."""
        if self._timer is None:
            return True
        at_us, look_us = self._timer.at_us, self._holding.look_us
        return (look_us is not None and look_us < at_us) or self._leaders.speak_at(session) < at_us

    def _arm(self) -> None:
        """Have the timer at the next thing to do."""
        if self.closed:
            return
        now_us = self._context.mono_us
        at_us = self._refresh_us if not self._closing else now_us + BEAT_US
        for next_us in (self._leaders.next_us, self._holding.next_us):
            if next_us is not None:
                at_us = min(at_us, next_us)
        at_us = max(at_us, now_us + 1000)
        if self._timer is not None:
            if self._timer.at_us <= at_us:
                return
            self._timer.cancel()
        self._timer = self._context.timers.at(at_us, self._tick)
