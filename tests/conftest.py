"""For all tests: storms that are drawn anew in every run, Java for processes that live for seconds, patient Hypothesis.

The storms' first seed is said at the end, and can be given again.
"""

from __future__ import annotations

import gc
import os
import random
import signal
from collections.abc import Iterator
from itertools import count

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

SEED_VARIABLE = "STORM_SEED"
"""Not DUEQ_…: brokers, which inherit it too, take those for settings."""
_TURNS = 24
"""One in so many of the storms that are run by turns is run, where a mark says nothing else."""
_WITH_SPARK = "tests/integration/test_spark", "tests/integration/test_campaign"
_LONG = *_WITH_SPARK, "tests/docs/", "tests/browser/"
"""Files that take longest: begun last, they would leave the other cores without work at the end."""
_STORMS = "tests/sim/test_storms.py", "tests/sim_bugs/test_found_"
"""Tests that share nothing. They come last, each by itself, and so all cores have work up to the end."""
_COMPUTING = "tests/unit/", "tests/property/", "tests/scenarios/", "tests/conformance/", "tests/sim"
"""Tests that keep a core busy. The others mostly wait for processes."""
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A quarter less processor time for the tests with Spark: its JVMs end before the second compiler has paid off."""


# A busy machine is no defect of a property: nothing that looks at the clock judges one.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--every-storm", action="store_true", help="run everything that is run by turns")


def pytest_configure(config: pytest.Config) -> None:
    # Whoever runs the tests behind `nohup` or in the background has them ignored, and processes inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    config.addinivalue_line(
        "markers", "by_turns(n=24): one in n of these runs; all with --every-storm, -k or a test's name"
    )
    # Here, since processes that run a part of the tests inherit it and must all find the same.
    os.environ.setdefault("JDK_JAVA_OPTIONS", JAVA)
    os.environ.setdefault(SEED_VARIABLE, str(random.SystemRandom().randrange(10_000, 1 << 40)))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Never again look for garbage among a million objects of modules and tests.

    That took a fifteenth of the time of the unit tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        _settle()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Do it once more after a file that has undone it, as a broker in this process does when it ends."""
    if nextitem is not None and nextitem.path != item.path and not gc.get_freeze_count():
        _settle()


def _settle() -> None:
    gc.collect()
    gc.freeze()


class _Files(LoadFileScheduling):
    """Gives each file to one process, storms one by one, and all files with Spark to the same process.

    A second JVM would cost more than it brings. One process takes what computes first: beside tests that wait, it keeps
    the cores busy.
    """

    def _assign_work_unit(self, node: WorkerController) -> None:
        if node is self.nodes[-1]:
            scopes = (scope for scope in self.workqueue if scope.startswith(_COMPUTING))
            first = next((scope for scope in scopes if not scope.startswith(_STORMS)), None)
            if first is not None:
                self.workqueue.move_to_end(first, last=False)
        super()._assign_work_unit(node)

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(_STORMS):
            return nodeid
        return "spark" if nodeid.startswith(_WITH_SPARK) else super()._split_scope(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    return _Files(config, log) if config.option.dist == "loadfile" else None


def _turn(item: pytest.Item) -> int:
    """Whether a test comes among the first, in the middle, or among the last."""
    return 0 if item.nodeid.startswith(_LONG) else 2 if item.nodeid.startswith(_STORMS) else 1


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put long files first, and leave most storms and seeds that are run by turns to other runs.

    The first seed says which.
    """
    items.sort(key=_turn)
    named = config.option.keyword or any("::" in argument for argument in config.args)
    if named or config.option.every_storm:
        return
    turns: dict[int, Iterator[int]] = {}
    others = []
    for item in items:
        if marker := item.get_closest_marker("by_turns"):
            every = marker.args[0] if marker.args else _TURNS
            if next(turns.setdefault(every, count(int(os.environ[SEED_VARIABLE])))) % every:
                others.append(item)
    if others:
        config.hook.pytest_deselected(items=others)
        left = set(others)
        items[:] = [item for item in items if item not in left]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = terminalreporter.getreports("passed") + terminalreporter.getreports("failed")
    if any("fresh_storm" in report.nodeid for report in reports):
        first = os.environ[SEED_VARIABLE]
        terminalreporter.write_line(
            f"fresh storms: seeds from {first} on ({SEED_VARIABLE}={first} repeats them)"
        )
