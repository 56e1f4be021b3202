"""One look at the mesh for all open pages: taken while somebody looks, and never more than one at a time."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from dueq import limits
from dueq.errors import Busy, DueqError
from dueq.gateway.catalogue import Catalogue
from dueq.gateway.dashboard.alarms import Alarms
from dueq.gateway.dashboard.counting import Counting
from dueq.gateway.dashboard.history import History
from dueq.gateway.dashboard.snapshot import Ahead, Sight, Wanted, fullest, look
from dueq.gateway.dashboard.state import State
from dueq.gateway.dashboard.telling import Shown
from dueq.gateway.logs import log
from dueq.gateway.service import Service

_PATIENCE_S: Final = 1.6
"""Of one look, on a mesh that answers quickly: a broker that is away is known after three quarters of it."""
_PATIENCE_S_MAX: Final = 20.0
_QUICK_S: Final = 0.4
_REST: Final = 4
"""A look is followed by a rest of this many times its length."""
_FULLEST_EVERY: Final = 5
"""Looks between two forecasts of the fullest topics."""
_LINGER_S: Final = 5.0
"""After the last page has gone: another page of the same person usually follows at once."""
_QUIET_S: Final = 0.2
_RETRY_S: Final = 5.0


class Feed:
    """Looks at the mesh while anybody watches.

    Args:
        service: the gateway's access to it.
        failing: tells by topic of endpoints whose receivers fail this gateway: (name, reason).

    Attributes:
        state: of the last look; None: there was none.
        shown: what it has made of the views of open pages.
        acts: what was done by the dashboard of this gateway, the latest last.
    """

    def __init__(self, service: Service, failing: Callable[[], dict[str, tuple[str, str]]] = dict) -> None:
        self._service, self._failing = service, failing
        self._history, self._alarms, self._catalogue = History(), Alarms(), Catalogue()
        self._counting = Counting(service)
        self._watching = 0
        self._topics: Counter[Wanted] = Counter()
        self._forecasts: dict[Wanted, Ahead] = {}
        self._task: asyncio.Task[None] | None = None
        self._number = self._acts = 0
        self._fresh = asyncio.Event()
        self._soon = asyncio.Event()
        self.state: State | None = None
        self.shown = Shown()
        self.acts: deque[dict[str, Any]] = deque(maxlen=limits.DASHBOARD_ACTS_KEPT)

    @contextmanager
    def watching(self, topic: str = "", ahead_s: int = 0) -> Iterator[None]:
        """Have looks taken meanwhile.

        Args:
            topic: whose forecast is wanted, too; "": of none.
            ahead_s: how far ahead it goes.

        Raises:
            Busy: too many pages are open.
        """
        if self._watching >= limits.DASHBOARD_TABS_MAX:
            raise Busy(f"{self._watching} pages are open already, the most that one gateway serves", _RETRY_S)
        self._watching += 1
        key = (topic, ahead_s)
        if topic:
            self._topics[key] += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        self._soon.set()
        try:
            yield
        finally:
            self._watching -= 1
            if topic:
                self._topics[key] -= 1
                self._topics += Counter()

    async def newer(self, number: int, timeout_s: float) -> State | None:
        """Return the state after a look, as soon as there is one; None: not in time."""
        try:
            async with asyncio.timeout(timeout_s):
                while self.state is None or self.state.sight.number <= number:
                    await self._fresh.wait()
        except TimeoutError:
            return None
        return self.state

    def acted(self, act: dict[str, Any]) -> None:
        """Remember an act, and look soon at its effects."""
        self._acts += 1
        self.acts.append({"number": self._acts, "at": int(datetime.now(UTC).timestamp() * 1000), **act})
        self._soon.set()

    async def close(self) -> None:
        """Look no more."""
        await self._counting.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        patience_s, cost_s = _PATIENCE_S, 0.0
        while await self._wanted():
            self._number += 1
            self._soon.clear()
            self.state = await self._looked(self._number, patience_s)
            sight = self.state.sight
            # Waiting for a broker that is away costs nobody anything.
            cost_s = min(sight.took_s, cost_s) if sight.waited else sight.took_s
            if sight.fault:
                # A large mesh, or one that has much to do, may need longer.
                patience_s = min(2 * patience_s, _PATIENCE_S_MAX)
            else:
                patience_s = (
                    _PATIENCE_S if cost_s < _QUICK_S else min(4 * cost_s + _PATIENCE_S, _PATIENCE_S_MAX)
                )
            self._fresh.set()
            self._fresh = asyncio.Event()
            await self._rest(cost_s)
        self.state = None  # whoever comes next must not see what is old

    async def _looked(self, number: int, patience_s: float) -> State:
        try:
            sight = await self._look(number, patience_s)
            return State(sight, self._alarms.take(sight, self._history), self._history)
        except Exception as error:
            # Without this, every open page would show the old state for good, and look alive.
            log.error("dashboard.look_broken", error=repr(error))
            before = self.state.sight if self.state is not None else None
            sight = _blind(before, number, f"a defect of the gateway: {error!r:.200}", self._now_ms(before))
            return State(sight, self._alarms.take(sight, self._history), self._history)

    async def _look(self, number: int, patience_s: float) -> Sight:
        before = self.state.sight if self.state is not None else None
        wanted = set(self._topics)
        if before is not None and number % _FULLEST_EVERY == 2:
            full = {(each.info.name, limits.DASHBOARD_AHEAD_S) for each in fullest(before.topics.values())}
            self._forecasts = {key: each for key, each in self._forecasts.items() if key in full}
            wanted |= full
        try:
            watched = {topic for topic, _ in self._topics}
            sight = await look(self._service, number, self._catalogue, watched, wanted, patience_s)
        except DueqError as error:
            return _blind(before, number, str(error), self._now_ms(before))
        sight.failing = self._failing()
        self._forecasts |= sight.forecasts
        sight.forecasts = self._counting.improved(self._forecasts, sight.at_ms)
        self._history.take(sight.at_ms, sight.statistics)
        return sight

    @staticmethod
    def _now_ms(before: Sight | None) -> int:
        return max(int(datetime.now(UTC).timestamp() * 1000), before.at_ms if before is not None else 0)

    async def _rest(self, cost_s: float) -> None:
        """Pause; shorter when something was changed."""
        usual_s = max(limits.DASHBOARD_PAUSE_MS / 1000 - cost_s, _REST * cost_s)
        pause_s = min(usual_s, limits.DASHBOARD_PAUSE_MS_MAX / 1000)
        quiet_s = min(max(_QUIET_S, cost_s), pause_s)
        await asyncio.sleep(quiet_s)
        await self._within(pause_s - quiet_s)

    async def _within(self, seconds: float) -> None:
        """Wait for this long, or until somebody is in a hurry."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._soon.wait()

    async def _wanted(self) -> bool:
        """Whether anybody watches, or will in a moment."""
        if not self._watching:
            self._soon.clear()
            await self._within(_LINGER_S)
        return self._watching > 0


def _blind(before: Sight | None, number: int, fault: str, at_ms: int) -> Sight:
    """Return the sight to show after a look that failed: the one before it."""
    if before is None:
        return Sight(number, at_ms, fault=fault)
    return replace(before, number=number, at_ms=at_ms, fault=fault, took_s=0.0)
