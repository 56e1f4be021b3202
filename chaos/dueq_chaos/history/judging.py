"""The exact judgement of one message's life.

An operation takes effect at one moment between its invocation and its completion; one of unknown outcome at any
moment from its invocation on, or never; a refused one never. A verdict is given only when no order of these moments
explains the history. Each rule looks at one delivery (or one pair) against all operations, so it is sound, not
complete: two deliveries that each can be explained, but not both at once, pass.

When the mesh's clock (`released`, the length of a lease) is compared with instants of clients, a difference of up to
`clock_us` is allowed. Where tokens decide (the later lease has the larger one), no clock is used.

How long a lease *surely* holds, for the consumer that has it:

* until the invocation of each of its operations that was confirmed (a confirmation means that no other consumer had
it);
* and until its deadline by the client's reckoning, but not beyond what the consumer gave back or was told to be lost,
  not beyond its last sign of life, nor a silence of `silence_us` (the mesh takes a silent consumer's leases back).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from dueq_chaos.history.operations import FOREVER, Kind, Told


class Verdict(StrEnum):
    """A kind of event that must not happen."""

    LOST = "lost"
    EARLY = "delivered early"
    CANCELLED = "delivered after a confirmed cancel"
    TWICE = "delivered twice while a lease was valid"
    AGAIN = "acknowledged and delivered again"
    UNEXPECTED = "unexpected"
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True)
class Rules:
    """The benefits of the doubt.

    Attributes:
        clock_us: the mesh's clock and the clients' differ by at most this.
        grace_us: messages that are due later than this before the last listening consumer stopped are pending, not
            lost.
        silence_us: a consumer without a line for this long may have lost its leases.
    """

    clock_us: int = 50_000
    grace_us: int = 15_000_000
    silence_us: int = 5_000_000


@dataclass(slots=True)
class Change:
    """A row of a schedule, move or cancel; instants in µs, due in Unix µs."""

    kind: Kind
    client: int
    invoked: int
    completed: int
    told: Told
    operation: int
    due_us: int = 0
    crc: int = 0
    size: int = 0

    @property
    def done(self) -> bool:
        """It was confirmed."""
        return self.told is Told.DONE

    @property
    def possible(self) -> bool:
        """It may have happened."""
        return self.told in (Told.DONE, Told.UNKNOWN)

    @property
    def before(self) -> int:
        """When it has surely happened."""
        return self.completed if self.done else FOREVER


@dataclass(slots=True)
class Settling:
    """A row of an ack, nack, release, extend, or a lease lost."""

    kind: Kind
    client: int
    invoked: int
    completed: int
    told: Told
    operation: int
    token: int
    amount_us: int = 0


@dataclass(slots=True)
class Delivery:
    """A message handed to a consumer.

    Attributes:
        received: when it was handed out.
        released: when it left its leader, by the mesh's clock, brought onto the monotonic clock.
        released_us: the same as Unix µs by the mesh's clock.
        lease_until: the end of the lease by the client's reckoning when it was handed out.
    """

    client: int
    received: int
    released: int
    released_us: int
    received_us: int
    due_us: int
    token: int
    attempt: int
    lease_until: int
    crc: int
    size: int
    operation: int


@dataclass(slots=True)
class Life:
    """All that is known of one message.

    Attributes:
        known: an insert of this id was acknowledged; else `inserts` are those of unknown outcome it may come from.
        listened_until_us: Unix µs until which some consumer asked for messages of its topic.
    """

    message: int
    known: bool
    inserts: list[Change]
    moves: list[Change]
    cancels: list[Change]
    deliveries: list[Delivery]
    settlings: list[Settling]
    listened_until_us: int

    def settled(self, delivery: Delivery) -> list[Settling]:
        """The operations on one lease, in the order of invocation."""
        return sorted((s for s in self.settlings if s.token == delivery.token), key=lambda s: s.invoked)

    def acked(self, delivery: Delivery) -> bool:
        """Its ack was confirmed."""
        return any(s.kind is Kind.ACK and s.told is Told.DONE for s in self.settled(delivery))


class Judge:
    """Judges lives.

    Args:
        rules: the benefits of the doubt.
        alive_until: from a client and an instant: how long it went on to write lines without a silence.
        closed_at: when a client began to close; FOREVER if it never did.
    """

    def __init__(
        self, rules: Rules, alive_until: Callable[[int, int], int], closed_at: Callable[[int], int]
    ) -> None:
        self._rules, self._alive_until, self._closed_at = rules, alive_until, closed_at

    def verdicts(self, life: Life) -> list[tuple[Verdict, str]]:
        """Return what is wrong with a message, each with a sentence on why."""
        if not life.inserts:
            return [(Verdict.UNEXPECTED, "nobody scheduled it")]
        found: list[tuple[Verdict, str]] = []
        if life.known and len(life.inserts) > 1:
            found.append((Verdict.UNEXPECTED, f"{len(life.inserts)} inserts were told the same id"))
        life.deliveries.sort(key=lambda delivery: (delivery.token, delivery.released, delivery.received))
        holds = [self._holds_until(life, delivery) for delivery in life.deliveries]
        found += self._lost(life)
        for delivery, hold in zip(life.deliveries, holds, strict=True):
            found += self._damaged(life, delivery)
            found += self._early(life, delivery, hold)
            found += self._cancelled(life, delivery, hold)
        found += self._again(life)
        found += self._twice(life, holds)
        return found

    # ------------------------------------------------------------ one rule each

    def _lost(self, life: Life) -> list[tuple[Verdict, str]]:
        if not life.known or any(cancel.possible for cancel in life.cancels):
            return []
        done = [s for s in life.settlings if s.kind is Kind.ACK and s.told in (Told.DONE, Told.UNKNOWN)]
        if done:
            return []
        end_us = life.listened_until_us - self._rules.grace_us
        last_us = max(change.due_us for change in (*life.inserts, *life.moves) if change.possible)
        if not life.deliveries:
            late = (life.listened_until_us - last_us) / 1e6
            text = f"acknowledged, never delivered, though due {late:.3f} s before the last consumer stopped"
            return [(Verdict.LOST, text)] if last_us <= end_us else []
        waits_us = max(self._waits_until_us(life, delivery) for delivery in life.deliveries)
        if max(last_us, waits_us) > end_us:
            return []
        return [
            (Verdict.LOST, "delivered, never acknowledged, and not delivered again when the lease was over")
        ]

    def _waits_until_us(self, life: Life, delivery: Delivery) -> int:
        """When a lease is over at the latest, even if a new leader counted it anew, and its nack's delay too."""
        wall_us = delivery.received_us - delivery.received
        length = max(delivery.lease_until - delivery.received, 0)
        ends = [delivery.lease_until + length]
        for settling in life.settled(delivery):
            last = settling.invoked if settling.completed == FOREVER else settling.completed
            ends.append(last + settling.amount_us * (2 if settling.kind is Kind.EXTEND else 1))
        return max(ends) + wall_us

    def _damaged(self, life: Life, delivery: Delivery) -> list[tuple[Verdict, str]]:
        if any((insert.crc, insert.size) == (delivery.crc, delivery.size) for insert in life.inserts):
            return []
        insert = life.inserts[0]
        text = f"{delivery.size} bytes of CRC {delivery.crc:08x} came, {insert.size} of {insert.crc:08x} were scheduled"
        return [(Verdict.DAMAGED, text)]

    def _early(self, life: Life, delivery: Delivery, hold: int) -> list[tuple[Verdict, str]]:
        clock = self._rules.clock_us
        # A change that was confirmed before the lease's end was made before its grant: nothing changes a leased
        # message.
        before = max(delivery.released, hold) - clock
        started = [
            change
            for change in (*life.inserts, *life.moves)
            if change.possible and (change.invoked - clock <= delivery.released or change.before < before)
        ]
        if not started:
            return []
        over = [change.invoked for change in started if change.before < before]
        latest = max(over, default=-1)
        dues = [change.due_us for change in started if not change.before < latest]
        due_us = min(dues)
        if delivery.released_us < due_us:
            early = (due_us - delivery.released_us) / 1000
            return [(Verdict.EARLY, f"it left its leader {early:.3f} ms before it was due")]
        if delivery.received_us < due_us - clock:
            early = (due_us - delivery.received_us) / 1000
            return [(Verdict.EARLY, f"it was handed out {early:.3f} ms before it was due")]
        return []

    def _cancelled(self, life: Life, delivery: Delivery, hold: int) -> list[tuple[Verdict, str]]:
        clock = self._rules.clock_us
        confirmed = min((cancel.completed for cancel in life.cancels if cancel.done), default=FOREVER)
        if confirmed == FOREVER:
            return []
        if life.acked(delivery):
            return [(Verdict.CANCELLED, "both a cancel and an ack were confirmed")]
        if delivery.released - clock > confirmed:
            after = (delivery.released - confirmed) / 1000
            return [(Verdict.CANCELLED, f"it left its leader {after:.3f} ms after the cancel was confirmed")]
        if hold - clock > confirmed:
            return [(Verdict.CANCELLED, "a consumer held it before and after the cancel was confirmed")]
        return []

    def _again(self, life: Life) -> list[tuple[Verdict, str]]:
        acks = [s for s in life.settlings if s.kind is Kind.ACK and s.told is Told.DONE]
        found = []
        for delivery in life.deliveries:
            for ack in acks:
                later = delivery.token > ack.token
                if later or delivery.released - self._rules.clock_us > ack.completed:
                    text = f"token {delivery.token} was delivered though the ack of {ack.token} was confirmed"
                    found.append((Verdict.AGAIN, text))
                    break
        return found

    def _twice(self, life: Life, holds: list[int]) -> list[tuple[Verdict, str]]:
        found = []
        longest = -1
        for (former, hold), (later, _) in pairwise(zip(life.deliveries, holds, strict=True)):
            longest = max(longest, hold)
            if former.token == later.token:
                text = f"one lease (token {later.token}) was handed out twice"
                found.append((Verdict.TWICE, text))
            elif not life.acked(former) and later.released + self._rules.clock_us < longest:
                overlap = (longest - later.released) / 1000
                text = f"token {later.token} left {overlap:.3f} ms before an earlier lease could be over"
                found.append((Verdict.TWICE, text))
        return found

    # ------------------------------------------------------------ leases

    def _holds_until(self, life: Life, delivery: Delivery) -> int:
        """Until when a lease surely held, µs."""
        confirmed = delivery.released
        until = min(delivery.lease_until, self._closed_at(delivery.client))
        for settling in life.settled(delivery):
            if settling.told is Told.DONE and settling.kind is not Kind.LOST:
                confirmed = max(confirmed, settling.invoked)
            if settling.kind is Kind.EXTEND and settling.told is Told.DONE:
                until = max(until, settling.invoked) if self._overlapped(life, settling) else FOREVER
                until = min(until, settling.invoked + settling.amount_us, self._closed_at(delivery.client))
            elif settling.kind is Kind.EXTEND and settling.told is Told.UNKNOWN:
                until = min(until, settling.invoked + settling.amount_us)
            elif settling.kind is Kind.LOST or (
                settling.kind is not Kind.ACK or settling.told is not Told.DONE
            ):
                until = min(until, self._ends_with(settling))
        if until > confirmed:
            until = min(until, self._alive_until(delivery.client, delivery.received))
        return max(confirmed, until)

    def _overlapped(self, life: Life, extend: Settling) -> bool:
        """Another settling of the same lease may take effect after this one."""
        return any(
            other is not extend
            and other.token == extend.token
            and other.invoked < extend.completed
            and (other.completed > extend.invoked or other.told is Told.UNKNOWN)
            for other in life.settlings
        )

    @staticmethod
    def _ends_with(settling: Settling) -> int:
        if settling.kind is Kind.ACK and settling.told is Told.UNKNOWN:
            return FOREVER  # either it is done, or the lease runs on: no other consumer may have the message
        if settling.kind in (Kind.NACK, Kind.RELEASE) and settling.told is not Told.STALE:
            return settling.invoked
        return 0  # lost at an unknown moment before
