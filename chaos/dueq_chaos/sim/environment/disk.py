"""A simulated disk: the real store on memory engines, with time, and with crashes at awkward moments."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random
from typing import Final

from dueq import limits
from dueq.core.ports.effects import Persist
from dueq.core.ports.events import Event, Persisted
from dueq.core.ports.events import StoreFailed as StoreHasFailed
from dueq.core.ports.persistence import InstallBegin, ReadPartition, ReadSnapshot, StoreRead, StoreWrite
from dueq.storage.ordered import layout
from dueq.storage.ordered.engine import EngineDamaged, Operation, Reader
from dueq.storage.ordered.store import OrderedStore
from dueq.storage.port import StoreFailed
from dueq_chaos.sim.environment.engine import ForgetfulEngine
from dueq_chaos.sim.environment.world import World

_EARLY: Final = 0.5
_WIPE_US: Final = 5_000
"""Time between two steps of a wipe while nothing else is written."""


class Killed(Exception):
    """The process died between two writes."""


class Fuse:
    """Kills the process at one of its next writes to the disk.

    Attributes:
        left: how many more writes, 0: it is not lit.
        torn: the last write is lost (its batch is torn, so it counts as a whole) instead of being the last to arrive.
    """

    def __init__(self) -> None:
        self.left = 0
        self.torn = False


class SimEngine(ForgetfulEngine):
    """One database of a simulated disk."""

    def __init__(self, fuse: Fuse) -> None:
        super().__init__()
        self._fuse = fuse

    def write(self, operations: Iterable[Operation], *, sync: bool) -> None:
        """See Engine; the fuse may burn down here."""
        fuse = self._fuse
        if not fuse.left:
            super().write(operations, sync=sync)
            return
        fuse.left -= 1
        if fuse.left or not fuse.torn:
            super().write(operations, sync=sync)
        if not fuse.left:
            raise Killed


def _belongs_to_another(timeline: ForgetfulEngine, payload: ForgetfulEngine) -> bool:
    """Whether one of the two lacks something that the other one builds on: by the stamps that they carry."""

    def stamp(engine: ForgetfulEngine) -> tuple[int, int]:
        found = engine.get(layout.STAMP)
        return (int.from_bytes(found[:8], "big"), int.from_bytes(found[8:], "big")) if found else (0, 0)

    (timeline_at, payload_needed), (payload_at, timeline_needed) = stamp(timeline), stamp(payload)
    if not timeline_at and not _rows_in(payload):
        return False  # nothing is left that could be trusted
    strange = timeline.get(layout.STORE_ID) != payload.get(layout.STORE_ID)
    return strange or payload_at < payload_needed or timeline_at < timeline_needed


def _rows_in(engine: ForgetfulEngine) -> int:
    return sum(1 for _ in engine.keys(layout.FIRST_UID, layout.BEHIND_ALL))


class SimDisk:
    """The data that survive a crash, and how long writing and reading takes.

    Attributes:
        slow_us: added to every commit.
        read_slow_us: reads take up to so much longer.
        reads_early: all reads show the disk as it was when they were asked for, not when they are answered; otherwise
            half of them do.
        part_bytes: how much of a snapshot is read at a time, where that is less than asked for.
        kill_after: the process dies as soon as it has written something of this kind, once.
        fuse: when the process is to die while writing.
        killed: called when it did.
        tampered: data were removed from it, which a start must notice.
        half_way: the process dies between the two renames that put the store aside, once.
        wrong: what no start may have done.
    """

    def __init__(self, world: World, owner: str) -> None:
        self._world, self._owner = world, owner
        self.fuse = Fuse()
        self.killed: Callable[[], None] = lambda: None
        self.timeline: ForgetfulEngine = SimEngine(self.fuse)
        self.payload: ForgetfulEngine = SimEngine(self.fuse)
        self.store: OrderedStore | None = None
        self._stores: dict[str, ForgetfulEngine] = {}
        """The timeline/ of each store that was ever used here, by its identity; a lost one is never written to."""
        self.slow_us = self.read_slow_us = 0
        self.reads_early = False
        self._chance = Random(f"{world.seed} reads of {owner}")
        self.part_bytes = limits.SNAPSHOT_CHUNK_BYTES
        self.kill_after: type[StoreWrite] | None = None
        self.tampered = self.half_way = False
        self.wrong: list[str] = []
        self._payload_rows = 0
        """How many there were when somebody tampered with it."""
        self._damaged: dict[int, bool] = {}
        """By partition, whether it has begun to be filled again."""
        self._newer: dict[int, tuple[bytes, bytes]] = {}
        """Checkpoints of a newer build, by partition: as they are, and as the present build would have them."""
        self._refilled: set[int] = set()
        """Partitions that were wiped since, to be filled anew."""
        self._waiting: list[tuple[Persist, Callable[[Event], None]]] = []
        self._group = 0
        self._wipes = False
        """Whether the next step of a wipe is planned."""
        self._life = 0

    def open(self) -> OrderedStore:
        """Begin a new life of the process on what is there.

        Raises:
            Killed: it did not get far.
        """
        self._life += 1
        self._waiting = []
        self._group, self._wipes = 0, False
        fresh = f"{self._world.random.getrandbits(64):016x}"
        try:
            self.store = self._opened(fresh)
        except EngineDamaged as damage:
            self._put_aside(str(damage))
            self.store = self._opened(fresh)
        if self.tampered:
            self.wrong.append(f"{self._owner} trusts a store that has lost a part")
            self.tampered = False
        self._stores[self.store.store_id] = self.timeline
        return self.store

    def _opened(self, fresh_id: str) -> OrderedStore:
        return OrderedStore.on(
            self.timeline, self.payload, broker_id=self._owner, cluster_id="sim", store_id=fresh_id
        )

    def _put_aside(self, why: str) -> None:
        """As a broker renames both databases, one after the other."""
        if not self.tampered:
            self.wrong.append(f"{self._owner} puts aside a store that nobody has touched: {why}")
        elif self._payload_rows != _rows_in(self.payload):
            self.wrong.append(f"{self._owner} has swept the payloads of a store before it put it aside")
        self.timeline = SimEngine(self.fuse)
        if self.half_way:
            self.half_way = False
            raise Killed
        self.lose()

    def lose(self) -> None:
        """The disk is replaced by an empty one."""
        self.timeline = SimEngine(self.fuse)
        self.payload = SimEngine(self.fuse)
        self._damaged, self._newer = {}, {}
        self.tampered = False

    def replace(self, name: str, rows: Reader) -> bool:
        """One of both databases is another one; only while no process uses the disk.

        Args:
            name: "timeline" or "payload".
            rows: what it holds now.

        Returns:
            Whether it does not belong to the other one, which a start must notice. Otherwise nothing has changed.
        """
        both = {"timeline": self.timeline, "payload": self.payload}
        other = both[name] = SimEngine(self.fuse)
        other.write(list(rows.scan(b"", layout.BEHIND_ALL)), sync=True)
        if self.tampered or not _belongs_to_another(both["timeline"], both["payload"]):
            return False
        self.timeline, self.payload = both["timeline"], both["payload"]
        self.tampered, self._payload_rows = True, _rows_in(self.payload)
        return True

    def damage(self, uid: int, random: Random) -> bool:
        """A record in the middle of a log is lost, or a bit of it turns; only while no process uses the disk.

        Returns:
            Whether there was one in the middle.
        """
        prefix = layout.head(uid, b"L")
        keys = list(self.timeline.keys(prefix, layout.after(prefix)))[:-1]
        if not keys or self.store is not None:
            return False
        key = random.choice(keys)
        row = bytearray(self.timeline.get(key) or b"")
        row[random.randrange(len(row))] ^= 1 << random.randrange(8)
        self.timeline.write([(key, None if random.random() < 0.5 else bytes(row))], sync=True)
        self._damaged[uid] = False
        return True

    def make_newer(self, uid: int) -> bool:
        """A newer build has written the checkpoint of a partition; returns whether there was one to write."""
        key = layout.head(uid, b"C")
        row = self.timeline.get(key)
        at = layout.CHECKPOINT.size
        if row is None or len(row) == at or uid in self._newer:
            return False
        self._newer[uid] = row[:at] + bytes([row[at] | 0x80]) + row[at + 1 :], row
        self.timeline.write([(key, self._newer[uid][0])], sync=True)
        return True

    @property
    def is_newer(self) -> bool:
        """Whether the present build cannot read all of it."""
        return bool(self._newer)

    def upgrade(self) -> list[str]:
        """The build that starts next knows those checkpoints; only while no process uses the disk.

        Returns:
            Their changes by an older build, which must not make any.
        """
        wrong = []
        for uid, (newer, known) in self._newer.items():
            key = layout.head(uid, b"C")
            row = self.timeline.get(key)
            if row == newer:
                self.timeline.write([(key, known)], sync=True)
            elif row is not None and uid not in self._refilled:
                wrong.append(
                    f"{self._owner}: an older build has overwritten the checkpoint of partition {uid}"
                )
        self._newer, self._refilled = {}, set()
        return wrong

    def fail(self) -> None:
        """The next write fails, as those of a broken disk do; a new process finds it mended."""
        self.timeline.fail_next = self.payload.fail_next = True

    def crash(self) -> None:
        """The process is gone; of the group commit that was under way, anything may have reached the disk."""
        self._life += 1
        store, group = self.store, self._waiting[: self._group]
        self.store, self._waiting, self._group, self._wipes = None, [], 0, False
        if store is not None and group and not self.timeline.fail_next:
            writes = [write for order, _ in group for write in order.writes]
            self._note_wiped(writes)
            self._leave_some(store, writes)
        self.timeline.crash()
        self.payload.crash()
        self.fuse.left = 0

    def _note_wiped(self, writes: list[StoreWrite]) -> None:
        if self._newer:
            self._refilled.update(write.uid for write in writes if isinstance(write, InstallBegin))

    def _leave_some(self, store: OrderedStore, writes: list[StoreWrite]) -> None:
        """Nothing, everything, or all up to one of the writes to the databases."""
        random = self._world.random
        choice = random.randint(0, 3)
        if choice == 0:
            return
        if choice > 1:
            self.fuse.left, self.fuse.torn = random.randint(1, 4), random.random() < 0.5
        with contextlib.suppress(Killed):
            store.commit(writes)

    def persist(self, order: Persist, done: Callable[[Event], None]) -> None:
        """Commit in groups, one at a time."""
        self._waiting.append((order, done))
        self._commit_next()

    def _commit_next(self) -> None:
        if self._group:
            return
        if not self._waiting:
            self._wipe_on()
            return
        life, group = self._life, len(self._waiting)
        self._group = group
        took_us = self._world.between(150, 600) + self.slow_us

        def finish() -> None:
            if life == self._life:
                self._finish(group, took_us)

        self._world.after(took_us, finish)

    def _finish(self, group: int, took_us: int) -> None:
        assert self.store is not None
        orders, self._waiting = self._waiting[:group], self._waiting[group:]
        self._group = 0
        writes: list[StoreWrite] = [write for order, _ in orders for write in order.writes]
        order, done = orders[-1]
        self._note_wiped(writes)
        try:
            self.store.commit(writes)
        except Killed:
            self.killed()
            return
        except StoreFailed as error:
            self._group = len(self._waiting) + 1  # never written again by this process
            done(StoreHasFailed(str(error)))
            return
        if self.kill_after is not None and any(isinstance(write, self.kill_after) for write in writes):
            self.kill_after = None
            self.killed()
            return
        done(Persisted(order.token, took_us, self.store.wiping()))
        self._commit_next()

    def _wipe_on(self) -> None:
        """Nothing is to be written: go on with what is being wiped, as the writer's thread does."""
        if self._wipes or self.store is None or not self.store.wiping():
            return
        self._wipes, life = True, self._life

        def step() -> None:
            if life != self._life:
                return
            self._wipes = False
            if self._group or self.store is None or self.timeline.fail_next:
                return
            try:
                self.store.commit([])
            except Killed:
                self.killed()
                return
            self._commit_next()

        self._world.after(_WIPE_US + self.slow_us, step)

    def read(self, request: StoreRead, done: Callable[[Event], None]) -> None:
        """Answer a read after a while."""
        life = self._life
        if isinstance(request, ReadSnapshot):
            request = replace(request, bytes_max=min(request.bytes_max, self.part_bytes))
        early = None
        if (self.reads_early or self._chance.random() < _EARLY) and not isinstance(request, ReadPartition):
            early = self.store.read(request) if self.store is not None else None

        def finish() -> None:
            if life == self._life and self.store is not None:
                try:
                    answer = early or self.store.read(request)
                except Killed:  # a read that finds damage sets it aside
                    self.killed()
                    return
                if answer is not None:
                    done(answer)

        self._world.after(self._world.between(30, 800 + self.read_slow_us), finish)

    # -------------------------------------------------------------- looking

    @property
    def store_id(self) -> str:
        """The identity that the disk carries, "" while it is empty."""
        return (self.timeline.get(layout.STORE_ID) or b"").decode()

    def holds(self, uid: int) -> bool:
        """Whether a replica of the partition is on it."""
        return self.timeline.get(layout.head(uid, b"P")) is not None

    def record(self, uid: int, sequence: int, store_id: str = "") -> bytes | None:
        """A record of the log as it is on this disk; None: it is not there.

        Args:
            uid, sequence: which.
            store_id: look into this store, which may have been lost since; "": into the present one.
        """
        row = self._timeline_of(store_id).get(layout.log_key(uid, sequence))
        return None if row is None else row[layout.LINK.size :]

    def trimmed_to(self, uid: int, store_id: str = "") -> int:
        """Where the log begins: what lies before was committed and has gone."""
        start = self._timeline_of(store_id).get(layout.head(uid, b"T"))
        return 1 if start is None else int(layout.START.unpack(start)[0])

    def _timeline_of(self, store_id: str) -> ForgetfulEngine:
        if not store_id or store_id == self.store_id:
            return self.timeline
        return self._stores[store_id]

    def is_damaged(self, uid: int) -> bool:
        """Whether it was damaged and does not hold again, since, all that it must."""
        if uid in self._damaged:
            if self.timeline.get(layout.head(uid, b"X")) is not None:  # it says so itself
                self._damaged[uid] = True
            elif self._damaged[uid]:
                del self._damaged[uid]
        return uid in self._damaged

    def whole(self) -> bool:
        """Whether no replica on it is damaged."""
        return not any(self.is_damaged(uid) for uid in list(self._damaged))
