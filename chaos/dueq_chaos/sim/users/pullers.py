"""Users who pull: they take messages once, and settle them later by id and token, from another process.

A lease that was pulled belongs to no connection: it lasts through the end of the process that pulled it, and through a
change of leader. A consumer with a name that pulls again gets back the leases that it does not list as held.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

from dueq import limits
from dueq.client import pulls
from dueq.client.core import Delivery, PartsCall
from dueq.client.core.ports import effects
from dueq_chaos.sim.environment.mesh import SimMesh
from dueq_chaos.sim.judging import history as told
from dueq_chaos.sim.judging.history import MessageKey, name_of
from dueq_codecs.records import Outcome

_CALL_US = 15_000_000
_IDLE_S = 20.0
"""How long one in three pulls waits: longer than a leader believes it without being told so."""
_LONG_MS = 30_000
"""A lease that is longer than a session without a sign of life."""
_EXTENSION_S = 3.0
_ALL_FROM = 92_000_000
"""From this seed on some pulls take as many messages as a pull may."""
_ALL = 0.15
_HOW = ("ack", "ack", "ack", "nack", "release", "forget", "extend")


class Pullers:
    """Two processes: one pulls, either settles; the first dies now and then.

    Args:
        mesh: where.
        wire: whether frames go through the codecs.
    """

    def __init__(self, mesh: SimMesh, wire: bool) -> None:
        self._mesh = mesh
        self._clients = [mesh.sdk("puller"), mesh.sdk("settler")]
        for client in self._clients:
            client.wire = wire
        self._calm = False
        self._pulls = 0

    def calm(self) -> None:
        """Nothing is pulled any more."""
        self._calm = True

    def do(self, kind: str, topic: str, random: Random) -> None:
        """Pull once; work for a while, and settle."""
        puller = self._clients[0]
        if puller.core is None:
            puller.start()
        self._pulls += 1
        lease_ms = random.choice([400, 1_500, 5_000, _LONG_MS])
        count, wait_s = random.choice([1, 3, 20]), random.choice([0.0, 0.2, 2.0])
        if self._mesh.world.seed >= _ALL_FROM and random.random() < _ALL:
            count = limits.PULL_ROWS_MAX
        # Each name is used once: what it holds is never asked back while its user works on it.
        consumer = f"puller-{self._pulls}" if kind == "pull by name" else None
        if consumer is not None:
            self._mesh.pulled_by(topic, consumer)
        if self._pulls % 3 == 0:
            wait_s = _IDLE_S
        call, _ = pulls.pull(topic, count, wait_s, lease_ms / 1000, consumer, ())
        works_us = (200, 20_000_000 if lease_ms == _LONG_MS else 2_000_000)
        answer = partial(self._pulled, topic, f"pull-{self._pulls}", random, puller.life, works_us)
        puller.call(call.build, _CALL_US + int(wait_s * 1_000_000), answer)
        if random.random() < 0.15:
            self._mesh.world.after(random.randint(1_000, 2_000_000), self._die)

    def _die(self) -> None:
        if not self._calm:
            self._clients[0].crash()

    def _pulled(
        self, topic: str, holder: str, random: Random, life: int, works_us: tuple[int, int],
        value: list[Delivery] | None, failed: effects.Failed | None,
    ) -> None:  # fmt: skip
        if failed is not None or self._clients[0].life != life:
            return
        assert value is not None
        world = self._mesh.world
        for delivery in value:
            key = (delivery.uid, delivery.sequence, delivery.row)
            noted = told.Delivery(
                world.wall_us, holder, delivery.token, delivery.attempt, self._payload_of(delivery),
                world.wall_us + delivery.deadline_us - world.now_us, rank=delivery.rank,
            )  # fmt: skip
            world.tell("puller", f"got {name_of(key)} token {delivery.token} attempt {delivery.attempt}")
            self._mesh.history.delivered(key, noted)
            how = "ack" if self._calm else random.choice(_HOW)
            settle = partial(self._settle, topic, how, key, delivery, noted)
            world.after(random.randint(*works_us), settle)

    def _payload_of(self, delivery: Delivery) -> bytes:
        """Return the message's name in notes: its payload, or its key if it has a shared body."""
        name, payload = delivery.key.encode(), bytes(delivery.payload)
        return name if self._mesh.history.shared.get(name) == payload else payload

    def _settle(
        self, topic: str, how: str, key: MessageKey, delivery: Delivery, noted: told.Delivery
    ) -> None:
        if how == "forget":
            return
        settler = self._clients[1]
        leases = [(delivery.id, delivery.token)]
        seconds = _EXTENSION_S if how == "extend" else None
        call = pulls.settle(topic, leases, how, None, seconds, "", False)
        if how in ("nack", "release"):
            noted.ended_at_us = self._mesh.world.wall_us
        elif how == "extend":  # to less than is left, perhaps: the shorter one counts from now on
            until_us = self._mesh.world.wall_us + int(_EXTENSION_S * 1_000_000)
            noted.lease_until_us = min(noted.lease_until_us, until_us)
        settler.call(call.build, _CALL_US, partial(self._settled, topic, how, key, delivery, noted))

    def _settled(
        self, topic: str, how: str, key: MessageKey, delivery: Delivery, noted: told.Delivery, value: Any,
        failed: effects.Failed | None,
    ) -> None:  # fmt: skip
        world, history = self._mesh.world, self._mesh.history
        outcome = value.outcomes()[0] if isinstance(value, PartsCall) and failed is None else Outcome.UNKNOWN
        world.tell("settler", f"{how} of {name_of(key)}: {outcome.name}")
        if how == "ack":
            noted.ended_at_us = noted.ended_at_us or world.wall_us
            if outcome is Outcome.DONE:
                history.acked(key, world.wall_us, delivery.token)
            elif outcome is Outcome.UNKNOWN:
                history.maybe_acked(key)
        elif how == "extend" and outcome is Outcome.DONE:
            world.after(1_000_000, partial(self._settle, topic, "ack", key, delivery, noted))
