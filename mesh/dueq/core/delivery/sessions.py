"""The conversation with a topic's consumers: attach, beat, goodbye, and a route that is lost.

Every frame is checked, and answered or refused. The work is done by what stands beside it: `resending` pushes again
what did not arrive, `lifetimes` says how long a session lasts, `replies` sends what a consumer is told. An attach that
a goodbye has ended opens nothing any more, however late it comes (`departed`). If two processes have one name, the
newer one gets the leases of the older (`renewals`).
"""

from __future__ import annotations

from dueq import limits
from dueq.core.delivery.consumers import Consumers, ConsumerSession
from dueq.core.delivery.departed import Departed
from dueq.core.delivery.lane import Lane
from dueq.core.delivery.lifetimes import Lifetimes
from dueq.core.delivery.renewals import Renewals
from dueq.core.delivery.replies import Replies
from dueq.core.delivery.resending import Resending
from dueq.core.ports.events import Route
from dueq.core.state.entry_rows import Slots
from dueq.instant import Now
from dueq_codecs.messages import BrokerMessage, Code, ConsumerAction, ConsumerFrame, Push


class Sessions:
    """The frames of one topic's consumers to this leader.

    Args:
        lanes: the led partitions, by uid; the dispatcher's own.
    """

    def __init__(
        self,
        consumers: Consumers,
        lanes: dict[int, Lane],
        replies: Replies,
        resending: Resending,
        lifetimes: Lifetimes,
        renewals: Renewals,
    ) -> None:
        self._consumers, self._lanes = consumers, lanes
        self._replies, self._resending, self._lifetimes = replies, resending, lifetimes
        self._renewals = renewals
        self._departed = Departed()

    def frame(self, route: Route, frame: ConsumerFrame, now: Now) -> None:
        """Take a consumer's frame and answer it; a frame of an older attach is ignored."""
        session = self._consumers.by_id.get(frame.consumer_id)
        attaching = frame.action == ConsumerAction.ATTACH
        if frame.action == ConsumerAction.GOODBYE:
            self._departed.note(_process(frame), frame.attach, now.mono_us)
        held = len(frame.held_uid)
        refuse = self._replies.refuse
        if len(frame.consumer_id) != 16 or not (
            len(frame.held_sequence) == len(frame.held_row) == len(frame.held_token) == held
        ):
            refuse(route, frame, Code.INVALID_REQUEST, "consumer_id has 16 bytes, held columns one length")
        elif frame.aside > held:
            refuse(
                route, frame, Code.INVALID_REQUEST, f"{frame.aside} leases aside, of {held} that are listed"
            )
        elif len(stated := set(frame.held_uid.tolist())) > limits.PARTITIONS_MAX:
            text = f"{len(stated)} partitions: more than a topic has"
            refuse(route, frame, Code.INVALID_REQUEST, text)
        elif frame.detached and frame.life:
            refuse(route, frame, Code.INVALID_REQUEST, "leases of a consumer with a name are not detached")
        elif attaching and self._departed.has_ended(_process(frame), frame.attach, now.mono_us):
            refuse(route, frame, Code.UNKNOWN_SESSION, "this attach was ended by a goodbye")
        elif session is not None and session.route is not None and frame.life != session.life:
            self._other_life(session, route, frame, now)
        elif attaching:
            self._on_attach(session, route, frame, now)
        elif session is None or (session.route is None and frame.action == ConsumerAction.BEAT):
            refuse(route, frame, Code.UNKNOWN_SESSION, "attach first")
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
                self._replies.refuse(route, frame, Code.BUSY, text)
                return
            session = self._consumers.open(frame.consumer_id, now)
        elif session.route is not None and frame.attach < session.attach:
            return
        repeated = session.route is not None and frame.attach == session.attach
        is_new_life = frame.life != session.life
        session.route = route
        if not repeated:
            session.begin_attach(frame)
            if frame.detached:
                self._lifetimes.adopt(session)
            again = self._resending.push_again
            if is_new_life:
                again = self._renewals.want
            elif session.life:
                again = self._push_again
            self._resending.settle_held(session, frame, again)
        self._heard(session, frame, now)

    def _push_again(self, lane: Lane, slots: Slots) -> None:
        """Push again the leases that left for this process; others may have left for an older one of its name."""
        older = self._renewals.are_older(lane, slots)
        self._renewals.want(lane, slots[older])
        self._resending.push_again(lane, slots[~older])

    def _other_life(self, session: ConsumerSession, route: Route, frame: ConsumerFrame, now: Now) -> None:
        """Another process of the same name: the newer one wins, once the older has said goodbye or is gone."""
        refuse = self._replies.refuse
        older = frame.life < session.life
        if frame.action != ConsumerAction.ATTACH or (older and session.reachable):
            refuse(
                route, frame, Code.SUPERSEDED, "another process with the name of this consumer has followed"
            )
        elif session.reachable:
            self._replies.supersede(session)
            refuse(route, frame, Code.BUSY, "an older process with the name of this consumer is asked to end")
        else:
            session.attach = 0
            self._on_attach(session, route, frame, now)

    def _heard(self, session: ConsumerSession, frame: ConsumerFrame, now: Now) -> None:
        """Take note of a valid frame of the present attach, and answer it."""
        self._lifetimes.heard(session, now)
        if frame.number > session.credit_number:
            session.restate(frame)
        self._consumers.offer(session, now)
        self._replies.answer(session, now)

    def _on_beat(self, session: ConsumerSession, route: Route, frame: ConsumerFrame, now: Now) -> None:
        if frame.attach > session.attach:
            text = "the attach of this number has not arrived"
            self._replies.refuse(route, frame, Code.UNKNOWN_SESSION, text)
            return
        session.route = route
        self._resending.seen(session, frame.push_seen)
        self._heard(session, frame, now)
        self._resending.resend_late(session, route, now)

    def _on_goodbye(self, session: ConsumerSession, route: Route, frame: ConsumerFrame, now: Now) -> None:
        unsure = self._lifetimes.return_leases(session, frame, now)
        session.route = route
        session.attach = frame.attach
        session.must_attach = False
        session.credit_number = frame.number
        self._replies.answer_now(session, now)
        self._consumers.drop(session)
        self._lifetimes.keep(session.consumer_id, unsure, now)

    def route_lost(self, route: Route, unsent: BrokerMessage, now: Now) -> None:
        """Nothing arrives there: stop pushing, and have its consumers attach again.

        Leases of theirs that cannot have arrived are returned, uncounted: others need not wait for those messages.
        """
        for session in self._consumers.by_id.values():
            if session.route != route:
                continue
            session.reachable = False
            session.must_attach = True
            for lane in self._lanes.values():
                slots = lane.leases.of_owner(session.number_here)
                if len(slots):
                    lane.return_granted(slots, now)
            if isinstance(unsent, Push) and unsent.attach == session.attach:
                self._resending.return_unsent(session, unsent.number, now)


def _process(frame: ConsumerFrame) -> bytes:
    """Return what names the process that speaks: processes of one name count their attaches by different clocks."""
    return frame.consumer_id + frame.life.to_bytes(8, "big")
