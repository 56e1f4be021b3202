"""Extensions of leases: what their end is once several of them were answered, or one was refused."""

from __future__ import annotations

from dueq.client.core.ports import events
from dueq.client.core.ports.delivery import Delivery
from dueq.client.core.ports.effects import Completed, Failed, LeaseLost
from dueq.errors import NotAllowed
from dueq_codecs.messages import ChangeReply, ChangeRequest, Code
from dueq_codecs.records import Outcome, RecordKind
from tests.unit.client.stage import CONSUMER, Stage, attached, delivered, of, ok, sent, settle

LONG_MS, SHORT_MS = 60_000, 20_000


def leased(stage: Stage, *payloads: bytes, linger_us: int = 2_000) -> list[Delivery]:
    """Messages in the user's hands, for 30 seconds."""
    attached(stage, linger_us=linger_us)
    deliveries = delivered(stage, "a", *payloads, left_ms=30_000)
    for delivery in deliveries:
        delivery.handed = True
    return deliveries


def extend(stage: Stage, *deliveries: Delivery, amount_ms: int, call: int = 0) -> None:
    """The user asks for another end; what is gathered is not sent yet."""
    deadline_us = stage.at_us(stage.ms + 4_000)
    stage.step(events.Settle(CONSUMER, RecordKind.EXTEND, deliveries, amount_ms, call, deadline_us))


def done(request: ChangeRequest, sequence: int, row: int = 0) -> ChangeReply:
    return ok(request, sequence, row, outcomes=[Outcome.DONE] * request.rows)


def refused(request: ChangeRequest, code: Code = Code.NOT_ALLOWED) -> ChangeReply:
    return ChangeReply(request.request_id, code, "why", uid=request.uid)


def test_of_two_extensions_in_one_request_the_later_row_counts() -> None:
    """Counted by the earlier one, the user would go on after the lease was over."""
    stage = Stage()
    [delivery] = leased(stage, b"x")
    extend(stage, delivery, amount_ms=LONG_MS)
    extend(stage, delivery, amount_ms=SHORT_MS)
    [request] = sent(stage.run_until(2), ChangeRequest)
    assert request.amount_ms.tolist() == [LONG_MS, SHORT_MS]
    stage.receive("a", done(request, 99))
    assert delivery.deadline_us == stage.at_us(SHORT_MS)


def test_of_extensions_that_were_joined_to_one_request_the_later_row_counts() -> None:
    stage = Stage()
    first, second, third = leased(stage, b"x", b"y", b"z", linger_us=1_000_000)
    requests = settle(stage, RecordKind.EXTEND, first, call=1, amount_ms=LONG_MS)
    requests += settle(stage, RecordKind.EXTEND, second, call=2, amount_ms=LONG_MS)
    assert len(requests) == 2
    asked_ms = []
    for call, amount_ms in ((3, LONG_MS), (4, SHORT_MS)):
        asked_ms.append(stage.ms + amount_ms)
        assert settle(stage, RecordKind.EXTEND, third, call=call, amount_ms=amount_ms) == []
    [joined] = sent(stage.receive("a", done(requests[0], 99)), ChangeRequest)
    assert joined.amount_ms.tolist() == [LONG_MS, SHORT_MS]
    stage.receive("a", done(joined, 100))
    assert third.deadline_us == stage.at_us(asked_ms[1])


def test_of_extensions_that_a_leader_has_gathered_to_one_record_the_later_row_counts() -> None:
    """However the answers come."""
    stage = Stage()
    [delivery] = leased(stage, b"x")
    [long] = settle(stage, RecordKind.EXTEND, delivery, amount_ms=LONG_MS)
    [short] = settle(stage, RecordKind.EXTEND, delivery, amount_ms=SHORT_MS)
    stage.receive("a", done(short, 99, row=0))
    assert delivery.deadline_us == stage.at_us(2 + SHORT_MS)
    stage.receive("a", done(long, 99, row=5))
    assert delivery.deadline_us == stage.at_us(LONG_MS)


def test_each_lease_of_a_request_has_its_own_end() -> None:
    stage = Stage()
    first, second = leased(stage, b"x", b"y")
    extend(stage, first, amount_ms=LONG_MS)
    extend(stage, second, amount_ms=SHORT_MS)
    [request] = sent(stage.run_until(2), ChangeRequest)
    stage.receive("a", ok(request, 99, outcomes=[Outcome.DONE, Outcome.DONE]))
    assert [each.deadline_us for each in (first, second)] == [stage.at_us(LONG_MS), stage.at_us(SHORT_MS)]


def test_an_extension_to_an_earlier_end_that_was_refused_leaves_the_end_that_there_was() -> None:
    """Its caller hears why, and the user goes on."""
    stage = Stage()
    [delivery] = leased(stage, b"x")
    before_us = delivery.deadline_us
    [request] = settle(stage, RecordKind.EXTEND, delivery, call=7, amount_ms=1_000)
    assert delivery.deadline_us == stage.at_us(1_000)
    effects = stage.receive("a", refused(request))
    [failed] = of(effects, Failed)
    assert (failed.call, type(failed.error)) == (7, NotAllowed)
    assert (of(effects, LeaseLost), of(effects, Completed), delivery.lost) == ([], [], False)
    assert delivery.deadline_us == before_us


def test_a_lease_that_could_not_be_extended_as_it_is_over_is_lost() -> None:
    stage = Stage()
    [first, second] = leased(stage, b"x", b"y")
    [request] = settle(stage, RecordKind.EXTEND, first, second, call=7, amount_ms=LONG_MS)
    effects = stage.receive("a", ok(request, 99, outcomes=[Outcome.STALE, Outcome.DONE]))
    assert [lost.deliveries for lost in of(effects, LeaseLost)] == [[first]]
    assert [completed.value for completed in of(effects, Completed)] == [[Outcome.STALE, Outcome.DONE]]
    assert (first.lost, second.lost, second.deadline_us) == (True, False, stage.at_us(LONG_MS))


def test_a_shorter_end_is_looked_at_in_time_though_nobody_answers() -> None:
    stage = Stage()
    [delivery] = leased(stage, b"x")
    settle(stage, RecordKind.EXTEND, delivery, amount_ms=1_000)
    assert of(stage.run_until(900), LeaseLost) == []
    assert [lost.deliveries for lost in of(stage.run_until(1_100), LeaseLost)] == [[delivery]]


def test_a_message_that_was_extended_can_still_be_settled_and_what_is_settled_is_not_extended() -> None:
    stage = Stage()
    [delivery] = leased(stage, b"x")
    settle(stage, RecordKind.EXTEND, delivery, amount_ms=LONG_MS)
    [ack] = settle(stage, RecordKind.ACK, delivery)
    assert ack.kind is RecordKind.ACK
    deadline_us = stage.at_us(stage.ms + 4_000)
    late = stage.step(events.Settle(CONSUMER, RecordKind.EXTEND, [delivery], LONG_MS, 7, deadline_us))
    assert [completed.value for completed in of(late, Completed)] == [[Outcome.STALE]]
    assert sent(late + stage.run_until(stage.ms + 5), ChangeRequest) == []


def test_an_extension_of_which_no_leader_knows_any_more_may_have_ended_the_lease_sooner() -> None:
    """It counts as applied: the user must not go on when the message may be another's."""
    stage = Stage()
    [delivery] = leased(stage, b"x")
    [request] = settle(stage, RecordKind.EXTEND, delivery, call=7, amount_ms=1_000)
    forgotten = ChangeReply(request.request_id, Code.OUTCOME_UNKNOWN, "why", uid=request.uid, epoch=1)
    effects = stage.receive("a", forgotten)
    assert [completed.value for completed in of(effects, Completed)] == [[Outcome.UNKNOWN]]
    assert delivery.deadline_us == stage.at_us(1_000)
