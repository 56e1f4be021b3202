"""Plays a plan on a target: begins and ends faults on time, and undoes all of them whatever happens."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from dueq.errors import DueqError
from dueq_chaos.nemesis.faults import FAULTS, Fault
from dueq_chaos.nemesis.plan import Plan, Step
from dueq_chaos.nemesis.target import Target

_TICK_S = 0.05


@dataclass(slots=True)
class Happening:
    """One fault as it was.

    Attributes:
        kind: of the fault.
        lane: under which heading it belongs.
        text: the deed and its broker, for people.
        begin_s, end_s: `time.monotonic()`; the end None while it lasts.
        trouble: what went wrong with beginning or ending it; empty when nothing did.
    """

    kind: str
    lane: str
    text: str
    begin_s: float
    end_s: float | None = None
    trouble: str = ""


class Conductor:
    """Belongs to the thread that entered the target.

    Args:
        target: to break things on.
        say: told of every beginning and end, for a log.

    Attributes:
        happenings: all faults so far, by their beginning.
    """

    def __init__(self, target: Target, say: Callable[[str], object] = lambda text: None) -> None:
        self._target, self._say = target, say
        self._running: list[tuple[Step, Fault, Happening]] = []
        self.happenings: list[Happening] = []

    @property
    def broken(self) -> list[Happening]:
        """The faults that are under way."""
        return [happening for _, _, happening in self._running]

    def play(self, plan: Plan, duration_s: float, tick: Callable[[], bool]) -> None:
        """Play a plan to its end; at return, and whenever something is raised, everything is undone.

        Args:
            plan: in order.
            duration_s: how long to stay, also when the plan is over sooner.
            tick: called many times a second; False ends the play at once.
        """
        start = time.monotonic()
        waiting = list(plan)
        try:
            while (now_s := time.monotonic() - start) < duration_s or waiting or self._running:
                for entry in [entry for entry in self._running if entry[0].end_s <= now_s]:
                    self._end(entry)
                while waiting and waiting[0].at_s <= now_s:
                    self._begin(waiting.pop(0))
                if not tick():
                    return
                time.sleep(_TICK_S)
        finally:
            self.undo()

    def undo(self) -> None:
        """End every fault that lasts, the latest first."""
        while self._running:
            self._end(self._running[-1])

    def _begin(self, step: Step) -> None:
        fault = FAULTS[step.kind](step)
        happening = Happening(step.kind, fault.lane, step.kind, time.monotonic())
        self.happenings.append(happening)
        # Before it begins: half-way is to be undone too.
        self._running.append((step, fault, happening))
        try:
            happening.text = fault.begin(self._target)
        except (DueqError, OSError) as error:
            happening.trouble = f"{type(error).__name__}: {error}"
        self._say(f"begins: {happening.text} {happening.trouble}".rstrip())

    def _end(self, entry: tuple[Step, Fault, Happening]) -> None:
        _, fault, happening = entry
        self._running.remove(entry)
        try:
            fault.end(self._target)
        except (DueqError, OSError) as error:
            happening.trouble = f"{happening.trouble} {type(error).__name__}: {error}".strip()
        happening.end_s = time.monotonic()
        self._say(f"ends: {happening.text} {happening.trouble}".rstrip())
