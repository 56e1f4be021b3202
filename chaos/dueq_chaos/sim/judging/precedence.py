"""The guarantee of a kind's order, looked at from outside.

When a LEASE is proposed, no message that is ready and free in that partition, in the state applied then, comes before
one that it names and that was not triggered; in a fair topic none of the same group. The messages that it names are
ready themselves: a lease ahead of its time would take a credit or a slot from a ready message. A message is ready if it
waits until the record's stamp or sooner; one that was ready once may be leased though the leader's clock was set back
since. A message is free if it waits, may be delivered, and is named by no record that is in the log and not applied.
The state is the naive reference's, which has no window.
"""

from __future__ import annotations

from dueq.core.partition.partition import Partition
from dueq.core.ports.entry import State
from dueq_chaos.sim.judging.history import name_of
from dueq_chaos.sim.judging.ledger import Ledger
from dueq_chaos.sim.judging.paces import Paces
from dueq_chaos.sim.judging.rounds import Rounds
from dueq_chaos.sim.judging.shares import broken_share, newly_leased
from dueq_chaos.sim.reference.naive import Naive
from dueq_codecs.records import Record, RecordKind

Place = tuple[int, int, int]
"""(rank, wait_at, key): what the order goes by."""


class Precedence:
    """Looks at the LEASE records that leaders of priority and fair topics propose."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._paces = Paces()
        self._rounds = Rounds()
        self._looked_to: dict[tuple[str, int, int], int] = {}
        """(leader, partition, epoch) -> end of the log at the last look."""

    def overtaken(self, broker: str, partition: Partition, now_us: int) -> str:
        """Return which message was passed over by a LEASE of this turn of a leader; "" when none was.

        Of a fair topic: which group's settings were, or whose turn.

        Args:
            broker: the leader.
            partition: its replica, which is served, of a kind with an order of its own.
            now_us: true time.
        """
        replica, uid = partition.replica, partition.uid
        name, end = (broker, uid, replica.epoch), replica.log.end
        looked_to = self._looked_to.get(name, end)
        self._looked_to[name] = end
        is_fair = partition.timeline.order.kind == "fair"
        if looked_to == end and not is_fair:
            return ""
        naive = self._ledger.naive(uid)
        if naive.applied != partition.timeline.applied:
            # It leads no more, and does not know it; or its state waits for the disk.
            if looked_to != end:
                self._rounds.forget(broker, uid)
            return ""
        entries = [replica.log.get(at) for at in range(naive.applied + 1, end + 1)]
        pending = [entry.record for entry in entries if entry is not None]
        fresh = [record for record in pending if record.sequence > looked_to]
        leases = [record for record in fresh if record.kind == RecordKind.LEASE and newly_leased(record)]
        look = _look_at_groups if is_fair else _look_at_all
        wrong = "".join(look(naive, pending, record) for record in leases)
        if is_fair:
            wrong += "".join(self._paces.exceeded(broker, naive, record, now_us) for record in leases)
            wrong = wrong or self._rounds.look(broker, partition, naive, pending, fresh)
        return f"p{uid}: {wrong}" if wrong else ""


def _look_at_all(naive: Naive, pending: list[Record], record: Record) -> str:
    earlier = [each for each in pending if each.sequence < record.sequence]
    taken = {key for each in earlier for key in _named(each)}
    return _passed_over(naive, record, _named(record), taken, _latest(naive, earlier))


def _look_at_groups(naive: Naive, pending: list[Record], record: Record) -> str:
    """Inside a group the order is that of a priority topic."""
    earlier = [each for each in pending if each.sequence < record.sequence]
    if wrong := broken_share(naive, earlier, record):
        return wrong
    named, taken = _named(record), {key for each in earlier for key in _named(each)}
    groups = dict.fromkeys(naive.live[key].group for key in named if key in naive.live)
    latest = _latest(naive, earlier)
    return "".join(_passed_over(naive, record, named, taken, latest, group) for group in groups)


def _latest(naive: Naive, pending: list[Record]) -> int:
    """Return the latest instant that any record names as its own: what waits until then was ready once."""
    return max([naive.latest, *(each.stamp for each in pending)])


def _named(record: Record) -> list[int]:
    if record.kind == RecordKind.INSERT or not len(record.target_sequence):
        return []
    columns = zip(record.target_sequence.tolist(), record.target_row.tolist(), strict=True)
    return [sequence << 16 | row for sequence, row in columns]


def _passed_over(
    naive: Naive, record: Record, named: list[int], taken: set[int], latest: int, group: int | None = None
) -> str:
    """Look for a free message before the last one that the record names; those taken are named by earlier records.

    Args:
        naive: the state that is applied.
        record: a LEASE.
        named: what it names.
        taken: what earlier records name.
        latest: what waits until then was ready once (ms).
        group: of these only; None: of all.
    """
    leased = [
        _place(naive, key)
        for key in named
        if key in naive.live
        and key not in taken
        and group in (None, naive.live[key].group)
        and not naive.is_triggered(key)
    ]
    if not leased:
        return ""
    if (ahead := max(leased, key=lambda place: place[1]))[1] > max(record.stamp, latest):
        return f"the LEASE {record.sequence} of {record.stamp} names {_spelt(record.uid, ahead)}, which is not ready"
    last, spoken_for, waits, stamp = max(leased), taken.union(named), State.WAITING, record.stamp
    for key, entry in naive.live.items():
        if entry.wait_at > stamp or entry.state != waits or key in spoken_for:
            continue
        if group not in (None, entry.group):
            continue
        if (entry.rank, entry.wait_at, key) < last and naive.may_be_delivered(key):
            first, second = _spelt(record.uid, _place(naive, key)), _spelt(record.uid, last)
            return f"the LEASE {record.sequence} names {second}, and {first} is ready, free and before it"
    return ""


def _place(naive: Naive, key: int) -> Place:
    entry = naive.live[key]
    return entry.rank, entry.wait_at, key


def _spelt(uid: int, place: Place) -> str:
    rank, wait_at, key = place
    return f"{name_of((uid, key >> 16, key & 0xFFFF))} (rank {rank}, waits until {wait_at})"
