"""The page on the wire protocol says what the code does: its tables, its example frame, its example of a digest."""

from __future__ import annotations

import re
import runpy
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dueq import ids, limits
from dueq.core.partition.requests import CHANGES
from dueq_codecs import codes, messages, records
from dueq_codecs.digest import request_digest
from dueq_codecs.frames import decode, encode
from dueq_codecs.layouts import KINDS, Kind
from dueq_codecs.messages import Message
from dueq_codecs.shape import REQUEST_COLUMNS, fault_of_request

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/reference/protocol.md").read_text(encoding="utf-8")
SAMPLES = runpy.run_path(str(ROOT / "codecs/vectors/samples.py"))
MESSAGES: dict[str, tuple[Message, list[bytes]]] = SAMPLES["messages"]()

Row = dict[str, str]


def section(title: str) -> str:
    """The text under a heading, up to the next one."""
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"the page has no section {title!r}"
    return found[1]


def table(title: str, column: str) -> list[Row]:
    """The table of a section that has this column, row by row."""
    rows: list[Row] = []
    names: list[str] = []
    for line in section(title).splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []
        if not cells:
            names = []
        elif not names:
            names = cells
        elif column in names and not set(line) <= set("|- "):
            rows.append(dict(zip(names, cells, strict=True)))
    assert rows, f"section {title!r} has no table with a column {column!r}"
    return rows


def numbered(title: str, column: str) -> dict[str, int]:
    return {row[column]: int(row["number"]) for row in table(title, column)}


def members(enumeration: type[IntEnum]) -> dict[str, int]:
    return {member.name: member.value for member in enumeration}


def test_kinds() -> None:
    named = {message.__name__: int(kind) for message, kind in KINDS.items()} | {"Record": int(Kind.RECORD)}
    assert numbered("Kinds", "message") == named


@pytest.mark.parametrize("name", MESSAGES)
def test_how_many_bodies_a_message_has(name: str) -> None:
    message, bodies = MESSAGES[name]
    said = next(row["bodies"] for row in table("Kinds", "bodies") if row["message"] == type(message).__name__)
    found = len(encode(message, bodies)) - 1
    if isinstance(message, messages.ChangeRequest):
        assert said == "1 for INSERT, and for BODY with `size`, else 0"
        brings = message.kind == records.RecordKind.BODY and len(message.size) > 0
        assert found == (message.kind == records.RecordKind.INSERT or brings)
    elif said.isdecimal():
        assert found == int(said)
    else:
        assert isinstance(message, messages.PeerFrame | messages.Relay)


def test_codes() -> None:
    assert numbered("Codes", "code") == members(codes.Code)


def test_outcomes() -> None:
    assert numbered("Outcomes", "outcome") == members(records.Outcome)


def test_actions_of_consumers() -> None:
    assert numbered("Frames of a consumer", "action") == members(messages.ConsumerAction)


def test_actions_on_jobs() -> None:
    assert numbered("Jobs", "action") == members(records.JobAction)


def test_operations() -> None:
    assert numbered("Operations", "operation") == {kind.name: int(kind) for kind in CHANGES}


@pytest.mark.parametrize("row", table("Operations", "operation"), ids=lambda row: row["operation"])
def test_columns_of_an_operation(row: Row) -> None:
    kind = records.RecordKind[row["operation"]]
    said = re.findall(r"`(\w+)`", row["columns of *n* items"])
    job = {"job": bytes(16), "job_action": records.JobAction.COMMIT} if kind == kind.JOB else {}

    def fault(*columns: str) -> str | None:
        types = {
            "target_row": SAMPLES["u16"],
            "rank": SAMPLES["u16"],
            "size": SAMPLES["u32"],
            "crc": SAMPLES["u32"],
        }
        values: dict[str, Any] = {name: types.get(name, SAMPLES["u64"])(1) for name in columns}
        if "group" in values:
            values |= {"group": np.zeros(1, np.uint16), "groups": ("a",)}
        if "reason" in values:
            values |= {"reason": np.zeros(1, np.uint16), "reasons": ("a",)}
        return fault_of_request(messages.ChangeRequest(1, kind, "t", 1, bytes(16), 1, 0, **values, **job))  # type: ignore[arg-type]

    if kind == kind.BODY:
        job = {"shared": bytes(32), "shared_size": 1}
    optional = {
        kind.BODY: {"size", "crc", "amount_ms"},
        kind.INSERT: {"upload", "rank", "group", "window", "expires", "attempts_max"},
        kind.ACK: {"reason"},
        kind.NACK: {"fate", "reason", "document"},
        kind.RELEASE: {"amount_ms"},
        **{each: {"expected"} for each in (kind.MOVE, kind.CANCEL, kind.CHANGE, kind.TRIGGER)},
    }.get(kind, set())
    assert fault(*said) is None
    assert fault(*[name for name in said if name not in optional]) is None
    for name in set(REQUEST_COLUMNS) - set(said) - {"token"}:
        assert fault(*said, name) is not None, f"{name} is allowed, too"
    for name in set(said) - optional:
        assert fault(*[other for other in said if other != name]) is not None, f"{name} may be left out"


@pytest.mark.parametrize("row", table("Limits", "name"), ids=lambda row: row["name"])
def test_a_limit(row: Row) -> None:
    assert int(row["value"].replace(",", "")) == getattr(limits, row["name"].strip("`"))


def test_the_envelope_has_the_fields_that_the_page_lists() -> None:
    assert [int(row["offset"]) for row in table("Envelope", "offset")] == [0, 4, 5, 6, 8, 12]


def test_the_frame_that_the_page_takes_apart_is_the_golden_one() -> None:
    block = re.search(r"```text\n(.*?)```", section("Envelope"), re.DOTALL)
    assert block
    digits = "".join(line[:26] for line in block[1].splitlines())
    frame = bytes.fromhex(digits)
    golden = SAMPLES["unpack_frames"]((ROOT / "codecs/vectors/metadata_request.bin").read_bytes())
    assert [frame] == [bytes(part) for part in golden]
    assert decode([frame])[0] == messages.MetadataRequest(1, "flights")


def test_the_example_of_a_digest() -> None:
    found = re.search(r"has the digest (\d+)\.", section("The digest"))
    request = MESSAGES["change_insert"][0]
    assert isinstance(request, messages.ChangeRequest)
    assert found
    assert int(found[1]) == request_digest(request)


def test_the_example_of_an_id() -> None:
    found = re.search(
        r"`first` (\d+), uid (\d+), sequence (\d+), row (\d+) is `(\w+)`", section("Message ids")
    )
    assert found
    assert found[5] == ids.to_text(ids.MessageId(*map(int, found.groups()[:4])))


def test_every_link_inside_the_page_leads_somewhere() -> None:
    headings = re.findall(r"^#+ (.*)$", PAGE, re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert set(re.findall(r"\]\(#([^)]*)\)", PAGE)) <= anchors
