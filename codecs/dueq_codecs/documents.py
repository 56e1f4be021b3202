"""Documents: JSON objects that travel as text in requests and records.

Documents of clients and of replicated records are decoded here and nowhere else. The depth to which a document may be
nested is a fixed number: the depth at which Python's decoder gives up depends on its caller's stack, which differs from
replica to replica.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import numpy as np

DOCUMENT_DEPTH_MAX: Final = 32
"""Most arrays and objects of a document inside each other."""
_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
"""A string. It never goes back: what it would remember for that takes a hundred bytes for each of the text."""
_HALF: Final = re.compile(r"\\u[dD][89a-fA-F]")
"""An escape that may be half of a surrogate pair."""


def decode_document(text: str) -> dict[str, Any]:
    """Return the JSON object that a text is.

    Raises:
        ValueError: it is no JSON, no object, nested more than 32 deep, or has a text that is not Unicode (no answer
            could quote it). The error says which.
    """
    if deeper_than(text.encode(), DOCUMENT_DEPTH_MAX):
        raise ValueError(f"arrays and objects are nested more than {DOCUMENT_DEPTH_MAX} deep")
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError(f"there is a JSON {type(found).__name__}")
    if _HALF.search(text):
        try:
            json.dumps(found, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("there is half of a surrogate pair, which is no Unicode text") from None
    return found


def deeper_than(text: bytes, depth: int) -> bool:
    """Return whether arrays and objects of a JSON text are nested more than this deep."""
    if text.count(b"[") + text.count(b"{") <= depth:
        return False
    letters = np.frombuffer(_STRING.sub(b"", text), np.uint8)
    opens = (letters == ord("[")) | (letters == ord("{"))
    closes = (letters == ord("]")) | (letters == ord("}"))
    steps = opens.view(np.int8) - closes.view(np.int8)
    return len(steps) > 0 and int(np.cumsum(steps, dtype=np.int32).max()) > depth
