"""What a task failed with is known again on the driver."""

from __future__ import annotations

from concurrent.futures import Future

import numpy as np
import pytest

pytest.importorskip("pyspark")

from dueq.client.receipt import Receipt
from dueq.errors import (
    DueqError,
    InvalidRequest,
    NotEnoughReplicas,
    OutcomeUnknown,
    PartialFailure,
    SequenceReused,
)
from dueq.spark.failures import cause
from dueq.spark.runs import Run
from dueq.spark.task import Load, Task

TEXT = """[ARROW] Job aborted due to stage failure: Traceback (most recent call last):
  File "errors.py", line 1, in raise_it
dueq.errors.NotEnoughReplicas: 1 of 2 replicas is there

The above exception was the direct cause of the following exception:
"""


def test_the_last_error_of_dueq_in_a_text_of_spark_is_the_cause() -> None:
    assert isinstance(cause(RuntimeError(TEXT)), NotEnoughReplicas)
    found = cause(RuntimeError(f"{TEXT}dueq.errors.InvalidRequest: row 7: due is null\n"))
    assert type(found) is InvalidRequest
    assert str(found) == "row 7: due is null"
    assert cause(RuntimeError("dueq.errors.Nonsense: x")) is None


def test_a_request_of_which_a_part_failed_is_one_of_unknown_outcome() -> None:
    found = cause(RuntimeError(f"{TEXT}dueq.errors.PartialFailure: 1 of 3 requests of the call failed\n"))
    assert type(found) is OutcomeUnknown
    assert str(found) == "1 of 3 requests of the call failed"


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        (["id", SequenceReused("another digest")], SequenceReused),
        (["id", NotEnoughReplicas("one is away"), InvalidRequest("too far")], InvalidRequest),
        (["id", NotEnoughReplicas("one is away")], PartialFailure),
    ],
)
def test_a_part_that_was_refused_ends_a_task_as_a_whole_request_would(
    outcomes: list[object], expected: type[DueqError]
) -> None:
    load = Load(b"load", "t", 2, ("tcp://127.0.0.1:1",), 10, 1.0, grouped=True)
    run = Run(b"", np.zeros(2, np.uint32), np.zeros(2, np.uint64), [])
    answer: Future[Receipt] = Future()
    answer.set_exception(PartialFailure("1 of 2 requests of the call failed", outcomes))
    with pytest.raises(expected) as raised:
        Task(load, 3)._answered((0, run, answer))
    assert type(raised.value) is expected
    if expected is SequenceReused:
        assert "with other rows in Spark partition 3" in str(raised.value)
