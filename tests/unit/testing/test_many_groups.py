"""One call with more groups than a request can count."""

from __future__ import annotations

from datetime import timedelta

from dueq.testing import mesh


def test_each_row_of_a_call_may_have_a_group_of_its_own() -> None:
    count = 66_000  # 16 bits count 65,536
    groups = [f"g{row}" for row in range(count)]
    with mesh() as found:
        client = found.client()
        client.create_topic("t", kind="fair", partitions=2)
        ids = client.producer("t").schedule_many([b"x"] * count, timedelta(hours=1), groups=groups)
        assert len(set(ids)) == count
        for row in (0, 65_535, 65_536, count - 1):
            assert client.get("t", ids[row]).group == groups[row]
