"""Questions before something that cannot be undone."""

from __future__ import annotations

from typing import IO, Any

import click


class Declined(click.ClickException):
    """Somebody was asked, and said no."""

    def __init__(self) -> None:
        super().__init__("nothing was changed")

    def show(self, file: IO[Any] | None = None) -> None:
        """Say it as other refusals are said."""
        click.echo(f"dueq: {self.message}", err=True)


def ask(question: str) -> None:
    """Ask whether to go on.

    Raises:
        Declined: the answer is no.
        click.Abort: there is none, or Ctrl-C.
    """
    if not click.confirm(question):
        raise Declined
