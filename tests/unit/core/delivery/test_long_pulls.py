"""Pulls of long payloads, whose chunks take their time."""

from __future__ import annotations

from dueq import limits
from dueq.core.ports.persistence import ChunkRead, ReadChunk
from dueq_codecs.messages import Push, PushChunk
from dueq_codecs.records import RecordKind
from tests.unit.core.delivery.test_pulls import NAME, PULL, ends, pull, staged
from tests.unit.core.led import Stage, at, keys_in, kinds

CHUNKS = 64
CHUNK_MS = 40
"""How long the disk takes for one: together for longer than a client waits without an answer."""


def staged_long() -> tuple[Stage, int]:
    """A long message that is ready."""
    stage, _ = staged(0)
    (key,) = stage.insert([10], size=CHUNKS * limits.CHUNK_BYTES, upload=77)
    return stage, key


def read_one(stage: Stage, ms: float) -> list[Push]:
    """Have the disk bring one chunk; returns the pushes."""
    request = stage.reads.pop(0)
    assert isinstance(request, ReadChunk)
    done = ChunkRead(request.token, request.uid, request.upload, request.chunk, b"chunk")
    stage.dispatcher.payloads_read(done, at(ms))
    return stage.run(ms)


def read_all(stage: Stage, ms: float, ask_ms: int = 0, attach: int = 1) -> list[Push]:
    """Have the disk bring one chunk after the other until there is a push; every `ask_ms` the question comes again."""
    asked_ms = ms
    while stage.reads:
        ms += CHUNK_MS
        if ask_ms and ms - asked_ms >= ask_ms:
            attach, asked_ms = attach + 1, ms
            pull(stage, ms, attach=attach, wait_ms=6_500)
        if pushes := read_one(stage, ms):
            return pushes
    return []


def chunks_sent(stage: Stage, since: int = 0) -> list[int]:
    return [message.chunk for _, message, _ in stage.sent[since:] if isinstance(message, PushChunk)]


def test_chunks_go_on_when_the_question_is_repeated() -> None:
    stage, key = staged_long()
    pull(stage, 20, wait_ms=6_500)
    stage.run(20)
    (push,) = read_all(stage, 20, ask_ms=1_000)
    assert (keys_in(push), push.attach) == ([key], 3)
    assert chunks_sent(stage) == list(range(CHUNKS))
    assert [(end.attach, end.push_sent) for end in ends(stage)] == [(3, 1)]
    assert kinds(stage) == [RecordKind.LEASE]


def test_chunks_go_on_when_the_question_for_a_lost_answer_is_repeated() -> None:
    """Some of the first answer's may be lost, so they begin anew once, but not with each question."""
    stage, key = staged_long()
    pull(stage, 20, wait_ms=6_500)
    stage.run(20)
    (lost,) = read_all(stage, 20)
    before = len(stage.sent)
    pull(stage, 4_000, attach=2, wait_ms=6_500)
    stage.run(4_000)
    (push,) = read_all(stage, 4_000, ask_ms=1_000, attach=2)
    assert (keys_in(push), push.attach, push.token.tolist()) == ([key], 4, lost.token.tolist())
    assert chunks_sent(stage, before) == list(range(CHUNKS))


def test_chunks_go_on_with_the_attach_of_the_question_that_came_last() -> None:
    """Those of an earlier one may be taken for what was lost."""
    stage, _ = staged_long()
    pull(stage, 20, wait_ms=6_500)
    stage.run(20)
    read_one(stage, 30)
    pull(stage, 40, attach=2, wait_ms=6_500)
    read_one(stage, 50)
    chunks = [message for _, message, _ in stage.sent if isinstance(message, PushChunk)]
    assert [(message.chunk, message.attach) for message in chunks] == [(0, 1), (1, 2)]


def test_a_later_pull_of_the_name_gets_all_chunks() -> None:
    """It may be of another client, which has none of them."""
    stage, key = staged_long()
    pull(stage, 20, holder=NAME)
    stage.run(20)
    assert read_all(stage, 20)
    pull(stage, 4_000, b"q" * 16, holder=NAME)
    stage.run(4_000)
    read_one(stage, 4_010)
    before = len(stage.sent)
    pull(stage, 4_020, b"r" * 16, holder=NAME, wait_ms=1_000)
    stage.run(4_020)
    (push,) = read_all(stage, 4_020)
    assert (keys_in(push), push.consumer_id) == ([key], b"r" * 16)
    later = [m for _, m, _ in stage.sent[before:] if isinstance(m, PushChunk)]
    assert [(m.chunk, m.consumer_id) for m in later] == [(number, b"r" * 16) for number in range(CHUNKS)]


def test_a_pull_that_does_not_wait_waits_for_chunks_that_come() -> None:
    stage, key = staged_long()
    pull(stage, 20)
    stage.run(20)
    (push,) = read_all(stage, 20)
    assert (keys_in(push), push.consumer_id) == ([key], PULL)
    assert kinds(stage) == [RecordKind.LEASE]


def test_it_does_not_wait_for_chunks_that_come_no_more() -> None:
    stage, _ = staged_long()
    pull(stage, 20)
    stage.run(20)
    read_one(stage, 900)
    stage.run(1_899)
    assert not ends(stage)
    stage.run(1_900)
    assert [end.push_sent for end in ends(stage)] == [0]
    assert kinds(stage) == [RecordKind.LEASE, RecordKind.RELEASE]


def test_a_long_one_that_comes_with_short_ones_is_waited_for() -> None:
    stage, _ = staged(2)
    (key,) = stage.insert([10], size=3 * limits.CHUNK_BYTES, upload=77)
    pull(stage, 20)
    (short,) = stage.run(20)
    assert len(short.uid) == 2
    (push,) = read_all(stage, 20)
    assert keys_in(push) == [key]
    assert [end.push_sent for end in ends(stage)] == [2]
    assert kinds(stage) == [RecordKind.LEASE]


def test_short_ones_do_not_wait_for_chunks_that_come_no_more() -> None:
    stage, _ = staged(2)
    stage.insert([10], size=3 * limits.CHUNK_BYTES, upload=77)
    pull(stage, 20)
    stage.run(20)
    read_one(stage, 60)
    stage.run(259)
    assert not ends(stage)
    stage.run(260)
    assert [end.push_sent for end in ends(stage)] == [1]
    assert kinds(stage) == [RecordKind.LEASE, RecordKind.RELEASE]
