"""The page on the wire protocol says what the code does: its tables, its example frame, its example of a digest."""

from __future__ import annotations

import json
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
from dueq_codecs.backoff import fault_of_backoff
from dueq_codecs.digest import request_digest
from dueq_codecs.endpoint import fault_of_endpoint
from dueq_codecs.frames import decode, encode
from dueq_codecs.layouts import KINDS, Kind
from dueq_codecs.messages import Message
from dueq_codecs.shape import REQUEST_COLUMNS, fault_of_request
from dueq_codecs.topic_settings import AS_CREATED, SETTINGS, Numbers, SettingsRefused, Words

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/reference/protocol.md").read_text(encoding="utf-8")
SAMPLES = runpy.run_path(str(ROOT / "codecs/vectors/samples.py"))
MESSAGES: dict[str, tuple[Message, list[bytes]]] = SAMPLES["messages"]()

BACKOFF: dict[str, Any] = {"first_ms": 1000, "factor": 2, "longest_ms": 60_000, "jitter": 0.5, "doublings": 3}
ENDPOINT: dict[str, Any] = {
    "name": "orders", "version": 1, "url": "https://example.org/", "timeout_ms": 1000, "in_flight": 1, "filter": {},
    "targets": False, "disabled": "", "secrets": [["whsec_" + "A" * 32, 0]], "headers": {},
}  # fmt: skip

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
        **{
            each: {"expected"}
            for each in (kind.MOVE, kind.CANCEL, kind.CHANGE, kind.TRIGGER, kind.DISCARD, kind.REDRIVE)
        },
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


COMPANIONS: dict[str, dict[str, Any]] = {
    "paused_until_ms": {"paused": True},
    "burst": {"rate": 1},
    "remember_ms": {"keys": "unique"},
}
"""Settings that are refused alone, and what they need."""


def named_parts(column: str) -> dict[str, str]:
    """The values of settings, or of the parts of one, by their names."""
    return {row[column].strip("`"): row["values"] for row in table("Changing a topic", column)}


def fits(name: str, value: object) -> bool:
    """Whether a topic can be created with a setting."""
    try:
        AS_CREATED.begun({**COMPANIONS.get(name, {}), name: value}, "0" * 32)
    except SettingsRefused:
        return False
    return True


def bounds(values: str) -> tuple[float, float]:
    """The numbers of `0 to 2^48 − 1` or `0, or 0.001 to 1,000,000`, its lowest and its highest."""
    found = re.search(r"([\d.,]+) to (?:2\^(\d+) − 1|([\d,]+))", values)
    assert found, values
    return float(found[1].replace(",", "")), (
        (1 << int(found[2])) - 1 if found[2] else int(found[3].replace(",", ""))
    )


def test_settings() -> None:
    said = {row["setting"].strip("`"): row["in a new topic"] for row in table("Changing a topic", "setting")}
    assert list(said) == list(SETTINGS)
    created = AS_CREATED.fields()
    assert said == {name: f"`{json.dumps(created[name])}`" for name in said}


@pytest.mark.parametrize("name", SETTINGS)
def test_the_values_of_a_setting(name: str) -> None:
    values, kind = named_parts("setting")[name], SETTINGS[name]
    assert fits(name, AS_CREATED.fields()[name])
    if isinstance(kind, Numbers):
        low, high = map(int, bounds(values))
        assert [fits(name, value) for value in (low - 1, low, high, high + 1)] == [False, True, True, False]
    elif name == "rate":
        low_rate, high_rate = bounds(values)
        tried = (0, low_rate / 2, low_rate, high_rate, high_rate + 1)
        assert values.startswith("0, or ")
        assert [fits(name, value) for value in tried] == [True, False, True, True, False]
    elif isinstance(kind, Words):
        words = values.replace("`", "").split(", ")
        assert words == list(kind.words)
        assert all(fits(name, word) for word in words)
    else:
        assert values == {None: "true, false", "labels": "an object"}.get(kind and name, "an object, null")
        tried = (True, {}, None, "")
        assert [fits(name, value) for value in tried] == [
            kind is None, values == "an object", values.endswith("null"), False
        ]  # fmt: skip
        assert not fits(name, 0)


@pytest.mark.parametrize("name", BACKOFF)
def test_the_parts_of_a_back_off(name: str) -> None:
    said = named_parts("part of `backoff`")
    assert list(said) == list(BACKOFF)
    low, high = map(int, bounds(said[name]))
    tried = [fault_of_backoff({**BACKOFF, name: value}) is None for value in (low - 1, low, high, high + 1)]
    assert tried == [False, True, True, False]
    assert (fault_of_backoff({**BACKOFF, name: None}) is None) == said[name].endswith("or null")


@pytest.mark.parametrize("name", ENDPOINT)
def test_the_parts_of_an_endpoint(name: str) -> None:
    said = named_parts("part of `endpoint`")
    assert list(said) == list(ENDPOINT)
    assert fault_of_endpoint(ENDPOINT) is None
    values = said[name]
    number = int(re.sub(r"\D.*", "", values.removeprefix("at most ").replace(",", "")) or 0)
    least: Any
    beyond: Any
    most: Any
    if isinstance(ENDPOINT[name], bool):
        assert values == "true, false"
        least, most, beyond = False, True, None
    elif isinstance(ENDPOINT[name], int):
        least, most = map(int, bounds(values))
        beyond = most + 1
    elif name == "name":
        least, most = "a", "a" * int(bounds(values)[1])
        beyond = most + "a"
    elif name == "secrets":
        low, high = map(int, bounds(values))
        least, most, beyond = (ENDPOINT[name] * count for count in (low, high, high + 1))
    elif name == "filter":
        spare = number - len(json.dumps({"a": [""]}))
        least, most, beyond = {}, {"a": ["b" * spare]}, {"a": ["b" * (spare + 1)]}
    elif name == "headers":
        least, most, beyond = {}, {"a": "b" * (number - 1)}, {"a": "b" * number}
    else:
        least = ENDPOINT[name]
        most, beyond = least.ljust(number, "a"), least.ljust(number + 1, "a")
    tried = [fault_of_endpoint({**ENDPOINT, name: value}) is None for value in (least, most, beyond)]
    assert tried == [True, True, False]


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
