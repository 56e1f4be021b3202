"""Planted bugs of the replicated state: the effects of applying a record, and the memory of past requests."""

from __future__ import annotations

from typing import Final

from dueq_chaos.bugs.bug import Bug, change

_LIVE = "core.state.live:LiveMessages"
_SMALL = "core.state.small:SmallRecords"
_OTHER_STAMP = (
    "(lambda record: (setattr(record, 'stamp', now.wall_us // 1000), record)[1])"
    "(__import__('copy').copy(entry.record))"
)

STATE: Final = (
    Bug(
        "local-clock-in-apply",
        "Applying a record reads the clock of whoever applies it.",
        "CockroachDB and every replicated state machine: apply must be deterministic",
        (
            change(
                "core.partition.applying:Applying.pump",
                "timeline.apply(entry.record)",
                f"timeline.apply({_OTHER_STAMP})",
            ),
        ),
        seeds=24,
        finders=(0,),
    ),
    Bug(
        "answers-expire-by-local-clock",
        "Remembered answers expire by the replica's own clock, not by the record's stamp.",
        "Kafka KIP-890: producer ids expire at different times on different replicas",
        (
            change(
                "core.partition.applying:Applying.pump",
                "        try:\n",
                "        timeline.dedup._quiet_until_ms = -1\n"
                "        timeline.dedup.expire(now.wall_us // 1000)\n        try:\n",
            ),
        ),
        seeds=63,
        finders=(20,),
    ),
    Bug(
        "answers-dropped-at-failover",
        "A new leader begins with an empty memory of past requests.",
        "Kafka KIP-890; NATS: the deduplication window is in the leader's memory",
        (
            change(
                "core.partition.partition:Partition.applied_leading",
                "        self.dispatcher.lead(self, now)\n",
                "        self.timeline.dedup.__init__()\n        self.dispatcher.lead(self, now)\n",
            ),
        ),
        seeds=24,
        finders=(
            9,
            0,
        ),
    ),
    Bug(
        "retries-not-recognised",
        "A request that comes again takes effect again.",
        "Kafka KIP-98; Jepsen NATS and Bufstream: retries that are not idempotent",
        (
            change("core.state.dedup:Deduplication.recall", "if known is not None:", "if False:"),
            change("core.state.dedup:Deduplication.recall", "if client is not None and", "if False and"),
        ),
        seeds=24,
        finders=(0,),
    ),
    Bug(
        "repetition-told-other-ids",
        "A repetition that is answered from memory is told the ids of the record's first rows.",
        "Kafka KIP-98: the offset in the answer to a duplicate is that of the batch, not of its record",
        (
            change(
                "core.state.judging:Judging.answered",
                "verdict.answer, repeated=True",
                "(setattr(verdict.answer, 'row', 0), verdict.answer)[1], repeated=True",
            ),
        ),
        seeds=64,
        finders=(14,),
    ),
    Bug(
        "window-too-small-without-floor",
        "Only two answers are kept of each client, and a request older than those counts as new.",
        "Kafka KIP-1269: more requests in flight than the window remembers",
        (
            change("core.state.dedup:Deduplication.judge", "> self.limits.window", "> 2"),
            change("core.state.dedup:Deduplication.recall", "if client is not None and", "if False and"),
        ),
        seeds=111,
        finders=(37,),
    ),
    Bug(
        "cancel-done-though-pushed",
        "A cancel is answered done though the message is with a consumer.",
        "RocketMQ #8974; NATS ADR-51: deletion races delivery",
        (
            change(
                f"{_LIVE}._withdraw",
                'revoked = leased & (token != 0) & (rows["token"] == token)',
                "revoked = leased",
            ),
            change(
                f"{_SMALL}._withdraw",
                "elif token and row[_TOKEN] == token:",
                "elif row[_STATE] == State.LEASED:",
            ),
        ),
        seeds=27,
        finders=(7,),
    ),
    Bug(
        "withheld-push-leaves",
        "A cancel takes a lease back, and its push leaves all the same.",
        "RocketMQ #8974: cancel and delivery race",
        (
            change(
                "core.delivery.lease_changes:LeaseChanges.withhold",
                "leases.phase[slot] = Phase.WITHHELD",
                "pass",
            ),
        ),
        seeds=39,
        finders=(13,),
    ),
    Bug(
        "stale-token-accepted",
        "An ack is taken whatever lease it names.",
        "FOQS lease tokens; SQS receipt handles: a late delete removes the new delivery",
        (
            change(f"{_LIVE}._settle", 'held &= rows["token"] == record.token[at]', "pass"),
            change(f"{_SMALL}._settle", "or row[_TOKEN] != token", ""),
        ),
        seeds=285,
        finders=(70,),
    ),
    Bug(
        "attempt-reset-at-failover",
        "A new leadership begins to count deliveries at one again.",
        "RabbitMQ quorum queues: delivery count lost on leader change",
        (
            change(
                "core.state.changing:Changing.change",
                "        return NO_U8\n    if self._small",
                "        self._table.rows['attempt'][self._table.state == State.LEASED] = 0\n"
                "        return NO_U8\n    if self._small",
            ),
        ),
        seeds=63,
        finders=(0,),
    ),
    Bug(
        "lease-without-state-check",
        "A lease is granted though the message is leased or gone by then.",
        "River #1302, PR riverqueue/river#1373: a grant must be checked where it takes effect",
        (
            change(f"{_LIVE}._grant", 'free = rows["state"] == State.WAITING', 'free = rows["state"] >= 0'),
            change(f"{_SMALL}._lease", "row[_STATE] != State.WAITING or", ""),
        ),
        seeds=60,
        finders=(0,),
    ),
    Bug(
        "nack-forgets-due",
        "A message that was leased ahead and given back waits from the stamp on, not from its due instant.",
        "BullMQ, Celery: a retried ETA task runs at once",
        (
            change(
                f"{_LIVE}._given_back", '    not_before = rows["due"]\n', '    not_before = rows["due"] * 0\n'
            ),
            change(f"{_SMALL}._settle", "not_before = row[_DUE]", "not_before = 0"),
        ),
        seeds=162,
        finders=(5,),
    ),
    Bug(
        "move-waits-at-old-due",
        "A move is answered done, and the message stays where it was.",
        "a timer of the old instant that still fires",
        (
            change(f"{_LIVE}._withdrawn", 'rows["due"] = record.due[at]', "pass"),
            change(f"{_SMALL}._withdraw", "row[_DUE] = due", "pass"),
        ),
        seeds=24,
        finders=(2,),
    ),
    Bug(
        "scan-under-way-not-counted",
        "What has ended is forgotten once it is saved, though a scan from before that is still on its way.",
        "a cache that is filled by a read from before the write",
        (
            change(
                "core.state.cold:ColdReads.settled",
                "if self._scan and self._scan < self._saved_at:",
                "if False:",
            ),
        ),
        seeds=24,
        finders=(0, 98320064),
    ),
)
"""All of them."""
