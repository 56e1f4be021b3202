"""Consumers that reach their leaders through another broker only."""

from __future__ import annotations

from dueq_chaos.scenarios.stage import Stage
from dueq_chaos.sim.users.consuming import ConsumingUser
from dueq_chaos.sim.users.habits import Habits
from dueq_chaos.sim.users.producing import ProducingUser

COUNT = 20


def consuming(stage: Stage, name: str, reach: list[str] | None = None) -> ConsumingUser:
    client = stage.sdk(name, reach)
    user = ConsumingUser(client, stage.history, stage.topic, credit=64, lease_ms=30_000, seed=1)
    user.habits = Habits()
    return user


def test_what_a_relay_cannot_deliver_goes_to_others_at_once() -> None:
    """The leader cannot see that the consumer has died; leases to it would have ended after half a minute."""
    stage = Stage()
    [uid] = stage.uids
    other = next(name for name in stage.names if name != stage.leader_of(uid))
    far, near = consuming(stage, "far", [other]), consuming(stage, "near")
    writer = ProducingUser(stage.sdk("writer"), stage.history)
    stage.run_ms(1_000)
    far.client.crash()
    stage.run_ms(100)
    due_ms = stage.now_ms + 500
    writer.schedule(stage.topic, [b"%d" % number for number in range(COUNT)], [due_ms] * COUNT)
    stage.until(
        lambda: len(stage.history.messages) == COUNT and stage.history.done(), "every message handled"
    )
    deliveries = [delivery for message in stage.history.messages.values() for delivery in message.deliveries]
    assert {delivery.consumer.partition("#")[0] for delivery in deliveries} == {near.client.name}
    assert {delivery.attempt for delivery in deliveries} == {1}, "what did not arrive does not count"
    assert max(delivery.at_us for delivery in deliveries) < (due_ms + 1_000) * 1_000
