"""Requests that change messages, and long payloads that go ahead of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from dueq_codecs.codes import Code
from dueq_codecs.meta import Meta
from dueq_codecs.records import (
    NO_U8,
    NO_U16,
    NO_U32,
    NO_U64,
    U8,
    U16,
    U32,
    U64,
    JobAction,
    OnDuplicate,
    RecordKind,
    rows_of,
)


@dataclass(slots=True)
class ChangeRequest:
    """One changing request of a client: a batch of operations of one kind in one partition.

    Kinds and columns are those of `records.Record` (INSERT, MOVE, CANCEL, CHANGE, ACK, NACK, EXTEND, RELEASE, JOB,
    SETTINGS, RECURRENCE); for MOVE, CANCEL and CHANGE the client leaves `token` empty. An INSERT brings one body: the
    inline payloads, one after the other. JOB has no columns: `job_action` (COMMIT, ABORT or CANCEL) is done to `job`.
    RECURRENCE has none either: `document` (JSON) says what is done to the recurrence `name`.
    BODY brings the bytes that `shared` names, as its body, or says for how long they are to be kept (`amount_ms`).
    SETTINGS changes nothing: it is answered once the partition has applied the version in `document` (JSON), or a later
    one. `patient`: no caller waits for this ACK, so the leader may let it wait a moment for a record that is made
    anyway.
    """

    request_id: int
    kind: RecordKind
    topic: str
    uid: int
    client_id: bytes
    sequence: int
    digest: int
    first: U64 = field(default_factory=lambda: NO_U64)
    target_sequence: U64 = field(default_factory=lambda: NO_U64)
    target_row: U16 = field(default_factory=lambda: NO_U16)
    token: U64 = field(default_factory=lambda: NO_U64)
    due: U64 = field(default_factory=lambda: NO_U64)
    size: U32 = field(default_factory=lambda: NO_U32)
    crc: U32 = field(default_factory=lambda: NO_U32)
    upload: U64 = field(default_factory=lambda: NO_U64)
    amount_ms: U64 = field(default_factory=lambda: NO_U64)
    job: bytes = b""
    job_until: int = 0
    job_action: JobAction = JobAction.NONE
    keyed: Meta = Meta.NONE
    patient: bool = False
    rank: U16 = field(default_factory=lambda: NO_U16)
    group: U16 = field(default_factory=lambda: NO_U16)
    groups: tuple[str, ...] = ()
    name: str = ""
    document: str = ""
    home_partitions: int = 0
    """JOB: how many partitions the client takes for homes of jobs; 0: it takes all for them."""
    key_high: U64 = field(default_factory=lambda: NO_U64)
    key_low: U64 = field(default_factory=lambda: NO_U64)
    on_duplicate: OnDuplicate = OnDuplicate.NONE
    retry: bool = False
    window: U32 = field(default_factory=lambda: NO_U32)
    """INSERT: each row may be due up to this much later, ms; the leader chooses."""
    expires: U64 = field(default_factory=lambda: NO_U64)
    attempts_max: U16 = field(default_factory=lambda: NO_U16)
    fate: U8 = field(default_factory=lambda: NO_U8)
    """NACK: a `Fate` per row; empty: DELAY."""
    reason: U16 = field(default_factory=lambda: NO_U16)
    reasons: tuple[str, ...] = ()
    expected: U64 = field(default_factory=lambda: NO_U64)
    """MOVE, CANCEL, CHANGE: the version that each message must have; 0: any."""
    shared: bytes = b""
    """BODY, INSERT, RECURRENCE: the SHA-256 of the shared body; empty: there is none."""
    shared_size: int = 0
    """Its bytes."""
    once_high: U64 = field(default_factory=lambda: NO_U64)
    once_low: U64 = field(default_factory=lambda: NO_U64)
    once_digest: U64 = field(default_factory=lambda: NO_U64)
    claim: bool = False

    @property
    def rows(self) -> int:
        """Number of rows."""
        return rows_of(self.kind, self.due, self.target_sequence)


@dataclass(slots=True)
class ChangeReply:
    """The result of applying the committed record that carried the request.

    INSERT: row i of the request has id (max(due[i], stamp, job_until), uid, sequence, row + i). `outcomes` is empty if
    all rows took effect. Otherwise it has one Outcome per row, and the columns `present_…` have the id and the due
    instant of the message that each row met that did not take effect, in the order of the rows (all 0: HIDDEN).
    Every other kind: `outcomes` has one Outcome per row.
    """

    request_id: int
    code: Code
    text: str = ""
    uid: int = 0
    epoch: int = 0
    sequence: int = 0
    row: int = 0
    """The first row of this request inside its record."""
    stamp: int = 0
    outcomes: U8 = field(default_factory=lambda: NO_U8)
    retry_after_ms: int = 0
    leader: str = ""
    """With NOT_LEADER: the broker to ask, when known."""
    present_first: U64 = field(default_factory=lambda: NO_U64)
    present_sequence: U64 = field(default_factory=lambda: NO_U64)
    present_row: U16 = field(default_factory=lambda: NO_U16)
    present_due: U64 = field(default_factory=lambda: NO_U64)
    window: U32 = field(default_factory=lambda: NO_U32)
    """INSERT with windows: how much later each row is due than was asked for, ms; add it to `due`."""


@dataclass(slots=True)
class ChunkRequest:
    """One chunk of a long payload, sent ahead of the INSERT that names it; one body.

    The first chunk has upload 0; its reply names the upload number for the rest.
    """

    request_id: int
    topic: str
    uid: int
    client_id: bytes
    upload: int
    chunk: int
    chunks: int
    size: int
    """Bytes of the whole payload."""
    crc: int
    """CRC-32 of this chunk."""


@dataclass(slots=True)
class ChunkReply:
    """The chunk is synced on every ISR member."""

    request_id: int
    code: Code
    text: str = ""
    upload: int = 0
    chunk: int = 0
    retry_after_ms: int = 0
    leader: str = ""
