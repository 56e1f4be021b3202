"""One partition at this broker: its log, the state that applying the log makes, and the callers that wait for answers.

    request ─► queue ─► record ─► log ─► (synced by the maximal ISR) committed ─► applied ─► answer
                                   └─► cold ids are read meanwhile ────────────────┘

How a request becomes a record and gets its answer is `Proposals`' business, how records come into the timeline that of
`Applying`, and what there is to read that of `Contents`. Here these are put together, and peers and the log are heard.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from dueq import limits
from dueq.core.delivery.dispatch import TopicDispatcher
from dueq.core.partition.ageing import Ageing
from dueq.core.partition.applying import Applying
from dueq.core.partition.body_requests import check_body
from dueq.core.partition.care import Care
from dueq.core.partition.checkpoints import Checkpoints
from dueq.core.partition.cold_reading import ColdReading
from dueq.core.partition.contents import Contents
from dueq.core.partition.dead_letters import DeadLetters
from dueq.core.partition.filling import Filling
from dueq.core.partition.filtered_walk import FilteredWalk
from dueq.core.partition.fullness import UnderWay, fullness, fullness_of_names
from dueq.core.partition.jobs import Jobs
from dueq.core.partition.levels import Levels
from dueq.core.partition.lookups import Lookups, Then, ThenNames, message_document
from dueq.core.partition.lost_payloads import LostPayloads
from dueq.core.partition.passes import Passes
from dueq.core.partition.payloads import cached_payloads
from dueq.core.partition.proposals import Proposals
from dueq.core.partition.recurrence_requests import check_recurrence
from dueq.core.partition.recurrences import Recurrences
from dueq.core.partition.requests import (
    Refusal,
    check_change,
    check_chunk,
    check_store,
    check_topic,
)
from dueq.core.partition.settings import SettingsCare
from dueq.core.partition.triggers import TriggerCare
from dueq.core.partition.uploads import Uploads
from dueq.core.ports.entry import Entries, State, keys_of
from dueq.core.ports.events import Route
from dueq.core.ports.membership import PartitionAssignment, Topic
from dueq.core.ports.persistence import (
    ChunkRead,
    CreatePartition,
    PayloadsRead,
    RecoveredPartition,
)
from dueq.core.replication.confirming import inherited_from_us
from dueq.core.replication.installing import SnapshotService
from dueq.core.replication.replica import Replica
from dueq.core.state.applied import Applied, RequestResult
from dueq.core.state.cold import ColdIds
from dueq.core.state.matching import RowFilter
from dueq.core.state.order import order_of
from dueq.core.state.pass_table import Pass
from dueq.core.state.timeline import AGE_STEP_MS, Timeline
from dueq.core.turn.context import Context
from dueq.core.turn.peers import Peer
from dueq.errors import UnknownVersion
from dueq.instant import Now
from dueq_codecs.messages import (
    Ack,
    Append,
    ChangeRequest,
    ChunkRequest,
    Code,
    JobAsk,
    JobTell,
    SnapshotChunk,
    SnapshotRequest,
    UploadAck,
    UploadChunk,
    UploadWanted,
)
from dueq_codecs.records import LogEntry, Record, RecordKind, RequestRef
from dueq_codecs.topic_settings import TopicSettings


class Partition:
    """One replica of one partition, with everything that hangs on it."""

    def __init__(
        self,
        ctx: Context,
        topic: Topic,
        index: int,
        dispatcher: TopicDispatcher,
        recovered: RecoveredPartition | None,
        now: Now,
    ) -> None:
        assignment: PartitionAssignment = topic.partitions[index]
        self.ctx, self.topic, self.index, self.uid = ctx, topic, index, assignment.uid
        self.replicas = assignment.replicas
        self.dispatcher = dispatcher
        self.hot_rows_max = limits.HOT_ROWS_MAX
        self.log_cache_bytes = limits.LOG_CACHE_BYTES
        self.broken = ""
        """Why nothing more is applied here: a newer build wrote it. The log goes on; its data stays as it is."""
        usable = recovered if recovered is not None and not recovered.damaged else None
        self.replica = Replica(ctx, self.uid, assignment.replicas, topic.min_isr, recovered, self)
        self.timeline = self._timeline_of(usable)
        self.contents = Contents(self)
        self.jobs = Jobs(ctx, self)
        self.recurrences = Recurrences(ctx, self)
        self._settings = SettingsCare(ctx, self)
        self._passes = Passes(ctx, self)
        self._cares: tuple[Care, ...] = (
            self.jobs, self._settings, self._passes, self.recurrences, DeadLetters(ctx, self),
            Ageing(ctx, self), TriggerCare(self),
        )  # fmt: skip
        self.levels = Levels(ctx, self)
        self.uploads = Uploads(ctx, self.replica, self._orphans(usable), now)
        self._snapshots = SnapshotService(ctx, self.replica)
        self._filling = Filling(ctx, self.replica, topic.name, self._wiped, self._filled)
        self._proposals = Proposals(ctx, topic, self.replica, self.uploads, dispatcher, self)
        self.checkpoints = Checkpoints(ctx, self, self.timeline, now)
        self._lost_payloads = LostPayloads(ctx, self.replica, self._snapshots, self.checkpoints)
        self._lookups = Lookups()
        self._reading = ColdReading(ctx, self.timeline, self._was_read, self._became_hot)
        self._applying = Applying(ctx, self.replica, self._reading, self)
        self._closed = False
        if recovered is None:
            ctx.persist(CreatePartition(self.uid, topic.name))
        elif usable is not None:
            self.appended(usable.tail, now)
            self._applying.pump(now)

    def _timeline_of(self, recovered: RecoveredPartition | None) -> Timeline:
        """Return the state of the checkpoint, or an empty one: a newer build's stays on the disk as it is."""
        place, level = (self.index, self.topic.home_partitions), self.ctx.settings.feature_level
        try:
            if recovered is not None and recovered.unknown:
                raise UnknownVersion(recovered.unknown)
            order = order_of(self.topic.kind)
            return Timeline(
                self.uid, recovered, self.hot_rows_max, place=place, order=order, build_level=level
            )
        except UnknownVersion as error:
            self.stop(str(error))
            return Timeline(self.uid, None, self.hot_rows_max, place=place, build_level=level)

    def stop(self, reason: str) -> None:
        """Apply nothing more: a newer build wrote the next record."""
        self.broken = reason
        self.ctx.log("error", "partition.stopped", uid=self.uid, reason=reason)
        self.replica.decline()
        self.ctx.attend(self.uid)

    def _orphans(self, recovered: RecoveredPartition | None) -> list[int]:
        """Uploads on the disk that nothing names, as far as this build can tell."""
        return [] if recovered is None or self.broken else recovered.uploads

    # -------------------------------------------------------------- requests

    @property
    def epoch(self) -> int:
        """The epoch of the present leadership (of the replica, when it does not lead)."""
        return self.replica.epoch

    @property
    def serving(self) -> bool:
        """Whether this broker leads it, and has applied the barrier of its leadership."""
        return self.replica.serving

    @property
    def log_end(self) -> int:
        """Sequence of the last record."""
        return self.replica.end

    def next_ms(self, after_ms: int) -> int | None:
        """Return the next instant (Unix ms) at which a message in memory is due or a recurrence ticks, if any."""
        return self.timeline.next_ms(after_ms)

    @property
    def level(self) -> int:
        """The partition's feature level (see `Levels`)."""
        return self.timeline.level

    @property
    def settings(self) -> TopicSettings:
        """The newest settings that are known here, from the log or from the coordinator: either may be ahead."""
        applied, known = self.timeline.settings, self.topic.settings
        return applied if applied.version > known.version else known

    def topic_changed(self, topic: Topic, now: Now) -> None:
        """The coordinator has told of a change of the topic."""
        self.topic = topic
        self._settings.look(now)

    def request(
        self, route: Route, request: ChangeRequest, bodies: list[bytes | memoryview], now: Now
    ) -> Refusal | None:
        """Take a client's change; it is answered when it has been applied."""
        if self._proposals.repeats(route, request):
            return None  # whatever the limits are by now
        refusal = check_change(request, bodies, self.settings, now) or check_topic(request, self.topic)
        if refusal is None and request.kind == RecordKind.SETTINGS:
            return self._settings.wait(route, request, now)
        if refusal is None and self.serving and self._settings.missing:
            refusal = Refusal(Code.BUSY, f"the settings of {self.topic.name!r} are not in the log yet", 50)
        if refusal is None and request.kind == RecordKind.RECURRENCE:
            refusal = check_recurrence(request, self.topic, self.settings)
        if refusal is None and self.serving:
            refusal = check_body(request, bodies, self.settings, self.timeline.bodies)
        if refusal is None:
            refusal = self._proposals.request(route, request, bodies[0] if bodies else b"", now)
        return refusal

    def named(self, record: Record) -> Entries:
        """Return the messages that a record names, as they are now; state ABSENT for those not in memory."""
        return self.timeline.rows((record.target_sequence << np.uint64(16)) | record.target_row)

    def fullness(self, request: ChangeRequest, under_way: UnderWay) -> Refusal | None:
        """Return why there is no room for what a request would have this replica keep, or None."""
        return fullness(self.timeline, request, under_way)

    def fullness_of_names(self, request: ChangeRequest) -> Refusal | None:
        """Return why there is no room for more unique keys, if a request has any; or None."""
        return fullness_of_names(self.timeline, request)

    def answered(self, request: ChangeRequest) -> RequestResult | None:
        """Return what a request was answered that has taken effect; None: it has not, or that is not remembered."""
        named = RequestRef(request.client_id, request.sequence, request.digest, request.rows)
        return self.timeline.answered(named, request.kind, request.job)

    def will_have_body(self, name: bytes) -> bool:
        """Return whether a shared body of this name is kept, and its grace lasts until the next record is applied."""
        body = self.timeline.bodies.by_name.get(name)
        records = self.log_end + 1 - self.applied  # each may make the partition older, the next one included
        if body is None or body.until_ms <= self.timeline.age_ms + records * AGE_STEP_MS:
            return False
        entries = map(self.replica.entry, range(self.applied + 1, self.log_end + 1))
        return not any(entry is None or _sets_grace(entry.record, name) for entry in entries)

    def filtered_walk(self, wanted: RowFilter) -> FilteredWalk:
        """Return a way through the waiting messages that match a filter, as the last checkpoint has them."""
        return FilteredWalk(self.ctx, self, wanted, self.applied + 1)

    def left_of_pass(self, run: Pass) -> int:
        """Return how many messages are still to be looked at by a pass, at most."""
        return max(run.left - max(self._passes.looked(run) - run.done, 0), 0)

    def chunk(
        self, route: Route, request: ChunkRequest, bodies: list[bytes | memoryview], now: Now
    ) -> Refusal | None:
        """Take one chunk of a long payload."""
        refusal = check_chunk(request, bodies, self.settings)
        if refusal is None and not self.replica.serving:
            refusal = Refusal(Code.NOT_LEADER, f"partition {self.uid} is not served here (yet)", 50)
        if refusal is None:
            refusal = check_store(self.ctx.inserts_refused)
        if refusal is None:
            refusal = self.uploads.chunk_received(route, request, bodies[0], now)
        self.ctx.attend(self.uid)
        return refusal

    # -------------------------------------------------------------- records

    def end_turn(self, now: Now) -> None:
        """Make records of what has come in, order the writes, and send to the followers."""
        if self._closed:
            return
        self._proposals.end_turn(now)
        # A follower may have applied what comes with this turn: the log goes first, then the checkpoint.
        self.replica.end_turn(now)
        self._maintain(now)
        self.replica.send(now)

    def propose(self, record: Record, now: Now, body: bytes = b"") -> int:
        """Append a record of the leader's own making; returns its sequence, 0 when too much is not applied yet."""
        return self._proposals.propose(record, now, body)

    def confirmed(self, now: Now) -> bool:
        """Whether it is certain that no other replica has led until lately, so that a push is allowed."""
        return self.replica.confirmed(now)

    def ask(self, now: Now) -> None:
        """Something waits until that is certain."""
        self.replica.ask(now)

    def read_on(self) -> None:
        """Somebody whose turn it is waits for the disk: read what the window wants."""
        self.ctx.touch(self)

    def in_touch(self, now: Now) -> bool:
        """Whether every ISR member has answered lately, so that a lease may soon be committed."""
        return self.replica.in_touch(now)

    @property
    def leases_from_us(self) -> int:
        """From when inherited leases count (mono): an earlier leader cannot have pushed them later."""
        return inherited_from_us(self.replica.acked_at_us)

    def barred(self, rows: Entries) -> npt.NDArray[np.bool_] | None:
        """Return which entries must not be delivered, their job being undecided or at its end; None: all may."""
        return self.timeline.jobs.barred(rows)

    def payloads_read(self, done: PayloadsRead | ChunkRead, now: Now) -> bool:
        """Payloads for consumers were read; returns whether all that is still wanted could be."""
        return self.dispatcher.payloads_read(done, now)

    def served_by(self, broker_id: str, now: Now) -> None:
        """Another broker serves it."""
        self.dispatcher.served_by(self.uid, broker_id, now)

    def cached_payloads(self, entries: Entries) -> list[bytes | memoryview | None]:
        """Return the inline payloads that are still in memory with their record."""
        return cached_payloads(self.replica.entry, entries)

    # -------------------------------------------------------------- the replica's owner

    def appended(self, entries: list[LogEntry], now: Now) -> None:
        """Begin to read what applying the entries will need."""
        self.ctx.touch(self)
        for entry in entries:
            for number in entry.record.upload.tolist():
                self.uploads.named(number, entry.record.sequence)
            if not self.broken:
                self._applying.appended(entry.record)

    def _was_read(self, now: Now) -> None:
        """Something was brought into memory that was waited for."""
        self._lookups.read(now)
        self._applying.pump(now)

    def _became_hot(self, hot: Entries) -> None:
        """Messages have come into the hot window."""
        if self.replica.serving:
            self.dispatcher.became_hot(self.uid, hot)
        self.ctx.touch(self)

    def truncated(self, entries: list[LogEntry]) -> None:
        """These records will never be applied."""
        for entry in entries:
            self.timeline.unpin(entry.record)
            self.uploads.orphaned(entry.record.upload.tolist(), self.ctx.turn)

    def committed(self, now: Now) -> None:
        """Apply what can be applied."""
        self._applying.pump(now)

    def leadership_lost(self, now: Now) -> None:
        """Answer everybody who waits: another leader may still commit the records in the log."""
        self._proposals.leadership_lost(now)
        self.checkpoints.leadership_lost()
        for care in self._cares:
            care.end()
        self.levels.leadership_lost()
        self._lookups.leadership_lost(now)
        self.uploads.leadership_lost()
        self.dispatcher.unlead(self.uid, now)
        self.ctx.stir(self.topic.name)  # for the credit that its leases held, and the pulls that waited
        self.ctx.attend(self.uid)

    def missing_upload(self, entry: LogEntry, leader: str) -> bool:
        """Whether chunks that the record names are not here yet."""
        if not len(entry.record.upload):
            return False
        return self.uploads.missing(entry, leader, self.ctx.turn)

    def is_full(self) -> bool:
        """Whether committed records that wait for the disk to be applied fill the memory that there is for them."""
        waits = self.applied < self.replica.commit and not self.broken
        return waits and self.replica.cached_bytes > self.log_cache_bytes + 2 * limits.UNAPPLIED_BYTES_MAX

    def level_of_all(self) -> int:
        """Return the feature level that every assigned replica has announced; 0: nothing is known of one."""
        return self.levels.of_all()

    def offer_snapshot(self, peer: Peer) -> None:
        """Have the follower begin anew."""
        self._snapshots.offer(peer)

    def missed_record(self, peer: Peer, sequence: int, now: Now) -> None:
        """The disk does not give a record that the follower lacks."""
        self._lost_payloads.missed_record(peer, sequence, now)

    # -------------------------------------------------------------- applying

    def applied_leading(self, record: Record, applied: Applied, now: Now) -> None:
        """A record was applied at its leader: answer the requests that waited for it, and tell those it concerns."""
        if self.replica.barrier_applied(record):
            self.dispatcher.lead(self, now)
            for care in self._cares:
                care.begin(now)
            self.ctx.log(
                "info", "partition.served", uid=self.uid, epoch=record.epoch, sequence=record.sequence
            )
            return
        self._proposals.applied(record, applied)
        if self.replica.serving:
            self.dispatcher.applied(self.uid, record, applied, now)
            for care in self._cares:
                care.applied(record, applied, now)

    # -------------------------------------------------------------- checkpoints, trimming, the hot window

    def _maintain(self, now: Now) -> None:
        if self.replica.installing:
            return
        if self.broken:
            self.replica.shrink_cache(self.replica.end, limits.LOG_CACHE_BYTES)
            return
        checkpoint = self.checkpoints.make(now)
        if checkpoint is not None:
            self._trim(checkpoint.applied, now)
        self.timeline.hot_rows_max = self.hot_rows_max
        if self.serving:
            self.dispatcher.window_kept(self.uid)
        wanted = self.timeline.wants_scan()
        if wanted is not None:
            self._reading.scan(wanted)
        sweep = self.timeline.wants_sweep()
        if sweep is not None:
            self._reading.expired(*sweep)
        after = self.timeline.wants_hashes()
        if after is not None:
            self._reading.hashes(after)
        self._shrink_cache()

    def keep_cached(self, bytes_max: int) -> None:
        """Limit the weight of the applied records that are kept in memory."""
        self.log_cache_bytes = bytes_max
        self._shrink_cache()  # nothing else may happen here for a long time

    def _shrink_cache(self) -> None:
        self.replica.shrink_cache(self.timeline.applied, self.log_cache_bytes)

    def _trim(self, applied: int, now: Now) -> None:
        """Give up the log before the checkpoint, but for what followers need and a bounded reserve."""
        limit = applied + 1
        reading = self._snapshots.needed_from(now)
        if reading is not None:
            limit = min(limit, reading)
        if held_from := self.replica.trim(limit, now):
            self.uploads.trimmed(held_from)

    def tick(self, now: Now) -> bool:
        """Periodic care; returns whether more is wanted soon."""
        wants = self.replica.tick(now)
        wants = self._filling.tick(now) or wants
        if not self.uploads.idle:
            self.uploads.tick(now)
            wants = True
        self._applying.pump(now)
        wants = self.levels.tick(now) or wants
        for care in self._cares:
            wants = care.tick(now) or wants
        return wants

    # -------------------------------------------------------------- messages of peers

    def ack_received(self, peer: Peer, ack: Ack, asked_us: int, now: Now) -> None:
        """A follower has synced records; `asked_us`: (mono) when the latest of our frames left that it had then."""
        if self.replica.ack_received(peer, ack, asked_us, now):
            self.ctx.touch(self)

    def append_received(self, peer: Peer, append: Append, now: Now) -> None:
        """Records (or a probe) from the leader."""
        self.ctx.touch(self)
        self.replica.append_received(peer, append, now)

    def snapshot_requested(self, peer: Peer, request: SnapshotRequest, now: Now) -> None:
        """A follower wants the next part."""
        self._snapshots.requested(peer, request, now)

    def snapshot_received(self, peer: Peer, chunk: SnapshotChunk, body: bytes | memoryview, now: Now) -> None:
        """The leader offers a snapshot, or sends a part of one."""
        self._filling.received(peer, chunk, body, now)

    def _wiped(self) -> None:
        """Reads and checkpoints of the old state that are under way count no more."""
        self._reading.void()
        self.checkpoints.void()
        self.uploads.wiped()

    def _filled(self, recovered: RecoveredPartition, now: Now) -> None:
        """Go on from the snapshot's state."""
        self.broken = ""
        self.timeline = self._timeline_of(recovered)
        self.uploads.recovered(self._orphans(recovered), now)
        self.checkpoints.begin(self.timeline)
        self._reading.begin(self.timeline)

    def upload_received(self, peer: Peer, message: UploadChunk, body: bytes | memoryview, now: Now) -> None:
        """A chunk from the leader."""
        self.uploads.chunk_from_leader(peer, message, body, now)

    def upload_wanted(self, peer: Peer, message: UploadWanted) -> None:
        """A follower lacks an upload."""
        if self.replica.is_leader:
            self.uploads.wanted(peer, message.upload, self._lost_payloads.missed_chunk)

    def upload_acked(self, peer: Peer, ack: UploadAck) -> None:
        """A follower has a chunk."""
        self.uploads.acked(peer, ack)

    @property
    def has_asks(self) -> bool:
        """Whether it has questions about its jobs to other partitions."""
        return bool(self.jobs.asks)

    def take_asks(self) -> list[JobAsk]:
        """Return these questions; they are the caller's from now on."""
        return self.jobs.take_asks()

    def job_asked(self, ask: JobAsk, now: Now) -> JobTell | None:
        """Answer another partition that asks for the state of a job, as far as it is known here."""
        return self.jobs.asked(ask, now)

    def job_told(self, tell: JobTell, now: Now) -> None:
        """Another partition has answered."""
        self.jobs.told(tell, now)

    def close(self, now: Now) -> None:
        """The topic was deleted: nothing comes of the work under way."""
        self._closed = True
        self._applying.close()
        self._reading.void()
        self.checkpoints.void()
        led = self.replica.is_leader
        self.replica.close()
        if led:
            self.leadership_lost(now)

    # -------------------------------------------------------------- reading

    def once_saved(self, then: Callable[[frozenset[int], Now], None], now: Now) -> None:
        """Call `then` once the disk holds all that is applied by now (see `Checkpoints.after`)."""
        self.checkpoints.after(then, now)

    def hold_checkpoints(self) -> None:
        """Let the disk stay as it is until `let_checkpoints_go`."""
        self.checkpoints.hold()

    def let_checkpoints_go(self) -> None:
        """One who held them up needs it no more."""
        self.checkpoints.let_go()

    def look_up(self, ids: ColdIds, then: Then, now: Now) -> None:
        """Call `then` with messages as they are, by their ids, once they are in memory (see `Lookups`)."""
        asked = self._lookups.begin(self.timeline, ids, then, now)
        if asked is not None:
            self._reading.entries(*asked)

    def look_up_names(self, hashes: list[bytes], then: ThenNames, now: Now) -> None:
        """Call `then` with what unique keys or idempotency keys name, by their hashes (see `Lookups`)."""
        wanted = self._lookups.begin_names(self.timeline, hashes, then, now)
        if wanted is not None:
            self._reading.names(wanted)

    def message_document(self, rows: Entries, first: int, now: Now) -> dict[str, Any] | None:
        """Return what there is to say of the one message that `look_up` has found, beside its meta and payload.

        None: it does not exist (any more).
        """
        if rows["state"][0] == State.ABSENT or rows["first"][0] != first:
            return None
        lease = None
        if rows["state"][0] == State.LEASED:
            lease = self.dispatcher.lease_of(self.uid, int(keys_of(rows)[0]), now)
        document = message_document(self.timeline, rows, lease)
        if document is not None:
            document.update(partition=self.index, epoch=self.epoch, applied=self.applied)
        return document

    def confirmed_since(self, since_us: int, now: Now) -> bool:
        """Whether it is certain that no other replica had led at this instant (mono)."""
        return self.replica.confirmed_since(since_us, now)

    def ask_since(self, since_us: int, now: Now) -> None:
        """Something waits until that is certain."""
        self.replica.ask(now, since_us)

    @property
    def applied(self) -> int:
        """Sequence of the last record that is applied here."""
        return self.timeline.applied

    def describe(self, now: Now) -> dict[str, object]:
        """The partition's counts, as applied here; epoch and sequence say how fresh they are."""
        waiting = self.timeline.scheduled_count
        ready = min(self.dispatcher.ready_count(self.uid, now), waiting) if self.replica.serving else 0
        return {
            "uid": self.uid,
            "index": self.index,
            "leader": self.ctx.settings.broker_id if self.replica.is_leader else self.replica.leader,
            "epoch": self.epoch,
            "sequence": self.applied,
            "isr": [member.broker_id for member in self.replica.isr],
            "scheduled": waiting - ready,
            "ready": ready,
            "leased": self.timeline.leased_count,
            "dead": self.timeline.dead_count,
            "feature_level": self.timeline.level,
            "settings_version": self.timeline.settings.version,
        }


def _sets_grace(record: Record, name: bytes) -> bool:
    """Whether a record gives this shared body a grace of a length of its own: it may be none."""
    return record.kind == RecordKind.BODY and record.shared == name and len(record.amount_ms) > 0
