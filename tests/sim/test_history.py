"""The verdicts over what clients were told, one small history each."""

from __future__ import annotations

from dueq_chaos.sim.judging.history import Delivery, History

KEY = (1, 2, 3)


def history(due_ms: int = 1_000) -> History:
    told = History()
    told.inserted(KEY, b"x", due_ms, due_ms)
    return told


def got(
    at_ms: int, consumer: str = "a", token: int = 7, until_ms: int = 9_000, payload: bytes = b"x"
) -> Delivery:
    return Delivery(at_ms * 1000, consumer, token, 1, payload, until_ms * 1000)


def verdicts(told: History) -> list[str]:
    return [verdict.removeprefix("p1:2:3: ").split(":")[0] for verdict in told.verdicts()]


def test_delivered_in_time_and_acknowledged_is_well() -> None:
    told = history()
    told.delivered(KEY, got(1_000))
    told.acked(KEY, 1_100_000, 7)
    assert told.done()
    assert verdicts(told) == []


def test_never_delivered_is_lost_and_never_acknowledged_is_unfinished() -> None:
    told = history()
    assert verdicts(told) == ["lost"]
    told.delivered(KEY, got(1_000))
    assert verdicts(told) == ["never finished"]


def test_before_its_due_is_early_but_for_the_error_of_clocks() -> None:
    told = history()
    told.delivered(KEY, got(998))
    told.acked(KEY, 1_100_000, 7)
    assert verdicts(told) == ["delivered early by 2000 us"]
    assert told.verdicts(clock_error_us=2_000) == []


def test_after_a_confirmed_move_only_its_due_counts() -> None:
    told = history()
    told.moved(KEY, 5_000, at_us=900_000, asked_at_us=800_000)
    told.delivered(KEY, got(1_000))
    told.acked(KEY, 6_000_000, 7)
    assert verdicts(told) == ["delivered early by 4000000 us"]


def test_nobody_relies_on_a_lease_for_longer_than_its_leader_keeps_it() -> None:
    told = history()
    told.leased(KEY, 7, 8_000_000)
    told.delivered(KEY, got(1_000, until_ms=8_003))
    assert told.wrong == []
    told.delivered(KEY, got(1_000, until_ms=8_006))
    [wrong] = told.wrong
    assert "relies on the lease 6000 us longer than it is" in wrong


def test_two_consumers_within_one_lease() -> None:
    told = history()
    told.delivered(KEY, got(1_000, "a"))
    told.delivered(KEY, got(2_000, "b", token=8))
    told.acked(KEY, 3_000_000, 8)
    assert verdicts(told) == ["delivered twice while a lease was valid"]


def test_a_lease_that_its_holder_has_ended_is_over() -> None:
    told = history()
    first = got(1_000, "a")
    told.delivered(KEY, first)
    first.ended_at_us = 1_500_000
    told.delivered(KEY, got(2_000, "b", token=8))
    told.acked(KEY, 3_000_000, 8)
    assert verdicts(told) == []


def test_acknowledged_and_delivered_again_even_when_the_insert_is_confirmed_last() -> None:
    told = History()
    told.unacknowledged[b"x"] = None
    told.delivered(KEY, got(1_000))
    told.acked(KEY, 1_100_000, 7)
    told.inserted(KEY, b"x", 1_000, 1_000)
    told.delivered(KEY, got(9_500, token=8))
    assert verdicts(told) == ["acknowledged and delivered again"]


def test_acknowledged_under_two_leases() -> None:
    told = history()
    told.delivered(KEY, got(1_000))
    told.acked(KEY, 1_100_000, 7)
    told.acked(KEY, 1_200_000, 7)
    assert verdicts(told) == []
    told.acked(KEY, 1_300_000, 8)
    assert verdicts(told) == ["acknowledged twice, under tokens 7 and 8"]


def test_cancelled_while_held_and_delivered_after_the_cancel() -> None:
    told = history()
    told.delivered(KEY, got(1_000))
    told.cancelled(KEY, asked_at_us=1_500_000, at_us=1_600_000)
    told.delivered(KEY, got(9_500, token=8))
    assert verdicts(told) == ["cancelled while a consumer holds it", "delivered after a confirmed cancel"]


def test_what_was_refused_or_never_asked_for_is_not_delivered() -> None:
    told = History()
    told.refused[b"x"] = "Busy"
    told.delivered(KEY, got(1_000))
    told.delivered((1, 9, 9), got(1_000, payload=b"y"))
    assert sorted(told.verdicts()) == [
        "p1:2:3: delivered though its insert was refused: Busy", "p1:2:3: unexpected", "p1:9:9: unexpected",
    ]  # fmt: skip


def test_one_payload_under_two_ids_was_inserted_twice() -> None:
    told = history()
    told.delivered(KEY, got(1_000))
    told.acked(KEY, 1_100_000, 7)
    told.unacknowledged[b"x"] = None
    told.delivered((1, 5, 0), got(1_000))
    assert told.verdicts() == ["p1:5:0: inserted twice, also as p1:2:3"]


def test_an_ack_of_unknown_outcome_is_no_loss_until_it_is_delivered_again() -> None:
    told = history()
    told.delivered(KEY, got(1_000))
    told.maybe_acked(KEY)
    assert verdicts(told) == []
    told.delivered(KEY, got(9_500, token=8))
    assert verdicts(told) == ["never finished"]


def test_a_recurrence_takes_no_message_back_that_was_pushed_under_the_lease_that_goes_with_it() -> None:
    released, pushed = History(), History()
    for told, token in (released, 9), (pushed, 7):
        told.fired(KEY, b"x", 1_000, 1_000, 0)
        told.delivered(KEY, got(1_000, token=7))
        told.taken_back(KEY, token)
    assert verdicts(released) == []
    assert verdicts(pushed) == ["taken back, and was delivered"]
