"""The settings of a topic as options: those that can be given when it is created, and changed later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from dueq import Backoff
from dueq.cli.instants import duration, parse_duration

_Function = TypeVar("_Function", bound=Callable[..., Any])

_BACKOFF: Final[dict[str, Callable[[str], Any]]] = {
    "factor": float, "longest": lambda text: parse_duration(text, "--backoff"), "jitter": float, "doublings": int,
}  # fmt: skip


def _backoff(_context: click.Context, _option: click.Parameter, given: str | None) -> Backoff | None:
    """Read a back-off: the first delay, and what else is said of it."""
    if given is None:
        return None
    first, *rest = given.split(",")
    said: dict[str, Any] = {}
    for part in rest:
        name, _, value = part.partition("=")
        try:
            said[name.strip()] = _BACKOFF[name.strip()](value)
        except (KeyError, ValueError):
            raise click.BadParameter(
                f"{part!r} is none of {', '.join(f'{known}=…' for known in _BACKOFF)}.",
                param_hint="--backoff",
            ) from None
    return Backoff(parse_duration(first, "--backoff"), **said)


def _labels(
    _context: click.Context, _option: click.Parameter, given: tuple[str, ...]
) -> dict[str, str] | None:
    for text in given:
        if "=" not in text:
            raise click.BadParameter(f"a label is NAME=TEXT, not {text!r:.80}")
    return dict(text.split("=", 1) for text in given) or None


_OPTIONS: Final = (
    click.option("--payload-bytes-max", type=int, help="The longest payload; 64 MiB in a new topic."),
    click.option(
        "--horizon", metavar="DURATION", callback=duration,
        help="How far ahead a message may be due: 1h30m, 365d; 0s: no cap, as in a new topic.",
    ),
    click.option(
        "--remember", metavar="DURATION", callback=duration,
        help="How long a unique key stays taken once its message is finished: 1h. In a new topic: not at all.",
    ),
    click.option(
        "--max-attempts", type=int, help="How often a message is delivered before it is dead; 0: no limit."
    ),
    click.option(
        "--backoff", metavar="FIRST[,NAME=VALUE…]", callback=_backoff,
        help="How long a message waits after an attempt that failed: 1s,factor=2,longest=1h,jitter=0.1,doublings=5.",
    ),
    click.option(
        "--expired", type=click.Choice(("finish", "dead")), help="What becomes of a message that has expired."
    ),
    click.option("--dead-retention", metavar="DURATION", callback=duration, help="How long a dead message stays: 14d."),
    click.option(
        "--label", "labels", metavar="NAME=TEXT", multiple=True, callback=_labels,
        help="What people or programs should know of the topic; may be given many times.",
    ),
)  # fmt: skip


def settings_options(function: _Function) -> _Function:
    """Add an option for each setting; the function gets the arguments of `create_topic` and `update_topic`."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function
