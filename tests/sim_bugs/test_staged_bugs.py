"""Planted bugs whose circumstances storms hardly ever bring about: a scenario each finds them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from tests.scenarios import test_clocks as clocks
from tests.scenarios import test_leases as leases
from tests.scenarios import test_logs as logs
from tests.scenarios import test_topics as topics
from tests.scenarios import test_triggers as triggers
from tests.sim import test_jobs as jobs
from tests.unit.client.core.consuming import test_consumer as consumers
from tests.unit.client.core.consuming import test_credit as credit
from tests.unit.client.core.consuming import test_settling as settling
from tests.unit.core.delivery import test_fair_queue as fair_queue
from tests.unit.core.delivery import test_passed_over as passed_over
from tests.unit.core.delivery import test_pulls as pulls
from tests.unit.core.delivery import test_renewals as renewals
from tests.unit.core.front import test_deleting_topics as deleting
from tests.unit.core.front import test_updating_topics as updating
from tests.unit.core.replication import test_confirming as confirming
from tests.unit.core.replication import test_replication as replicas
from tests.unit.gateway import test_once_full as once_full
from tests.unit.testing import test_on_receipt as on_receipt

from dueq_chaos.bugs.bug import Bug
from dueq_chaos.bugs.staged import STAGED
from dueq_chaos.sim.watching.invariants import Violation

FOUND_BY: dict[str, Callable[[], None]] = {
    "epoch-answer-ignored": logs.test_two_quick_failovers_leave_one_log,
    "step-not-held": clocks.test_what_is_leased_already_waits_for_the_clocks_when_the_own_one_steps,
    "leap-unnoticed": clocks.test_what_is_due_once_a_clock_that_was_an_hour_behind_is_right_comes_at_once,
    "set-back-by-too-little": partial(
        clocks.test_a_clock_that_steps_ahead_on_a_slow_network_makes_nothing_early, clocks.HOUR_US
    ),
    "cache-drops-what-the-disk-lacks": logs.test_what_a_replica_has_not_written_stays_in_its_memory,
    "credit-for-what-is-over": consumers.test_a_leader_that_gives_more_than_we_count_gets_no_credit_for_it,
    "ack-waits-for-earlier-answers": settling.test_an_ack_waits_for_earlier_answers_no_longer_than_for_company,
    "successor-untold": partial(
        leases.test_a_hand_over_in_fine_weather_makes_nothing_wait_for_a_consumers_next_question, 1_000
    ),
    "last-commit-told-once": lambda: replicas.test_the_last_commit_position_is_told_until_it_was_heard(
        replicas.Stage()
    ),
    "full-of-names-for-good": once_full.test_a_full_table_forgets_though_all_is_refused,
    "stale-receipt-handed-out": on_receipt.test_what_another_has_settled_meanwhile_is_not_handed_out,
    "listed-wherever-it-waits": pulls.test_it_is_told_which_pulls_do_not_wait_here,
    "full-of-jobs-for-good": (
        jobs.test_a_partition_that_is_full_of_jobs_takes_more_once_time_has_passed_though_nothing_else_happens
    ),
    "older-process-not-waited-for": renewals.test_two_lives_are_not_served_at_once,
    "renewed-after-its-last-attempt": partial(renewals.test_what_was_at_its_last_attempt_is_not_renewed, 1),
    "triggered-message-left-on-the-disk": triggers.test_the_next_leader_finds_what_was_triggered_on_its_disk,
    "slots-of-ended-leases-stay": (
        fair_queue.test_a_group_whose_consumers_hold_as_many_as_they_may_is_passed_over_until_a_lease_ends
    ),
    "credit-given-up-in-steps-only": (
        credit.test_a_message_at_a_leader_without_credit_is_served_however_little_each_other_leader_can_give
    ),
    "another-topic-deleted": partial(
        deleting.test_the_order_names_the_topic_that_is_meant_and_the_answer_the_one_that_there_is, 4
    ),
    "another-topic-changed": partial(
        updating.test_a_change_of_another_topic_of_the_name_is_answered_with_the_one_that_there_is, 1, 5
    ),
    "only-the-last-change-known": partial(
        updating.test_a_change_that_was_stored_before_others_is_answered_as_done, 1
    ),
    "grown-isr-counts-late": lambda: confirming.test_a_member_that_is_about_to_join_must_have_acked_too(
        confirming.Stage()
    ),
    "created-again": topics.test_a_creation_that_comes_again_after_the_topic_was_deleted_makes_none,
    "expired-stays-without-credit": partial(
        passed_over.test_what_expires_while_nobody_has_credit_is_ended_at_its_instant, "timeline", True
    ),
    "renewal-without-its-token": renewals.test_when_the_older_life_is_gone_its_leases_get_new_tokens,
}


@pytest.mark.parametrize("bug", STAGED, ids=lambda bug: bug.name)
def test_a_scenario_finds_it(bug: Bug) -> None:
    with bug.planted(), pytest.raises((AssertionError, Violation)):
        FOUND_BY[bug.name]()
