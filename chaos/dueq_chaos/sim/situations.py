"""Situations that a batch of storms should have brought about: each is one in which a check of the product matters.

A situation is seen at the door of one function of the product: `when` is asked with the arguments of the call, before
it. Storms look for them only when they are asked to (`coverage`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from dueq.client.core.changing.request_windows import RequestWindows
from dueq.client.core.changing.uploads import Uploads as SendingUploads
from dueq.client.core.consuming.arrivals import Arrivals
from dueq.client.core.consuming.consumer import Consumer
from dueq.client.core.consuming.holding import Holding
from dueq.client.core.consuming.session import Session
from dueq.client.core.consuming.settling import Settling
from dueq.core.delivery.dispatch import TopicDispatcher
from dueq.core.delivery.lane import Lane
from dueq.core.delivery.lease_changes import LeaseChanges
from dueq.core.delivery.leases import Phase
from dueq.core.delivery.resending import Resending
from dueq.core.delivery.staging import Stager
from dueq.core.front.balance import Balance
from dueq.core.front.browsing import Browsing
from dueq.core.front.clients import FOR_CONSUMERS, Clients
from dueq.core.front.peer_messages import PeerMessages
from dueq.core.partition.checkpoints import Checkpoints
from dueq.core.partition.filling import Filling
from dueq.core.partition.jobs import Jobs
from dueq.core.partition.partition import Partition
from dueq.core.partition.uploads import Uploads
from dueq.core.ports.membership import SetOutcome
from dueq.core.replication.durable_log import DurableLog
from dueq.core.replication.election import Candidacy
from dueq.core.replication.following import Following
from dueq.core.replication.installing import Installation
from dueq.core.replication.isr import Isr
from dueq.core.replication.leading import Leading
from dueq.core.replication.replica import Replica
from dueq.core.replication.standing import Standing
from dueq.core.state.dedup import Deduplication
from dueq.core.state.live import LiveMessages
from dueq.core.state.residency import Residency
from dueq.core.turn.mesh_time import MeshTime
from dueq.errors import OutcomeUnknown
from dueq.limits import ACK_GATHER_MS
from dueq_codecs.messages import Code
from dueq_codecs.records import JobState, RecordKind

_LAST_US: Final = ACK_GATHER_MS * 1000
"""An ack that comes this shortly before the end of its lease must not wait for others."""


@dataclass(frozen=True)
class Situation:
    """Something that seldom happens.

    Attributes:
        name: in words.
        owner, method: at whose call it is seen.
        when: whether it is the case, of the object and the arguments of the call.
    """

    name: str
    owner: type
    method: str
    when: Callable[..., bool]


def _expires_soon(partition: Any, route: Any, request: Any, bodies: Any, now: Any) -> bool:
    lane = partition.dispatcher._lanes.get(partition.uid)
    if request.kind != RecordKind.ACK or lane is None:
        return False
    keys = (request.target_sequence << 16) | request.target_row
    slots = lane.leases.find(keys)
    left = lane.leases.act_us[slots] - now.mono_us
    return bool(((left > 0) & (left < _LAST_US)).any())


def _extends_late(dispatcher: Any, uid: int, keys: Any, tokens: Any, amounts: Any, now: Any) -> bool:
    lane = dispatcher._lanes.get(uid)
    return lane is not None and bool(
        (lane.leases.act_us[lane.leases.find(keys)] - now.mono_us < _LAST_US).any()
    )


def _little_left(lane: Any, slots: Any, tokens: Any, now: Any) -> bool:
    leases = lane.leases
    again = leases.same(slots, tokens) & (leases.phase[slots] == Phase.AGAIN)
    half_us = leases.entry["lease_ms"][slots].astype("i8") * 500
    return bool((again & (leases.act_us[slots] - now.mono_us < half_us)).any())


def _unpushed(dispatcher: Any, uid: int, now: Any) -> bool:
    lane = dispatcher._lanes.get(uid)
    return lane is not None and len(lane.leases.unpushed()) > 0


def _withheld(changes: Any, lane: Any, entries: Any, token: Any, now: Any) -> bool:
    held = [slot for slot in lane.leases.slot_of.values() if lane.leases.phase[slot] == Phase.WITHHELD]
    return bool(held) and bool(set(lane.leases.token[held].tolist()) & set(entries["token"].tolist()))


def _other_lease(stager: Any, done: Any) -> bool:
    asked = stager._reading.get(done.token)
    return asked is not None and not asked[0].leases.same(asked[1], asked[2]).all()


def _same_length(standing: Any, peer: Any, request: Any, now: Any) -> bool:
    own = standing.last()
    return bool((request.last_epoch, request.last_sequence) < own and request.last_sequence >= own[1])


def _lost_takeover(replica: Any, version: int, node: Any, now: Any) -> bool:
    me = replica.ctx.settings
    mine = (node.leader, node.incarnation) == (me.broker_id, me.incarnation)
    return bool(replica.leading is None and mine and node.epoch > replica.epoch)


def _asks_stale_page(browsing: Any, route: Any, request: Any, partition: Any, now: Any) -> bool:
    found = browsing._open.get(request.snapshot)
    return found is not None and not found.led and partition.replica.serving


SITUATIONS: Final = (
    # The log and who leads.
    Situation("a truncation while a sync is under way", DurableLog, "truncate", lambda log, at: bool(log._pending)),
    Situation("a truncation of what was synced", DurableLog, "truncate", lambda log, at: log.synced >= at),
    Situation(
        "a truncation of what was verified for another leader", Following, "_truncate", lambda f, at: f.verified >= at
    ),
    Situation(
        "a truncation with records of this turn", DurableLog, "truncate", lambda log, at: bool(log._new_entries)
    ),
    Situation("a truncation of two epochs at once", DurableLog, "truncate",
              lambda log, at: log.epoch_at(at) != log.last_epoch),
    Situation("a leader that is fenced", Replica, "fenced",
              lambda r, fence, now: r.leading is not None and fence.epoch > r.leading.epoch),
    Situation("a vote asked for by a longer log of an older epoch", Standing, "vote_requested", _same_length),
    Situation("a vote of an earlier round", Candidacy, "vote_received",
              lambda c, peer, vote, now: vote.round != c._round),
    Situation("a node that changes under a candidacy", Candidacy, "_decide",
              lambda c, now, final: c._contender.node_version != c._version),
    Situation("a takeover of unknown outcome", Standing, "candidacy_ended",
              lambda s, done, version, wanted, now: done.outcome is SetOutcome.UNKNOWN),
    Situation("a takeover of which only the node tells", Replica, "node_seen", _lost_takeover),
    Situation("an ack of an earlier epoch", Leading, "ack_received",
              lambda lead, peer, ack, *rest: ack.epoch < lead.epoch),
    Situation("a change of the ISR of unknown outcome", Isr, "_set_ended",
              lambda isr, node, done, now: done.outcome is SetOutcome.UNKNOWN),
    Situation("a change of the ISR after one of unknown outcome", Isr, "_set_ended",
              lambda isr, node, done, now: done.outcome is SetOutcome.DONE and bool(isr._unknown)),
    Situation("a leadership given back to who is preferred", Balance, "tick",
              lambda b, now: bool(b._round) and now.mono_us >= b._at_us),
    # Snapshots and uploads.
    Situation("a snapshot installed across a leadership", Filling, "_installed",
              lambda f, recovered, now: f._installation is not None and f._installation.epoch != f._replica.epoch),
    Situation("a part of another snapshot", Installation, "chunk_received",
              lambda i, chunk, body, now: i._snapshot not in (0, chunk.snapshot)),
    Situation("an offer of a snapshot while standing", Filling, "received",
              lambda f, peer, chunk, body, now: not chunk.snapshot and f._replica.is_standing),
    Situation("an upload that is incomplete when its leader goes", Uploads, "leadership_lost",
              lambda u: any(upload.open for upload in u._led.values())),
    Situation("a record of which an upload lacks some chunks", Uploads, "_ask",
              lambda u, number, held, leader, now: held is not None and bool(held.chunks)),
    Situation("an upload cut off with its record", Partition, "truncated",
              lambda p, entries: any(entry.record.upload.any() for entry in entries)),
    Situation("an upload begun anew at another leader", SendingUploads, "_postponed",
              lambda u, upload, chunk, reply: bool(upload.number or upload.numbers)
              and reply.code in (Code.NOT_LEADER, Code.UNKNOWN_UPLOAD)),
    Situation("a chunk read for a lease that has ended", Stager, "chunk_read",
              lambda s, done: done.token in s._chunks and s._session_of(s._chunks[done.token][0]) is None),
    # Leases and pushes.
    Situation("a leadership that ends with leases not pushed", TopicDispatcher, "unlead", _unpushed),
    Situation("a leadership that begins with leases", TopicDispatcher, "lead",
              lambda d, partition, now: len(partition.timeline.leased()) > 0),
    Situation("an ack in the last 100 ms of its lease", Partition, "request", _expires_soon),
    Situation("an EXPIRE while acks are gathered", Partition, "propose",
              lambda p, record, now: record.kind == RecordKind.EXPIRE and p.uid in p.ctx.gathering),
    Situation("an extension in the last 100 ms", TopicDispatcher, "extending", _extends_late),
    Situation("a push to be repeated with less than half of its lease left", Lane, "_pushable", _little_left),
    Situation("a lease withheld before it was granted", LeaseChanges, "_granted", _withheld),
    Situation("a lease that was refused", TopicDispatcher, "applied",
              lambda d, uid, record, applied, now: len(applied.refused) > 0),
    Situation("a payload read for another lease", Stager, "payloads_read", _other_lease),
    Situation("a repeated push that could not be sent", Resending, "return_unsent",
              lambda s, session, number, now: any(p.number == number and not p.first for p in session.unseen)),
    Situation("a consumer that states an older lease than it has", Resending, "settle_held",
              lambda s, session, frame, lacking: len(frame.held_uid) > 0),
    Situation("a push that was lost", Resending, "_resend", lambda s, session, route, now: True),
    Situation("a relayed frame that came back", PeerMessages, "_relay",
              lambda p, peer, relay, now: not relay.back and isinstance(relay.inner, FOR_CONSUMERS)),
    Situation("a relayed request for somebody else's partition", Clients, "_wrong_place",
              lambda c, request, event, now: bool(event.route.via) and (
                  request.uid not in c._partitions or c._partitions[request.uid].replica.leading is None)),
    # State, checkpoints, jobs, pages.
    Situation("a message named twice in a record", LiveMessages, "change",
              lambda live, record, slots, chosen, applied: len(set(slots.tolist()) - {0}) < int((slots != 0).sum())),
    Situation("a read that waits while a message is finished", Residency, "_take_in",
              lambda r, entries: bool(len(entries)) and bool(r.table.find(
                  (entries["sequence"] << 16) | entries["row"]).any())),
    Situation("an answer that leaves the window", Deduplication, "_drop", lambda d, client_id, sequence: True),
    Situation("a checkpoint wanted while one is under way", Checkpoints, "after",
              lambda c, then, now: c._under_way),
    Situation("a checkpoint held up by a page", Checkpoints, "_due",
              lambda c, now: bool(c._holds) and c._timeline.applied != c._saved),
    Situation("hidden messages to be revealed", Jobs, "_start",
              lambda j, job, now: job.state == JobState.COMMITTED and job.waiting > 0),
    Situation("leases not pushed of a job that is cancelled", Lane, "job_decided",
              lambda lane, job, now: job.state == JobState.CANCELLED
              and bool(((lane.leases.entry["job"] == job.number) & (lane.leases.phase == Phase.GRANTED)).any())),
    Situation("a page of a snapshot of an earlier leadership", Browsing, "requested", _asks_stale_page),
    # Clocks.
    Situation("a measurement across a step of the clock", MeshTime, "observe",
              lambda m, peer, t1, t2, t3, t4, now: m._stepped is not None and 0 < t1 < m._stepped.wall_us),
    # The client.
    Situation("a request whose connection broke", RequestWindows, "link_down",
              lambda windows, number: any(change.link == number for change in windows._asked.values())),
    Situation("a refusal after an attempt that may have been taken", RequestWindows, "_refused",
              lambda windows, change, error, settled=False: change.uncertain),
    Situation("a call that gives up while its request is on its way", RequestWindows, "expire",
              lambda windows, part: not part.resolved and part.change is not None and bool(part.change.link)
              and not part.change.uncertain),
    Situation("a call that gives up while others wait for its request", RequestWindows, "expire",
              lambda windows, part: not part.resolved and part.change is not None and len(part.change.waiting) > 1),
    Situation("a retry of an unknown outcome", RequestWindows, "repeat",
              lambda windows, part: isinstance(part.error, OutcomeUnknown)),
    Situation("a newer lease of a message that is held", Holding, "take",
              lambda h, deliveries: any(delivery.name in h._held for delivery in deliveries)),
    Situation("a push of an earlier attach", Consumer, "pushed",
              lambda c, push, body, link: (push.leader or link.broker_id) in c._leaders.sessions
              and 0 < push.attach < c._leaders.sessions[push.leader or link.broker_id].attach),
    Situation("a push that overtook another", Session, "saw_push",
              lambda s, number, complete: complete and number > s.push_seen + 1),
    Situation("a push that came before its chunks", Session, "saw_push",
              lambda s, number, complete: not complete),
    Situation("leases given up after a long silence", Holding, "lose",
              lambda h, deliveries, returning=False: returning and bool(deliveries)),
    Situation("chunks that have outrun their push", Arrivals, "_assembled", lambda a, name, token, size: True),
    Situation("a decision that somebody already waits for", Settling, "_join",
              lambda s, delivery, waiter, place: delivery in s.finishing),
)  # fmt: skip
"""All that are looked for."""
