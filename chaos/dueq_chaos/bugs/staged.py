"""Planted bugs that storms find seldom or never: they need one instant, one slow disk, or hours without events."""

from __future__ import annotations

from typing import Final

from dueq_chaos.bugs.bug import Bug, change

STAGED: Final = (
    Bug(
        "epoch-answer-ignored",
        "A leader goes on where the follower's log ends, not where their epochs part.",
        "Kafka KIP-279, KAFKA-6361",
        (
            change(
                "core.replication.followers:Followers.mismatch_received",
                "previous = min(mismatch.known_end, own_end, log.end)",
                "previous = min(mismatch.end, log.end)",
            ),
        ),
        seeds=0,
    ),
    Bug(
        "step-not-held",
        "A clock that was set is believed before it is measured anew.",
        "CockroachDB: forward jumps after a migration",
        (
            change("core.broker:BrokerCore._dispatch", "paused=self._clock.hold", "paused=False"),
            change(
                "core.turn.mesh_time:MeshTime.mesh_now_us",
                "correction_us = _correction(known)",
                "correction_us = 0 if self.hold else _correction(known)",
            ),
        ),
        seeds=0,
    ),
    Bug(
        "leap-unnoticed",
        "Mesh time leaps ahead, and deadlines that were set by it stay where they were.",
        "a defect of this product, found by a storm (98300189)",
        (change("core.broker:BrokerCore._tick", "self._follow_clock(now)", "pass"),),
        seeds=0,
    ),
    Bug(
        "set-back-by-too-little",
        "A clock that is ahead is set back by too little: it may still be ahead by a round trip.",
        "CockroachDB and Spanner: a clock that is read without its uncertainty",
        (change("core.turn.mesh_time:_correction", "offset - trip // 2", "offset + trip // 2"),),
        seeds=0,
        finders=(5184, 70138),
    ),
    Bug(
        "cache-drops-what-the-disk-lacks",
        "A record that is committed leaves memory although this replica has not written it yet.",
        "etcd raft: an unstable entry that is dropped before it is stable cannot be read back",
        (
            change(
                "core.replication.replica:Replica.shrink_cache",
                "min(applied, self.synced)",
                "applied",
            ),
        ),
        seeds=0,
    ),
    Bug(
        "credit-for-what-is-over",
        "A consumer that counts more leases than its limit at a leader raises the limit to that number.",
        "ARTEMIS-2664: prefetch exceeded",
        (
            change(
                "client.core.consuming.credit:affordable",
                "if target > share.limit:",
                "if target > share.most:",
            ),
        ),
        seeds=0,
        finders=(71114,),
    ),
    Bug(
        "ack-waits-for-earlier-answers",
        "An ack waits in the client until earlier requests are answered, however soon its lease ends.",
        "Kafka max.in.flight.requests.per.connection: what waits behind unanswered requests may time out unsent",
        (
            change(
                "client.core.consuming.settling:Settling._send",
                "send_by_us=self._context.mono_us + self._linger_us,",
                "",
            ),
        ),
        seeds=0,
        finders=(200848,),
    ),
    Bug(
        "successor-untold",
        "Nobody tells consumers that another broker serves now, so they learn it when they ask the next time.",
        "Kafka KIP-951: clients that learn of a new leader only by asking",
        (
            change(
                "core.delivery.dispatch:TopicDispatcher.served_by",
                "if self._successors.is_news(uid, broker_id, now):",
                "if False:",
            ),
        ),
        seeds=0,
        finders=(184,),
    ),
    Bug(
        "full-of-jobs-for-good",
        "A partition that is full of jobs and otherwise idle grows no older, so it forgets none of them.",
        "Kafka Streams: stream time passes by records only, so suppress() holds what is last until another comes",
        (
            change(
                "core.partition.ageing:Ageing.tick",
                "self._partition.timeline.applied == self._partition.log_end",
                "False",
            ),
        ),
        seeds=0,
        finders=(2631, 20108),
    ),
    Bug(
        "full-of-names-for-good",
        "A partition that is full of idempotency keys refuses all that comes, and so never forgets one.",
        "Kafka Streams: stream time passes by records only",
        (change("core.partition.ageing:_fills_up", "timeline.names_run_out", "False"),),
        seeds=0,
    ),
    Bug(
        "stale-receipt-handed-out",
        'With `ack="on_receipt"` a message is handed out though its ack came too late: another may have it, too.',
        "docs/how-to/receive.md: at most once",
        (
            change(
                "client.aio.consumer:AsyncConsumer._acked",
                "return [delivery for delivery, outcome in pairs if outcome is Outcome.DONE]",
                "return [delivery for delivery, outcome in pairs]",
            ),
        ),
        seeds=0,
    ),
    Bug(
        "listed-wherever-it-waits",
        "A leader lets a pull wait on that is listed, though it was begun anew since, or waits at another route.",
        "a keep-alive that is late, and is taken for one of the present connection",
        (
            change(
                "core.delivery.pulls:Pulls.waiting",
                "if pull is None or pull.session.attach != attach or pull.session.route != route:",
                "if pull is None:",
            ),
        ),
        seeds=0,
    ),
    Bug(
        "last-commit-told-once",
        "The last commit position is sent to a follower once, and may be lost.",
        "a bug that the storms have found here; Kafka KAFKA-19996: a stale high watermark",
        (
            change(
                "core.replication.followers:Followers.tell_commits",
                "peer.tell_commit(Append(replica.uid, self._epoch, match, epoch, replica.commit, []))",
                "peer.appends.append(Append(replica.uid, self._epoch, match, epoch, replica.commit, []))",
            ),
        ),
        seeds=0,
        finders=(16,),
    ),
    Bug(
        "older-process-not-waited-for",
        "The next process of a named consumer gets its leases while the older process is attached.",
        "Kafka KIP-345: two members with one group.instance.id",
        (change("core.delivery.sessions:Sessions._other_life", "elif session.reachable:", "elif False:"),),
        seeds=0,
    ),
    Bug(
        "renewed-after-its-last-attempt",
        "A message that kills every process that takes it goes to the next process of that name for ever.",
        "Sidekiq super_fetch before it knew poison pills",
        (
            change(
                "core.delivery.renewals:Renewals._renew",
                "ends = _last_attempts(entries, lane.partition.settings.max_attempts)",
                "ends = np.zeros(len(entries), np.bool_)",
            ),
        ),
        seeds=0,
    ),
    Bug(
        "renewal-without-its-token",
        "A renewal does not name the lease that it renews. It is refused, and the leader forgets the lease.",
        "a compare-and-set that says nothing to compare with",
        (change("core.delivery.renewals:Renewals._renew", "record.token = leases.token[slots]", "pass"),),
        seeds=0,
    ),
    Bug(
        "triggered-message-left-on-the-disk",
        "A new leader does not look for triggered messages that are only on its disk.",
        "an index in memory that is not made anew after a restart",
        (
            change(
                "core.partition.triggers:TriggerCare.begin",
                "self._partition.look_up(ids, read, now)",
                "pass",
            ),
            change(
                "core.state.residency:Residency._forget",
                "waits &= ~are_triggered(rows)",
                "pass",
            ),
        ),
        seeds=0,
    ),
    Bug(
        "credit-given-up-in-steps-only",
        "Leaders that can each give up little credit keep all of it: one that joins many gets none.",
        "a bug that the storms have found here",
        (
            change(
                "client.core.consuming.leaders:Leaders.balance", "is_short and limit < session.asked", "False"
            ),
        ),
        seeds=0,
    ),
    Bug(
        "another-topic-deleted",
        "A deletion that is repeated ends a topic that was made since under the same name.",
        "dueq itself: requests that named a topic by nothing but its name",
        (
            change(
                "core.front.topics:Topics.delete",
                "DeleteTopic(token, request.topic, request.uid)",
                "DeleteTopic(token, request.topic)",
            ),
        ),
        seeds=0,
    ),
    Bug(
        "another-topic-changed",
        "A change that is repeated is made to a topic that was made since under the same name.",
        "dueq itself: requests that named a topic by nothing but its name",
        (change("core.front.topics:Topics.update", "request.uid not in (0, known.uid)", "False"),),
        seeds=0,
    ),
    Bug(
        "only-the-last-change-known",
        "A change whose answer was lost is stored again if somebody else has changed the topic before the repetition.",
        "dueq itself: a pause that came back after a resume that was confirmed",
        (
            change(
                "core.ports.membership:Topic.has_stored",
                "update == self.settings.update or update in self.earlier_updates",
                "update == self.settings.update",
            ),
        ),
        seeds=0,
    ),
    Bug(
        "grown-isr-counts-late",
        "A leader commits without a joining member until it has heard that it has joined.",
        "Kafka KIP-497: the maximal ISR",
        (change("core.replication.isr:Isr.maximal", "members.update(self._in_flight.isr)", "pass"),),
        seeds=0,
    ),
    Bug(
        "created-again",
        "A creation that comes again makes a topic that was deleted since.",
        "dueq itself: a request that was held up on its way; Kafka: auto-creation by a stale request for metadata",
        (change("cluster.znodes:has_ended", "order.creation_id in creations", "False"),),
        seeds=0,
    ),
    Bug(
        "expired-stays-without-credit",
        "Messages that have expired stay for as long as no consumer has credit.",
        "dueq itself; RabbitMQ: a per-message TTL that is looked at only at the head of a queue that is consumed",
        (
            change(
                "core.delivery.leasing:Leasing.lease",
                "self._look_for_expired(lanes, mesh_ms, now)",
                "pass",
            ),
        ),
        seeds=0,
    ),
    Bug(
        "slots-of-ended-leases-stay",
        "A lease that ends by an ack, a nack, an expiry or a cancel keeps its slot.",
        "limits of concurrency that leak slots until a restart",
        (
            change(
                "core.delivery.leases:LeaseTable.remove",
                "self.group_slots.end(self.entry.take(slots))",
                "pass",
            ),
        ),
        seeds=0,
    ),
)
"""All of them; each is found by a scenario, or a unit test (tests/sim_bugs/test_staged_bugs.py says by which)."""
