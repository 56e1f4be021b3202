"""PeerFrame: each of its lists travels as the columns of a section, absent when the list is empty."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter, itemgetter
from typing import Any, Final, NamedTuple

from dueq_codecs import messages as m
from dueq_codecs.fields import Numbers, Scalar, Text
from dueq_codecs.flat import Layout
from dueq_codecs.frame_error import FrameError
from dueq_codecs.records import LogEntry


class _Section(NamedTuple):
    """One list of a PeerFrame."""

    attribute: str
    item: type[Any]
    columns: tuple[tuple[str, str], ...]
    """Attribute of the item and `struct` character, in the schema's order and the item's own."""
    prefix: str
    """The beginning of its columns' names."""

    def fields(self) -> list[Numbers]:
        """The columns as fields of the table."""
        return [Numbers(f"{self.prefix}_{name}", code) for name, code in self.columns]


SECTIONS: Final = (
    _Section(
        "appends",
        m.Append,
        (
            ("uid", "I"),
            ("epoch", "Q"),
            ("previous_sequence", "Q"),
            ("previous_epoch", "Q"),
            ("commit", "Q"),
            ("entries", "I"),
        ),
        "append",
    ),
    _Section("acks", m.Ack, (("uid", "I"), ("epoch", "Q"), ("sequence", "Q")), "ack"),
    _Section(
        "mismatches",
        m.Mismatch,
        (
            ("uid", "I"),
            ("epoch", "Q"),
            ("end", "Q"),
            ("known_epoch", "Q"),
            ("known_end", "Q"),
            ("installing", "?"),
        ),
        "mismatch",
    ),
    _Section(
        "vote_requests",
        m.VoteRequest,
        (("uid", "I"), ("round", "Q"), ("epoch", "Q"), ("last_epoch", "Q"), ("last_sequence", "Q")),
        "vote_request",
    ),
    _Section(
        "votes",
        m.Vote,
        (("uid", "I"), ("round", "Q"), ("consent", "?"), ("last_epoch", "Q"), ("last_sequence", "Q")),
        "vote",
    ),
    _Section("fences", m.Fence, (("uid", "I"), ("epoch", "Q")), "fence"),
    _Section(
        "leaderships",
        m.Leadership,
        (("uid", "I"), ("epoch", "Q"), ("leads", "?"), ("serving", "?")),
        "leadership",
    ),
    _Section("upload_acks", m.UploadAck, (("uid", "I"), ("upload", "Q"), ("chunk", "I")), "upload_ack"),
    _Section(
        "job_asks",
        m.JobAsk,
        (("uid", "I"), ("asker", "I"), ("job_high", "Q"), ("job_low", "Q"), ("until", "Q")),
        "job_ask",
    ),
    _Section(
        "job_tells",
        m.JobTell,
        (("uid", "I"), ("job_high", "Q"), ("job_low", "Q"), ("state", "B")),
        "job_tell",
    ),
)

_GETTERS: Final = tuple(attrgetter(*[name for name, _ in section.columns]) for section in SECTIONS)
_READERS: Final = tuple(itemgetter(*[field.name for field in section.fields()]) for section in SECTIONS)
_LISTS: Final = attrgetter(*[section.attribute for section in SECTIONS])
_ABSENT: Final[tuple[tuple[tuple[int, ...], ...], ...]] = tuple(((),) * len(s.columns) for s in SECTIONS)


def _columns_of(frame: m.PeerFrame) -> tuple[Any, ...]:
    """Take the values of all vectors out of a frame."""
    values: list[Any] = [frame.sender, frame.receiver]
    for items, getter, absent in zip(_LISTS(frame), _GETTERS, _ABSENT, strict=True):
        values += zip(*map(getter, items), strict=True) if items else absent
    if frame.appends:
        values[_ENTRIES_AT] = tuple(len(append.entries) for append in frame.appends)
    return tuple(values)


_ENTRIES_AT: Final = 2 + [name for name, _ in SECTIONS[0].columns].index("entries")

PEER_FRAME: Final = Layout(
    m.PeerFrame,
    Text("sender"),
    Scalar("incarnation", "Q"),
    Text("receiver"),
    Scalar("receiver_incarnation", "Q"),
    Scalar("sent_mono_us", "Q"),
    Scalar("sent_wall_us", "Q"),
    Scalar("echo_mono_us", "Q"),
    Scalar("echo_wall_us", "Q"),
    Scalar("echo_received_wall_us", "Q"),
    Scalar("ping", "?"),
    *[field for section in SECTIONS for field in section.fields()],
    vectors=_columns_of,
)

_head: Final = itemgetter(*[field.name for field in PEER_FRAME.fields if isinstance(field, Scalar | Text)])


def entry_count(values: dict[str, Any]) -> int:
    """Number of log entries that a frame of these values brings."""
    return sum(values["append_entries"])


def build_peer_frame(values: dict[str, Any], entries: Iterable[tuple[list[LogEntry], str]]) -> m.PeerFrame:
    """Make the message from its table and, for each of its appends, the entries and why there are no more.

    Raises:
        FrameError: the columns of a section are not of one length.
    """
    lists: list[list[Any]] = []
    for section, read, absent in zip(SECTIONS, _READERS, _ABSENT, strict=True):
        columns = read(values)
        if columns == absent:
            lists.append([])
            continue
        if len(set(map(len, columns))) != 1:
            raise FrameError(f"the columns of {section.attribute} are not of one length")
        lists.append(list(map(section.item, *columns)))
    # Until here `entries` holds their number, which is how the column is called.
    for append, (held, unreadable) in zip(lists[0], entries, strict=True):
        append.entries, append.unreadable = held, unreadable
    return m.PeerFrame(*_head(values), *lists)
