"""What a broker asks of its process before it does anything else."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator

import pytest

from dueq.broker.process import _prepare_process


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    switch_s, files = sys.getswitchinterval(), resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    sys.setswitchinterval(switch_s)
    resource.setrlimit(resource.RLIMIT_NOFILE, files)


def test_a_thread_that_builds_a_batch_does_not_keep_the_loop_from_a_due_instant() -> None:
    """By itself, Python lets a thread run on for 5 ms while another one waits."""
    _prepare_process()
    assert sys.getswitchinterval() <= 0.0005


def test_it_may_have_as_many_files_as_the_system_allows() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    _prepare_process()
    wanted = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (wanted, hard)
