"""Everything that travels between clients and brokers and between brokers, as plain types.

`dueq_codecs.frames` turns each into one header frame (16 bytes of envelope + FlatBuffers) and back; payload
bytes travel beside it in ZeroMQ frames of their own (`bodies`). Instants are Unix ms UTC unless a name says
`_us`; `wall` and `mono` name the two clocks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from dueq_codecs.browsing import BrowseReply as BrowseReply
from dueq_codecs.browsing import BrowseRequest as BrowseRequest
from dueq_codecs.codes import Code as Code
from dueq_codecs.looking import LookReply as LookReply
from dueq_codecs.looking import LookRequest as LookRequest
from dueq_codecs.meta import Meta as Meta
from dueq_codecs.pushes import Push as Push
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
    LogEntry,
    OnDuplicate,
    RecordKind,
    rows_of,
)

PROTOCOL_VERSION = 1


# ---------------------------------------------------------------- sessions


class Role(IntEnum):
    """The sender of a Hello."""

    CLIENT = 0
    BROKER = 1


@dataclass(slots=True)
class Hello:
    """The first frame on a connection, and the client's keep-alive and clock measurement after it."""

    role: Role
    name: str
    """A broker's id, or the client id in hex."""
    cluster_id: str = ""
    """Empty: whatever cluster answers."""
    incarnation: int = 0
    attach: int = 0
    """Grows with every new connection of one (name, incarnation); the highest wins."""
    protocol_min: int = PROTOCOL_VERSION
    protocol_max: int = PROTOCOL_VERSION
    sent_wall_us: int = 0
    agent: str = ""
    principal: str = ""


@dataclass(slots=True)
class HelloReply:
    """The broker's answer; with the sender's instants the four timestamps of an offset measurement."""

    code: Code
    text: str = ""
    cluster_id: str = ""
    broker_id: str = ""
    incarnation: int = 0
    protocol: int = PROTOCOL_VERSION
    feature_level: int = 1
    echo_wall_us: int = 0
    received_wall_us: int = 0
    sent_wall_us: int = 0
    """Both 0: the broker has not compared its clock with others yet, so this measures nothing."""
    mesh_offset_us: int = 0
    """Add this to the broker's wall clock to get mesh time."""


# ---------------------------------------------------------------- topics and reading


@dataclass(slots=True)
class BrokerInfo:
    """One registered broker."""

    broker_id: str
    endpoint: str
    incarnation: int = 0


@dataclass(slots=True)
class PartitionInfo:
    """One partition as the answering broker knows it."""

    uid: int
    leader: str
    """Broker id, or empty when there is none or it is not known."""
    epoch: int
    serving: bool
    replicas: tuple[str, ...] = ()


@dataclass(slots=True)
class TopicInfo:
    """A topic's settings and where its partitions are."""

    name: str
    kind: str
    replicas: int
    min_isr: int
    payload_bytes_max: int
    horizon_ms: int
    """0: no cap."""
    partitions: tuple[PartitionInfo, ...] = ()
    settings: str = ""
    """Document of the settings (see `topic_settings`); empty: the broker does not know of any."""
    home_partitions: int = 0
    """How many partitions, the first, are home to jobs; 0: all."""


@dataclass(slots=True)
class MetadataRequest:
    """Ask for brokers and one topic (or all, when `topic` is empty; none, when only brokers are wanted)."""

    request_id: int
    topic: str = ""
    brokers_only: bool = False
    after: str = ""
    """Of all topics those whose names come after this one."""


@dataclass(slots=True)
class MetadataReply:
    request_id: int
    code: Code
    text: str = ""
    brokers: tuple[BrokerInfo, ...] = ()
    topics: tuple[TopicInfo, ...] = ()
    """In the order of their names."""
    more: bool = False
    """Others follow: to be asked for `after` the last of these."""


@dataclass(slots=True)
class CreateTopicRequest:
    request_id: int
    creation_id: bytes
    """16 bytes: a repeated create recognises its own topic by it."""
    topic: str
    kind: str = "timeline"
    partitions: int = 1
    replicas: int = 1
    min_isr: int = 0
    """0: replicas // 2 + 1."""
    payload_bytes_max: int = 0
    """0: the mesh's default."""
    horizon_ms: int = 0
    exist_ok: bool = False
    document: str = ""
    """JSON: other settings by their names, with which the topic begins; empty: there are none."""


@dataclass(slots=True)
class DeleteTopicRequest:
    request_id: int
    topic: str


@dataclass(slots=True)
class UpdateTopicRequest:
    """Change a topic's settings, if their version is still the one that is named.

    The answer is OK where the version has moved on, too. Its document says how the topic stands: JSON with the
    "version" of its settings, the "update" that made it, and the uids of its "partitions".
    """

    request_id: int
    update_id: bytes
    """16 bytes: a repeated update recognises its own work by it."""
    topic: str
    version: int
    """Of the settings that are to be changed."""
    document: str
    """JSON: new values by the settings' names."""
    partitions: int = 0
    """How many the topic is to have; 0: as many as it has."""


@dataclass(slots=True)
class InspectRequest:
    """A reading request; the answer is what the broker knows and may be stale. Any broker asks `broker` for it.

    `what` is one of "status", "describe", "forecast", "hours", "jobs", "job " and 32 hex digits, "statistics" (where
    `seconds` is the first hour wanted, counted since 1970). The reply's `document` is JSON
    (see docs/reference/protocol.md).
    """

    request_id: int
    what: str
    topic: str = ""
    seconds: int = 0
    broker: str = ""


@dataclass(slots=True)
class Reply:
    """The answer to everything that has no reply of its own."""

    request_id: int
    code: Code
    text: str = ""
    document: str = ""
    retry_after_ms: int = 0


# ---------------------------------------------------------------- changes


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
    """INSERT: each row may be due up to so much later, ms; the leader chooses."""
    expires: U64 = field(default_factory=lambda: NO_U64)
    attempts_max: U16 = field(default_factory=lambda: NO_U16)
    fate: U8 = field(default_factory=lambda: NO_U8)
    """NACK: a `Fate` per row; empty: DELAY."""
    reason: U16 = field(default_factory=lambda: NO_U16)
    reasons: tuple[str, ...] = ()
    expected: U64 = field(default_factory=lambda: NO_U64)
    """MOVE, CANCEL, CHANGE: the version that each message must have; 0: any."""
    shared: bytes = b""
    """BODY, INSERT: the SHA-256 of the shared body; empty: there is none."""
    shared_size: int = 0
    """Its bytes."""

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


# ---------------------------------------------------------------- consumers


class ConsumerAction(IntEnum):
    """Why a consumer writes."""

    ATTACH = 0
    BEAT = 1
    GOODBYE = 2
    PULL = 3


@dataclass(slots=True)
class ConsumerFrame:
    """A consumer's attach, beat or goodbye to one leader of one topic; or a pull, which is a consumer for one answer.

    Credit is a limit, restated every time with a growing `number`. ATTACH lists what the consumer holds or
    is acking (four columns of one length); leases of its own that are missing there are pushed again.

    PULL leases up to `credit` messages to `holder`, detached, and pushes them to `consumer_id`, the pull's name. It
    ends when all have left, after `wait_ms`, or by GOODBYE. Detached leases of `holder` that are not listed come first.
    """

    action: ConsumerAction
    topic: str
    consumer_id: bytes
    attach: int
    """Grows with every attach of this consumer to this leader; the highest wins."""
    number: int
    credit: int
    """Unfinished leases that this leader may have out to this consumer."""
    credit_bytes: int
    lease_ms: int
    push_seen: int = 0
    """The highest push number up to which every push of this attach has arrived."""
    leader: str = ""
    """The broker that this frame is for; another broker relays it. Empty: whoever receives it."""
    held_uid: U32 = field(default_factory=lambda: NO_U32)
    held_sequence: U64 = field(default_factory=lambda: NO_U64)
    held_row: U16 = field(default_factory=lambda: NO_U16)
    held_token: U64 = field(default_factory=lambda: NO_U64)
    holder: bytes = b""
    """PULL: to whom the messages are leased, 16 bytes."""
    wait_ms: int = 0
    """PULL: how long to wait for a message that is ready."""
    life: int = 0
    """Of a consumer with a name: a number that grows from process to process; 0: it has no name."""
    detached: bool = False
    """ATTACH: what is leased to it stays so through its silence. A GOODBYE then lists what is to stay."""


@dataclass(slots=True)
class ConsumerReply:
    """The leader's answer to each ConsumerFrame (and its own beat while messages wait for credit)."""

    topic: str
    consumer_id: bytes
    attach: int
    number: int
    """The highest credit number in force."""
    code: Code = Code.OK
    text: str = ""
    waiting: int = 0
    """Due messages here that wait for credit."""
    push_sent: int = 0
    """The number of the last push of this attach."""
    leader: str = ""
    """The broker that answers."""
    coming: int = 0
    """Leases here whose push has not left: they take credit, although the limit may have been lowered since."""
    incarnation: int = 0
    """The life of the broker that `mono_us` is of."""
    mono_us: int = 0
    """The leader's monotonic clock when the answer left, µs."""
    ended: bool = False
    """To a PULL: it is over, and has brought the pushes up to `push_sent`."""


@dataclass(slots=True)
class PushChunk:
    """One chunk of a long payload on its way to a consumer; one body."""

    topic: str
    consumer_id: bytes
    attach: int
    uid: int
    sequence: int
    row: int
    token: int
    chunk: int
    chunks: int
    leader: str = ""
    """The broker that pushes."""


# ---------------------------------------------------------------- between brokers


@dataclass(slots=True)
class Append:
    """Records of one partition, from its leader. Without entries it is a probe and carries the commit."""

    uid: int
    epoch: int
    previous_sequence: int
    previous_epoch: int
    commit: int
    entries: list[LogEntry] = field(default_factory=list)
    unreadable: str = ""
    """Not on the wire: why the entries that followed these could not be read; a newer build wrote them."""


@dataclass(slots=True)
class Ack:
    """Synced, and verified against this leader in this epoch, up to `sequence`."""

    uid: int
    epoch: int
    sequence: int


@dataclass(slots=True)
class Mismatch:
    """The follower lacks "previous" or holds it with another epoch; nothing was changed (KIP-279)."""

    uid: int
    epoch: int
    """The append's epoch."""
    end: int
    """The follower's last sequence."""
    known_epoch: int
    """The follower's largest epoch not above the asked one."""
    known_end: int
    """Its last sequence of that epoch."""
    installing: bool = False
    """The follower has no usable data until a snapshot is installed: send one."""


@dataclass(slots=True)
class VoteRequest:
    """Raft's pre-vote: may I take over? Answered with the other's log position."""

    uid: int
    round: int
    epoch: int
    """The epoch of the leadership that the candidate wants to replace."""
    last_epoch: int
    last_sequence: int


@dataclass(slots=True)
class Vote:
    uid: int
    round: int
    consent: bool
    last_epoch: int
    last_sequence: int


@dataclass(slots=True)
class Fence:
    """The sender's epoch of this partition is above yours: who leads it with less must not push any more."""

    uid: int
    epoch: int


@dataclass(slots=True)
class Leadership:
    """The sender leads (serving or not yet) or has given up this partition in this epoch.

    A follower that tells this epoch's leader so says that it would not lead: it is stopped.
    """

    uid: int
    epoch: int
    leads: bool
    serving: bool


@dataclass(slots=True)
class UploadAck:
    """Chunk synced by the follower."""

    uid: int
    upload: int
    chunk: int


@dataclass(slots=True)
class JobAsk:
    """Has this job been committed? From the leader of a partition that holds messages of it."""

    uid: int
    """The job's home partition, whose leader answers."""
    asker: int
    """The asking partition."""
    job_high: int
    job_low: int
    """The job: its 16 bytes as two big-endian numbers."""
    until: int
    """Its `job_until`."""


@dataclass(slots=True)
class JobTell:
    """The answer, of applied state: OPEN may change, everything else is final."""

    uid: int
    """The partition that asked."""
    job_high: int
    job_low: int
    state: int
    """A JobState."""


@dataclass(slots=True)
class PeerFrame:
    """All that one broker has to tell another in this turn; the heartbeat when there is nothing."""

    sender: str
    incarnation: int
    receiver: str
    receiver_incarnation: int
    sent_mono_us: int
    """The sender's monotonic clock."""
    sent_wall_us: int
    echo_mono_us: int = 0
    """`sent_mono_us` of the latest frame that the sender has had from the receiver."""
    echo_wall_us: int = 0
    echo_received_wall_us: int = 0
    ping: bool = False
    """Answer at once, even with an empty frame."""
    appends: list[Append] = field(default_factory=list)
    acks: list[Ack] = field(default_factory=list)
    mismatches: list[Mismatch] = field(default_factory=list)
    vote_requests: list[VoteRequest] = field(default_factory=list)
    votes: list[Vote] = field(default_factory=list)
    fences: list[Fence] = field(default_factory=list)
    leaderships: list[Leadership] = field(default_factory=list)
    upload_acks: list[UploadAck] = field(default_factory=list)
    job_asks: list[JobAsk] = field(default_factory=list)
    job_tells: list[JobTell] = field(default_factory=list)


@dataclass(slots=True)
class UploadChunk:
    """A chunk of a long payload from leader to follower; one body."""

    sender: str
    incarnation: int
    uid: int
    epoch: int
    upload: int
    chunk: int
    chunks: int
    crc: int


@dataclass(slots=True)
class UploadWanted:
    """A follower holds a record whose upload it lacks: send all its chunks."""

    sender: str
    incarnation: int
    uid: int
    upload: int


@dataclass(slots=True)
class SnapshotRequest:
    """The follower asks for the next part of a snapshot (snapshot 0: a new one)."""

    sender: str
    incarnation: int
    uid: int
    epoch: int
    snapshot: int
    part: int


@dataclass(slots=True)
class SnapshotChunk:
    """One part of a snapshot. `applied` is its sequence; body: packed rows (see dueq.storage.ordered.rows)."""

    sender: str
    incarnation: int
    uid: int
    epoch: int
    snapshot: int
    part: int
    applied: int
    applied_epoch: int
    last: bool
    code: Code = Code.OK


@dataclass(slots=True)
class Relay:
    """A client's frame on its way to the leader through another broker (or the answer on its way back).

    The inner message and its bodies follow as ZeroMQ frames of their own.
    """

    sender: str
    incarnation: int
    identity: bytes
    """The client's connection at the relaying broker."""
    back: bool
    """True on the way back to the client."""
    inner: ClientMessage | BrokerMessage
    bodies: list[bytes | memoryview] = field(default_factory=list)
    principal: str = ""
    """The principal of the session at the relaying broker; empty: not authenticated."""


ClientMessage = (
    Hello
    | MetadataRequest
    | CreateTopicRequest
    | DeleteTopicRequest
    | UpdateTopicRequest
    | InspectRequest
    | ChangeRequest
    | ChunkRequest
    | ConsumerFrame
    | BrowseRequest
    | LookRequest
)
BrokerMessage = (
    HelloReply
    | MetadataReply
    | Reply
    | ChangeReply
    | ChunkReply
    | ConsumerReply
    | Push
    | PushChunk
    | BrowseReply
    | LookReply
)
PeerMessage = PeerFrame | UploadChunk | UploadWanted | SnapshotRequest | SnapshotChunk | Relay
Message = ClientMessage | BrokerMessage | PeerMessage
