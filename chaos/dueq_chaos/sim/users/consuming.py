"""A user of a simulated SDK client that consumes, well or badly.

It acts as the SDK's synchronous face does for a program, and notes in the history what it was told.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from dueq import limits
from dueq.client import calls
from dueq.client.core import Delivery
from dueq.client.core.ports import effects, events
from dueq.client.endings import Ending
from dueq.errors import TopicNotFound
from dueq_chaos.sim.environment.sdk import ConsumerEffect, SimClient
from dueq_chaos.sim.judging import history as told
from dueq_chaos.sim.judging.history import History, MessageKey, name_of
from dueq_chaos.sim.users.habits import Habits
from dueq_chaos.sim.users.headings import headings_of
from dueq_codecs.records import Fate, Outcome, RecordKind

_TIMEOUT_US = 20_000_000
_IN_TIME_US = 250_000
"""An ack that its consumer sends so long before the end of the lease is in time, if nothing holds it up."""
_TOLD_US = 100_000
"""By then a user has been told that a lease is over."""
_PATIENT_US = 600_000
"""The same of an ack that waits for company, at its consumer and at the leader."""
_SETTLED_US = 5_000
"""By then the session machine has sent what it was asked to."""


def _forget() -> None:
    """Let its lease run out."""


class ConsumingUser:
    """Opens a consumer, handles its messages as its habits say, and opens another one when it has failed.

    Attributes:
        habits: may be changed at any time.
        weather: of a partition: None while anything may hold up what travels; else what names the leadership and
            the last change of the weather, so that two equal answers mean that nothing has happened between.
        calm_from: of a partition: the first record that was made in the present fine weather; None: it is not fine.
        open: whether a consumer is open or being opened.
        served_by_ms: (mesh time) until then its leaders may wait for an earlier process of its name.
        gone: the consumers that it has closed.
        name: its consumers have a name that outlives its processes, and this id; empty: they have none.
        detached: their leases outlive silence and goodbyes.
    """

    def __init__(
        self,
        client: SimClient,
        history: History,
        topic: str,
        *,
        credit: int,
        lease_ms: int,
        seed: int,
        name: bytes = b"",
        detached: bool = False,
    ) -> None:
        self.client, self.history, self.topic = client, history, topic
        self.credit, self.lease_ms = credit, lease_ms
        self.habits = Habits()
        self.weather: Callable[[int], object] = lambda uid: None
        self.calm_from: Callable[[int], int | None] = lambda uid: None
        self.random = Random(seed)
        self.careless = Random(seed * 0x9E3779B1 + 2)
        self.deadly = Random(seed * 0x9E3779B1 + 59)
        self.heading = Random(seed * 0x9E3779B1 + 71)
        self.open = False
        self.served_by_ms = 0
        self.gone: list[bytes] = []
        self.name, self.detached = name, detached
        self._closing = False
        self._id = b""
        self._inbox: list[Delivery] = []
        self._given_up: dict[tuple[int, int, int, int], None] = {}
        self._held: dict[Delivery, told.Delivery] = {}
        self._unsure: list[tuple[MessageKey, Delivery]] = []
        self._picking = False
        self.begin()

    def has_had(self, key: MessageKey, token: int) -> bool:
        """Whether the message has come under this lease or a later one (even if it is finished since)."""
        message = self.history.messages.get(key)
        deliveries = message.deliveries if message is not None else self.history.strangers.get(key, [])
        return (
            any(seen.token >= token for seen in deliveries)
            or any((waiting.uid, waiting.sequence, waiting.row) == key for waiting in self._inbox)
            or (*key, token) in self._given_up
        )

    @property
    def is_free(self) -> bool:
        """Whether it holds nothing, as far as it knows."""
        return not self._held and not self._inbox

    @property
    def held(self) -> list[Delivery]:
        """The messages that its user is at work on."""
        return [delivery for delivery in self._held if not delivery.settling and not delivery.lost]

    def give_up(self, delivery: Delivery) -> None:
        """Its user decides otherwise, elsewhere."""
        self._end(delivery)

    @property
    def consumer_id(self) -> bytes:
        """Of the consumer that is open."""
        return self._id

    # -------------------------------------------------------------- opening and closing

    def begin(self) -> None:
        """Open a consumer."""
        self.open = True
        self._id = self.name or self.client.draw_id()
        self._inbox, self._held, self._picking = [], {}, False
        self.client.consumers[self._id] = partial(self._received, self._id)
        life = self.client.world.wall_us if self.name else 0
        if life:
            self.history.begins(self._id, life)
            self.served_by_ms = life // 1000 + limits.CONSUMER_SESSION_MS
        call = calls.open_consumer(
            self._id, self.topic, self.credit, limits.CONSUMER_CREDIT_BYTES, self.lease_ms, life, self.detached,
        )  # fmt: skip
        self.client.call(call.build, _TIMEOUT_US, self._opened)

    def _opened(self, value: Any, failed: effects.Failed | None) -> None:
        if failed is not None:
            self.open = False
            if not isinstance(failed.error, TopicNotFound):
                self._later(1_000_000, self._reopen)

    def _reopen(self) -> None:
        if self.name and self._closing:
            self._later(100_000, self._reopen)  # its client has one consumer of a name
        elif not self.open:
            self.begin()

    def close(self, reopen_after_us: int) -> None:
        """Leave the `with`: what is not handled goes back; begin anew after a while."""
        if not self.open:
            return
        unhandled = [*self._inbox, *(d for d in self._held if not d.settling and not d.lost)]
        for delivery in unhandled:
            delivery.handed = True
            self._end(delivery)
        self._inbox = []
        self.open, self._closing = False, True
        self.client.world.tell(self.client.name, f"closes its consumer, {len(unhandled)} go back")
        call = calls.close_consumer(self._id, unhandled)
        self.client.call(call.build, _TIMEOUT_US, partial(self._closed, self._id))
        self._later(reopen_after_us, self._reopen)

    def _closed(self, consumer_id: bytes, value: Any, failed: effects.Failed | None) -> None:
        self._closing = False
        if failed is None and not self.name:
            self.gone.append(consumer_id)

    def crashed(self, restart_after_us: int) -> None:
        """Its process has died: it holds nothing any more; another process begins after a while."""
        self.history.acked_in_time.clear()  # what it has not sent yet, nobody will
        for key, delivery in self._unsure:
            if not delivery.outcome:
                self.history.maybe_acked(key)
        for noted in self._held.values():
            noted.ended_at_us = self.client.world.wall_us
        self._inbox, self._held, self._unsure = [], {}, []
        self.open = self._closing = False

        def again() -> None:
            if self.client.core is None:
                self.client.start()
            self._reopen()

        self.client.world.after(restart_after_us, again)

    def _later(self, delay_us: int, action: Any) -> None:
        life = self.client.life

        def run() -> None:
            if self.client.life == life and self.client.core is not None:
                action()

        self.client.world.after(delay_us, run)

    # -------------------------------------------------------------- what comes

    def _received(self, consumer_id: bytes, effect: ConsumerEffect) -> None:
        if consumer_id != self._id:
            return
        if isinstance(effect, effects.Deliver):
            if not self.open:
                return  # it has come while the user left the `with`, and goes back with the goodbye
            self._inbox.extend(effect.deliveries)
            self._within_credit()
            self._pick_soon()
        elif isinstance(effect, effects.LeaseLost):
            self._given_up |= {(d.uid, d.sequence, d.row, d.token): None for d in effect.deliveries}
            for delivery in effect.deliveries:
                self._end(delivery)
            back = self._take_back(effect.deliveries)
            if effect.returning:
                self._release(back)
        elif isinstance(effect, effects.Reclaim):
            self._release(self._take_back(effect.deliveries))
        else:
            self.client.world.tell(self.client.name, f"consumer failed: {effect.error!r}")
            self.open = False
            if not isinstance(effect.error, TopicNotFound):
                self._later(500_000, self._reopen)

    def _within_credit(self) -> None:
        """Undecided messages are no more than it asked for, of those that were leased in the present fine weather.

        A leader that was silent pushes again what it had leased, though others have its credit by now; one that takes
        over adds what its predecessor has leased; one that gives up a partition counts its leases no longer. A lease
        that is over by its own count, and that it is about to be told of, has been the leader's to give again.
        """
        undecided = [*self._inbox, *self._held]
        since = {uid: self.calm_from(uid) for uid in {delivery.uid for delivery in undecided}}
        if len(undecided) > self.credit:
            now_us, held = self.client.world.now_us, 0
            for delivery in undecided:
                first = since[delivery.uid]
                held += first is not None and delivery.token >= first and delivery.deadline_us > now_us
            if held > self.credit:
                self.history.wrong.append(
                    f"{self.client.name} holds {held} messages, of {self.credit} at most"
                )

    def _take_back(self, deliveries: list[Delivery]) -> list[Delivery]:
        unhandled = [delivery for delivery in deliveries if not delivery.handed]
        for delivery in unhandled:
            delivery.handed = True
        self._inbox = [delivery for delivery in self._inbox if not delivery.handed]
        return unhandled

    def _release(self, unhandled: list[Delivery]) -> None:
        if unhandled:
            self.client.submit(events.Settle(self._id, RecordKind.RELEASE, unhandled))

    def _pick_soon(self) -> None:
        if not self._picking:
            self._picking = True
            self._later(self.random.randint(*self.habits.idle_us), self._pick)

    def _pick(self) -> None:
        """The user's loop: take what is there, each as long as it takes."""
        self._picking = False
        inbox, self._inbox = self._inbox, []
        now_us = self.client.world.now_us
        for delivery in inbox:
            if delivery.lost or delivery.deadline_us <= now_us:
                continue
            delivery.handed = True
            self._hand_out(delivery)

    def _hand_out(self, delivery: Delivery) -> None:
        world = self.client.world
        key = (delivery.uid, delivery.sequence, delivery.row)
        noted = told.Delivery(
            world.wall_us, f"{self.client.name}#{self._id[:3].hex()}", delivery.token, delivery.attempt,
            self._payload_of(key, delivery), world.wall_us + delivery.deadline_us - world.now_us, rank=delivery.rank,
        )  # fmt: skip
        self._check_headers(key, delivery)
        self._held[delivery] = noted
        world.tell(self.client.name, f"got {name_of(key)} token {delivery.token} attempt {delivery.attempt}")
        self.history.delivered(key, noted)
        self._comes_again(key, delivery.token)
        self._later(self.random.randint(*self.habits.work_us), partial(self._decide, self._id, key, delivery))

    def _payload_of(self, key: MessageKey, delivery: Delivery) -> bytes:
        """Return the message's name in notes: its payload, or its key if it has a shared body, which must be whole."""
        name, payload = delivery.key.encode(), bytes(delivery.payload)
        expected = self.history.shared.get(name)
        if expected is None:
            return payload
        if payload != expected:
            found = f"{len(payload)} bytes, not {len(expected)} of its shared body"
            self.history.wrong.append(f"{name_of(key)} came with another payload: {found}")
        return name

    def _check_headers(self, key: MessageKey, delivery: Delivery) -> None:
        """Nobody gets other headers than were scheduled, unless a NACK may have replaced them.

        Messages that come then are looked at as they leave their leader (`invariants`).
        """
        if key in self.history.reheaded:
            return
        payload = self._payload_of(key, delivery)
        expected = headings_of(payload) if payload in self.history.headed else {}
        if dict(delivery.headers) != expected:
            found = f"{dict(delivery.headers)!r:.200}, not {expected!r:.200}"
            self.history.wrong.append(f"{name_of(key)} came with the headers {found}")

    # -------------------------------------------------------------- what it does with it

    def _decide(self, consumer_id: bytes, key: MessageKey, delivery: Delivery) -> None:
        if consumer_id != self._id or not self.open or delivery not in self._held:
            return
        habits, chance = self.habits, self.random.random()
        choices: tuple[tuple[float, Callable[[], None]], ...] = (
            (habits.nack, partial(self._nack, delivery)),
            (habits.extend, partial(self._extend, key, delivery)),
            (habits.forget, _forget),
            (habits.late, partial(self._ack_late, key, delivery)),
        )
        for share, action in choices:
            if chance < share:
                action()
                return
            chance -= share
        self._ack(key, delivery)
        if self.random.random() < habits.twice:
            self._ack(key, delivery)

    def _ack(self, key: MessageKey, delivery: Delivery) -> None:
        if self.habits.patient and self.random.random() < self.habits.patient:
            self._ack_without_waiting(key, delivery)
            return
        now_us = self.client.world.now_us
        left_us = delivery.deadline_us - now_us if delivery in self._held else 0
        weather = self.weather(key[0]) if left_us > _IN_TIME_US else None
        self._end(delivery)
        self._unsure.append((key, delivery))
        call = calls.settle(self._id, RecordKind.ACK, [delivery], Ending())
        self.client.call(call.build, _TIMEOUT_US, partial(self._acked, key, delivery, weather))

    def _ack_without_waiting(self, key: MessageKey, delivery: Delivery) -> None:
        """Its outcome is not told; if nothing holds it up, the message does not come again."""
        left_us = delivery.deadline_us - self.client.world.now_us if delivery in self._held else 0
        weather = self.weather(key[0]) if left_us > _PATIENT_US else None
        self._end(delivery)
        self.history.maybe_acked(key)
        if weather is not None:
            self.history.acked_in_time[key] = (delivery.token, weather)
        self.client.submit(events.Settle(self._id, RecordKind.ACK, [delivery]))

    def _comes_again(self, key: MessageKey, token: int) -> None:
        """Judge a message that comes though it was acknowledged, if nothing can have held that up."""
        acked, weather = self.history.acked_in_time.pop(key, (token, None))
        if acked < token and weather is not None and weather == self.weather(key[0]):
            self.history.refused_in_time(key, f"acknowledged in time under token {acked}, and comes again")

    def _acked(
        self, key: MessageKey, delivery: Delivery, weather: object, outcomes: list[Outcome] | None,
        failed: effects.Failed | None,
    ) -> None:  # fmt: skip
        if failed is not None:
            self.history.maybe_acked(key)
            return
        assert outcomes is not None
        self._unsure = [pair for pair in self._unsure if pair[1] is not delivery]
        self.client.world.tell(self.client.name, f"ack of {name_of(key)}: {outcomes[0].name}")
        if outcomes[0] is Outcome.DONE:
            self.history.acked(key, self.client.world.wall_us, delivery.token)
        elif outcomes[0] is Outcome.UNKNOWN:
            self.history.maybe_acked(key)
        elif weather is not None and weather == self.weather(key[0]):
            self.history.refused_in_time(
                key, f"acknowledged in time, and refused as {outcomes[0].name}: token {delivery.token}"
            )

    def _ack_late(self, key: MessageKey, delivery: Delivery) -> None:
        """Long after its lease is over."""
        after_us = max(delivery.deadline_us - self.client.world.now_us, 0) + self.random.randint(1, 3_000_000)
        consumer_id = self._id

        def ack() -> None:
            if self.open and consumer_id == self._id:
                self._ack(key, delivery)

        self._later(after_us, ack)

    def _nack(self, delivery: Delivery) -> None:
        self._end(delivery)
        delay_ms = self.random.choice([0, 10, 500, 3_000])
        fate, reason, headers = Fate.DELAY, "", ""
        if self.habits.kill or self.habits.back_off:
            chance, reason = self.deadly.random(), self.deadly.choice(["", "no", "it does not work"])
            kills = chance < self.habits.kill
            fate = Fate.DEAD if kills else Fate.BACK_OFF if chance < self.habits.back_off else Fate.DELAY
            delay_ms = delay_ms if fate is Fate.DELAY else 0
            headers = self.heading.choice(["", "{}", f'{{"nacked":"{delivery.token}"}}'])
            if kills:
                fate_of_it = self.history.fate_of((delivery.uid, delivery.sequence, delivery.row))
                fate_of_it.doomed.add(delivery.token)
        self.client.submit(
            events.Settle(
                self._id, RecordKind.NACK, [delivery], delay_ms, fate=fate, reason=reason, headers=headers
            )
        )
        if headers:
            self.history.reheaded.add((delivery.uid, delivery.sequence, delivery.row))

    def _extend(self, key: MessageKey, delivery: Delivery) -> None:
        amount_ms = self.random.choice([self.lease_ms, 2 * self.lease_ms])
        if self.careless.random() < self.habits.shorten:
            self._extend_anyhow(key, delivery)
            return
        noted, consumer_id = self._held[delivery], self._id
        call = calls.settle(self._id, RecordKind.EXTEND, [delivery], Ending(amount_ms))

        def extended(outcomes: list[Outcome] | None, failed: effects.Failed | None) -> None:
            if failed is None and outcomes == [Outcome.DONE] and not delivery.lost:
                world = self.client.world
                noted.lease_until_us = world.wall_us + delivery.deadline_us - world.now_us
            if self.open and consumer_id == self._id and not delivery.settling and not delivery.lost:
                self._ack(key, delivery)

        def believe() -> None:
            """The request as the machine sends it before it is answered: the user relies on that."""
            if delivery in self._held and not delivery.lost:
                world = self.client.world
                noted.lease_until_us = world.wall_us + delivery.deadline_us - world.now_us

        self.client.call(call.build, _TIMEOUT_US, extended)
        self._later(_SETTLED_US, believe)

    def _extend_anyhow(self, key: MessageKey, delivery: Delivery) -> None:
        """To one length or several, at once or in turn, shorter than what is left among them; then work on."""
        random, world = self.careless, self.client.world
        noted, consumer_id = self._held[delivery], self._id
        at_us = 0
        for _ in range(random.choice([1, 1, 2, 3])):
            length_ms = random.choice(
                [limits.LEASE_MS_MIN, 150, 400, 1_000, self.lease_ms, 2 * self.lease_ms]
            )
            self._later(at_us, partial(self._ask_for, consumer_id, key, delivery, noted, length_ms))
            at_us += random.choice([0, 1_000, 200_000])
        world.tell(self.client.name, f"extends {name_of(key)}")
        self._later(
            at_us + random.randint(1_000, 3_000_000), partial(self._ack_if_held, consumer_id, key, delivery)
        )

    def _ask_for(
        self, consumer_id: bytes, key: MessageKey, delivery: Delivery, noted: told.Delivery, length_ms: int
    ) -> None:
        world = self.client.world
        if consumer_id != self._id or delivery not in self._held or delivery.lost:
            return
        asked_us = world.now_us
        answered: list[bool] = []

        def rely() -> None:
            """The user relies on what the machine makes of it, before and after the answer."""
            if delivery in self._held and not delivery.lost:
                noted.lease_until_us = world.wall_us + delivery.deadline_us - world.now_us
                longest_us = asked_us + length_ms * 1000 + _SETTLED_US
                if not answered and delivery.deadline_us > longest_us:
                    self.history.misanswered(
                        f"{name_of(key)}: believed {delivery.deadline_us - longest_us} us longer than was asked for"
                    )

        def look(outcomes: list[Outcome] | None, failed: effects.Failed | None) -> None:
            answered.append(True)
            rely()
            if delivery in self._held:
                self._later(max(delivery.deadline_us - world.now_us, 0) + _TOLD_US, over)

        def over() -> None:
            since_us = world.now_us - delivery.deadline_us
            if delivery in self._held and not (delivery.lost or delivery.settling) and since_us >= _TOLD_US:
                self.history.misanswered(f"{name_of(key)}: its holder is not told that its lease is over")

        call = calls.settle(consumer_id, RecordKind.EXTEND, [delivery], Ending(length_ms))
        self.client.call(call.build, _TIMEOUT_US, look)
        self._later(_SETTLED_US, rely)
        self._later(length_ms * 1000 + _SETTLED_US + _TOLD_US, over)

    def _ack_if_held(self, consumer_id: bytes, key: MessageKey, delivery: Delivery) -> None:
        if self.open and consumer_id == self._id and delivery in self._held and not delivery.lost:
            self._ack(key, delivery)

    def _end(self, delivery: Delivery) -> None:
        noted = self._held.pop(delivery, None)
        if noted is not None and noted.ended_at_us is None:
            noted.ended_at_us = self.client.world.wall_us
