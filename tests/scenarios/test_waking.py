"""Named scenarios of leaders that were replaced while they slept: what they had leased is not theirs any more."""

from __future__ import annotations

import pytest

from dueq.core.ports.events import PeerFrameReceived
from dueq.core.ports.membership import NodeSeen
from dueq_chaos.scenarios.hand import Hand, Stored
from dueq_chaos.scenarios.stage import Stage
from dueq_codecs.messages import PeerFrame
from dueq_codecs.records import Outcome

_SEEDS = (1, 4, 5, 7)


def _asleep_with_leases(stage: Stage, consumer: Hand, for_ms: int) -> list[Stored]:
    """b1 has leases of three messages, has pushed the first, and falls asleep before the others are due."""
    consumer.attach("b1", lease_ms=1_000)
    due = stage.now_ms + 300
    messages = stage.stored(b"pushed", b"m", b"n", dues=[due, due + 96, due + 97])
    stage.until(lambda: stage.replica("b1").timeline.leased_count == 3, "three committed leases")
    stage.world.run_until(lambda: stage.now_ms >= due + 92, 10_000_000)
    stage.step("b1 falls asleep, and news of the coordinator will come late")
    stage.hold("b1", lambda event: isinstance(event, NodeSeen))
    stage.nodes["b1"].pause(for_ms * 1000)
    stage.until(lambda: stage.leader_of(stage.uid) not in (None, "b1"), "another leader")
    return messages


def _awake(stage: Stage) -> float:
    """b1 wakes; returns when (Unix ms)."""
    stage.until(lambda: not stage.nodes["b1"].paused, "b1 is awake")
    return stage.world.wall_us / 1000


@pytest.mark.parametrize("seed", _SEEDS)
def test_a_leader_that_was_replaced_in_its_sleep_pushes_nothing_that_another_has(seed: int) -> None:
    """B13. The messages went to another consumer, who has acked one and holds the other."""
    stage = Stage(seed=seed)
    sleepers, other = stage.hand("sleepers"), stage.hand("other")
    messages = _asleep_with_leases(stage, sleepers, 4_000)
    other.attach(stage.leader, lease_ms=60_000)
    other.stay()
    stage.delivered(other, *messages[1:])
    stage.acked(other, other.got(messages[2]))
    woke_ms = _awake(stage)
    stage.run_ms(1_500)
    late = [pushed for pushed in sleepers.pushes if pushed.at_ms >= woke_ms]
    stage.expect(not late, f"no push after waking: {late}")
    stage.expect(not stage.leads("b1"), "it has learned that it was replaced")
    stage.finish()


@pytest.mark.parametrize("seed", _SEEDS)
def test_a_leader_that_was_replaced_in_its_sleep_pushes_nothing_that_was_cancelled(seed: int) -> None:
    """B13. The leases ran out at the successor, and a cancel was confirmed."""
    stage = Stage(seed=seed)
    sleepers, producer = stage.hand("sleepers"), stage.hand("producer")
    messages = _asleep_with_leases(stage, sleepers, 20_000)
    while True:
        cancel = stage.settled(producer, producer.cancel(stage.leader, messages[1:]))
        if cancel.outcomes == [Outcome.DONE, Outcome.DONE]:
            break
        stage.run_ms(500)
    woke_ms = _awake(stage)
    stage.run_ms(1_500)
    late = [pushed for pushed in sleepers.pushes if pushed.at_ms >= woke_ms]
    stage.expect(not late, f"no push after waking: {late}")
    stage.finish()


def test_pings_answered_by_those_who_have_forgotten_a_later_leadership_confirm_nothing() -> None:
    """The successor and its follower start anew before b1 wakes: nobody tells it of a leadership, or leads."""
    stage = Stage()
    sleepers, producer = stage.hand("sleepers"), stage.hand("producer")
    messages = _asleep_with_leases(stage, sleepers, 6_000)
    stage.until(
        lambda: (
            stage.settled(producer, producer.cancel(stage.leader, messages[1:])).outcomes
            == [Outcome.DONE, Outcome.DONE]
        ),
        "a confirmed cancel",
    )
    stage.desk.hold(lambda order, broker: True)
    for name in ("b2", "b3"):
        stage.nodes[name].crash()
        stage.nodes[name].start()
    woke_ms = _awake(stage)
    stage.run_ms(400)
    late = [pushed for pushed in sleepers.pushes if pushed.at_ms >= woke_ms]
    stage.expect(not late, f"no push after waking: {late}")
    stage.finish()


def test_acks_that_were_asked_for_before_a_pause_commit_and_do_not_confirm() -> None:
    """The lease is committed by acks that lay in b1's socket while it slept, and while another led."""
    stage = Stage()
    sleepers, other = stage.hand("sleepers"), stage.hand("other")
    sleepers.attach("b1", lease_ms=1_000)
    due = stage.now_ms + 300
    [message] = stage.stored(b"m", due=due)

    def brings_ack(event: object) -> bool:
        frame = event.message if isinstance(event, PeerFrameReceived) else None
        end = stage.replica("b1").replica.log.end
        return isinstance(frame, PeerFrame) and any(ack.sequence >= end for ack in frame.acks)

    stage.until(lambda: stage.now_ms >= due - 200, "soon due")
    caught = stage.hold("b1", brings_ack)
    stage.until(
        lambda: len({event.message.sender for event in caught.events if isinstance(event, PeerFrameReceived)}) == 2,
        "the lease is acked by both, which b1 has not heard",
    )  # fmt: skip
    stage.hold("b1", lambda event: isinstance(event, NodeSeen))
    stage.nodes["b1"].pause(4_000_000)
    caught.let_go()
    stage.until(lambda: stage.leader_of(stage.uid) not in (None, "b1"), "another leader")
    other.attach(stage.leader, lease_ms=60_000)
    other.stay()
    stage.acked(other, stage.delivered(other, message))
    woke_ms = _awake(stage)
    stage.run_ms(1_500)
    late = [pushed for pushed in sleepers.pushes if pushed.at_ms >= woke_ms]
    stage.expect(not late, f"no push after waking: {late}")
    stage.finish()
