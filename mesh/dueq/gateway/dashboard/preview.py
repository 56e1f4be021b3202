"""A part of a payload for the eye: JSON, text or hex, never anything that a browser would run."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import islice
from typing import Final, Literal

from dueq import limits

_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_INDENT: Final = "  "
_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]"
)
"""Characters that show nothing, or turn the direction of the text behind them; `static/words.js` has the same."""


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
    """The beginning of JSON with line breaks; every number and string stays as it was written.

    None: it is no object or array.
    """
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return None
    # The indentation of deep JSON can be a thousand times as long as the payload: no more is made than is shown.
    most = limits.DASHBOARD_PREVIEW_BYTES
    tokens = [found[0] for found in islice(_TOKEN.finditer(text), most + 2)]
    parts, size, depth = list[str](), 0, 0
    for place, token in enumerate(tokens):
        if token in "}]":
            depth -= 1
            part = token if tokens[place - 1] in "{[" else "\n" + _INDENT * depth + token
        elif token in "{[":
            depth += 1
            part = token if tokens[place + 1] in "}]" else token + "\n" + _INDENT * depth
        elif token == ",":
            part = ",\n" + _INDENT * depth
        else:
            part = ": " if token == ":" else token
        parts.append(part)
        size += len(part)
        if size > most:
            break
    return "".join(parts)


def _visible(text: str) -> str:
    return _UNSEEN.sub(lambda found: f"\\u{{{ord(found[0]):x}}}", text)


def _hex(payload: bytes) -> str:
    lines = []
    for begin in range(0, len(payload), 16):
        some = payload[begin : begin + 16]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in some)
        lines.append(f"{begin:06x}  {some.hex(' '):<47}  {shown}")
    return "\n".join(lines)
