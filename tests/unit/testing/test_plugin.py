"""The fixtures are there in the tests of whoever names the plug-in."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

TEST = """
import asyncio
from datetime import timedelta

def test_reminder(dueq_mesh):
    client = dueq_mesh.client()
    client.create_topic("t")
    client.producer("t").schedule(b"x", timedelta(minutes=5))
    with client.consumer("t") as consumer:
        assert consumer.receive(timeout=0) == []
        dueq_mesh.advance(300)
        [message] = consumer.receive(timeout=0)
        assert message.lateness == 0

def test_async_reminder(dueq_amesh):
    async def run():
        client = dueq_amesh.client()
        await client.create_topic("t")
        await client.producer("t").schedule(b"x", timedelta(minutes=5))
        async with client.consumer("t") as consumer:
            await dueq_amesh.advance(300)
            assert len(await consumer.receive(timeout=0)) == 1
        await client.close()
    asyncio.run(run())
"""


def test_the_fixtures(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TEST)
    pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "dueq.testing.plugin").assert_outcomes(
        passed=2
    )
