"""The stage of a named scenario: a simulated mesh with taps, and the verbs that a script is written in.

Every verb that waits says what it waits for, and fails with the story so far when it does not come.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dueq import limits
from dueq.core.partition.partition import Partition
from dueq.core.ports.membership import PartitionNode
from dueq_chaos.scenarios.hand import Bodies, Browsed, Hand, Pushed, Request, Stored, rows_of
from dueq_chaos.scenarios.taps import Caught, Desk, Door, Match, Spindle
from dueq_chaos.sim.environment.mesh import SimMesh
from dueq_chaos.sim.judging.equality import completed, names_on_disk, waiting_on_disk
from dueq_codecs.messages import BrokerMessage, BrowseReply, Code
from dueq_codecs.records import RecordKind

_PATIENCE_MS = 30_000
_ROUNDS = 20
_STORY_LINES = 80
_BEHIND_ALL = b"\xff" * 32


class StoryFailed(AssertionError):
    """Something that had to happen did not."""


class Stage(SimMesh):
    """Brokers b1…bN, one topic, and clients by hand.

    Attributes:
        topic: its name; uids, uid: its partitions, and the first of them (preferred leader: b1).
        doors, spindles, desk: the taps, by broker.
    """

    def __init__(
        self, *, seed: int = 1, brokers: int = 3, partitions: int = 1, replicas: int = 3, min_isr: int = 2,
        hot_rows_total: int = limits.HOT_ROWS_TOTAL, log_retain_bytes: int = limits.LOG_RETAIN_BYTES,
        kind: str = "timeline",
    ) -> None:  # fmt: skip
        self.hands: dict[str, Hand] = {}
        super().__init__(seed, brokers, hot_rows_total, log_retain_bytes)
        self.doors = {name: Door(node) for name, node in self.nodes.items()}
        self.spindles = {name: Spindle(node) for name, node in self.nodes.items()}
        self.desk = Desk(self.coordinator)
        self.topic = "story"
        self.uids = self.create_topic(self.topic, partitions, replicas, min_isr, kind=kind)
        self.uid = self.uids[0]
        self.until(self.whole, "a whole mesh")

    # -------------------------------------------------------------- telling

    def step(self, text: str) -> None:
        """Name the next chapter; the name stands in the story."""
        self.world.tell("step", text)

    def expect(self, truth: object, what: str) -> None:
        """It must be so.

        Raises:
            StoryFailed: it is not; the text has the expectation and the story so far.
        """
        if not truth:
            raise StoryFailed("\n".join([what, *self.world.trace[-_STORY_LINES:]]))

    def run_ms(self, for_ms: float) -> None:
        """Let the world go on for a while."""
        self.world.run(int(for_ms * 1000))

    def until(self, condition: Callable[[], Any], what: str, within_ms: int = _PATIENCE_MS) -> None:
        """Let the world go on until it is so.

        Raises:
            StoryFailed: it was not in time.
        """
        came = self.world.run_until(lambda: bool(condition()), within_ms * 1000)
        self.expect(came, f"did not come within {within_ms} ms: {what}")

    @property
    def now_ms(self) -> int:
        """True time, Unix ms."""
        return self.world.wall_us // 1000

    # -------------------------------------------------------------- looking

    @property
    def leader(self) -> str:
        """The broker that serves the first partition."""
        found = self.leader_of(self.uid)
        self.expect(found, f"nobody serves partition {self.uid}")
        return str(found)

    def replica(self, broker: str, uid: int = 0) -> Partition:
        """A broker's replica."""
        core = self.nodes[broker].core
        found = core.partition(uid or self.uid) if core is not None else None
        assert found is not None, f"{broker} has no replica of {uid or self.uid}"
        return found

    def leads(self, broker: str, uid: int = 0) -> bool:
        """Whether a living broker believes that it leads."""
        core = self.nodes[broker].core
        found = core.partition(uid or self.uid) if core is not None else None
        return found is not None and found.replica.is_leader

    def node_of(self, uid: int = 0) -> PartitionNode:
        """Return the coordinator's node of a partition."""
        return self.coordinator.nodes[uid or self.uid][1]

    def isr(self, uid: int = 0) -> list[str]:
        """The brokers of the ISR, sorted."""
        return sorted(member.broker_id for member in self.node_of(uid).isr)

    def log_of(self, broker: str, uid: int = 0) -> list[int | None]:
        """The epochs of the records of a replica's log, from sequence 1 on (None: trimmed)."""
        log = self.replica(broker, uid).replica.log
        return [log.epoch_at(sequence) for sequence in range(1, log.end + 1)]

    def told(self, broker: str, event: str) -> list[dict[str, object]]:
        """The fields of every line of a broker's log with this name."""
        return [line.fields for line in self.nodes[broker].logs if line.event == event]

    # -------------------------------------------------------------- holding things up

    def hold(self, broker: str, match: Match) -> Caught:
        """Keep events out of a broker's process until they are let go."""
        return self.doors[broker].tap(match, keep=True)

    def watch(self, broker: str, match: Match) -> Caught:
        """See events go into a broker's process."""
        return self.doors[broker].tap(match, keep=False)

    def isolate(self, *brokers: str) -> None:
        """Cut brokers off from all other brokers (clients and the coordinator still reach them)."""
        for broker in brokers:
            self.network.isolate(broker, self.names)

    def lose_disk(self, broker: str) -> None:
        """A broker dies and comes back at once with an empty disk."""
        self.nodes[broker].crash()
        self.nodes[broker].disk.lose()
        self.nodes[broker].start()

    def photograph(self, broker: str) -> list[dict[bytes, bytes]]:
        """All rows of a broker's two databases."""
        disk = self.nodes[broker].disk
        return [dict(engine.scan(b"", _BEHIND_ALL)) for engine in (disk.timeline, disk.payload)]

    def roll_back(self, broker: str, photo: list[dict[bytes, bytes]]) -> None:
        """Restore a dead broker's disk from a photograph, as a machine's snapshot does."""
        disk = self.nodes[broker].disk
        for engine, rows in zip((disk.timeline, disk.payload), photo, strict=True):
            engine.write([(key, None) for key in engine.keys(b"", _BEHIND_ALL)], sync=True)
            engine.write(list(rows.items()), sync=True)

    # -------------------------------------------------------------- clients

    def hand(self, name: str) -> Hand:
        """A client by hand."""
        return self.hands.setdefault(name, Hand(self, name))

    def _to_client(self, client: str, message: BrokerMessage, bodies: Bodies) -> None:
        if client in self.hands:
            self.hands[client].received(message, bodies)
        else:
            super()._to_client(client, message, bodies)

    def answered(self, request: Request, what: str = "an answer") -> Request:
        """Wait for a request's next answer."""
        seen = len(request.replies)
        self.until(lambda: len(request.replies) > seen, what)
        return request

    def settled(self, hand: Hand, request: Request) -> Request:
        """Repeat a request, to the present leader, until it has its final answer."""
        for _ in range(100):
            self.world.run_until(lambda: request.final, 500_000)
            if request.final:
                return request
            leader = self.leader_of(request.change.uid)
            if leader is not None:
                hand.again(leader, request)
        self.expect(False, f"no answer to {request.change.kind.name}: {request.codes}")
        return request

    def stored(
        self,
        *payloads: bytes,
        due: int = 0,
        dues: list[int] | None = None,
        uid: int = 0,
        by: str = "producer",
    ) -> list[Stored]:
        """Schedule rows and wait until they are acknowledged."""
        hand, uid = self.hand(by), uid or self.uid
        instants = dues or [due or self.now_ms + 3_600_000] * len(payloads)
        self.until(lambda: self.leader_of(uid), "a leader")
        request = hand.insert(self.leader_of(uid) or "", list(payloads), instants, uid=uid)
        return self.settled(hand, request).stored()

    def delivered(self, hand: Hand, *messages: Stored, times: int = 1) -> list[Pushed]:
        """Wait until a client has been given every one of these messages that many times; returns the last
        deliveries.
        """
        self.until(
            lambda: all(len(hand.got(message)) >= times for message in messages),
            f"{len(messages)} deliveries to {hand.name}",
        )
        return [hand.got(message)[-1] for message in messages]

    def acked(self, hand: Hand, pushes: list[Pushed]) -> None:
        """Acknowledge deliveries to the leader, until that is confirmed."""
        for uid in dict.fromkeys(pushed.uid for pushed in pushes):
            mine = [pushed for pushed in pushes if pushed.uid == uid]
            leader = self.leader_of(uid) or self.names[0]
            self.settled(hand, hand.settle(leader, RecordKind.ACK, mine))

    def page(self, hand: Hand, broker: str, **fields: Any) -> tuple[BrowseReply, bytes]:
        """Ask for a page of waiting messages; `fields` are a BrowseRequest's. Returns the answer and its body."""
        number = hand.browse(broker, **fields)
        self.until(lambda: number in hand.pages, "a page")
        return hand.pages[number]

    def browsed(self, hand: Hand, broker: str, **fields: Any) -> list[Browsed]:
        """All that waits in a partition, page by page, by one snapshot."""
        found: list[Browsed] = []
        reply, body = self.page(hand, broker, **fields)
        while True:
            self.expect(reply.code == Code.OK, f"a page, not {reply.code.name}: {reply.text}")
            found += rows_of(reply, body)
            if reply.last:
                self.page(hand, broker, **{**fields, "snapshot": reply.snapshot, "close": True})
                return found
            at = {"after_wait_at": found[-1].wait_at, "after_key": found[-1].sequence << 16 | found[-1].row}
            reply, body = self.page(hand, broker, **{**fields, **at, "snapshot": reply.snapshot})

    def drained(self, name: str = "drain") -> list[Pushed]:
        """Attach to every broker until nothing comes any more; returns the deliveries. Nothing is acknowledged."""
        hand = self.hand(name)
        for broker in self.names:
            hand.attach(broker, credit=10_000, lease_ms=600_000)
        hand.stay()
        for _ in range(_ROUNDS):
            seen = len(hand.pushes)
            self.run_ms(1_500)
            if seen == len(hand.pushes):
                break
        self.expect(seen == len(hand.pushes), "an end of the deliveries")
        hand.fall_silent()
        return hand.pushes

    # -------------------------------------------------------------- the end

    def finish(self) -> None:
        """Calm the weather, wait until the mesh is whole, and compare the replicas record for record."""
        self.step("the weather clears up")
        for spindle in self.spindles.values():
            spindle.go()
        for door in self.doors.values():
            for caught in list(door.taps):
                caught.forget()
        self.desk.stop_holding()
        self.calm()
        self.until(self.whole, "a whole mesh")
        self.world.run_until(lambda: not self.differences(), _PATIENCE_MS * 1000)
        self.expect(not self.differences(), f"equal replicas: {self.differences()}")
        self.expect(not self.failures(), f"no failures: {self.failures()}")

    def differences(self) -> list[str]:
        """How the replicas differ just now: commit positions, logs, and the states they come to."""
        found = []
        for uid in self.coordinator.nodes:
            leader = self.leader_of(uid)
            if leader is None:
                found.append(f"nobody leads partition {uid}")
                continue
            known = self._state(leader, uid)
            for name in self.replica(leader, uid).replicas:
                other = self._state(name, uid)
                unlike = [key for key in known if other.get(key, known[key]) != known[key]]
                found += [
                    f"partition {uid}, {key}: {leader} {known[key]}, {name} {other[key]}" for key in unlike
                ]
                if not other:
                    found.append(f"partition {uid}: {name} has no replica")
        return found

    def _state(self, broker: str, uid: int) -> dict[str, Any]:
        """Everything that a replica's memory and disk together hold."""
        node = self.nodes[broker]
        partition = node.core.partition(uid) if node.core is not None else None
        if partition is None or node.disk.store is None:
            return {}
        timeline, store = partition.timeline, node.disk.store
        waiting, names = waiting_on_disk(store, uid, timeline.order), names_on_disk(store, uid)
        return completed(timeline.export(), waiting, names)
