"""Options that several commands share, and the connection that they describe."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from dueq import Client
from dueq.limits import DEFAULT_TIMEOUT_S

DEFAULT_ENDPOINT = "tcp://127.0.0.1:7400"

_Function = TypeVar("_Function", bound=Callable[..., Any])


class Seconds(click.FloatRange):
    """A length of time that something waits for; "nan" is in no range, though it is outside of none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Check a value."""
        seconds = float(super().convert(value, param, ctx))
        if math.isnan(seconds):
            self.fail(f"{value} is not in the range {self._describe_range()}.", param, ctx)
        return seconds


def mesh_options(function: _Function) -> _Function:
    """Add `--endpoint` and `--timeout`; the function gets `endpoint` and `timeout`."""
    function = click.option(
        "--timeout", type=Seconds(min=0, min_open=True), default=DEFAULT_TIMEOUT_S,
        show_default=True, metavar="SECONDS", help="Give up after this long.",
    )(function)  # fmt: skip
    return click.option(
        "--endpoint", "-e", multiple=True, metavar="tcp://HOST:PORT",
        help=f"A broker; may be given several times. Default: DUEQ_ENDPOINTS, else {DEFAULT_ENDPOINT}.",
    )(function)  # fmt: skip


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
"""Adds `--json`; the function gets `as_json`."""


def endpoints(given: tuple[str, ...]) -> list[str]:
    """Return the brokers to ask: those given, else DUEQ_ENDPOINTS, else the default.

    Raises:
        click.UsageError: one is not of the form tcp://HOST:PORT, or its port is out of range.
    """
    chosen = list(given) or re.split(r"[,\s]+", os.environ.get("DUEQ_ENDPOINTS", "").strip())
    chosen = [endpoint for endpoint in chosen if endpoint] or [DEFAULT_ENDPOINT]
    for endpoint in chosen:
        found = re.fullmatch(r"tcp://[^\s/]+:(\d{1,5})", endpoint)
        if not found:
            raise click.UsageError(f"{endpoint!r} is not an endpoint; they look like {DEFAULT_ENDPOINT}")
        if not 1 <= int(found[1]) <= 65_535:
            raise click.UsageError(f"{endpoint!r}: an endpoint has a port of 1 to 65535, not {int(found[1])}")
    return chosen


@contextmanager
def connect(given: tuple[str, ...], timeout: float) -> Iterator[Client]:
    """Open a client for one command.

    Args:
        given: what `--endpoint` said.
        timeout: seconds for every call.
    """
    with Client(endpoints(given), timeout=timeout) as client:
        yield client
