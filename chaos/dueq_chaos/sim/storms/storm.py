"""One whole run from one seed: traffic, faults, quiet, and the verdict."""

from __future__ import annotations

import traceback
from dataclasses import dataclass, field
from random import Random

from dueq_chaos.sim.coverage import Taken
from dueq_chaos.sim.environment import scale
from dueq_chaos.sim.environment.mesh import SimMesh
from dueq_chaos.sim.storms import last_words, punctuality
from dueq_chaos.sim.storms.faults import Faults
from dueq_chaos.sim.storms.plan import Plan, Step, draw
from dueq_chaos.sim.storms.workload import Workload
from dueq_chaos.sim.users import heirs, idlers, mortals, recurring, streams
from dueq_chaos.sim.users.heirs import Heirs
from dueq_chaos.sim.users.idlers import Idlers
from dueq_chaos.sim.users.streams import Streams
from dueq_chaos.sim.users.traffic import topic_name
from dueq_chaos.sim.watching import job_rules
from dueq_chaos.sim.watching.invariants import Invariants, Violation

_QUIET_US = 240_000_000
"""A full table of jobs takes two minutes to make room, and whoever loads jobs asks ten times for 15 s each."""
_LOOK_US = 20_000
"""Time between two looks for the end of the storm."""
_CLOCK_ERROR_US = 1_000
"""A clock that is ahead by less than a frame takes on the usual network is not known to be."""
_DRIFT_ERROR_US = 10_000
"""How far a clock slewed by 500 ppm may drift on a slow network before a newer measurement counts for more."""
_TRACE_LINES = 4_000


@dataclass
class Outcome:
    """The result of a run.

    Attributes:
        seed: which repeats it exactly.
        verdicts: everything that must not have happened.
        simulated_us: how long the world ran.
        messages: acknowledged inserts.
        faults: how many were injected, by kind.
        trace: the last lines of what happened.
        steps: turns that brokers took.
        traffic: what users did, by kind.
        deliveries: messages handed out, repeated ones included.
        taken: what it took of the situations and lines that are looked for, where somebody watched.
    """

    seed: int
    verdicts: list[str]
    simulated_us: int
    messages: int
    faults: dict[str, int] = field(default_factory=dict)
    trace: list[str] = field(default_factory=list)
    steps: int = 0
    traffic: dict[str, int] = field(default_factory=dict)
    deliveries: int = 0
    taken: Taken | None = None


_WRONG_CLOCKS = {"set clock", "drift clock", "wrong heir", "wrong start"}
"""Faults after which a delivery may be early by true time."""
_WRONG_FOR_CLIENTS = {"forgetful under a wrong heir"}
"""Faults after which a client that begins may take the time from a broker whose clock is wrong."""


def _clock_error_us(plan: Plan) -> int:
    """How early a delivery may be by true time: not at all, while every clock is right."""
    wrong = {step.kind for step in plan.steps} & _WRONG_CLOCKS
    return (_CLOCK_ERROR_US if wrong else 0) + (_DRIFT_ERROR_US if "drift clock" in wrong else 0)


class Storm:
    """A mesh, its users, and weather; the seed decides all of it.

    Args:
        seed: decides everything.
        plan: run this (a part of the seed's plan) instead of the seed's whole plan.
        minutes: how long the storm lasts before quiet begins (simulated); 0: some seconds.

    Attributes:
        mesh: the world; for those who look at it afterwards.
        uids: partitions of the topics that are written to.
    """

    def __init__(self, seed: int, plan: Plan | None = None, minutes: float = 0.0) -> None:
        self.plan = plan or draw(seed, minutes)
        options = self.plan.options
        with scale.scaled(options.limits):
            self.mesh = SimMesh(
                seed, options.topology.brokers,
                hot_rows_total=options.hot_rows_total, log_retain_bytes=options.log_retain_bytes,
                snapshot_part_bytes=options.snapshot_part_bytes,
            )  # fmt: skip
        self.random = self.mesh.world.random
        self._clock_error_us = _clock_error_us(self.plan)
        self._unproved_us = options.delay_us[1] if options.delay_us and self._clock_error_us else 0
        self.invariants = Invariants(self.mesh, self._clock_error_us, self._unproved_us)
        self._faults = Faults(self.mesh, self._burst, self._users)
        self._workload: Workload | None = None
        self._idlers: Idlers | None = None
        self._heirs: Heirs | None = None
        self._streams: Streams | None = None
        self.uids: list[int] = []

    @property
    def faults(self) -> dict[str, int]:
        """How many faults were injected, by kind."""
        return self._faults.injected

    def run(self) -> Outcome:
        """Run it to the end, or to the first violation."""
        try:
            with scale.scaled(self.plan.options.limits):
                verdicts = self._run()
        except Violation as violation:
            verdicts = [str(violation)]
        except Exception as error:  # the simulator's own fault, or a core's that nothing else has caught
            verdicts = [f"the run failed: {error!r}", *traceback.format_exc().splitlines()[-7:]]
        mesh, workload = self.mesh, self._workload
        return Outcome(
            mesh.world.seed,
            verdicts,
            mesh.world.now_us,
            len(mesh.history.messages),
            self.faults,
            mesh.world.trace[-_TRACE_LINES:],
            self.invariants.steps,
            workload.done if workload is not None else {},
            sum(len(message.deliveries) for message in mesh.history.messages.values()),
        )

    def _run(self) -> list[str]:
        mesh, world = self.mesh, self.mesh.world
        mesh.alone_may_serve = self.plan.options.topology.alone
        for number, shape in enumerate(self.plan.options.topology.topics):
            self.uids += mesh.create_topic(
                topic_name(number), shape.partitions, shape.replicas, shape.min_isr, first=number,
                kind=shape.kind, settings=shape.settings,
            )  # fmt: skip
        workload = self._workload = Workload(mesh, self.plan.options)
        if idlers.has_some(world.seed):
            wrong = {step.kind for step in self.plan.steps} & (_WRONG_CLOCKS | _WRONG_FOR_CLIENTS)
            self._idlers = Idlers(mesh, self.plan.options.wire, workload.traffic.send, not wrong)
        if heirs.has_some(world.seed):
            self._heirs = Heirs(mesh, self.plan.options.wire, workload.traffic.send)
            workload.consumers.append(self._heirs.user)
        if streams.has_some(world.seed):
            self._streams = Streams(mesh, self.plan.options.wire, workload.traffic.send)
        self._weather()
        began_us = world.now_us
        for step in self.plan.steps:
            world.run(max(began_us + step.at_us - world.now_us, 0))
            self._do(step, workload)
            if mesh.history.wrong or self._failed():
                break
        else:
            world.run(max(began_us + self.plan.until_us - world.now_us, 0))
        return self._calm_down(workload)

    def _burst(self, random: Random, requests: int, soon_ms: int, late_ms: int) -> None:
        if self._workload is not None:
            self._workload.traffic.burst(random, requests, soon_ms, late_ms)

    def _users(self) -> Workload:
        assert self._workload is not None, "nobody is there before the storm begins"
        return self._workload

    def _do(self, step: Step, workload: Workload) -> None:
        if step.kind == "calm":
            self.invariants.in_full(quiet=False)
            self.mesh.calm()
            self._weather()
        elif step.kind == "long calm":
            self._long_calm(Random(step.seed), workload)
        elif step.is_fault:
            self._faults.do(step)
        elif step.kind in idlers.KINDS:
            if self._idlers is not None:
                self._idlers.do(step.kind, Random(step.seed))
        elif step.kind in heirs.KINDS:
            if self._heirs is not None:
                self._heirs.do(step.kind, Random(step.seed))
        elif step.kind in streams.KINDS:
            if self._streams is not None:
                self._streams.do(step.kind, Random(step.seed))
        else:
            workload.do(step)

    def _long_calm(self, random: Random, workload: Workload) -> None:
        """Minutes in which nothing goes wrong and little happens: partitions grow older by their records only."""
        self.mesh.calm()
        for _ in range(random.randint(2, 6)):
            self.mesh.world.run(random.randint(5_000_000, 40_000_000))
            workload.traffic.burst(random, 6, 0, 1_000)
        self.mesh.world.run(2_000_000)
        self._weather()

    def _weather(self) -> None:
        """Set the usual weather of this world."""
        weather, options = self.mesh.network.weather, self.plan.options
        weather.lost_share, weather.twice_share = options.lost, options.twice
        weather.slow_share = options.slow
        self.mesh.coordinator.lose_answer_share = options.lose_answer
        self.mesh.coordinator.watch_us = options.watch_us
        self.mesh.coordinator.slow_us = options.set_us
        if options.delay_us is not None:
            weather.delay_us = options.delay_us
        for node, slow_us in zip(self.mesh.nodes.values(), options.disks_us, strict=False):
            node.disk.slow_us = slow_us

    def _failed(self) -> bool:
        return any(node.failures for node in self.mesh.nodes.values()) or any(
            client.failures for client in self.mesh.sdks.values()
        )

    # -------------------------------------------------------------- quiet

    def _calm_down(self, workload: Workload) -> list[str]:
        mesh = self.mesh
        if mesh.history.wrong or self._failed():
            return mesh.history.wrong + mesh.failures()
        mesh.calm()
        workload.calm()
        if self._idlers is not None:
            self._idlers.calm()
        whole = mesh.world.run_until(
            lambda: mesh.whole() and mesh.quiet() and mesh.linked(), _QUIET_US, _LOOK_US
        )
        workload.traffic.bring_near()
        late_ms = recurring.late_by_ms(mesh, self.invariants.ledger.naive)
        mesh.world.run(5_000_000)
        unreceived = punctuality.unreceived(mesh, self.invariants.ledger, workload.consumers)
        if whole and mesh.whole():
            naive_of = self.invariants.ledger.naive
            unreceived += recurring.overdue(late_ms, recurring.late_by_ms(mesh, naive_of))
            unreceived += mortals.kept_too_long(mesh, self.invariants.ledger.naive)
        workload.end_recurrences()
        workload.calm()
        # A planned move of a leadership may be under way when the last message is done.
        mesh.world.run_until(
            lambda: mesh.quiet() and mesh.history.done() and mesh.whole(), _QUIET_US, _LOOK_US
        )
        verdicts = unreceived + self._seen()
        if not (whole and mesh.whole()):
            waiting = {name: len(client.calls) for name, client in mesh.sdks.items()}
            verdicts.append(
                f"no quiet: whole {mesh.whole()}, linked {mesh.linked()}, requests without an answer {waiting}"
            )
        if not verdicts:
            mesh.world.run_until(lambda: job_rules.settled(mesh, self.invariants.ledger), _QUIET_US, _LOOK_US)
            verdicts = job_rules.verdicts(mesh, self.invariants.ledger)
        if not verdicts:
            verdicts = punctuality.late(mesh, workload)
        if not verdicts and workload.triggers:
            verdicts = punctuality.held_back(mesh, workload)
            mesh.world.run_until(lambda: mesh.quiet() and mesh.history.done(), _QUIET_US, _LOOK_US)
        if not verdicts and self._idlers is not None:
            verdicts = self._idlers.unreached()
        if not verdicts and self._heirs is not None:
            verdicts = self._heirs.unrenewed()
            mesh.world.run_until(lambda: mesh.quiet() and mesh.history.done(), _QUIET_US, _LOOK_US)
        if not verdicts and last_words.has_some(mesh.world.seed):
            last_words.speak(mesh, workload)
            mesh.world.run_until(
                lambda: mesh.whole() and mesh.quiet() and mesh.linked() and mesh.history.done(),
                _QUIET_US,
                _LOOK_US,
            )
        if not verdicts:
            # Time for the last commit positions and checkpoints to arrive; a lease may just have run out.
            mesh.world.run(5_000_000)
            mesh.world.run_until(self.invariants.level, _QUIET_US, _LOOK_US)
            self.invariants.in_full(quiet=True)
            verdicts = self._seen()
        return verdicts

    def _seen(self) -> list[str]:
        """What clients saw that must not be, and what is broken."""
        allowed_us = self._clock_error_us + self._unproved_us
        return self.mesh.history.verdicts(clock_error_us=allowed_us) + self.mesh.failures()
