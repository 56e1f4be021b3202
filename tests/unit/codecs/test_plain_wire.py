"""Frames and digests as somebody makes them who knows the protocol page and the schema only, against ours."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.integration import plain_wire

from dueq_codecs.digest import request_digest
from dueq_codecs.envelope import unseal
from dueq_codecs.frames import decode, encode
from dueq_codecs.layouts import KINDS, LAYOUTS, Kind
from dueq_codecs.messages import ChangeRequest, Message

SAMPLES = runpy.run_path(str(Path(__file__).resolve().parents[3] / "codecs/vectors/samples.py"))
MESSAGES: dict[str, tuple[Message, list[bytes]]] = {
    name: sample for name, sample in SAMPLES["messages"]().items() if KINDS[type(sample[0])] < Kind.PEER_FRAME
}


@pytest.mark.parametrize("name", MESSAGES)
def test_a_frame_goes_there_and_back(name: str) -> None:
    message, bodies = MESSAGES[name]
    ours = bytes(encode(message, bodies)[0])
    values = plain_wire.decode(ours)
    kind = values.pop("message")
    assert kind == type(message).__name__
    read: dict[str, Any] = {}
    LAYOUTS[KINDS[type(message)]].read(unseal(ours)[1], read)
    assert {name: list(value) if isinstance(value, list) else value for name, value in values.items()} == {
        name: value.tolist()
        if isinstance(value, np.ndarray)
        else value
        if isinstance(value, str | int)
        else list(value)
        for name, value in read.items()
    }
    if any(isinstance(item, str) for value in values.values() if isinstance(value, list) for item in value):
        return  # clients send no lists of strings
    theirs = plain_wire.encode(kind, values)
    assert SAMPLES["plain"](decode([theirs, *bodies])[0]) == SAMPLES["plain"](message)


@pytest.mark.parametrize(
    "name", [name for name in MESSAGES if name.startswith("change_") and not name.startswith("change_reply")]
)
def test_a_digest(name: str) -> None:
    message = MESSAGES[name][0]
    assert isinstance(message, ChangeRequest)
    request = plain_wire.decode(bytes(encode(*MESSAGES[name])[0]))
    request["operation"] = request["kind"]
    if request["kind"] in (4, 5):
        request["token"] = []
    assert plain_wire.digest(request, message.rows) == request_digest(message)
