"""A click group that imports a command when it is used, and guesses what a mistyped one meant."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click


def closest(word: str, known: list[str]) -> str:
    """Return a hint ("Did you mean 'x'?") or nothing."""
    matches = difflib.get_close_matches(word, known, n=3, cutoff=0.5)
    return f" Did you mean {' or '.join(repr(match) for match in matches)}?" if matches else ""


_MEANT = {
    "--due": ("--at", "--in"), "--when": ("--at", "--in"), "--time": ("--at", "--in"), "--after": ("--in",),
    "--delay": ("--in",), "--priority": ("--rank",),
}  # fmt: skip
"""Words of other programs, or of the SDK, and what is called so here."""


_COMMANDS_MEANT = {
    "recurrence": "cron", "recurrences": "cron", "pause": "topic pause", "resume": "topic resume",
    "purge": "topic purge", "create": "topic create", "describe": "topic describe", "list": "topic list",
    "topics": "topic list", "redrive": "dead redrive", "discard": "dead discard", "count": "where count",
}  # fmt: skip
"""Words for what is done by a command of a group."""


def meant(error: click.NoSuchOption) -> click.UsageError:
    """Suggest what has another name here rather than what is spelled alike: `--at` for `--due`, not `--key`."""
    known = {name for option in error.ctx.command.params for name in option.opts} if error.ctx else set()
    named = " or ".join(repr(name) for name in _MEANT.get(error.option_name, ()) if name in known)
    return click.UsageError(f"{error.message} Did you mean {named}?", error.ctx) if named else error


class SuggestingGroup(click.Group):
    """A group that answers a mistyped command with the nearest ones, and says where options belong."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the words of the command line.

        Raises:
            click.UsageError: an option that the group does not have comes before the command.
        """
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            where = f"Options come behind the command: {ctx.command_path} COMMAND {error.option_name}"
            raise click.NoSuchOption(
                error.option_name, f"{error.message} {where}", error.possibilities, ctx
            ) from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the first word names.

        Raises:
            click.UsageError: there is none; the text says which were near.
        """
        word = args[0]
        if not word.startswith("-") and self.get_command(ctx, word) is None:
            command = _COMMANDS_MEANT.get(word) if ctx.parent is None else None
            hint = f" Did you mean '{command}'?" if command else closest(word, self.list_commands(ctx))
            ctx.fail(f"No such command {word!r}.{hint}")
        return super().resolve_command(ctx, args)


class LazyGroup(SuggestingGroup):
    """A group whose commands are named by "module:attribute" and imported on use."""

    def __init__(self, *args: Any, commands_at: Mapping[str, tuple[str, str]], **kwargs: Any) -> None:
        """As click.Group.

        Args:
            args: for click.Group.
            commands_at: name → ("module:attribute", one line of help), in the order of the help page.
            kwargs: for click.Group.
        """
        super().__init__(*args, **kwargs)
        self._commands_at = dict(commands_at)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in their order."""
        return list(self._commands_at)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command, if there is one of this name."""
        if cmd_name not in self._commands_at:
            return None
        module, _, attribute = self._commands_at[cmd_name][0].partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self._commands_at.items()])
