"""A request that names a shared body is repeated once its partition has that."""

from __future__ import annotations

from zlib import crc32

import numpy as np
import pytest

from dueq.client.core.ports import events
from dueq.client.core.ports.effects import Completed, Effect, Failed
from dueq.client.core.ports.shared_body import SharedBody
from dueq.errors import DiskFull, PayloadTooLarge, UnknownBody
from dueq_codecs.messages import ChangeReply, ChangeRequest, Code
from dueq_codecs.records import Outcome, RecordKind
from tests.unit.client.stage import TOPIC, Stage, of, ok, sent

BODY = SharedBody(b"dear customer" * 100)


@pytest.fixture
def stage() -> Stage:
    stage = Stage()
    stage.connect()
    stage.learn_topic()
    return stage


def insert(stage: Stage, call: int, *own: bytes) -> list[Effect]:
    rows = len(own)
    return stage.step(
        events.Insert(
            call, stage.at_us(stage.ms + 30_000), TOPIC, own, np.full(rows, 5_000, np.uint64),
            np.array([len(each) + BODY.size for each in own], np.uint32),
            np.array([crc32(each + BODY.data) for each in own], np.uint32), shared=BODY,
        )
    )  # fmt: skip


def refused(request: ChangeRequest, code: Code = Code.UNKNOWN_BODY) -> ChangeReply:
    return ChangeReply(request.request_id, code, "why")


def done(request: ChangeRequest) -> ChangeReply:
    return ok(request, 90, outcomes=[Outcome.DONE])


def test_the_body_is_brought_where_it_lacks_and_the_same_request_repeated(stage: Stage) -> None:
    [first] = sent(insert(stage, 7, b"a", b""), ChangeRequest)
    assert (first.shared, first.shared_size) == (BODY.name, BODY.size)
    [bringing] = sent(stage.receive("a", refused(first)), ChangeRequest)
    assert (bringing.kind, bringing.uid, bringing.shared) == (RecordKind.BODY, first.uid, BODY.name)
    assert (bringing.size.tolist(), bringing.crc.tolist()) == ([BODY.size], [BODY.crc])
    [again] = sent(stage.receive("a", done(bringing)), ChangeRequest)
    assert (again.sequence, again.digest) == (first.sequence, first.digest)
    [completed] = of(stage.receive("a", ok(again, sequence=90)), Completed)
    assert len(completed.value.ids()) == 2


def test_many_requests_wait_for_one_body(stage: Stage) -> None:
    requests = [sent(insert(stage, call, b"x"), ChangeRequest)[0] for call in (7, 8)]
    effects = [stage.receive("a", refused(request)) for request in requests]
    [bringing] = [each for every in effects for each in sent(every, ChangeRequest)]
    again = sent(stage.receive("a", done(bringing)), ChangeRequest)
    assert [each.sequence for each in again] == [each.sequence for each in requests]


def test_a_body_that_went_again_is_brought_again(stage: Stage) -> None:
    [first] = sent(insert(stage, 7, b"a"), ChangeRequest)
    for _ in range(2):
        [bringing] = sent(stage.receive("a", refused(first)), ChangeRequest)
        gone = ok(bringing, 90, outcomes=[Outcome.NOT_FOUND])
        [first] = sent(stage.receive("a", gone), ChangeRequest)
    [completed] = of(stage.receive("a", ok(first, 91)), Completed)
    assert completed.call == 7


def test_what_the_partition_says_of_the_body_fails_the_call(stage: Stage) -> None:
    [first] = sent(insert(stage, 7, b"a"), ChangeRequest)
    [bringing] = sent(stage.receive("a", refused(first)), ChangeRequest)
    [failed] = of(stage.receive("a", refused(bringing, Code.PAYLOAD_TOO_LARGE)), Failed)
    assert isinstance(failed.error, PayloadTooLarge)


def test_a_caller_whose_time_is_over_waits_for_no_body(stage: Stage) -> None:
    [first] = sent(insert(stage, 7, b"a"), ChangeRequest)
    [bringing] = sent(stage.receive("a", refused(first)), ChangeRequest)
    stage.receive("a", refused(bringing, Code.DISK_FULL))
    [failed] = of(stage.run_until(stage.ms + 30_001), Failed)
    assert isinstance(failed.error, UnknownBody | DiskFull)
    assert not [
        each
        for each in sent(stage.receive("a", done(bringing)), ChangeRequest)
        if each.kind == RecordKind.INSERT
    ]


def test_ending_its_grace_asks_every_partition(stage: Stage) -> None:
    effects = stage.step(events.KeepBody(7, stage.at_us(stage.ms + 30_000), TOPIC, BODY, 0))
    [ending] = sent(effects, ChangeRequest)
    assert (ending.kind, ending.amount_ms.tolist(), len(ending.size)) == (RecordKind.BODY, [0], 0)
    [completed] = of(stage.receive("a", done(ending)), Completed)
    assert completed.value.outcomes() == [Outcome.DONE]
