"""Golden frames: what this protocol version put on the wire once, it writes and reads for ever."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from dueq_codecs.frames import decode, decode_record, encode, encode_record
from dueq_codecs.layouts import KINDS
from dueq_codecs.records import RecordKind

VECTORS = Path(__file__).resolve().parents[3] / "codecs/vectors"
SAMPLES = runpy.run_path(str(VECTORS / "samples.py"))
MESSAGES = SAMPLES["messages"]()
RECORDS = SAMPLES["records"]()
plain = SAMPLES["plain"]


def golden(name: str) -> list[bytes | memoryview]:
    return SAMPLES["unpack_frames"]((VECTORS / f"{name}.bin").read_bytes())


@pytest.mark.parametrize("name", MESSAGES)
def test_a_golden_message_decodes_to_what_was_meant(name: str) -> None:
    message, bodies = MESSAGES[name]
    decoded, decoded_bodies = decode(golden(name))
    assert plain(decoded) == plain(message)
    assert decoded_bodies == bodies


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_encodes_to_its_golden_bytes(name: str) -> None:
    assert encode(*MESSAGES[name]) == golden(name)


@pytest.mark.parametrize("name", RECORDS)
def test_a_golden_record_decodes_to_what_was_meant(name: str) -> None:
    [data] = golden(name)
    record = decode_record(data)
    assert plain(record) == plain(RECORDS[name])
    assert record.encoded == data


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_encodes_to_its_golden_bytes(name: str) -> None:
    assert [encode_record(RECORDS[name])] == golden(name)


def test_every_kind_of_message_and_record_has_a_golden_file_and_every_file_a_sample() -> None:
    assert {type(message) for message, _ in MESSAGES.values()} == set(KINDS)
    assert {record.kind for record in RECORDS.values()} == set(RecordKind)
    assert {path.stem for path in VECTORS.glob("*.bin")} == MESSAGES.keys() | RECORDS.keys()
