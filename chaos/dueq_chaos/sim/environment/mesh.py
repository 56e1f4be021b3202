"""A whole simulated mesh with its clients, and the rules that must hold in it."""

from __future__ import annotations

from collections.abc import Callable

from dueq import limits
from dueq.client import pulls
from dueq.core.delivery.pulls import NAME_BYTES
from dueq.core.ports.events import StorePressure
from dueq.core.ports.membership import CreateTopic, Member
from dueq.core.state.timeline import Timeline
from dueq_chaos.sim.environment.clients import SimConsumer, SimProducer
from dueq_chaos.sim.environment.coordinator import LATE_US, SimCoordinator
from dueq_chaos.sim.environment.network import DELAY_US, Network
from dueq_chaos.sim.environment.node import Node
from dueq_chaos.sim.environment.sdk import SimClient
from dueq_chaos.sim.environment.world import World
from dueq_chaos.sim.judging.history import History
from dueq_chaos.sim.judging.silences import Silences
from dueq_codecs.messages import BrokerMessage, ClientMessage
from dueq_codecs.topic_settings import AS_CREATED, TopicSettings

_AFTERMATH_US = 5_000_000
"""How long after it has become calm something may still be on its way."""
_AWAKE_US = 1_000_000
"""By then a broker that was paused has heard what came meanwhile."""
_FEW_REQUESTS = 4
"""So few requests under way at once (a limit of some worlds) are soon all that a client may send."""
_SLOW_DISK_US = 100_000
"""With commits that take so much longer, a client waits for answers about as long as it leases messages."""
_MEASURED_ANEW_US = 3_000_000
"""Time after which each broker has measured a clock that was set right, and believes the measurement."""


class SimMesh:
    """Brokers "b1"…"bN", their coordinator, network and clients, all from one seed."""

    def __init__(
        self,
        seed: int,
        brokers: int = 3,
        hot_rows_total: int = limits.HOT_ROWS_TOTAL,
        log_retain_bytes: int = limits.LOG_RETAIN_BYTES,
        snapshot_part_bytes: int = limits.SNAPSHOT_CHUNK_BYTES,
        make_node: type[Node] = Node,
    ) -> None:
        self.world = World(seed)
        self.network = Network(self.world)
        self.coordinator = SimCoordinator(self.world)
        self.history = History()
        self.silences = Silences()
        self.nodes: dict[str, Node] = {}
        for index in range(brokers):
            name = f"b{index + 1}"
            self.nodes[name] = make_node(
                name, self.world, self.network, self.coordinator, self.nodes, self._to_client
            )
            self.nodes[name].died = self._died
        self.names = list(self.nodes)
        self.clients: dict[str, SimProducer | SimConsumer] = {}
        self.sdks: dict[str, SimClient] = {}
        self.state_after: Callable[[int, int], Timeline | None] = lambda uid, sequence: None
        self._creations = self._calms = 0
        self._calm_from: dict[int, tuple[object, int]] = {}
        self.pull_names: set[bytes] = set()
        """By which clients have pulled, as leases have them: what is pushed to them is addressed to the pull."""
        self._harmed, self._calm_at_us = False, -_AFTERMATH_US
        self.alone_may_serve = False
        """A broker that is left alone serves by its own clock: it must be right then."""
        self.coordinator.unregistered = self._unregistered
        self._clock_leapt_us = -_MEASURED_ANEW_US
        for node in self.nodes.values():
            node.hot_rows_total, node.log_retain_bytes = hot_rows_total, log_retain_bytes
            node.disk.part_bytes = snapshot_part_bytes
            node.start()

    # -------------------------------------------------------------- topics and clients

    def pulled_by(self, topic: str, consumer: str) -> None:
        """A client is about to pull by a name."""
        self.pull_names.add(pulls.holder_of(topic, consumer)[:NAME_BYTES])

    def create_topic(
        self, name: str, partitions: int = 2, replicas: int = 3, min_isr: int = 2, first: int = 0,
        kind: str = "timeline", settings: TopicSettings = AS_CREATED,
    ) -> list[int]:  # fmt: skip
        """Create a topic and wait until every partition is served; returns their uids.

        The first partition prefers broker number `first`, and each of the others the one after.
        """
        self.world.run_until(lambda: len(self.coordinator.registrations) == len(self.names), 5_000_000)
        replicas_of = tuple(
            tuple(self.names[(first + index + step) % len(self.names)] for step in range(replicas))
            for index in range(partitions)
        )
        self._order(name, replicas_of, min_isr, kind, settings)
        uids = [part.uid for part in self.coordinator.topics[name].partitions]
        served = self.world.run_until(lambda: all(self.leader_of(uid) for uid in uids), 20_000_000)
        assert served, "no leaders\n" + "\n".join(self.world.trace[-50:])
        return uids

    def order_topic(self, name: str, *replicas_of: list[str]) -> None:
        """Create a topic with these replicas of each partition."""
        if set().union(*replicas_of) <= self.coordinator.registrations.keys():
            made = tuple(tuple(replicas) for replicas in replicas_of)
            self._order(name, made, min(2, len(made[0])), "timeline", AS_CREATED)

    def _order(
        self,
        name: str,
        replicas_of: tuple[tuple[str, ...], ...],
        min_isr: int,
        kind: str,
        settings: TopicSettings,
    ) -> None:
        members = tuple(
            Member(seen.broker_id, seen.store_id) for seen in self.coordinator.registrations.values()
        )
        self._creations += 1
        self.coordinator.create(
            CreateTopic(
                0, name, f"{self._creations:032x}", kind, replicas_of, members, len(replicas_of[0]), min_isr, settings
            )
        )  # fmt: skip

    def producer(self, name: str = "producer") -> SimProducer:
        """Begin a producer."""
        client = SimProducer(name, self.world, self, self.history)
        self.clients[name] = client
        return client

    def consumer(self, name: str, topic: str, credit: int = 64, lease_ms: int = 5_000) -> SimConsumer:
        """Begin a consumer."""
        client = SimConsumer(name, self.world, self, self.history, topic, credit=credit, lease_ms=lease_ms)
        self.clients[name] = client
        return client

    def sdk(self, name: str, reach: list[str] | None = None) -> SimClient:
        """Begin a process with the SDK's own session machine.

        Args:
            name: the end of the network at which it is.
            reach: brokers that it can connect to; all of them by default.
        """
        client = SimClient(name, self.world, self.nodes, self.network, self.history, reach or self.names)
        self.sdks[name] = client
        return client

    def client_send(
        self, client: str, broker: str, message: ClientMessage, bodies: list[bytes | memoryview]
    ) -> None:
        """A client sends a frame to a broker."""
        node = self.nodes[broker]
        self.network.send(client, broker, lambda: node.client_frame(client, message, bodies))

    def _to_client(self, client: str, message: BrokerMessage, bodies: list[bytes | memoryview]) -> None:
        name = client.partition("/")[0]
        if name in self.clients:
            self.clients[name].received(message, bodies)
        elif name in self.sdks:
            self.sdks[name].received(client, message, bodies)

    def _died(self, broker: str) -> None:
        """A broker's process has ended; half of the time its machine is there to say so."""
        if self.world.random.random() < 0.5:
            for client in self.sdks.values():
                client.broker_died(broker)

    # -------------------------------------------------------------- looking

    def leader_of(self, uid: int) -> str | None:
        """The broker that serves a partition just now, in its own opinion; the latest epoch wins."""
        best: tuple[int, str] | None = None
        for name, node in self.nodes.items():
            if node.core is None:
                continue
            partition = node.core.partition(uid)
            if partition is not None and partition.replica.serving:
                found = (partition.replica.epoch, name)
                best = found if best is None or found > best else best
        return best[1] if best is not None else None

    def whole(self) -> bool:
        """Whether every partition has a serving leader and a full ISR."""
        for uid, (_, node) in self.coordinator.nodes.items():
            topic = next(
                t for t in self.coordinator.topics.values() if any(p.uid == uid for p in t.partitions)
            )
            if self.leader_of(uid) is None or len(node.isr) < topic.replicas:
                return False
        return True

    def assigned(self, uid: int) -> tuple[str, ...]:
        """The brokers that have a replica of a partition, by its topic; none once that is deleted."""
        for topic in self.coordinator.topics.values():
            for part in topic.partitions:
                if part.uid == uid:
                    return part.replicas
        return ()

    def quiet(self) -> bool:
        """Whether no client waits for an answer."""
        return all(not client.calls for client in self.clients.values()) and all(
            client.idles or (not client.calls and not client.waiting) for client in self.sdks.values()
        )

    def linked(self) -> bool:
        """Whether every client is connected to whom it can reach."""
        return all(client.linked for client in self.sdks.values())

    def may_lose(self, broker: str) -> bool:
        """Whether a disk may be harmed: all brokers are up, all replicas are members, two others hold each of its own.

        If fewer hold the committed records, a lost disk may be a loss by design.
        """
        disks = {
            Member(name, node.disk.store_id)
            for name, node in self.nodes.items()
            if not node.disk.fuse.left
            and node.disk.whole()
            and not node.disk.is_newer
            and node.core is not None
        }
        if len(disks) < len(self.nodes):
            return False
        for topic in self.coordinator.topics.values():
            for part in topic.partitions:
                members = set(self.coordinator.nodes[part.uid][1].isr)
                if len(members) < topic.replicas or members - disks:
                    return False
                if broker in part.replicas and topic.replicas < 3:
                    return False
        return True

    def harm(self) -> None:
        """From now on, until it is calm, anything that travels may be held up."""
        self._harmed = True

    def weather(self, uid: int) -> object:
        """Return a value for the present weather of a partition and its leader; None while anything may be held up.

        While a follower stands still nothing is committed, and a client sends no more than a few requests ahead.
        Where those are very few and disks are slow, the next one may wait for its turn as long as a lease lasts.
        The leader takes its own pauses into account.
        """
        if limits.REQUESTS_IN_FLIGHT_MAX <= _FEW_REQUESTS and any(
            node.disk.slow_us >= _SLOW_DISK_US for node in self.nodes.values()
        ):
            return None
        found = self.coordinator.nodes.get(uid)
        slow = self.network.weather.slow_share + self.network.weather.lost_share > 0
        if self._harmed or slow or self.world.now_us < self._calm_at_us + _AFTERMATH_US or found is None:
            return None
        leader = found[1].leader
        followers = [node for name, node in self.nodes.items() if name != leader]
        if any(node.paused for node in followers):
            return None
        return self._calm_at_us, leader, found[1].epoch, [node.pauses for node in followers]

    def calm_from(self, uid: int) -> int | None:
        """The first record of a partition of which it is certain that its leader made it in the present fine weather.

        None: something may be held up. So it is after a sleep of the leader: its first turn goes by what it had heard
        before, and others may have got credit meanwhile.
        """
        weather, leader = self.weather(uid), self.leader_of(uid)
        if weather is None or leader is None or self.nodes[leader].slept_us(self.world.now_us - _AWAKE_US):
            return None
        known, weather = self._calm_from.get(uid), (weather, self.nodes[leader].pauses)
        if known is None or known[0] != weather:
            core = self.nodes[leader].core
            partition = core.partition(uid) if core is not None else None
            if partition is None:
                return None
            known = self._calm_from[uid] = weather, partition.replica.log.end + 1
        return known[1]

    def unless_calm(self, after_us: int, then: Callable[[], None]) -> None:
        """Go on with a misfortune after a while, unless the weather has cleared up since."""
        self.world.after(after_us, self.until_calm(then))

    def until_calm(self, then: Callable[[], None]) -> Callable[[], None]:
        """The same misfortune, which does not happen any more once the weather has cleared up."""
        calms = self._calms

        def go_on() -> None:
            if self._calms == calms:
                then()

        return go_on

    def clocks_settled(self) -> bool:
        """Set every clock right; return whether all have been so for long enough to be known as such."""
        for node in self.nodes.values():
            if node.wall_error_us or node.drift_ppm:
                self._clock_leapt_us = self.world.now_us
                node.wall_error_us = 0
                node.drift(0)
        return self.world.now_us - self._clock_leapt_us >= _MEASURED_ANEW_US

    def _unregistered(self, broker: str) -> None:
        """A broker's registration is gone: those that are left may soon be too few to tell whose clock is wrong."""
        if self.alone_may_serve:
            self.clocks_settled()

    def calm(self) -> None:
        """The weather is fine again and everybody is up."""
        self.clocks_settled()
        self._calms += 1
        if self._harmed:
            self._harmed, self._calm_at_us = False, self.world.now_us
        self.network.heal()
        weather = self.network.weather
        weather.lost_share = weather.twice_share = weather.slow_share = 0
        weather.late_share = weather.damaged_share = weather.held_share = 0
        weather.delay_us = DELAY_US
        self.coordinator.lose_answer_share, self.coordinator.late_us = 0, LATE_US
        self.coordinator.watch_us = 3_000
        self.coordinator.slow_us = 0
        for name, node in self.nodes.items():
            self.coordinator.reconnect(name)
            node.disk.slow_us = node.disk.fuse.left = node.disk.read_slow_us = 0
            node.disk.kill_after, node.disk.reads_early, node.disk.half_way = None, False, False
            node.disk.timeline.fail_next = node.disk.payload.fail_next = False
            if node.pressure is not None:
                node.squeeze(StorePressure("", False))
                node.pressure = None
            if node.disk.is_newer or node.lacks:
                node.upgrade()
            elif node.core is None:
                node.start()
            elif node.paused:
                node.resume()

    def failures(self) -> list[str]:
        """Errors of the cores, and replicas that have applied the same record and differ."""
        wrong = [f"{name}: {failure!r}" for name, node in self.nodes.items() for failure in node.failures]
        wrong += [f"{name}: {failure!r}" for name, client in self.sdks.items() for failure in client.failures]
        for uid in self.coordinator.nodes:
            seen: dict[int, tuple[str, object]] = {}
            for name, node in self.nodes.items():
                partition = node.core.partition(uid) if node.core is not None else None
                if partition is None or partition.replica.installing:
                    continue
                timeline = partition.timeline
                counts = (timeline.scheduled_count, timeline.leased_count)
                other, known = seen.setdefault(timeline.applied, (name, counts))
                if known != counts:
                    wrong.append(f"partition {uid} at {timeline.applied}: {other} {known}, {name} {counts}")
        return wrong
