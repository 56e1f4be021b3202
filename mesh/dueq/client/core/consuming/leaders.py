"""One consumer's conversation with all leaders of its topic: sessions, routes, frames, and who gets how much credit.

A session is bound to a leader, not to a connection: frames go by a link to the leader itself if there is one, else by
the link that was used before, through whichever broker that is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from dueq import limits
from dueq.client.core.asking.directory import Topic
from dueq.client.core.consuming.credit import affordable, wanted
from dueq.client.core.consuming.holding import LOST_US
from dueq.client.core.consuming.session import Attaches, Session
from dueq.client.core.links.context import Context
from dueq.client.core.links.links import Link, Links
from dueq.client.core.ports.delivery import Delivery
from dueq.client.core.ports.events import OpenConsumer
from dueq_codecs.messages import ConsumerAction, ConsumerFrame
from dueq_codecs.records import NO_U16, NO_U32, NO_U64

BEAT_US: Final = limits.CONSUMER_BEAT_MS * 1000
STEADY_BEAT_US: Final = LOST_US - BEAT_US // 4
"""The same where nothing gets lost: just often enough."""
REPEAT_US: Final = 1_000_000
"""A frame without an answer for this long is sent again."""
UNDER_WAY_US: Final = limits.CONSUMER_SESSION_MS * 1000 - LOST_US
"""A frame to a leader that is silent may come, and be in force there, for this long after it was sent."""
HURRY_US: Final = 100_000
"""A session that nobody knows is not opened anew more often than this."""


class Leaders:
    """The sessions of one consumer.

    Args:
        event: who consumes what, with how much credit.
        stated: gives the deliveries that are held or being settled, by message name.

    Attributes:
        sessions: by the leader's broker id.
        closing: no session is opened any more, and no credit given.
    """

    def __init__(
        self,
        context: Context,
        links: Links,
        event: OpenConsumer,
        stated: Callable[[], Mapping[int, Delivery]],
    ) -> None:
        self._context, self._links, self._stated = context, links, stated
        self._consumer_id, self._topic = event.consumer_id, event.topic
        self._credit, self._credit_bytes, self._lease_ms = event.credit, event.credit_bytes, event.lease_ms
        self._life, self._detached = event.life, event.detached
        self.sessions: dict[str, Session] = {}
        self._left: dict[str, Session] = {}
        """Of brokers that lead nothing any more: they have heard no goodbye, as they may lead after all."""
        self.closing = False
        self._routes: dict[str, int] = {}
        self._of: dict[int, str] = {}
        self._attaches = Attaches(context.mono_us, event.life)
        self._served = 0

    def of(self, uid: int) -> str:
        """Return who leads a partition, as last known; "" where nobody is known to."""
        return self._of.get(uid, "")

    def topic_changed(self, topic: Topic) -> list[Session]:
        """Leaders are known anew; returns the sessions of those that lead what they did not lead before."""
        self._of = {uid: partition.leader for uid, partition in topic.partitions.items()}
        led: dict[str, set[tuple[int, int]]] = {}
        for uid, partition in topic.partitions.items():
            if partition.leader:
                led.setdefault(partition.leader, set()).add((uid, partition.epoch))
        for leader in [leader for leader in self.sessions if leader not in led]:
            self._left[leader] = self.sessions.pop(leader)
            self._routes.pop(leader, None)
        gained = []
        for leader, uids in led.items():
            session = self.sessions.get(leader)
            if session is None:
                self._left.pop(leader, None)
                session = self.sessions[leader] = Session(leader, self._attaches, self._context.mono_us)
            if not frozenset(uids) <= session.uids:
                gained.append(session)
            session.uids = frozenset(uids)
        return gained

    # -------------------------------------------------------------- routes

    def route(self, leader: str) -> Link | None:
        """The link to a leader; else the one used before, so that a relayed session does not wander."""
        direct = self._links.to_broker(leader)
        return direct or self._links.get(self._routes.get(leader, 0)) or self._links.any_up()

    def reached_by(self, number: int) -> list[str]:
        """Return the leaders whose last frame went by this link."""
        return [leader for leader, route in self._routes.items() if route == number]

    def attach_by_new_routes(self) -> None:
        """Attach where there is a better route than the last one, or a first one."""
        for session in list(self.sessions.values()):
            link = self.route(session.leader)
            if link is not None and link.number != self._routes.get(session.leader):
                self.attach(session)

    # -------------------------------------------------------------- frames

    def attach(self, session: Session) -> None:
        """Say what we hold; what is missing there will be pushed again."""
        if self.closing:
            return
        session.begin(self._context.mono_us)
        session.hurried = False
        self.speak(session, ConsumerAction.ATTACH, session.asked)

    def speak(self, session: Session, action: ConsumerAction, credit: int) -> None:
        """Send a frame that states this credit.

        The credit of a leader that is silent goes to the others: when it comes back it gets none before they have
        given up as much.
        """
        if self.is_silent(session):
            credit = 0
        link = self.route(session.leader)
        now_us = self._context.mono_us
        if link is None:
            session.sent_us = max(session.sent_us, now_us)
            self._routes.pop(session.leader, None)
            return
        if link.number != self._routes.get(session.leader) and action is ConsumerAction.BEAT:
            session.asked = credit
            self._routes[session.leader] = link.number
            self.attach(session)
            return
        self._routes[session.leader] = link.number
        session.state(credit, now_us)
        frame = ConsumerFrame(
            action, self._topic, self._consumer_id, session.attach, session.number, credit,
            self._credit_bytes, self._lease_ms, session.push_seen, session.leader, life=self._life,
            detached=self._detached,
        )  # fmt: skip
        if action is ConsumerAction.ATTACH or (self._detached and action is ConsumerAction.GOODBYE):
            self._state_held(frame, session)
        self._links.send(link, frame)

    def leave_for_good(self) -> None:
        """Say goodbye to brokers that were left, if they are within reach; their answers are not waited for.

        One that leads again would take this consumer for alive: it would push to it, and let a later process of its
        name wait.
        """
        for leader, session in self._left.items():
            if session.attach and self._links.to_broker(leader) is not None:
                self.speak(session, ConsumerAction.GOODBYE, 0)

    def _state_held(self, frame: ConsumerFrame, session: Session) -> None:
        """List what we hold or are settling of the partitions that this leader may lead.

        A leader does not answer who states what another one may lead, and where nobody leads what is being settled
        stays so. It needs no answer, and who has been silent so long has nothing to keep alive by one: so it is left
        out, and at worst is pushed again, under a token that was seen. But what a leader ends or renews because it is
        left out (of a consumer with a name, or with detached leases) is listed aside: we may be wrong about who leads.
        """
        others = {uid for uid, name in self._of.items() if name and name != session.leader}
        only_open = self.is_silent(session)
        held: list[Delivery] = []
        aside: list[Delivery] = []
        for delivery in self._stated().values():
            is_gone = delivery.uid not in self._of  # its topic was made anew, or news of it has not come
            is_aside = is_gone or delivery.uid in others or (only_open and delivery.settling)
            (aside if is_aside else held).append(delivery)
        if self._life or self._detached:
            held += aside
            frame.aside = len(aside)
        frame.held_uid = np.array([delivery.uid for delivery in held], np.uint32) if held else NO_U32
        frame.held_sequence = (
            np.array([delivery.sequence for delivery in held], np.uint64) if held else NO_U64
        )
        frame.held_row = np.array([delivery.row for delivery in held], np.uint16) if held else NO_U16
        frame.held_token = np.array([delivery.token for delivery in held], np.uint64) if held else NO_U64

    # -------------------------------------------------------------- time

    def is_silent(self, session: Session) -> bool:
        """Whether the leader has left a frame unanswered for so long that its leases are given up."""
        return self._context.mono_us - session.answered_us >= LOST_US and session.unanswered

    def speak_at(self, session: Session) -> int:
        """When the next frame to this leader is due (mono)."""
        waits = session.unanswered or not session.attached or session.behind
        beat_us = STEADY_BEAT_US if self._context.steady else BEAT_US
        return session.sent_us + (HURRY_US if session.hurried else REPEAT_US if waits else beat_us)

    @property
    def next_us(self) -> int | None:
        """When something is due (mono): a frame, or the end of a promise of credit; None: there is no session."""
        now_us, times = self._context.mono_us, []
        for session in self.sessions.values():
            times.append(self.speak_at(session))
            if session.promised and session.promised_until_us > now_us:
                times.append(session.promised_until_us)
        return min(times, default=None)

    # -------------------------------------------------------------- credit

    def balance(self, counts: Mapping[int, int], *, quietly: bool = False) -> None:
        """Divide the credit anew where that helps.

        Args:
            counts: how many leases are held, by partition.
            quietly: the frames follow anyway.
        """
        held: Counter[str] = Counter()
        for uid, count in counts.items():
            held[self._of.get(uid, "")] += count
        now_us = self._context.mono_us
        sessions, credit = [], self._credit
        for session in self.sessions.values():
            if self.is_silent(session):
                under_way = session.stated_since(now_us - UNDER_WAY_US)
                # Detached leases of a silent leader stay held: the others cannot have the credit for them.
                credit -= max(under_way, held[session.leader]) if self._detached else under_way
            else:
                sessions.append(session)
        if self._detached:
            credit -= sum(count for leader, count in held.items() if leader not in self.sessions)
        if not sessions or self.closing:
            return
        credit = max(credit, 0)
        shares = [session.share(held[session.leader], now_us) for session in sessions]
        starving = any(share.waiting and share.held >= share.most for share in shares)
        idle = credit - sum(share.most for share in shares)
        if not (starving or quietly or idle > 0):
            return
        targets = wanted(credit, shares)
        told = affordable(credit, shares, targets)
        step = max(self._credit // 16, 1)
        # Some leader has nothing, or less than waits there, until the others have given it up, however little each.
        is_short = any(
            limit < target and (not limit or (share.waiting and share.held >= limit))
            for limit, target, share in zip(told, targets, shares, strict=True)
        )
        for session, limit, share in zip(sessions, told, shares, strict=True):
            fresh = quietly and not session.attach
            hungry = limit > session.asked and share.waiting and share.held >= session.asked
            gives_up = is_short and limit < session.asked
            if not (
                fresh
                or hungry
                or gives_up
                or abs(limit - session.asked) >= step
                or (limit and not session.asked)
            ):
                continue
            if limit > session.asked:
                self._served += 1
                session.promise(limit - session.asked, self._served, now_us)
            if fresh:
                session.asked = session.limit = limit
            else:
                self.speak(session, ConsumerAction.BEAT if session.attach else ConsumerAction.ATTACH, limit)
