"""What `dueq endpoint` says, and when."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dueq import EndpointInfo
from dueq.cli import endpoints
from dueq.cli.main import run
from dueq.errors import Disconnected


@pytest.mark.parametrize(
    "words", [["set", "orders", "--topic", "orders", "--url", "https://example.com/"], ["rotate", "orders"]]
)
def test_a_new_secret_is_printed_whatever_comes_after(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is never shown again."""

    def gone(name: str) -> None:
        raise Disconnected("no broker could be reached in time")

    @contextmanager
    def connected(*_given: Any) -> Iterator[Any]:
        yield SimpleNamespace(
            set_endpoint=lambda *_given, **_more: "whsec_new", endpoint=gone,
            rotate_endpoint=lambda *_given, **_more: "whsec_new",
        )  # fmt: skip

    monkeypatch.setattr(endpoints, "connect", connected)
    assert run(["endpoint", *words]) == 1
    said = capsys.readouterr()
    assert said.out == "whsec_new\n"
    assert "Disconnected" in said.err


def test_a_file_of_secrets_that_is_no_text_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "secrets"
    file.write_bytes(b"whsec_\xff\n")
    words = ["endpoint", "set", "orders", "--topic", "orders", "--url", "https://example.com/"]
    assert run([*words, "--secrets", str(file)]) == 1
    said = capsys.readouterr().err
    assert str(file) in said
    assert "UTF-8" in said


@pytest.mark.parametrize(
    ("verb", "said"), [("pause", "paused"), ("resume", "resumed"), ("delete", "deleted")]
)
def test_what_was_done_to_an_endpoint_is_said(
    verb: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def connected(*_given: Any) -> Iterator[Any]:
        yield SimpleNamespace(**{f"{verb}_endpoint": lambda *_given: None})

    monkeypatch.setattr(endpoints, "connect", connected)
    assert run(["endpoint", verb, "orders"]) == 0
    assert capsys.readouterr().out == f"{said} orders\n"


def test_until_when_a_secret_is_used_is_said_in_utc(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    info = EndpointInfo(
        name="orders", topic="orders", version=1, url="https://example.com/", timeout=15.0, max_in_flight=64,
        headers=(), filter={}, secrets=(("8d4f", datetime(2030, 1, 31, 9, tzinfo=UTC)),), targets=False, disabled="",
        paused=False, paused_until=None, sealed=True,
    )  # fmt: skip

    @contextmanager
    def connected(*_given: Any) -> Iterator[Any]:
        yield SimpleNamespace(endpoint=lambda name: info)

    monkeypatch.setattr(endpoints, "connect", connected)
    assert run(["endpoint", "show", "orders"]) == 0
    assert "8d4f until 2030-01-31 09:00:00 UTC" in capsys.readouterr().out
