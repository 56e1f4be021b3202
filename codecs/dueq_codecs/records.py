"""Records: the entries of a partition's log, as plain columns.

A record is a batch of operations of one kind. It may gather several requests of clients: `requests` names
them in order, and each owns the next `rows` rows of the columns. Records that the leader makes by itself
(BARRIER, LEASE, EXPIRE, REVEAL, SETTINGS; some of CANCEL, RELEASE, JOB and BODY) have no requests.

Which columns a kind has (n rows; every other column is empty):

    INSERT    due, size, crc, upload*, rank*  (* empty, or one per row; 0: inline, the first rank)
              window*                         (ms that `due` is later than was asked for)
              group*, expires*, attempts_max*  + groups (their names)
              key_high*, key_low*             (both or neither: hashes of unique keys; 0, 0: the row has none)
              once_high*, once_low*, once_digest*   (all or none: idempotency keys; 0, 0: the row has none)
    LEASE     first, sequence, row, consumer  + consumers, lease_ms, detached* (one per consumer)
              token*                          (the lease that it renews; 0: the message waits)
    MOVE      first, sequence, row, due, token   (token: revoke this unpushed lease, 0 = none)
    CANCEL    first, sequence, row, token        (likewise)
    CHANGE    first, sequence, row, rank, token  (likewise)
    TRIGGER   first, sequence, row, token        (likewise; it is due now, and no pause or rate holds it)
    ACK       first, sequence, row, token, reason*   + reasons
    NACK      first, sequence, row, token, amount_ms   (delay from the stamp), fate*, reason*   + reasons
              + document*   (JSON: the headers of its messages from now on)
    EXTEND    first, sequence, row, token, amount_ms   (new lease length)
    RELEASE   first, sequence, row, token, amount_ms*  (given back unhandled: the attempt does not count)
    EXPIRE    first, sequence, row, token, amount_ms*, reason*   (the lease ran out: the attempt counts)   + reasons
    LAPSE     first, sequence, row, reason*      (it waits, and its `expires` is over)   + reasons
    DISCARD   first, sequence, row, [expected]   (dead messages go)
    REDRIVE   first, sequence, row, due, [expected]  (dead messages wait again; 0: from now on)
    REVEAL    first, sequence, row               (of `job`, committed: wait until due from now on)
    JOB       - (one row)                        (job_action is done to `job`)
    RECURRENCE -   (one row)  + name, document, tick, following; first, sequence, row, token of what it takes back
    FIRE      due, size, crc, recurrence, tick, following, rank*, group*
    BARRIER   -                                  (a new leader's first record; raises the level to its version)
    BODY      size*, crc*, amount_ms* (one row)   (the bytes that `shared` names; without size: they are here already)
    PASS      - (one row)                        (begins, ends or stops the pass `name`; level 2)
    GROUP     - (one row)                        (`document` is set for the group `name`; level 2)
    SETTINGS  - (one row)                        (the topic's settings are those of `document`; level 2)

A FIRE moves recurrences on, and its rows are new messages, but for those that are due at 0: their ticks are skipped.
A RECURRENCE can take back messages that were fired, and have not been pushed.

An INSERT may have a `shared` body: each of its payloads ends with the body, and the request and the log entry have only
the bytes before it. Its sizes and CRCs are those of whole payloads. A FIRE may have one, too; its skipped rows are as
long as the body. A RECURRENCE with one gives it to all messages to come. A BODY without `shared` is the leader's: it
lets the partition grow older, so that bodies that nobody names are forgotten.

An INSERT may name a `job`: its rows belong together with all others that name it, and can be withdrawn together.
With `job_until` they stay hidden until the job is committed, which it must be before that instant. `keyed`, also of
a FIRE, is the beginning of each payload (see `meta`). An INSERT with hashes of keys has the rule for a key that names
a message already (`on_duplicate`), and says whether its rows may be there already (`retry`).

A row with an idempotency key takes effect once in `ONCE_MS`: a later one with the same key and the same `once_digest`
is answered with the id of the first one's message (KEPT), one with another digest is refused (DIFFERS). An INSERT that
is a `claim` makes no messages: it only takes its keys, so that they hold where the messages do not lie.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

import numpy as np
import numpy.typing as npt

from dueq_codecs.meta import Meta

U16 = npt.NDArray[np.uint16]
U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]
U8 = npt.NDArray[np.uint8]

NO_U16: Final[U16] = np.empty(0, np.uint16)
NO_U32: Final[U32] = np.empty(0, np.uint32)
NO_U64: Final[U64] = np.empty(0, np.uint64)
NO_U8: Final[U8] = np.empty(0, np.uint8)

ATTEMPTS_MAX: Final = (1 << 16) - 1
"""Largest number of deliveries that a topic or a message may allow."""
REASON_BYTES_MAX: Final = 1024
"""Longest reason for which a message was given back, bytes of UTF-8."""
FILTERED: Final = "filtered"
"""Why a message was done that an endpoint does not want: it was not sent."""

FEATURE_LEVEL: Final = 2
"""The feature level of this build: the largest version of a record that it can read and apply."""
LEVEL_OF_KINDS: Final = 2
"""From this level on a partition knows ranks and versions of messages."""


class RecordKind(IntEnum):
    """The operation of a record's rows; also that of a ChangeRequest."""

    BARRIER = 1
    INSERT = 2
    LEASE = 3
    MOVE = 4
    CANCEL = 5
    ACK = 6
    NACK = 7
    EXTEND = 8
    RELEASE = 9
    EXPIRE = 10
    JOB = 11
    REVEAL = 12
    CHANGE = 13
    SETTINGS = 14
    GROUP = 15
    RECURRENCE = 16
    FIRE = 17
    PASS = 18
    LAPSE = 19
    DISCARD = 20
    REDRIVE = 21
    BODY = 22
    TRIGGER = 23


WITH_PAYLOADS: Final = frozenset((RecordKind.INSERT, RecordKind.FIRE))
"""Kinds whose rows are new messages."""
WITH_BYTES: Final = WITH_PAYLOADS | {RecordKind.BODY}
"""Kinds whose log entries may have bytes beside the record."""
SHARED_NAME_BYTES: Final = 32
"""The name of a shared body: its SHA-256."""


class Fate(IntEnum):
    """The wish of a NACK's row for its message."""

    DELAY = 0
    """To be tried again after `amount_ms`."""
    BACK_OFF = 1
    """The same, after the delay of the topic's back-off. Only in requests: the leader fills in the delay."""
    DEAD = 2
    """Never to be tried again."""


class JobAction(IntEnum):
    """The action of a JOB record."""

    NONE = 0
    COMMIT = 1
    """Its messages are ordinary ones from now on."""
    ABORT = 2
    """Its messages never were: it was not committed in time, or its owner gave it up."""
    CANCEL = 3
    """Withdraw what no consumer has, of a committed job too."""
    CLEARED = 4
    """The leader has worked off the last action: nothing is left to reveal or to withdraw."""


class JobState(IntEnum):
    """The state of a job, as one partition knows it."""

    UNKNOWN = 0
    OPEN = 1
    COMMITTED = 2
    ABORTED = 3
    CANCELLED = 4


class Outcome(IntEnum):
    """The outcome for one row of a change: the result of applying a committed record."""

    DONE = 0
    LEASED = 1
    NOT_FOUND = 2
    STALE = 3
    UNKNOWN = 4
    ENDED = 5
    """The job has ended in another way, or too late for this."""
    EXISTS = 6
    """A recurrence of this name exists already."""
    TAKEN = 7
    """The key names another message: the answer has its id and its due instant."""
    KEPT = 8
    """The key names a message, which stays: the answer has its id and its due instant."""
    HIDDEN = 9
    """The key names a message of a job that is not committed yet."""
    DEAD = 10
    """The message is dead: it can be redriven or discarded, and nothing else."""
    CHANGED = 11
    """The message has another version than the one that was expected."""
    DIFFERS = 12
    """The idempotency key came with another request before."""


class OnDuplicate(IntEnum):
    """The rule of an INSERT for a row whose key names a message already."""

    NONE = 0
    """Its rows have no unique keys."""
    REFUSE = 1
    """The row is refused."""
    KEEP = 2
    """The message stays, and the row is answered with its id."""
    REPLACE = 3
    """The message is cancelled if it waits, and the row takes its place."""


ONE_ROW: Final = frozenset(
    (
        RecordKind.JOB,
        RecordKind.SETTINGS,
        RecordKind.GROUP,
        RecordKind.PASS,
        RecordKind.RECURRENCE,
        RecordKind.BODY,
    )
)
"""Kinds of one row, whatever columns they have."""


def rows_of(kind: RecordKind, due: U64, target_sequence: U64) -> int:
    """Number of rows of a change or a record of this kind with these columns."""
    if kind in WITH_PAYLOADS:
        return len(due)
    return 1 if kind in ONE_ROW else len(target_sequence)


@dataclass(slots=True)
class RequestRef:
    """One client request inside a record: who, which number, a digest of its content, how many rows."""

    client_id: bytes
    """16 bytes, drawn once per client process."""
    sequence: int
    digest: int
    """64 bits over everything in the request that matters (see `dueq_codecs.digest`)."""
    rows: int


@dataclass(slots=True)
class Record:
    """One log entry of one partition. Columns are little-endian, C-contiguous and never written to."""

    kind: RecordKind
    uid: int
    sequence: int
    epoch: int
    stamp: int
    """Mesh time at append, as its leader measures it, Unix ms: the only time that apply knows."""
    version: int = 1
    """The feature level whose rules apply to it: that of its partition when it was appended."""
    requests: tuple[RequestRef, ...] = ()
    first: U64 = field(default_factory=lambda: NO_U64)
    target_sequence: U64 = field(default_factory=lambda: NO_U64)
    target_row: U16 = field(default_factory=lambda: NO_U16)
    token: U64 = field(default_factory=lambda: NO_U64)
    due: U64 = field(default_factory=lambda: NO_U64)
    size: U32 = field(default_factory=lambda: NO_U32)
    crc: U32 = field(default_factory=lambda: NO_U32)
    upload: U64 = field(default_factory=lambda: NO_U64)
    amount_ms: U64 = field(default_factory=lambda: NO_U64)
    consumer: U16 = field(default_factory=lambda: NO_U16)
    """LEASE: index into `consumers` per row."""
    consumers: tuple[bytes, ...] = ()
    """LEASE: consumer ids, 16 bytes each."""
    lease_ms: U64 = field(default_factory=lambda: NO_U64)
    """LEASE: length per entry of `consumers`."""
    job: bytes = b""
    """INSERT, JOB, REVEAL: 16 bytes; empty: none."""
    job_until: int = 0
    """INSERT, JOB: the instant (Unix ms) by which a hidden job must be committed; 0: it was never hidden."""
    job_action: JobAction = JobAction.NONE
    keyed: Meta = Meta.NONE
    """INSERT, FIRE: what every payload begins with."""
    rank: U16 = field(default_factory=lambda: NO_U16)
    group: U16 = field(default_factory=lambda: NO_U16)
    """INSERT, FIRE: index into `groups` per row."""
    groups: tuple[str, ...] = ()
    """INSERT, FIRE: names of groups; the empty one is that of messages without a group."""
    name: str = ""
    """PASS, and CANCEL, MOVE and CHANGE by the leader: the pass that it belongs to. RECURRENCE, and FIRE at a client's
    request: the recurrence. GROUP: the group."""
    document: str = ""
    """SETTINGS: JSON in canonical form. PASS and RECURRENCE: JSON, the action. GROUP: JSON, the settings."""
    recurrence: U64 = field(default_factory=lambda: NO_U64)
    """FIRE: the number of a recurrence per row."""
    tick: U64 = field(default_factory=lambda: NO_U64)
    """FIRE: the tick that it waits for, Unix ms; 0: none, the message was asked for. RECURRENCE: the instant from which
    its periods count."""
    following: U64 = field(default_factory=lambda: NO_U64)
    """FIRE, RECURRENCE: the tick that it waits for from now on, Unix ms; 0: for none."""
    key_high: U64 = field(default_factory=lambda: NO_U64)
    """INSERT: the first 8 bytes of the hash of each row's unique key, as a big-endian number (see `rules`) …"""
    key_low: U64 = field(default_factory=lambda: NO_U64)
    """… and the next 8."""
    on_duplicate: OnDuplicate = OnDuplicate.NONE
    """INSERT with hashes of keys: the rule for keys that name a message already."""
    retry: bool = False
    """INSERT with hashes of keys: a message of equal due instant, size and CRC is the row's own."""
    window: U32 = field(default_factory=lambda: NO_U32)
    """INSERT: how much later each row is due than was asked for, ms: the leader's choice. `due` has it already."""
    expires: U64 = field(default_factory=lambda: NO_U64)
    """INSERT: the instant (Unix ms) from which a message is not delivered any more; 0: never."""
    attempts_max: U16 = field(default_factory=lambda: NO_U16)
    """INSERT: how often a message is delivered at most; 0: as the topic says."""
    fate: U8 = field(default_factory=lambda: NO_U8)
    """NACK: a `Fate` per row."""
    reason: U16 = field(default_factory=lambda: NO_U16)
    """ACK, NACK, EXPIRE, LAPSE: index into `reasons` per row."""
    reasons: tuple[str, ...] = ()
    """Why messages were given back, each text once; the empty one says nothing."""
    detached: U8 = field(default_factory=lambda: NO_U8)
    """LEASE: 1 where the leases of this entry of `consumers` do not end with its session; empty: nowhere."""
    expected: U64 = field(default_factory=lambda: NO_U64)
    """MOVE, CANCEL, CHANGE: the version that each message must have; 0: any."""
    shared: bytes = b""
    """BODY, INSERT, RECURRENCE, FIRE: the SHA-256 of the shared body; empty: there is none."""
    shared_size: int = 0
    """Its bytes."""
    once_high: U64 = field(default_factory=lambda: NO_U64)
    """INSERT: the hash of each row's idempotency key, as those of unique keys are; 0, 0: it has none."""
    once_low: U64 = field(default_factory=lambda: NO_U64)
    once_digest: U64 = field(default_factory=lambda: NO_U64)
    """INSERT: 64 bits over what the caller asked for with that key."""
    claim: bool = False
    """INSERT with idempotency keys: its rows are no messages, they only take these keys."""
    encoded: bytes | None = None
    """The record's bytes, once some codec has made or read them: what the log holds and peers send on."""

    @property
    def rows(self) -> int:
        """Number of rows."""
        return rows_of(self.kind, self.due, self.target_sequence)


@dataclass(slots=True)
class LogEntry:
    """A record with the payload bytes that belong to it.

    `body` holds the inline payloads of an INSERT or FIRE, one after the other in row order (see `rules.inline_bytes`),
    or the bytes of a BODY; empty for every other kind.
    """

    record: Record
    body: bytes | memoryview = b""
