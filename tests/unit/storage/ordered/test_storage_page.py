"""The page on the storage format says what the code does."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import numpy as np
import pytest

from dueq.core.ports.entry import ENTRY, FULL
from dueq.core.state import answers, dedup, group_table, job, summary
from dueq.core.state.side_tables import SideTables
from dueq.storage.ordered import layout
from dueq.storage.ordered.format import FORMAT

ROOT = Path(__file__).resolve().parents[4]
PAGE = (ROOT / "docs/reference/storage-format.md").read_text(encoding="utf-8")
SIZES = {"u8": 1, "u16": 2, "u32": 4, "u64": 8, "u64 big-endian": 8}

Row = dict[str, str]


def table(title: str, column: str) -> list[Row]:
    """The table under a heading that has this column, row by row."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"the page has no section {title!r}"
    rows: list[Row] = []
    names: list[str] = []
    for line in found[1].splitlines():
        cells = re.split(r"(?<!\\)\|", line)[1:-1] if line.startswith("|") else []
        cells = [cell.strip() for cell in cells]
        if not cells:
            names = []
        elif not names:
            names = cells
        elif column in names and not set(line) <= set("|- "):
            rows.append(dict(zip(names, cells, strict=True)))
    assert rows
    return rows


def test_every_tag_of_a_key_is_there() -> None:
    listed = re.search(
        r'^"""Keys\..*?"""', (ROOT / "mesh/dueq/storage/ordered/layout.py").read_text(), re.DOTALL
    )
    assert listed
    tags = set(re.findall(r"\buid (\w)\b", listed[0]))
    tag_of = SideTables({}, summary.Summary(), (0, 1), dedup.DEDUP_LIMITS).tags
    side = set(tag_of.values())
    assert len(side) == len(tag_of), "no two have one tag"
    assert side <= layout.TABLE_TAGS
    assert {row["tag"].strip("`") for row in table("Keys", "tag")} == tags | {tag.decode() for tag in side}


@pytest.mark.parametrize(
    ("tag", "key"),
    [
        ("L", layout.log_key(1, 2)),
        ("i", layout.index_keys(1, np.array([5], np.uint64), np.array([2 << 16 | 3], np.uint64))[0]),
        ("o", layout.message_keys(1, b"o", np.array([2 << 16 | 3], np.uint64))[0]),
        ("l", layout.message_keys(1, b"l", np.array([2 << 16 | 3], np.uint64))[0]),
        ("d", layout.table_head(1, b"d") + dedup.row_key(bytes(16), 3)),
        ("a", layout.table_head(1, b"a") + dedup.row_key(bytes(16), 3)),
        ("n", layout.counter_key(1, 2, 3)),
        ("v", layout.named_key(1, 2)),
        ("b", layout.block_key(1, 2, 3)),
        ("u", layout.chunk_key(1, 2, 3)),
    ],
)
def test_a_key_is_as_long_as_its_parts(tag: str, key: bytes) -> None:
    said = next(row["key after uid and tag"] for row in table("Keys", "tag") if row["tag"] == f"`{tag}`")
    assert key[3:4] == tag.encode()
    assert len(key) == 4 + sum(map(int, re.findall(r"\((\d+)\)", said)))


def test_garbage_names_the_payload_key_from_its_tag_on() -> None:
    block = layout.block_key(1, 2, 3)
    assert layout.garbage_key(1, 9, block) == b"\0\0\1g" + (9).to_bytes(5, "big") + block[3:]


def test_the_rows_of_the_store_itself() -> None:
    keys = (layout.STORE_FORMAT, layout.STORE_ID, layout.BROKER_ID, layout.CLUSTER_ID, layout.STAMP)
    keys += (layout.UPGRADING, layout.JOURNAL)
    assert {row["name"].strip("`").encode() for row in table("Keys", "name")} == {key[3:] for key in keys}
    said = next(row["value"] for row in table("Keys", "name") if row["name"] == "`format`")
    assert f"`{FORMAT}`" in said


def test_entries() -> None:
    assert FULL.fields is not None
    code = [
        (f"`{name}`", offset, dtype.itemsize, dtype.str.startswith(">"))
        for name, (dtype, offset, *_) in FULL.fields.items()
    ]
    rows = table("Entries", "field")
    assert code == [
        (row["field"], int(row["offset"]), SIZES[row["type"]], "big-endian" in row["type"]) for row in rows
    ]
    assert f"{ENTRY.itemsize} to {FULL.itemsize} bytes" in PAGE


@pytest.mark.parametrize(
    ("title", "form", "version"),
    [
        ("Checkpoints", summary._WITH_LEVEL, summary._WITH_LEVEL_VERSION),
        ("Answers", answers._ROW, None),
        ("Jobs", job._ROW, job._ROW_VERSION),
        ("Groups", group_table._HEAD, group_table._ROW_VERSION),
    ],
)
def test_the_rows_that_the_core_packs(title: str, form: struct.Struct, version: int | None) -> None:
    rows = table(title, "field")
    codes = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q"}
    assert "<" + "".join(codes[row["type"]] for row in rows) == form.format
    ends = np.cumsum([SIZES[row["type"]] for row in rows]).tolist()
    assert [int(row["offset"]) for row in rows] == [0, *ends[:-1]]
    if version is not None:
        assert rows[0]["meaning"] == str(version)


def test_a_floor() -> None:
    assert dedup._FLOOR.format == "<BQ"
    assert dedup._KIND_FLOOR == 3
