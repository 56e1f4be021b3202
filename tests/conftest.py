"""For all tests: storms that are drawn anew in every run, Java for processes that live for seconds, patient Hypothesis.

The storms' first seed is said at the end, and can be given again.
"""

from __future__ import annotations

import os
import random

import pytest
from hypothesis import HealthCheck, settings

SEED_VARIABLE = "STORM_SEED"
"""Not DUEQ_…: brokers, which inherit it too, take those for settings."""
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A quarter less processor time for the tests with Spark: its JVMs end before the second compiler has paid off."""


# A busy machine is no defect of a property: nothing that looks at the clock judges one.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


def pytest_configure() -> None:
    # Here, since processes that run a part of the tests inherit it and must all find the same.
    os.environ.setdefault("JDK_JAVA_OPTIONS", JAVA)
    os.environ.setdefault(SEED_VARIABLE, str(random.SystemRandom().randrange(10_000, 1 << 40)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = terminalreporter.getreports("passed") + terminalreporter.getreports("failed")
    if any("fresh_storm" in report.nodeid for report in reports):
        first = os.environ[SEED_VARIABLE]
        terminalreporter.write_line(
            f"fresh storms: seeds from {first} on ({SEED_VARIABLE}={first} repeats them)"
        )
