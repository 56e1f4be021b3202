"""Passes go on in the mesh though their command ends before them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from dueq import Client, Disconnected, OutcomeUnknown, Pass
from dueq.cli.main import run
from dueq.testing import mesh


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with mesh() as found:
        monkeypatch.setattr("dueq.cli.options.Client", lambda *args, **options: found.client())
        found.client().create_topic("t")
        yield "t"


@pytest.mark.parametrize(
    ("error", "code"), [(Disconnected("no broker could be reached in time"), 1), (KeyboardInterrupt(), 130)]
)
@pytest.mark.parametrize(
    "words", [["where", "cancel"], ["dead", "redrive"], ["dead", "discard"], ["topic", "purge"]]
)
def test_a_command_that_does_not_see_the_end_says_how_to_look(
    topic: str,
    words: list[str],
    error: BaseException,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    names: list[str] = []

    def wait(work: Pass) -> None:
        names.append(work.name)
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(Pass, "wait", wait)
        assert run([*words, topic, "--yes"]) == code
    assert f"the pass goes on in the mesh: dueq where show {topic} {names[0]}" in capsys.readouterr().err
    assert run(["where", "show", topic, names[0]]) == 0


@pytest.mark.parametrize(
    ("error", "code"), [(OutcomeUnknown("no answer in time"), 1), (KeyboardInterrupt(), 130)]
)
@pytest.mark.parametrize(
    ("words", "verb"),
    [
        (["where", "cancel"], "cancel_where"),
        (["where", "shift", "--by", "1h"], "shift_where"),
        (["dead", "redrive"], "redrive_where"),
        (["dead", "discard"], "discard_where"),
    ],
)
def test_a_command_that_does_not_see_the_beginning_says_how_to_look(
    topic: str,
    words: list[str],
    verb: str,
    error: BaseException,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    begin = getattr(Client, verb)

    def without_answer(*args: Any, **more: Any) -> Pass:
        begin(*args, **more)
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(Client, verb, without_answer)
        assert run([*words, topic, "--yes"]) == code
    told = re.search(
        rf"the pass may have begun: dueq where show {topic} (\w+)$", capsys.readouterr().err, re.M
    )
    assert told is not None
    assert run(["where", "show", topic, told[1]]) == 0
