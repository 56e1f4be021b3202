"""Pulls of long payloads, whose chunks come for longer than a leader may be silent."""

from __future__ import annotations

import pytest

from dueq import limits
from dueq.client.core.consuming.pulling import PATIENCE_US
from dueq.client.core.ports.effects import Completed, Effect
from dueq_codecs.messages import ConsumerFrame, PushChunk
from tests.unit.client.core.consuming.test_pulling import LIFE, answer, end, pull, pulls_in, staged
from tests.unit.client.stage import TOPIC, Stage, of, push

PAYLOAD = bytes(range(256)) * (64 * limits.CHUNK_BYTES // 256)
EVERY_MS = 100
PATIENCE_MS = PATIENCE_US // 1000


def chunk(stage: Stage, frame: ConsumerFrame, number: int, attach: int = 0) -> list[Effect]:
    """A chunk comes, some time after the one before; returns what the client has done meanwhile."""
    effects = stage.run_until(stage.ms + EVERY_MS)
    piece = PAYLOAD[number * limits.CHUNK_BYTES : (number + 1) * limits.CHUNK_BYTES]
    message = PushChunk(TOPIC, frame.consumer_id, attach or frame.attach, 1, 50, 0, 60, number, 64, "a")
    return effects + stage.receive("a", message, piece)


def chunks(stage: Stage, frame: ConsumerFrame, count: int = 64) -> list[Effect]:
    return [effect for number in range(count) for effect in chunk(stage, frame, number)]


def bring_long(stage: Stage, frame: ConsumerFrame) -> list[Effect]:
    """The push of the long payload comes."""
    message, _ = push(
        "a", frame.attach, 1, (PAYLOAD,), uid=1, consumer_id=frame.consumer_id, sequence=50,
        left_ms=30_000, life=LIFE, mono_us=int(stage.ms * 1000),
    )  # fmt: skip
    return stage.receive("a", message, b"")


@pytest.mark.parametrize("wait_ms", [0, 3_000])
def test_a_leader_whose_chunks_come_is_not_asked_again(wait_ms: int) -> None:
    """It would send all of them once more; and a pull that does not wait would give it up."""
    stage = staged("a")
    frame = pull(stage, wait_ms=wait_ms)
    effects = chunks(stage, frame)
    assert not pulls_in(effects)
    assert not of(effects, Completed)
    bring_long(stage, frame)
    assert answer(stage.receive("a", end(frame, pushes=1))) == [PAYLOAD]


def test_it_is_asked_again_when_they_come_no_more() -> None:
    stage = staged("a")
    frame = pull(stage, wait_ms=20_000, timeout_ms=40_000)
    assert not pulls_in(chunks(stage, frame, 20) + stage.run_until(stage.ms + PATIENCE_MS - 1))
    [again] = pulls_in(stage.run_until(stage.ms + 1))
    assert again.attach > frame.attach


@pytest.mark.parametrize("same", [True, False], ids=["one that has come", "of no question"])
def test_a_chunk_that_says_nothing_keeps_nothing_alive(same: bool) -> None:
    stage = staged("a")
    frame = pull(stage, wait_ms=20_000, timeout_ms=40_000)
    effects = [each for n in range(50) for each in chunk(stage, frame, 0 if same else n, 0 if same else 99)]
    assert pulls_in(effects)


def test_what_comes_again_since_it_was_lost_is_waited_for_too() -> None:
    """One chunk of the first answer was lost, so all of them come with the second."""
    stage = staged("a")
    frame = pull(stage, timeout_ms=20_000)
    chunks(stage, frame, 63)
    bring_long(stage, frame)
    stage.receive("a", end(frame, pushes=1))
    [again] = pulls_in(stage.run_until(stage.ms + 60))
    effects = chunks(stage, again)
    assert not pulls_in(effects)
    bring_long(stage, again)
    assert answer(stage.receive("a", end(again, pushes=1))) == [PAYLOAD]


def test_on_a_slow_link_the_chunks_of_the_question_before_are_waited_for() -> None:
    """The first one took so long that the question was repeated."""
    stage = staged("a")
    frame = pull(stage, wait_ms=6_000, timeout_ms=20_000)
    assert len(pulls_in(stage.run_until(stage.ms + 1_500))) == 1
    assert not pulls_in(chunks(stage, frame))
    bring_long(stage, frame)
    assert answer(stage.receive("a", end(frame, pushes=1))) == [PAYLOAD]
