"""The things that all parts of one broker's core share: who it is, its peers, and the effects gathered in this turn.

Nothing here decides anything. Parts add orders during a turn; `BrokerCore.step` takes them at its end, so
that one turn makes one `Persist` and one frame per peer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from dueq import limits
from dueq.core.ports.effects import Coordinate, Effect, Log, Persist, Read, SendClient, SendPeer
from dueq.core.ports.events import Route
from dueq.core.ports.membership import (
    CompareAndSet,
    CompareAndSetDone,
    CoordinatorOrder,
    CoordinatorState,
    Member,
    PartitionNode,
)
from dueq.core.ports.persistence import StoreRead, StoreWrite
from dueq.core.turn.deadlines import Deadlines
from dueq.core.turn.few_at_once import FewAtOnce
from dueq.core.turn.gathering import Gathering
from dueq.core.turn.mesh_time import MeshTime
from dueq.core.turn.metrics import CoreMetrics
from dueq.core.turn.peers import Peer
from dueq.core.turn.settings import CoreSettings
from dueq.instant import Now
from dueq_codecs.messages import BrokerMessage, PeerMessage, Relay


class EndOfTurn(Protocol):
    """A partition, as far as the context knows."""

    uid: int

    def end_turn(self, now: Now) -> None:
        """Order writes and send what this turn has made."""


class Context:
    """Shared by all partitions of a broker.

    Attributes:
        settings: who this broker is.
        peers: every other broker ever registered, by id; a gone one stays, `registered` False.
        levels: the feature level that each broker has announced last, this one included.
        unopened: uid -> why this replica is not opened (see `RecoveredPartition.unreadable`).
        clock: mesh time.
        metrics: counters.
        coordinator: state of the connection to the coordinator.
        confirm_floor_us: (mono) a peer's confirmation older than this does not count: set on waking from a pause.
        wiping: uids of partitions whose old rows the store is still deleting.
        inserts_refused: why the store takes no inserts ("disk_full", "memory_full", "busy"); "" if it does.
        step_aside_until_us: (mono) until then this broker leads only where no other broker does.
        attention: uids of partitions that want periodic care.
        wanting: how many wanted it at the beginning of the present round.
        checkpoints: when the next checkpoint of a partition is due (mono µs), by uid.
        wake_ups: when a partition wants periodic care again (mono µs), by uid.
        bodies: when a partition with a shared body that no message names has to grow older (mono µs), by uid.
        retention: when a partition's first dead message has to be looked at (mono µs), by uid.
        gathering: acks that nobody waits for.
        follower_reads: old records, and parts of snapshots, that followers lack.
        touched: partitions that have something to do at the end of this turn.
        stirred: topics whose deliveries are to be looked at in this turn, or in the next one, at once.
        turn: the instant of the present turn.
        again: something was left for an immediate next turn.
    """

    def __init__(self, settings: CoreSettings) -> None:
        self.settings = settings
        self.me = Member(settings.broker_id, settings.store_id)
        self.peers: dict[str, Peer] = {}
        self.levels: dict[str, int] = {}
        self.unopened: dict[int, str] = {}
        self.clock = MeshTime(settings.max_clock_offset_ms)
        self.metrics = CoreMetrics()
        self.coordinator = CoordinatorState.SUSPENDED
        self.confirm_floor_us = 0
        self.wiping: frozenset[int] = frozenset()
        self.inserts_refused = ""
        self.step_aside_until_us = 0
        self._effects: list[Effect] = []
        self._writes: list[StoreWrite] = []
        self._on_persisted: list[Callable[[Now], None]] = []
        self._persist_token = 0
        self._waiting: dict[int, list[Callable[[Now], None]]] = {}
        self._persisted_to = 0
        self._tokens = 0
        self.attention: dict[int, None] = {}
        self.wanting = 0
        self.checkpoints: Deadlines[int] = Deadlines()
        self.wake_ups: Deadlines[int] = Deadlines()
        self.retention: Deadlines[int] = Deadlines()
        self.ageing: Deadlines[int] = Deadlines()
        self.gathering = Gathering()
        self.follower_reads = FewAtOnce(limits.FOLLOWER_READS_MAX)
        self.touched: dict[int, EndOfTurn] = {}
        self.stirred: dict[str, None] = {}
        self.turn = Now(0, 0)
        self.again = False
        self._sets: dict[int, Callable[[CompareAndSetDone, Now], None]] = {}
        self._reads: dict[int, Callable[[object, Now], None]] = {}

    # -------------------------------------------------------------- orders

    def emit(self, effect: Effect) -> None:
        """Order something at the end of this turn."""
        self._effects.append(effect)

    def log(self, level: str, event: str, **fields: object) -> None:
        """Write one line of log: a state change."""
        self._effects.append(Log(level, event, fields))

    def persist(self, write: StoreWrite) -> None:
        """Write in this turn's Persist, in order."""
        self._writes.append(write)

    def when_persisted(self, then: Callable[[Now], None]) -> None:
        """Call `then` once everything that this turn has ordered so far is synced."""
        self._on_persisted.append(then)

    def send(self, broker_id: str, message: PeerMessage, bodies: list[bytes | memoryview]) -> None:
        """Send a message of its own (not a part of the PeerFrame) to a peer."""
        self._effects.append(SendPeer(broker_id, message, bodies))

    def reply(
        self, route: Route, message: BrokerMessage, bodies: list[bytes | memoryview] | None = None
    ) -> None:
        """Answer a client, through the peer that relays for it where there is one."""
        if not route.via:
            self._effects.append(SendClient(route.identity, message, bodies or []))
            return
        settings = self.settings
        relay = Relay(settings.broker_id, settings.incarnation, route.identity, True, message, bodies or [])
        self._effects.append(SendPeer(route.via, relay))

    def coordinate(self, order: CoordinatorOrder) -> None:
        """Ask the coordinator."""
        self._effects.append(Coordinate(order))

    def read(self, make: Callable[[int], StoreRead], then: Callable[[object, Now], None]) -> int:
        """Read from the store; `then(answer, now)` is called with the event. Returns the token."""
        token = self.new_token()
        self._reads[token] = then
        self._effects.append(Read(make(token)))
        return token

    def new_token(self) -> int:
        """Return a number that no other order of this process has."""
        self._tokens += 1
        return self._tokens

    def compare_and_set(
        self, uid: int, version: int, node: PartitionNode, then: Callable[[CompareAndSetDone, Now], None]
    ) -> int:
        """Set a partition's node if its version is still `version`; `then` gets the outcome."""
        token = self.new_token()
        self._sets[token] = then
        self._effects.append(Coordinate(CompareAndSet(token, uid, version, node)))
        return token

    def attend(self, uid: int) -> None:
        """Have the partition ticked until it is quiet."""
        self.attention[uid] = None

    def is_silent(self, peer: Peer, now: Now) -> bool:
        """Whether the peer has been silent for so long that it may be dead."""
        return peer.silent_for_us(now) > limits.LEADER_SILENCE_MS * 1000

    def stir(self, topic: str) -> None:
        """Have a topic's deliveries looked at."""
        self.stirred[topic] = None

    def touch(self, partition: EndOfTurn) -> None:
        """Have the partition's `end_turn` called."""
        self.touched[partition.uid] = partition

    # -------------------------------------------------------------- answers

    def set_done(self, done: CompareAndSetDone, now: Now) -> None:
        """Hand a compare-and-set's outcome to its caller."""
        then = self._sets.pop(done.token, None)
        if then is not None:
            then(done, now)

    def read_done(self, token: int, answer: object, now: Now) -> bool:
        """Hand a read's answer to the caller that asked; False if there is none."""
        then = self._reads.pop(token, None)
        if then is None:
            return False
        then(answer, now)
        return True

    def persisted(self, token: int, now: Now) -> None:
        """Everything up to this token is synced: call those who wait."""
        while self._persisted_to < token:
            self._persisted_to += 1
            for then in self._waiting.pop(self._persisted_to, ()):
                then(now)

    # -------------------------------------------------------------- the end of a turn

    def close_writes(self) -> None:
        """Turn the gathered writes into one Persist."""
        if not self._writes and not self._on_persisted:
            return
        self._persist_token += 1
        self._effects.append(Persist(self._persist_token, self._writes))
        self._waiting[self._persist_token] = self._on_persisted
        self._writes = []
        self._on_persisted = []

    def take(self) -> list[Effect]:
        """Return the turn's effects."""
        effects, self._effects = self._effects, []
        return effects
