"""Leases that this client's requests may still settle.

A pull by a name brings back what earlier ones had, under the same tokens. A RELEASE that is on its way would end such a
lease while its new holder works on the message. So a question lists these leases, up to LISTED_MAX: then they are not
brought. A request whose outcome is not known may arrive as long as brokers remember requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from dueq import limits
from dueq.client.core.links.context import Context
from dueq.client.core.ports.change import Part
from dueq.errors import OutcomeUnknown
from dueq_codecs.records import RecordKind

Lease = tuple[int, int, int, int]
"""uid, sequence, row and token, as a question lists them."""
PARTS_MAX: Final = 1_024
"""Requests of one topic; beyond that the oldest are forgotten, those that count least first."""
LISTED_MAX: Final = 4_096
"""Leases that a question lists: each question costs as much."""
FEW: Final = 64
"""So few of them, or of topics, are not worth a look at which have been answered."""
KEPT_US: Final = limits.DEDUP_MS * 1000
_GIVE_BACK: Final = frozenset((RecordKind.RELEASE, RecordKind.NACK))
"""What these settle goes to others; an ACK that comes late ends what has been done."""


class _OfTopic:
    """The requests of one topic, and since when (mono); with `look_at` of them one looks which have been answered."""

    def __init__(self) -> None:
        self.parts: dict[Part, int] = {}
        self.look_at = FEW

    def forget(self, now_us: int) -> None:
        """Forget requests that settle nothing any more."""
        for part, since_us in list(self.parts.items()):
            is_lost = isinstance(part.error, OutcomeUnknown) and since_us >= now_us - KEPT_US
            if part.reply is not None or (part.error is not None and not is_lost):
                del self.parts[part]
        over = max(len(self.parts) - PARTS_MAX, 0)
        for each in sorted(self.parts, key=_weight)[:over]:
            del self.parts[each]
        self.look_at = max(2 * len(self.parts), FEW)

    def leases(self) -> Iterator[Lease]:
        """Return what they settle: those that count most first, of these the ones under way for longest."""
        for part in sorted(self.parts, key=_weight, reverse=True):
            columns = part.target_sequence.tolist(), part.target_row.tolist(), part.token.tolist()
            for sequence, row, token in zip(*columns, strict=True):
                yield part.uid, sequence, row, token


def _weight(part: Part) -> tuple[bool, bool]:
    """Return how much it counts that a request is listed: most if it gives back, then if it is under way."""
    return part.kind in _GIVE_BACK, part.error is None


class Settlements:
    """The requests that settle by token, by topic."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._topics: dict[str, _OfTopic] = {}
        self._look_at = FEW

    def add(self, part: Part) -> None:
        """A request is about to be sent."""
        topic = self._topics.get(part.topic)
        if topic is None:
            if len(self._topics) >= self._look_at:
                self._forget_topics()
            topic = self._topics[part.topic] = _OfTopic()
        if len(topic.parts) >= topic.look_at:
            topic.forget(self._context.mono_us)
        topic.parts.pop(part, None)  # it may have been sent before
        topic.parts[part] = self._context.mono_us

    def _forget_topics(self) -> None:
        """Forget those where nothing is to be settled any more: many may have been deleted."""
        for name, topic in list(self._topics.items()):
            topic.forget(self._context.mono_us)
            if not topic.parts:
                del self._topics[name]
        self._look_at = max(2 * len(self._topics), FEW)

    def of(self, name: str) -> Iterator[Lease]:
        """Return the leases of a topic that may still be settled, those that count most first."""
        topic = self._topics.get(name)
        if topic is not None:
            topic.forget(self._context.mono_us)
            yield from islice(topic.leases(), LISTED_MAX)
