"""Messages that left for consumers, by lease: one that nobody was given costs no attempt, and no token goes to two.

An EXPIRE counts an attempt. So it names only messages that its leader has pushed, or has inherited: a leader cannot
know what an earlier one has pushed. And a message that one process of a consumer with a name was given goes to a later
process under another token: else the earlier process could settle the later one's message.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable

from dueq_codecs.messages import Push
from dueq_codecs.records import Record, RecordKind


class Handed:
    """The pushes of all leaders.

    Args:
        epoch_of: gives the epoch of a committed record, by partition and sequence; None: it is not known.
    """

    def __init__(self, epoch_of: Callable[[int, int], int | None]) -> None:
        self._epoch_of = epoch_of
        self._begun: dict[bytes, list[int]] = {}
        """When processes of consumers with names have begun: their attaches have larger numbers."""
        self._given: dict[tuple[int, int, int], int] = {}
        """By partition, token and message: when the process had begun to which it left; 0: it has no name."""
        self._last: dict[int, int] = {}

    def begins(self, consumer_id: bytes, life: int) -> None:
        """A process of a consumer with a name attaches from now on."""
        insort(self._begun.setdefault(consumer_id, []), life)

    def leaves(self, push: Push) -> str:
        """Take note of a push of a leader; return what is wrong with it, "" when nothing is."""
        begun = self._begun.get(push.consumer_id, [])
        at = bisect_right(begun, push.attach)
        life = begun[at - 1] if at else 0
        rows = zip(
            push.uid.tolist(), push.token.tolist(), push.sequence.tolist(), push.row.tolist(), strict=True
        )
        for uid, token, sequence, row in rows:
            first = self._given.setdefault((uid, token, sequence << 16 | row), life)
            if first != life:
                return (
                    f"message {sequence}:{row} of p{uid} to the process that began at {life}, under the token {token}"
                    f" that the one of {first} was given"
                )
        return ""

    def ran_out(self, record: Record) -> str:
        """Look at a committed record, shown by any replica; return what is wrong with it, "" when nothing is."""
        if record.kind != RecordKind.EXPIRE or record.sequence <= self._last.get(record.uid, 0):
            return ""
        self._last[record.uid] = record.sequence
        columns = zip(
            record.token.tolist(), record.target_sequence.tolist(), record.target_row.tolist(), strict=True
        )
        for token, sequence, row in columns:
            given = (record.uid, token, sequence << 16 | row) in self._given
            if not given and self._epoch_of(record.uid, token) == record.epoch:
                return f"the lease {token} of message {sequence}:{row} ran out, and it was never pushed"
        return ""
