"""Rows that a data source gets: checked, in milliseconds, in an order of their own."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from pyspark.sql.types import StructType  # noqa: E402

from dueq.errors import InvalidRequest  # noqa: E402
from dueq.limits import DUE_MS_MAX  # noqa: E402
from dueq.spark.arrow_rows import Fields, in_settled_order  # noqa: E402
from dueq.spark.options import Options  # noqa: E402
from dueq.spark.writing import OPTIONS  # noqa: E402

FIELDS = Fields("due", "payload", "key")


def struct(ddl: str) -> StructType:
    found = StructType()
    for field in ddl.split(", "):
        name, kind = field.split(" ")
        found.add(name, {"bigint": "long", "int": "integer"}.get(kind, kind))
    return found


def batch(dues: Any, payloads: list[bytes | None], keys: list[str | None] | None = None) -> Any:
    key = pa.array(keys or [None] * len(payloads), pa.string())
    return pa.RecordBatch.from_pydict({"due": dues, "payload": pa.array(payloads, pa.binary()), "key": key})


def messages(*batches: Any, payload_bytes_max: int = 100) -> list[dict[str, object]]:
    found = FIELDS.messages(iter(batches), 4, payload_bytes_max, None)
    return [row for batch in found for row in batch.to_pylist()]


def test_timestamps_are_rounded_up_never_down() -> None:
    far = int(datetime(9999, 12, 31, tzinfo=UTC).timestamp()) * 1_000_000 + 1
    dues = pa.array([1_000, 1_001, 1_999, 2_000, far]).cast(pa.timestamp("us", "UTC"))
    assert [row["due"] for row in messages(batch(dues, [b""] * 5))] == [1, 2, 2, 2, far // 1000 + 1]


@pytest.mark.parametrize(
    ("due", "payload", "key", "why"),
    [
        (None, b"", None, "due is null"),
        (1, None, None, "payload is null"),
        (-1, b"", None, "due -1 ms"),
        (DUE_MS_MAX + 1, b"", None, "not within"),
        (1, b"x" * 101, None, "101 bytes; the topic allows 100"),
        (1, b"", "k" * 256, "the key has 256 bytes"),
    ],
)
def test_an_unfit_row_is_named(due: int | None, payload: bytes | None, key: str | None, why: str) -> None:
    good = batch(pa.array([1, 2], pa.int64()), [b"", b""])
    bad = batch(pa.array([1, due], pa.int64()), [b"", payload], [None, key])
    with pytest.raises(InvalidRequest, match=rf"row 3 of Spark partition 4: .*{why}"):
        messages(good, bad)


@pytest.mark.parametrize("name", ["key", "group"])
def test_a_text_that_is_no_utf_8_is_named(name: str) -> None:
    raw = pa.array([None, b"fine", b"\xff\xfe"], pa.binary())
    offsets, data = raw.buffers()[1:]
    texts = pa.Array.from_buffers(
        pa.string(), 3, [raw.buffers()[0], offsets, data]
    )  # as Spark lets it through
    rows = {"due": pa.array([1, 2, 3], pa.int64()), "payload": pa.array([b""] * 3, pa.binary()), name: texts}
    fields = Fields("due", "payload", **{"key": "", name: name})
    with pytest.raises(InvalidRequest, match=f"row 2 of Spark partition 4: the {name} is no UTF-8"):
        list(fields.messages(iter([pa.RecordBatch.from_pydict(rows)]), 4, 100, None))


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 3), st.binary(max_size=2)), max_size=30), st.randoms())
def test_the_same_rows_come_in_the_same_order_however_they_arrive(
    rows: list[tuple[int, bytes]], chance: Any
) -> None:
    def sorted_by_the_task(given_rows: list[tuple[int, bytes]], size: int) -> list[tuple[object, object]]:
        batches = [given_rows[start : start + size] for start in range(0, len(given_rows), size)]
        made = [
            batch(pa.array([due for due, _ in part], pa.int64()), [body for _, body in part])
            for part in batches
        ]
        found = in_settled_order(FIELDS.messages(iter(made), 0, 100, None))
        return [(row["due"], row["payload"]) for part in found for row in part.to_pylist()]

    shuffled = list(rows)
    chance.shuffle(shuffled)
    assert sorted_by_the_task(rows, 4) == sorted_by_the_task(shuffled, 7) == sorted(rows)


@pytest.mark.parametrize(
    ("schema", "given_options", "why"),
    [
        ("due timestamp, body binary", {}, "no column 'payload'"),
        ("due timestamp, payloads binary", {}, "did you mean 'payloads'"),
        ("due string, payload binary", {}, "'due' is string; it must be timestamp"),
        ("due bigint, payload int", {}, "'payload' is int; it must be binary"),
        ("due bigint, payload binary, extra int", {}, "extra would not be sent"),
        ("due bigint, payload binary", {"dew": "due"}, "no option 'dew' to write; did you mean 'due'"),
    ],
)
def test_columns_that_do_not_fit_are_refused(schema: str, given_options: dict[str, str], why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        Fields.of(struct(schema), Options(given_options, OPTIONS, "to write"))


def ranked(ranks: list[int | None], groups: list[str | None]) -> list[dict[str, object]]:
    fields = Fields.of(
        struct("due bigint, payload binary, rank int, group string"), Options({}, OPTIONS, "to write")
    )
    rows = pa.RecordBatch.from_pydict(
        {
            "due": [7] * len(ranks), "payload": pa.array([b"x"] * len(ranks), pa.binary()),
            "rank": pa.array(ranks, pa.int32()), "group": pa.array(groups, pa.string()),
        }
    )  # fmt: skip
    found = fields.messages(iter([rows]), 4, 100, None)
    return [row for each in found for row in each.to_pylist()]


def test_ranks_and_groups_are_taken_from_columns_of_these_names() -> None:
    found = ranked([3, None, 65_535], ["a.b", None, ""])
    assert [(row["rank"], row["group"]) for row in found] == [(3, "a.b"), (0, ""), (65_535, "")]


@pytest.mark.parametrize(
    ("rank", "group", "why"),
    [
        (-1, "a", "row 1 of Spark partition 4: the rank -1 is not within 0 … 65535"),
        (65_536, "a", "the rank 65536 is not within"),
        (1, "a..b", "row 1 of Spark partition 4: the group 'a..b' has an empty level"),
        (1, "x" * 256, "a group has at most 255 bytes"),
        (1, ".".join("a" * 17), "at most 16 levels, not 17"),
    ],
)
def test_a_row_with_an_unfit_rank_or_group_is_named(rank: int, group: str, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        ranked([0, rank], ["a", group])
