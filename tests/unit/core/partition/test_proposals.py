"""What a leadership has proposed and not applied: its order, what it bounds, and who is told at its end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dueq import limits
from dueq.core.partition.fullness import UnderWay
from dueq.core.partition.proposals import Proposals
from dueq.core.partition.requests import Refusal
from dueq.core.ports.effects import SendClient
from dueq.core.ports.events import Route
from dueq.core.replication.log import resident_bytes
from dueq.core.state.applied import PRESENT, Applied, RequestResult
from dueq.core.turn.context import Context
from dueq.core.turn.settings import CoreSettings
from dueq.instant import Now
from dueq_codecs.messages import ChangeReply, ChangeRequest, Code
from dueq_codecs.records import FEATURE_LEVEL, LogEntry, Outcome, Record, RecordKind

UID = 1
NOW = Now(1_700_000_000_000_000, 5_000_000)


def test_what_an_ended_leadership_has_proposed_leaves_room_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "UNAPPLIED_BYTES_MAX", 8 << 10)
    log: list[LogEntry] = []

    def append(record: Record, body: bytes, now: Now) -> LogEntry:
        record.sequence = len(log) + 1
        log.append(LogEntry(record, body))
        return log[-1]

    gathering: Any = SimpleNamespace(end=lambda uid: None, leave=lambda uid: None)
    context: Any = SimpleNamespace(gathering=gathering, touch=lambda partition: None)
    replica: Any = SimpleNamespace(uid=UID, serving=True, append=append)
    nothing: Any = SimpleNamespace(contents=None, level=1)
    proposals = Proposals(context, nothing, replica, nothing, nothing, nothing)

    def propose() -> int:
        return proposals.propose(Record(RecordKind.LEASE, UID, 0, 0, 0), NOW, bytes(4 << 10))

    while propose():
        assert len(log) < 100
    assert sum(map(resident_bytes, log[:-1])) <= 2 * limits.UNAPPLIED_BYTES_MAX
    proposals.leadership_lost(NOW)
    assert propose()


class Led:
    """A led partition; its log is applied when the test says so."""

    def __init__(self) -> None:
        self.ctx = Context(CoreSettings("b1", 11, "s1", "cluster", "tcp://b1"))
        self.log: list[Record] = []
        self.orphaned: list[int] = []
        self.names: list[Any] = []
        self.crowded: Any = None
        self.under_way: list[int] = []
        """Triggered messages that were under way when each request came."""
        replica: Any = SimpleNamespace(
            uid=UID, serving=True, epoch=1, healthy=lambda now: True, append=self._append
        )
        uploads: Any = SimpleNamespace(
            complete=lambda *_: True,
            fault_of_meta=lambda *_: None,
            taken=lambda number: None,
            orphaned=lambda numbers, now: self.orphaned.extend(numbers),
        )
        dispatcher: Any = SimpleNamespace(
            has_waiting=lambda now: False, withhold=lambda uid, keys: np.zeros(len(keys), np.uint64)
        )
        self.partition: Any = SimpleNamespace(
            uid=UID,
            contents=None,
            level=1,
            fullness=self._fullness,
            fullness_of_names=lambda request: self.crowded,
            look_up_names=lambda hashes, then, now: self.names.append(then),
            answered=lambda request: None,
        )
        topic: Any = SimpleNamespace(name="t", min_isr=2)
        self.proposals = Proposals(self.ctx, topic, replica, uploads, dispatcher, self.partition)

    def _fullness(self, request: ChangeRequest, under_way: UnderWay) -> None:
        self.under_way.append(under_way.triggered)

    def _append(self, record: Record, body: bytes, now: Now) -> LogEntry:
        record.sequence = len(self.log) + 1
        self.log.append(record)
        return LogEntry(record, body)

    def request(self, number: int, kind: RecordKind = RecordKind.INSERT, upload: int = 0) -> ChangeRequest:
        request = ChangeRequest(number, kind, "t", UID, b"c" * 16, number, number)
        one = np.ones(1, np.uint64)
        if kind == RecordKind.INSERT:
            request.due, request.size, request.crc = one, np.ones(1, np.uint32), np.ones(1, np.uint32)
            request.upload = one * np.uint64(upload) if upload else request.upload
        else:
            request.first = request.target_sequence = request.token = one
            request.target_row, request.patient = np.zeros(1, np.uint16), True
        return request

    def ask(self, request: ChangeRequest) -> Code | None:
        refusal = self.proposals.request(Route(b"r"), request, b"x", NOW)
        return refusal.code if refusal is not None else None

    def answers(self) -> dict[int, Code]:
        """The answers since the last call, by request."""
        messages = [effect.message for effect in self.ctx.take() if isinstance(effect, SendClient)]
        return {reply.request_id: reply.code for reply in messages if isinstance(reply, ChangeReply)}


def test_acks_that_wait_for_a_record_come_before_the_end_of_their_leases() -> None:
    """An EXPIRE that came first would have the messages delivered once more, though they are acked."""
    led = Led()
    led.ask(led.request(1, RecordKind.ACK))
    led.proposals.end_turn(NOW)
    assert led.log == []
    led.proposals.propose(Record(RecordKind.EXPIRE, UID, 0, 0, 0), NOW)
    assert [record.kind for record in led.log] == [RecordKind.ACK, RecordKind.EXPIRE]


def test_what_is_in_the_log_has_an_unknown_outcome_and_what_waits_for_its_record_has_none() -> None:
    """The next leader may still commit what is in the log."""
    led = Led()
    led.ask(led.request(1))
    led.proposals.end_turn(NOW)
    led.ask(led.request(2, upload=77))
    led.proposals.leadership_lost(NOW)
    assert led.answers() == {1: Code.OUTCOME_UNKNOWN, 2: Code.NOT_LEADER}
    assert led.orphaned == [77], "its chunks are dropped if nobody names them"
    led.proposals.end_turn(NOW)
    assert len(led.log) == 1


def test_a_repetition_does_not_wait_with_an_attempt_of_an_ended_leadership() -> None:
    """That will never be answered."""
    led = Led()
    for number in (1, 2):
        led.ask(led.request(number))
        led.proposals.end_turn(NOW)
    led.ask(led.request(3))
    led.proposals.leadership_lost(NOW)
    for number in (1, 2, 3):
        assert not led.proposals.repeats(Route(b"r"), led.request(number))


def test_a_record_of_another_leader_in_the_same_place_answers_nobody() -> None:
    led = Led()
    led.ask(led.request(1))
    led.proposals.end_turn(NOW)
    led.proposals.leadership_lost(NOW)
    led.answers()
    result = RequestResult(b"d" * 16, 9, Code.OK, 1, 0, 0)
    led.proposals.applied(led.log[0], Applied(results=[result]))
    assert led.answers() == {}


def test_names_are_looked_up_again_and_again_however_the_looks_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "NAMES_LOOKED_UP_MAX", 1)
    led = Led()
    led.crowded = Refusal(Code.BUSY, "keeps many names")
    for number, found in enumerate((None, [None], [object()]), 1):
        assert led.ask(led.request(number)) is None
        assert led.ask(led.request(9)) == Code.BUSY, "one at a time"
        led.names.pop()(found, NOW)
    assert led.answers() == {1: Code.NOT_LEADER, 2: Code.BUSY}
    led.proposals.end_turn(NOW)
    assert [ref.sequence for record in led.log for ref in record.requests] == [3]


def test_patient_acks_wait_together_for_a_record() -> None:
    """Each record costs every replica a sync: the second ack of a turn must not have them leave at once."""
    led = Led()
    for number in (1, 2):
        led.ask(led.request(number, RecordKind.ACK))
    led.proposals.end_turn(NOW)
    assert led.log == []


def test_a_patient_ack_holds_up_no_request_that_came_before_it() -> None:
    """A caller waits for that one."""
    led = Led()
    led.ask(led.request(1))
    led.ask(led.request(2, RecordKind.ACK))
    led.proposals.end_turn(NOW)
    assert [record.kind for record in led.log] == [RecordKind.INSERT, RecordKind.ACK]


@pytest.mark.parametrize("limit", ["RECORD_ROWS_MAX", "RECORD_BYTES_MAX"])
def test_requests_that_are_alike_make_no_larger_record_than_there_may_be(
    monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(limits, limit, 2)
    led = Led()
    for number in (1, 2, 3):
        led.ask(led.request(number))
    led.proposals.end_turn(NOW)
    assert [record.rows for record in led.log] == [2, 1]


@pytest.mark.parametrize(
    ("kind", "column"),
    [(RecordKind.INSERT, column) for column in ("rank", "expires", "attempts_max", "upload")]
    + [(RecordKind.CANCEL, "expected"), (RecordKind.RELEASE, "amount_ms")],
)
@pytest.mark.parametrize("told", [(0, 5), (5, 0), (5, 7)])
def test_what_one_caller_says_holds_whatever_others_of_the_same_record_say(
    kind: RecordKind, column: str, told: tuple[int, int]
) -> None:
    led = Led()
    led.partition.level = FEATURE_LEVEL
    for number, value in enumerate(told, 1):
        request = led.request(number, kind)
        request.patient = False
        if value:
            setattr(request, column, np.full(1, value, getattr(request, column).dtype))
        assert led.ask(request) is None
    led.proposals.end_turn(NOW)
    [record] = led.log
    assert getattr(record, column).tolist() == list(told)


def test_a_record_that_moves_messages_says_where_to() -> None:
    led = Led()
    for number, due in ((1, 70), (2, 90)):
        request = led.request(number, RecordKind.MOVE)
        request.due, request.patient = np.array([due], np.uint64), False
        led.ask(request)
    led.proposals.end_turn(NOW)
    [record] = led.log
    assert (record.kind, record.due.tolist()) == (RecordKind.MOVE, [70, 90])


def test_who_meets_a_message_of_the_same_key_is_told_which_one_and_when_it_is_due() -> None:
    led = Led()
    led.ask(led.request(1))
    led.proposals.end_turn(NOW)
    result = RequestResult(b"c" * 16, 1, Code.OK, 1, 0, 0, outcomes=np.array([Outcome.KEPT], np.uint8))
    result.present = np.array([(5, 80, 3, 9_000)], PRESENT)
    led.proposals.applied(led.log[0], Applied(results=[result]))
    [reply] = [effect.message for effect in led.ctx.take() if isinstance(effect, SendClient)]
    assert isinstance(reply, ChangeReply)
    met = reply.present_first, reply.present_sequence, reply.present_row, reply.present_due
    assert [column.tolist() for column in met] == [[5], [80], [3], [9_000]]


@pytest.mark.parametrize(
    ("repeated", "claim", "rows"), [(False, False, 1), (True, False, 0), (False, True, 0)]
)
def test_a_sender_is_counted_for_what_it_has_scheduled_and_nothing_twice(
    repeated: bool, claim: bool, rows: int
) -> None:
    """Neither a repetition nor a claim, which only takes keys, brings any message."""
    led = Led()
    led.ask(led.request(1))
    led.proposals.end_turn(NOW)
    [record] = led.log
    record.claim = claim
    result = RequestResult(b"c" * 16, 1, Code.OK, 1, 0, 0, repeated=repeated)
    led.proposals.applied(record, Applied(results=[result]))
    hours = led.ctx.metrics.statistics.document(0)["rows"]
    assert sum(hour["senders"].get((b"c" * 16).hex(), 0) for hour in hours) == rows


def test_what_is_applied_makes_room_though_more_follows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where something is always under way, clients would soon be refused for good."""
    monkeypatch.setattr(limits, "UNAPPLIED_BYTES_MAX", 8 << 10)
    led = Led()
    result = RequestResult(b"c" * 16, 1, Code.OK, 1, 0, 0)
    for number in range(1, 40):
        assert led.ask(led.request(number)) is None
        led.proposals.end_turn(NOW)
        if number > 2:
            led.proposals.applied(led.log[number - 3], Applied(results=[result]))
    assert len(led.log) == 39


def test_a_store_that_takes_no_more_messages_takes_what_ends_them() -> None:
    """Else it would never have room again."""
    led = Led()
    led.ctx.inserts_refused = "disk_full"
    assert led.ask(led.request(1)) == Code.DISK_FULL
    for number, kind in enumerate((RecordKind.ACK, RecordKind.CANCEL), 2):
        assert led.ask(led.request(number, kind)) is None


def test_what_is_applied_or_led_no_more_is_under_way_no_more() -> None:
    """What is counted for ever would leave no room for anything in the end."""
    led = Led()
    led.partition.level = FEATURE_LEVEL
    result = RequestResult(b"c" * 16, 1, Code.OK, 1, 0, 0)
    requests = [led.request(number, RecordKind.TRIGGER) for number in range(1, 6)]
    for request in requests:
        request.patient = False
    for request in requests[:3]:
        led.ask(request)
        led.proposals.end_turn(NOW)
    assert led.under_way == [0, 1, 2]
    led.proposals.applied(led.log[0], Applied(results=[result]))
    led.ask(requests[3])
    assert led.under_way[-1] == 2
    led.proposals.leadership_lost(NOW)
    led.ask(requests[4])
    assert led.under_way[-1] == 0


def test_acks_are_taken_while_inserts_have_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """They end what is there. Refused, a message would be delivered once more."""
    monkeypatch.setattr(limits, "UNAPPLIED_BYTES_MAX", 2 << 10)
    led = Led()
    number = 1
    while led.ask(led.request(number)) is None:
        led.proposals.end_turn(NOW)
        number += 1
    assert led.ask(led.request(number, RecordKind.ACK)) is None
