"""Histories by hand: one for every verdict, and beside each its near misses, which an order of events explains."""

from __future__ import annotations

from pathlib import Path

import pytest

from dueq_chaos.history.judging import Verdict
from tests.unit.history.scribe import Scribe, payload_of


@pytest.fixture
def scribe() -> Scribe:
    return Scribe()


def finish(scribe: Scribe, message: str = "m", token: int = 1, at: float = 1_100, client: str = "c") -> None:
    scribe.settle("ack", message, at, at + 5, token, client=client)


# ---------------------------------------------------------------- all is well


def test_a_message_delivered_and_acknowledged_is_fine(scribe: Scribe, tmp_path: Path) -> None:
    scribe.schedule("m", 1_000)
    scribe.deliver("m", 1_000, 1_000.2)
    finish(scribe)
    judgement = scribe.judge(tmp_path)
    assert judgement.clean
    assert judgement.examined == 0
    assert judgement.counts.lateness_ms == pytest.approx((0.2, 0.2, 0.2))


# ---------------------------------------------------------------- lost


def test_acknowledged_due_and_never_delivered_is_lost(scribe: Scribe, tmp_path: Path) -> None:
    scribe.schedule("m", 1_000)
    assert scribe.verdicts(tmp_path) == [Verdict.LOST]


def test_delivered_to_one_who_died_and_never_again_is_lost(scribe: Scribe, tmp_path: Path) -> None:
    scribe.schedule("m", 1_000)
    scribe.deliver("m", 1_000, 1_000, lease=5_000)
    assert scribe.verdicts(tmp_path) == [Verdict.LOST]


def test_given_back_and_never_delivered_again_is_lost(scribe: Scribe, tmp_path: Path) -> None:
    scribe.schedule("m", 1_000)
    scribe.deliver("m", 1_000, 1_000, lease=5_000)
    scribe.settle("nack", "m", 1_100, 1_110, ms=10_000)
    assert scribe.verdicts(tmp_path) == [Verdict.LOST]


def test_what_may_still_come_is_not_lost(scribe: Scribe, tmp_path: Path) -> None:
    scribe.schedule("due-later", 70_000)
    scribe.schedule("due-just-before-the-end", 58_500)
    scribe.schedule("moved-away", 1_000)
    scribe.move("moved-away", 70_000, 100, 110)
    scribe.schedule("perhaps-moved-away", 1_000)
    scribe.move("perhaps-moved-away", 70_000, 100, 110, "unknown")
    scribe.schedule("delayed", 1_000)
    scribe.deliver("delayed", 1_000, 1_000, lease=5_000)
    scribe.settle("nack", "delayed", 1_100, 1_110, ms=58_000)
    scribe.schedule("still-leased", 50_000)
    scribe.deliver("still-leased", 50_000, 50_000)
    judgement = scribe.judge(tmp_path)
    assert judgement.clean
    assert judgement.counts.pending == 4


@pytest.mark.parametrize(("until", "outcome"), [(110, "done"), (110, "unknown"), (None, "")])
def test_what_is_or_may_be_cancelled_is_not_lost(
    scribe: Scribe, tmp_path: Path, until: float | None, outcome: str
) -> None:
    scribe.schedule("m", 1_000)
    scribe.cancel("m", 100, until, outcome)
    assert scribe.verdicts(tmp_path) == []


def test_a_refused_cancel_excuses_nothing(scribe: Scribe, tmp_path: Path) -> None:
    scribe.schedule("m", 1_000)
    scribe.cancel("m", 100, 110, "refused")
    assert scribe.verdicts(tmp_path) == [Verdict.LOST]


@pytest.mark.parametrize(("until", "outcome"), [(10, "unknown"), (10, "refused"), (None, "")])
def test_what_was_never_acknowledged_is_not_lost(
    scribe: Scribe, tmp_path: Path, until: float | None, outcome: str
) -> None:
    scribe.schedule("m", 1_000, 0, until, outcome)
    assert scribe.verdicts(tmp_path) == []


def test_where_nobody_asked_for_messages_none_is_lost(scribe: Scribe, tmp_path: Path) -> None:
    scribe.schedule("m", 1_000)
    scribe.note(60_000, "the end")
    assert scribe.verdicts(tmp_path, end=None) == []


# ---------------------------------------------------------------- early


def test_released_a_microsecond_before_due_is_early(scribe: Scribe, tmp_path: Path) -> None:
    scribe.schedule("m", 1_000)
    scribe.deliver("m", 1_000, 999.999)
    finish(scribe)
    assert scribe.verdicts(tmp_path) == [Verdict.EARLY]


def test_handed_out_before_due_is_early_whatever_the_release_says(scribe: Scribe, tmp_path: Path) -> None:
    scribe.schedule("m", 1_000)
    scribe.deliver("m", 1_000, 1_000, received=970)
    finish(scribe)
    assert scribe.verdicts(tmp_path) == [Verdict.EARLY]


def test_delivered_at_its_old_due_after_a_confirmed_move_is_early(scribe: Scribe, tmp_path: Path) -> None:
    scribe.schedule("m", 1_000)
    scribe.move("m", 5_000, 100, 110)
    scribe.deliver("m", 1_000, 1_000)
    finish(scribe)
    assert scribe.verdicts(tmp_path) == [Verdict.EARLY]


def test_of_two_moves_in_sequence_the_second_is_in_force(scribe: Scribe, tmp_path: Path) -> None:
    scribe.schedule("m", 9_000)
    scribe.move("m", 1_000, 100, 110)
    scribe.move("m", 5_000, 120, 130)
    scribe.deliver("m", 1_000, 1_000)
    finish(scribe)
    assert scribe.verdicts(tmp_path) == [Verdict.EARLY]


def test_a_move_confirmed_before_the_ack_of_what_it_moved_away_is_early(
    scribe: Scribe, tmp_path: Path
) -> None:
    scribe.schedule("m", 1_000)
    scribe.deliver("m", 1_000, 1_000)
    scribe.move("m", 5_000, 1_100, 1_110)
    finish(scribe, at=1_200)
    assert scribe.verdicts(tmp_path) == [Verdict.EARLY]


@pytest.mark.parametrize(
    ("at", "until", "outcome"),
    [
        (100, 110, "unknown"),
        (100, None, ""),
        (100, 110, "leased"),
        (100, 110, "refused"),
        (990, 1_050, "leased"),
    ],
)
def test_a_move_away_that_may_not_have_happened_makes_nothing_early(
    scribe: Scribe, tmp_path: Path, at: float, until: float | None, outcome: str
) -> None:
    scribe.schedule("m", 1_000)
    scribe.move("m", 5_000, at, until, outcome)
    scribe.deliver("m", 1_000, 1_000)
    finish(scribe)
    assert scribe.verdicts(tmp_path) == []


def test_a_move_forward_in_flight_may_have_been_in_force(scribe: Scribe, tmp_path: Path) -> None:
    scribe.schedule("m", 9_000)
    scribe.move("m", 1_000, 990, 3_000)
    scribe.deliver("m", 1_000, 1_000, token=1)
    finish(scribe, at=3_100)
    assert scribe.verdicts(tmp_path) == []


def test_two_moves_at_once_may_be_in_either_order(scribe: Scribe, tmp_path: Path) -> None:
    scribe.schedule("m", 9_000)
    scribe.move("m", 1_000, 100, 120)
    scribe.move("m", 5_000, 110, 130, client="p2")
    scribe.deliver("m", 1_000, 1_000)
    finish(scribe)
    assert scribe.verdicts(tmp_path) == []


def test_a_move_that_was_asked_for_after_the_release_was_not_in_force(scribe: Scribe, tmp_path: Path) -> None:
    scribe.schedule("m", 9_000)
    scribe.deliver("m", 1_000, 1_000)
    scribe.move("m", 1_000, 1_100, None)
    finish(scribe, at=1_090)
    assert scribe.verdicts(tmp_path) == [Verdict.EARLY]


# ---------------------------------------------------------------- cancelled


def test_released_after_a_confirmed_cancel(scribe: Scribe, tmp_path: Path) -> None:
    scribe.schedule("m", 1_000)
    scribe.cancel("m", 900, 910)
    scribe.deliver("m", 1_000, 1_000)
    assert scribe.verdicts(tmp_path) == [Verdict.CANCELLED]


def test_cancel_and_ack_cannot_both_be_confirmed(scribe: Scribe, tmp_path: Path) -> None:
    scribe.schedule("m", 1_000)
    scribe.cancel("m", 990, 1_050)
    scribe.deliver("m", 1_000, 1_000)
    finish(scribe, at=1_010)
    assert scribe.verdicts(tmp_path) == [Verdict.CANCELLED]


def test_a_cancel_cannot_be_confirmed_while_a_consumer_holds_it(scribe: Scribe, tmp_path: Path) -> None:
    scribe.schedule("m", 1_000)
    scribe.deliver("m", 1_000, 1_000)
    scribe.polls("c", 1_100, 8_000)
    scribe.cancel("m", 3_000, 3_010)
    assert scribe.verdicts(tmp_path) == [Verdict.CANCELLED]


@pytest.mark.parametrize("outcome", ["leased", "not_found", "unknown", "refused"])
def test_a_cancel_that_came_too_late_or_is_unknown_is_fine(
    scribe: Scribe, tmp_path: Path, outcome: str
) -> None:
    scribe.schedule("m", 1_000)
    scribe.cancel("m", 900, 910, outcome)
    scribe.deliver("m", 1_000, 1_000)
    finish(scribe)
    assert scribe.verdicts(tmp_path) == []


def test_a_cancel_after_it_was_given_back_is_fine(scribe: Scribe, tmp_path: Path) -> None:
    scribe.schedule("m", 1_000)
    scribe.deliver("m", 1_000, 1_000)
    scribe.settle("nack", "m", 1_100, 1_110, ms=5_000)
    scribe.cancel("m", 1_200, 1_210)
    assert scribe.verdicts(tmp_path) == []


def test_a_cancel_after_its_consumer_fell_silent_is_fine(scribe: Scribe, tmp_path: Path) -> None:
    scribe.schedule("m", 1_000)
    scribe.deliver("m", 1_000, 1_000)
    scribe.cancel("m", 20_000, 20_010)
    scribe.polls("c", 25_000, 26_000)
    assert scribe.verdicts(tmp_path) == []


# ---------------------------------------------------------------- twice


def twice(scribe: Scribe, second: float, token: int = 2) -> None:
    """A delivery to c at 1,000 with a lease of 5 s, c lives on; another one to d later."""
    scribe.schedule("m", 1_000)
    scribe.deliver("m", 1_000, 1_000, lease=5_000)
    scribe.polls("c", 1_500, 9_500)
    scribe.deliver("m", 1_000, second, token=token, attempt=2, client="d")
    finish(scribe, token=token, at=second + 10, client="d")


def test_another_consumer_has_it_while_a_lease_runs(scribe: Scribe, tmp_path: Path) -> None:
    twice(scribe, 5_900)
    assert scribe.verdicts(tmp_path) == [Verdict.TWICE]


def test_one_lease_handed_out_twice(scribe: Scribe, tmp_path: Path) -> None:
    twice(scribe, 8_000, token=1)
    assert Verdict.TWICE in scribe.verdicts(tmp_path)


def test_an_extended_lease_counts(scribe: Scribe, tmp_path: Path) -> None:
    scribe.settle("extend", "m", 2_000, 2_010, ms=6_000)
    twice(scribe, 7_900)
    assert scribe.verdicts(tmp_path) == [Verdict.TWICE]


def test_a_confirmed_nack_says_that_the_lease_held_until_then(scribe: Scribe, tmp_path: Path) -> None:
    scribe.settle("nack", "m", 7_000, 7_010)
    twice(scribe, 6_500)
    assert scribe.verdicts(tmp_path) == [Verdict.TWICE]


@pytest.mark.parametrize("second", [6_001, 5_985])
def test_redelivery_after_the_lease_is_fine(scribe: Scribe, tmp_path: Path, second: float) -> None:
    twice(scribe, second)
    assert scribe.verdicts(tmp_path) == []


@pytest.mark.parametrize("kind", ["nack", "release"])
@pytest.mark.parametrize(("until", "outcome"), [(2_010, "done"), (2_010, "unknown"), (None, "")])
def test_redelivery_after_it_was_given_back_is_fine(
    scribe: Scribe, tmp_path: Path, kind: str, until: float | None, outcome: str
) -> None:
    scribe.settle(kind, "m", 2_000, until, outcome=outcome)
    twice(scribe, 2_005)
    assert scribe.verdicts(tmp_path) == []


def test_redelivery_after_the_lease_was_lost_is_fine(scribe: Scribe, tmp_path: Path) -> None:
    scribe.lose("m", 4_000)
    twice(scribe, 3_500)
    assert scribe.verdicts(tmp_path) == []


def test_redelivery_after_a_refused_settling_is_fine(scribe: Scribe, tmp_path: Path) -> None:
    scribe.settle("ack", "m", 3_990, 4_000, outcome="stale")
    twice(scribe, 3_500)
    assert scribe.verdicts(tmp_path) == []


def test_redelivery_after_an_extension_that_may_have_shortened_the_lease_is_fine(
    scribe: Scribe, tmp_path: Path
) -> None:
    scribe.settle("extend", "m", 2_000, 2_100, ms=1_000, outcome="unknown")
    twice(scribe, 3_100)
    assert scribe.verdicts(tmp_path) == []


def test_redelivery_after_its_consumer_closed_or_died_is_fine(scribe: Scribe, tmp_path: Path) -> None:
    scribe.schedule("m", 1_000)
    scribe.deliver("m", 1_000, 1_000)
    scribe.close(2_000, 2_500)
    scribe.deliver("m", 1_000, 2_100, token=2, client="d")
    scribe.settle("ack", "m", 2_200, 2_300, 2, client="d")
    scribe.schedule("n", 1_000)
    scribe.deliver("n", 1_000, 1_000, client="killed")
    scribe.deliver("n", 1_000, 11_100, token=2, client="d")
    scribe.settle("ack", "n", 11_200, 11_300, 2, client="d")
    assert scribe.verdicts(tmp_path) == []


# ---------------------------------------------------------------- again


def test_delivered_again_after_a_confirmed_ack(scribe: Scribe, tmp_path: Path) -> None:
    scribe.schedule("m", 1_000)
    scribe.deliver("m", 1_000, 1_000)
    finish(scribe)
    scribe.deliver("m", 1_000, 40_000, token=2, attempt=2, client="d")
    finish(scribe, token=2, at=40_100, client="d")
    assert scribe.verdicts(tmp_path) == [Verdict.AGAIN]


def test_a_later_lease_is_again_even_if_clocks_cannot_tell(scribe: Scribe, tmp_path: Path) -> None:
    scribe.schedule("m", 1_000)
    scribe.deliver("m", 1_000, 1_000)
    finish(scribe)
    scribe.deliver("m", 1_000, 1_106, token=2, attempt=2, client="d")
    finish(scribe, token=2, at=1_200, client="d")
    assert scribe.verdicts(tmp_path) == [Verdict.AGAIN]


@pytest.mark.parametrize(("until", "outcome"), [(6_010, "unknown"), (6_010, "stale"), (None, "")])
def test_redelivery_after_an_ack_that_was_not_confirmed_is_fine(
    scribe: Scribe, tmp_path: Path, until: float | None, outcome: str
) -> None:
    scribe.settle("ack", "m", 5_500, until, outcome=outcome)
    twice(scribe, 6_100)
    assert scribe.verdicts(tmp_path) == []


# ---------------------------------------------------------------- unexpected


def test_an_id_that_nobody_scheduled(scribe: Scribe, tmp_path: Path) -> None:
    scribe.deliver("m", 1_000, 1_000)
    finish(scribe)
    assert scribe.verdicts(tmp_path) == [Verdict.UNEXPECTED]


def test_what_was_refused_is_unexpected(scribe: Scribe, tmp_path: Path) -> None:
    scribe.schedule("m", 1_000, outcome="refused")
    scribe.deliver("m", 1_000, 1_000)
    finish(scribe)
    assert scribe.verdicts(tmp_path) == [Verdict.UNEXPECTED]


def test_an_unknown_insert_explains_one_message_of_its_payload(scribe: Scribe, tmp_path: Path) -> None:
    scribe.schedule("m", 1_000, outcome="unknown")
    scribe.deliver("m", 1_000, 1_000)
    finish(scribe)
    judgement = scribe.judge(tmp_path)
    assert judgement.clean
    assert judgement.counts.appeared == 1


def test_an_unknown_insert_does_not_explain_two(scribe: Scribe, tmp_path: Path) -> None:
    scribe.schedule("m", 1_000, outcome="unknown")
    for message in ("m", "copy-of-m"):
        scribe.deliver(message, 1_000, 1_000, payload=payload_of("m"))
        finish(scribe, message)
    judgement = scribe.judge(tmp_path)
    assert [len(found) for found in judgement.findings.values() if found] == [1]
    assert judgement.findings[Verdict.UNEXPECTED]


def test_a_retry_that_succeeds_does_not_explain_a_second_id(scribe: Scribe, tmp_path: Path) -> None:
    body = payload_of("m")
    scribe.schedule("m", 1_000, payload=body)
    number = scribe.invoke(20, "p", "schedule", due=1_700_000_001_000, crc=[1], size=[1])
    scribe.complete(30, "p", number, id="", outcome="unknown")
    scribe.complete(40, "p", number, id="n", outcome="done")
    for message, payload in (("m", body), ("copy", body)):
        scribe.deliver(message, 1_000, 1_000, payload=payload)
        finish(scribe, message)
    assert scribe.verdicts(tmp_path) == [Verdict.LOST, Verdict.UNEXPECTED]


def test_an_insert_that_began_after_the_delivery_does_not_explain_it(scribe: Scribe, tmp_path: Path) -> None:
    scribe.deliver("m", 1_000, 1_000)
    finish(scribe)
    scribe.schedule("m", 1_000, 2_000, 2_010, outcome="unknown")
    assert scribe.verdicts(tmp_path) == [Verdict.UNEXPECTED]


def test_what_comes_of_an_unknown_insert_must_not_be_early_either(scribe: Scribe, tmp_path: Path) -> None:
    scribe.schedule("m", 1_000, until=None)
    scribe.deliver("m", 1_000, 900)
    finish(scribe)
    assert scribe.verdicts(tmp_path) == [Verdict.EARLY]


def test_one_id_told_for_two_inserts(scribe: Scribe, tmp_path: Path) -> None:
    scribe.schedule("m", 1_000)
    scribe.schedule("m", 1_000, 20, 30)
    scribe.deliver("m", 1_000, 1_000)
    finish(scribe)
    assert scribe.verdicts(tmp_path) == [Verdict.UNEXPECTED]


def test_an_id_that_never_was_may_be_asked_for(scribe: Scribe, tmp_path: Path) -> None:
    scribe.cancel("m", 100, 110, "not_found")
    assert scribe.verdicts(tmp_path) == []


# ---------------------------------------------------------------- damaged


def test_another_payload_is_damage(scribe: Scribe, tmp_path: Path) -> None:
    scribe.schedule("m", 1_000)
    scribe.deliver("m", 1_000, 1_000, payload=b"something else")
    finish(scribe)
    assert scribe.verdicts(tmp_path) == [Verdict.DAMAGED]


def test_an_empty_payload_is_a_payload(scribe: Scribe, tmp_path: Path) -> None:
    scribe.schedule("m", 1_000, payload=b"")
    scribe.deliver("m", 1_000, 1_000, payload=b"")
    finish(scribe)
    assert scribe.verdicts(tmp_path) == []
