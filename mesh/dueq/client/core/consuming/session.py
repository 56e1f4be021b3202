"""A consumer's session with one leader: attached or not, what was promised, what was answered, and when."""

from __future__ import annotations

from collections import OrderedDict

from dueq import limits
from dueq.client.core.consuming.credit import Share
from dueq_codecs.messages import ConsumerReply, Push

NUMBERS_KEPT = 64
PROMISE_US = 250_000
"""Time for which credit given for waiting messages stays though it is not used."""


class LeaderClock:
    """A leader's monotonic clock against ours, as far as its answers tell.

    What is answered was sent before: so our clock when a frame left, less the leader's when it answered, is at most
    what lies between the two (the one half of Cristian, "Probabilistic clock synchronization", 1989). An instant
    that the leader has stamped is never taken for later than it was, through whichever broker its frames have come,
    and whatever wall clocks show.
    """

    def __init__(self) -> None:
        self._incarnation = 0
        self._ours_minus_theirs_us = 0
        self._taken_us = 0

    def answered(self, sent_us: int, incarnation: int, stamp_us: int) -> None:
        """Take in an answer.

        Args:
            sent_us: when the frame left, by our monotonic clock.
            incarnation: the life of the broker that has answered.
            stamp_us: when it did, by its monotonic clock.
        """
        known_us = self.instant_us(incarnation, stamp_us)
        if known_us is None or sent_us >= known_us:
            self._incarnation, self._ours_minus_theirs_us = incarnation, sent_us - stamp_us
            self._taken_us = sent_us

    def instant_us(self, incarnation: int, stamp_us: int) -> int | None:
        """Return the earliest that a stamped instant can have been, by our clock; None of a life without an answer."""
        if not incarnation or incarnation != self._incarnation:
            return None
        at_us = stamp_us + self._ours_minus_theirs_us
        return at_us - abs(at_us - self._taken_us) * limits.CLOCK_DRIFT_PPM // 1_000_000


class Attaches:
    """When a consumer has attached, to whichever leader: what was pushed to an attach left after it had begun."""

    def __init__(self, now_us: int, life: int = 0) -> None:
        self._opened_us = now_us
        self._begun: OrderedDict[int, int] = OrderedDict()
        self._count = life  # so the attaches of a later process are later ones

    def begin(self, now_us: int) -> int:
        """Number one more."""
        self._count += 1
        self._begun[self._count] = now_us
        if len(self._begun) > NUMBERS_KEPT:
            self._begun.popitem(last=False)
        return self._count

    def begun_us(self, attach: int) -> int:
        """Return when it began, by our monotonic clock; of one long ago, when the consumer was opened."""
        return self._begun.get(attach, self._opened_us)


class Session:
    """One leader's side of a consumer.

    Attributes:
        leader: broker id.
        attach: number of the present attach, 0 before the first.
        attached: the leader has answered the present attach.
        hurried: it has refused the present attach so soon that the next one has to wait a little.
        begun_us: when the present attach began.
        number: of the last frame sent.
        asked: the credit that the last frame stated.
        limit: the highest credit that may be in force there: as stated in any frame not yet overtaken by a
            confirmed one.
        waiting: due messages there that wait for credit, as last reported.
        coming: leases there whose push has not arrived, as last reported.
        served: when the credit was last raised (counts up).
        promised: how much it was raised by and has not been used; it counts until `promised_until_us`.
        push_seen: every push of this attach up to this number has arrived.
        pushes_ahead: numbers above that which have arrived.
        push_sent: the highest number known to have been sent.
        answered_us: when the latest frame that was answered had been sent; the leader's patience counts from
            later than that.
        sent_us: when the last frame was sent.
        goodbye: the number of the goodbye, 0 before.
    """

    def __init__(self, leader: str, attaches: Attaches, now_us: int) -> None:
        self.leader = leader
        self._attaches = attaches
        self.attach = 0
        self.attached = self.hurried = False
        self.begun_us = now_us
        self.number = 0
        self.asked = 0
        self.limit = 0
        self.waiting = 0
        self.coming = 0
        self.served = 0
        self.promised = 0
        self.promised_until_us = 0
        self.push_seen = 0
        self.pushes_ahead: set[int] = set()
        self.push_sent = 0
        self.answered_us = now_us
        self.sent_us = now_us
        self.goodbye = 0
        self.uids: frozenset[tuple[int, int]] = frozenset()
        self._stated: OrderedDict[int, tuple[int, int]] = OrderedDict()
        # Messages of the latest pushes of this attach, by number; and the life and instant of the newest report.
        self._arrived: OrderedDict[int, int] = OrderedDict()
        self._reported = (0, 0)
        self._clock = LeaderClock()

    def state(self, credit: int, now_us: int) -> None:
        """Note a frame that is about to be sent."""
        self.number += 1
        self.asked = credit
        self.sent_us = now_us
        self._stated[self.number] = (credit, now_us)
        while len(self._stated) > NUMBERS_KEPT:
            self._stated.popitem(last=False)
        self.limit = max(self.limit, credit)

    def confirm(self, number: int, incarnation: int, stamp_us: int) -> None:
        """The leader had this credit number in force, and so no older one, when it stamped its answer."""
        while self._stated and next(iter(self._stated)) < number:
            self._stated.popitem(last=False)
        if number in self._stated:
            sent_us = self._stated[number][1]
            self.answered_us = max(self.answered_us, sent_us)
            self._clock.answered(sent_us, incarnation, stamp_us)
            self.limit = max(credit for credit, _ in self._stated.values())

    def stated_since(self, at_us: int) -> int:
        """Return the highest credit in a frame that was sent after this instant and that no answer has overtaken."""
        return max((credit for credit, sent_us in self._stated.values() if sent_us > at_us), default=0)

    @property
    def unanswered(self) -> bool:
        """The last frame has not been answered."""
        return self.answered_us < self.sent_us

    @property
    def behind(self) -> bool:
        """Pushes were sent that have not arrived: a beat a second later has them sent again."""
        return self.push_sent > self.push_seen

    def released_us(self, push: Push) -> int:
        """When a push left the leader at the earliest, by our monotonic clock."""
        since_us = self.begun_us if push.attach == self.attach else self._attaches.begun_us(push.attach)
        at_us = self._clock.instant_us(push.incarnation, push.mono_us)
        return since_us if at_us is None else max(at_us, since_us)

    def begin(self, now_us: int) -> None:
        """Attach anew: pushes count from one again."""
        self.attach, self.begun_us = self._attaches.begin(now_us), now_us
        self.attached = False
        self.coming = 0
        self.push_seen = self.push_sent = 0
        self.pushes_ahead.clear()
        self._arrived.clear()

    def saw_push(self, number: int, *, complete: bool) -> None:
        """Note a push of the present attach. One that came before all of its chunks is not seen: it is sent again."""
        self.push_sent = max(self.push_sent, number)
        if complete and number > self.push_seen:
            self.pushes_ahead.add(number)
            while self.push_seen + 1 in self.pushes_ahead:
                self.push_seen += 1
                self.pushes_ahead.discard(self.push_seen)

    def promise(self, amount: int, served: int, now_us: int) -> None:
        """Its credit is being raised."""
        self.promised, self.served, self.promised_until_us = amount, served, now_us + PROMISE_US

    def report(self, reply: ConsumerReply) -> None:
        """The leader says what waits there, and what is coming, as of when it answered.

        By another way a push that has left later may have come before; then what it brought is coming no more.
        """
        incarnation, stamp_us = self._reported
        if reply.incarnation == incarnation and reply.mono_us < stamp_us:
            return
        self._reported = reply.incarnation, reply.mono_us
        later = sum(count for number, count in self._arrived.items() if number > reply.push_sent)
        self.waiting, self.coming = reply.waiting, max(reply.coming - later, 0)

    def used(self, count: int, attach: int, number: int) -> None:
        """Messages have come with a push: those that the raised credit was for wait no more."""
        if attach == self.attach:
            self._arrived[number] = self._arrived.get(number, 0) + count
            if len(self._arrived) > NUMBERS_KEPT:
                self._arrived.popitem(last=False)
        self.coming = max(self.coming - count, 0)
        count = min(count, self.promised)
        self.promised -= count
        self.waiting = max(self.waiting - count, 0)

    def share(self, held: int, now_us: int) -> Share:
        """This session as the division of credit sees it."""
        promised = self.promised if now_us < self.promised_until_us else 0
        return Share(self.limit, held, self.waiting, promised, self.served, self.coming)
