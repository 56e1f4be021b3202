"""The requests and answers of clients, and the verdicts over them.

A delivery is judged when it happens, or when its insert is acknowledged, if that is later. Messages that are not
finished yet are kept apart, so that repeated questions for the verdicts cost little.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from dueq import ids
from dueq_chaos.sim.judging.claimed import Requests
from dueq_chaos.sim.judging.fates import Fate

MessageKey = tuple[int, int, int]
"""(partition uid, log sequence, row)."""

_DRIFT_PPM = 600
"""How much faster a leader's clock may run than a consumer's: a lease is a duration on both."""


def name_of(key: MessageKey) -> str:
    """How a message is called in traces and verdicts."""
    return f"p{key[0]}:{key[1]}:{key[2]}"


@dataclass
class Delivery:
    """One message handed to one consumer.

    Attributes:
        at_us: true time, Unix µs.
        lease_until_us: true time of the end of the lease, as far as the consumer knew; may be extended.
        ended_at_us: when the consumer stopped holding it (settled, lost, died) before that.
    """

    at_us: int
    consumer: str
    token: int
    attempt: int
    payload: bytes
    lease_until_us: int
    ended_at_us: int | None = None
    rank: int = 0

    @property
    def held_until_us(self) -> int:
        """Until when nobody else may have the message."""
        return self.lease_until_us if self.ended_at_us is None else min(self.ended_at_us, self.lease_until_us)


@dataclass
class Message:
    """One message's life as its clients saw it."""

    payload: bytes
    due_ms: int
    first: int
    """The instant in its id."""
    moves: list[int] = field(default_factory=list)
    """Dues of confirmed moves."""
    maybe_dues: list[int] = field(default_factory=list)
    """Dues of moves that may have happened."""
    moved_at_us: int | None = None
    """When the last move was confirmed: deliveries after it are at its due or later."""
    ranks: list[int] = field(default_factory=lambda: [0])
    """The rank at first, and those of confirmed changes."""
    maybe_ranks: list[int] = field(default_factory=list)
    """Ranks of changes that may have happened."""
    ranked_at_us: int | None = None
    """When the last change was confirmed: deliveries after it are of its rank."""
    cancelled_at_us: int | None = None
    """When a cancel was confirmed."""
    cancel_asked: bool = False
    """A cancel may have happened."""
    changing: bool = False
    """A move, change or cancel waits for its answer."""
    acked_at_us: int | None = None
    """When an ack was confirmed."""
    acked_token: int = 0
    """The lease that was acknowledged."""
    maybe_acked: bool = False
    """An ack may have happened, and nothing has been delivered since."""
    waived: str = ""
    """Why it need not be finished ("its topic was deleted")."""
    fate: Fate = field(default_factory=Fate)
    """Its fate, as the log says."""
    deliveries: list[Delivery] = field(default_factory=list)

    @property
    def settled(self) -> bool:
        """Whether nothing more can be owed to it, whatever happens."""
        ended = self.acked_at_us is not None or self.cancelled_at_us is not None
        return ended or bool(self.waived or self.fate.over)

    @property
    def finished(self) -> bool:
        """Whether nothing more is owed to it, as far as can be known."""
        return self.settled or self.cancel_asked or self.maybe_acked or self.fate.dead

    @property
    def unsure(self) -> bool:
        """Whether nobody knows what a move or change has come to, or will come to."""
        return self.changing or bool(self.maybe_dues) or bool(self.maybe_ranks)

    def earliest_ms(self, at_us: int) -> int:
        """The due before which a delivery at this instant was early."""
        if self.moved_at_us is not None and at_us > self.moved_at_us:
            return min([self.moves[-1], *self.maybe_dues, *self.fate.dues])
        return min([self.due_ms, *self.moves, *self.maybe_dues, *self.fate.dues])

    def ranks_at(self, at_us: int) -> list[int]:
        """The ranks that a delivery at this instant may have."""
        since = -1 if self.ranked_at_us is not None and at_us > self.ranked_at_us else 0
        return [*self.ranks[since:], *self.maybe_ranks, *self.fate.ranks]


class History:
    """Every message whose insert was acknowledged, and everything that was delivered.

    Attributes:
        messages: by key.
        acked_in_time: (token, weather) of acks whose outcome is not told, sent long before their lease is over.
        unacknowledged: payloads of inserts whose outcome was never learnt.
        refused: payloads of inserts that were refused: they must never be seen.
        headed: payloads that were scheduled with headers (see `headings`).
        reheaded: messages for which a NACK with headers was sent.
        keys: the unique keys of payloads.
        requests: their idempotency keys.
        shared: the shared bodies of messages whose key is what is noted here as their payload.
        strangers: deliveries of messages of which no client has been told (yet).
        fate_of: gives the fate of a message by the log, if the caller knows the log.
        due_of, version_of, had_version: say what the log says of an acknowledged message.
        row_differs: says what is wrong with an acknowledged insert (key, payload, due), for who knows the log.
        begins: told of each process of a consumer with a name: its id, and what its process is told apart by.
    """

    def __init__(self) -> None:
        self.messages: dict[MessageKey, Message] = {}
        self.acked_in_time: dict[MessageKey, tuple[int, object]] = {}
        self.unacknowledged: dict[bytes, None] = {}
        self.refused: dict[bytes, str] = {}
        self.headed: dict[bytes, None] = {}
        self.reheaded: set[MessageKey] = set()
        self.shared: dict[bytes, bytes] = {}
        self.keys: dict[bytes, str] = {}
        self.requests = Requests()
        self.strangers: dict[MessageKey, list[Delivery]] = {}
        self.fate_of: Callable[[MessageKey], Fate] = lambda key: Fate()
        self.due_of: Callable[[MessageKey], int] = lambda key: 0
        self.version_of: Callable[[MessageKey], int] = lambda key: 0
        self.had_version: Callable[[MessageKey, int], bool] = lambda key, version: True
        self.row_differs: Callable[[MessageKey, bytes, int], str] = lambda key, payload, due_ms: ""
        self.begins: Callable[[bytes, int], None] = lambda consumer_id, life: None
        self._early_acks: dict[MessageKey, tuple[int, int]] = {}
        self._maybe_acks: dict[MessageKey, None] = {}
        self._waived: dict[int, str] = {}
        self._open: dict[MessageKey, None] = {}
        self._wrong: list[str] = []
        self._early: list[tuple[int, str]] = []
        self._names: dict[bytes, MessageKey] = {}
        self._leased_until_us: dict[tuple[MessageKey, int], int] = {}

    # -------------------------------------------------------------- what happens

    def inserted(self, key: MessageKey, payload: bytes, due_ms: int, first: int, rank: int = 0) -> None:
        """An insert was acknowledged."""
        message = self.messages[key] = Message(payload, due_ms, first, ranks=[rank], fate=self.fate_of(key))
        differs = self.row_differs(key, payload, due_ms)
        if differs:
            self._wrong.append(f"{name_of(key)}: {differs}")
        self._open[key] = None
        self._known_as(payload, key)
        message.waived = self._waived.get(key[0], "")
        for delivery in self.strangers.pop(key, []):
            self._judge(key, message, delivery)
        message.maybe_acked = key in self._maybe_acks
        if key in self._early_acks:
            message.acked_at_us, message.acked_token = self._early_acks.pop(key)

    def fired(self, key: MessageKey, payload: bytes, due_ms: int, first: int, rank: int) -> None:
        """A recurrence has made a message: it is owed, and others may have the same payload."""
        self.messages[key] = Message(
            payload, due_ms, first, ranks=[rank], waived=self._waived.get(key[0], ""), fate=self.fate_of(key)
        )
        self._open[key] = None

    def taken_back(self, key: MessageKey, token: int) -> None:
        """A recurrence has taken a message back, and the lease under this token: nobody was given it, nor will be.

        Earlier leases do not matter: a message that was released or redriven is as if it had never been tried.
        """
        message = self.messages[key]
        message.cancelled_at_us = 0
        for delivery in message.deliveries:
            if delivery.token == token:
                self._wrong.append(f"{name_of(key)}: taken back, and was delivered: {delivery}")

    def acked(self, key: MessageKey, at_us: int, token: int = 0) -> None:
        """An ack was confirmed (perhaps before the insert's own answer came, perhaps once more)."""
        message = self.messages.get(key)
        known = None
        if message is None:
            known = self._early_acks.setdefault(key, (at_us, token))
        elif message.acked_at_us is not None:
            known = (message.acked_at_us, message.acked_token)
        else:
            message.acked_at_us, message.acked_token = at_us, token
        if known is not None and known[1] != token:
            self._wrong.append(f"{name_of(key)}: acknowledged twice, under tokens {known[1]} and {token}")

    def maybe_acked(self, key: MessageKey) -> None:
        """The consumer that acknowledged it will never know whether that has happened."""
        message = self.messages.get(key)
        if message is None:
            self._maybe_acks[key] = None
        elif message.acked_at_us is None:
            message.maybe_acked = True

    def refused_in_time(self, key: MessageKey, what: str) -> None:
        """An ack that its leader had long before the lease was over has come too late: it comes again needlessly."""
        self._wrong.append(f"{name_of(key)}: {what}")

    def misanswered(self, what: str) -> None:
        """A request has been answered as it never may be."""
        self._wrong.append(what)

    def text_of(self, key: MessageKey) -> str:
        """The id of a message whose insert was acknowledged."""
        return ids.to_text(ids.MessageId(self.messages[key].first, *key))

    def cancelled(self, key: MessageKey, asked_at_us: int, at_us: int) -> None:
        """A cancel was confirmed."""
        message = self.messages[key]
        message.cancelled_at_us = at_us
        self._nobody_holds(key, message, asked_at_us, at_us, "cancelled")

    def _nobody_holds(self, key: MessageKey, message: Message, asked_us: int, at_us: int, what: str) -> None:
        for delivery in message.deliveries:
            if delivery.at_us < asked_us and delivery.held_until_us > at_us:
                self._wrong.append(f"{name_of(key)}: {what} while a consumer holds it: {delivery}")

    def leased(self, key: MessageKey, token: int, until_us: int) -> None:
        """A push has left (or was passed on), with a lease that its leader keeps until then (true time)."""
        self._leased_until_us[key, token] = max(until_us, self._leased_until_us.get((key, token), 0))

    def delivered(self, key: MessageKey, delivery: Delivery) -> None:
        """A consumer was given a message."""
        self._not_longer(key, delivery)
        message = self.messages.get(key)
        if delivery.payload in self.refused:
            why = self.refused[delivery.payload]
            self._wrong.append(f"{name_of(key)}: delivered though its insert was refused: {why}")
        if message is None:
            self._known_as(delivery.payload, key)
            self._maybe_acks.pop(key, None)
            self.strangers.setdefault(key, []).append(delivery)
        else:
            self._judge(key, message, delivery)

    def _not_longer(self, key: MessageKey, delivery: Delivery) -> None:
        """No consumer relies on a lease for longer than the leader keeps it."""
        until_us = self._leased_until_us.get((key, delivery.token))
        if until_us is None:
            return
        longer_us = delivery.lease_until_us - until_us
        if longer_us > max(until_us - delivery.at_us, 0) * _DRIFT_PPM // 1_000_000:
            self._wrong.append(
                f"{name_of(key)}: its consumer relies on the lease {longer_us} us longer than it is: {delivery}"
            )

    def moved(self, key: MessageKey, due_ms: int, at_us: int, asked_at_us: int | None = None) -> None:
        """A move was confirmed (asked for at `asked_at_us`)."""
        message = self.messages[key]
        if asked_at_us is not None:
            self._nobody_holds(key, message, asked_at_us, at_us, "moved")
        message.moves.append(due_ms)
        message.moved_at_us = at_us

    def ranked(self, key: MessageKey, rank: int, at_us: int, asked_at_us: int) -> None:
        """A change of the rank was confirmed."""
        message = self.messages[key]
        self._nobody_holds(key, message, asked_at_us, at_us, "given another rank")
        message.ranks.append(rank)
        message.ranked_at_us = at_us

    def waive(self, uids: list[int], why: str) -> None:
        """Nothing is owed to the messages of these partitions any more."""
        self._waived |= dict.fromkeys(uids, why)
        for key, message in self.messages.items():
            if key[0] in uids:
                message.waived = message.waived or why

    # -------------------------------------------------------------- verdicts

    def done(self) -> bool:
        """Whether every message is finished and nothing wrong was seen."""
        return not self._wrong and not self._still_open()

    @property
    def wrong(self) -> list[str]:
        """Forbidden observations so far, apart from early deliveries and unfinished work."""
        return self._wrong

    def verdicts(self, *, clock_error_us: int = 0) -> list[str]:
        """Return everything that must not have happened; empty when all is well.

        Args:
            clock_error_us: how early a delivery may seem because of the bound on clocks.
        """
        wrong = self._wrong + [text for early_us, text in self._early if early_us > clock_error_us]
        for key in self._still_open():
            message = self.messages[key]
            wrong.append(f"{name_of(key)}: {'never finished' if message.deliveries else 'lost'}")
        for key, deliveries in self.strangers.items():
            if any(delivery.payload not in self.unacknowledged for delivery in deliveries):
                wrong.append(f"{name_of(key)}: unexpected")
        return wrong

    def _still_open(self) -> list[MessageKey]:
        self._open = {key: None for key in self._open if not self.messages[key].settled}
        return [key for key in self._open if not self.messages[key].finished]

    def _known_as(self, payload: bytes, key: MessageKey) -> None:
        known = self._names.setdefault(payload, key)
        if known != key:
            self._wrong.append(f"{name_of(key)}: inserted twice, also as {name_of(known)}")
        if wrong := self.requests.seen(payload):
            self._wrong.append(f"{name_of(key)}: {wrong}")

    def _judge(self, key: MessageKey, message: Message, delivery: Delivery) -> None:
        wrong: list[str] = []
        if delivery.payload != message.payload:
            wrong.append("delivered with another payload")
        early_us = message.earliest_ms(delivery.at_us) * 1000 - delivery.at_us
        if early_us > 0:
            self._early.append((early_us, f"{name_of(key)}: delivered early by {early_us} us: {delivery}"))
        if delivery.rank not in message.ranks_at(delivery.at_us):
            wrong.append(f"delivered with rank {delivery.rank}, not {message.ranks_at(delivery.at_us)}")
        if message.cancelled_at_us is not None and delivery.at_us > message.cancelled_at_us:
            wrong.append("delivered after a confirmed cancel")
        if message.acked_at_us is not None and delivery.at_us > message.acked_at_us:
            wrong.append("acknowledged and delivered again")
        for earlier in message.deliveries:
            slack_us = (earlier.lease_until_us - earlier.at_us) * _DRIFT_PPM // 1_000_000
            older, newer = sorted((earlier.token, delivery.token))
            came_back = any(older < at < newer for at in message.fate.redrives)
            grows = (earlier.token - delivery.token) * (earlier.attempt - delivery.attempt) >= 0
            if not grows and not came_back:
                wrong.append(f"its attempts do not grow with its tokens: {earlier} {delivery}")
            if earlier.consumer != delivery.consumer and delivery.at_us < earlier.held_until_us - slack_us:
                wrong.append(f"delivered twice while a lease was valid: {earlier} {delivery}")
        message.maybe_acked = False
        message.deliveries.append(delivery)
        self._wrong.extend(f"{name_of(key)}: {text}" for text in wrong)
