"""Pulls by one name: whose a message is that comes to one of them.

A leader brings to each pull by a name what earlier ones got, under the same tokens, but for what its question lists. So
a message may come to two pulls, and to the earlier one last. It belongs to the later ones: the last of them that is
open takes it, and it is nobody's any more if one of them has had it. Only what no later pull has had, of which none is
open, is left with the pull to which it came. An open pull that did not get to keep a message lists it: otherwise the
leader would bring it again and again.

A lease that is being given back is listed, too, until that is confirmed: it would come to the next pull under a token
that is about to end. Of pulls of other processes nothing is known.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence

from dueq.client.core.consuming.asked import Lease, PullCall
from dueq.client.core.ports.delivery import Delivery


def _age(pulling: PullCall) -> tuple[int, int]:
    return pulling.order, pulling.number


class PullNames:
    """The pulls by each name that have asked, and are not forgotten."""

    def __init__(self) -> None:
        self._asked: dict[bytes, list[PullCall]] = {}
        self._open: dict[bytes, list[PullCall]] = {}
        self._returning: dict[bytes, dict[Lease, None]] = {}

    # -------------------------------------------------------------- whose a message is

    def asks(self, pulling: PullCall) -> None:
        """It is about to ask for the first time. What earlier ones have and did not hand over is its."""
        asked = self._asked.setdefault(pulling.event.holder, [])
        still_open = self._open.setdefault(pulling.event.holder, [])
        insort(asked, pulling, key=_age)
        if asked[-1] is pulling:
            for earlier in still_open:
                pulling.take(earlier.give_up_all())
        still_open.append(pulling)

    def whose(self, pulling: PullCall, deliveries: list[Delivery]) -> tuple[PullCall, list[Delivery]]:
        """Return which pull is to have new deliveries that came to one, and which of them."""
        later = self._later(pulling)
        if not later or not deliveries:
            return pulling, deliveries
        had: list[Delivery] = []
        new: list[Delivery] = []
        for each in deliveries:
            (had if any(other.arrivals.has_seen(each) for other in later) else new).append(each)
        pulling.give_up(had)
        taker = next((other for other in reversed(later) if not other.over), pulling)
        for other in (pulling, *later):
            if other is not taker:
                other.give_up(new)
        return taker, new

    def has_later(self, pulling: PullCall) -> bool:
        """Whether a later one has asked."""
        return bool(self._later(pulling))

    def _later(self, pulling: PullCall) -> Sequence[PullCall]:
        asked = self._asked.get(pulling.event.holder, ()) if pulling.order else ()
        return asked[bisect_right(asked, _age(pulling), key=_age) :]

    # -------------------------------------------------------------- what goes back

    def returns(self, pulling: PullCall, leases: list[Lease]) -> None:
        """These are being given back."""
        self._returning.setdefault(pulling.holder, {}).update(dict.fromkeys(leases))

    def returned(self, pulling: PullCall, leases: list[Lease]) -> None:
        """That is over."""
        left = self._returning.get(pulling.holder, {})  # two pulls may have given back the same
        for lease in leases:
            left.pop(lease, None)
        if not left:
            self._returning.pop(pulling.holder, None)

    def returning(self, pulling: PullCall) -> list[Lease]:
        """Return what is being given back by its name."""
        return list(self._returning.get(pulling.holder, ()))

    # -------------------------------------------------------------- ends

    def ends(self, pulling: PullCall) -> None:
        """It is over; what still comes for it may be another's."""
        if pulling.order:
            self._open[pulling.event.holder].remove(pulling)

    def forget(self, pulling: PullCall) -> None:
        """Nothing comes for it any more."""
        if not pulling.order:
            return
        holder = pulling.event.holder
        self._asked[holder].remove(pulling)
        if not self._asked[holder]:
            del self._asked[holder], self._open[holder]
