"""Reading waiting messages, page by page."""

from __future__ import annotations

from dataclasses import dataclass, field

from dueq_codecs.codes import Code
from dueq_codecs.records import NO_U8, NO_U16, NO_U32, NO_U64, U8, U16, U32, U64


@dataclass(slots=True)
class BrowseRequest:
    """A page of one partition's waiting messages, of a snapshot that the leader keeps while it is asked for."""

    request_id: int
    topic: str
    uid: int
    snapshot: int = 0
    """As the last page's reply named it; 0: a new one, of everything that is applied by now."""
    from_ms: int = 0
    """Messages that wait until this instant (Unix ms) or later …"""
    until_ms: int = 0
    """… and before this one; 0: no end."""
    after_wait_at: int = 0
    after_key: int = 0
    """The last row of the page before: (wait_at, sequence << 16 | row); both 0 for the first page."""
    limit: int = 0
    """Rows at most; 0: the broker's choice."""
    payloads: bool = False
    upload: int = 0
    """Not 0: one chunk of this long payload instead of a page."""
    chunk: int = 0
    close: bool = False
    """The snapshot is not wanted any more; the answer is a last page without rows."""
    dead: bool = False
    """Dead messages instead, in order of their deaths: these are the instants of `from_ms`, `until_ms` and
    `after_wait_at`."""
    after_of: int = 0
    """One more than the class of that last row, as the page said it; 0: not known, the row must be there still."""


@dataclass(slots=True)
class BrowseReply:
    """Rows in order of (rank, wait_at, sequence, row); one body: of each row `body_size` bytes.

    Those are the payload where it was asked for, otherwise what it begins with: key and headers, if any. A long
    payload has none: it is asked for by its `upload`, chunk by chunk.
    """

    request_id: int
    code: Code
    text: str = ""
    retry_after_ms: int = 0
    leader: str = ""
    snapshot: int = 0
    epoch: int = 0
    applied: int = 0
    """The snapshot is the state after this record …"""
    stamp: int = 0
    """… of this instant, Unix ms."""
    last: bool = False
    wait_at: U64 = field(default_factory=lambda: NO_U64)
    first: U64 = field(default_factory=lambda: NO_U64)
    due: U64 = field(default_factory=lambda: NO_U64)
    sequence: U64 = field(default_factory=lambda: NO_U64)
    row: U16 = field(default_factory=lambda: NO_U16)
    size: U32 = field(default_factory=lambda: NO_U32)
    crc: U32 = field(default_factory=lambda: NO_U32)
    attempt: U16 = field(default_factory=lambda: NO_U16)
    keyed: U8 = field(default_factory=lambda: NO_U8)
    """The beginning of each payload: a `meta.Meta`."""
    upload: U64 = field(default_factory=lambda: NO_U64)
    """Number of a long payload; 0: it is short."""
    body_size: U32 = field(default_factory=lambda: NO_U32)
    rank: U16 = field(default_factory=lambda: NO_U16)
    """Empty: all are 0."""
    version: U64 = field(default_factory=lambda: NO_U64)
    """Log sequence of the record that changed each message last, 0: the one that inserted it; empty: all are 0."""
    expires: U64 = field(default_factory=lambda: NO_U64)
    """The instant (Unix ms) from which each is not delivered any more, 0: never; empty: all are 0."""
    died_at: U64 = field(default_factory=lambda: NO_U64)
    """When each died, Unix ms; empty: they wait."""
    reason: U16 = field(default_factory=lambda: NO_U16)
    """Place of each row's last reason in `reasons`; empty: no row has one."""
    reasons: tuple[str, ...] = ()
    of: U64 = field(default_factory=lambda: NO_U64)
    """The class of each row in the order of a topic that has classes; empty: there is only one."""
    group: U16 = field(default_factory=lambda: NO_U16)
    """Place of each row's group in `groups`; empty: no row has one."""
    groups: tuple[str, ...] = ()
    heading: U16 = field(default_factory=lambda: NO_U16)
    """Place in `headings` of the headers (JSON) that a NACK gave each message, "": none; empty: no row has any."""
    headings: tuple[str, ...] = ()
