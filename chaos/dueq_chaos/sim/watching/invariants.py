"""Invariants that must hold after every step of every broker, seen from outside.

The log is checked against one *ledger* for the whole mesh: the records that any replica has ever counted as
committed, by partition and sequence. The state is checked against a *reference*: the same records applied, once, to
a timeline that has everything in memory. Numbers are those of the invariants in ARCHITECTURE.md.

The state that a step touched is checked after it. The rest is checked at starts, and everything once all is quiet.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from dueq.core.partition.partition import Partition
from dueq.core.ports.effects import Effect, Log, Persist, SendClient, SendPeer
from dueq.core.ports.membership import Topic
from dueq.core.ports.persistence import AppendLog, DropPartition, StoreWrite
from dueq.storage.ordered import layout
from dueq_chaos.sim.judging.equality import differences
from dueq_chaos.sim.judging.handed import Handed
from dueq_chaos.sim.judging.lasting import Lasting
from dueq_chaos.sim.judging.ledger import Ledger
from dueq_chaos.sim.judging.precedence import Precedence
from dueq_chaos.sim.judging.rates import Rates
from dueq_chaos.sim.watching import memory
from dueq_chaos.sim.watching.body_places import misplaced
from dueq_chaos.sim.watching.copies import Copies
from dueq_chaos.sim.watching.idleness import Idleness
from dueq_chaos.sim.watching.outgoing import Outgoing
from dueq_chaos.sim.watching.promises import Promises
from dueq_codecs.frames import decode_record, encode_record
from dueq_codecs.messages import ChangeReply, Code, ConsumerReply, PeerFrame, Push, Relay
from dueq_codecs.records import Record, RecordKind

if TYPE_CHECKING:
    from dueq.core.replication.leading import Leading
    from dueq.core.replication.progress import Progress
    from dueq_chaos.sim.environment.mesh import SimMesh
    from dueq_chaos.sim.environment.node import Node


_TURNS_MAX: Final = 20_000
"""A broker's turns in one simulated second; those of the worst storms are a fraction of that."""
_MISMATCHES_MAX: Final = 500
_LOOKED_AT: Final = 32
"""Number of the records covered by a commit that are compared on every disk."""
_COUNT_OF: Final[Callable[[Progress], tuple[int, int]]] = attrgetter("incarnation", "match")


class Violation(Exception):
    """An invariant does not hold.

    Attributes:
        step: number of the broker's turn, counted over all brokers.
    """

    def __init__(self, step: int, text: str) -> None:
        super().__init__(f"step {step}: {text}")
        self.step = step


class _Seen:
    """The last seen state of one replica in one life of its broker.

    Attributes:
        state: all that is looked at, but for what only a leader has; None before the first look.
        counts: whom its leader counted for what at the last look at that: (incarnation, match) of each follower.
    """

    __slots__ = (
        "applied", "commit", "counts", "durable_epoch", "epoch", "installing", "led", "state", "synced",
    )  # fmt: skip

    def __init__(self) -> None:
        self.commit = self.applied = self.epoch = self.durable_epoch = self.synced = self.led = 0
        self.installing = False
        self.state: tuple[int, ...] | None = None
        self.counts: list[tuple[int, int]] = []


class Invariants:
    """Watches every broker of a mesh.

    Args:
        mesh: its brokers.
        clock_error_us: how early a push may be because clocks are compared by frames.
        unproved_us: how long frames take on this network. A clock that is ahead by no more may look right.

    Attributes:
        steps: broker turns so far.
        ledger: the committed records.
    """

    def __init__(self, mesh: SimMesh, clock_error_us: int, unproved_us: int = 0) -> None:
        self.mesh = mesh
        self.steps = 0
        self.ledger = Ledger()
        self.copies = Copies(mesh, self.ledger)
        self.promises = Promises(mesh, self.ledger)
        self.precedence = Precedence(self.ledger)
        self._rates, self._lasting, self._idleness = Rates(), Lasting(), Idleness()
        self._handed = Handed(lambda uid, sequence: self.ledger.epochs(uid).get(sequence))
        self._outgoing = Outgoing(
            mesh, self.ledger, self.promises, self._handed, self._led_in, clock_error_us, unproved_us
        )
        self._second = 0
        self._turns: dict[str, int] = {}
        """By broker, how many it has taken in this second."""
        self._seen: dict[str, dict[int, _Seen]] = {}
        """By broker and partition."""
        self._leaders: dict[tuple[int, int], tuple[str, int]] = {}
        mesh.coordinator.changed = self._node_changed
        mesh.coordinator.buried = self._buried
        mesh.coordinator.made = self._made
        self._creations: set[str] = set()
        mesh.history.row_differs = self._row_differs
        self.ledger.fired, self.ledger.taken_back = mesh.history.fired, mesh.history.taken_back
        history, ledger = mesh.history, self.ledger
        history.fate_of, history.due_of = ledger.fate, ledger.due_of
        history.version_of, history.had_version = ledger.version_of, ledger.had_version
        history.begins = self._handed.begins
        mesh.state_after = self.ledger.after
        for node in mesh.nodes.values():
            node.watcher = self

    def _fail(self, text: str) -> None:
        self.mesh.world.tell("VIOLATION", text)
        raise Violation(self.steps, text)

    def _check(self, wrong: str) -> None:
        if wrong:
            self._fail(wrong)

    def _led_in(self, name: str, uid: int) -> int | None:
        """Return the newest epoch in which a broker has led a partition in this life; None: it was never seen."""
        seen = self._seen[name].get(uid)
        return seen.led if seen is not None else None

    def _row_differs(self, key: tuple[int, int, int], payload: bytes, due_ms: int) -> str:
        """Compare an acknowledged insert with the log; that of a deleted topic is not looked at any more."""
        if key[0] not in self.mesh.coordinator.nodes:
            return ""
        return self.ledger.row_differs(key, payload, due_ms)

    # -------------------------------------------------------------- after each step

    def stepped(self, node: Node, effects: list[Effect]) -> None:
        """A broker has had a turn."""
        self.steps += 1
        core, name = node.core, node.name
        if core is None:
            return
        held, known = core._partitions, self._seen.setdefault(name, {})
        for uid in self.mesh.coordinator.nodes:
            partition = held.get(uid)
            if partition is None:
                continue
            seen = known.get(uid)
            if seen is None:
                seen = known[uid] = _Seen()
                place = partition.index, partition.topic.home_partitions
                self.ledger.opened(uid, place, partition.timeline.order)
            replica = partition.replica
            log, leading = replica.log, replica.leading
            state = (
                log.epoch, log.durable_epoch, log.commit, log.synced, replica.installing,
                partition.timeline.applied,
            )  # fmt: skip
            if state != seen.state or (leading is not None and leading.epoch != seen.led):
                self._look(node, partition, seen)
                seen.state = state
            elif leading is not None:
                self._look_at_leader(node, partition, seen, leading)
        self._count_turn(name)
        self._check(self._idleness.seen(node, self.mesh.world.now_us))
        for effect in effects:
            if isinstance(effect, SendPeer):
                message = effect.message
                if isinstance(message, PeerFrame):
                    self._framed(node, message)
                elif isinstance(message, Relay) and message.back and isinstance(message.inner, Push):
                    self._check(self._outgoing.handed_over(name, message.inner))
            elif isinstance(effect, SendClient):
                self._told(name, effect.message)
            elif isinstance(effect, Persist):
                self._deleted(name, effect.writes)
                self._appended(node, effect.writes)
            elif isinstance(effect, Log) and effect.event == "payload.unreadable":
                # Brokers work around that, so nothing else may show it.
                self._fail(f"{name} lacks a payload, and no disk loses a single one: {effect.fields}")

    def _told(self, name: str, message: object) -> None:
        if isinstance(message, Push):
            self._check(self._outgoing.pushed(name, message))
        elif isinstance(message, ChangeReply) and message.code == Code.OK:
            self._check(self._outgoing.answered(name, message))
        elif isinstance(message, ConsumerReply) and message.code == Code.OK:
            self._check(self._outgoing.kept_alive(name, message))

    def _made(self, topic: Topic) -> None:
        """One creation makes one topic, however often and however late it comes."""
        if topic.creation_id in self._creations:
            self._fail(f"topic {topic.name} was made again, by a creation that made it before")
        self._creations.add(topic.creation_id)

    def _deleted(self, name: str, writes: list[StoreWrite]) -> None:
        """Only a tombstone permits deleting a replica."""
        for write in writes:
            if isinstance(write, DropPartition) and write.uid not in self.mesh.coordinator.tombstones:
                self._fail(f"{name} deletes p{write.uid}, of which there is no tombstone")

    def _appended(self, node: Node, writes: list[StoreWrite]) -> None:
        """No record is of a feature level that some assigned replica lacks."""
        for write in writes:
            if isinstance(write, AppendLog) and (level := max(e.record.version for e in write.entries)) > 1:
                for name in self.mesh.assigned(write.uid):
                    if self.mesh.nodes[name].level < level:
                        self._fail(
                            f"{node.name} p{write.uid}: a record of level {level}, and {name} has a replica and is at"
                            f" {self.mesh.nodes[name].level}"
                        )

    def _buried(self, uid: int) -> None:
        """A tombstone goes when nobody needs it any more."""
        for name, node in self.mesh.nodes.items():
            if node.disk.holds(uid):
                self._fail(f"the tombstone of p{uid} is removed, and {name} has not deleted it")

    def _count_turn(self, name: str) -> None:
        """A broker that never finishes its work is caught in a loop."""
        second = self.mesh.world.now_us // 1_000_000
        if second != self._second:
            self._second, self._turns = second, {}
        turns = self._turns[name] = self._turns.get(name, 0) + 1
        if turns > _TURNS_MAX:
            self._fail(f"{name} takes more than {_TURNS_MAX} turns in one second: it is never done")

    def _framed(self, node: Node, frame: PeerFrame) -> None:
        """Statements are true; and no broker sends records at every answer that logs differ, without end."""
        if len(frame.mismatches) > _MISMATCHES_MAX:
            self._fail(f"{node.name} says more than {_MISMATCHES_MAX} times in one frame that logs differ")
        if wrong := self.promises.broken_by(node, frame):
            self._fail(f"{node.name} {wrong}")

    def _look(self, node: Node, partition: Partition, seen: _Seen) -> None:
        replica, timeline = partition.replica, partition.timeline
        log = replica.log  # its fields are what the replica's properties return, in a fraction of their time
        if log.epoch != seen.epoch or log.durable_epoch != seen.durable_epoch:
            if log.epoch < seen.epoch or log.durable_epoch < seen.durable_epoch:
                self._fail(f"{node.name} p{partition.uid}: the epoch fell from {seen.epoch} to {log.epoch}")
            seen.epoch, seen.durable_epoch = log.epoch, log.durable_epoch
        leading = replica.leading
        if leading is not None and leading.epoch != seen.led:
            seen.led, seen.counts = leading.epoch, []
            self._led(node, partition)
        seen.synced = log.synced
        if replica.installing != seen.installing:
            seen.installing = replica.installing
            if replica.installing:
                self._begun_anew(node, partition)
            else:
                self._filled(node, partition)
            seen.commit = min(seen.commit, log.commit)
        elif replica.installing:
            seen.commit = min(seen.commit, log.commit)  # and once more, at once
        if log.commit != seen.commit:
            if log.commit < seen.commit:
                self._fail(
                    f"{node.name} p{partition.uid}: the commit position fell from {seen.commit} to {log.commit}"
                )
            self._committed(node, partition, seen.commit)
            seen.commit = log.commit
        if leading is not None:
            self._look_at_counts(node, partition, seen, leading)
            self._look_at_pass(partition, seen)
        if timeline.applied != seen.applied and not replica.installing:
            seen.applied = timeline.applied
            wrong = self.ledger.state_differs(partition.uid, timeline)
            if wrong:
                self._fail(f"{node.name} p{partition.uid}: invariant 6: {wrong}")
        if leading is not None:
            self._look_at_order(node, partition, leading)

    def _look_at_leader(self, node: Node, partition: Partition, seen: _Seen, leading: Leading) -> None:
        """What may have changed at a leader though its log and its state have not."""
        self._look_at_counts(node, partition, seen, leading)
        self._look_at_order(node, partition, leading)

    def _look_at_pass(self, partition: Partition, seen: _Seen) -> None:
        """Note what a leader had applied, before this turn at least, when it ended a pass."""
        log, timeline = partition.replica.log, partition.timeline
        if timeline.passes.running is None:
            return
        for at in range(timeline.applied + 1, log.end + 1):
            entry = log.get(at)
            if entry is not None and entry.record.kind == RecordKind.PASS:
                self.ledger.ends(partition.uid, entry.record, seen.applied)

    def _look_at_counts(self, node: Node, partition: Partition, seen: _Seen, leading: Leading) -> None:
        uid = partition.uid
        if uid in partition.ctx.gathering._uids:
            self.promises.gathered(partition)
        counts = list(map(_COUNT_OF, leading._progress.values()))
        if counts == seen.counts:
            return
        if wrong := self.promises.miscounted(node, partition):
            self._fail(f"{node.name} {wrong}")
        found = self.mesh.coordinator.nodes.get(uid)
        if found is not None and found[1].epoch == leading.epoch:
            seen.counts = counts

    def _look_at_order(self, node: Node, partition: Partition, leading: Leading) -> None:
        if partition.timeline.order.kind == "timeline" or not leading.serving:
            return
        if wrong := self.precedence.overtaken(node.name, partition, self.mesh.world.now_us):
            self._fail(f"{node.name} {wrong}")

    def _begun_anew(self, node: Node, partition: Partition) -> None:
        """Its data are wiped for a snapshot: no commit may rely on them, unless they were damaged before."""
        if node.disk.is_damaged(partition.uid):
            return
        found = self.mesh.coordinator.nodes.get(partition.uid)
        me = (node.name, node.disk.store_id)
        if found is not None and me in [(member.broker_id, member.store_id) for member in found[1].isr]:
            self._fail(f"{node.name} p{partition.uid}: a member of the ISR is wiped for a snapshot")

    def _filled(self, node: Node, partition: Partition) -> None:
        """Until it is proven, its disk says that it was filled: a crash must not make it forget."""
        if node.disk.timeline.get(layout.head(partition.uid, b"X")) != layout.UNPROVEN:
            self._fail(f"{node.name} p{partition.uid}: it was filled, and its disk does not say so")

    # -------------------------------------------------------------- leaders and commits

    def _led(self, node: Node, partition: Partition) -> None:
        """Invariant 1: one leader an epoch, and it has every record that was committed in an earlier one.

        It may learn late that it leads: by then another one may have committed more, in a later epoch.
        """
        leading, uid = partition.replica.leading, partition.uid
        assert leading is not None
        who = (node.name, node.incarnation)
        if self._leaders.setdefault((uid, leading.epoch), who) != who:
            other = self._leaders[uid, leading.epoch][0]
            self._fail(f"p{uid}: epoch {leading.epoch} is led by {other} and by {node.name}")
        log, committed = partition.replica.log, self.ledger.epochs(uid)
        epochs = {sequence: epoch for sequence, epoch in committed.items() if epoch < leading.epoch}
        end = max(epochs, default=0)
        if log.end < end:
            self._fail(f"{node.name} leads p{uid} with {log.end} records, {end} were committed: invariant 1")
        for sequence in range(max(log.start, 1), end + 1):
            if sequence in epochs and log.epoch_at(sequence) != epochs[sequence]:
                self._fail(f"{node.name} leads p{uid} with another record {sequence} than was committed")

    def _record(self, node: Node, partition: Partition, sequence: int) -> Record | None:
        """A record of a replica: from its memory, or from its disk if it was let go already."""
        entry = partition.replica.log.get(sequence)
        if entry is not None:
            return entry.record
        held = node.disk.record(partition.uid, sequence)
        if not isinstance(held, bytes):
            return None
        known = self.ledger.record(partition.uid, sequence)
        return known if known is not None and encode_record(known) == held else decode_record(held)

    def _committed(self, node: Node, partition: Partition, before: int) -> None:
        """The commit position has moved: compare the records, and look whether all that must hold them do."""
        replica, uid = partition.replica, partition.uid
        for sequence in range(before + 1, replica.commit + 1):
            record = self._record(node, partition, sequence)
            if record is not None:
                wrong = self.ledger.committed(uid, record)
                wrong = (
                    wrong or self._without_settings(partition, record) or self._too_fast(partition, record)
                )
                wrong = wrong or self.promises.overtaken(uid, sequence)
                wrong = wrong or self._lasting.cut_short(record, self.mesh.world.now_us)
                wrong = wrong or self._handed.ran_out(record)
                if wrong:
                    self._fail(f"{node.name} p{uid}: {wrong}")
        if replica.leading is not None:
            self._outgoing.committed(uid, replica.leading.epoch)
            first = max(before + 1, replica.commit - _LOOKED_AT)
            wrong = self.copies.missing(uid, first, replica.commit) or self.copies.too_few(
                uid, replica.commit
            )
            if wrong:
                self._fail(f"{node.name} has committed p{uid} up to {replica.commit}: {wrong}")

    def _without_settings(self, partition: Partition, record: Record) -> str:
        """Look whether a message came before the settings that its topic was created with."""
        topic = self.mesh.coordinator.topics.get(partition.topic.name)
        if record.kind != RecordKind.INSERT or topic is None or topic.settings.update != topic.creation_id:
            return ""
        if self.ledger.reference(partition.uid).settings.version >= topic.settings.version:
            return ""
        return f"record {record.sequence} is an INSERT before the settings that the topic was created with"

    def _too_fast(self, partition: Partition, record: Record) -> str:
        """Look whether a limited topic is leased faster than it may be, unless it was changed since."""
        found = self.mesh.coordinator.topics.get(partition.topic.name)
        reference = self.ledger.reference(partition.uid)
        settings = reference.settings
        if (
            found is None
            or found.settings.version != settings.version
            or not self._rates.is_news(partition.uid, record)
        ):
            return ""
        naive = self.ledger.naive(partition.uid)
        return self._rates.exceeded(naive, record, settings, self.mesh.world.now_us)

    def _node_changed(self, uid: int) -> None:
        """A new member of the ISR holds all that was ever committed, and there are min_isr members."""
        wrong = self.copies.missing_anywhere(uid) or self.copies.too_few_members(uid)
        if wrong:
            self._fail(f"the ISR of p{uid} has changed: {wrong}")

    def _partition(self, name: str, uid: int) -> Partition | None:
        core = self.mesh.nodes[name].core
        return core.partition(uid) if core is not None else None

    # -------------------------------------------------------------- crashes and starts

    def started(self, node: Node) -> None:
        """Invariant 7: everything synced before is there again. The contents of its memory are forgotten."""
        assert node.core is not None
        name = node.name
        for uid, seen in self._seen.pop(name, {}).items():
            log = node.recovered.get(uid)
            told = log is not None and bool(log.damaged or log.installing or log.unproven)
            if log is not None and node.disk.is_damaged(uid) and not told:
                self._fail(f"{name} p{uid}: a record in its log is lost or damaged, and it is used as it is")
            if log is None or node.fresh_disk or seen.synced == 0 or node.disk.is_damaged(uid):
                continue
            if log.damaged:
                self._fail(f"{name} p{uid}: damaged after a crash: {log.damaged}")
            if not log.installing and log.log_end < seen.synced:
                self._fail(f"{name} p{uid}: reopened with {log.log_end} records, {seen.synced} were synced")
            if log.epoch < seen.durable_epoch:
                self._fail(f"{name} p{uid}: reopened in epoch {log.epoch} after {seen.durable_epoch}")

    # -------------------------------------------------------------- in full

    def level(self) -> bool:
        """Whether every member of every ISR has applied all that is committed."""
        for uid, (_, found) in self.mesh.coordinator.nodes.items():
            applied = self.ledger.reference(uid).applied
            for member in found.isr:
                partition = self._partition(member.broker_id, uid)
                if partition is None or partition.timeline.applied != applied:
                    return False
        return True

    def in_full(self, *, quiet: bool) -> None:
        """Every replica that has applied what is committed equals the reference, on disk too, payloads included, and
        the reference what the rules come to.

        Args:
            quiet: the whole ISR has had the time to come level, so every member must be such a replica.
        """
        for uid, (_, found) in self.mesh.coordinator.nodes.items():
            reference = self.ledger.reference(uid)
            if wrong := self.ledger.rules_differ(uid):
                self._fail(f"p{uid}: {wrong}")
            for member in found.isr:
                holder = self.mesh.nodes[member.broker_id]
                partition = self._partition(member.broker_id, uid)
                if partition is None or holder.disk.store is None:
                    if quiet:
                        self._fail(f"p{uid}: {member.broker_id} is a member of the ISR and does not hold it")
                    continue
                applied = partition.timeline.applied
                if quiet and applied != reference.applied:
                    self._fail(f"{member.broker_id} p{uid}: applied {applied} of {reference.applied} records")
                for text in differences(holder.disk.store, partition, reference, reopen=quiet):
                    self._fail(f"{member.broker_id} p{uid}: {text}")
                for text in memory.leaks(partition.timeline):
                    self._fail(f"{member.broker_id} p{uid}: {text}")
                if applied == reference.applied and not partition.replica.installing:
                    for text in misplaced(holder.disk.store, partition, reference, self.ledger.brought(uid)):
                        self._fail(f"{member.broker_id} p{uid}: {text}")
        if quiet:
            for name, node in self.mesh.nodes.items():
                if node.core is not None and (texts := memory.excess(node.core, node.now())):
                    self._fail(f"{name} keeps too much: " + "; ".join(texts[:3]))
