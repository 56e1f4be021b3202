"""One replica on a stage: its peers, its disk and the coordinator are played by the test."""

from __future__ import annotations

from dueq.core.ports.effects import Coordinate
from dueq.core.ports.entry import NO_ENTRIES
from dueq.core.ports.membership import (
    CompareAndSet,
    CompareAndSetDone,
    CoordinatorState,
    Member,
    PartitionNode,
    ReadNode,
    SetOutcome,
)
from dueq.core.ports.persistence import RecoveredPartition
from dueq.core.replication.replica import Replica
from dueq.core.turn.context import Context
from dueq.core.turn.peers import Peer
from dueq.core.turn.settings import CoreSettings
from dueq.instant import Now
from dueq_codecs.messages import Ack, Append, Mismatch, Vote
from dueq_codecs.records import LogEntry, Record, RecordKind

UID = 1


def entry(sequence: int, epoch: int) -> LogEntry:
    return LogEntry(Record(RecordKind.BARRIER, UID, sequence, epoch, 0))


def filled(applied: int, epoch: int) -> RecoveredPartition:
    """A replica that was filled from a snapshot and has not caught up with a leader since."""
    return RecoveredPartition(
        UID, "t", epoch, applied, applied, applied + 1, applied, [(epoch, applied)], [], 0, NO_ENTRIES, {}, b"", [],
        unproven=True,
    )  # fmt: skip


class Stage:
    """Broker b1's replica of a partition on b1, b2, b3; min_isr 2. It is its replica's owner, too."""

    def __init__(self, recovered: RecoveredPartition | None = None) -> None:
        self.mono_us = 1_000_000
        self.ctx = Context(CoreSettings("b1", 11, "s1", "cluster", "tcp://b1"))
        self.ctx.coordinator = CoordinatorState.CONNECTED
        self.ctx.clock.settled = True
        self.broken = ""
        for name in ("b2", "b3"):
            peer = self.ctx.peers[name] = Peer(name)
            peer.reborn(int(name[1]) * 11, f"s{name[1]}", f"tcp://{name}", "", self.now)
            peer.registered = True
        self.lost: list[str] = []
        self.told: list[str] = []
        """What the owner was told of the log, in order."""
        self.replica = Replica(self.ctx, UID, ("b1", "b2", "b3"), 2, recovered, self)
        self.orders: list[CompareAndSet] = []
        self.asked: list[ReadNode] = []
        self._token = 0

    # -------------------------------------------------------------- the owner's part

    def appended(self, entries: list[LogEntry], now: Now) -> None:
        self.told += [f"appended {entry.record.sequence}" for entry in entries]

    def truncated(self, entries: list[LogEntry]) -> None:
        pass

    def committed(self, now: Now) -> None:
        self.told.append(f"committed {self.replica.commit}")

    def leadership_lost(self, now: Now) -> None:
        self.lost.append("leadership")

    def is_full(self) -> bool:
        return False

    def missing_upload(self, entry: LogEntry, leader: str) -> bool:
        return False

    def level_of_all(self) -> int:
        return 1

    def offer_snapshot(self, peer: Peer) -> None:
        self.lost.append(f"snapshot for {peer.broker_id}")

    def missed_record(self, peer: Peer, sequence: int, now: Now) -> None:
        self.lost.append(f"record {sequence} for {peer.broker_id}")

    # -------------------------------------------------------------- the test's part

    @property
    def now(self) -> Now:
        return Now(1_700_000_000_000_000 + self.mono_us, self.mono_us)

    def peer(self, name: str) -> Peer:
        return self.ctx.peers[name]

    def append(self, name: str, epoch: int, previous: tuple[int, int], *epochs: int, commit: int = 0) -> None:
        """A leader sends the records after `previous` (sequence, epoch), one per epoch given."""
        entries = [entry(previous[0] + 1 + at, held) for at, held in enumerate(epochs)]
        self.replica.append_received(
            self.peer(name), Append(UID, epoch, *previous, commit, entries), self.now
        )

    def begin_write(self) -> int:
        """The turn ends and its writes are on their way; returns the number by which they end."""
        self.replica.end_turn(self.now)
        self.ctx.close_writes()
        self._token += 1
        return self._token

    def sync(self) -> None:
        """The turn ends and its writes reach the disk."""
        self.ctx.persisted(self.begin_write(), self.now)
        self._collect()

    def _collect(self) -> None:
        for effect in self.ctx.take():
            if isinstance(effect, Coordinate) and isinstance(effect.order, CompareAndSet):
                self.orders.append(effect.order)
            elif isinstance(effect, Coordinate) and isinstance(effect.order, ReadNode):
                self.asked.append(effect.order)

    def ack_to(self, name: str) -> Ack | None:
        """Take the ack that waits for a peer."""
        return self.peer(name).acks.pop(UID, None)

    def mismatch_to(self, name: str) -> Mismatch | None:
        """Take the mismatch that waits for a peer."""
        found = self.peer(name).mismatches
        return found.pop() if found else None

    def pass_ms(self, ms: int, *heard: str) -> None:
        """Let time pass in steps in which these peers are heard."""
        for _ in range(ms // 50):
            self.mono_us += 50_000
            for name in heard:
                self.peer(name).heard_at_us = self.mono_us
            self.tick()

    def tick(self) -> None:
        """Have a turn at this instant."""
        self.replica.tick(self.now)
        self._collect()

    def node(self, leader: str, epoch: int, *isr: str, version: int = 0, incarnation: int = 0) -> None:
        """The partition's node is read."""
        node = PartitionNode(leader, incarnation, epoch, tuple(Member(name, f"s{name[1]}") for name in isr))
        self.replica.node_seen(version, node, self.now)

    def answer(self, outcome: SetOutcome) -> CompareAndSet:
        """Answer the oldest compare-and-set."""
        order = self.orders.pop(0)
        done = CompareAndSetDone(order.token, UID, outcome, order.version + 1)
        self.ctx.set_done(done, self.now)
        self._collect()
        return order

    def votes(self, **consents: bool) -> None:
        """Peers answer the round that is under way."""
        for name, consent in consents.items():
            asked = self.peer(name).vote_requests.pop()
            self.replica.vote_received(self.peer(name), Vote(UID, asked.round, consent, 0, 0), self.now)
        self._collect()

    def acked_by(self, name: str, sequence: int, asked_us: int | None = None) -> None:
        """A follower acks in the present epoch what was sent at that instant (mono); just now by default."""
        leading = self.replica.leading
        assert leading is not None
        ack = Ack(UID, leading.epoch, sequence)
        leading.ack_received(self.peer(name), ack, self.mono_us if asked_us is None else asked_us, self.now)

    def lead(self, *isr: str) -> None:
        """Become leader of epoch 1 with everybody's consent, synced, barrier not yet committed."""
        self.node("", 0, "b1", "b2", "b3")
        self.pass_ms(100, "b2", "b3")
        self.votes(b2="b2" in isr, b3="b3" in isr)
        if not self.orders:
            self.pass_ms(400, "b2", "b3")
        self.answer(SetOutcome.DONE)
        self.sync()
