"""Everything that can happen to the session machine: the way in.

Events with a `call` are answered by exactly one Completed or Failed effect with that number, at the latest
when `deadline_us` (monotonic µs) has passed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dueq.client.core.ports.delivery import Delivery
from dueq.client.core.ports.parts import PartsCall
from dueq.client.core.ports.shared_body import NamedBody
from dueq_codecs.messages import BrokerMessage
from dueq_codecs.meta import Meta
from dueq_codecs.records import (
    NO_U16,
    NO_U32,
    NO_U64,
    U16,
    U32,
    U64,
    Fate,
    JobAction,
    OnDuplicate,
    RecordKind,
)

# ---------------------------------------------------------------- the network


@dataclass(slots=True)
class LinkReady:
    """The socket of OpenLink is connected."""

    link: int


@dataclass(slots=True)
class LinkLost:
    """The socket's connection is gone or was never made; the machine opens another one in time."""

    link: int
    reason: str = ""


@dataclass(slots=True)
class FrameReceived:
    """A frame that decoded."""

    link: int
    message: BrokerMessage
    bodies: Sequence[bytes | memoryview] = ()


# ---------------------------------------------------------------- calls: topics and reading


@dataclass(slots=True)
class Connect:
    """Completed(None) as soon as some broker has answered; `measured`: one that knows the mesh's time."""

    call: int
    deadline_us: int
    measured: bool = False


@dataclass(slots=True)
class FetchTopics:
    """Completed(MetadataReply). An empty topic asks for all."""

    call: int
    deadline_us: int
    topic: str = ""


@dataclass(slots=True)
class CreateTopic:
    """Completed(None) once every partition is serving. `replicas` 0: three, or all brokers if fewer."""

    call: int
    deadline_us: int
    creation_id: bytes
    topic: str
    kind: str = "timeline"
    partitions: int = 1
    replicas: int = 0
    min_isr: int = 0
    payload_bytes_max: int = 0
    horizon_ms: int = 0
    exist_ok: bool = False
    document: str = ""


@dataclass(slots=True)
class UpdateTopic:
    """Store a change of a topic's settings: Completed(how the topic stands then, a dict; see UpdateTopicRequest).

    Attributes:
        update_id: 16 bytes, drawn once for the change.
        document: JSON, new values by the settings' names.
        partitions: how many the topic is to have; 0: as many as it has.
        if_version: of the settings that are to be changed: if they are of another one, nothing is; None: of any.
        named: the first uid of the topic that is meant, once it is known. A repetition of the call has the same list,
            and so means the same topic.
    """

    call: int
    deadline_us: int
    update_id: bytes
    topic: str
    document: str
    partitions: int = 0
    if_version: int | None = None
    named: list[int] = field(default_factory=list)


@dataclass(slots=True)
class AwaitSettings:
    """Wait until partitions apply a version of the topic's settings, or a later one: Completed(PartsCall)."""

    call: int
    deadline_us: int
    topic: str
    version: int
    uids: Sequence[int]


@dataclass(slots=True)
class ActOnPass:
    """Begin or stop a pass in every partition of a topic: Completed(PartsCall), one Outcome a partition.

    Attributes:
        name: of the pass.
        document: JSON, what is to be done.
    """

    call: int
    deadline_us: int
    topic: str
    name: str
    document: str


@dataclass(slots=True)
class DeleteTopic:
    """Completed(None).

    Attributes:
        named: the first uid of the topic that has the name, once a broker has said it. A repetition of the call has the
            same list, and so means the same topic.
    """

    call: int
    deadline_us: int
    topic: str
    named: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Inspect:
    """Ask every broker: Completed(inspecting.Inspection)."""

    call: int
    deadline_us: int
    what: str
    topic: str = ""
    seconds: int = 0


@dataclass(slots=True)
class Browse:
    """A page of the messages that wait in one partition: Completed(browsing.PageAnswer).

    Attributes:
        partition: its place in the topic.
        snapshot, leader: as the page before said; 0 and "" for the first.
        from_ms, until_ms: Unix ms; 0: no bound.
        after: (wait_at, key) of the last row of the page before.
        after_of: one more than its class; 0: not known.
        limit: rows at most; 0: the broker's choice.
        upload, chunk: not 0: a chunk of this long payload instead.
        dead: dead messages instead, in order of their deaths.
    """

    call: int
    deadline_us: int
    topic: str
    partition: int
    snapshot: int = 0
    leader: str = ""
    from_ms: int = 0
    until_ms: int = 0
    after: tuple[int, int] = (0, 0)
    limit: int = 0
    payloads: bool = False
    upload: int = 0
    chunk: int = 0
    dead: bool = False
    after_of: int = 0


@dataclass(slots=True)
class Look:
    """Look at messages of a partition as they are now: Completed(LookAnswer). Fields are those of a LookRequest.

    With a unique key, and a group where that is needed, the machine fills in `uid` and `document`. So it does with an
    idempotency key (`once`); then `key` and `group` are those of its message.
    """

    call: int
    deadline_us: int
    topic: str
    uid: int
    what: str
    first: int = 0
    sequence: int = 0
    row: int = 0
    current: bool = False
    payload: bool = False
    upload: int = 0
    chunk: int = 0
    document: str = ""
    key: str = ""
    group: str | None = None
    once: bytes = b""


@dataclass(slots=True)
class EndBrowse:
    """A snapshot is not wanted any more. No answer."""

    topic: str
    uid: int
    snapshot: int
    leader: str


# ---------------------------------------------------------------- calls: changes


@dataclass(slots=True)
class Insert:
    """Schedule rows: Completed(PartsCall), whose `ids()` has one text per row.

    `due`, `size`, `crc` and `payloads` have one length; `crc` is the CRC-32 of the whole payload.

    Attributes:
        client_id: under which the mesh remembers the requests; empty for the client's own.
        partition: place in the topic of the partition for the first run; None for the client's turn.
        keyed: what every payload begins with (`dueq_codecs.meta`).
        job, job_until: what the rows belong to, and the instant by which that must be committed; empty and 0: neither.
        rank: of each row; empty: all are 0.
        group: place of each row's group in `groups`; empty: there are none.
        window: each row may be due up to this much later, ms; empty: none may.
        expires, attempts_max: how each row ends, 0: as the topic says; empty: all do so.
        shared: each payload goes on with it; `payloads` have what comes before, `size` and `crc` are of the whole.
        on_duplicate: what is done about unique keys that name messages already; NONE: the usual.
        key_high, key_low: filled in by the machine.
        once_high, once_low, once_digest: hashes of idempotency keys, and digests of what is asked for; empty: there are
            none. Where nothing else says where rows go, these do.
        claim: the rows are no messages, they only take these keys.
    """

    call: int
    deadline_us: int
    topic: str
    payloads: Sequence[bytes | memoryview]
    due: U64
    size: U32
    crc: U32
    client_id: bytes = b""
    partition: int | None = None
    keyed: Meta = Meta.NONE
    job: bytes = b""
    job_until: int = 0
    rank: U16 = field(default_factory=lambda: NO_U16)
    group: U16 | U32 = field(default_factory=lambda: NO_U16)
    groups: tuple[str, ...] = ()
    window: U32 = field(default_factory=lambda: NO_U32)
    expires: U64 = field(default_factory=lambda: NO_U64)
    attempts_max: U16 = field(default_factory=lambda: NO_U16)
    shared: NamedBody | None = None
    on_duplicate: OnDuplicate = OnDuplicate.NONE
    key_high: U64 = field(default_factory=lambda: NO_U64)
    key_low: U64 = field(default_factory=lambda: NO_U64)
    once_high: U64 = field(default_factory=lambda: NO_U64)
    once_low: U64 = field(default_factory=lambda: NO_U64)
    once_digest: U64 = field(default_factory=lambda: NO_U64)
    claim: bool = False


@dataclass(slots=True)
class KeepBody:
    """Have every partition of a topic keep a shared body: Completed(PartsCall), one Outcome a partition.

    Attributes:
        body: with its bytes it is brought, without them it is there, or NOT_FOUND.
        grace_ms: for how long it is kept without messages, if it is there; None: an hour, and it may be brought.
    """

    call: int
    deadline_us: int
    topic: str
    body: NamedBody
    grace_ms: int | None


@dataclass(slots=True)
class ActOnJob:
    """Commit, abort or cancel a job: Completed(PartsCall), whose `outcomes()` has one Outcome a partition.

    Attributes:
        at_home: ask the partition that decides; else tell all others.
    """

    call: int
    deadline_us: int
    topic: str
    action: JobAction
    job: bytes
    job_until: int
    at_home: bool


@dataclass(slots=True)
class ActOnRecurrence:
    """Do to a recurrence what `document` says: Completed(PartsCall), whose `outcomes()` has one Outcome.

    In a fair topic it has one of each partition that may have the recurrence.

    Attributes:
        group: of its messages, where it is to be created; None: it is there, or is not.
        body: the shared body of its messages from now on.
    """

    call: int
    deadline_us: int
    topic: str
    name: str
    document: str
    group: str | None = None
    body: NamedBody | None = None


@dataclass(slots=True)
class SetGroup:
    """Set something for a group: Completed(PartsCall), whose `outcomes()` has one Outcome.

    Attributes:
        group: its name.
        document: JSON that says what is set.
    """

    call: int
    deadline_us: int
    topic: str
    group: str
    document: str


@dataclass(slots=True)
class Alter:
    """Move (with `due`), change (with `rank`) or cancel messages, or settle leases (`token`): Completed(PartsCall).

    Its `outcomes()` has one Outcome a row. The columns are of one length; `uid` routes each row.
    """

    call: int
    deadline_us: int
    kind: RecordKind
    topic: str
    first: U64
    uid: U32
    sequence: U64
    row: U16
    due: U64 | None = None
    rank: U16 | None = None
    token: U64 | None = None
    amount_ms: int | None = None
    """Of each NACK, EXTEND or RELEASE with a delay."""
    expected: U64 | None = None
    fate: Fate = Fate.DELAY
    reason: str = ""
    headers: str = ""
    """Of each NACK: see `Settle`."""


@dataclass(slots=True)
class Repeat:
    """Send the failed parts of an earlier call again: the same requests if their outcome is not known."""

    call: int
    deadline_us: int
    of: PartsCall


@dataclass(slots=True)
class Abandon:
    """Nobody waits for this call any more: unsent parts are not sent. Failed, if it was not answered yet."""

    call: int


# ---------------------------------------------------------------- calls: consumers


@dataclass(slots=True)
class OpenConsumer:
    """Attach to every leader of the topic, now and later: Completed(None) once the topic is known."""

    call: int
    deadline_us: int
    consumer_id: bytes
    topic: str
    credit: int
    credit_bytes: int
    lease_ms: int
    linger_us: int = 2_000
    """How long acks that nobody waits for are gathered, while most of the credit is free."""
    life: int = 0
    """Of a consumer with a name: a number that grows from process to process; 0: it has no name."""
    detached: bool = False
    """Its leases outlive its silence."""


@dataclass(slots=True)
class Settle:
    """Finish (ACK, NACK, RELEASE) or lengthen (EXTEND) leases; sent within 2 ms (an ACK without a `call`: within
    the consumer's `linger_us`), repeated until confirmed.

    With a `call` above 0: Completed(list of Outcome, one per delivery) once confirmed. `amount_ms` is the
    delay of a NACK or RELEASE, the new length of an EXTEND. `fate`, `reason` and `headers` (JSON, or empty) are a
    NACK's.
    """

    consumer_id: bytes
    kind: RecordKind
    deliveries: Sequence[Delivery]
    amount_ms: int = 0
    call: int = 0
    deadline_us: int = 0
    fate: Fate = Fate.DELAY
    reason: str = ""
    headers: str = ""


@dataclass(slots=True)
class Pull:
    """Take messages that are ready, once: Completed(list of Delivery), empty when none came in time.

    Attributes:
        count: of messages at most.
        wait_us: how long to wait for one.
        holder: to whom they are leased, 16 bytes; empty: to this call alone.
        held: (uid, sequence, row, token) of what the holder has of earlier pulls; all else that it had is brought back,
            what other clients have pulled under new tokens.
        order: of all that pull as one holder the one with the largest waits on; 0: this call comes after all before it.
    """

    call: int
    deadline_us: int
    topic: str
    count: int
    wait_us: int
    lease_ms: int
    credit_bytes: int
    holder: bytes = b""
    held: Sequence[tuple[int, int, int, int]] = ()
    order: int = 0


@dataclass(slots=True)
class GiveBack:
    """Nobody was there any more to take the answer of a pull: its messages go back, uncounted. No answer."""

    pull: Pull
    deliveries: Sequence[Delivery]


@dataclass(slots=True)
class CloseConsumer:
    """Release `unhandled`, confirm what is being settled, say goodbye: Completed(None), at the deadline too."""

    call: int
    deadline_us: int
    consumer_id: bytes
    unhandled: Sequence[Delivery]


@dataclass(slots=True)
class Close:
    """Close every link; every open call fails with ClientClosed."""


Event = (
    LinkReady
    | LinkLost
    | FrameReceived
    | Connect
    | FetchTopics
    | CreateTopic
    | UpdateTopic
    | AwaitSettings
    | ActOnPass
    | DeleteTopic
    | Inspect
    | Browse
    | EndBrowse
    | Look
    | Insert
    | KeepBody
    | ActOnJob
    | ActOnRecurrence
    | SetGroup
    | Alter
    | Repeat
    | Abandon
    | OpenConsumer
    | Pull
    | GiveBack
    | Settle
    | CloseConsumer
    | Close
)
