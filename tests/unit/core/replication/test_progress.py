"""A follower's progress: its three states, what leads from one to another, and what holds in each."""

from __future__ import annotations

import pytest

from dueq import limits
from dueq.core.replication.progress import Progress, State
from dueq.errors import InvariantViolated
from dueq.instant import Now

START = 10
"""The first record of the leader's log; its last is 20 when the leadership begins."""


def at(ms: int) -> Now:
    return Now(0, 1_000_000 + ms * 1000)


def probed() -> Progress:
    progress = Progress(21)
    progress.new_life(7, "s2", START)
    return progress


def replicated(match: int = 20) -> Progress:
    progress = probed()
    progress.acked(match, START, at(0))
    return progress


def lagging() -> Progress:
    """It had acked record 5 before it fell silent; the log begins at record 10 by now."""
    progress = probed()
    progress.acked(5, 1, at(0))
    progress.parted(5, 1)
    assert progress.trimmed(START)
    return progress


def test_a_new_leader_knows_nothing_of_a_follower() -> None:
    progress = Progress(21)
    assert (progress.state, progress.next, progress.match) == (State.PROBE, 21, -1)


def test_an_unanswered_probe_stays_where_it_is() -> None:
    progress = probed()
    progress.sent(3, 20, at(0))
    assert (progress.next, progress.told_commit) == (21, 20)
    assert progress.waits(at(limits.RESEND_MS - 1))
    assert not progress.waits(at(limits.RESEND_MS))


def test_the_first_ack_begins_to_replicate() -> None:
    progress = replicated(12)
    assert (progress.state, progress.match, progress.next) == (State.REPLICATE, 12, 21)


def test_appends_follow_one_another_and_are_sent_again_from_the_last_ack() -> None:
    progress = replicated()
    progress.sent(2, 20, at(0))
    progress.sent(1, 20, at(1))
    assert (progress.state, progress.next) == (State.REPLICATE, 24)
    progress.acked(22, START, at(2))
    progress.resend(at(3))
    progress.resend(at(1 + limits.RESEND_MS))
    assert progress.next == 24, "what was sent may still be answered"
    progress.resend(at(2 + limits.RESEND_MS))
    assert (progress.state, progress.next) == (State.REPLICATE, 23)


def test_what_is_sent_to_a_follower_that_had_everything_for_long_is_not_sent_again_at_once() -> None:
    """Its last ack is old, as there was nothing to ack: each record would travel twice."""
    progress = replicated()
    progress.sent(2, 20, at(10_000))
    progress.resend(at(9_999 + limits.RESEND_MS))
    assert progress.next == 23
    progress.resend(at(10_000 + limits.RESEND_MS))
    assert progress.next == 21


def test_a_log_that_parts_is_probed_from_there() -> None:
    progress = probed()
    progress.parted(14, START)
    assert (progress.state, progress.next, progress.moved_at_us) == (State.PROBE, 15, None)


def test_a_log_never_parts_before_what_was_acked() -> None:
    progress = replicated(16)
    progress.parted(14, START)
    assert (progress.state, progress.next) == (State.REPLICATE, 17)


@pytest.mark.parametrize("progress", [probed(), replicated(14)], ids=["probed", "replicated"])
def test_a_follower_that_lacks_what_was_trimmed_needs_a_snapshot(progress: Progress) -> None:
    progress.parted(0, START)
    assert not progress.trimmed(progress.next)
    assert progress.trimmed(progress.next + 1)
    assert progress.state is State.SNAPSHOT


def test_an_answer_that_names_a_trimmed_record_asks_for_a_snapshot() -> None:
    progress = probed()
    progress.parted(3, START)
    assert (progress.state, progress.next) == (State.SNAPSHOT, 4)


def test_nothing_is_sent_to_one_that_needs_a_snapshot() -> None:
    progress = lagging()
    progress.resend(at(10_000))
    assert (progress.state, progress.match, progress.next) == (State.SNAPSHOT, 5, 6)


@pytest.mark.parametrize(("match", "state"), [(7, State.SNAPSHOT), (8, State.SNAPSHOT), (9, State.REPLICATE)])
def test_an_ack_ends_the_need_where_the_log_holds_what_follows(match: int, state: State) -> None:
    progress = lagging()
    progress.acked(match, START, at(1))
    assert (progress.state, progress.next) == (state, match + 1)


def test_an_answer_of_the_log_ends_the_need() -> None:
    progress = lagging()
    progress.parted(15, START)
    assert (progress.state, progress.next) == (State.REPLICATE, 16)


def test_a_follower_that_is_being_filled_is_probed() -> None:
    """Its answers tell that an offer was lost."""
    for progress in (probed(), replicated(), lagging()):
        progress.wiped(START)
        assert (progress.state, progress.match) == (State.PROBE, -1)


def test_a_filled_follower_is_probed_after_its_snapshot() -> None:
    progress = lagging()
    progress.offered_at_us = 5
    progress.installed(18, START)
    assert (progress.state, progress.match, progress.next) == (State.PROBE, -1, 19)
    assert progress.offered_at_us is None


@pytest.mark.parametrize("progress", [replicated(), lagging()], ids=["replicated", "lagging"])
def test_a_new_life_is_probed_and_its_disk_is_remembered(progress: Progress) -> None:
    match = progress.match
    progress.new_life(8, "s2", START)
    assert (progress.state, progress.match, progress.best) == (State.PROBE, -1, match)
    progress.new_life(9, "another disk", START)
    assert (progress.state, progress.best, progress.best_store) == (State.PROBE, -1, "another disk")


def test_the_most_that_any_life_with_this_disk_has_acked_is_remembered() -> None:
    """A life that has acked nothing before it ended tells nothing of the disk."""
    progress = replicated(20)
    progress.new_life(8, "s2", START)
    progress.new_life(9, "s2", START)
    assert (progress.best, progress.best_store) == (20, "s2")
    progress.acked(15, START, at(1))
    progress.new_life(10, "s2", START)
    assert progress.best == 20


@pytest.mark.parametrize(
    ("state", "match", "following"),
    [
        (State.PROBE, 0, 21),
        (State.REPLICATE, -1, 21),
        (State.REPLICATE, 21, 21),
        (State.REPLICATE, 5, START - 1),
        (State.SNAPSHOT, -1, START),
        (State.SNAPSHOT, 8, 8),
    ],
)
def test_a_state_that_does_not_fit_is_noticed(state: State, match: int, following: int) -> None:
    progress = probed()
    progress.match, progress.next = match, following
    with pytest.raises(InvariantViolated):
        progress._become(state, START)


def test_what_follows_a_lost_record_does_not_put_off_that_it_is_sent_again() -> None:
    progress = replicated()
    progress.sent(1, 20, at(10_000))
    progress.sent(1, 20, at(9_999 + limits.RESEND_MS))
    progress.resend(at(10_000 + limits.RESEND_MS))
    assert progress.next == 21
