"""Delivered messages as lines of text."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any, TypeVar

import click

from dueq import Message

_Function = TypeVar("_Function", bound=Callable[..., Any])


def line_options(function: _Function) -> _Function:
    """Add the options that say what is printed of a message; the function gives them to `line`."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="The same as --format json."),
        click.option(
            "--headers", "with_headers", is_flag=True, help="Put each message's headers, as JSON, and a tab first."
        ),
        click.option("--ranks", "with_rank", is_flag=True, help="Put each message's rank and a tab first."),
        click.option("--groups", "with_group", is_flag=True, help="Put each message's group and a tab first."),
        click.option("--keys", "with_key", is_flag=True, help="Put each message's key and a tab before its payload."),
        click.option(
            "--format", "style", type=click.Choice(["text", "base64", "json"]), default="text", show_default=True,
            help="The payload as text or base64, one a line; or all of the message as JSON, one object a line.",
        ),
    ):  # fmt: skip
        function = option(function)
    return function


def line(
    message: Message, style: str, with_key: bool, with_rank: bool, with_group: bool, with_headers: bool,
    received_at_ms: float,
) -> str | bytes:  # fmt: skip
    """Return what is printed of a message."""
    payload = bytes(message.payload)
    if style == "json":
        return json.dumps(_document(message, payload, received_at_ms), ensure_ascii=False)
    columns = [b"%d" % message.rank] if with_rank else []
    columns += [message.group.encode()] if with_group else []
    columns += [message.key.encode()] if with_key else []
    columns += [json.dumps(message.headers, ensure_ascii=False).encode()] if with_headers else []
    return b"\t".join([*columns, payload if style == "text" else base64.b64encode(payload)])


def _document(message: Message, payload: bytes, received_at_ms: float) -> dict[str, Any]:
    document: dict[str, Any] = {
        "id": message.id, "topic": message.topic, "key": message.key, "due": message.due,
        "released_at": message.released_at, "received_at": round(received_at_ms, 3),
        "attempt": message.attempt, "token": message.token, "rank": message.rank, "group": message.group,
        "version": message.version, "headers": message.headers,
    }  # fmt: skip
    try:
        document["payload"] = payload.decode("utf-8")
    except UnicodeDecodeError:
        document["payload_base64"] = base64.b64encode(payload).decode("ascii")
    return document
