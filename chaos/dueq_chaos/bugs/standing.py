"""Planted bugs of the right to lead at present (unmeasured clocks, stopped replicas), and of the right to delete."""

from __future__ import annotations

from typing import Final

from dueq_chaos.bugs.bug import Bug, change

_STANDING = "core.replication.standing:Standing"
_CLOCK = "core.turn.mesh_time:MeshTime"
_STOPPED = "core.replication.stopped:Stopped"

STANDING: Final = (
    Bug(
        "leads-before-its-clock-is-measured",
        "A broker that has just started stands for election, and pushes, by its own clock.",
        "CockroachDB max-offset; a node must not serve before its clock is checked against the others",
        (
            change(f"{_STANDING}._may_lead", "and self.ctx.clock.settled", ""),
            change(
                "core.broker:BrokerCore._dispatch", "paused=self._clock.hold", "paused=self._clock.steps > 0"
            ),
        ),
        seeds=344,
        finders=(86,),
    ),
    Bug(
        "first-of-all-trusts-its-clock",
        "The first broker to register after a power failure believes that it is alone.",
        "A cluster that is bootstrapped by whoever comes first",
        (change(f"{_CLOCK}._settle", "if now.mono_us < self._alone_at_us else 0", "if False else 0"),),
        seeds=344,
        finders=(86,),
    ),
    Bug(
        "measurements-of-silent-brokers-end",
        "A leader that is cut off from the others believes its own clock again after ten seconds.",
        "ntpd that falls back to the local clock when its peers are unreachable",
        (
            change(
                f"{_CLOCK}.turn",
                "peer.expire(now.mono_us)\n        for",
                "peer.expire(now.mono_us, 0)\n        for",
            ),
        ),
        seeds=512,
        finders=(151,),
    ),
    Bug(
        "stopped-replica-stands",
        "A replica that has met a record of a newer build stands for election, and leads without serving.",
        "Kafka KAFKA-13649: a broker with an older metadata version becomes controller",
        (
            change(f"{_STANDING}._may_lead", "not self._replica.is_stopped or", "True or"),
            change(f"{_STOPPED}.tick", "    replica.hand_over(now,", "    (now,"),
        ),
        seeds=632,
        finders=(158,),
    ),
    Bug(
        "stopped-leader-stays",
        "A leader that meets a record of a newer build goes on leading.",
        "TiDB, etcd: a member that cannot apply must not stay leader",
        (
            change(
                "core.partition.applying:Applying.pump",
                'replica.give_up(now, "a record of an unknown version")',
                "pass",
            ),
            change(f"{_STOPPED}.tick", "    replica.hand_over(now,", "    (now,"),
        ),
        seeds=984,
        finders=(351,),
    ),
    Bug(
        "stopped-replica-is-offered-leadership",
        "A leader hands over to the preferred replica though that one is stopped.",
        "Kafka auto.leader.rebalance: preferred replicas that cannot lead",
        (
            change(
                "core.replication.leading:Leading._has_declined",
                "return peer is not None and",
                "return False and",
            ),
        ),
        seeds=380,
        finders=(95,),
    ),
    Bug(
        "orphans-deleted",
        "A broker deletes replicas that have neither a topic nor a tombstone.",
        "nats-server#7556: data is deleted because its metadata is missing",
        (
            change(
                "core.front.deletions:Deletions.seen",
                "    self.orphans = orphans",
                "    self.orphans = orphans\n"
                "    from dueq.core.ports.persistence import DropPartition\n"
                "    for uid in orphans:\n"
                "        self._ctx.persist(DropPartition(uid))",
            ),
        ),
        seeds=96,
        finders=(22,),
    ),
)
"""All of them."""
