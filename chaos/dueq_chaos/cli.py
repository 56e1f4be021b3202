"""The `dueq-chaos` command.

Exit codes: 0 all is well, 1 something was found that must not happen (or a command failed), 2 wrong usage or
unreadable input, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from dueq import __version__
from dueq.cli.group import LazyGroup
from dueq.errors import DueqError
from dueq.lifeline import die_with_parent

_COMMANDS = {
    "sim": ("dueq_chaos.sim.command:sim", "Simulate whole meshes, each run from one seed."),
    "run": ("dueq_chaos.nemesis.command:run", "Hurt a mesh of real processes and watch it."),
    "check": ("dueq_chaos.history.command:check", "Judge the recorded history of clients."),
}


@click.group(cls=LazyGroup, commands_at=_COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="dueq-chaos", message="%(prog)s %(version)s")
def dueq_chaos() -> None:
    """Convince yourself: simulated and real faults for a dueq mesh, and a judge of what its clients saw."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit.

    Args:
        arguments: the words after `dueq-chaos`; None for those of this process.
    """
    die_with_parent()
    raise SystemExit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    try:
        words = None if arguments is None else list(arguments)
        result = dueq_chaos.main(args=words, prog_name="dueq-chaos", standalone_mode=False)
        sys.stdout.flush()
    except click.Abort:
        return 130
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except DueqError as error:
        click.echo(f"dueq-chaos: {type(error).__name__}: {error}", err=True)
        return 1
    except BrokenPipeError:
        # The reader of our output has gone; the interpreter must not complain at its last flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return result if isinstance(result, int) else 0


if __name__ == "__main__":
    main()
