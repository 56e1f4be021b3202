"""Which columns a change or a record must have: the table at the top of `records.py` as a check."""

from __future__ import annotations

from enum import IntEnum
from itertools import product
from operator import attrgetter
from typing import Final

from dueq_codecs.fields import ID_BYTES
from dueq_codecs.messages import ChangeRequest
from dueq_codecs.records import (
    ONE_ROW,
    SHARED_NAME_BYTES,
    U16,
    WITH_PAYLOADS,
    JobAction,
    Record,
    RecordKind,
)


class _Rule(IntEnum):
    EMPTY = 0
    ROWS = 1
    """One item per row."""
    EITHER = 2
    """Empty, or one item per row."""
    FREE = 3
    """As many items as the other columns of this rule."""


REQUEST_COLUMNS: Final = (
    "first",
    "target_sequence",
    "target_row",
    "token",
    "due",
    "size",
    "crc",
    "upload",
    "amount_ms",
    "rank",
    "group",
    "key_high",
    "key_low",
    "window",
    "expires",
    "attempts_max",
    "fate",
    "reason",
    "expected",
    "once_high",
    "once_low",
    "once_digest",
)
FIRST_COLUMNS: Final = (*REQUEST_COLUMNS[: REQUEST_COLUMNS.index("rank")], "consumer")
"""Of a record, those that come first on the wire."""
_LAST_COLUMNS: Final = (
    "recurrence", "tick", "following", "key_high", "key_low", "window", "expires", "attempts_max", "fate", "reason",
)  # fmt: skip
_ONCE_COLUMNS: Final = ("once_high", "once_low", "once_digest")
RECORD_COLUMNS: Final = (*FIRST_COLUMNS, "rank", "group", *_LAST_COLUMNS, "expected", *_ONCE_COLUMNS)
LAST_VECTORS: Final = (
    "rank", "group", "groups", "name", "document", *_LAST_COLUMNS, "reasons", "detached", "expected", "shared",
    *_ONCE_COLUMNS,
)  # fmt: skip
"""Of a record, those that come last on the wire."""

_TARGETS: Final = ("first", "target_sequence", "target_row", "token")
_ROWS: Final[dict[RecordKind, tuple[str, ...]]] = {
    RecordKind.BARRIER: (),
    RecordKind.INSERT: ("due", "size", "crc"),
    RecordKind.LEASE: ("first", "target_sequence", "target_row", "consumer"),
    RecordKind.MOVE: (*_TARGETS, "due"),
    RecordKind.CANCEL: _TARGETS,
    RecordKind.CHANGE: (*_TARGETS, "rank"),
    RecordKind.TRIGGER: _TARGETS,
    RecordKind.ACK: _TARGETS,
    RecordKind.NACK: (*_TARGETS, "amount_ms"),
    RecordKind.EXTEND: (*_TARGETS, "amount_ms"),
    RecordKind.RELEASE: _TARGETS,
    RecordKind.EXPIRE: _TARGETS,
    RecordKind.JOB: (),
    RecordKind.RECURRENCE: ("tick", "following"),
    RecordKind.FIRE: ("due", "size", "crc", "recurrence", "tick", "following"),
    RecordKind.REVEAL: ("first", "target_sequence", "target_row"),
    RecordKind.SETTINGS: (),
    RecordKind.GROUP: (),
    RecordKind.PASS: (),
    RecordKind.BODY: (),
    RecordKind.LAPSE: _TARGETS[:-1],
    RecordKind.DISCARD: _TARGETS[:-1],
    RecordKind.REDRIVE: (*_TARGETS[:-1], "due"),
}
REVOKING: Final = (RecordKind.MOVE, RecordKind.CANCEL, RecordKind.CHANGE, RecordKind.TRIGGER)
"""Kinds that take a granted lease back that is not pushed; the leader fills in its token."""
_BY_BROKERS_ONLY: Final = (
    RecordKind.BARRIER,
    RecordKind.LEASE,
    RecordKind.EXPIRE,
    RecordKind.REVEAL,
    RecordKind.FIRE,
    RecordKind.LAPSE,
)
_JOB_ACTIONS: Final = (JobAction.COMMIT, JobAction.ABORT, JobAction.CANCEL)
_WITH_JOB: Final = (RecordKind.JOB, RecordKind.REVEAL)
_WITH_SHARED: Final = (RecordKind.BODY, RecordKind.INSERT, RecordKind.RECURRENCE, RecordKind.FIRE)
_WITH_NAME: Final = (RecordKind.PASS, RecordKind.RECURRENCE, RecordKind.GROUP)
_EITHER: Final[dict[RecordKind, tuple[str, ...]]] = {
    RecordKind.INSERT: (
        "upload",
        "rank",
        "group",
        "key_high",
        "key_low",
        "window",
        "expires",
        "attempts_max",
        *_ONCE_COLUMNS,
    ),
    RecordKind.FIRE: ("rank", "group"),
    RecordKind.MOVE: ("expected",),
    RecordKind.CANCEL: ("expected",),
    RecordKind.CHANGE: ("expected",),
    RecordKind.TRIGGER: ("expected",),
    RecordKind.DISCARD: ("expected",),
    RecordKind.REDRIVE: ("expected",),
    RecordKind.ACK: ("reason",),
    RecordKind.NACK: ("fate", "reason"),
    RecordKind.RELEASE: ("amount_ms",),
    RecordKind.EXPIRE: ("amount_ms", "reason"),
    RecordKind.LAPSE: ("reason",),
    RecordKind.BODY: ("size", "crc", "amount_ms"),
}
"""Columns that are empty, or have one item per row."""
_BY_PASSES: Final = (*REVOKING[:-1], RecordKind.DISCARD, RecordKind.REDRIVE)
"""Kinds of what the leader does for a pass, whose name such a record has."""
_WITH_DOCUMENT: Final = (RecordKind.SETTINGS, RecordKind.PASS, RecordKind.RECURRENCE, RecordKind.GROUP)


def _rule(kind: RecordKind, column: str, in_request: bool) -> _Rule:
    if column in _EITHER.get(kind, ()):
        return _Rule.EITHER
    if in_request and column == "token" and kind in REVOKING:
        return _Rule.EITHER
    if kind == RecordKind.LEASE and column == "token":
        return _Rule.EITHER
    if kind == RecordKind.RECURRENCE and column in _TARGETS and not in_request:
        return _Rule.FREE
    return _Rule.ROWS if column in _ROWS[kind] else _Rule.EMPTY


_RECORD_RULES: Final = {kind: tuple(_rule(kind, c, False) for c in RECORD_COLUMNS) for kind in RecordKind}
_REQUEST_RULES: Final[dict[RecordKind, tuple[_Rule, ...]]] = {
    kind: tuple(_rule(kind, c, True) for c in REQUEST_COLUMNS)
    for kind in RecordKind
    if kind not in _BY_BROKERS_ONLY
}
_request_columns = attrgetter(*REQUEST_COLUMNS)
_record_columns = attrgetter(*RECORD_COLUMNS)


def _lengths_right(
    rules: dict[RecordKind, tuple[_Rule, ...]],
) -> dict[tuple[RecordKind, tuple[int, ...]], int]:
    """Return the right lengths of columns of up to four rows, with that number of rows: one look instead of many."""
    right: dict[tuple[RecordKind, tuple[int, ...]], int] = {}
    for kind, columns in rules.items():
        if kind == RecordKind.BARRIER:
            continue
        for rows in (1,) if kind in ONE_ROW else range(1, _FEW + 1):
            choices = {_Rule.EMPTY: (0,), _Rule.ROWS: (rows,), _Rule.EITHER: (0, rows), _Rule.FREE: (0,)}
            usual = [choices[rule] for rule in columns]
            usual[-len(_ONCE_COLUMNS) :] = [(0,)] * len(_ONCE_COLUMNS)  # others are looked at one by one
            for lengths in product(*usual):
                right[kind, lengths] = rows
    return right


_FEW: Final = 4
_RIGHT_RECORDS: Final = _lengths_right(_RECORD_RULES)
_RIGHT_REQUESTS: Final = _lengths_right(_REQUEST_RULES)


def _columns_right(
    right: dict[tuple[RecordKind, tuple[int, ...]], int],
) -> frozenset[tuple[RecordKind, tuple[bool, ...]]]:
    """Return which columns may be there together where there are several rows."""
    return frozenset(
        (kind, tuple(map(bool, lengths))) for (kind, lengths), rows in right.items() if rows == _FEW
    )


_COLUMNS_OF_RECORDS: Final = _columns_right(_RIGHT_RECORDS)
_COLUMNS_OF_REQUESTS: Final = _columns_right(_RIGHT_REQUESTS)


def _fault_of_many(
    change: ChangeRequest | Record,
    lengths: tuple[int, ...],
    right: frozenset[tuple[RecordKind, tuple[bool, ...]]],
    names: tuple[str, ...],
    rules: tuple[_Rule, ...],
) -> str | None:
    """Say what is wrong with the lengths of columns: those that are right are seldom looked at one by one."""
    kind, rows = change.kind, change.rows
    if rows > _FEW and set(lengths) <= {0, rows} and (kind, tuple(map(bool, lengths))) in right:
        return None
    return _fault(kind, names, rules, lengths, rows)


def fault_of_request(request: ChangeRequest) -> str | None:
    """Say what is wrong with a request's columns, or None."""
    rules = _REQUEST_RULES.get(request.kind)
    if rules is None:
        return f"{request.kind.name} is not for clients"
    lengths = tuple(map(len, _request_columns(request)))
    fault = None
    if (request.kind, lengths) not in _RIGHT_REQUESTS:
        fault = _fault_of_many(request, lengths, _COLUMNS_OF_REQUESTS, REQUEST_COLUMNS, rules)
    if fault is None:
        fault = _fault_of_names(request) or _fault_of_job(request) or _fault_of_texts(request)
    if fault is None:
        fault = _fault_of_keys(request) or _fault_of_once(request) or _fault_of_shared(request)
    if fault is None and request.kind == RecordKind.BODY and not request.shared:
        fault = "a BODY names no body"
    if fault is None and request.kind == RecordKind.JOB and request.job_action not in _JOB_ACTIONS:
        fault = f"{request.job_action.name} is not an action of clients"
    if fault is None and request.patient and request.kind != RecordKind.ACK:
        fault = f"a {request.kind.name} is patient"
    return fault


def fault_of_record(record: Record) -> str | None:
    """Say what is wrong with a record's columns, requests or consumers, or None."""
    lengths = tuple(map(len, _record_columns(record)))
    rows, fault = _RIGHT_RECORDS.get((record.kind, lengths), -1), None
    if rows < 0:
        rows, rules = record.rows, _RECORD_RULES[record.kind]
        fault = _fault_of_many(record, lengths, _COLUMNS_OF_RECORDS, RECORD_COLUMNS, rules)
    if fault is None:
        fault = _fault_of_names(record) or _fault_of_job(record) or _fault_of_texts(record)
    if fault is None:
        fault = _fault_of_keys(record) or _fault_of_once(record) or _fault_of_shared(record)
    if fault is not None:
        return fault
    if record.requests and sum([request.rows for request in record.requests]) != rows:
        return f"the requests of a {record.kind.name} record do not add up to its {rows} rows"
    consumers = len(record.consumers)
    if len(record.lease_ms) != consumers or (consumers and record.kind != RecordKind.LEASE):
        return (
            f"a {record.kind.name} record has {consumers} consumers and {len(record.lease_ms)} lease lengths"
        )
    if len(record.detached) not in (0, consumers):
        return f"a {record.kind.name} record has {consumers} consumers, {len(record.detached)} marks of detached ones"
    if len(record.consumer):
        named = record.consumer
        largest = max(named.tolist()) if len(named) <= _FEW else int(named.max())
        if largest >= consumers:
            return f"a row names consumer {largest} of {consumers}"
    return None


def _fault_of_names(change: ChangeRequest | Record) -> str | None:
    """Say what is wrong with the names of groups, and with reasons."""
    return _fault_of_places("group", change.groups, change.group) or _fault_of_places(
        "reason", change.reasons, change.reason
    )


def _fault_of_places(what: str, texts: tuple[str, ...], places: U16) -> str | None:
    """Say what is wrong with a column of places in texts, of which there are no more than rows."""
    names, rows = len(texts), len(places)
    if not names and not rows:
        return None
    if names > rows:
        return f"{names} {what}s are named for {rows} rows"
    largest = int(places.max())
    return f"a row names {what} {largest} of {names}" if largest >= names else None


def _fault_of_job(change: ChangeRequest | Record) -> str | None:
    """Say what is wrong with the fields of a job and of keys."""
    kind, job = change.kind, change.job
    if job:
        if len(job) != ID_BYTES:
            return f"a job has {ID_BYTES} bytes, not {len(job)}"
        if kind != RecordKind.INSERT and kind not in _WITH_JOB:
            return f"a {kind.name} names a job"
    elif kind in _WITH_JOB or change.job_until:
        return f"a {kind.name} names no job"
    if bool(change.job_action) != (kind == RecordKind.JOB):
        return f"a {kind.name} has the job action {change.job_action.name}"
    if change.keyed and kind not in WITH_PAYLOADS:
        return f"a {kind.name} has keys or headers"
    return None


def _fault_of_keys(change: ChangeRequest | Record) -> str | None:
    """Say what is wrong with the hashes of unique keys."""
    high, low = len(change.key_high), len(change.key_low)
    if not high and not low and not change.on_duplicate and not change.retry:
        return None
    if high != low:
        return f"{high} first halves of keys' hashes have {low} second halves"
    if not high or not change.on_duplicate:
        return f"an INSERT of {high} hashes of keys says {change.on_duplicate.name} of duplicates"
    if not change.keyed:
        return f"an INSERT has {high} hashes of keys, and no keys"
    return None


def _fault_of_once(change: ChangeRequest | Record) -> str | None:
    """Say what is wrong with the hashes of idempotency keys, and with a claim."""
    high, low, digests = len(change.once_high), len(change.once_low), len(change.once_digest)
    if not high == low == digests:
        return f"{high} and {low} halves of hashes of idempotency keys have {digests} digests"
    if not change.claim:
        return None
    if not high or change.size.any() or change.keyed or change.shared or change.job:
        return f"a {change.kind.name} claims {high} idempotency keys, and says more than that"
    return None


def _fault_of_shared(change: ChangeRequest | Record) -> str | None:
    """Say what is wrong with the shared body that a change brings or names."""
    brings = change.kind == RecordKind.BODY and len(change.size)
    if change.kind == RecordKind.BODY and len(change.size) != len(change.crc):
        return f"a BODY has {len(change.size)} sizes and {len(change.crc)} CRCs"
    if not change.shared:
        return (
            f"a {change.kind.name} has {change.shared_size} bytes of no body"
            if change.shared_size or brings
            else None
        )
    if change.kind not in _WITH_SHARED:
        return f"a {change.kind.name} names a shared body"
    if len(change.shared) != SHARED_NAME_BYTES:
        return f"a shared body has a name of {SHARED_NAME_BYTES} bytes, not {len(change.shared)}"
    if not change.shared_size:
        return "a shared body has no bytes"
    if len(change.upload) and change.upload.any():
        return "a payload that goes on with a shared body is an upload"
    if brings or change.kind in WITH_PAYLOADS:
        least = int(change.size.min()) if len(change.size) else change.shared_size
        if least < change.shared_size or (brings and least != change.shared_size):
            return f"a payload of {least} bytes goes on with a shared body of {change.shared_size}"
    return None


def _fault_of_texts(change: ChangeRequest | Record) -> str | None:
    """Say what is wrong with the name and the document."""
    if not change.name and not change.document and change.kind not in _WITH_DOCUMENT:
        return None
    may_have_one = change.kind in (*_BY_PASSES, RecordKind.FIRE) and isinstance(change, Record)
    if bool(change.name) != (change.kind in _WITH_NAME) and not may_have_one:
        return f"a {change.kind.name} has the name {change.name!r:.80}"
    if bool(change.document) != (change.kind in _WITH_DOCUMENT) and change.kind != RecordKind.NACK:
        return f"a {change.kind.name} has a document of {len(change.document)} characters"
    return None


def fault_of_payloads(owner: ChangeRequest | Record, body: bytes | memoryview) -> str | None:
    """Say whether the inline payloads of new messages are not as long as its sizes say; None when they are."""
    size = owner.size if len(owner.upload) == 0 else owner.size[owner.upload == 0]
    expected = int(size.sum()) if len(size) != 1 else int(size[0])
    if owner.shared and owner.kind in WITH_PAYLOADS:
        expected -= owner.shared_size * len(size)
    if expected != len(body):
        return f"the payloads of new messages have {len(body)} bytes, its sizes say {expected}"
    return None


def _fault(
    kind: RecordKind, names: tuple[str, ...], rules: tuple[_Rule, ...], lengths: tuple[int, ...], rows: int
) -> str | None:
    free = {length for rule, length in zip(rules, lengths, strict=True) if rule is _Rule.FREE}
    if len(free) > 1:
        return f"the columns of a {kind.name} name {min(free)} to {max(free)} messages"
    for name, rule, length in zip(names, rules, lengths, strict=True):
        if rule is _Rule.FREE:
            continue
        if length != rows if rule is _Rule.ROWS else length and (rule is _Rule.EMPTY or length != rows):
            return f"column {name} of a {kind.name} of {rows} rows has {length} items"
    return None
