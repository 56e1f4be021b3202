"""One simulated broker: the real core and the real store, around a simulated process, disk and clock.

A process takes turns as the real loop does: all input that is there, then one step. Its disk commits one group at
a time; a crash loses what was not committed, and sometimes half of a group (payloads without their records).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from dueq import limits
from dueq.core.broker import BrokerCore
from dueq.core.ports.effects import (
    Coordinate,
    Effect,
    Exit,
    Log,
    Persist,
    Read,
    SendClient,
    SendPeer,
)
from dueq.core.ports.events import (
    ClientFrameReceived,
    Event,
    PeerFrameReceived,
    Persisted,
    Route,
    RouteLost,
    StorePressure,
)
from dueq.core.ports.membership import Registration
from dueq.core.ports.persistence import RecoveredPartition
from dueq.core.turn.settings import CoreSettings
from dueq.instant import Now
from dueq.storage.port import StoreFailed
from dueq_chaos.sim.environment.builds import lacking
from dueq_chaos.sim.environment.coordinator import Session, SimCoordinator
from dueq_chaos.sim.environment.disk import Killed, SimDisk
from dueq_chaos.sim.environment.network import Network
from dueq_chaos.sim.environment.world import START_WALL_US, World
from dueq_codecs.messages import BrokerMessage, ClientMessage
from dueq_codecs.records import FEATURE_LEVEL, RecordKind

READ_LATE_US = 2_000
"""Longest time after waking until a process reads input from its sleep: waking instant modulo this."""
_UP_US_MAX = 100 * 86_400 * 1_000_000
"""Its machine has run for less when it starts."""
_HEARD_FIRST: Final = (PeerFrameReceived, Persisted)
Deliver = Callable[[str, BrokerMessage, list[bytes | memoryview]], None]


class Watcher(Protocol):
    """Looks at brokers from outside."""

    def stepped(self, node: Node, effects: list[Effect]) -> None:
        """A broker has had a turn."""

    def started(self, node: Node) -> None:
        """A broker has begun a new life."""


class Node:
    """A broker that can be crashed, started, paused, slowed and given a wrong clock.

    Attributes:
        core: the running core; None while the process is dead.
        hot_rows_total, log_retain_bytes: the settings of its next life.
        wall_error_us: how far its wall clock is ahead of the truth.
        drift_ppm: how much faster than the truth both of its clocks run.
        lacks: kinds of records that its build does not know.
        level: the feature level of its build; another one takes effect with its next life.
        pressure: how its disk stands; kept over restarts.
        failures: invariant violations and other exceptions that its core has raised.
        died: called with its name when its process ends.
        watcher: who looks at it after every turn and start.
        recovered: what its disk held when it started, by partition.
        fresh_disk: that disk was not the one of its life before.
    """

    def __init__(
        self, name: str, world: World, network: Network, coordinator: SimCoordinator, peers: dict[str, Node],
        deliver: Deliver,
    ) -> None:  # fmt: skip
        self.name, self._world, self._network = name, world, network
        self._coordinator, self._peers, self._deliver = coordinator, peers, deliver
        self.disk = SimDisk(world, name)
        self.core: BrokerCore | None = None
        self.incarnation = 0
        self.wall_error_us = self._up_since_us = 0
        self.hot_rows_total = limits.HOT_ROWS_TOTAL
        self.log_retain_bytes = limits.LOG_RETAIN_BYTES
        self.paused = False
        self.pauses = 0
        self._naps: list[
            tuple[int, int]
        ] = []  # from when until when it stood still, by the clock of the world
        self.failures: list[Exception] = []
        self.logs: list[Log] = []
        self._session: Session | None = None
        self._inbox: list[Event] = []
        self._unread: list[Event] | None = None
        """After a pause: what has come and cannot be read before the first turn, and what comes behind it."""
        self._turn_planned_us: int | None = None
        self._due = partial(self._turn_if_due, self.incarnation)
        """Takes the turn of this life that is planned for the present instant."""
        self.drift_ppm = 0
        self._drift_since_us, self._drifted_us = 0, 0
        self.lacks: frozenset[RecordKind] = frozenset()
        self.level = FEATURE_LEVEL
        self.pressure: StorePressure | None = None
        self.disk.killed = self.crash
        self.died: Callable[[str], None] = lambda name: None
        self.watcher: Watcher | None = None
        self.recovered: dict[int, RecoveredPartition] = {}
        self.fresh_disk = True
        self._store_id = ""

    # -------------------------------------------------------------- life

    def now(self) -> Now:
        """What its clocks show."""
        shown_us = self._world.now_us + (self._ahead_us() if self.drift_ppm else self._drifted_us)
        return Now(START_WALL_US + shown_us + self.wall_error_us, shown_us + self._up_since_us)

    def _ahead_us(self) -> int:
        if not self.drift_ppm:
            return self._drifted_us
        return self._drifted_us + (self._world.now_us - self._drift_since_us) * self.drift_ppm // 1_000_000

    def drift(self, ppm: int) -> None:
        """From now on its clocks run faster (or slower) than the truth."""
        self._drifted_us, self._drift_since_us = self._ahead_us(), self._world.now_us
        self.drift_ppm = ppm

    def squeeze(self, pressure: StorePressure) -> None:
        """Its disk is filling, or has room again."""
        self.pressure = pressure
        self.receive(pressure)

    def start(self) -> None:
        """Begin a new life on the same disk."""
        self.incarnation = self._world.random.getrandbits(48) | 1
        self._due = partial(self._turn_if_due, self.incarnation)
        # Its machine was restarted too: a monotonic clock means nothing beyond one life.
        self._up_since_us = self.incarnation % _UP_US_MAX
        self._inbox, self._unread = [], None
        self._turn_planned_us = None
        self.paused = False
        try:
            store = self.disk.open()
            recovered = store.recover()
        except (Killed, StoreFailed) as error:
            # On a full disk the process ends with 75, and its supervisor starts it again.
            self.disk.crash()
            self._world.tell(self.name, f"has not started: {error!r}")
            return
        finally:
            self.failures += [AssertionError(wrong) for wrong in self.disk.wrong]
            self.disk.wrong = []
        settings = CoreSettings(
            self.name, self.incarnation, store.store_id, "sim", f"sim://{self.name}",
            hot_rows_total=self.hot_rows_total, log_retain_bytes=self.log_retain_bytes,
            feature_level=self.level,
        )  # fmt: skip
        self.recovered = {replica.uid: replica for replica in recovered}
        self.fresh_disk, self._store_id = store.store_id != self._store_id, store.store_id
        with lacking(self.lacks):
            self.core = BrokerCore(settings, recovered, self.now())
        registration = Registration(
            self.name, self.incarnation, store.store_id, f"sim://{self.name}", feature_level=self.level
        )
        self._session = self._coordinator.connect(registration, partial(self._receive_in, self.incarnation))
        self._world.tell(self.name, f"started, incarnation {self.incarnation:x}, store {store.store_id}")
        if self.pressure is not None:
            self._inbox.append(self.pressure)
        if self.watcher is not None:
            self.watcher.started(self)
        self.wake()

    def crash(self, *, goodbye: bool = False) -> None:
        """The process dies: memory, inbox and unsynced writes are gone."""
        if self.core is None:
            return
        self.core = None
        self.disk.crash()
        if self._session is not None:
            self._coordinator.close(self._session, goodbye=goodbye)
            self._session = None
        self._world.tell(self.name, "crashed")
        self.died(self.name)

    def upgrade(self) -> None:
        """Start again with a build that knows everything on the disk, and everything that will come."""
        self.crash()
        self.lacks = frozenset()
        self.failures += [AssertionError(wrong) for wrong in self.disk.upgrade()]
        self.start()

    def pause(self, for_us: int) -> None:
        """The process stands still (SIGSTOP, a long collection) while the world goes on."""
        self.paused = True
        self.pauses += 1
        self._naps.append((self._world.now_us, self._world.now_us + for_us))
        if self._session is not None:
            self._coordinator.fell_asleep(self._session)
        life = self.incarnation
        self._world.tell(self.name, f"paused for {for_us // 1000} ms")

        def wake() -> None:
            if life == self.incarnation:
                self.resume()

        self._world.after(for_us, wake)

    def slept_us(self, since_us: int) -> int:
        """How long it has stood still since an instant of the world: its consumers' sessions last that much longer."""
        now_us = self._world.now_us
        return sum(max(min(until_us, now_us) - max(from_us, since_us), 0) for from_us, until_us in self._naps)

    def resume(self) -> None:
        """It goes on; what has come meanwhile lies with the kernel, and may be read only after its first turn."""
        self.paused = False
        if self._session is not None:
            self._coordinator.woke(self._session)
        unread = self._unread = (self._unread or []) + self._inbox
        self._inbox = []

        def read() -> None:
            if self._unread is unread and self.core is not None:
                self._inbox, self._unread = unread, None
                self.wake()

        self._world.after(self._world.now_us % READ_LATE_US, read)
        self.wake()

    # -------------------------------------------------------------- turns

    def receive(self, event: Event) -> None:
        """Put an event into the inbox."""
        if self.core is not None:
            (self._inbox if self._unread is None else self._unread).append(event)
            self.wake()

    def wake(self) -> None:
        """Have a turn soon."""
        self._plan(self._world.now_us + self._world.between(5, 60))

    def _plan(self, at_us: int) -> None:
        planned_us = self._turn_planned_us
        if planned_us is None or at_us < planned_us:
            self._turn_planned_us = at_us
            self._world.at(at_us, self._due)

    def _turn_if_due(self, life: int) -> None:
        if self._turn_planned_us == self._world.now_us and life == self.incarnation:
            self._turn_planned_us = None
            self._turn()

    def _turn(self) -> None:
        core = self.core
        if core is None or self.paused:
            return
        events, self._inbox = self._inbox, []
        now = self.now()
        try:
            effects = self._older_step(core, events, now) if self.lacks else self._step(core, events, now)
        except Exception as error:  # whatever it raises is a finding, and must not end the world
            self.failures.append(error)
            self._world.tell(self.name, f"FAILED: {error!r}")
            self.crash()
            return
        for effect in effects:
            if self.core is core:
                self._execute(effect)
        if self.watcher is not None:
            self.watcher.stepped(self, effects)
        if self.core is core:
            deadline_us = core.next_deadline_us(now) - now.mono_us
            self._plan(self._world.now_us + max(deadline_us, 1))

    @staticmethod
    def _step(core: BrokerCore, events: list[Event], now: Now) -> list[Effect]:
        """As the loop does, which hears first what may commit something; here only what has come first, in order."""
        at = 0
        for event in events:
            if not isinstance(event, _HEARD_FIRST):
                break
            at += 1
        effects = core.push(now)
        if at:
            effects += core.hear(events[:at], now)
            events = events[at:]
        return effects + core.step(events, now)

    def _older_step(self, core: BrokerCore, events: list[Event], now: Now) -> list[Effect]:
        with lacking(self.lacks):
            return core.step(events, now)

    # -------------------------------------------------------------- effects

    def _execute(self, effect: Effect) -> None:
        if isinstance(effect, SendPeer):
            self._send_peer(effect)
        elif isinstance(effect, SendClient):
            self._send_client(effect)
        elif isinstance(effect, Persist):
            self.disk.persist(effect, partial(self._receive_in, self.incarnation))
        elif isinstance(effect, Read):
            self.disk.read(effect.request, partial(self._receive_in, self.incarnation))
        elif isinstance(effect, Coordinate):
            if self._session is not None:
                self._session.submit(effect.order)
        elif isinstance(effect, Log):
            self.logs.append(effect)
            self._world.tell(self.name, f"{effect.event} {effect.fields}")
        elif isinstance(effect, Exit):
            self.crash()

    def _send_client(self, effect: SendClient) -> None:
        client, message = effect.identity.decode(), effect.message
        bodies = self._network.carried(effect.bodies)
        line = self._network.lines.get(client)
        if line is None:
            self._network.send(self.name, client, lambda: self._deliver(client, message, bodies))
        elif line.hung_up:
            self.receive(RouteLost(Route(effect.identity), message))
        else:
            end = client.partition("/")[0]
            self._network.stream(line.down, self.name, end, lambda: self._deliver(client, message, bodies))

    def _send_peer(self, effect: SendPeer) -> None:
        target = self._peers.get(effect.broker_id)
        if target is not None:
            event = PeerFrameReceived(effect.message, effect.bodies)
            self._network.send(self.name, target.name, lambda: target.receive(event))

    def _receive_in(self, life: int, event: Event) -> None:
        """Its disk or the coordinator answers what it has asked for in this life."""
        if life == self.incarnation:
            self.receive(event)

    def client_frame(self, client: str, message: ClientMessage, bodies: list[bytes | memoryview]) -> None:
        """A client's frame arrives."""
        self.receive(ClientFrameReceived(Route(client.encode()), message, bodies))
