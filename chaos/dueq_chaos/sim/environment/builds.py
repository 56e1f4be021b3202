"""Builds of different age in one mesh: an older one does not know all kinds of records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dueq.core.state.timeline import Timeline
from dueq_codecs.records import RecordKind


@contextmanager
def lacking(kinds: frozenset[RecordKind]) -> Iterator[None]:
    """Have the product be a build that does not know these kinds, as long as this lasts."""
    known = Timeline.known_kinds
    Timeline.known_kinds = known - kinds
    try:
        yield
    finally:
        Timeline.known_kinds = known
