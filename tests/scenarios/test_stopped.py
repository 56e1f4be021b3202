"""Named scenarios of replicas that stop at a record of a newer build: an older broker among newer ones."""

from __future__ import annotations

from dueq_chaos.scenarios.stage import Stage
from dueq_codecs.records import RecordKind


def stopped(*brokers: str, **options: int) -> Stage:
    """A mesh in which these brokers run an older build, and have met a record that they do not know."""
    stage = Stage(**options)
    for broker in brokers:
        stage.nodes[broker].lacks = frozenset({RecordKind.INSERT})
    hand = stage.hand("producer")
    hand.insert(stage.leader, [b"a new kind of record"], [stage.now_ms + 3_600_000])
    stage.until(lambda: all(stage.replica(broker).broken for broker in brokers), f"{brokers} stop")
    return stage


def upgrade(stage: Stage, broker: str) -> None:
    """Stop it, and start it with the newer build."""
    stage.nodes[broker].crash(goodbye=True)
    stage.nodes[broker].lacks = frozenset()
    stage.nodes[broker].start()


def test_a_stopped_replica_is_not_elected() -> None:
    """An upgrade half-way: the leader dies, and the preferred heir is the older broker."""
    stage = stopped("b2")
    stage.nodes["b1"].crash()
    stage.until(lambda: stage.leader_of(stage.uid) == "b3", "b3 serves", 5_000)
    stage.stored(b"committed with b2's ack")
    stage.expect(stage.isr() == ["b2", "b3"], "b2 still counts: its log is as good as any")
    upgrade(stage, "b2")
    stage.finish()


def test_a_stopped_replica_is_not_given_the_leadership_that_is_preferred_there() -> None:
    """No broker dies. After a minute of calm a healthy leader would hand over to it."""
    stage = Stage()
    stage.nodes["b1"].crash()
    stage.until(lambda: stage.leader_of(stage.uid) == "b2", "b2 serves")
    stage.nodes["b1"].lacks = frozenset({RecordKind.INSERT})
    stage.nodes["b1"].start()
    stage.until(stage.whole, "a whole mesh")
    stage.stored(b"a new kind of record")
    stage.until(lambda: stage.replica("b1").broken, "b1 stops")
    epoch = stage.node_of().epoch
    stage.run_ms(200_000)
    stage.expect(stage.node_of().epoch == epoch, "nobody else was made leader")
    upgrade(stage, "b1")
    stage.until(lambda: stage.leader_of(stage.uid) == "b1", "it leads after the upgrade", 100_000)
    stage.finish()


def test_a_leader_that_stops_hands_over() -> None:
    """It was elected before the first new record came."""
    stage = stopped("b1")
    stage.until(lambda: stage.leader_of(stage.uid) in ("b2", "b3"), "another one serves", 2_000)
    upgrade(stage, "b1")
    stage.finish()


def test_a_leader_that_stops_while_the_coordinator_is_away_gives_up_afterwards() -> None:
    """The node still names it, and the others hear it: they take it for the leader until the node says otherwise."""
    stage = Stage()
    stage.coordinator.cut_off("b1")
    stage.nodes["b1"].lacks = frozenset({RecordKind.INSERT})
    stage.hand("producer").insert("b1", [b"a new kind of record"], [stage.now_ms + 3_600_000])
    stage.until(lambda: stage.replica("b1").broken, "b1 stops")
    stage.run_ms(1_000)
    stage.expect(stage.node_of().leader == "b1", "nobody knows")
    stage.coordinator.reconnect("b1")
    stage.until(lambda: stage.leader_of(stage.uid) in ("b2", "b3"), "another one serves", 3_000)
    upgrade(stage, "b1")
    stage.finish()


def test_when_all_replicas_have_stopped_nobody_leads_and_the_status_says_so() -> None:
    stage = stopped("b1", "b2", "b3")
    stage.run_ms(10_000)
    stage.expect(not any(stage.leads(broker) for broker in stage.names), "nobody leads")
    for broker in stage.names:
        node = stage.nodes[broker]
        assert node.core is not None
        [held] = node.core.gauges(node.now())["partitions"]
        stage.expect(held["role"] == "stopped", f"{held}")
    for broker in stage.names:
        upgrade(stage, broker)
    stage.finish()


def test_the_only_member_leads_although_it_is_stopped_until_another_one_has_joined() -> None:
    """No other replica holds everything. The others catch up from its log, and one of them serves."""
    stage = Stage(min_isr=1)
    for broker in ("b2", "b3"):
        stage.nodes[broker].crash()
    stage.until(lambda: stage.isr() == ["b1"], "an ISR of one")
    stage.nodes["b1"].lacks = frozenset({RecordKind.INSERT})
    stage.hand("producer").insert("b1", [b"a new kind of record"], [stage.now_ms + 3_600_000])
    stage.until(lambda: stage.replica("b1").broken, "b1 stops")
    stage.run_ms(5_000)
    stage.expect(stage.leader_of(stage.uid) is None, "nobody serves")
    stage.nodes["b2"].start()
    stage.until(lambda: stage.leader_of(stage.uid) == "b2", "b2 has caught up and serves", 10_000)
    stage.expect(stage.replica("b2").timeline.scheduled_count == 1, "with everything")
    upgrade(stage, "b1")
    stage.nodes["b3"].start()
    stage.finish()
