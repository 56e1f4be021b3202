"""What options say for themselves, and what the manual says of the command line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from dueq.broker import process
from dueq.cli.main import dueq

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"


def options(
    command: click.Command, words: str, above: click.Context | None = None
) -> Iterator[tuple[str, click.Option]]:
    """All options of a command and of those below it, with the words that lead there."""
    context = click.Context(command, info_name=words, parent=above)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from options(below, f"{words} {name}", context)
    for option in command.params:
        if isinstance(option, click.Option):
            yield words, option


def test_every_option_says_what_it_is_for() -> None:
    assert [(words, option.opts) for words, option in options(dueq, "dueq") if not option.help] == []


@pytest.mark.parametrize(
    "code", [process.EXIT_OK, process.EXIT_REFUSED, process.EXIT_BUG, process.EXIT_STORE_FAILED]
)
def test_the_page_of_the_command_line_names_every_exit_code_of_a_broker(code: int) -> None:
    assert f"| {code} |" in (REFERENCE / "cli.md").read_text()


def test_the_page_of_the_configuration_names_every_variable() -> None:
    page = (REFERENCE / "configuration.md").read_text()
    variables = {str(option.envvar) for _, option in options(dueq, "dueq") if option.envvar}
    assert "DUEQ_ZOOKEEPER" in variables
    assert {name for name in variables | {"DUEQ_SECRETS_KEY"} if f"`{name}`" not in page} == set()
