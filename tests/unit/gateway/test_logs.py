"""A gateway's log that cannot be written costs its lines, and nothing else."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest
import structlog

from dueq.gateway.logs import configure, log


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def test_a_gateway_goes_on_when_nobody_reads_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    stream = os.fdopen(writing, "w", encoding="utf-8")
    monkeypatch.setattr(sys, "stderr", stream)
    configure("info")
    for _ in range(1_000):
        log.warning("webhook.failed", reason="x" * 100)
    with suppress(OSError):
        stream.close()
