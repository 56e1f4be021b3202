"""Planted bugs of dispatch: due instants, leases, credit, pauses, clocks."""

from __future__ import annotations

from typing import Final

from dueq_chaos.bugs.bug import Bug, change

_DISPATCH = "core.delivery.dispatch:TopicDispatcher"
_LANE = "core.delivery.lane:Lane"

DELIVERING: Final = (
    Bug(
        "due-minus-one",
        "A message is pushed one millisecond before it is due.",
        "Pulsar and RocketMQ timers: ticks rounded down; rocketmq-rust #9154",
        (
            change(
                "core.delivery.pushing:Pushing.push",
                "mesh_ms = mesh_us // 1000",
                "mesh_ms = mesh_us // 1000 + 1",
            ),
        ),
        seeds=24,
        finders=(19,),
    ),
    Bug(
        "own-clock-trusted",
        "Due is compared with the broker's own clock, not with mesh time.",
        "CockroachDB: a clock that jumps forward, --clock-device bug",
        (
            change(
                "core.turn.mesh_time:MeshTime.mesh_now_us",
                "now.wall_us + correction_us",
                "now.wall_us",
            ),
        ),
        seeds=63,
        finders=(6,),
    ),
    Bug(
        "push-before-grant",
        "A lease is pushed when it is proposed; whether it commits is seen later.",
        "fpj.systems 2016-02-10: a lock that is used before it is held",
        (
            change(
                "core.delivery.leasing:Leasing._propose",
                "    slots = lane.leases.add(entries, numbers, token, Phase.PROPOSED, NEVER_US)",
                "    slots = lane.leases.add(entries, numbers, token, Phase.GRANTED, NEVER_US - 1)\n"
                "    lane.schedule(slots, np.ascontiguousarray(entries['wait_at']))",
            ),
        ),
        seeds=24,
        finders=(0,),
    ),
    Bug(
        "push-on-waking",
        "A leader that wakes pushes what it had leased before it looks at what has come, and asks nobody.",
        "Jepsen etcd 3.4.3; rocketmq-rust #9154: a stale broker finishes its batch",
        (
            change(
                "core.partition.partition:Partition.confirmed",
                "return self.replica.confirmed(now)",
                "return self.replica.is_leader",
            ),
            change(
                "core.broker:BrokerCore._listen",
                "    for event in events:",
                "    self._dispatch(now)\n    for event in events:",
            ),
        ),
        seeds=465,
        finders=(155,),
    ),
    Bug(
        "push-unconfirmed",
        "A leader pushes though the members of its ISR have not answered lately.",
        "ZooKeeper lock recipes: a session that is over at the server, and not yet at its owner",
        (
            change(
                "core.partition.partition:Partition.confirmed",
                "return self.replica.confirmed(now)",
                "return self.replica.is_leader",
            ),
        ),
        seeds=465,
        finders=(155,),
    ),
    Bug(
        "leases-end-by-wall-clock",
        "A lease runs out by the wall clock, which may be set.",
        "procrastinate: deadlines in wall time",
        (
            change(
                f"{_LANE}.end_leases",
                "    slots = self.leases.to_end(now.mono_us)",
                "    base_us = self.__dict__.setdefault('base_us', now.wall_us - now.mono_us)\n"
                "    slots = self.leases.to_end(now.wall_us - base_us)",
            ),
            change(f"{_DISPATCH}.tick", "if lane.act_us <= now.mono_us:", "if True:"),
        ),
        seeds=258,
        finders=(86,),
    ),
    Bug(
        "inherited-leases-returned",
        "A new leader takes back the leases of consumers that have not attached to it yet.",
        "Celery visibility time-out: redelivery to another worker while the first one works",
        (
            change(
                f"{_DISPATCH}.lead",
                'deadline_us = from_us + leased["lease_ms"].astype(np.int64) * 1000',
                "deadline_us = due_us",
            ),
        ),
        seeds=156,
        finders=(20,),
    ),
    Bug(
        "inherited-leases-never-end",
        "A new leader never ends the leases that it has inherited.",
        "procrastinate: jobs of a crashed worker stay in the state doing",
        (
            change(
                f"{_DISPATCH}.lead",
                'deadline_us = from_us + leased["lease_ms"].astype(np.int64) * 1000',
                "deadline_us = due_us + NEVER_US // 2",
            ),
        ),
        seeds=102,
        finders=(33,),
    ),
    Bug(
        "inherited-leases-wait-for-a-wrong-clock",
        "A new leader whose clock is behind keeps inherited leases for as long as it is behind.",
        "a bug that the storms have found here; CockroachDB: lease starts and clock offsets",
        (
            change(
                f"{_DISPATCH}.lead",
                'np.minimum(self._clock.mono_of(leased["wait_at"], now), latest_us)',
                'self._clock.mono_of(leased["wait_at"], now)',
            ),
        ),
        seeds=2013,
        finders=(669,),
    ),
    Bug(
        "entered-twice-taken-twice",
        "A message that is in the due queue twice comes out twice, so one LEASE record names it twice.",
        "a bug that the storms have found here; RocketMQ timers: one message in two slots",
        (
            change(
                "core.delivery.due_queue:DueQueue._pop_places",
                "    if place != last:\n            places.append(place)\n            last = place\n",
                "    if True:\n            places.append(place)\n            last = -1\n",
            ),
            change(
                "core.delivery.due_queue:DueQueue._cut_places",
                "if len(set(places)) < len(places):",
                "if False:",
            ),
        ),
        seeds=24,
        finders=(2,),
    ),
    Bug(
        "expired-not-requeued",
        "A message whose lease has run out waits, and nobody looks at it again.",
        "Pulsar #25996: a strict timer forgets to arm itself",
        (
            change(
                "core.delivery.lease_changes:LeaseChanges.applied",
                "if len(applied.waiting):",
                "if len(applied.waiting) and not len(applied.ended):",
            ),
        ),
        seeds=24,
        finders=(3,),
    ),
    Bug(
        "token-reused",
        "Lease tokens are numbers from 0 to 15, over and over.",
        "fencing tokens must grow: fpj.systems 2016-02-10, etcd lock reports",
        (
            change(
                "core.state.live:LiveMessages._hold",
                'rows["token"] = record.sequence',
                'rows["token"] = record.sequence % 16',
            ),
            change(
                "core.state.small:SmallRecords._lease",
                "State.LEASED, record.sequence",
                "State.LEASED, record.sequence % 16",
            ),
            change(
                "core.delivery.leasing:Leasing._propose",
                "numbers, token, Phase.PROPOSED",
                "numbers, token % 16, Phase.PROPOSED",
            ),
        ),
        seeds=24,
        finders=(0,),
    ),
    Bug(
        "credit-leaks",
        "When several leases end together, only one of them gives its credit back.",
        "AMQP and Pulsar flow control: permits lost at a reconnect",
        (
            change(
                "core.delivery.consumers:Consumers._returned",
                "session.rows_out -= rows",
                "session.rows_out -= 1",
            ),
        ),
        seeds=42,
        finders=(14,),
    ),
    Bug(
        "credit-of-one-more",
        "A leader gives a consumer one message more than it has credit for.",
        "rabbitmq-server PR #5609: credit granted twice; ARTEMIS-2664: prefetch exceeded",
        (
            change(
                "core.delivery.consumers:ConsumerSession.free_rows",
                "limits.CONSUMER_LEASES_MAX) - self.rows_out",
                "limits.CONSUMER_LEASES_MAX) - self.rows_out + (self.credit > 0)",
            ),
        ),
        seeds=123,
        finders=(40,),
    ),
    Bug(
        "refused-renewal-ends-what-came-after",
        "A renewal that is refused ends the lease that was proposed after it, and the message is leased once more.",
        "found by storm 3000025",
        (
            change(
                "core.delivery.lease_changes:LeaseChanges._refused",
                "if leases.token_of(key) not in (0, token)",
                "if False",
            ),
            change(
                "core.delivery.lease_changes:LeaseChanges._granted",
                "or not leases.same(slots, token).all()",
                "",
            ),
        ),
        seeds=0,
        finders=(3000025,),
    ),
    Bug(
        "lost-push-not-repeated",
        "A push that was lost on its way is never sent again.",
        "ZeroMQ guide: ROUTER drops what it cannot deliver",
        (
            change(
                "core.delivery.resending:Resending._resend",
                "self.push_again(lane, _still_with(session, lane, slots, tokens))",
                "pass",
            ),
            change(
                "core.delivery.resending:Resending.settle_held",
                "lacking(lane, pushed[missing])",
                "pass",
            ),
        ),
        seeds=135,
        finders=(45,),
    ),
    Bug(
        "wakes-too-late",
        "The loop is not woken for the next due instant.",
        "Pulsar #25996: strictness makes the timer forget to re-arm",
        (change(f"{_DISPATCH}.next_deadline_us", "if soonest_ms < NEVER_MS:", "if False:"),),
        seeds=24,
        finders=(3,),
    ),
    Bug(
        "inherited-leases-under-old-tokens",
        "A leader that inherits leases pushes them to a process that it knows already, though they were another one's.",
        "Kafka KIP-345: members with one group.instance.id are told apart by what each of them was given",
        (change(f"{_DISPATCH}.lead", 'lane.inherited_until = int(leased["token"].max())', "pass"),),
        seeds=0,
        finders=(92000005, 92000027),
    ),
    Bug(
        "renewals-wake-nobody",
        "Leases that go to the next process of a name and wait for the topic's rate go on when something else happens.",
        "Pulsar #25996: strictness makes the timer forget to re-arm",
        (
            change(
                "core.delivery.renewals:Renewals.propose",
                "self.next_us = min(self.next_us, now.mono_us + wait_us)",
                "pass",
            ),
        ),
        seeds=0,
        finders=(92000039, 92000004),
    ),
    Bug(
        "instant-forgets-the-look-ahead",
        "After a turn that only pushes, a leader looks at nothing else before one of its leases ends.",
        "Pulsar #25996: strictness makes the timer forget to re-arm",
        (
            change(
                f"{_DISPATCH}.next_push_us",
                "at_us = min(at_us, lane.act_us)",
                "at_us = max(at_us, lane.act_us)",
            ),
        ),
        seeds=0,
        finders=(92000004, 92000010),
    ),
    Bug(
        "returned-credit-stands-in-no-line",
        "A consumer whose leases have all ended gets something new only after it has spoken.",
        "a slot that comes free wakes nobody",
        (change("core.delivery.consumers:Consumers._returned", "self.offer(session, now)", "pass"),),
        seeds=0,
        finders=(98002007, 98002009),
    ),
)
"""All of them."""
