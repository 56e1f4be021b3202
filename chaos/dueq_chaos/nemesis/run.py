"""One run: the mesh, the traffic, the plan, quiet, and the verdict."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from dueq import Client
from dueq_chaos.history.reading import read_history
from dueq_chaos.nemesis import judging, machine
from dueq_chaos.nemesis.conductor import Conductor
from dueq_chaos.nemesis.faults import FAULTS
from dueq_chaos.nemesis.outcome import Outcome
from dueq_chaos.nemesis.plan import Plan, one_after_another
from dueq_chaos.nemesis.scenarios import SCENARIOS, at_random
from dueq_chaos.nemesis.screen import Screen
from dueq_chaos.nemesis.series import Series
from dueq_chaos.nemesis.target import Target
from dueq_chaos.nemesis.traffic import topics
from dueq_chaos.nemesis.traffic.fleet import Fleet
from dueq_chaos.nemesis.traffic.specification import KEYING, TICKING

RANDOM = "random"
_WARM_UP_S = 20.0
_WARM_UP_MESSAGES = 20
_PATIENCE_S = 90.0
_PATIENCE_INTERRUPTED_S = 20.0
_LISTEN_ON_S = 4.0
_STOP_S = 15.0
_TICK_S = 0.1
_CUTS_ONLY = "network namespaces only cut here: the proxy also delays, loses and resets"


@dataclass(frozen=True)
class Settings:
    """The settings of a run.

    Attributes:
        scenarios: names; `RANDOM` for the random mode.
        duration_s: of the faults.
        seed: of everything that is left to chance.
        rate: messages scheduled per second.
        folder: for the mesh's data and logs; new or empty.
        history: where to write the history.
        namespaces: whether partitions are made by network namespaces instead of a proxy.
        only: the kinds of faults that the random mode draws from; empty: all.
    """

    scenarios: tuple[str, ...]
    duration_s: float
    seed: int
    rate: float
    folder: Path
    history: Path
    namespaces: bool = False
    only: tuple[str, ...] = ()

    def as_texts(self) -> dict[str, str]:
        """For people."""
        return {
            "scenarios": " ".join(self.scenarios),
            "duration": f"{self.duration_s:g} s",
            "seed": str(self.seed),
            "rate": f"{self.rate:g} messages/s",
            "mesh": f"3 brokers, {topics.PARTITIONS} partitions, 3 replicas",
            "network": "namespaces" if self.namespaces else "proxy",
            "again": f"dueq-chaos run {' '.join(self.scenarios)} --seed {self.seed} --duration {self.duration_s:g} "
            f"--rate {self.rate:g}{' --network namespaces' if self.namespaces else ''}"
            f"{''.join(f' --only {kind}' for kind in self.only)}",
        }


def impossible_here(namespaces: bool = False) -> dict[str, str]:
    """Return the kinds of faults that this machine does not allow, each with the reason.

    Args:
        namespaces: whether the network is made of namespaces.
    """
    reasons = {
        "wires": machine.no_namespaces() if namespaces else machine.no_proxies(),
        "delays": _CUTS_ONLY if namespaces else machine.no_proxies(),
        "clocks": machine.no_clocks(),
        "small disks": machine.no_small_disks(),
    }
    return machine.impossible_kinds(reasons, {kind: fault.needs for kind, fault in FAULTS.items()})


def plan_of(settings: Settings, impossible: Mapping[str, str]) -> Plan:
    """Make the plan of a run, without what is impossible."""
    possible = [kind for kind in FAULTS if kind not in impossible]
    share_s = settings.duration_s / max(len(settings.scenarios), 1)
    plans = [
        at_random(settings.seed, share_s, possible, settings.only)
        if name == RANDOM
        else SCENARIOS[name].steps
        for name in settings.scenarios
    ]
    whole = one_after_another(plans, settings.duration_s)
    return tuple(step for step in whole if step.kind in possible)


class Run:
    """One run. Use it from the main thread.

    Args:
        settings: what is asked for.
        impossible: as `impossible_here` says.
        screen: for those who watch.
    """

    def __init__(self, settings: Settings, impossible: Mapping[str, str], screen: Screen) -> None:
        self._settings, self._impossible, self._screen = settings, impossible, screen
        self._plan = plan_of(settings, impossible)
        self._clocks_off_s = max((abs(step.amount) for step in self._plan if step.kind == "clock"), default=0)
        self._delayed_s = max((step.amount / 1e3 for step in self._plan if step.kind == "slow"), default=0)
        self._interrupted = False
        self._emptied = False
        self._troubles: list[str] = []
        self._faults_s = (0.0, 0.0)

    def carry_out(self) -> Outcome:
        """Do it all; everything is undone and ended at return, also when something is raised.

        Raises:
            DueqError: the mesh cannot be started.
            KeyboardInterrupt: at the second SIGINT or SIGTERM (the first ends the faults).
        """
        kinds = {step.kind for step in self._plan}
        target = Target(
            self._settings.folder,
            self._settings.seed,
            clocks="clock" in kinds,
            small_disk="fill-disk" in kinds,
            namespaces=self._settings.namespaces,
        )
        with self._signals(), target:
            with Client(target.endpoints) as client:
                topics.create(client)
            fleet = Fleet(
                self._settings.folder / "traffic", target.endpoints, self._settings.rate, self._settings.seed
            )
            target.consumers = fleet
            conductor = Conductor(target, self._screen.say)
            try:
                fleet.start()
                self._storm(target, conductor, fleet)
            finally:
                fleet.stop(_STOP_S)
            fleet.note_faults((h.begin_s, h.text) for h in conductor.happenings)
            return self._judged(target, conductor, fleet)

    # ------------------------------------------------------------ phases

    def _storm(self, target: Target, conductor: Conductor, fleet: Fleet) -> None:
        watch = self._watch(target, conductor, fleet)
        self._until(
            lambda: sum(fleet.counters.delivered.values()) >= _WARM_UP_MESSAGES,
            _WARM_UP_S, lambda rest_s: watch("warming up", rest_s),
        )  # fmt: skip
        self._screen.begin()
        start = time.monotonic()
        end = start + self._settings.duration_s

        def tick() -> bool:
            watch("breaking", max(end - time.monotonic(), 0))
            return not self._interrupted

        conductor.play(self._plan, self._settings.duration_s, tick)
        self._faults_s = (start, time.monotonic())
        self._screen.say("all faults are undone; waiting for everything that is due")
        self._quiet(target, conductor, fleet)

    def _quiet(self, target: Target, conductor: Conductor, fleet: Fleet) -> None:
        watch = self._watch(target, conductor, fleet)
        target.restore_consumers()
        fleet.stop_producing()
        patience_s = _PATIENCE_INTERRUPTED_S if self._interrupted else _PATIENCE_S

        def quiet() -> bool:
            return not fleet.producing() and target.whole() and target.placement.waiting() == 0

        self._emptied = self._until(quiet, patience_s, lambda rest_s: watch("calming down", rest_s))
        if not self._emptied:
            waiting = target.placement.waiting()
            self._troubles.append(
                f"not quiet within {patience_s:g} s: producers at work: {fleet.producing()}, "
                f"mesh whole: {target.whole()} ({target.placement.text()}), messages that wait: {waiting}"
            )
        listened = time.monotonic() + _LISTEN_ON_S
        self._until(
            lambda: time.monotonic() >= listened, _LISTEN_ON_S, lambda rest_s: watch("listening on", rest_s)
        )

    def _watch(self, target: Target, conductor: Conductor, fleet: Fleet) -> Callable[[str, float], None]:
        def watch(phase: str, rest_s: float) -> None:
            for death in target.supervise():
                self._screen.say(f"{death.broker} ended by itself with {death.exit_code}")
            fleet.look()
            self._screen.show(phase, target, conductor, fleet, rest_s)

        return watch

    def _until(self, done: Callable[[], bool], patience_s: float, watch: Callable[[float], None]) -> bool:
        end = time.monotonic() + patience_s
        while (rest_s := end - time.monotonic()) > 0:
            if done():
                return True
            watch(rest_s)
            time.sleep(_TICK_S)
        return done()

    # ------------------------------------------------------------ the verdict

    def _judged(self, target: Target, conductor: Conductor, fleet: Fleet) -> Outcome:
        settings = self._settings
        judging.join(fleet.histories, settings.history, **settings.as_texts())
        history = read_history(settings.history)
        judgement = judging.judge(history, self._emptied, self._clocks_off_s)
        ahead = judging.stamped_ahead(history, self._delayed_s)
        self._troubles += [
            f"{death.broker} ended by itself with {death.exit_code}; it said last:\n{death.said}"
            for death in target.deaths
            if death.is_bug
        ]
        self._troubles += fleet.failures
        self._troubles += [f"{h.text}: {h.trouble}" for h in conductor.happenings if h.trouble]
        noted = [
            judging.of_ticks(fleet.notes(TICKING)),
            judging.of_keys(fleet.notes(KEYING), self._clocks_off_s),
        ]
        start_s, end_s = self._faults_s
        return Outcome(
            settings=settings.as_texts(),
            impossible=self._impossible,
            happenings=conductor.happenings,
            deaths=[(d.at_s, f"{d.broker} ended with {d.exit_code}\n{d.said}") for d in target.deaths],
            series=Series.of(history, start_s, max(end_s, history.instants[-1, 0] / 1e6)),
            faults_s=self._faults_s,
            counts=judging.counts(judgement) | judging.noted_counts(noted),
            verdicts=judging.verdicts(judgement)
            | {judging.STAMPED_AHEAD: ahead}
            | judging.noted_verdicts(noted),
            examples=judging.examples(judgement, history) + judging.noted_examples(noted),
            troubles=self._troubles,
            interrupted=self._interrupted,
        )

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """The first SIGINT or SIGTERM ends the faults; the second ends everything at once."""

        def handle(number: int, frame: FrameType | None) -> None:
            if self._interrupted:
                raise KeyboardInterrupt
            self._interrupted = True

        before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
