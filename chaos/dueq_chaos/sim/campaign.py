"""Many seeds, in several processes; their results are added up."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from multiprocessing import get_context

from dueq_chaos.sim.coverage import Coverage, Watch
from dueq_chaos.sim.storms.storm import Outcome, Storm

_AHEAD = 4
"""Seeds handed to each process ahead of their turn."""


@dataclass
class Tally:
    """The result of a campaign so far.

    Attributes:
        failures: outcomes with a verdict, by seed.
        coverage: what was taken, where that was watched.
    """

    seeds: int = 0
    simulated_us: int = 0
    steps: int = 0
    messages: int = 0
    deliveries: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    traffic: Counter[str] = field(default_factory=Counter)
    failures: dict[int, Outcome] = field(default_factory=dict)
    coverage: Coverage = field(default_factory=Coverage)

    def add(self, outcome: Outcome) -> None:
        """Count one run."""
        self.seeds += 1
        self.simulated_us += outcome.simulated_us
        self.steps += outcome.steps
        self.messages += outcome.messages
        self.deliveries += outcome.deliveries
        self.faults.update(outcome.faults)
        self.traffic.update(outcome.traffic)
        if outcome.verdicts:
            self.failures[outcome.seed] = outcome
        if outcome.taken is not None:
            self.coverage.add(outcome.taken)


@cache
def _watch() -> Watch:
    """The one of this process: it remembers which lines it has seen."""
    return Watch()


def run_seed(seed: int, minutes: float, watched: bool = False) -> Outcome:
    """One run; its trace is kept only if it failed."""
    if watched:
        with _watch().watching() as taken:
            outcome = Storm(seed, minutes=minutes).run()
        outcome.taken = taken
    else:
        outcome = Storm(seed, minutes=minutes).run()
    if not outcome.verdicts:
        outcome.trace = []
    return outcome


def run(
    seeds: range, jobs: int, minutes: float, done: Callable[[Outcome], None], watched: bool = False
) -> None:
    """Run the seeds in order, `jobs` at a time; `done` is told of each as it ends.

    Args:
        seeds: which.
        jobs: how many processes.
        minutes: how long each storm lasts (simulated); 0: some seconds.
        done: called with each outcome.
        watched: note what each of them takes (see `coverage`).

    Raises:
        KeyboardInterrupt: the user has stopped it; runs that had begun are given up.
    """
    if jobs <= 1:
        for seed in seeds:
            done(run_seed(seed, minutes, watched))
        return
    with _pool(jobs) as pool:
        remaining = iter(seeds)
        running: set[Future[Outcome]] = set()
        while True:
            while len(running) < jobs * _AHEAD and (following := next(remaining, None)) is not None:
                running.add(pool.submit(run_seed, following, minutes, watched))
            if not running:
                return
            ended, running = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                done(future.result())


@contextmanager
def _pool(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Processes of their own making (nothing inherited), which leave Ctrl-C to this one."""
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_ignore_interrupts)
    try:
        yield pool
    except BaseException:
        for process in list(pool._processes.values()):
            process.terminate()
        pool.shutdown(wait=True, cancel_futures=True)
        raise
    pool.shutdown()


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
