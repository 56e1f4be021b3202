"""The division of a consumer's credit over the leaders of its topic.

Credit is a limit per leader: the unfinished leases that it may have out to this consumer. The parts must
never add up to more than the user's credit, counting each leader with the highest limit that may still be in
force there (a lowered one counts as lowered only when confirmed), or with what it has out where that is more.
Where messages wait the credit goes; what nobody needs is divided evenly, so that a message that becomes due
finds some at its leader.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class Share:
    """One leader's view.

    Attributes:
        limit: the highest limit that may be in force at the leader.
        held: unfinished leases of this leader that we know of.
        waiting: due messages that it reported to be waiting for credit.
        promised: credit that it was given for them and has not used yet.
        served: when it last got credit for waiting messages: any number that grows.
        coming: leases of it whose push has not come.
    """

    limit: int
    held: int
    waiting: int
    promised: int = 0
    served: int = 0
    coming: int = 0

    @property
    def most(self) -> int:
        """The most that it may have out to us."""
        return max(self.limit, self.held + self.coming)


def wanted(credit: int, shares: Sequence[Share]) -> list[int]:
    """Return the limit that each leader should have: they add up to `credit` if there is a leader.

    What is held or was just given for waiting messages stays; a quarter of an even share is each leader's
    own, to be ready; then what waits gets it evenly, longest unserved first; then what is left is divided
    evenly.
    """
    if not shares:
        return []
    limits = [0] * len(shares)
    left = _give(limits, [share.held for share in shares], credit, range(len(shares)))
    kept = [share.held + min(share.promised, share.waiting) for share in shares]
    left = _give(limits, kept, left, range(len(shares)))
    order = sorted(range(len(shares)), key=lambda i: (not shares[i].waiting, shares[i].served, i))
    left = _give(limits, [credit // (4 * len(shares))] * len(shares), left, order)
    demand = [share.held + share.waiting for share in shares]
    left = _fill(limits, demand, left, order)
    each, over = divmod(left, len(shares))
    # What is over stays where it is: idle credit does not wander.
    for place, i in enumerate(sorted(range(len(shares)), key=lambda i: (-shares[i].most, i))):
        limits[i] += each + (place < over)
    return limits


def affordable(credit: int, shares: Sequence[Share], targets: Sequence[int]) -> list[int]:
    """Return what can be told to each leader now: lowered at once, raised only by what is free.

    For any targets that add up to at most `credit`, what the leaders may have out never adds up to more than
    `credit` (as long as it did not before). A leader that has more out than its limit gets no higher one for that:
    it may have ended some of it by now, and would give more.
    """
    free = credit - sum(share.most for share in shares)
    told = []
    for share, target in zip(shares, targets, strict=True):
        if target > share.limit:
            raised = min(target - share.limit, max(free, 0))
            free -= raised
            told.append(share.limit + raised)
        else:
            told.append(target)
    return told


def _give(limits: list[int], demand: Sequence[int], left: int, order: Sequence[int]) -> int:
    """Raise limits to what is demanded, in order, as far as it goes."""
    for i in order:
        given = min(max(demand[i] - limits[i], 0), left)
        limits[i] += given
        left -= given
    return left


def _fill(limits: list[int], demand: Sequence[int], left: int, order: Sequence[int]) -> int:
    """Raise limits towards what is demanded, evenly: nobody gets more while another wants as much."""
    hungry = [i for i in order if demand[i] > limits[i]]
    while hungry and left:
        each = max(left // len(hungry), 1)
        for i in hungry:
            given = min(demand[i] - limits[i], each, left)
            limits[i] += given
            left -= given
        hungry = [i for i in hungry if demand[i] > limits[i]]
    return left
