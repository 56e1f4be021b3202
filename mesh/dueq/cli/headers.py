"""The option by which a message gets headers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

_Function = TypeVar("_Function", bound=Callable[..., Any])


def header_option(what: str) -> Callable[[_Function], _Function]:
    """Add `--header NAME=VALUE`; the function gets `headers`, a dictionary, or None where there are none."""
    return click.option(
        "--header", "headers", metavar="NAME=VALUE", multiple=True, callback=_taken,
        help=f"A header of {what}, such as content_type=text/csv; may be given several times.",
    )  # fmt: skip


def _taken(
    _context: click.Context, _option: click.Parameter, texts: tuple[str, ...]
) -> dict[str, str] | None:
    headers: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"a header is NAME=VALUE, not {text!r:.80}")
        if name in headers:
            raise click.BadParameter(f"there are two headers {name!r:.80}")
        headers[name] = value
    return headers or None
