"""The fate of a message, by the answer of its receiver.

2xx: done. 429 and 503 with `Retry-After`: later, uncounted. 489: never again. 410: nothing more is sent to this
endpoint. Everything else, redirects and no answer included, is a failed attempt.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import Final

from dueq import limits

REASON_BYTES_MAX: Final = 1024
"""Longest reason that a message keeps."""


_STEERING: Final = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)


class Fate(Enum):
    """The fate of a message."""

    DONE = "done"
    AGAIN = "again"
    """After the topic's back-off."""
    LATER = "later"
    """After the delay that the receiver asked for, uncounted; no other message is sent before."""
    DEAD = "dead"
    GONE = "gone"
    """It waits, as all do: the endpoint is disabled."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one request.

    Attributes:
        status: of HTTP; 0: there was no answer.
        text: the beginning of the body, or what went wrong.
        retry_after: the header, "" without one.
        seconds: how long it took.
    """

    status: int
    text: str
    retry_after: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """The consequences of an answer.

    Attributes:
        fate: of the message.
        reason: why, for the message and the log; "" if it is done.
        delay_s: of LATER: how long to wait.
        overloaded: the receiver fails as a whole, not because of this message: send less at a time.
    """

    fate: Fate
    reason: str = ""
    delay_s: float = 0.0
    overloaded: bool = False


_OVERLOADED: Final = frozenset({0, 429, 502, 503, 504})


def verdict(answer: Answer, now_ms: int) -> Verdict:
    """Return the consequences of an answer that came at an instant (Unix ms)."""
    status = answer.status
    if 200 <= status < 300:
        return Verdict(Fate.DONE)
    reason = reason_of(answer)
    if status == 489:
        return Verdict(Fate.DEAD, reason)
    if status == 410:
        return Verdict(Fate.GONE, reason)
    if status in (429, 503):
        delay_s = retry_after_s(answer.retry_after, now_ms)
        if delay_s is not None:
            return Verdict(Fate.LATER, reason, delay_s, overloaded=True)
    return Verdict(Fate.AGAIN, reason, overloaded=status in _OVERLOADED)


def retry_after_s(text: str, now_ms: int) -> float | None:
    """Return the delay that a `Retry-After` asks for: 1 s to a day; None: it is none."""
    text = text.strip()
    if text.isascii() and text.isdecimal():
        wanted = float(text[:12])
    else:
        try:
            at = parsedate_to_datetime(text)
        except (ValueError, OverflowError):
            return None
        # A date without a zone is one of UTC (RFC 9110, 5.6.7).
        wanted = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() - now_ms / 1000
    return min(max(wanted, limits.WEBHOOK_DELAY_MS_MIN / 1000), limits.WEBHOOK_DELAY_MS_MAX / 1000)


def reason_of(answer: Answer) -> str:
    """Return why an attempt failed, as the message keeps it.

    Others read it, some on a terminal: characters that steer one, or turn the order of the text behind them, are
    replaced.
    """
    said = f"HTTP {answer.status}: {answer.text}" if answer.status else answer.text
    return _STEERING.sub("\ufffd", said).rstrip(": \n").encode()[:REASON_BYTES_MAX].decode(errors="ignore")
