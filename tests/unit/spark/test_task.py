"""What a Spark task makes of its rows, without Spark and without a mesh."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from dueq.errors import InvalidRequest  # noqa: E402
from dueq.limits import DUE_MS_MAX, REQUEST_BYTES_MAX  # noqa: E402
from dueq.spark.task import Run, Task, runs_of  # noqa: E402


def task(batch_rows: int = 1024, in_microseconds: bool = False, keyed: bool = False) -> Task:
    return Task(b"j" * 16, "t", 6, ("tcp://127.0.0.1:7400",), batch_rows, 5.0, in_microseconds, keyed)


def batch(
    dues: list[int | None], payloads: list[bytes | None], keys: list[str] | None = None
) -> pa.RecordBatch:
    columns = {"due": pa.array(dues, pa.int64()), "payload": pa.array(payloads, pa.binary())}
    if keys is not None:
        columns["key"] = pa.array(keys, pa.string())
    return pa.RecordBatch.from_pydict(columns)


def cut(batches: list[pa.RecordBatch], of: Task) -> list[Run]:
    return list(runs_of(iter(batches), of, 3))


def test_runs_do_not_depend_on_how_arrow_cut_the_rows() -> None:
    """A repeated task may see other Arrow batches; its requests must be the same."""
    rows = list(range(25))
    payloads = [b"%d" % row for row in rows]
    whole = cut([batch(rows, payloads)], task(batch_rows=10))
    pieces = cut(
        [batch(rows[:7], payloads[:7]), batch([], []), batch(rows[7:], payloads[7:])], task(batch_rows=10)
    )
    assert whole == pieces
    assert [len(run.dues) for run in whole] == [10, 10, 5]


def test_a_run_fits_into_one_request() -> None:
    half = b"x" * (REQUEST_BYTES_MAX // 2)
    runs = cut([batch([1, 2, 3, 4], [half, half, half, b""])], task())
    assert [len(run.dues) for run in runs] == [2, 2]


def test_timestamps_are_rounded_up_never_down() -> None:
    micros = [1_000, 1_001, 1_999, 2_000]
    (run,) = cut([batch(micros, [b""] * 4)], task(in_microseconds=True))
    assert run.dues == [1, 2, 2, 2]


def test_no_precision_is_lost_in_the_far_future() -> None:
    micros = int(datetime(9999, 12, 31, tzinfo=UTC).timestamp()) * 1_000_000 + 1
    (run,) = cut([batch([micros], [b""])], task(in_microseconds=True))
    assert run.dues == [micros // 1000 + 1]


def test_no_rows_are_no_run() -> None:
    assert cut([], task()) == []
    assert cut([batch([], [])], task()) == []


@pytest.mark.parametrize(
    ("due", "payload", "why"),
    [
        (None, b"", "due is null"),
        (1, None, "payload is null"),
        (-1, b"", "due -1"),
        (DUE_MS_MAX + 1, b"", "not within"),
    ],
)
def test_an_unfit_row_is_named(due: int | None, payload: bytes | None, why: str) -> None:
    good = batch([1, 2], [b"", b""])
    with pytest.raises(InvalidRequest, match=rf"row 3 of Spark partition 3.*{why}"):
        cut([good, batch([1, due], [b"", payload])], task())


def test_keys_stay_with_their_rows() -> None:
    runs = cut([batch([1, 2, 3], [b"a", b"b", b"c"], ["x", "y", "z"])], task(batch_rows=2, keyed=True))
    assert [run.keys for run in runs] == [["x", "y"], ["z"]]


def test_client_ids_follow_from_job_partition_and_generation_alone() -> None:
    ids = {task().client_id(number, generation) for number in range(4) for generation in range(3)}
    assert len(ids) == 12
    assert {len(client_id) for client_id in ids} == {16}
    assert task().client_id(1, 2) == task(batch_rows=5).client_id(1, 2)
