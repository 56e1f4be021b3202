"""The `dueq` command.

Exit codes: 0 done, 1 refused or failed (one line on standard error says why), 2 wrong usage, 130 interrupted. A broker
also ends with 70 after a bug, and with 75 where its store cannot be opened or written.
"""

from __future__ import annotations

import codecs
import io
import json
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from dueq import __version__
from dueq.cli.group import LazyGroup, meant
from dueq.errors import DueqError
from dueq.lifeline import die_with_parent

_COMMANDS = {
    "up": ("dueq.cli.up:up", "Run a local mesh in the foreground."),
    "broker": ("dueq.cli.broker:broker", "Run one broker."),
    "topic": ("dueq.cli.topic:topic", "Create, list, describe, change and delete topics."),
    "schedule": ("dueq.cli.schedule:schedule", "Schedule messages."),
    "consume": ("dueq.cli.consume:consume", "Print messages as they fall due."),
    "pull": ("dueq.cli.pull:pull", "Take messages once, and print them."),
    "settle": ("dueq.cli.pull:settle", "Finish, give back or extend a message that was taken."),
    "move": ("dueq.cli.move:move", "Give messages another due instant."),
    "trigger": ("dueq.cli.trigger:trigger", "Have messages delivered now."),
    "change": ("dueq.cli.change:change", "Give messages of a priority or fair topic another rank."),
    "cancel": ("dueq.cli.cancel:cancel", "Cancel messages."),
    "get": ("dueq.cli.get:get", "Show one message as it is now."),
    "browse": ("dueq.cli.browse:browse", "Show waiting messages without touching them."),
    "leased": ("dueq.cli.leased:leased", "Show messages that consumers have."),
    "dead": ("dueq.cli.dead:dead", "Show dead messages, let them wait again, or discard them."),
    "where": ("dueq.cli.where:where", "Count, cancel, move or change all messages that match."),
    "job": ("dueq.cli.job:job", "List, show and cancel messages that were loaded together."),
    "group": ("dueq.cli.groups:group", "Set weights and limits for groups, and list them."),
    "endpoint": ("dueq.cli.endpoints:endpoint", "Have gateways send a topic's messages to a URL."),
    "gateway": ("dueq.cli.gateway:gateway", "Serve the mesh by HTTP."),
    "cron": ("dueq.cli.cron:cron", "Create, show, change and delete recurrences."),
    "campaign": ("dueq.cli.campaign:campaign", "Plan, load and take back campaigns, by Spark."),
    "forecast": ("dueq.cli.forecast:forecast", "Show how many messages fall due, second by second."),
    "export": ("dueq.cli.export:export", "Write what waits and what was delivered as Parquet."),
    "status": ("dueq.cli.status:status", "Show brokers, topics and consumers."),
    "partition": ("dueq.cli.partition:partition", "Recover a partition that has lost all in-sync replicas."),
}


@click.group(cls=LazyGroup, commands_at=_COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="dueq", message="%(prog)s %(version)s")
def dueq() -> None:
    """Deliver these bytes at this millisecond: a mesh of equal brokers for scheduled messages."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit.

    Args:
        arguments: the words after `dueq`; None for those of this process.
    """
    die_with_parent()
    _open_standard_streams()
    # Nothing here multiplies matrices. NumPy would start a thread for each further core when it is imported.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    raise SystemExit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    try:
        result = dueq.main(
            args=None if arguments is None else list(arguments), prog_name="dueq", standalone_mode=False
        )
        sys.stdout.flush()
    except click.Abort:
        return 130
    except click.ClickException as error:
        (meant(error) if isinstance(error, click.NoSuchOption) else error).show()
        return error.exit_code
    except DueqError as error:
        click.echo(f"dueq: {_one_line(error)}", err=True)
        return 1
    except BrokenPipeError:
        _drop_output()  # its reader has gone
        return 1
    except OSError as error:
        named = f"{error.filename}: " if error.filename else ""
        click.echo(f"dueq: {named}{error.strerror or error}", err=True)
        try:
            sys.stdout.flush()
        except OSError:
            _drop_output()
        return 1
    return result if isinstance(result, int) else 0


def _open_standard_streams() -> None:
    """See that they take whatever is written.

    Where one of them is closed, open the null device: Python has None then, and not all code expects that.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - until the process ends
    if isinstance(sys.stdout, io.TextIOWrapper) and not sys.stdout.encoding.lower().startswith("utf"):
        codecs.register_error("dueq.escaped", _escaped)
        sys.stdout.reconfigure(errors="dueq.escaped")


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """Write what an encoding other than UTF-8 lacks as JSON writes it, so that JSON stays JSON."""
    assert isinstance(error, UnicodeEncodeError)
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


def _drop_output() -> None:
    """Have the interpreter not complain at its last flush."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _one_line(error: DueqError) -> str:
    text = str(error).strip() or type(error).__name__
    return text if text.startswith(type(error).__name__) else f"{type(error).__name__}: {text}"


if __name__ == "__main__":
    main()
