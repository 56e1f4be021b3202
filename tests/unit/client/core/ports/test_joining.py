"""Parts that share a request: what becomes of their columns."""

from __future__ import annotations

import numpy as np
import pytest

from dueq.client.core.ports.change import Part
from dueq.client.core.ports.joining import columns_of, reasons_of
from dueq_codecs.records import RecordKind


def nack(rows: int, *reasons: str) -> Part:
    return Part(RecordKind.NACK, "t", 3, b"c" * 16, rows, lambda part: None, reasons=reasons)


@pytest.mark.parametrize(
    ("parts", "texts"),
    [
        ((nack(1, "full"), nack(2)), ["full", "", ""]),
        ((nack(2), nack(1, "full")), ["", "", "full"]),
        ((nack(2, "full", "busy"), nack(1, "full")), ["full", "busy", "full"]),
    ],
)
def test_reasons_stay_with_their_rows_beside_rows_that_have_none(
    parts: tuple[Part, ...], texts: list[str]
) -> None:
    reasons, places = reasons_of(parts)
    assert [reasons[place] for place in places] == texts


def test_where_nobody_gives_a_reason_there_is_no_column() -> None:
    reasons, places = reasons_of((nack(1), nack(2)))
    assert (reasons, len(places)) == ((), 0)


def release(*delays_ms: int, rows: int = 0) -> Part:
    """Some rows with delays, or without any."""
    amounts = np.array(delays_ms, np.uint64)
    return Part(
        RecordKind.RELEASE, "t", 3, b"c" * 16, rows or len(delays_ms), lambda part: None, amount_ms=amounts
    )


@pytest.mark.parametrize(
    ("parts", "delays_ms"),
    [
        ((release(rows=2), release(5, 7)), [0, 0, 5, 7]),
        ((release(5, 7), release(rows=1), release(9)), [5, 7, 0, 9]),
        ((release(rows=1), release(rows=2)), []),
    ],
)
def test_each_row_that_is_given_back_keeps_its_delay_beside_rows_that_have_none(
    parts: tuple[Part, ...], delays_ms: list[int]
) -> None:
    assert columns_of(parts)["amount_ms"].tolist() == delays_ms
