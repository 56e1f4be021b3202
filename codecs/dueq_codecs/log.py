"""Log records to and from bytes, as they lie in the log and travel behind a PeerFrame."""

from __future__ import annotations

from itertools import takewhile
from operator import attrgetter
from typing import Any, Final

import numpy as np

from dueq_codecs.envelope import seal, unseal
from dueq_codecs.fields import Column, Ids, Numbers, Octets, Scalar, Text, Texts
from dueq_codecs.flat import Layout
from dueq_codecs.frame_error import FrameError
from dueq_codecs.layouts import Kind
from dueq_codecs.messages import Code
from dueq_codecs.meta import Meta
from dueq_codecs.records import (
    FEATURE_LEVEL,
    WITH_BYTES,
    WITH_PAYLOADS,
    JobAction,
    OnDuplicate,
    Record,
    RecordKind,
    RequestRef,
)
from dueq_codecs.shape import FIRST_COLUMNS, LAST_VECTORS, fault_of_record

_KINDS: Final = {int(kind): kind for kind in RecordKind}
_columns = attrgetter(*FIRST_COLUMNS, "consumers", "lease_ms", "job", *LAST_VECTORS)
_request = attrgetter("client_id", "sequence", "digest", "rows")


def _vectors_of(record: Record) -> tuple[Any, ...]:
    """Take the values of all vectors out of a record."""
    if record.requests:
        return (*zip(*map(_request, record.requests), strict=True), *_columns(record))
    return ((), (), (), (), *_columns(record))


RECORD: Final = Layout(
    Record,
    Scalar("kind", "B"),
    Scalar("uid", "I"),
    Scalar("sequence", "Q"),
    Scalar("epoch", "Q"),
    Scalar("stamp", "Q"),
    Scalar("version", "H"),
    Ids("request_client_id"),
    Numbers("request_sequence", "Q"),
    Numbers("request_digest", "Q"),
    Numbers("request_rows", "I"),
    Column("first", "Q"),
    Column("target_sequence", "Q"),
    Column("target_row", "H"),
    Column("token", "Q"),
    Column("due", "Q"),
    Column("size", "I"),
    Column("crc", "I"),
    Column("upload", "Q"),
    Column("amount_ms", "Q"),
    Column("consumer", "H"),
    Ids("consumers"),
    Column("lease_ms", "Q"),
    Octets("job"),
    Scalar("job_until", "Q"),
    Scalar("job_action", "B", JobAction),
    Scalar("keyed", "B", Meta),
    Column("rank", "H"),
    Column("group", "H"),
    Texts("groups"),
    Text("name"),
    Text("document"),
    Column("recurrence", "Q"),
    Column("tick", "Q"),
    Column("following", "Q"),
    Column("key_high", "Q"),
    Column("key_low", "Q"),
    Scalar("on_duplicate", "B", OnDuplicate),
    Scalar("retry", "?"),
    Column("window", "I"),
    Column("expires", "Q"),
    Column("attempts_max", "H"),
    Column("fate", "B"),
    Column("reason", "H"),
    Texts("reasons"),
    Column("detached", "B"),
    Column("expected", "Q"),
    Octets("shared"),
    Scalar("shared_size", "I"),
    Column("once_high", "Q"),
    Column("once_low", "Q"),
    Column("once_digest", "Q"),
    Scalar("claim", "?"),
    vectors=_vectors_of,
)
_HEAD: Final = Layout(Record, *RECORD.fields[:6])
"""The fields that stay where they are in all versions."""
_BESIDE: Final = Layout(
    Record,
    *[
        field if isinstance(field, Scalar) or field.name in ("size", "upload") else Scalar(field.name, "I")
        for field in takewhile(lambda field: field.name != "once_high", RECORD.fields)
    ],
)
"""What says how much lies beside a record. Of all other vectors only the offsets are read: a third of the work."""


def encode_record(record: Record) -> bytes:
    """Return the bytes of a record, made once and then kept in `record.encoded`.

    Raises:
        ValueError: its columns are not those of its kind, or a value does not fit.
    """
    if record.encoded is None:
        fault = fault_of_record(record)
        if fault is not None:
            raise ValueError(fault)
        record.encoded = seal(Kind.RECORD, RECORD.write(record))
    return record.encoded


def decode_record(data: bytes | memoryview) -> Record:
    """Read a record; its columns are read-only views of `data` (of a copy, unless `data` is bytes).

    A record of a later version is read too, if it has the form of one that this build knows. The reader decides what
    to do about it.

    Raises:
        FrameError: the bytes are not a record; WRONG_VERSION when they are one that only a newer build can read.
    """
    encoded = bytes(data)
    number, body = unseal(encoded)
    if number != Kind.RECORD:
        raise FrameError(f"kind {number} is not a record")
    values: dict[str, Any] = {}
    try:
        return _record(body, values, encoded)
    except FrameError as error:
        version = values.get("version", 0)
        if error.code == Code.WRONG_VERSION or version <= FEATURE_LEVEL:
            raise
        # Its envelope is whole, so this is no damage: the form has changed with the version.
        raise FrameError(
            f"a record of feature level {version}, this build has {FEATURE_LEVEL}: {error.reason}",
            Code.WRONG_VERSION,
        ) from error


def place_of_record(data: bytes) -> tuple[int, int]:
    """Return the sequence and the epoch of a record, without its columns: a tenth of the work.

    One that only a newer build may know is read whole, and refused if it cannot be.

    Raises:
        FrameError: as from `decode_record`, as far as it shows.
    """
    number, body = unseal(data)
    if number != Kind.RECORD:
        raise FrameError(f"kind {number} is not a record")
    values: dict[str, Any] = {}
    _HEAD.read(body, values)
    if values["version"] > FEATURE_LEVEL or values["kind"] not in _KINDS:
        record = decode_record(data)
        return record.sequence, record.epoch
    return values["sequence"], values["epoch"]


def bytes_beside_record(data: bytes) -> int:
    """Return how many bytes of payloads a record of the log has brought, in uploads too.

    Raises:
        FrameError: as from `decode_record`, as far as it shows.
    """
    values: dict[str, Any] = {}
    _BESIDE.read(unseal(data)[1], values)
    if values["kind"] not in WITH_BYTES or not (rows := len(values["size"])):
        return 0
    shared = values["shared_size"] * rows if values["kind"] in WITH_PAYLOADS else 0
    return int(values["size"].sum(dtype=np.uint64)) - shared


def _record(body: memoryview, values: dict[str, Any], encoded: bytes) -> Record:
    """Make a record of its table, which is read into `values`; see `decode_record`."""
    RECORD.read(body, values)
    kind = _KINDS.get(values["kind"])
    if kind is None:
        raise FrameError(f"a record of kind {values['kind']}, which is not known", Code.WRONG_VERSION)
    values["kind"] = kind
    references = [values.pop(f"request_{name}") for name in ("client_id", "sequence", "digest", "rows")]
    if len(set(map(len, references))) != 1:
        raise FrameError("the columns of a record's requests are not of one length")
    requests = tuple(RequestRef(*row) for row in zip(*references, strict=True))
    record = Record(**values, requests=requests, encoded=encoded)
    fault = fault_of_record(record)
    if fault is not None:
        raise FrameError(fault)
    return record
