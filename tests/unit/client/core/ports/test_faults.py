"""Which pushes are none."""

from __future__ import annotations

import pytest

from dueq.client.core.ports.faults import fault_of_push
from dueq.limits import CHUNK_BYTES
from tests.unit.client.stage import push


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES])
def test_a_payload_of_up_to_one_chunk_travels_with_its_push(size: int) -> None:
    assert fault_of_push(*push("a", 1, 1, [bytes(size), b"y"])) is None


def test_a_longer_one_comes_in_chunks_of_its_own() -> None:
    message, body = push("a", 1, 1, [bytes(CHUNK_BYTES + 1), b"y"])
    assert fault_of_push(message, body)
    assert fault_of_push(message, b"y") is None
