"""What the user decides about messages: who is told, when, and what comes back."""

from __future__ import annotations

from dueq import limits
from dueq.client.core.consuming.settling import joined_acks
from dueq.client.core.ports import events
from dueq.client.core.ports.delivery import Delivery
from dueq.client.core.ports.effects import Completed, Deliver, Effect, Failed, LeaseLost, Send
from dueq.errors import OutcomeUnknown
from dueq_codecs.messages import ChangeReply, ChangeRequest, Code, ConsumerFrame
from dueq_codecs.records import Fate, Outcome, RecordKind
from tests.unit.client.stage import (
    CONSUMER,
    Stage,
    attached,
    confirm,
    delivered,
    endpoint,
    of,
    ok,
    push,
    sent,
    settle,
)


def settled_at(stage: Stage, *deliveries: Delivery) -> list[int]:
    """The user is done with them; returns the links that the acks went by."""
    stage.step(events.Settle(CONSUMER, RecordKind.ACK, deliveries))
    effects = of(stage.run_until(stage.ms + 2), Send)
    return [effect.link for effect in effects if isinstance(effect.message, ChangeRequest)]


def test_an_ack_goes_to_who_pushed_the_newest_lease_though_nobody_has_said_that_it_leads() -> None:
    stage = Stage(["a", "b"], {1: "a", 2: "b"})
    attached(stage)
    [first] = delivered(stage, "a", b"x", token=60)
    [second] = delivered(stage, "b", b"y", attach=2, sequence=51, token=61)
    assert settled_at(stage, second) == [stage.links[endpoint("b")]]
    # What an earlier leader sent before it lost the partition may come after.
    [late] = delivered(stage, "a", b"z", number=2, sequence=52, token=59)
    assert settled_at(stage, first, late) == [stage.links[endpoint("b")]]


def test_acks_travel_together_within_two_milliseconds_and_repeat_until_confirmed() -> None:
    stage = Stage()
    attached(stage)
    first, second = delivered(stage, "a", b"x", b"y")
    stage.step(events.Settle(CONSUMER, RecordKind.ACK, [first]))
    [request] = settle(stage, RecordKind.ACK, second)
    assert (request.sequence, request.rows) == (1, 2)
    assert (request.target_row.tolist(), request.token.tolist()) == ([0, 1], [60, 60])
    assert sent(stage.run_until(stage.ms + 1_100), ChangeRequest) == [request]
    stage.receive("a", ok(request, 99, outcomes=[0, 0]))
    assert sent(stage.run_until(stage.ms + 5_000), ChangeRequest) == []


def test_an_ack_that_nobody_waits_for_is_patient_until_others_are_not_or_credit_runs_short() -> None:
    stage = Stage()
    attached(stage, credit=8, linger_us=20_000)
    a, b, c, d, e = delivered(stage, "a", b"1", b"2", b"3", b"4", b"5")
    assert settle(stage, RecordKind.ACK, a) == []
    [request] = sent(stage.run_until(stage.ms + 18), ChangeRequest)
    stage.receive("a", ok(request, 99, outcomes=[0]))
    assert settle(stage, RecordKind.ACK, b) == []
    [together] = settle(stage, RecordKind.ACK, c)
    assert together.rows == 2
    stage.receive("a", ok(together, 100, outcomes=[0, 0]))
    assert settle(stage, RecordKind.ACK, d) == []
    assert {request.kind for request in settle(stage, RecordKind.NACK, e)} == {
        RecordKind.ACK,
        RecordKind.NACK,
    }


def test_acks_one_after_another_are_one_decision_and_stay_before_what_comes_after_them() -> None:
    other = b"another consumer"
    stage = Stage()
    attached(stage)
    a, b, c, d, e, f = delivered(stage, "a", b"1", b"2", b"3", b"4", b"5", b"6")

    def ack(
        *deliveries: Delivery, consumer: bytes = CONSUMER, call: int = 0, reason: str = ""
    ) -> events.Settle:
        return events.Settle(consumer, RecordKind.ACK, deliveries, call=call, reason=reason)

    release = events.Settle(CONSUMER, RecordKind.RELEASE, [d])
    happened = [
        ack(a),
        ack(b, c),
        release,
        ack(e),
        ack(f, consumer=other),
        ack(a, call=3),
        ack(b, reason="x"),
    ]
    joined = [
        (event.consumer_id, event.kind, list(event.deliveries), event.call, event.reason)
        for event in joined_acks(happened)
        if isinstance(event, events.Settle)
    ]
    assert joined == [
        (CONSUMER, RecordKind.ACK, [a, b, c], 0, ""),
        (CONSUMER, RecordKind.RELEASE, [d], 0, ""),
        (CONSUMER, RecordKind.ACK, [e], 0, ""),
        (other, RecordKind.ACK, [f], 0, ""),
        (CONSUMER, RecordKind.ACK, [a], 3, ""),
        (CONSUMER, RecordKind.ACK, [b], 0, "x"),
    ]
    assert list(joined_acks([])) == []


def test_each_row_of_a_request_has_what_its_own_decision_said() -> None:
    stage = Stage(["a"], {1: "a", 2: "a"})
    attached(stage)
    a, b, c, d = delivered(stage, "a", b"1", b"2", b"3", b"4")
    for delivery, amount_ms, reason in ((a, 10, "x"), (b, 0, ""), (c, 30, "y")):
        settling = events.Settle(CONSUMER, RecordKind.NACK, [delivery], amount_ms, reason=reason)
        assert not sent(stage.step(settling), ChangeRequest)
    acks = events.Settle(CONSUMER, RecordKind.ACK, [d], reason="filtered")
    stage.step(acks)
    nack, ack = sorted(sent(stage.run_until(stage.ms + 2), ChangeRequest), key=lambda request: request.rows)[
        ::-1
    ]
    assert (nack.amount_ms.tolist(), list(nack.reasons)) == ([10, 0, 30], ["x", "", "y"])
    assert (ack.rows, list(ack.reasons)) == (1, ["filtered"])


def test_of_decisions_that_are_confirmed_nothing_is_left_to_be_looked_at() -> None:
    """A request is given up after a quarter of an hour: by then there would be a million of them."""
    stage = Stage()
    attached(stage)
    for number in range(1, 1_001):
        [delivery] = delivered(stage, "a", b"x", number=number, token=60 + number)
        delivery.handed = True
        [request] = settle(stage, RecordKind.ACK, delivery)
        stage.receive("a", ok(request, 99, outcomes=[Outcome.DONE]))
    assert len(stage.core._context.timers) < 600


def patient_acks(stage: Stage, *deliveries: Delivery) -> list[ChangeRequest]:
    """The user is done with them and waits for nothing; returns the requests once they were gathered."""
    stage.step(events.Settle(CONSUMER, RecordKind.ACK, deliveries))
    return sent(stage.run_until(stage.ms + limits.ACK_LINGER_MS), ChangeRequest)


def test_an_ack_that_nobody_waits_for_may_wait_at_the_leader_too() -> None:
    stage = Stage()
    attached(stage, credit=64, linger_us=limits.ACK_LINGER_MS * 1000)
    a, b, c = delivered(stage, "a", b"1", b"2", b"3")
    assert [request.patient for request in patient_acks(stage, a)] == [True]
    assert [request.patient for request in settle(stage, RecordKind.ACK, b, call=7)] == [False]
    assert [request.patient for request in settle(stage, RecordKind.NACK, c)] == [False]


def test_acks_that_hold_a_quarter_of_the_credit_do_not_wait_at_the_leader() -> None:
    stage = Stage()
    attached(stage, credit=8, linger_us=limits.ACK_LINGER_MS * 1000)
    first, second = delivered(stage, "a", b"1", b"2")
    assert [request.patient for request in patient_acks(stage, first)] == [True]
    assert [request.patient for request in patient_acks(stage, second)] == [False]


def test_acks_of_short_leases_never_wait_at_the_leader() -> None:
    stage = Stage()
    attached(stage, credit=8, lease_ms=500, linger_us=50_000)
    [delivery] = delivered(stage, "a", b"1")
    assert [request.patient for request in patient_acks(stage, delivery)] == [False]


def test_an_ack_that_somebody_waits_for_does_not_wait_behind_patient_ones() -> None:
    stage = Stage()
    attached(stage, credit=64, linger_us=limits.ACK_LINGER_MS * 1000)
    first, second, third, fourth, fifth = delivered(stage, "a", b"1", b"2", b"3", b"4", b"5")
    assert len(patient_acks(stage, first) + patient_acks(stage, second)) == 2
    assert patient_acks(stage, third) == []
    [request] = settle(stage, RecordKind.ACK, fourth, call=7)
    assert (request.rows, request.patient) == (2, False)
    assert [request.rows for request in settle(stage, RecordKind.ACK, fifth, call=8)] == [1]


def test_an_ack_waits_for_earlier_answers_no_longer_than_for_company() -> None:
    """Its lease does not wait: an answer takes as long as the slowest disk, and may come after the end."""
    stage = Stage()
    attached(stage, credit=64, lease_ms=400, linger_us=40_000)
    first, second, third = delivered(stage, "a", b"1", b"2", b"3", left_ms=400)
    for call, delivery in ((1, first), (2, second)):
        assert len(settle(stage, RecordKind.ACK, delivery, call=call)) == 1
    assert settle(stage, RecordKind.ACK, third, call=3) == []
    assert sent(stage.run_until(stage.ms + 38), ChangeRequest) == []
    sent_then = sent(stage.run_until(stage.ms + 2), ChangeRequest)
    assert [request.target_row.tolist() for request in sent_then] == [[2]]


def test_what_waits_for_an_earlier_answer_waits_on_while_nobody_leads() -> None:
    stage = Stage()
    attached(stage, credit=64, linger_us=40_000)
    first, second, third = delivered(stage, "a", b"1", b"2", b"3")
    stage.step(events.LinkLost(stage.links[endpoint("a")], "gone"))
    for call, delivery in ((1, first), (2, second), (3, third)):
        assert settle(stage, RecordKind.ACK, delivery, call=call) == []
    assert sent(stage.run_until(stage.ms + 400), ChangeRequest) == []
    effects = stage.connect("a") + stage.run_until(stage.ms + 500)
    assert [request.target_row.tolist() for request in sent(effects, ChangeRequest)] == [[0], [1]]


def test_a_consumer_that_is_closed_does_not_wait_for_the_leader_to_gather() -> None:
    stage = Stage()
    attached(stage, credit=64, linger_us=limits.ACK_LINGER_MS * 1000)
    [delivery] = delivered(stage, "a", b"1")
    stage.step(events.Settle(CONSUMER, RecordKind.ACK, [delivery]))
    effects = stage.step(events.CloseConsumer(9, stage.at_us(stage.ms + 1_000), CONSUMER, []))
    assert [request.patient for request in sent(effects, ChangeRequest)] == [False]


def test_an_ack_that_somebody_waits_for_is_sent_soon() -> None:
    stage = Stage()
    attached(stage, linger_us=20_000)
    [delivery] = delivered(stage, "a", b"1")
    assert [request.rows for request in settle(stage, RecordKind.ACK, delivery, call=7)] == [1]


def crowd(stage: Stage, count: int) -> list[tuple[bytes, Delivery]]:
    """That many consumers of one client, each with one message of the same partition."""
    stage.connect()
    holding = []
    for number in range(count):
        consumer_id = bytes([number]) * 16
        for frame in sent(stage.consume(consumer_id=consumer_id), ConsumerFrame):
            stage.receive(frame.leader, confirm(frame))
        message, body = push(
            "a", 1, 1, [b"x"], token=70 + number, sequence=50 + number, consumer_id=consumer_id
        )
        [pushed] = of(stage.receive("a", message, body), Deliver)
        holding.append((consumer_id, pushed.deliveries[0]))
    return holding


def test_many_consumers_of_one_client_share_the_requests_that_acknowledge() -> None:
    stage = Stage()
    holding = crowd(stage, 10)
    for consumer_id, delivery in holding:
        stage.step(events.Settle(consumer_id, RecordKind.ACK, [delivery]))
    first, second = sent(stage.run_until(stage.ms + 2), ChangeRequest)
    rest = sent(stage.receive("a", ok(first, 99, outcomes=[0])), ChangeRequest)
    assert [(each.sequence, each.rows) for each in (first, second, *rest)] == [(1, 1), (2, 1), (3, 8)]
    assert rest[0].token.tolist() == list(range(72, 80))


def test_a_consumer_that_is_closed_takes_only_its_own_decisions_with_it() -> None:
    stage = Stage()
    holding = crowd(stage, 4)
    for consumer_id, delivery in holding:
        stage.step(events.Settle(consumer_id, RecordKind.ACK, [delivery]))
    first, _ = sent(stage.run_until(stage.ms + 2), ChangeRequest)
    gone = holding[2][0]
    stage.step(events.CloseConsumer(9, stage.at_us(stage.ms + 1), gone, []))
    stage.run_until(stage.ms + 1)
    [shared] = sent(stage.receive("a", ok(first, 99, outcomes=[0])), ChangeRequest)
    assert shared.token.tolist() == [73]


def test_a_refused_ack_comes_as_a_lost_lease() -> None:
    stage = Stage()
    attached(stage)
    [delivery] = delivered(stage, "a", b"x")
    [request] = settle(stage, RecordKind.ACK, delivery)
    [lost] = of(stage.receive("a", ok(request, 99, outcomes=[Outcome.STALE])), LeaseLost)
    assert lost.deliveries == [delivery]
    assert delivery.lost


def test_an_ack_that_waits_gets_outcomes_and_its_retry_the_same_ones() -> None:
    stage = Stage()
    attached(stage)
    batch = delivered(stage, "a", b"x", b"y")
    [request] = settle(stage, RecordKind.ACK, *batch, call=5)
    [failed] = of(stage.run_until(stage.ms + 4_000), Failed)
    assert isinstance(failed.error, OutcomeUnknown)
    stage.step(events.Settle(CONSUMER, RecordKind.ACK, batch, 0, 6, stage.at_us(stage.ms + 5_000)))
    [done] = of(stage.receive("a", ok(request, 99, outcomes=[Outcome.DONE, Outcome.STALE])), Completed)
    assert (done.call, done.value) == (6, [Outcome.DONE, Outcome.STALE])
    [late] = of(
        stage.step(events.Settle(CONSUMER, RecordKind.ACK, batch, 0, 7, stage.at_us(60_000))), Completed
    )
    assert late.value == [Outcome.DONE, Outcome.STALE]


def test_an_ack_that_no_leader_ever_answers_has_an_unknown_outcome_and_not_a_refused_one() -> None:
    stage = Stage()
    attached(stage)
    [delivery] = delivered(stage, "a", b"x")
    deadline_us = stage.at_us(limits.DEDUP_MS + 60_000)
    stage.step(events.Settle(CONSUMER, RecordKind.ACK, [delivery], 0, 5, deadline_us))
    stage.run_until(2_000)
    [done] = of(stage.step(ms=limits.DEDUP_MS + 3_000), Completed)
    assert done.value == [Outcome.UNKNOWN]


def test_acks_and_extensions_by_turns_share_requests() -> None:
    """While two requests are under way the others wait: together, whichever kind was between them."""
    stage = Stage()
    attached(stage, credit=100, linger_us=1_000_000)
    deliveries = delivered(stage, "a", *[b"x"] * 42, left_ms=30_000)
    turns = [RecordKind.ACK, RecordKind.EXTEND] * 21
    for delivery, kind in zip(deliveries, turns, strict=True):
        settle(stage, kind, delivery, call=100 + delivery.row, amount_ms=30_000)
        stage.run_until(stage.ms + 3)

    def done(request: ChangeRequest, sequence: int) -> list[Effect]:
        return stage.receive("a", ok(request, sequence, outcomes=[0] * request.rows))

    first, second = requests = sent(stage.effects, ChangeRequest)
    assert [request.rows for request in requests] == [1, 1]
    effects = done(first, 90) + done(second, 91)
    third, fourth = requests = sent(effects, ChangeRequest)
    assert [(request.kind, request.rows) for request in requests] == [
        (RecordKind.ACK, 1),
        (RecordKind.EXTEND, 20),
    ]
    effects = done(third, 92) + done(fourth, 93)
    assert [(request.kind, request.rows) for request in sent(effects, ChangeRequest)] == [
        (RecordKind.ACK, 19)
    ]


def test_a_message_that_is_extended_over_and_over_at_once_is_named_by_more_than_one_request() -> None:
    """A leader refuses a request that names one message more often than that."""
    stage = Stage()
    attached(stage)
    [first, second] = delivered(stage, "a", b"x", b"y")
    for _ in range(2 * limits.REQUEST_NAMES_MAX + 1):
        stage.step(events.Settle(CONSUMER, RecordKind.EXTEND, [first, second], 40_000))
    stage.run_until(stage.ms + 10)
    requests = sent(stage.effects, ChangeRequest)
    rows = [row for request in requests for row in request.target_row.tolist()]
    assert sorted(rows) == [0] * 33 + [1] * 33
    assert max(request.target_row.tolist().count(0) for request in requests) <= limits.REQUEST_NAMES_MAX


def test_no_request_brings_more_headers_than_a_partition_may_keep() -> None:
    """Each row of a nack keeps them. A request with too many would be refused however often it is repeated."""
    stage = Stage()
    attached(stage, credit=200)
    deliveries = delivered(stage, "a", *[b"x"] * 100, left_ms=30_000)
    headers = '{"why":"%s"}' % ("w" * 16_000)
    stage.step(events.Settle(CONSUMER, RecordKind.NACK, deliveries, headers=headers))
    stage.run_until(stage.ms + 10)
    rows, answered = 0, 0
    while len(requests := sent(stage.effects, ChangeRequest)) > answered:
        request = requests[answered]
        answered += 1
        rows += request.rows
        assert request.rows * len(request.document) <= limits.REQUEST_HEADINGS_BYTES
        stage.receive("a", ok(request, 90 + answered, outcomes=[0] * request.rows))
    assert rows == 100


def test_a_message_that_is_extended_over_and_over_while_others_wait_is_named_by_more_than_one_request() -> (
    None
):
    stage = Stage()
    attached(stage)
    [first] = delivered(stage, "a", b"x")
    for _ in range(6 * limits.REQUEST_NAMES_MAX):
        stage.step(events.Settle(CONSUMER, RecordKind.EXTEND, [first], 40_000))
    stage.run_until(stage.ms + 10)
    rows, answered = 0, 0
    while len(requests := sent(stage.effects, ChangeRequest)) > answered:
        request = requests[answered]
        answered += 1
        rows += request.rows
        assert request.rows <= limits.REQUEST_NAMES_MAX
        stage.receive("a", ok(request, 90 + answered, outcomes=[0] * request.rows))
    assert rows == 6 * limits.REQUEST_NAMES_MAX


def test_each_nack_of_a_request_has_its_own_fate() -> None:
    stage = Stage()
    attached(stage)
    fates = [Fate.DELAY, Fate.DEAD, Fate.BACK_OFF]
    for delivery, fate in zip(delivered(stage, "a", b"1", b"2", b"3"), fates, strict=True):
        stage.step(events.Settle(CONSUMER, RecordKind.NACK, [delivery], 5, fate=fate))
    [request] = sent(stage.run_until(2), ChangeRequest)
    assert (request.fate.tolist(), request.target_row.tolist()) == (fates, [0, 1, 2])


def test_a_release_says_how_long_to_wait_only_if_some_message_is_to_wait() -> None:
    """Brokers of an older build know no delay of a release."""
    stage = Stage()
    attached(stage)
    first, second, third = delivered(stage, "a", b"1", b"2", b"3")
    [plain] = settle(stage, RecordKind.RELEASE, first)
    stage.step(events.Settle(CONSUMER, RecordKind.RELEASE, [second]))
    [delayed] = settle(stage, RecordKind.RELEASE, third, amount_ms=30)
    assert (plain.amount_ms.tolist(), delayed.amount_ms.tolist()) == ([], [0, 30])


def test_fates_and_reasons_that_nobody_has_named_take_no_room_in_a_request() -> None:
    stage = Stage()
    attached(stage)
    first, second = delivered(stage, "a", b"1", b"2")
    [nack] = settle(stage, RecordKind.NACK, first, amount_ms=5)
    [ack] = settle(stage, RecordKind.ACK, second)
    assert [(len(request.fate), len(request.reasons)) for request in (nack, ack)] == [(0, 0), (0, 0)]


def test_an_ack_that_a_leader_refuses_for_good_is_as_one_that_came_too_late() -> None:
    stage = Stage()
    attached(stage)
    [delivery] = delivered(stage, "a", b"x")
    [request] = settle(stage, RecordKind.ACK, delivery, call=7)
    effects = stage.receive("a", ChangeReply(request.request_id, Code.NOT_ALLOWED, "why", uid=request.uid))
    assert [completed.value for completed in of(effects, Completed)] == [[Outcome.STALE]]
    assert [lost.deliveries for lost in of(effects, LeaseLost)] == [[delivery]]


def test_what_waits_for_company_is_sent_with_what_cannot_wait() -> None:
    """And the time that it would have waited does not have it sent twice."""
    stage = Stage()
    attached(stage, credit=64, linger_us=20_000)
    first, second, third = delivered(stage, "a", b"1", b"2", b"3")
    assert settle(stage, RecordKind.ACK, first) == []
    [together] = settle(stage, RecordKind.ACK, second, call=7)
    assert together.rows == 2
    stage.receive("a", ok(together, 99, outcomes=[Outcome.DONE] * 2))
    stage.run_until(15)
    assert settle(stage, RecordKind.ACK, third) == []
    assert sent(stage.run_until(30), ChangeRequest) == [], "the earlier one's time was over at 20"
    assert [request.rows for request in sent(stage.run_until(37), ChangeRequest)] == [1]


def at_the_end_of_a_patient_wait(
    stage: Stage, patient: Delivery, *others: events.Settle
) -> list[ChangeRequest]:
    """An ack waits for others, which come just before it is sent; returns what is sent then."""
    stage.step(events.Settle(CONSUMER, RecordKind.ACK, [patient]))
    stage.step(*others, ms=stage.ms + limits.ACK_LINGER_MS - 1)
    return sent(stage.run_until(stage.ms + 1), ChangeRequest)


def test_an_ack_that_somebody_waits_for_keeps_those_that_it_joins_from_waiting_at_the_leader() -> None:
    stage = Stage()
    attached(stage, credit=64, linger_us=limits.ACK_LINGER_MS * 1000)
    first, second = delivered(stage, "a", b"1", b"2")
    waited_for = events.Settle(CONSUMER, RecordKind.ACK, [second], call=7, deadline_us=stage.at_us(9_000))
    [together] = at_the_end_of_a_patient_wait(stage, first, waited_for)
    assert (together.rows, together.patient) == (2, False)


def test_a_nack_never_waits_at_the_leader_though_it_is_sent_with_patient_acks() -> None:
    """The message would be away for longer than its user has said."""
    stage = Stage()
    attached(stage, credit=64, linger_us=limits.ACK_LINGER_MS * 1000)
    first, second = delivered(stage, "a", b"1", b"2")
    requests = at_the_end_of_a_patient_wait(stage, first, events.Settle(CONSUMER, RecordKind.NACK, [second]))
    assert {request.kind: request.patient for request in requests} == {
        RecordKind.ACK: True,
        RecordKind.NACK: False,
    }


def test_what_cannot_wait_is_not_put_off_by_what_can_and_came_later() -> None:
    """Else one patient ack after another would put it off for ever."""
    stage = Stage()
    attached(stage, credit=64, linger_us=20_000)
    first, second = delivered(stage, "a", b"1", b"2")
    stage.step(events.Settle(CONSUMER, RecordKind.NACK, [first]))
    stage.step(events.Settle(CONSUMER, RecordKind.ACK, [second]), ms=1)
    assert {request.kind for request in sent(stage.run_until(2), ChangeRequest)} == {
        RecordKind.ACK,
        RecordKind.NACK,
    }


def test_a_release_that_comes_too_late_is_nothing_that_its_user_must_hear_of() -> None:
    """He has given the message up, and was not to handle it any more."""
    stage = Stage()
    attached(stage)
    [delivery] = delivered(stage, "a", b"x")
    [request] = settle(stage, RecordKind.RELEASE, delivery)
    effects = stage.receive("a", ok(request, 99, outcomes=[Outcome.STALE]))
    assert (of(effects, LeaseLost), delivery.lost) == ([], False)
