"""Passes go on in the mesh though their command ends before them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dueq import Disconnected, Pass
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
