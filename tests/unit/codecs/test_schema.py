"""The schema, the generated classes and our own reader and writer are three views of one format."""

from __future__ import annotations

import importlib
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import pytest

from dueq_codecs.envelope import unseal
from dueq_codecs.flat import Layout
from dueq_codecs.frames import encode, encode_record
from dueq_codecs.layouts import KINDS, LAYOUTS
from dueq_codecs.log import RECORD

ROOT = Path(__file__).resolve().parents[3]
SAMPLES = runpy.run_path(str(ROOT / "codecs/vectors/samples.py"))
MESSAGES = SAMPLES["messages"]()
RECORDS = SAMPLES["records"]()


def tables_of_schema() -> dict[str, list[tuple[str, str]]]:
    text = re.sub(r"//.*", "", (ROOT / "codecs/schema/dueq.fbs").read_text())
    return {
        name: re.findall(r"(\w+)\s*:\s*([\w\[\]]+)\s*;", fields)
        for name, fields in re.findall(r"table (\w+) \{(.*?)\}", text, re.DOTALL)
    }


def test_the_schema_has_the_fields_of_our_layouts_in_the_same_order() -> None:
    ours = {
        layout.message.__name__: [(field.name, field.schema_type) for field in layout.fields]
        for layout in (*LAYOUTS.values(), RECORD)
    }
    assert tables_of_schema() == ours


def test_the_generated_code_is_that_of_the_schema() -> None:
    if not (Path(sys.executable).with_name("flatc").exists() or shutil.which("flatc")):
        if os.environ.get("CI") == "true":
            pytest.fail("flatc is not installed; in CI it has to be")
        pytest.skip("flatc is not installed")
    command = [sys.executable, str(ROOT / "scripts/generate-codecs"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"run scripts/generate-codecs: {done.stderr}"


def samples() -> list[Any]:
    found = [
        pytest.param(LAYOUTS[KINDS[type(message)]], encode(message, bodies)[0], id=name)
        for name, (message, bodies) in MESSAGES.items()
    ]
    return found + [pytest.param(RECORD, encode_record(record), id=name) for name, record in RECORDS.items()]


def generated(layout: Layout) -> Any:
    """The class of the generated object API."""
    name = layout.message.__name__
    return getattr(importlib.import_module(f"dueq_codecs._fb.{name}"), f"{name}T")


def attribute(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(map(str.capitalize, rest))


def as_generated(value: Any) -> Any:
    """One of our values as a generated class has it."""
    if value is None or (not isinstance(value, int) and len(value) == 0):
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return list(value)
    if isinstance(value, tuple) and isinstance(value[0], bytes):
        return list(b"".join(value))
    if isinstance(value, tuple) and isinstance(value[0], str):
        return [text.encode() for text in value]
    return (
        value.tolist()
        if isinstance(value, np.ndarray)
        else list(value)
        if isinstance(value, tuple)
        else value
    )


def from_generated(value: Any) -> Any:
    if isinstance(value, list) and value and hasattr(value[0], "__dict__"):  # structs
        return [tuple(vars(item).values()) for item in value]
    return value.tolist() if isinstance(value, np.ndarray) else value


def read(layout: Layout, body: bytes | memoryview) -> dict[str, Any]:
    values: dict[str, Any] = {}
    layout.read(memoryview(body), values)
    return values


@pytest.mark.parametrize(("layout", "frame"), samples())
def test_the_generated_classes_read_what_we_write(layout: Layout, frame: bytes) -> None:
    body = bytes(unseal(frame)[1])
    theirs = generated(layout).InitFromPackedBuf(body)
    for name, value in read(layout, body).items():
        assert from_generated(getattr(theirs, attribute(name))) == as_generated(value), name


@pytest.mark.parametrize(("layout", "frame"), samples())
def test_we_read_what_the_generated_classes_write(layout: Layout, frame: bytes) -> None:
    body = bytes(unseal(frame)[1])
    builder = flatbuffers.Builder()
    builder.Finish(generated(layout).InitFromPackedBuf(body).Pack(builder))
    ours, theirs = read(layout, body), read(layout, bytes(builder.Output()))
    assert {name: as_generated(value) for name, value in theirs.items()} == {
        name: as_generated(value) for name, value in ours.items()
    }


@pytest.mark.parametrize(("layout", "frame"), samples())
def test_a_reader_skips_fields_that_a_newer_writer_has_added(layout: Layout, frame: bytes) -> None:
    older = Layout(layout.message, *layout.fields[:-1])
    body = unseal(frame)[1]
    expected = read(layout, body)
    del expected[layout.fields[-1].name]
    assert SAMPLES["plain"](list(read(older, body).values())) == SAMPLES["plain"](list(expected.values()))
