"""Pulls by one name: whose a message is that comes to one of them.

A leader brings to each pull by a name what earlier ones got, but for what its question lists; what pulls of this client
got, under the same tokens. So a message may come to two pulls, and to the earlier one last. The last pull that is open
takes what comes to it or to an earlier one. No pull hands over what a later one has had. A lease is given back only if
no pull of this client has had it. An open pull that may not keep a message lists it: otherwise the leader would bring
it again and again. A lease that this client may be settling is listed, too (`changing/settlements`). Of pulls of other
clients nothing is known.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from typing import Final

from dueq import limits
from dueq.client.core.changing.settlements import Lease
from dueq.client.core.consuming.asked import PullCall, leases_of
from dueq.client.core.ports.delivery import Delivery

_Age = tuple[int, int]
_NOBODY: Final = (1 << 64, 0)
"""In place of the age of a pull: the lease was given back. No pull is later."""
_HAD_MAX: Final = 4 * limits.CONSUMER_LEASES_MAX


def _age(pulling: PullCall) -> _Age:
    return pulling.order, pulling.number


class _Name:
    """Pulls by one name that have asked.

    Attributes:
        remembered: how many of them are not forgotten.
        latest: age of the latest one.
        open: those that are open, by age. None but the last one has something that it did not hand over.
        had: of messages that have come: the token, and the age of the pull that has, or had, it.
    """

    __slots__ = ("had", "latest", "open", "remembered")

    def __init__(self) -> None:
        self.remembered = 0
        self.latest: _Age = (0, 0)
        self.open: list[PullCall] = []
        self.had: dict[int, tuple[int, _Age]] = {}

    def is_for(self, age: _Age, delivery: Delivery) -> bool:
        """Whether a pull of that age may have it: no later pull, and not its caller, has had it or a later lease."""
        token, had_by = self.had.get(delivery.name, (0, age))
        return token < delivery.token or (token == delivery.token and had_by < age)

    def note(self, message: int, token: int, age: _Age) -> None:
        """A pull of that age has it."""
        if self.had.get(message, (0, age))[0] > token:
            return
        self.had.pop(message, None)
        self.had[message] = token, age
        if len(self.had) > _HAD_MAX:
            del self.had[next(iter(self.had))]


class PullNames:
    """All names by which this client pulls."""

    def __init__(self) -> None:
        self._names: dict[bytes, _Name] = {}

    # -------------------------------------------------------------- whose a message is

    def asks(self, pulling: PullCall) -> list[PullCall]:
        """It is about to ask for the first time.

        What an earlier one has and did not hand over is its. Then the earlier ones that are open are returned: they
        are over, though no leader says so.
        """
        name, age = self._names.setdefault(pulling.event.holder, _Name()), _age(pulling)
        name.remembered += 1
        for uid, sequence, row, token in pulling.event.held:
            name.note(uid << 56 | sequence << 16 | row, token, age)
        earlier = name.open[:]
        if age > name.latest and earlier:
            got = [each for each in earlier[-1].give_up_all() if name.is_for(age, each)]
            pulling.take(got)
            for each in got:
                name.note(each.name, each.token, age)
        name.latest = max(name.latest, age)
        insort(name.open, pulling, key=_age)
        return earlier if pulling.got else []

    def whose(self, pulling: PullCall, deliveries: list[Delivery]) -> tuple[PullCall, list[Delivery]]:
        """Return which pull is to have what is new to one, and what of it.

        If the pull that is returned is over, nobody is to have it.
        """
        name = self._names.get(pulling.event.holder) if pulling.order else None
        if name is None:
            return pulling, deliveries
        age, taker = _age(pulling), pulling
        if name.open and _age(name.open[-1]) > age:
            taker = name.open[-1]
        # What is nobody's is given back only if none of them has had it.
        since = age if not taker.over else (0, 0)
        new = [each for each in deliveries if name.is_for(since, each)]
        if not taker.over:
            for each in new:
                name.note(each.name, each.token, _age(taker))
        if not pulling.over and len(new) < len(deliveries):
            kept = set(map(id, new))
            pulling.give_up([each for each in deliveries if id(each) not in kept])
        if taker is not pulling:
            pulling.give_up(new)
        return taker, new

    def has_later(self, pulling: PullCall) -> bool:
        """Whether a later one has asked."""
        name = self._names.get(pulling.event.holder) if pulling.order else None
        return name is not None and name.latest > _age(pulling)

    # -------------------------------------------------------------- what goes back

    def not_later_s(self, pulling: PullCall, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Return those of what it has handed over that no later one has, and that did not go back."""
        name, age = self._names.get(pulling.event.holder), _age(pulling)
        if name is None:
            return list(deliveries)
        known = [name.had.get(each.name, (0, age)) for each in deliveries]
        pairs = zip(deliveries, known, strict=True)
        return [each for each, (token, had_by) in pairs if token < each.token or had_by <= age]

    def returns(self, pulling: PullCall, deliveries: Sequence[Delivery]) -> None:
        """These are being given back."""
        if name := self._names.get(pulling.event.holder):
            for each in deliveries:
                name.note(each.name, each.token, _NOBODY)

    def not_returned(self, pulling: PullCall, deliveries: Sequence[Delivery]) -> None:
        """That has failed: they may come again."""
        name = self._names.get(pulling.event.holder)
        if name is not None:
            for each in deliveries:
                if name.had.get(each.name) == (each.token, _NOBODY):
                    del name.had[each.name]

    def listed(self, pulling: PullCall, settled: Iterable[Lease]) -> list[Lease]:
        """Return the leases that its question lists, of each message the latest; `settled`: those that may be so."""
        found: dict[tuple[int, int, int], int] = {}
        for leases in (
            pulling.event.held,
            leases_of(pulling.got),
            pulling.given_up,
            settled,
        ):
            for uid, sequence, row, token in leases:
                place = uid, sequence, row
                if place in found or len(found) < max(limits.CONSUMER_LEASES_MAX, len(pulling.event.held)):
                    found[place] = max(found.get(place, 0), token)
        return [(*place, token) for place, token in found.items()]

    # -------------------------------------------------------------- ends

    def ends(self, pulling: PullCall) -> None:
        """It is over; what still comes for it may be another's."""
        if pulling.order:
            still_open = self._names[pulling.event.holder].open
            del still_open[bisect_left(still_open, _age(pulling), key=_age)]

    def forget(self, pulling: PullCall) -> None:
        """Nothing comes for it any more."""
        if not pulling.order:
            return
        name = self._names[pulling.event.holder]
        name.remembered -= 1
        if not name.remembered:
            del self._names[pulling.event.holder]
