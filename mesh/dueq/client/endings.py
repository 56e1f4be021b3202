"""How callers let leases end, checked: acks, nacks, releases."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, NamedTuple

from dueq import limits
from dueq.client.arguments import flag
from dueq.client.times import Seconds, duration_ms
from dueq.errors import InvalidRequest
from dueq_codecs.meta import MetaRefused, packed_headers
from dueq_codecs.records import REASON_BYTES_MAX, Fate


class Ending(NamedTuple):
    """How a lease is to end, or to go on: see `events.Settle`."""

    amount_ms: int = 0
    fate: Fate = Fate.DELAY
    reason: str = ""
    headers: str = ""
    """JSON; empty: they stay."""


PLAIN: Final = Ending()
"""Nothing is said of it: most acks are so."""


def ack(reason: str) -> Ending:
    """Check how messages are done.

    Raises:
        InvalidRequest: the reason is no text, or too long.
    """
    if isinstance(reason, str) and not reason:
        return PLAIN
    if not isinstance(reason, str):
        raise InvalidRequest(f"a reason is a str, not {type(reason).__name__}: {reason!r:.80}")
    try:
        length = len(reason.encode())
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"the reason {reason!r:.80} is not Unicode text: {error.reason}") from None
    if length > REASON_BYTES_MAX:
        raise InvalidRequest(f"a reason has at most {REASON_BYTES_MAX} bytes of UTF-8, not {length}")
    return Ending(reason=reason)


def nack(delay: Seconds | None, reason: str, dead: bool, headers: Mapping[str, str] | None = None) -> Ending:
    """Check how messages are given back.

    Raises:
        InvalidRequest: the delay is no number or outside its limits, the reason is no text or too long, headers are
            none or too long, or a dead message has a delay.
    """
    ack(reason)
    flag(dead, "dead")
    if dead and delay is not None:
        raise InvalidRequest(f"a message that is dead has no delay, not {delay!r}")
    document = "" if headers is None else _headers_text(headers)
    if dead:
        return Ending(0, Fate.DEAD, reason, document)
    if delay is None:
        return Ending(0, Fate.BACK_OFF, reason, document)
    return Ending(duration_ms(delay, "delay", 0, limits.DELAY_MS_MAX), Fate.DELAY, reason, document)


def _headers_text(headers: Mapping[str, str]) -> str:
    try:
        packed_headers(headers)
    except MetaRefused as refused:
        raise InvalidRequest(str(refused)) from None
    return json.dumps(dict(headers), ensure_ascii=False, separators=(",", ":"))


def release(delay: Seconds) -> Ending:
    """Check how messages are given back unhandled.

    Raises:
        InvalidRequest: the delay is no number, or outside its limits.
    """
    return Ending(duration_ms(delay, "delay", 0, limits.RELEASE_DELAY_MS_MAX))
