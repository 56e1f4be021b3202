"""The fixtures of the plug-in."""

from __future__ import annotations

import subprocess
import sys

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


MANY = """
import pytest

@pytest.mark.parametrize("minutes", range(1, 9))
def test_time_is_each_tests_own(dueq_mesh, minutes):
    client = dueq_mesh.client()
    client.create_topic("t")
    client.create_recurrence("t", "each", every=60.0, payload=b"x")
    begin = dueq_mesh.now_ms
    with client.consumer("t") as consumer:
        for _ in range(minutes):
            consumer.ack(consumer.receive(timeout=61))
        assert minutes * 60_000 - 60_000 <= dueq_mesh.now_ms - begin <= minutes * 60_000 + 1_000
"""


def test_the_fixtures(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TEST)
    pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "pytest_dueq").assert_outcomes(passed=2)


def test_tests_of_many_processes_do_not_meet(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("xdist")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # others take long to import
    pytester.makepyfile(MANY)
    result = pytester.runpytest_subprocess("-p", "xdist.plugin", "-p", "pytest_dueq", "-n", "2")
    result.assert_outcomes(passed=8)


def test_the_plug_in_imports_nothing_before_it_is_used() -> None:
    code = "import sys, pytest_dueq; sys.exit('dueq' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
