"""Recurrences whose terms are changed while consumers have messages of instants to come."""

from __future__ import annotations

from dueq.testing import mesh


def test_a_message_of_older_terms_does_not_bring_back_its_instant() -> None:
    """A storm found it: the tick of a message that was leased through a change of terms was waited for again."""
    with mesh() as inside, inside.client() as client:
        client.create_topic("t", partitions=1)
        start = inside.now_ms + 2_500
        client.create_recurrence("t", "r", every=1.0, start=start, payload=b"old")
        inside.advance(1)
        *_, ahead = list(client.browse("t"))
        assert ahead.due > start
        client.trigger("t", ahead.id)
        again = start + 100_250
        with client.consumer("t", lease=60) as consumer:
            assert len(consumer.receive(1, timeout=0)) == 1
            client.update_recurrence("t", "r", every=10.0, start=again)
        client.update_recurrence("t", "r", payload=b"new")
        found = client.recurrence("t", "r")
        assert found is not None
        assert found.next_ms == again
