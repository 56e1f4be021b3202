"""Expectations once nothing is wrong: a consumer has every lease it was given, and due messages come at once."""

from __future__ import annotations

from random import Random
from typing import Final

from dueq import limits
from dueq.core.ports.entry import is_full
from dueq_chaos.sim.environment.mesh import SimMesh
from dueq_chaos.sim.judging.history import name_of
from dueq_chaos.sim.judging.ledger import Ledger
from dueq_chaos.sim.storms.workload import Workload
from dueq_chaos.sim.users.consuming import ConsumingUser
from dueq_chaos.sim.users.habits import Habits
from dueq_chaos.sim.users.traffic import TOPIC

_ARRIVES_MS = 3_000
"""By then a push has arrived, however often it had to be repeated: consumers say every second what they have seen."""
_PROBES = 12
_AHEAD_MS = (300, 1_300)
_LATE_US = 60_000
"""No message is later than that while nothing is wrong and there is credit; the usual is a twentieth of it."""
_HALF_LATE_US = 12_000
"""And no more than half of them are later than that: a frame that is lost may delay one of them, not all."""
_HANDED_OVER_US = 600_000
"""The same where a leadership goes back to its preferred broker meanwhile: an election, and attaches."""
_CREDIT = 64
"""Less has to be moved from leader to leader first, which takes its time."""
_HELD: Final = Habits(work_us=(2_500_000, 2_500_000))
_HELD_LEASE_MS: Final = 3_000
"""Shorter leases would run out meanwhile: who lets one run out gets nothing more until it speaks."""
_HELD_FROM: Final = 92_000_000
_HELD_SHARE: Final = 0.5


def _are_held(seed: int) -> bool:
    """Whether consumers ack none of those messages before the last one is due: acks would wake their leaders."""
    return seed >= _HELD_FROM and Random(seed * 0x27D4EB2F + 149).random() < _HELD_SHARE


def unreceived(mesh: SimMesh, ledger: Ledger, consumers: list[ConsumingUser]) -> list[str]:
    """Return the leases that stand, and of which the consumer that they were given to knows nothing.

    Args:
        mesh: in fine weather since a while.
        ledger: the committed records.
        consumers: every one that may be open.
    """
    open_ones = {user.consumer_id: user for user in consumers if user.open}
    now_ms = mesh.world.wall_us // 1000
    wrong = []
    topic_of = {part.uid: topic for topic in mesh.coordinator.topics.values() for part in topic.partitions}
    for uid in mesh.coordinator.nodes:
        reference = ledger.reference(uid)
        leased = reference.leased()
        if is_full(leased):  # what has expired is not sent a second time
            leased = leased[(leased["expires"] == 0) | (leased["expires"] > now_ms - _ARRIVES_MS)]
        for entry in leased:
            key, token = (uid, int(entry["sequence"]), int(entry["row"])), int(entry["token"])
            given = ledger.lease(uid, token)
            user = open_ones.get(ledger.holder(uid, token, key[1], key[2]))
            if given is None or user is None or user.has_had(key, token):
                continue
            topic = topic_of[uid]
            if topic.settings.paused or mesh.silences.held_up(topic.name, given.stamp * 1000):
                continue  # it is not pushed; or less than half of the lease may be left by now
            since_ms = now_ms - max(given.stamp, int(entry["due"]), _served_by_ms(mesh, uid, user))
            if since_ms > _ARRIVES_MS:
                wrong.append(
                    f"{name_of(key)}: leased to {user.client.name} under token {token} since {since_ms} ms,"
                    " and never received"
                )
    return wrong


def _served_by_ms(mesh: SimMesh, uid: int, user: ConsumingUser) -> int:
    """Until when a leader may wait for an earlier process of a name: sessions last longer by as much as it slept."""
    _, node = mesh.coordinator.nodes[uid]
    if not user.served_by_ms or node.leader not in mesh.nodes:
        return user.served_by_ms
    ago_us = mesh.world.wall_us - (user.served_by_ms - 2 * limits.CONSUMER_SESSION_MS) * 1000
    return user.served_by_ms + mesh.nodes[node.leader].slept_us(mesh.world.now_us - ago_us) // 1000


def late(mesh: SimMesh, workload: Workload) -> list[str]:
    """Schedule a few messages in fine weather, and return those that are late.

    Nothing is scheduled unless some consumer has credit for all of them and holds nothing.
    """
    if not any(
        user.open and user.credit >= _CREDIT and user.is_free and user.topic == TOPIC
        for user in workload.consumers
    ):
        return []
    users = [user for user in workload.consumers if user.topic == TOPIC]
    if _are_held(mesh.world.seed) and min(user.lease_ms for user in users) >= _HELD_LEASE_MS:
        for user in users:
            user.habits = _HELD
    random, led_before = Random(mesh.world.seed), _led(mesh)
    now_ms = mesh.world.wall_us // 1000
    dues = [now_ms + random.randint(*_AHEAD_MS) for _ in range(_PROBES)]
    payloads = [b"probe-%d" % at for at in range(_PROBES)]
    workload.traffic.schedule(TOPIC, payloads, dues)
    mesh.world.run((_AHEAD_MS[1] + 700) * 1000)
    for user in users:
        user.habits = Habits()
    allowed_us = _LATE_US if _led(mesh) == led_before else _HANDED_OVER_US
    came: dict[bytes, int] = {
        message.payload: message.deliveries[0].at_us
        for message in mesh.history.messages.values()
        if message.deliveries
    }
    wrong = []
    for payload, due_ms in zip(payloads, dues, strict=True):
        at_us = came.get(payload)
        if at_us is None or at_us - due_ms * 1000 > allowed_us:
            found = "has not come" if at_us is None else f"came {at_us - due_ms * 1000} us late"
            wrong.append(f"{payload.decode()}: {found}, while nothing is wrong")
    if not wrong and allowed_us == _LATE_US:
        late_us = sorted(
            came[payload] - due_ms * 1000 for payload, due_ms in zip(payloads, dues, strict=True)
        )
        if late_us[_PROBES // 2] > _HALF_LATE_US:
            wrong.append(
                f"half of the probes came {late_us[_PROBES // 2]} us late and more, while nothing is wrong"
            )
    return wrong


def held_back(mesh: SimMesh, workload: Workload) -> list[str]:
    """Trigger messages of a paused topic in fine weather, and return those that do not come.

    Nothing is done unless some consumer has credit for all of them and holds nothing.
    """
    has_credit = any(
        user.open and user.credit >= _CREDIT and user.is_free and user.topic == TOPIC
        for user in workload.consumers
    )
    return workload.held_back() if has_credit else []


def _led(mesh: SimMesh) -> dict[int, tuple[str, int]]:
    """Return who leads each partition, and in which epoch."""
    return {uid: (node.leader, node.epoch) for uid, (_, node) in mesh.coordinator.nodes.items()}
