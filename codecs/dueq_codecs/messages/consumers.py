"""The conversation between a consumer and the leaders of its topic."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from dueq_codecs.codes import Code
from dueq_codecs.records import NO_U16, NO_U32, NO_U64, U16, U32, U64


class ConsumerAction(IntEnum):
    """Why a consumer writes."""

    ATTACH = 0
    BEAT = 1
    GOODBYE = 2
    PULL = 3
    WAITING = 4


@dataclass(slots=True)
class ConsumerFrame:
    """A consumer's attach, beat or goodbye to one leader of one topic; or a pull, which is a consumer for one answer.

    Credit is a limit, restated every time with a growing `number`. ATTACH lists what the consumer holds or
    is acking (four columns of one length); leases of its own that are missing there are pushed again.

    PULL leases up to `credit` messages to `holder`, detached, and pushes them to `consumer_id`, the pull's name. It
    ends when all have left, after `wait_ms`, or by GOODBYE. Detached leases of `holder` that are not listed come first.

    WAITING lists pulls that go on waiting, so that none of them need be repeated (three columns of one length).
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
    """The broker that this frame is for; another broker relays it. Empty: the one that receives it."""
    held_uid: U32 = field(default_factory=lambda: NO_U32)
    held_sequence: U64 = field(default_factory=lambda: NO_U64)
    held_row: U16 = field(default_factory=lambda: NO_U16)
    held_token: U64 = field(default_factory=lambda: NO_U64)
    holder: bytes = b""
    """PULL: to whom the messages are leased, 16 bytes."""
    wait_ms: int = 0
    """PULL: how long to wait for a message that is ready."""
    life: int = 0
    """Of a consumer with a name: a number that grows from process to process; 0: it has no name. PULL: of those who
    pull as one holder the one with the largest waits on; 0: it comes after all before it."""
    detached: bool = False
    """ATTACH: its leases last through its silence. A GOODBYE then lists those that are to stay."""
    aside: int = 0
    """ATTACH, GOODBYE: how many of the listed leases, the last ones, it takes another broker to lead."""
    pulls: bytes = b""
    """WAITING: the names of the pulls, 16 bytes each."""
    pull_attach: U64 = field(default_factory=lambda: NO_U64)
    """WAITING: the attach of each."""
    pull_wait_ms: U32 = field(default_factory=lambda: NO_U32)
    """WAITING: how long each of them waits from now on."""


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
    """Leases here whose push has not left, or leaves again: they take credit, though the limit may be lower by now."""
    incarnation: int = 0
    """The life of the broker that `mono_us` is of."""
    mono_us: int = 0
    """The leader's monotonic clock when the answer left, µs."""
    ended: bool = False
    """To a PULL: it is over, and has brought the pushes up to `push_sent`."""
    over: U32 = field(default_factory=lambda: NO_U32)
    """To a WAITING: which of the pulls, by their places, do not wait here."""


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
