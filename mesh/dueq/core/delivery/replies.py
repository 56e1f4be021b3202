"""News for a topic's consumers: answers to their frames, that messages wait for credit, and that a leader moved.

An answer keeps leases alive at their holder, however long they are. A leader that was replaced must not do that,
because its successor ends the sessions that it does not hear of. So an answer on which leases rest waits until every
leadership that it rests on is confirmed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, Protocol

import numpy as np

from dueq.core.delivery.consumers import Consumers, ConsumerSession
from dueq.core.delivery.lane import Lane
from dueq.core.delivery.leases import NEVER_US
from dueq.core.ports.events import Route
from dueq.instant import Now
from dueq_codecs.messages import BrokerMessage, Code, ConsumerFrame, ConsumerReply

TELL_US: Final = 500_000
"""Least time between two unasked-for replies to one consumer."""
CONFIRM_RETRY_US: Final = 5_000
"""Time between two looks at whether the leaderships are confirmed on which answers wait."""
COUNT_US: Final = 50_000
"""How long a count of waiting messages serves the replies."""


class Demand(Protocol):
    """Due messages that wait for credit."""

    def has_waiting(self, now: Now) -> bool:
        """Whether due messages wait and nobody has credit for them."""
        ...

    def waiting(self, now: Now) -> int:
        """About how many, up to some limit."""
        ...


class Replies:
    """The replies of one topic's dispatcher to its consumers.

    Args:
        topic, broker_id, incarnation: named in every reply.
        lanes: the led partitions, by uid; the dispatcher's own.
        send: takes a reply on its way.
        demand: what waits for credit.
    """

    def __init__(
        self,
        topic: str,
        broker_id: str,
        incarnation: int,
        consumers: Consumers,
        lanes: dict[int, Lane],
        send: Callable[[Route, BrokerMessage], None],
        demand: Demand,
    ) -> None:
        self._topic = topic
        self._broker_id, self._incarnation = broker_id, incarnation
        self._consumers, self._lanes = consumers, lanes
        self._send = send
        self._demand = demand
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
        """(mono) when `tell_waiting` or `answer_late` has something to do."""
        return min(self._tell_us, self._late_us)

    # -------------------------------------------------------------- answers

    def answer(self, session: ConsumerSession, now: Now, coming: int | None = None) -> None:
        """Answer, or wait until it is certain that nobody else leads what the session's leases rest on.

        Args:
            session: whose frame it was.
            now: the instant.
            coming: how many of its leases have not been pushed, if the caller knows.
        """
        if session.must_attach:
            self.answer_now(session, now, coming)
        elif not session.stated <= self._lanes.keys():
            # It holds what another leads by now, and takes this broker for its leader. It asks around, and comes again.
            return
        elif session.rows_out and not self._is_confirmed(session, now):
            self._late[session.number_here] = None
            self._late_us = now.mono_us + CONFIRM_RETRY_US
        else:
            self.answer_now(session, now, coming)

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
        """Answer the sessions that wait for it."""
        if not self._late:
            return
        late, self._late, self._late_us = self._late, {}, NEVER_US
        for number in late:
            session = self._consumers.by_number.get(number)
            if session is not None:
                self.answer(session, now)

    def answer_now(self, session: ConsumerSession, now: Now, coming: int | None = None) -> None:
        """Answer whatever is confirmed; the arguments are those of `answer`."""
        if session.route is None:
            return
        if coming is None:
            coming = self._coming(session)
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

    def _coming(self, session: ConsumerSession) -> int:
        """Return how many leases of a session have not been pushed (again)."""
        if not session.rows_out:
            return 0
        number = session.number_here
        tables = [lane.leases for lane in self._lanes.values() if len(lane.leases)]
        return sum(int(np.count_nonzero(leases.coming() == number)) for leases in tables)

    def _count_waiting(self, now: Now) -> int:
        if not self._demand.has_waiting(now):
            return 0
        at_us, count = self._counted
        if not 0 <= now.mono_us - at_us < COUNT_US or not count:
            count = self._demand.waiting(now)
            self._counted = (now.mono_us, count)
        return count

    def refuse(self, route: Route, frame: ConsumerFrame, code: Code, text: str) -> None:
        """Answer a frame that changes nothing, and say why."""
        reply = ConsumerReply(self._topic, frame.consumer_id, frame.attach, frame.number, code, text)
        reply.leader = self._broker_id
        self._send(route, reply)

    def supersede(self, session: ConsumerSession) -> None:
        """Tell a process that another one of the same name has followed."""
        assert session.route is not None
        reply = ConsumerReply(
            self._topic, session.consumer_id, session.attach, session.credit_number, Code.SUPERSEDED,
            "another process with the name of this consumer has followed", leader=self._broker_id,
        )  # fmt: skip
        self._send(session.route, reply)

    # -------------------------------------------------------------- unasked for

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
            coming.update(lane.leases.coming().tolist())
        for session in self._consumers.by_id.values():
            if not session.reachable or session.told_round == self._round:
                continue
            if now.mono_us - session.told_us < TELL_US:
                self._tell_us = min(self._tell_us, session.told_us + TELL_US)
            else:
                self.answer(session, now, coming[session.number_here])

    def tell_moved(self) -> None:
        """Have consumers ask who leads: another broker now pushes the messages that came from here."""
        for session in self._consumers.by_id.values():
            if session.reachable and session.route is not None:
                reply = ConsumerReply(
                    self._topic, session.consumer_id, session.attach, session.credit_number, Code.NOT_LEADER,
                    "a partition has another leader", leader=self._broker_id,
                )  # fmt: skip
                self._send(session.route, reply)
