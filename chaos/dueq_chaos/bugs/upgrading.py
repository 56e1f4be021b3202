"""Planted bugs of feature levels: records that some replica's build cannot apply, and levels that are lost."""

from __future__ import annotations

from typing import Final

from dueq_chaos.bugs.bug import Bug, change

_OF_ALL = "core.partition.levels:Levels.of_all"

UPGRADING: Final = (
    Bug(
        "level-of-the-isr",
        "The level is raised when the ISR runs the new build, without asking replicas that are behind or away.",
        "Elasticsearch: a minimum version of those that have joined, not of those that may come back",
        (
            change(
                _OF_ALL,
                "self._partition.replicas",
                "[member.broker_id for member in self._partition.replica.isr]",
            ),
        ),
        seeds=464,
        finders=(116,),
    ),
    Bug(
        "level-of-the-living",
        "A replica whose broker is away does not hold the level.",
        "Kafka KIP-584: features are finalized by what living brokers support",
        (
            change(
                _OF_ALL,
                "self._partition.replicas",
                "[name for name in self._partition.replicas if name == self._ctx.settings.broker_id"
                " or (name in self._ctx.peers and self._ctx.peers[name].registered)]",
            ),
        ),
        seeds=464,
        finders=(116,),
    ),
    Bug(
        "records-of-the-leaders-level",
        "A new leader writes what its own build knows, from its first record on.",
        "RabbitMQ before feature flags: a mixed cluster in which the newest node decides the form of messages",
        (
            change(
                "core.partition.proposals:Proposals._append",
                "max(record.version, self._partition.level)",
                "max(record.version, self._ctx.settings.feature_level)",
            ),
        ),
        seeds=400,
        finders=(100,),
    ),
    Bug(
        "level-not-in-the-checkpoint",
        "A replica that starts from a checkpoint has forgotten the level.",
        "etcd: a cluster version that is not part of the snapshot",
        (change("core.state.summary:Summary.pack", "if self.level == 1:", "if True:"),),
        seeds=400,
        finders=(100,),
    ),
    Bug(
        "level-follows-the-last-record",
        "The level is that of the last record, so the barrier of the next leader brings it down.",
        "CockroachDB: a cluster version must never go back once a node has seen it",
        (
            change(
                "core.state.timeline:Timeline.apply",
                "self.level = max(self.level, record.version)",
                "self.level = record.version",
            ),
        ),
        seeds=732,
        finders=(244,),
    ),
)
"""All of them."""
