"""Users who do things that the SDK allows and nobody should do: wrong ids, ids twice, stale tokens, impatient calls."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Final

from dueq.client import calls
from dueq.client.core import Delivery
from dueq.client.core.ports import effects
from dueq.client.endings import Ending
from dueq_chaos.sim.environment.mesh import SimMesh
from dueq_chaos.sim.environment.sdk import ANYTHING
from dueq_chaos.sim.environment.world import World
from dueq_chaos.sim.judging.history import History, MessageKey, name_of
from dueq_chaos.sim.users.consuming import ConsumingUser
from dueq_chaos.sim.users.naming import Named, finished_name, wrong_name
from dueq_chaos.sim.users.producing import ProducingUser
from dueq_chaos.sim.users.ranks import Ranks
from dueq_chaos.sim.users.readers import BrowsingUser
from dueq_codecs.messages import ConsumerAction
from dueq_codecs.records import Outcome, RecordKind

_CALL_US: Final = 20_000_000
_SETTLING: Final = (RecordKind.ACK, RecordKind.NACK, RecordKind.EXTEND, RecordKind.RELEASE)
_TAKEN: Final = (Outcome.DONE, Outcome.LEASED)
_TAKEN_IN_US: Final = 20_000
"""By then a broker that is not held up has taken in the frames that were sent to it."""
_LATER: Final = 1 << 40
"""A token that no lease reaches."""


class CarelessUsers:
    """A producing process of its own, one that browses, and what goes wrong in the consuming ones.

    Args:
        mesh: where.
        topic: what is written to, and read.
        uids: its partitions.
        consumers: the ones whose leases are handled badly.
        wire: whether frames go through the codecs.
        ranks: how messages of the topic are ranked; None: it has no ranks.
    """

    def __init__(
        self,
        mesh: SimMesh,
        topic: str,
        uids: Sequence[int],
        consumers: Sequence[ConsumingUser],
        wire: bool,
        ranks: Ranks | None = None,
    ) -> None:
        self.mesh, self.topic, self.uids, self.consumers = mesh, topic, uids, consumers
        self.ranks = ranks
        self.wire = wire
        self.producer = ProducingUser(mesh.sdk("careless"), mesh.history)
        self.producer.client.wire, self.producer.client.asks_nonsense = wire, ANYTHING
        self._reader: BrowsingUser | None = None
        self._count = 0
        self._kinds: dict[str, Callable[[Random], None]] = {
            "wrong ids": self._wrong_ids,
            "ids twice": self._ids_twice,
            "long list": self._long_list,
            "late retry": self._late_retry,
            "forked producer": self._forked,
            "stale tokens": self._stale_tokens,
            "settled twice": self._settled_twice,
            "late frames of the gone": self._late_frames,
            "browse": self._browse,
            "hung up": self._hung_up,
        }

    def do(self, kind: str, random: Random) -> None:
        """Do one thing."""
        self._kinds[kind](random)

    # -------------------------------------------------------------- ids

    def _chosen(self, random: Random, most: int) -> list[MessageKey]:
        alterable = [
            key
            for key, message in self.mesh.history.messages.items()
            if not (message.finished or message.unsure) and key[0] in self.uids
        ]
        return random.sample(alterable, min(random.randint(1, most), len(alterable)))

    def _ask(self, random: Random, names: list[Named], timeout_us: int = _CALL_US) -> None:
        if names:
            now_ms = self.mesh.world.wall_us // 1000
            dues = [now_ms + random.randint(-100, 5_000) for _ in names] if random.random() < 0.6 else None
            ranks = self.ranks.others(len(names)) if self.ranks and self.ranks.chance(0.5) else None
            self.producer.alter_named(self.topic, names, dues, timeout_us, ranks)

    def _right(self, keys: list[MessageKey]) -> list[Named]:
        return [Named(self.mesh.history.text_of(key), key) for key in keys]

    def _wrong_ids(self, random: Random) -> None:
        """Ids of no message, alone or beside the right ones of the same messages."""
        keys = self._chosen(random, 6)
        names = [wrong_name(random, self.mesh.history, key, self.uids) for key in keys]
        gone = finished_name(random, self.mesh.history)
        if gone is not None:
            names.append(gone)
        if random.random() < 0.5:
            names += self._right(keys)
        random.shuffle(names)
        self._ask(random, names, random.choice([_CALL_US, random.randint(500, 500_000)]))

    def _ids_twice(self, random: Random) -> None:
        names = self._right(self._chosen(random, 5))
        names += [random.choice(names) for _ in range(len(names))]
        if random.random() < 0.5 and names:
            key = names[0].key
            assert key is not None
            names.append(wrong_name(random, self.mesh.history, key, self.uids))
        random.shuffle(names)
        self._ask(random, names)

    def _long_list(self, random: Random) -> None:
        """More names than one request holds."""
        names = self._right(self._chosen(random, 20))
        if names:
            key = names[0].key
            assert key is not None
            wrong = [wrong_name(random, self.mesh.history, key, self.uids) for _ in range(40)]
            names += [random.choice(wrong) for _ in range(random.randint(500, 700))]
            random.shuffle(names)
            self._ask(random, names)

    # -------------------------------------------------------------- requests

    def _payloads(self, random: Random, what: bytes) -> list[bytes]:
        self._count += 1
        return [b"%s-%d-%d" % (what, self._count, row) for row in range(random.randint(1, 8))]

    def _late_retry(self, random: Random) -> None:
        """A call whose outcome is not learnt in time, and `retry()` a long time later."""
        self._impatient(random, random.randint(500, 5_000))

    def _impatient(self, random: Random, timeout_us: int) -> None:
        now_ms = self.mesh.world.wall_us // 1000
        payloads = self._payloads(random, b"late")
        dues = [now_ms + random.randint(0, 3_000) for _ in payloads]
        user = ProducingUser(self.producer.client, self.mesh.history)
        user.again_us, user.retry_timeout_us = (10_000, 12_000_000), _CALL_US
        user.schedule(self.topic, payloads, dues, timeout_us)

    def _hung_up(self, random: Random) -> None:
        """All connections break under a request, and its caller does not wait for others."""
        self._impatient(random, random.randint(3_000, 60_000))
        self.mesh.world.after(random.randint(200, 3_000), self.producer.client.hang_up)

    def _forked(self, random: Random) -> None:
        """A copy of the process: two that number their requests alike."""
        original = self.producer.client
        copied = self.mesh.sdks.get("forked") or self.mesh.sdk("forked")
        copied.wire, copied.asks_nonsense = self.wire, ANYTHING
        if copied.core is None or copied.client_id != original.client_id:
            copied.crash()
            copied.start(original.client_id)
        now_ms = self.mesh.world.wall_us // 1000
        for client in (original, copied):
            payloads = self._payloads(random, b"fork")
            dues = [now_ms + random.randint(-100, 2_000) for _ in payloads]
            ProducingUser(client, self.mesh.history).schedule(self.topic, payloads, dues)

    # -------------------------------------------------------------- leases

    def _holder(self, random: Random) -> tuple[ConsumingUser, Delivery] | None:
        holders = [
            user for user in self.consumers if user.open and user.client.core is not None and user.held
        ]
        if not holders:
            return None
        user = random.choice(holders)
        return user, random.choice(user.held)

    def _stale_tokens(self, random: Random) -> None:
        """A settling that names another lease than the present one, or another message."""
        found = self._holder(random)
        if found is None:
            return
        user, delivery = found
        forged = forgery(delivery)
        forged.token = random.choice([max(delivery.token - 1, 1), delivery.token + _LATER, delivery.token])
        if forged.token == delivery.token:
            forged.first += random.choice([1, 1_000])
        kind = random.choice(_SETTLING)
        self._settle(user, kind, [forged], partial(self._refused, forged, kind))

    def _refused(self, forged: Delivery, kind: RecordKind, outcomes: list[Outcome]) -> None:
        if outcomes[0] in _TAKEN:
            key = (forged.uid, forged.sequence, forged.row)
            text = f"{name_of(key)}: {kind.name} of a lease that there is not answered {outcomes[0].name}"
            self.mesh.history.misanswered(text)

    def _settled_twice(self, random: Random) -> None:
        """One lease twice, in one request or by two calls that decide otherwise: it ends once."""
        found = self._holder(random)
        if found is None:
            return
        user, delivery = found
        user.give_up(delivery)
        kinds = random.sample([RecordKind.ACK, RecordKind.NACK, RecordKind.RELEASE], 2)
        if random.random() < 0.5:
            kinds = kinds[:1]
        lease = _Lease(self.mesh.history, delivery)
        for kind in kinds:
            if kind is RecordKind.ACK:
                self.mesh.history.maybe_acked(lease.key)
            deliveries = [delivery] if len(kinds) > 1 else [delivery, forgery(delivery)]
            self._settle(user, kind, deliveries, partial(lease.settled, kind, self.mesh.world))

    def _settle(
        self,
        user: ConsumingUser,
        kind: RecordKind,
        deliveries: list[Delivery],
        judge: Callable[[list[Outcome]], None],
    ) -> None:
        for each in deliveries:
            self.mesh.history.fate_of((each.uid, each.sequence, each.row)).unsure.add(each.token)
        amount_ms = {RecordKind.NACK: 500, RecordKind.EXTEND: user.lease_ms}.get(kind, 0)
        call = calls.settle(user.consumer_id, kind, deliveries, Ending(amount_ms))

        def answered(outcomes: list[Outcome] | None, failed: effects.Failed | None) -> None:
            if outcomes is not None:
                judge(outcomes)

        user.client.call(call.build, _CALL_US, answered)

    # -------------------------------------------------------------- consumers that have gone

    def _late_frames(self, random: Random) -> None:
        """A goodbye comes once more, and after it, by another way, the attach that it has ended."""
        gone = [(user.client, consumer_id) for user in self.consumers for consumer_id in user.gone]
        if not gone:
            user = random.choice(self.consumers)
            user.close(random.randint(1_000, 3_000_000))
            return
        client, consumer_id = random.choice(gone)
        for broker, (identity, attach) in client.attaches.get(consumer_id, {}).items():
            node = self.mesh.nodes[broker]
            if node.core is None or node.paused or self._attached(broker, consumer_id):
                continue  # it is not there to hear, or has not heard of the end
            for action in (ConsumerAction.GOODBYE, ConsumerAction.ATTACH):
                node.client_frame(identity, replace(attach, action=action), [])
            self.mesh.world.after(_TAKEN_IN_US, partial(self._look_for, broker, consumer_id))

    def _look_for(self, broker: str, consumer_id: bytes) -> None:
        if self._attached(broker, consumer_id):
            text = f"{broker} has a session of {consumer_id.hex()}, which has said goodbye"
            self.mesh.history.misanswered(text)

    def _attached(self, broker: str, consumer_id: bytes) -> bool:
        node = self.mesh.nodes[broker]
        found = [node.core.partition(uid) for uid in self.uids] if node.core is not None else []
        return any(
            session.attached and session.consumer_id == consumer_id.hex()
            for partition in found
            if partition is not None and partition.replica.leading is not None
            for session in partition.dispatcher.sessions(node.now())
        )

    # -------------------------------------------------------------- reading

    def _browse(self, random: Random) -> None:
        if self._reader is None:
            self._reader = BrowsingUser(self.mesh, self.topic, self.wire)
        self._reader.browse(random)


class _Lease:
    """A lease that is settled more than once, and may be ended by one of them only."""

    def __init__(self, history: History, delivery: Delivery) -> None:
        self._history, self._token, self._done = history, delivery.token, 0
        self.key: MessageKey = (delivery.uid, delivery.sequence, delivery.row)

    def settled(self, kind: RecordKind, world: World, outcomes: list[Outcome]) -> None:
        """An answer."""
        self._done += outcomes.count(Outcome.DONE)
        if self._done > 1:
            self._history.misanswered(
                f"{name_of(self.key)}: one lease ended twice, the second time by {kind.name}"
            )
        elif kind is RecordKind.ACK and Outcome.DONE in outcomes:
            self._history.acked(self.key, world.wall_us, self._token)


def forgery(delivery: Delivery) -> Delivery:
    """Return a delivery that looks like this one, and is not the one that its consumer holds."""
    forged = copy.copy(delivery)
    forged.handed, forged.settling, forged.extension = True, False, None
    return forged
