"""What a Spark task makes of its rows, without Spark and without a mesh."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from dueq.errors import Disconnected, InvalidRequest  # noqa: E402
from dueq.limits import REQUEST_BYTES_MAX  # noqa: E402
from dueq.spark.runs import Run, piece_of, runs_of  # noqa: E402
from dueq.spark.task import Load, Task  # noqa: E402
from dueq_codecs.meta import Meta, split_meta  # noqa: E402


def piece(payloads: list[bytes], keys: list[str | None] | None = None, with_keys: bool = False) -> Run:
    dues = pa.array(range(len(payloads)), pa.int64())
    key = None if keys is None else pa.array(keys, pa.string())
    return piece_of(dues, pa.array(payloads, pa.binary()), key, with_keys)


def rows_of(run: Run) -> list[bytes]:
    body, rows, start = bytes(run.body), [], 0
    for size in run.size.tolist():
        rows.append(body[start : start + size])
        start += size
    assert start == len(body)
    return rows


def cut(pieces: list[Run], batch_rows: int = 1024) -> list[list[bytes]]:
    return [rows_of(run) for run in runs_of(iter(pieces), batch_rows) if run is not None]


@settings(max_examples=50)
@given(st.lists(st.binary(max_size=5), max_size=40), st.integers(1, 12), st.lists(st.integers(0, 40)))
def test_runs_do_not_depend_on_how_arrow_cut_the_rows(rows: list[bytes], most: int, cuts: list[int]) -> None:
    """A repeated task may see other Arrow batches; its requests must be the same."""
    edges = [0, *sorted(min(place, len(rows)) for place in cuts), len(rows)]
    pieces = [piece(rows[start:end]) for start, end in pairwise(edges)]
    expected = [rows[start : start + most] for start in range(0, len(rows), most)]
    assert cut(pieces, most) == cut([piece(rows)], most) == expected


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.sampled_from([None, "", "a", "a.b", "zoo"])), max_size=40),
    st.integers(1, 12),
    st.lists(st.integers(0, 40)),
)
def test_ranks_and_groups_stay_with_their_rows(
    rows: list[tuple[int, str | None]], most: int, cuts: list[int]
) -> None:
    edges = [0, *sorted(min(place, len(rows)) for place in cuts), len(rows)]
    pieces = [
        piece_of(
            pa.array(range(len(some)), pa.int64()), pa.array([b"p"] * len(some), pa.binary()), None, False,
            pa.array([rank for rank, _ in some], pa.int64()), pa.array([group for _, group in some], pa.string()),
        )
        for start, end in pairwise(edges)
        for some in [rows[start:end]]
    ]  # fmt: skip
    found = [
        (rank, run.groups[place] if run.groups else "")
        for run in runs_of(iter(pieces), most)
        if run is not None
        for rank, place in zip(run.rank.tolist(), run.group.tolist() or [0] * run.rows, strict=True)
    ]
    assert found == [(rank, group or "") for rank, group in rows]


def test_a_run_fits_into_one_request() -> None:
    half = b"x" * (REQUEST_BYTES_MAX // 2)
    long = b"y" * (REQUEST_BYTES_MAX + 1)
    assert [len(run) for run in cut([piece([half, half, half, b""])])] == [2, 2]
    assert [len(run) for run in cut([piece([b"a", long, b"b"])])] == [1, 1, 1]


def test_a_slice_of_an_arrow_array_is_read_where_it_lies() -> None:
    payloads = pa.array([b"a", b"bb", b"ccc", b"d"], pa.binary()).slice(1, 2)
    run = piece_of(pa.array([7, 8, 9, 10], pa.int64()).slice(1, 2), payloads, None, False)
    assert rows_of(run) == [b"bb", b"ccc"]
    assert run.due.tolist() == [8, 9]


def test_keys_go_before_payloads_and_null_is_no_key() -> None:
    (run,) = runs_of(iter([piece([b"x", b"", b"z"], ["k", None, "é" * 127], with_keys=True)]), 10)
    assert run is not None
    found = [split_meta(Meta.KEY, row) for row in rows_of(run)]
    assert found == [("k", {}, b"x"), ("", {}, b""), ("é" * 127, {}, b"z")]
    assert run.keys == ["k", None, "é" * 127]


def load(batch_rows: int = 1024, collect: bool = False) -> Load:
    return Load(b"j" * 16, "t", 6, ("tcp://127.0.0.1:7400",), batch_rows, 5.0, collect=collect, send=False)


def checked(reasons: list[str | None]) -> Any:
    count = len(reasons)
    return pa.RecordBatch.from_pydict({
        "due": pa.array([2 * 10**12] * count, pa.int64()), "payload": pa.array([b""] * count, pa.binary()),
        "reason": pa.array(reasons, pa.string()), "row": pa.array(["{}" if why else None for why in reasons]),
    })  # fmt: skip


def of(*batches: Any) -> Iterator[Any]:
    return iter(batches)


def test_the_first_row_that_cannot_be_a_message_is_named() -> None:
    with pytest.raises(InvalidRequest, match=r"row 3 of Spark partition 5 \(payload ''\): due is null"):
        list(Task(load(), 5).news(of(checked([None, None]), checked([None, "due is null", "x"]))))


def test_rows_that_cannot_be_messages_are_collected_beside_the_others() -> None:
    found = list(Task(load(collect=True), 5).news(of(checked([None, "a"]), checked(["b", None, "c"]))))
    rejected = [row for batch in found for row in batch.to_pylist() if row["reason"]]
    assert [(row["task"], row["place"], row["reason"]) for row in rejected] == [
        (5, 1, "a"), (5, 2, "b"), (5, 4, "c"),
    ]  # fmt: skip
    assert sum(row["rows"] for batch in found for row in batch.to_pylist()) == 2


def test_rows_that_are_all_refused_are_news_too() -> None:
    found = list(Task(load(collect=True), 0).news(of(checked(["a"]))))
    assert [batch.to_pylist()[0]["reason"] for batch in found] == ["a"]


def test_an_executor_that_reaches_no_broker_says_which_and_where() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        endpoint = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        far = replace(load(), endpoints=(endpoint,), timeout=0.3, send=True)
        with pytest.raises(
            Disconnected, match=f"executor on {socket.gethostname()} reaches no broker at {endpoint}"
        ):
            list(Task(far, 0).news(of(checked([None]))))


def test_client_ids_follow_from_load_partition_and_generation_alone() -> None:
    ids = {load().client_id(number, generation) for number in range(4) for generation in range(3)}
    assert len(ids) == 12
    assert {len(client_id) for client_id in ids} == {16}
    assert load().client_id(1, 2) == load(batch_rows=5).client_id(1, 2)


def test_instants_that_look_like_seconds_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dueq.client.times._warned", False)
    batch = checked([None])
    seconds = batch.set_column(0, "due", pa.array([1_900_000_000], pa.int64()))
    with pytest.warns(UserWarning, match="were seconds meant"):
        list(Task(load(), 5).news(of(seconds)))


@pytest.mark.parametrize("send", [True, False])
def test_rows_that_cannot_be_messages_leave_a_task_as_they_come(send: bool) -> None:
    """All of them were kept in memory until the next good row, or the next request, if there ever was one."""
    bad = pa.RecordBatch.from_pydict({
        "due": pa.array([None], pa.int64()), "payload": pa.array([b"x"]), "reason": pa.array(["due is null"]),
        "row": pa.array(["{}"]),
    })  # fmt: skip
    left = iter(range(9))
    load = Load(b"x" * 16, "t", 1, (), 1024, 1.0, collect=True, send=send)
    news = Task(load, 0).news(bad for _ in left)
    assert next(news).column("place").to_pylist() == [0]
    assert next(left) == 1
    assert [batch.column("place")[0].as_py() for batch in news] == [1, 2, 3, 4, 5, 6, 7]
