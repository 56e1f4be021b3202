"""What may commit something is heard first, and who waits for it is answered before the rest of the turn."""

from __future__ import annotations

import pytest

from dueq.core.broker import BrokerCore
from dueq.core.ports.effects import Effect, Persist, SendClient
from dueq.core.ports.events import Event, PeerFrameReceived, Persisted
from dueq.instant import Now
from dueq_chaos.scenarios.stage import Stage
from dueq_chaos.sim.environment.node import Node
from dueq_codecs.messages import ChangeReply
from dueq_codecs.records import RecordKind


def in_one(core: BrokerCore, events: list[Event], now: Now) -> list[Effect]:
    return core.push(now) + core.step(events, now)


def history() -> list[str]:
    """All that is said of a mesh in which messages are scheduled, delivered and settled, and a broker is paused."""
    stage = Stage(partitions=3)
    consumer = stage.hand("consumer")
    consumer.attach("b1", credit=64, lease_ms=2_000)
    messages = stage.stored(*[b"%d" % number for number in range(20)], due=stage.now_ms + 300)
    pushed = stage.delivered(consumer, *messages)
    consumer.settle("b1", RecordKind.ACK, pushed[:10])
    stage.nodes["b1"].pause(700_000)
    stage.run_ms(3_000)
    stage.stored(b"more", due=stage.now_ms + 300)
    stage.run_ms(1_000)
    return [*stage.world.trace, *map(repr, consumer.pushes)]


def test_a_turn_in_two_parts_does_what_it_does_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    in_two = history()
    monkeypatch.setattr(Node, "_step", staticmethod(in_one))
    assert history() == in_two


def test_the_answer_comes_with_the_ack_and_not_with_the_rest_of_the_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answered: list[tuple[str, bool]] = []

    def noting(core: BrokerCore, events: list[Event], now: Now) -> list[Effect]:
        first = [event for event in events if isinstance(event, PeerFrameReceived | Persisted)]
        rest = [event for event in events if event not in first]
        heard, left = core.hear(first, now), core.step(rest, now)
        for part, effects in (("heard", heard), ("left", left)):
            changes = [each for each in effects if isinstance(each, SendClient)]
            answered.extend((part, isinstance(each.message, ChangeReply)) for each in changes)
        assert not any(isinstance(effect, Persist) for effect in heard)
        return core.push(now) + heard + left

    stage = Stage()
    monkeypatch.setattr(Node, "_step", staticmethod(noting))
    stage.stored(b"one", due=stage.now_ms + 60_000)
    assert ("heard", True) in answered
    assert ("left", True) not in answered
