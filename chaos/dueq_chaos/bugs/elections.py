"""Planted bugs of leadership: who may lead, epochs, the coordinator's answers."""

from __future__ import annotations

from typing import Final

from dueq_chaos.bugs.bug import Bug, change

_REPLICA = "core.replication.replica:Replica"
_LOG = "core.replication.durable_log:DurableLog"
_STANDING = "core.replication.standing:Standing"
_ISR = "core.replication.isr:Isr"
_LEADING = "core.replication.leading:Leading"
_CANDIDACY = "core.replication.election:Candidacy"

ELECTIONS: Final = (
    Bug(
        "epoch-not-durable",
        "A replica that starts knows only the epoch of its last record.",
        "Raft §5.1: currentTerm is on stable storage; ZooKeeper ZOOKEEPER-4646",
        (change(f"{_LOG}.__init__", "max(recovered.epoch, self.last_epoch)", "self.last_epoch"),),
        seeds=24,
        finders=(5,),
    ),
    Bug(
        "unclean-election",
        "A replica outside the ISR takes over without asking anybody.",
        "Kafka unclean.leader.election, Jepsen Kafka 2013",
        (
            change(f"{_STANDING}._may_lead", "self.in_isr and", "True and"),
            change(
                f"{_CANDIDACY}._decide",
                "consenting = {broker_id for broker_id, vote in self._votes.items() if vote.consent}",
                "consenting = set(self._votes)",
            ),
            change(
                f"{_CANDIDACY}._members",
                "return node.isr if node is not None else ()",
                "return tuple(dict.fromkeys((self._ctx.me, *node.isr))) if node is not None else ()",
            ),
        ),
        seeds=42,
        finders=(18,),
    ),
    Bug(
        "incarnation-ignored",
        "A broker that starts leads what its last life led, in the same epoch.",
        "Kafka KIP-380, KAFKA-7235",
        (
            change(f"{_REPLICA}.node_seen", "and node.incarnation == self.ctx.settings.incarnation", ""),
            change(f"{_REPLICA}.node_seen", "elif mine and node.epoch > self.epoch:", "elif mine:"),
            change(f"{_REPLICA}.lead", "epoch > self.epoch, ", "True, "),
        ),
        seeds=24,
        finders=(0,),
    ),
    Bug(
        "new-store-trusted",
        "A broker that comes back with an empty disk is still the member that it was.",
        "Kafka KIP-903",
        (
            change(f"{_ISR}._is_out", "or peer.store_id != member.store_id", ""),
            change(f"{_LEADING}.advance", "or progress.store_id != member.store_id", ""),
            change(
                "core.replication.followers:Followers._must_hold",
                "progress.best if progress.best_store == peer.store_id else 0",
                "0",
            ),
            change(
                f"{_STANDING}.in_isr",
                "self.ctx.me in self.node.isr",
                "self.ctx.me[0] in [member.broker_id for member in self.node.isr]",
            ),
            change(f"{_CANDIDACY}._decide", "member == self._ctx.me or", "member[0] == self._ctx.me[0] or"),
            change(f"{_CANDIDACY}._voters", "and peer.store_id == member.store_id", ""),
        ),
        seeds=369,
        finders=(123,),
    ),
    Bug(
        "unknown-set-taken-for-failed",
        "A change of the ISR whose outcome is unknown counts as not made.",
        "python-zk/kazoo lock recipe, Curator: a set may have happened though its answer was lost",
        (change(f"{_ISR}._set_ended", "self._unknown.update(node.isr)", "pass"),),
        seeds=714,
        finders=(237,),
    ),
    Bug(
        "unknown-set-settled-by-reading",
        "A read decides what became of a change of unknown outcome, though the request may still be on its way.",
        "Kafka KIP-497; ZooKeeper: a lost request may be executed after a read of another session",
        (
            change(
                f"{_LEADING}.node_read",
                "    self.advance(now)",
                "    self.isr._unknown.clear()\n    self.advance(now)",
            ),
        ),
        seeds=2301,
        finders=(445,),
    ),
    Bug(
        "unknown-set-taken-for-done",
        "A change of the ISR whose outcome is unknown counts as made.",
        "python-zk/kazoo: ConnectionLoss does not say what has happened",
        (
            change(
                f"{_ISR}._set_ended",
                "    if done.outcome is SetOutcome.DONE:",
                "    if done.outcome is SetOutcome.UNKNOWN:\n"
                "        version = self._standing.node_version + 1\n"
                "        done = CompareAndSetDone(done.token, done.uid, SetOutcome.DONE, version)\n"
                "    if done.outcome is SetOutcome.DONE:",
            ),
        ),
        seeds=45,
        finders=(12,),
    ),
    Bug(
        "unknown-takeover-taken-for-done",
        "A candidate leads though it does not know whether its compare-and-set has happened.",
        "Kafka KAFKA-9307: a change of roles that ended half-way is taken for done",
        (
            change(
                f"{_STANDING}.candidacy_ended",
                "    if done.outcome is SetOutcome.DONE:",
                "    if done.outcome is SetOutcome.UNKNOWN:\n"
                "        done = CompareAndSetDone(done.token, done.uid, SetOutcome.DONE, self.node_version + 1)\n"
                "    if done.outcome is SetOutcome.DONE:",
            ),
        ),
        seeds=27,
        finders=(6,),
    ),
    Bug(
        "serves-before-its-barrier",
        "A new leader dispatches from what it has applied when it is elected.",
        "Raft §8: a leader must first commit an entry of its own term",
        (
            change(
                f"{_REPLICA}.lead",
                "self.leading.begin(now)",
                "self.leading.begin(now)\n    self.leading.serve()\n    self._owner.dispatcher.lead(self._owner, now)",
            ),
            change(
                "core.partition.partition:Partition.applied_leading",
                "        self.dispatcher.lead(self, now)\n",
                "",
            ),
            change(f"{_REPLICA}.barrier_applied", "leading.serve()", "pass"),
        ),
        seeds=27,
        finders=(2,),
    ),
    Bug(
        "named-though-it-gave-up",
        "A leader that gave up does not have the node say so, and the others wait for as long as they hear it.",
        "dueq itself: a resignation that lost to a change of the ISR was not repeated",
        (
            change(
                "core.replication.resigning:Resignation.tick",
                "if replica.is_leader or not self._is_named():",
                "if True:",
            ),
        ),
        seeds=0,
        finders=(88200006,),
    ),
)
"""All of them, in the order of the rules."""
