"""Planted bugs of the SDK's session machine: repeated requests, outcomes, the end of leases."""

from __future__ import annotations

from typing import Final

from dueq_chaos.bugs.bug import Bug, change

_WINDOWS = "client.core.changing.request_windows:RequestWindows"

CLIENTS: Final = (
    Bug(
        "retry-under-new-number",
        "A request that was not answered is sent again as a new one.",
        "Kafka KIP-98: producer retries without a sequence; Jepsen Bufstream",
        (
            change(
                f"{_WINDOWS}._silent",
                "    change.uncertain = True\n",
                "    change.uncertain = True\n"
                "    change.window.open.pop(change.sequence, None)\n"
                "    change.request = __import__('copy').copy(change.request)\n"
                "    change.request.sequence = change.window.next_sequence\n"
                "    change.window.next_sequence += 1\n"
                "    change.window.open[change.sequence] = change\n",
            ),
        ),
        seeds=24,
        finders=(0,),
    ),
    Bug(
        "unknown-taken-for-refused",
        "A request that was sent and not answered in time is reported as not done.",
        "Jepsen MongoDB and etcd clients: a time-out reported as a failure",
        (
            change(
                f"{_WINDOWS}.expire",
                "self._unknown(change) if change.uncertain else change.refusal",
                "change.refusal",
            ),
        ),
        seeds=129,
        finders=(43,),
    ),
    Bug(
        "lease-counted-from-arrival",
        "A consumer counts its lease from the arrival of the push, not from its release.",
        "SQS visibility time-out: it begins at the server, not at the receiver",
        (
            change(
                "client.core.consuming.consumer:Consumer.pushed",
                "session.released_us(push)",
                "self._context.mono_us",
            ),
        ),
        seeds=24,
        finders=(5,),
    ),
    Bug(
        "clock-of-an-earlier-life",
        "A leader's monotonic clock of its last life is compared with that of this one.",
        "POSIX clock_gettime: the origin of a monotonic clock is unspecified, and differs from boot to boot",
        (
            change(
                "client.core.consuming.session:LeaderClock.instant_us",
                "not incarnation or incarnation != self._incarnation",
                "not self._incarnation",
            ),
        ),
        seeds=12,
        finders=(2,),
    ),
    Bug(
        "extension-believed-at-once",
        "A consumer relies on an extension from the moment it asks for it.",
        "BullMQ: a lock that was not extended is still worked under",
        (
            change(
                "client.core.consuming.settling:Settling.settle",
                "delivery.ask(until_us)",
                "delivery.ask(until_us); delivery.deadline_us = until_us",
            ),
        ),
        seeds=183,
        finders=(61,),
    ),
    Bug(
        "repeated-push-handed-out",
        "A consumer hands out a push that it has seen before.",
        "ZeroMQ reconnects and Pulsar redelivery: the same message twice in one consumer",
        (
            change(
                "client.core.consuming.arrivals:Arrivals._is_seen",
                "if token <= self._seen.get(name, 0) or token <= self._seen_before.get(name, 0):",
                "if False:",
            ),
            change(
                "client.core.consuming.arrivals:Arrivals._is_seen",
                "return held is not None and token <= held.token",
                "return False",
            ),
        ),
        seeds=231,
        finders=(77,),
    ),
    Bug(
        "damaged-payload-handed-out",
        "A consumer does not compare the payload with its checksum.",
        "nats-server #7549: checksums that nobody looks at",
        (change("client.core.consuming.arrivals:Arrivals.push", "crc32(payload) == crc", "True"),),
        seeds=198,
        finders=(66,),
    ),
)
"""All of them."""
