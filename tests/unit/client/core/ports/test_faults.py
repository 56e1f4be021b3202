"""Which pushes, and which chunks, are none."""

from __future__ import annotations

import pytest

from dueq.client.core.ports.faults import SIZE_MAX, fault_of_chunk, fault_of_look, fault_of_push
from dueq.limits import CHUNK_BYTES
from dueq_codecs.messages import Code, LookReply, LookRequest, PushChunk
from tests.unit.client.stage import CONSUMER, TOPIC, push


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES])
def test_a_payload_of_up_to_one_chunk_travels_with_its_push(size: int) -> None:
    assert fault_of_push(*push("a", 1, 1, [bytes(size), b"y"])) is None


def test_a_longer_one_comes_in_chunks_of_its_own() -> None:
    message, body = push("a", 1, 1, [bytes(CHUNK_BYTES + 1), b"y"])
    assert fault_of_push(message, body)
    assert fault_of_push(message, b"y") is None


def test_no_payload_has_more_chunks_than_the_longest_one() -> None:
    """A client that believed in more would keep room for what never comes."""
    most = -(-SIZE_MAX // CHUNK_BYTES)
    for chunk, chunks, told in [
        (0, most, None),
        (most - 1, most, None),
        (most, most, f"there is no chunk {most} of {most}"),
        (0, most + 1, f"there is no chunk 0 of {most + 1}"),
    ]:
        assert fault_of_chunk(PushChunk(TOPIC, CONSUMER, 1, 1, 50, 0, 60, chunk, chunks, "a"), b"x") == told


def test_a_look_at_a_payload_brings_one_chunk_at_most() -> None:
    """A longer one would be shown in the place of what comes after it."""
    request = LookRequest(1, TOPIC, 1, "message", upload=7)
    for size, told in [
        (CHUNK_BYTES, None),
        (CHUNK_BYTES + 1, f"a chunk has {CHUNK_BYTES + 1} bytes"),
    ]:
        assert fault_of_look(request, LookReply(1, Code.OK), bytes(size)) == told
