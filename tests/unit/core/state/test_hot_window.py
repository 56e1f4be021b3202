"""The window of a timeline: what of it may be on the disk only."""

from __future__ import annotations

from dueq.core.state.job_table import JobTable
from dueq.core.state.order import TimelineOrder
from dueq.core.state.window import ONE_CLASS, HotWindow, Wanted


def test_what_waits_until_the_instant_of_its_end_may_be_on_the_disk_only() -> None:
    """Of messages of one instant the window may hold the first ones alone."""
    window = HotWindow((100, 5), JobTable())
    assert [window.unknown_from(at) for at in (99, 100, 101)] == [None, ONE_CLASS, ONE_CLASS]
    assert HotWindow(None, JobTable()).unknown_from(10**15) is None


def test_after_a_start_the_disk_is_read_from_the_low_water_mark_on() -> None:
    """Below it lie only deleted rows, which cost as much to pass by as others."""
    window = TimelineOrder().window(JobTable(), 700)
    assert window.wants(10, 20) == Wanted([(ONE_CLASS, (700, 0))], 0, onward=False)
