"""What a partition is told of a follower's ack."""

from __future__ import annotations

from typing import Any, cast

from dueq.core.front.peer_messages import PeerMessages
from dueq.core.ports.events import PeerFrameReceived
from dueq.core.turn.peers import Peer
from dueq.instant import Now
from dueq_codecs.messages import Ack, PeerFrame
from tests.unit.core.replica_stage import UID, Stage


class Told:
    """A partition that keeps what it is told."""

    def __init__(self) -> None:
        self.acks: list[tuple[str, int, int]] = []

    def ack_received(self, peer: Peer, ack: Ack, asked_us: int, now: Now) -> None:
        self.acks.append((peer.broker_id, ack.sequence, asked_us))


def test_an_ack_confirms_a_leadership_as_of_what_the_follower_had_then() -> None:
    """It may have been long on its way, or in a socket while this process stood still: another may lead since."""
    stage, partition = Stage(), Told()
    peers = PeerMessages(
        stage.ctx, stage.ctx.clock, cast(Any, None), cast(Any, {UID: partition}), cast(Any, None)
    )
    sent_us = stage.mono_us
    stage.mono_us += 30_000_000
    frame = PeerFrame("b2", 22, "b1", 11, 0, 0, echo_mono_us=sent_us)
    frame.acks = [Ack(UID, 3, 40)]
    peers.received(PeerFrameReceived(frame, []), stage.now)
    assert partition.acks == [("b2", 40, sent_us)]
