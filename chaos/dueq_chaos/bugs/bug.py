"""The form of a planted bug."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from dueq_chaos.bugs.patching import Rewrite, rewritten


@dataclass(frozen=True)
class Bug:
    """A mistake that somebody could make in this product, and that the simulator must find.

    Attributes:
        name: in words and hyphens.
        does: one sentence: what the product does wrong with it.
        resembles: the public bug, proposal or report it is taken from, or the rule that it breaks.
        rewrites: the careless commit.
        seeds: among the first so many seeds at least one fails.
        finders: seeds known to find it, the quickest first; hints that save time, nothing rests on them.
    """

    name: str
    does: str
    resembles: str
    rewrites: tuple[Rewrite, ...]
    seeds: int
    finders: tuple[int, ...] = ()

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Have the bug in the product, as long as this lasts.

        Raises:
            BugRotten: the product has changed where the bug was.
        """
        with rewritten(self.rewrites):
            yield


def change(target: str, old: str, new: str) -> Rewrite:
    """Return a rewrite of something in the `dueq` package: "core.replication.replica:Replica.tick"."""
    return Rewrite(f"dueq.{target}", old, new)
