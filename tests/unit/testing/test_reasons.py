"""Why messages were done goes from a consumer to the broker that counts it."""

from __future__ import annotations

import pytest

from dueq import InvalidRequest
from dueq.testing import mesh


def test_who_is_done_with_a_message_unsent_says_so() -> None:
    with mesh() as found:
        client = found.client()
        client.create_topic("t")
        client.producer("t").schedule_many([b"a", b"b", b"c"], 0)
        with client.consumer("t") as consumer:
            first, second, third = consumer.receive(3)
            first.ack()
            second.ack(reason="filtered")
            third.ack(reason="filtered", wait=True)
            with pytest.raises(InvalidRequest, match="a reason has at most 1024 bytes"):
                third.ack(reason="x" * 1025)
        assert found._world.broker._core.metrics.messages["filter", "t"] == 2
        assert list(client.browse("t")) == []
