"""A user who loads jobs over all partitions and commits, aborts, cancels or forgets them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from random import Random

from dueq import ids
from dueq.client import calls, jobs
from dueq.client.core import PartsCall
from dueq.client.core.ports import effects
from dueq_chaos.sim.environment.mesh import SimMesh
from dueq_chaos.sim.environment.sdk import ANYTHING, SimClient
from dueq_chaos.sim.judging.history import MessageKey
from dueq_chaos.sim.users import hiding
from dueq_chaos.sim.users.ranks import Ranks
from dueq_codecs.records import JobAction, Outcome

_CALL_US = 15_000_000
_TRIES = 4
_LONG_MS = 6_000, 10_000
_LATER_US = 2_200_000, 3_500_000
"""By then a checkpoint has let go what memory has no room for."""
_ENDS = ("commit", "commit", "commit", "commit late", "abort", "forget", "cancel", "commit and cancel")


@dataclass(eq=False)
class _Load:
    """One job of the user's.

    Attributes:
        until: instant by which it must be committed; 0: it is not hidden.
        end: how it must end, one of `_ENDS`.
        wait_us: how long that waits, at least and at most.
        rows: the acknowledged ones: key, payload, due, first, rank.
        unanswered: calls that schedule and have no answer.
        failed: a call of it failed, so it is not complete.
    """

    key: bytes
    until: int
    end: str
    wait_us: tuple[int, int] = (0, 2_000_000)
    rows: list[tuple[MessageKey, bytes, int, int, int]] = field(default_factory=list)
    unanswered: int = 0
    failed: bool = False


class LoadingUser:
    """The driver and the tasks of jobs, in one process, which may die.

    Args:
        mesh: where.
        topic: whose partitions are loaded.
        wire: whether its frames go through the codecs.
        ranks: how messages of the topic are ranked; None: it has no ranks.
    """

    def __init__(self, mesh: SimMesh, topic: str, wire: bool, ranks: Ranks | None = None) -> None:
        self.mesh, self.topic, self.ranks = mesh, topic, ranks
        self.client: SimClient = mesh.sdk("loader")
        self.client.asks_nonsense = ANYTHING
        self.client.wire = wire
        self._count = 0

    def load(self, random: Random) -> None:
        """Load a job into some partitions, and do with it what chance says, or die."""
        now_ms = self._begin()
        until = now_ms + random.choice([1_500, 4_000, 8_000, 12_000]) if random.random() < 0.85 else 0
        load = _Load(random.randbytes(16), until, random.choice(_ENDS))
        for place in random.sample(self._places, random.randint(1, len(self._places))):
            rows = random.randint(1, 30)
            self._fill(
                load,
                place,
                [now_ms + random.randint(-200, random.choice([2_000, 15_000])) for _ in range(rows)],
            )
        self._tell_of(load)
        if random.random() < 0.1:
            self._later(random.randint(0, 3_000_000), self.client.crash)

    def hide(self, random: Random) -> None:
        """Load a large job into all partitions, and commit it long before the end of its hiding."""
        now_ms = self._begin()
        load = _Load(random.randbytes(16), now_ms + random.randint(*_LONG_MS), "commit", _LATER_US)
        for place in self._places:
            rows = random.randint(*hiding.ROWS)
            self._fill(load, place, [load.until + random.randint(-2_000, 500) for _ in range(rows)])
        self._tell_of(load)

    @property
    def _places(self) -> range:
        return range(len(self.mesh.coordinator.topics[self.topic].partitions))

    def _begin(self) -> int:
        """Return the present instant, Unix ms, at which another job begins."""
        if self.client.core is None:
            self.client.start()
        self._count += 1
        return self.mesh.world.wall_us // 1000

    def _tell_of(self, load: _Load) -> None:
        self.mesh.world.tell("loader", f"loads {load.key.hex()} until {load.until}, to {load.end}")

    def _fill(self, load: _Load, place: int, dues: list[int]) -> None:
        payloads = [b"job-%d-%d-%d" % (self._count, place, row) for row in range(len(dues))]
        self._schedule(load, place, payloads, dues)

    def _schedule(self, load: _Load, place: int, payloads: list[bytes], dues: list[int]) -> None:
        self.mesh.history.unacknowledged |= dict.fromkeys(payloads)
        ranks = self.ranks.draw(len(payloads)) if self.ranks is not None else None
        call = calls.schedule_many(
            self.topic,
            payloads,
            dues,
            lambda: self.mesh.world.wall_us,
            b"",
            place,
            ranks=ranks,
            job=(load.key, load.until),
        )
        load.unanswered += 1
        rows = list(zip(payloads, dues, ranks or [0] * len(payloads), strict=True))
        answer = partial(self._scheduled, load, rows)
        self.client.call(call.build, _CALL_US, answer)

    def _scheduled(
        self,
        load: _Load,
        rows: list[tuple[bytes, int, int]],
        value: PartsCall | None,
        failed: effects.Failed | None,
    ) -> None:
        load.unanswered -= 1
        load.failed |= failed is not None
        for text, (payload, due, rank) in zip(value.ids() if value is not None else (), rows, strict=False):
            found = ids.from_text(text)
            load.rows.append(((found.uid, found.sequence, found.row), payload, due, found.first, rank))
        if not load.unanswered:
            random = self.mesh.world.random
            wait_us = random.randint(*load.wait_us)
            if load.end == "commit late" and load.until:
                about_us = load.until * 1000 - self.mesh.world.wall_us
                wait_us = max(about_us + random.randint(-300_000, 300_000), 0)
            self._later(wait_us, partial(self._end, load))

    def _end(self, load: _Load) -> None:
        """The job is loaded, as far as it will be: end it as planned."""
        if load.end == "forget":
            return
        if load.end == "cancel" or not load.until:
            if load.end.endswith("cancel"):
                self._act(load, JobAction.CANCEL, _TRIES)
            else:
                self._owe(load)
        elif load.failed or load.end == "abort":
            self._act(load, JobAction.ABORT, _TRIES)
        else:
            self._act(load, JobAction.COMMIT, _TRIES)

    def _act(self, load: _Load, action: JobAction, tries: int) -> None:
        call = jobs.act(self.topic, action, load.key, load.until, at_home=True)
        self.client.call(call.build, _CALL_US, partial(self._decided, load, action, tries))

    def _decided(
        self,
        load: _Load,
        action: JobAction,
        tries: int,
        value: PartsCall | None,
        failed: effects.Failed | None,
    ) -> None:
        if failed is not None:
            if tries:
                self._later(500_000, partial(self._act, load, action, tries - 1))
            return
        assert value is not None
        [outcome] = value.outcomes()
        self.mesh.world.tell("loader", f"{action.name} {load.key.hex()}: {outcome.name}")
        if outcome != Outcome.DONE:
            return
        if action == JobAction.COMMIT and load.end == "commit and cancel":
            self._later(
                self.mesh.world.random.randint(0, 3_000_000), partial(self._act, load, JobAction.CANCEL, 9)
            )
        elif action == JobAction.COMMIT:
            self._owe(load)
        if action == JobAction.CANCEL or self.mesh.world.random.random() < 0.6:
            self._tell(load, action, _TRIES)

    def _tell(self, load: _Load, action: JobAction, tries: int) -> None:
        """Tell the other partitions. If nobody does, they find out by asking, unless the job was cancelled at home."""
        call = jobs.act(self.topic, action, load.key, load.until, at_home=False)

        def told(value: PartsCall | None, failed: effects.Failed | None) -> None:
            if failed is not None and tries:
                self._later(500_000, partial(self._tell, load, action, tries - 1))

        self.client.call(call.build, _CALL_US, told)

    def _owe(self, load: _Load) -> None:
        """From now on each of its messages must be delivered."""
        for key, payload, due, first, rank in load.rows:
            self.mesh.history.unacknowledged.pop(payload, None)
            self.mesh.history.inserted(key, payload, due, first, rank)

    def _later(self, after_us: int, action: partial[None] | object) -> None:
        """Do it after a while, if the process still lives then; until then it is not at rest."""
        client = self.client
        life = client.life
        client.waiting += 1

        def run() -> None:
            if client.life == life and client.core is not None:
                client.waiting -= 1
                assert callable(action)
                action()

        self.mesh.world.after(after_us, run)
