"""Planted bugs of the log: matching, truncation, syncing, commits."""

from __future__ import annotations

from typing import Final

from dueq_chaos.bugs.bug import Bug, change

_REPLICA = "core.replication.replica:Replica"
_LOG = "core.replication.durable_log:DurableLog"
_FOLLOWING = "core.replication.following:Following"
_STANDING = "core.replication.standing:Standing"
_ISR = "core.replication.isr:Isr"
_FOLLOWERS = "core.replication.followers:Followers"
_LEADING = "core.replication.leading:Leading"

_NO_ASSERTIONS = (
    change(f"{_LOG}.truncate", 'from_sequence > self.commit, "a', 'True, "a'),
    change(f"{_LOG}.truncate", "self.epoch_at(from_sequence) != self.epoch", "True"),
)
"""The product's own assertions would tell at once: the simulator has to see the harm itself."""

_EMPTY_PROBES = (
    change(
        f"{_FOLLOWERS}._send",
        "entries = log.read(progress.next, limits.APPEND_BYTES, limits.APPEND_RECORDS)",
        "entries = (\n"
        "            log.read(progress.next, limits.APPEND_BYTES, limits.APPEND_RECORDS)\n"
        "            if not probes or progress.next == 1\n"
        "            else []\n"
        "        )",
    ),
    change(f"{_FOLLOWERS}._send", "if entries:", "if entries or probes:"),
)
"""A leader asks with an append without records, as etcd's does, where a follower's log equals its own.

That is no mistake. But dueq's asks with the records that follow, and begins exactly where the two logs part: the first
append that a follower can take ends in what cuts its leftovers. Its log never reaches beyond what it has compared, so
what a follower says of its own end is true by chance; without that, it is wrong.
"""

REPLICATION: Final = (
    Bug(
        "epoch-ignored",
        "A follower takes records from a leader of an older epoch.",
        "Kafka KIP-101; Jepsen etcd 3.4.3: a writer that was replaced and does not know",
        (
            change(f"{_REPLICA}.append_received", "if append.epoch < self.epoch:", "if False:"),
            change(
                f"{_REPLICA}.append_received",
                "self.leading is None or append.epoch >",
                "True or append.epoch >",
            ),
            *_NO_ASSERTIONS,
        ),
        seeds=522,
        finders=(
            173,
            493,
        ),
    ),
    Bug(
        "follower-acks-before-sync",
        "A follower acknowledges records that are not on its disk yet.",
        "Jepsen NATS 2.12.1, nats-server #7567; Kafka KIP-966",
        (
            change(f"{_FOLLOWING}.ack", "min(log.synced, self.verified)", "self.verified"),
            change(f"{_FOLLOWING}.append_received", "if not log.dirty:", "if True:"),
        ),
        seeds=24,
        finders=(0,),
    ),
    Bug(
        "leader-counts-before-sync",
        "A leader counts its own copy of a record before its disk has it.",
        "Jepsen NATS 2.12.1, nats-server #7567",
        (change(f"{_LEADING}.advance", "lowest = replica.synced", "lowest = replica.log.end"),),
        seeds=24,
        finders=(0,),
    ),
    Bug(
        "truncate-to-high-watermark",
        "A replica that starts cuts its log at the commit position that it knows.",
        "Kafka KIP-101",
        (
            change(
                f"{_LOG}.__init__",
                "        held_from = recovered",
                "        keep = max(recovered.commit, recovered.applied)\n"
                "        if keep < recovered.log_end:\n"
                "            self._ctx.persist(TruncateLog(self._uid, keep + 1))\n"
                "        recovered.tail[:] = [e for e in recovered.tail if e.record.sequence <= keep]\n"
                "        recovered.epochs[:] = [p for p in recovered.epochs if p[1] <= keep] or [(0, 0)]\n"
                "        recovered.log_end = keep\n"
                "        held_from = recovered",
            ),
        ),
        seeds=24,
        finders=(
            9,
            0,
        ),
    ),
    Bug(
        "cut-at-late-duplicate",
        "A late copy of an old append cuts what was acknowledged after it.",
        "Raft, figure 2: entries are deleted only where they conflict",
        (
            change(
                f"{_FOLLOWING}._take",
                "    end = previous\n",
                "    end = previous\n"
                "    if entries and entries[-1].record.sequence < log.end:\n"
                "        self._truncate(entries[-1].record.sequence + 1)\n",
            ),
            *_NO_ASSERTIONS,
        ),
        seeds=54,
        finders=(3,),
    ),
    Bug(
        "ack-of-own-end",
        "A follower acknowledges the end of its own log without comparing it with the leader's.",
        "Kafka KAFKA-13141, PR apache/kafka#11136",
        (
            change(
                f"{_FOLLOWING}.append_received",
                "self.verified = max(self.verified, grown)",
                "self.verified = max(grown, log.end)",
            ),
            *_EMPTY_PROBES,
        ),
        seeds=57,
        finders=(18,),
    ),
    Bug(
        "commit-beyond-verified",
        "A follower takes over the leader's commit position for records that it has not compared.",
        "Raft, figure 2: commitIndex = min(leaderCommit, index of last new entry)",
        (
            change(
                f"{_FOLLOWING}._follow_commit",
                "min(told, self.verified)",
                "min(told, self._replica.log.end)",
            ),
            *_EMPTY_PROBES,
        ),
        seeds=57,
        finders=(18,),
    ),
    Bug(
        "shrunk-isr-counts-early",
        "A leader commits without a member from the moment it asks for it to leave.",
        "Kafka KIP-497: ISR changes applied before they are confirmed",
        (
            change(
                f"{_ISR}.maximal",
                "members.update(self._in_flight.isr)",
                "members = set(self._in_flight.isr)",
            ),
            change(
                f"{_ISR}.tick",
                "self.set_node(PartitionNode(node.leader, node.incarnation, self._epoch, wanted))",
                "self.set_node(PartitionNode(node.leader, node.incarnation, self._epoch, wanted))\n"
                "        self._ended(now)",
            ),
        ),
        seeds=24,
        finders=(0,),
    ),
    Bug(
        "level-by-known-commit",
        "A follower joins the ISR without the new leader's barrier, if it holds what is known to be committed.",
        "Kafka KAFKA-19996, PR apache/kafka#23024: a follower at a stale high watermark joins",
        (
            change(
                f"{_ISR}.is_level",
                "max(self._barrier, self._replica.commit)",
                "self._replica.commit",
            ),
        ),
        seeds=666,
        finders=(
            221,
            541,
        ),
    ),
    Bug(
        "joins-when-it-answers",
        "A follower joins the ISR as soon as it has answered, whatever it holds.",
        "nats-server #7545, PR nats-io/nats-server#7040: a member that counts before it has caught up",
        (
            change(
                f"{_ISR}.is_level",
                "progress.match >= max(self._barrier, self._replica.commit)",
                "progress.match >= 0",
            ),
        ),
        seeds=66,
        finders=(21, 26),
    ),
    Bug(
        "min-isr-of-requests-only",
        "The ISR shrinks below min_isr, so one disk is enough for a commit.",
        "Jepsen Kafka 2013; Kafka KIP-966",
        (
            change(f"{_ISR}.tick", "if len(wanted) < self._replica.min_isr:", "if len(wanted) < 1:"),
            change(f"{_LEADING}.advance", "if len(self.isr.members) < replica.min_isr:", "if False:"),
            change(f"{_LEADING}._enough_replicas", "return heard >= self._replica.min_isr", "return True"),
            change(f"{_LEADING}.healthy", "return alive >= self._replica.min_isr", "return True"),
        ),
        seeds=24,
        finders=(0,),
    ),
    Bug(
        "trimmed-follower-left-alone",
        "A log is trimmed below what a follower lacks, and no snapshot is offered to it.",
        "camunda PR #4451: the log of the next leader no longer holds what a follower lacks",
        (
            change(
                f"{_REPLICA}.trim",
                "if self.leading is not None:",
                "if False:",
            ),
            change(
                "core.partition.partition:Partition.offer_snapshot", "self._snapshots.offer(peer)", "pass"
            ),
        ),
        seeds=24,
        finders=(
            10,
            0,
        ),
    ),
    # A leader trims only committed records, so every member holds the record before its log, and answers an offer with
    # its position. That check of the follower is planted away too: it is what an old offer meets that comes when the
    # replica has been filled and is counted on. Without the leader's checks alone nothing is harmed.
    Bug(
        "member-wiped-for-snapshot",
        "Neither leader nor follower checks whether commits count on a replica before a snapshot replaces it.",
        "nats-server #7556",
        (
            change(
                f"{_REPLICA}.trim",
                "if self.leading is not None:",
                "if False:",
            ),
            change(
                f"{_FOLLOWERS}._offer_snapshot",
                "and not progress.untrusted",
                "and False",
            ),
            change(
                "core.partition.filling:Filling.received",
                "if replica.can_go_on_from(chunk.applied, chunk.applied_epoch):",
                "if False:",
            ),
        ),
        seeds=570,
        finders=(
            189,
            509,
        ),
    ),
    Bug(
        "filled-member-leads",
        "A member that was filled from a snapshot leads before it holds all that its lost disk had acked.",
        "a bug that the storms have found here",
        (change(f"{_STANDING}.holds_all", "not replica.unproven or", "True or"),),
        seeds=800,
        finders=(141,),
    ),
    Bug(
        "probe-runs-away",
        "Each probe of a silent follower begins where the unanswered one before would have ended.",
        "a bug that the storms have found here; etcd raft: a follower in state probe gets one message at a time",
        (
            change(
                "core.replication.progress:Progress.sent", "if self.state is State.REPLICATE:\n", "if True:\n"
            ),
            # As it was: no window bounds today what may be sent to a follower of which nothing is known, so a probe
            # that has run away comes back with the first answer.
            change(
                f"{_FOLLOWERS}._send",
                "elif probes or progress.next - progress.match <= limits.APPEND_WINDOW_RECORDS:",
                "elif progress.next - progress.match <= limits.APPEND_WINDOW_RECORDS:",
            ),
        ),
        seeds=471,
        finders=(157,),
    ),
    # Trimming alone takes nothing from a member that it lacks, since what is trimmed is committed, and what the member
    # says at last names a place where both logs are. That it has said so before it counts is the second check here: an
    # ack of 0 says only that it follows, and "go on at record 1" leads to what the log no longer holds.
    Bug(
        "unverified-member-not-waited-for",
        "A new leader trims its log before every member has said what it holds.",
        "a bug that the storms have found here; camunda PR #4451",
        (
            change(f"{_FOLLOWERS}.lowest_needed", "return self._log.start", "continue"),
            change(
                f"{_FOLLOWERS}.ack_received",
                "if ack.sequence <= max(progress.match, 0):",
                "if ack.sequence <= progress.match:",
            ),
        ),
        seeds=762,
        finders=(
            253,
            573,
        ),
    ),
    Bug(
        "acks-outlive-the-disk",
        "Acks of a follower's lost disk count for its new disk.",
        "Kafka KIP-903: a broker that comes back with an empty disk",
        (
            change(
                "core.replication.progress:Progress.new_life",
                "self.match = self.told_commit = self.assured_commit = -1",
                "self.told_commit = self.assured_commit = -1",
            ),
            change(
                "core.replication.progress:Progress.new_life",
                "    self._become(State.PROBE, log_start)\n",
                "",
            ),
        ),
        seeds=24,
        finders=(1,),
    ),
    Bug(
        "answer-of-another-record",
        "A deposed leader answers waiting requests when another leader's record of the same number commits.",
        "Kafka KAFKA-20634, PR apache/kafka#22444",
        (
            change(
                "core.partition.proposals:Proposals.leadership_lost",
                "    for waiting in self._waiting.values():",
                "    for waiting in ():",
            ),
            change("core.partition.proposals:Proposals.leadership_lost", "    self._waiting.clear()\n", ""),
            change(
                "core.partition.proposals:Proposals.applied",
                "zip(waiting, applied.results, strict=True)",
                "zip(waiting, applied.results)",
            ),
        ),
        seeds=2727,
        finders=(909,),
    ),
)
"""All of them, in the order of the rules."""
