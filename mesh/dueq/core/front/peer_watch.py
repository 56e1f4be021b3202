"""Which other brokers there are, and which of them have fallen silent.

The coordinator's registrations say who there is, and in which life. Frames say who is heard. A peer that comes, goes,
falls silent or is heard again concerns every partition that has a replica there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dueq import limits
from dueq.core.front.balance import Balance
from dueq.core.front.topics import Topics
from dueq.core.partition.partition import Partition
from dueq.core.ports.effects import ConnectPeer
from dueq.core.ports.membership import Registration, RegistrationsSeen
from dueq.core.turn.context import Context
from dueq.core.turn.mesh_time import MeshTime
from dueq.core.turn.peers import Peer
from dueq.instant import Now

_RECONNECT_US: Final = 5_000_000
"""Between two attempts to reach a peer that is registered and silent."""


class PeerWatch:
    """The other brokers, as this one sees them."""

    def __init__(
        self,
        ctx: Context,
        clock: MeshTime,
        topics: Topics,
        partitions: Mapping[int, Partition],
        balance: Balance,
    ) -> None:
        self._ctx = ctx
        self._clock = clock
        self._topics = topics
        self._partitions = partitions
        self._balance = balance
        self._silent: set[str] = set()
        # (mono) When a silent peer is tried again.
        self._reconnect_at_us: dict[str, int] = {}

    def registrations_seen(self, event: RegistrationsSeen, now: Now) -> None:
        """Learn who is registered, in which life, and where."""
        me = self._ctx.settings.broker_id
        self._topics.registrations = event.registrations
        self._ctx.levels.update(event.levels)
        for broker_id, seen in event.registrations.items():
            self._ctx.levels[broker_id] = seen.feature_level
            if broker_id != me:
                self._registered(broker_id, seen, now)
        for broker_id, peer in self._ctx.peers.items():
            if peer.registered and broker_id not in event.registrations:
                peer.registered = False
                self._clock.forget(broker_id)
                self._changed(broker_id, now)
                self._ctx.log("warning", "peer.registration_gone", peer=broker_id)
        self._clock.registered([name for name in event.registrations if name != me], now)

    def _registered(self, broker_id: str, seen: Registration, now: Now) -> None:
        peer = self._ctx.peers.get(broker_id)
        if peer is None:
            peer = self._ctx.peers[broker_id] = Peer(broker_id)
        if not peer.registered or peer.incarnation != seen.incarnation:
            self._changed(broker_id, now)
        peer.registered = True
        if peer.incarnation != seen.incarnation:
            peer.reborn(seen.incarnation, seen.store_id, seen.endpoint, seen.metrics, now)
            self._clock.forget(broker_id)
            self._ctx.emit(ConnectPeer(broker_id, seen.incarnation, seen.endpoint))
            for partition in self._partitions.values():  # a new life has not heard what this broker leads
                partition.replica.introduce(peer)

    def tick(self, now: Now) -> None:
        """Notice who has fallen silent or is heard again, and try to reach those that are silent."""
        for peer in self._ctx.peers.values():
            silent = peer.silent_for_us(now) > limits.LEADER_SILENCE_MS * 1000
            if silent != (peer.broker_id in self._silent):
                (self._silent.add if silent else self._silent.discard)(peer.broker_id)
                self._changed(peer.broker_id, now)
                if peer.registered:
                    event = "peer.fell_silent" if silent else "peer.heard_again"
                    self._ctx.log("warning" if silent else "info", event, peer=peer.broker_id)
            again_us = self._reconnect_at_us.get(peer.broker_id, 0)
            if silent and peer.registered and now.mono_us >= again_us:
                self._reconnect_at_us[peer.broker_id] = now.mono_us + _RECONNECT_US
                self._ctx.emit(ConnectPeer(peer.broker_id, peer.incarnation, peer.endpoint))

    def _changed(self, broker_id: str, now: Now) -> None:
        """A peer has come, gone, fallen silent or been heard again."""
        self._balance.disturbed(now)
        for partition in self._partitions.values():
            if broker_id in partition.replicas:
                self._ctx.attend(partition.uid)
