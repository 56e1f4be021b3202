"""Planted bugs that careless users meet: extensions, settlings, ids, late frames, retries, browsing."""

from __future__ import annotations

from typing import Final

from dueq_chaos.bugs.bug import Bug, change

_CONSUMER = "client.core.consuming.consumer:Consumer"
_SETTLING = "client.core.consuming.settling:Settling"

HANDLING: Final = (
    Bug(
        "shorter-extension-not-believed",
        "A consumer that asks for a shorter lease relies on the longer one until it has the answer.",
        "SQS ChangeMessageVisibility to less than is left: two holders of one message",
        (
            change(
                "client.core.ports.delivery:Delivery.ask",
                "self.deadline_us = self.extension.until_us",
                "pass",
            ),
        ),
        seeds=33,
        finders=(11,),
    ),
    Bug(
        "extension-not-timed",
        "A consumer arms no timer for the end of the lease that it has asked for.",
        "BullMQ: the renewal timer of a lock is not moved with the lock",
        (
            change(
                f"{_CONSUMER}.settle", "if event.kind is RecordKind.EXTEND and event.deliveries:", "if False:"
            ),
        ),
        seeds=33,
        finders=(11,),
    ),
    Bug(
        "ack-takes-the-outcome-of-a-nack",
        "An ack of a message that was given back before is answered DONE.",
        "RabbitMQ: basic.ack after basic.reject of one delivery tag",
        (change(f"{_SETTLING}._join", "if kind is not delivery.decided:", "if False:"),),
        seeds=60,
        finders=(16,),
    ),
    Bug(
        "newer-lease-ignored",
        "A consumer with a newer lease of a message does not give up the older one.",
        "Pulsar #5969: a redelivered message with two entries in the consumer's tracker",
        (change("client.core.consuming.holding:Holding.take", "self.lose([held[name]])", "pass"),),
        seeds=33,
        finders=(11,),
    ),
    Bug(
        "late-attach-admitted",
        "An attach that arrives after its own goodbye opens a session.",
        "ZooKeeper ZOOKEEPER-1809: a packet of a closed session makes it again",
        (change("core.delivery.departed:Departed.has_ended", "attach <= ended", "False"),),
        seeds=177,
        finders=(59,),
    ),
    Bug(
        "retry-is-a-new-request",
        "`retry()` of a call whose outcome is not known sends its rows under new numbers.",
        "Kafka KIP-360: a producer that bumps its sequence after a time-out writes twice",
        (
            change(
                "client.core.changing.request_windows:RequestWindows.repeat",
                "not isinstance(part.error, OutcomeUnknown)",
                "True",
            ),
        ),
        seeds=60,
        finders=(11,),
    ),
    Bug(
        "instant-of-an-id-not-compared",
        "A move or cancel names a message by its key alone, whatever instant its id says.",
        "Elasticsearch: a delete without the version it was meant for",
        (
            change(
                "core.state.live:LiveMessages._withdraw",
                'same = rows["first"] == record.first[at]',
                'same = rows["first"] >= 0',
            ),
            change("core.state.small:SmallRecords._withdraw", "or row[_FIRST] != first", ""),
        ),
        seeds=60,
        finders=(9,),
    ),
    Bug(
        "twice-in-one-request-done-twice",
        "A message that a request names twice is changed twice from the same state.",
        "PostgreSQL MERGE: a row affected a second time by one command",
        (
            change(
                "core.state.live:_rounds",
                "len(chosen) < 2 or len(set(slots[chosen].tolist())) == len(chosen)",
                "True",
            ),
        ),
        seeds=60,
        finders=(11,),
    ),
    Bug(
        "browse-goes-on-elsewhere",
        "A leader that has closed a snapshot makes a new one, and goes on in it.",
        "Elasticsearch from/size paging: pages of two states of an index",
        (
            change(
                "core.front.browsing:Browsing.requested",
                'return Refusal(Code.UNKNOWN_SESSION, f"snapshot {request.snapshot:x} is not kept here (any more)")',
                "return self._begin(route, request, partition, now)",
            ),
            change(
                "client.core.ports.faults:fault_of_page",
                "if request.snapshot and reply.snapshot != request.snapshot:",
                "if False:",
            ),
        ),
        seeds=60,
        finders=(18,),
    ),
    Bug(
        "walk-begins-anew-half-way",
        "The SDK begins a walk anew though its user has seen the first pages.",
        "DynamoDB Scan: rows that move between pages show twice or never",
        (change("client.browsing:Walk.lost", "if self._yielded:", "if False:"),),
        seeds=60,
        finders=(18,),
    ),
    Bug(
        "open-jobs-shown",
        "Browsing shows messages of jobs that are not decided yet.",
        "Kafka KIP-98: read_uncommitted where read_committed was asked for",
        (change("storage.ordered.browsing:_page", "if request.hidden and len(entries):", "if False:"),),
        seeds=324,
        finders=(106,),
    ),
    Bug(
        "broken-connection-means-refused",
        "A request that was sent over a connection that broke counts as not sent.",
        "Jepsen etcd 3.4: a reset connection reported as a definite failure",
        (
            change(
                "client.core.changing.request_windows:RequestWindows.link_down",
                "change.uncertain, change.link = True, 0",
                "change.link = 0",
            ),
        ),
        seeds=60,
        finders=(7,),
    ),
)
"""All of them."""
