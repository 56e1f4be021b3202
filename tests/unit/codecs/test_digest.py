"""The digest tells two requests apart exactly when their effects could differ."""

from __future__ import annotations

import dataclasses
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dueq_codecs.digest import request_digest
from dueq_codecs.messages import ChangeRequest
from dueq_codecs.records import RecordKind

SAMPLES = runpy.run_path(str(Path(__file__).resolve().parents[3] / "codecs/vectors/samples.py"))
u64 = SAMPLES["u64"]


def change(name: str, **changes: Any) -> ChangeRequest:
    return dataclasses.replace(SAMPLES["messages"]()[name][0], **changes)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("change_insert", {"request_id": 99}),
        ("change_insert", {"client_id": bytes(16)}),
        ("change_insert", {"sequence": 99}),
        ("change_insert", {"digest": 99}),
        ("change_insert_uploads", {"upload": u64(0, 0, 77)}),
        ("change_move", {"token": u64(1, 2)}),
        ("change_cancel", {"token": u64(1, 2)}),
    ],
)
def test_what_only_names_the_attempt_does_not_count(name: str, changes: dict[str, Any]) -> None:
    assert request_digest(change(name, **changes)) == request_digest(change(name))


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("change_insert", "due"),
        ("change_insert", "size"),
        ("change_insert", "crc"),
        ("change_move", "first"),
        ("change_move", "target_sequence"),
        ("change_move", "target_row"),
        ("change_move", "due"),
        ("change_ack", "token"),
        ("change_nack", "amount_ms"),
        ("change_extend", "token"),
        ("change_release", "token"),
    ],
)
def test_every_other_column_counts(name: str, column: str) -> None:
    values = getattr(change(name), column).copy()
    values[-1] ^= 1
    assert request_digest(change(name, **{column: values})) != request_digest(change(name))


def test_topic_partition_kind_and_order_of_rows_count() -> None:
    ack = change("change_ack")
    digests = {
        request_digest(ack),
        request_digest(dataclasses.replace(ack, topic="other")),
        request_digest(dataclasses.replace(ack, uid=13)),
        request_digest(dataclasses.replace(ack, kind=RecordKind.RELEASE)),
        request_digest(dataclasses.replace(ack, first=np.flip(ack.first).copy())),
    }
    assert len(digests) == 5


def test_the_digest_is_the_same_on_every_machine() -> None:
    assert request_digest(change("change_insert")) == 17762415304140476631
