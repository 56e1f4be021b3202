"""The verdict on dead messages: none is there for longer than its topic keeps it."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from dueq.core.ports.entry import State
from dueq_chaos.sim.environment.world import START_WALL_US
from dueq_chaos.sim.users.mortals import kept_too_long

DAY_MS = 86_400_000
NOW_MS = START_WALL_US // 1000 + 400 * DAY_MS


def verdict(died_ms_ago: int, settings: dict[str, int] | None, state: State = State.DEAD) -> list[str]:
    entry = SimpleNamespace(state=state, died_at=NOW_MS - died_ms_ago)
    document = json.dumps(settings) if settings is not None else ""
    naive: Any = SimpleNamespace(settings=document, live={7 << 16 | 2: entry})
    world = SimpleNamespace(wall_us=NOW_MS * 1000)
    mesh: Any = SimpleNamespace(world=world, coordinator=SimpleNamespace(nodes={1: None}))
    return kept_too_long(mesh, lambda uid: naive)


@pytest.mark.parametrize(
    ("died_ms_ago", "settings", "state", "wrong"),
    [
        (10_000, {"dead_retention_ms": 1_000}, State.DEAD, True),
        (4_500, {"dead_retention_ms": 1_000}, State.DEAD, False),
        (10_000, {"dead_retention_ms": 1_000}, State.WAITING, False),
        (10_000, {}, State.DEAD, False),
        (10_000, None, State.DEAD, False),
        (365 * DAY_MS, None, State.DEAD, True),
        (401 * DAY_MS, None, State.DEAD, False),
    ],
    ids=[
        "kept for too long",
        "just now",
        "not dead",
        "kept as usual",
        "no settings",
        "a year ago",
        "before the world began",
    ],
)
def test_what_is_dead_for_too_long(
    died_ms_ago: int, settings: dict[str, int] | None, state: State, wrong: bool
) -> None:
    found = verdict(died_ms_ago, settings, state)
    assert bool(found) is wrong
    if wrong:
        assert found == [f"p1:7:2: is dead since {NOW_MS - died_ms_ago}, and still there at {NOW_MS}"]
