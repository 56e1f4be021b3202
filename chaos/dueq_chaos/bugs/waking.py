"""Planted bugs of leaders that wake: weaker rules for when a leader may act than `core.confirming` has."""

from __future__ import annotations

from typing import Final

from dueq_chaos.bugs.bug import Bug, change

_LEADING = "core.replication.leading:Leading"
_CONFIRMATION = "core.replication.confirming:Confirmation"
_PINGS = (
    change(f"{_LEADING}.confirmed", "self.confirmation.holds(now)", "self.in_touch(now)"),
    change(f"{_LEADING}.ask", "in self.confirmation.unconfirmed(now, since_us)", "in ()"),
)

WAKING: Final = (
    Bug(
        "pings-confirm",
        "A leader pushes when its ISR has answered anything lately, in any epoch.",
        "a defect of this product, found by review; ZooKeeper lock recipes",
        _PINGS,
        seeds=640,
        finders=(637,),
    ),
    Bug(
        "acks-confirm-from-their-arrival",
        "An ack counts from its arrival, not from when it was asked for, though it may have waited in a socket.",
        "leader leases counted from the answer: Raft §6.4.1 counts from the heartbeat's departure",
        (
            change(
                "core.replication.followers:Followers.ack_received",
                "max(progress.confirmed_at_us, asked_us)",
                "now.mono_us",
            ),
        ),
        seeds=640,
        finders=(637,),
    ),
    Bug(
        "answers-unconfirmed",
        "A leader that was replaced in its sleep answers the beats that it finds, so consumers keep its leases.",
        "the model of when a leader may push, without confirmed answers to consumers",
        (
            change(
                "core.delivery.replies:Replies.answer",
                "elif session.rows_out and not self._is_confirmed(session, now):",
                "elif False:",
            ),
        ),
        seeds=320,
        finders=(317,),
    ),
    Bug(
        "shown-unconfirmed",
        "A leader that was replaced in its sleep shows single messages as they were, whatever was asked for.",
        "Jepsen on etcd and Consul (2014): reads that are answered by a leader that is none any more",
        (
            change(
                "core.front.looking:Looking.requested",
                "elif request.current and not partition.confirmed_since(look.since_us, now):",
                "elif False:",
            ),
        ),
        seeds=0,
        finders=(89000000,),
    ),
)
"""Those that storms find."""

UNSEEN: Final = (
    Bug(
        "leaderships-told-depose",
        "Answered pings confirm a leader until it is told of a later one, which the others may have forgotten.",
        "the model of when a leader may push: the successor starts anew before it could tell",
        (
            *_PINGS,
            change(
                "core.front.peer_messages:PeerMessages._leadership",
                "self._ctx.attend(leadership.uid)\n",
                "self._ctx.attend(leadership.uid)\n"
                "        if partition.replica.is_leader and leadership.epoch > partition.epoch:\n"
                "            partition.replica.give_up(self._ctx.turn, 'told')\n",
            ),
        ),
        seeds=0,
    ),
    Bug(
        "only-the-nodes-isr-confirms",
        "A leader does not ask members that joined by a change of unknown outcome, though one of them may lead by now.",
        "KIP-497: a pending ISR change counts; the model of when a leader may push",
        (
            change(
                "core.replication.isr:Isr.__init__",
                "Confirmation(self._ctx, progress, self.maximal)",
                "Confirmation(self._ctx, progress, lambda: set(self.members))",
            ),
        ),
        seeds=0,
    ),
    Bug(
        "another-disk-confirms",
        "An ack of a member that has lost its disk, and with it its epoch, confirms an older leader.",
        "the model of when a leader may push: the successor loses its disk",
        (
            change(
                f"{_CONFIRMATION}._oldest_us",
                "progress.store_id != member.store_id",
                "False",
            ),
        ),
        seeds=0,
    ),
    Bug(
        "inherited-leases-from-the-takeover",
        "A new leader counts inherited leases from its take-over, though its predecessor may still push.",
        "the model of when a leader may push, without the successor's addition: two holders",
        (
            change(
                "core.delivery.dispatch:TopicDispatcher.lead",
                "np.maximum(due_us, partition.leases_from_us)",
                "due_us",
            ),
        ),
        seeds=0,
    ),
    Bug(
        "alone-and-sure",
        "The only member of an ISR pushes after a pause without reading its node, which may name another one by now.",
        "the model of when a leader may push: partition recover",
        (change(f"{_CONFIRMATION}.needs_node", "self._is_alone and", "False and"),),
        seeds=0,
    ),
    Bug(
        "leases-told-longer-than-they-are",
        "A consumer is told how long the leader keeps its lease, which is longer than the lease itself.",
        "the model of when a leader may push: the successor's addition",
        (
            change(
                "core.delivery.pushes:_release_lane",
                "left_us = np.minimum(act_us - now.mono_us, length_us)",
                "left_us = act_us - now.mono_us",
            ),
        ),
        seeds=0,
    ),
    Bug(
        "nobody-asked",
        "A leader waits for acks that confirm it, and asks nobody for them.",
        "Pulsar #25996: strictness that waits for what nobody brings about",
        (change(f"{_LEADING}.ask", "in self.confirmation.unconfirmed(now, since_us)", "in ()"),),
        seeds=0,
    ),
)
"""Those that storms find seldom or never (they need fewer members, or a pause between two frames): each is
found by a scenario of tests/scenarios/test_replaced.py."""
