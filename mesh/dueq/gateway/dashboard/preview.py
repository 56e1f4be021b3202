"""A part of a payload for the eye: JSON, text or hex, never anything that a browser would run."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Final, Literal

from dueq import limits

_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_INDENT: Final = "  "
_UNSEEN: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
"""Characters that show nothing, or turn the direction of the text behind them."""


@dataclass(frozen=True, slots=True)
class Preview:
    """A part of a payload.

    Attributes:
        form: what `text` is.
        text: for the eye; control characters are written out.
        cut: there is more.
    """

    form: Literal["json", "text", "hex", "empty"]
    text: str
    cut: bool


def preview(payload: bytes) -> Preview:
    """Return the part of a payload that is shown."""
    if not payload:
        return Preview("empty", "", False)
    cut = len(payload) > limits.DASHBOARD_PREVIEW_BYTES
    text = _text(payload)
    if text is None:
        return Preview(
            "hex",
            _hex(payload[: limits.DASHBOARD_PREVIEW_BYTES // 4]),
            len(payload) > limits.DASHBOARD_PREVIEW_BYTES // 4,
        )
    laid_out = _laid_out(text)
    if laid_out is not None:
        shown = laid_out[: limits.DASHBOARD_PREVIEW_BYTES]
        return Preview("json", _visible(shown), len(laid_out) > len(shown))
    return Preview("text", _visible(text[: limits.DASHBOARD_PREVIEW_BYTES]), cut)


def _text(payload: bytes) -> str | None:
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return None
    return None if "\x00" in text else text


def _laid_out(text: str) -> str | None:
    """JSON with line breaks; every number and string stays as it was written. None: it is no object or array."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return None
    lines, depth, parts = [], 0, list[str]()
    tokens = _TOKEN.findall(text)
    for place, token in enumerate(tokens):
        if token in "}]":
            if tokens[place - 1] not in "{[":
                depth -= 1
                lines.append("".join(parts))
                parts = [_INDENT * depth]
            else:
                depth -= 1
            parts.append(token)
        elif token in "{[":
            parts.append(token)
            depth += 1
            if tokens[place + 1] not in "}]":
                lines.append("".join(parts))
                parts = [_INDENT * depth]
        elif token == ",":
            lines.append("".join(parts) + ",")
            parts = [_INDENT * depth]
        else:
            parts.append(": " if token == ":" else token)
    return "\n".join([*lines, "".join(parts)])


def _visible(text: str) -> str:
    return _UNSEEN.sub(lambda found: f"\\u{{{ord(found[0]):x}}}", text)


def _hex(payload: bytes) -> str:
    lines = []
    for begin in range(0, len(payload), 16):
        some = payload[begin : begin + 16]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in some)
        lines.append(f"{begin:06x}  {some.hex(' '):<47}  {shown}")
    return "\n".join(lines)
