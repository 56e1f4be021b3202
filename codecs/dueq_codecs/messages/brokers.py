"""Messages between brokers."""

from __future__ import annotations

from dataclasses import dataclass, field

from dueq_codecs.codes import Code
from dueq_codecs.records import LogEntry


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
