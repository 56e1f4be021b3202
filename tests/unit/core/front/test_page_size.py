"""The longest pages fit into a frame: of browsing, of groups and recurrences; and so does a forecast."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from dueq import limits
from dueq.core.front import forecast_documents, group_documents, recurrence_documents
from dueq.core.state.group_table import GroupTable
from dueq.core.state.recurrence import Recurrence
from dueq.recurring.terms import packed
from dueq_codecs.frames import encode
from dueq_codecs.groups import GROUP_BYTES_MAX
from dueq_codecs.messages import BrowseReply, Code, Reply
from dueq_codecs.records import REASON_BYTES_MAX


def test_a_page_whose_rows_have_the_longest_texts_fits_into_a_frame() -> None:
    rows = limits.BROWSE_ROWS_MAX
    long, short, place = (
        np.zeros(rows, np.uint64),
        np.zeros(rows, np.uint32),
        np.arange(rows, dtype=np.uint16),
    )
    page = BrowseReply(
        1, Code.OK, wait_at=long, first=long, due=long, sequence=long, row=place, size=short, crc=short, attempt=place,
        keyed=np.zeros(rows, np.uint8), upload=long, body_size=short, rank=place, version=long, expires=long,
        died_at=long, of=long, reason=place, reasons=(REASON_BYTES_MAX * "r",) * rows,
        group=place, groups=(GROUP_BYTES_MAX * "g",) * rows,
        heading=place, headings=(limits.HEADINGS_BYTES_MAX // rows * "h",) * rows,
    )  # fmt: skip
    assert max(map(len, encode(page, [b""]))) < limits.FRAME_BYTES_MAX


PARTITIONS = 64


class Led:
    """A partition with many groups and recurrences."""

    epoch, applied = 1, 2

    def __init__(self, uid: int, names: list[str]) -> None:
        self.uid = uid
        self.contents = self
        self.groups = GroupTable()
        self.groups.numbers(names, range(len(names)))
        for name in names:
            self.groups.by_name[name].messages = 1
        terms = packed({"every_ms": 3_600_000})
        self.recurrences = [Recurrence(name, at, terms, b"", at) for at, name in enumerate(names)]

    def groups_after(self, after: str, most: int) -> list[Any]:
        return self.groups.after(after, most)

    def recurrences_after(self, after: str, most: int) -> list[Recurrence]:
        return self.recurrences[:most]

    known_until_ms = 1_700_000_000_000

    def forecast(self, from_ms: int, seconds: int) -> list[tuple[int, int]]:
        return [(from_ms + second * 1000, 1_000_000 + self.uid) for second in range(seconds)]


def led(name: str) -> list[Any]:
    return [Led(uid, [f"{name}-{uid}-{at}" for at in range(1_001)]) for uid in range(PARTITIONS)]


def fits(page: dict[str, Any]) -> bool:
    return sum(map(len, encode(Reply(1, Code.OK, document=json.dumps(page))))) < limits.FRAME_BYTES_MAX


def test_a_page_of_many_groups_fits_into_a_frame() -> None:
    for name in ("customer", 100 * "\u043a"):
        page = group_documents.page(led(name), "")
        assert fits(page)
        assert all(each["groups"] and each["more"] for each in page["partitions"])


def test_a_page_that_is_not_the_last_says_that_there_is_more() -> None:
    """Who lists the groups of a topic would stop there, and not see the others."""
    names = [f"g{at:04}" for at in range(group_documents.PAGE_ROWS_MAX + 1)]
    [page] = group_documents.page([Led(1, names)], "")["partitions"]  # type: ignore[list-item]
    assert [group["name"] for group in page["groups"]] == names[:-1]
    assert page["more"]
    [page] = group_documents.page([Led(1, names)], names[-2])["partitions"]  # type: ignore[list-item]
    assert ([group["name"] for group in page["groups"]], page["more"]) == (names[-1:], False)
    [page] = group_documents.page([Led(1, names[:-1])], "")["partitions"]  # type: ignore[list-item]
    assert (len(page["groups"]), page["more"]) == (group_documents.PAGE_ROWS_MAX, False)


def test_a_page_of_many_recurrences_fits_into_a_frame() -> None:
    for name in ("report", 100 * "\u043e"):
        page = recurrence_documents.page(led(name), "", 1_700_000_000_000)
        assert fits(page)
        assert all(each["recurrences"] and each["more"] for each in page["partitions"])


def test_a_forecast_of_many_partitions_fits_into_a_frame() -> None:
    """The broker's socket would close the connection of a client that is sent a longer one."""
    from_ms, longest = 1_700_000_000_000, limits.FORECAST_SECONDS_MAX
    many = [Led(uid, []) for uid in range(limits.PARTITIONS_MAX)]
    found = forecast_documents.document(many, from_ms, longest)
    assert fits(found)
    assert len(found["counts"]) == longest
    assert found["counts"][1] == (
        from_ms + 1000,
        sum(1_000_000 + uid for uid in range(limits.PARTITIONS_MAX)),
    )
    few = forecast_documents.document(many[:2], from_ms, longest)
    assert fits(few)
    assert [len(each["counts"]) for each in few["partitions"]] == [longest, longest]
    assert "counts" not in few
