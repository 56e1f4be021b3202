"""Planted bugs of `apply` that all replicas share: they agree with each other, and are wrong together.

Only the naive reference finds them, as it knows the rules: every committed record is compared with it
(`sim/reference/naive`).
"""

from __future__ import annotations

from typing import Final

from dueq_chaos.bugs.bug import Bug, change

_LIVE = "core.state.live:LiveMessages"
_SMALL = "core.state.small:SmallRecords"

RULES: Final = (
    Bug(
        "release-counts-an-attempt",
        "A message that is given back unhandled has one attempt more.",
        "RabbitMQ quorum queues: a requeue counted as a delivery, so dead-letter limits are reached too soon",
        (
            change(f"{_LIVE}._given_back", 'rows["attempt"] -= ~counts & (rows["attempt"] > 0)', "pass"),
            change(f"{_SMALL}._settle", "row[_ATTEMPT] -= row[_ATTEMPT] > 0", "pass"),
        ),
        seeds=24,
        finders=(1,),
    ),
    Bug(
        "expiry-not-counted",
        "A lease that ran out does not count as an attempt.",
        "SQS ApproximateReceiveCount: a poison message that is never found",
        (
            change(
                f"{_LIVE}._given_back",
                "if record.kind == RecordKind.RELEASE:",
                "if record.kind in (RecordKind.RELEASE, RecordKind.EXPIRE):",
            ),
            change(
                f"{_SMALL}._settle",
                "elif kind == RecordKind.RELEASE:",
                "elif kind in (RecordKind.RELEASE, RecordKind.EXPIRE):",
            ),
        ),
        seeds=24,
        finders=(0,),
    ),
    Bug(
        "token-kept-while-waiting",
        "A message whose lease has ended keeps its token and its holder.",
        "a lease table that is not cleared: the next holder inherits the last one's rights",
        (
            change(
                f"{_LIVE}._wait", '("token", "consumer_high", "consumer_low", "lease_ms")', '("lease_ms",)'
            ),
            change(f"{_SMALL}._wait", "0, _NOBODY, 0", "row[_TOKEN], row[_CONSUMER], 0"),
        ),
        seeds=24,
        finders=(0,),
    ),
    Bug(
        "move-into-the-past-waits-there",
        "A message that is moved to an instant before the stamp waits there, below the low-water mark.",
        "RocketMQ timing wheel: a slot that the hand has passed",
        (
            change(
                f"{_LIVE}._wait",
                'rows["wait_at"] = np.maximum(not_before, np.uint64(max(record.stamp, 0)))',
                'rows["wait_at"] = not_before',
            ),
            change(f"{_SMALL}._wait", "max(not_before, record.stamp, 0)", "not_before"),
        ),
        seeds=24,
        finders=(0,),
    ),
    Bug(
        "nack-delay-ignored",
        "A nack's delay is ignored: the message is tried again at once.",
        "Celery retry countdown: a backoff that is not one",
        (
            change(
                f"{_LIVE}._given_back",
                "not_before = np.maximum(not_before, delay",
                "not_before = np.maximum(not_before, 0 * delay",
            ),
            change(f"{_SMALL}._settle", "max(not_before, delay", "max(not_before, 0 * delay"),
        ),
        seeds=24,
        finders=(0,),
    ),
    Bug(
        "extend-not-kept",
        "An extension is confirmed, and the lease keeps its length.",
        "SQS ChangeMessageVisibility that is acknowledged and lost",
        (
            change(
                f"{_LIVE}._settle",
                'rows["lease_ms"] = np.minimum(record.amount_ms[at], LEASE_MAX_U32)',
                "pass",
            ),
            change(
                f"{_SMALL}._settle",
                "row[_LEASE_MS] = min(int(record.amount_ms[at]), LEASE_MAX_U32)",
                "pass",
            ),
        ),
        seeds=24,
        finders=(2,),
    ),
    Bug(
        "revoked-lease-counts",
        "A lease that was taken back before its push counts as an attempt.",
        "a delivery count that grows without deliveries",
        (
            change(f"{_LIVE}._withdraw", 'rows["attempt"] -= revoked & (rows["attempt"] > 0)', "pass"),
            change(f"{_SMALL}._withdraw", "row[_ATTEMPT] -= row[_ATTEMPT] > 0", "pass"),
        ),
        seeds=24,
        finders=(10,),
    ),
    Bug(
        "job-forgets-its-leases",
        "A job's count of leased messages does not fall when leases end.",
        "a transaction that never drains, and is never forgotten",
        (change(f"{_LIVE}._end_leases", "self._count(rows, 0, -1)", "pass"),),
        seeds=24,
        finders=(5,),
    ),
    Bug(
        "headers-taken-for-a-key",
        "A message with headers is noted as one with a key only.",
        "A header block that a proxy forwards as a part of the body",
        (
            change(
                f"{_SMALL}._insert", "keyed = meta_flags(record.keyed)", "keyed = 4 if record.keyed else 0"
            ),
            change(
                "core.state.insertion:inserted_entries",
                'rows["flags"] |= meta_flags(record.keyed)',
                'rows["flags"] |= 4',
            ),
        ),
        seeds=24,
        finders=(1,),
    ),
)
