"""What a message costs the brokers' loops can be counted."""

from __future__ import annotations

from dueq_chaos.sim.costs import METER, Load, measure


def test_every_part_of_a_messages_way_is_counted() -> None:
    delivered = measure(Load(5, 50, 200, 100, 64, 250), 1.0)
    assert 30 <= delivered <= 70
    assert METER.spent.keys() >= {
        "push", "hear", "step", "encode Push", "encode ChangeReply", "encode to a peer", "decode from a peer",
        "decode from a client",
    }  # fmt: skip
    assert min(METER.spent.values()) > 0


def test_what_it_costs_to_load_messages_with_unique_keys_is_counted() -> None:
    loaded = measure(Load(12, 0, 3_600_000, 60_000, 0, 250, keys=True), 0.1)
    assert loaded > 100
    assert METER.spent.keys() >= {"hear", "step", "encode ChangeReply", "decode from a client"}
