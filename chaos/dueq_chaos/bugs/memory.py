"""Planted bugs of retention: tables that are never cleaned, and rows that are forgotten too early."""

from __future__ import annotations

from typing import Final

from dueq_chaos.bugs.bug import Bug, change

MEMORY: Final = (
    Bug(
        "due-queue-never-cleaned",
        "A message that was moved or cancelled keeps its place in the due queue until its old instant.",
        "the memory invariant; timer heaps with lazy deletion, as Go's before 1.23 and asyncio's before 3.4",
        (
            change(
                "core.delivery.lane:Lane.drop_dead", "> 2 * timeline.hot_count + SPARE_PLACES", "> 1 << 60"
            ),
        ),
        seeds=60,
        finders=(
            1,
            30,
        ),
    ),
    Bug(
        "answers-never-age",
        "Answers of past requests do not expire; they go only when there are too many.",
        "Kafka KAFKA-14844: producer ids that never expired filled brokers' memory",
        (change("core.state.dedup:Deduplication.expire", "while len(answers) and", "while False and"),),
        seeds=60,
        finders=(59,),
    ),
    Bug(
        "answers-age-too-fast",
        "An answer is forgotten after two seconds instead of a quarter of an hour.",
        "Kafka KIP-360: state of producers that is forgotten before they give up",
        (
            change(
                "core.state.dedup:Deduplication.expire", "= self.limits.age_ms", "= self.limits.age_ms // 400"
            ),
        ),
        seeds=60,
        finders=(
            12,
            30,
        ),
    ),
    Bug(
        "jobs-never-forgotten",
        "No job is ever forgotten, so a partition is full of them one day.",
        "the memory invariant; Kafka KAFKA-9144: transactional ids that never expire",
        (change("core.state.job_table:JobTable.expire", "self._forget(job)", "pass"),),
        seeds=392,
        finders=(98,),
    ),
    Bug(
        "log-cache-never-shrunk",
        "Applied records stay in memory until they are trimmed from the log.",
        "etcd raft: entries in MemoryStorage that were never compacted",
        (change("core.partition.partition:Partition._shrink_cache", "self.log_cache_bytes)", "1 << 40)"),),
        seeds=60,
        finders=(28,),
    ),
    Bug(
        "named-rows-never-let-go",
        "Messages that a request named stay in memory, though the request has changed nothing of them.",
        "a cache whose pins are given back, and that is not told so",
        (change("core.state.timeline:Timeline.apply", "self._residency.loosen(hold.slots)", "pass"),),
        seeds=0,
        finders=(92000008, 92000013),
    ),
)
