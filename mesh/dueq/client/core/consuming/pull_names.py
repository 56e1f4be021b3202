"""Pulls by one name: whose a message is that comes to one of them.

A leader brings to each pull by a name what earlier ones got, but for what its question lists. So a message may come to
two pulls, and to the earlier one last. The last pull that is open takes what comes to it or to an earlier one. No pull
hands over what a later one has had. A lease is given back only if no pull of this client has had it. An open pull that
may not keep a message lists it: otherwise the leader would bring it again and again.

Pulls of one order, as a stream's, get the same tokens. To one of a larger order the leader brings new ones. So what the
leader has pushed to a pull of a smaller order is nobody's once it has been asked by the later one. A caller that has
a message under an older token does not know that this is over. So the newer lease is not given back before the older
one would have ended.

A lease that is being given back is listed, too, until that is confirmed: it would come to the next pull under a token
that is about to end. Of pulls of other processes nothing is known.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import Final, NamedTuple

from dueq import limits
from dueq.client.core.consuming.asked import Lease, PullCall, leases_of
from dueq.client.core.ports.delivery import Delivery

_Age = tuple[int, int]
_NOBODY: Final = (1 << 64, 0)
"""In place of the age of a pull: the lease was given back. No pull is later."""
_HAD_MAX: Final = 4 * limits.CONSUMER_LEASES_MAX


def _age(pulling: PullCall) -> _Age:
    return pulling.order, pulling.number


class _Had(NamedTuple):
    """A lease that has come.

    Attributes:
        token: its token.
        age: of the pull that has, or had, it.
        until_us: when it ends (mono); 0: that is not known, or it was given back.
        before_us: when the last of its message's earlier leases would have ended (mono).
    """

    token: int
    age: _Age
    until_us: int = 0
    before_us: int = 0


class _Name:
    """Pulls by one name that have asked.

    Attributes:
        remembered: how many of them are not forgotten.
        latest: age of the latest one.
        open: those that are open, by age. None but the last one has something that it did not hand over.
        had: the last lease of each message that has come.
        asked: the order by which each leader was asked last.
    """

    __slots__ = ("asked", "had", "latest", "open", "remembered")

    def __init__(self) -> None:
        self.remembered = 0
        self.latest: _Age = (0, 0)
        self.open: list[PullCall] = []
        self.had: dict[int, _Had] = {}
        self.asked: dict[str, int] = {}

    def is_for(self, age: _Age, delivery: Delivery) -> bool:
        """Whether a pull of that age may have it: no later pull, and not its caller, has had it or a later lease."""
        had = self.had.get(delivery.name, _Had(0, age))
        return had.token < delivery.token or (had.token == delivery.token and had.age < age)

    def note(self, message: int, token: int, age: _Age, until_us: int = 0) -> None:
        """A pull of that age has it, until then."""
        if self.had.get(message, _Had(0, age)).token > token:
            return
        before_us = self.ends_before_us(message, token)
        self.had.pop(message, None)
        self.had[message] = _Had(token, age, until_us, before_us)
        if len(self.had) > _HAD_MAX:
            del self.had[next(iter(self.had))]

    def ends_before_us(self, message: int, token: int) -> int:
        """Return when (mono) the last lease of a message would have ended that is older than this one."""
        had = self.had.get(message, _Had(0, _NOBODY))
        return max(had.before_us, had.until_us) if had.token < token else had.before_us


class PullNames:
    """All names by which this client pulls."""

    def __init__(self) -> None:
        self._names: dict[bytes, _Name] = {}
        self._returning: dict[bytes, dict[Lease, None]] = {}

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
                name.note(each.name, each.token, age, each.deadline_us)
        name.latest = max(name.latest, age)
        insort(name.open, pulling, key=_age)
        return earlier if pulling.got else []

    def asked(self, pulling: PullCall, leader: str) -> None:
        """It asks a leader."""
        if pulling.order:
            asked = self._names[pulling.event.holder].asked
            if pulling.attaches == 1 or asked.get(leader, 0) < pulling.order:
                asked[leader] = pulling.order

    def refused(self, pulling: PullCall, leader: str) -> None:
        """The leader has not taken its question."""
        if pulling.order:
            asked = self._names[pulling.event.holder].asked
            if asked.get(leader) == pulling.order:
                del asked[leader]

    def whose(
        self, pulling: PullCall, leader: str, deliveries: list[Delivery]
    ) -> tuple[PullCall | None, list[Delivery]]:
        """Return which pull is to have what a leader has brought to one, or None for nobody, and what of it is new."""
        name = self._names.get(pulling.event.holder) if pulling.order else None
        if name is None:
            return None if pulling.over else pulling, deliveries
        age = _age(pulling)
        taker = None if pulling.over else pulling
        if name.open and _age(name.open[-1]) > age:
            taker = name.open[-1]
        if is_renewed := name.asked.get(leader, 0) > pulling.order:
            taker = None
        # What is nobody's is given back only if none of them has had it.
        since = age if taker is not None else (0, 0)
        new = [each for each in deliveries if name.is_for(since, each)]
        if taker is not None:
            for each in new:
                name.note(each.name, each.token, _age(taker), each.deadline_us)
        if not pulling.over and not is_renewed and len(new) < len(deliveries):
            kept = set(map(id, new))
            pulling.give_up([each for each in deliveries if id(each) not in kept])
        if taker is not pulling and not is_renewed:
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
        known = [name.had.get(each.name, _Had(0, age)) for each in deliveries]
        pairs = zip(deliveries, known, strict=True)
        return [each for each, had in pairs if had.token < each.token or had.age <= age]

    def not_at_work(
        self, pulling: PullCall, deliveries: Sequence[Delivery], now_us: int
    ) -> Sequence[Delivery]:
        """Return those that no caller may still work on under an earlier token."""
        name = self._names.get(pulling.event.holder)
        if name is None:
            return deliveries
        return [each for each in deliveries if name.ends_before_us(each.name, each.token) <= now_us]

    def returns(self, pulling: PullCall, deliveries: Sequence[Delivery]) -> None:
        """These are being given back."""
        self._returning.setdefault(pulling.holder, {}).update(dict.fromkeys(leases_of(deliveries)))
        if name := self._names.get(pulling.event.holder):
            for each in deliveries:
                name.note(each.name, each.token, _NOBODY)

    def returned(self, pulling: PullCall, deliveries: Sequence[Delivery], failed: bool) -> None:
        """That is over. If it has failed, they may come again."""
        left = self._returning.get(pulling.holder, {})  # the same may have been given back before
        for lease in leases_of(deliveries):
            left.pop(lease, None)
        if not left:
            self._returning.pop(pulling.holder, None)
        name = self._names.get(pulling.event.holder) if failed else None
        if name is not None:
            for each in deliveries:
                if name.had.get(each.name, _Had(0, _NOBODY))[:2] == (each.token, _NOBODY):
                    del name.had[each.name]

    def listed(self, pulling: PullCall) -> list[Lease]:
        """Return the leases that its question lists, of each message the latest."""
        found: dict[tuple[int, int, int], int] = {}
        for leases in (
            pulling.event.held,
            leases_of(pulling.got),
            pulling.given_up,
            self._returning.get(pulling.holder, ()),
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
