"""Pulls and settling by token, as calls (see `calls`)."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from dueq import limits
from dueq.client import arguments, endings, per_row, times
from dueq.client.calls import Call
from dueq.client.core import PartsCall
from dueq.client.core.ports import events
from dueq.client.core.ports.delivery import Delivery
from dueq.client.endings import Ending
from dueq.client.times import Seconds
from dueq.errors import InvalidRequest
from dueq_codecs.records import Outcome, RecordKind

Lease = tuple[str, int]
"""(message id, token)"""
WAIT_S_MAX: Final = 3_600.0
_OPENED_BITS: Final = 12
_opened: Final = itertools.count()
"""Consumers that this process has opened: inside a test, many of them are opened at one instant."""
_KINDS: Final = {
    "ack": RecordKind.ACK,
    "nack": RecordKind.NACK,
    "release": RecordKind.RELEASE,
    "extend": RecordKind.EXTEND,
}


def pull(
    topic: str,
    count: int,
    wait: Seconds,
    lease: Seconds,
    consumer: str | None,
    held: Iterable[Lease],
    credit_bytes: int = limits.CONSUMER_CREDIT_BYTES,
    order: int = 0,
) -> tuple[Call[list[Delivery]], float]:
    """Take messages once; returns the call, and how many seconds it waits for a message.

    Messages that come when the caller is gone are given back, uncounted.

    Args:
        topic, count, wait, lease, consumer, held: as for `pull` of a client.
        credit_bytes: of payloads at once.
        order: of those who pull by one name the one with the largest waits on (`new_life`); 0: this call comes after
            all before it.

    Raises:
        InvalidRequest: a value is outside its limits.
    """
    name = arguments.topic_name(topic)
    most = arguments.count(count, "max", 1, limits.PULL_ROWS_MAX)
    wait_ms = times.duration_ms(wait, "wait", 0, int(WAIT_S_MAX * 1000))
    lease_ms = times.duration_ms(lease, "lease", limits.LEASE_MS_MIN, limits.LEASE_MS_MAX)
    holder = b"" if consumer is None else holder_of(name, consumer)
    texts, tokens = _taken_apart(held)
    if len(texts) > limits.CONSUMER_LEASES_MAX:
        # Leaders refuse more, and cut the link of a frame that is too long: everything else is on it, too.
        raise InvalidRequest(
            f"held lists {len(texts)} leases: a consumer has at most {limits.CONSUMER_LEASES_MAX}"
        )
    known = per_row.id_columns(texts)
    names = zip(known.uid.tolist(), known.sequence.tolist(), known.row.tolist(), tokens, strict=True)
    rows = list(names)
    if rows and consumer is None:
        raise InvalidRequest("held names leases of a consumer with a name: consumer is missing")

    asked: list[events.Pull] = []

    def build(number: int, deadline_us: int) -> events.Event:
        event = events.Pull(
            number, deadline_us, name, most, wait_ms * 1000, lease_ms, credit_bytes, holder, rows, order
        )
        asked.append(event)
        return event

    def undo(deliveries: list[Delivery]) -> events.Event:
        return events.GiveBack(asked[-1], deliveries)

    return Call(build, list, undo), wait_ms / 1000


def consumer_id_of(topic: str, name: str) -> bytes:
    """Return the id of a topic's consumer with a name.

    Raises:
        InvalidRequest: it is no name of 1 to 255 bytes.
    """
    return _hashed(topic, name, b"dueq.consumer")


def new_life(mesh_us: int) -> int:
    """Return a number for a process of a consumer with a name: higher than those of all that were opened before."""
    return mesh_us << _OPENED_BITS | next(_opened) & ((1 << _OPENED_BITS) - 1)


def holder_of(topic: str, consumer: str) -> bytes:
    """Return to whom messages of a topic are leased that a consumer of this name pulls.

    Raises:
        InvalidRequest: it is no name of 1 to 255 bytes.
    """
    return _hashed(topic, consumer, b"dueq.holder")


def _hashed(topic: str, name: str, of: bytes) -> bytes:
    try:
        encoded = name.encode() if isinstance(name, str) else b""
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            f"the consumer's name {name!r:.80} is not Unicode text: {error.reason}"
        ) from None
    if not 1 <= len(encoded) <= limits.TOPIC_NAME_MAX:
        raise InvalidRequest(
            f"a consumer's name is a str of 1 to {limits.TOPIC_NAME_MAX} bytes, not {name!r:.300}"
        )
    return hashlib.blake2b(topic.encode() + b"\0" + encoded, digest_size=16, person=of).digest()


def settle(
    topic: str,
    leases: Iterable[Lease],
    how: str,
    delay: Seconds | None,
    seconds: Seconds | None,
    reason: str,
    dead: bool,
    headers: Mapping[str, str] | None = None,
) -> Call[list[Outcome]]:
    """Settle leases by id and token; one outcome each.

    Raises:
        InvalidRequest: a value is outside its limits.
    """
    kind = _KINDS.get(how) if isinstance(how, str) else None
    if kind is None:
        raise InvalidRequest(f"leases are settled by {', '.join(_KINDS)}, not {how!r:.80}")
    arguments.flag(dead, "dead")
    endings.ack(reason)
    if (seconds is None) == (kind is RecordKind.EXTEND):
        raise InvalidRequest("extend, and nothing else, takes seconds")
    if (reason or dead or headers is not None) and kind is not RecordKind.NACK:
        raise InvalidRequest(f"{how} takes no reason and no headers, and leaves nothing dead")
    if delay is not None and kind in (RecordKind.ACK, RecordKind.EXTEND):
        raise InvalidRequest(f"{how} takes no delay")
    ending = Ending()
    if kind is RecordKind.NACK:
        ending = endings.nack(delay, reason, dead, headers)
    elif kind is RecordKind.RELEASE:
        ending = endings.release(0.0 if delay is None else delay)
    elif seconds is not None:
        ending = Ending(times.duration_ms(seconds, "seconds", 0, limits.LEASE_MS_MAX))
        if not ending.amount_ms:
            kind = RecordKind.NACK
        elif ending.amount_ms < limits.LEASE_MS_MIN:
            text = f"a lease has at least {limits.LEASE_MS_MIN} ms, or 0 to end it, not {ending.amount_ms}"
            raise InvalidRequest(text)
    return ended(topic, leases, kind, ending)


def ended(topic: str, leases: Iterable[Lease], kind: RecordKind, ending: Ending) -> Call[list[Outcome]]:
    """Settle leases in a way that is checked already."""
    name = arguments.topic_name(topic)
    texts, tokens = _taken_apart(leases)
    columns, token = per_row.id_columns(texts), np.array(tokens, np.uint64)
    with_amount = kind in (RecordKind.NACK, RecordKind.EXTEND) or ending.amount_ms
    amount_ms = ending.amount_ms if with_amount else None

    def build(number: int, deadline_us: int) -> events.Event:
        return events.Alter(
            number, deadline_us, kind, name, *columns, token=token, amount_ms=amount_ms, fate=ending.fate,
            reason=ending.reason, headers=ending.headers,
        )  # fmt: skip

    return Call(build, PartsCall.outcomes)


def _taken_apart(leases: Iterable[Lease]) -> tuple[list[str], list[int]]:
    texts: list[str] = []
    tokens: list[int] = []
    for lease in arguments.rows_of(leases, "leases"):
        try:
            text, token = lease
        except (TypeError, ValueError):
            raise InvalidRequest(f"a lease is a pair of id and token, not {lease!r:.200}") from None
        token = arguments.plain(token)
        if not isinstance(token, int) or isinstance(token, bool) or not 0 < token < 1 << 63:
            raise InvalidRequest(f"a token is a positive int, not {token!r:.200}")
        texts.append(text)
        tokens.append(token)
    return texts, tokens
