"""Memory as an invariant, and limits made small: both look where they should, and leave the product as it was."""

from __future__ import annotations

import ast
import inspect
from typing import Any

import pytest

from dueq import limits
from dueq.client.core.changing import request_windows
from dueq.core.delivery import due_queue
from dueq.core.delivery.lane import Lane
from dueq.core.state import dedup, job_table, timeline
from dueq_chaos.scenarios.stage import Stage
from dueq_chaos.sim.environment import scale
from dueq_chaos.sim.watching import memory

HOUR_MS = 3_600_000


def excess(stage: Stage) -> list[str]:
    node = stage.nodes[stage.leader]
    assert node.core is not None
    return memory.excess(node.core, node.now())


def cancelled_timeouts(stage: Stage) -> None:
    hand = stage.hand("producer")
    for _ in range(3):
        messages = stage.stored(*[b"t"] * 300, due=stage.now_ms + HOUR_MS)
        stage.settled(hand, hand.cancel(stage.leader, messages))


def test_nothing_is_kept_of_what_is_over() -> None:
    stage = Stage()
    cancelled_timeouts(stage)
    assert excess(stage) == []


def test_places_that_nobody_cleans_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lane, "drop_dead", lambda lane: None)
    stage = Stage()
    cancelled_timeouts(stage)
    assert any("due queue has 900 places" in text for text in excess(stage))


def test_a_table_that_grows_with_history_is_found_wherever_it_is() -> None:
    stage = Stage()
    core = stage.nodes[stage.leader].core
    assert core is not None
    core._peer_watch._reconnect_at_us.update({f"gone-{number}": number for number in range(500)})
    assert any("PeerWatch._reconnect_at_us has 500 elements" in text for text in excess(stage))


def test_headers_of_nacks_are_bounded_by_their_bytes() -> None:
    """Nothing else of their messages needs to be in memory."""
    stage = Stage()
    headings = stage.replica(stage.leader).timeline.headings
    headings.by_key.update(dict.fromkeys(range(500), "{}"))
    headings._saved.update(range(500))
    headings.size = limits.HEADINGS_BYTES_MAX
    assert excess(stage) == []
    headings.size += 1
    headings._saved.add(500)
    assert [text.split()[0] for text in excess(stage)] == ["headers", "501"]


def everything_small() -> tuple[tuple[str, int], ...]:
    return tuple(pair for group in scale.SMALL for pair in group.items())


def test_small_limits_hold_everywhere_and_only_for_their_time() -> None:
    def seen() -> list[Any]:
        return [
            limits.JOB_MEMORY_MS, job_table.JOB_MEMORY_MS, dedup.JOB_DEDUP_LIMITS.age_ms, dedup.DEDUP_LIMITS,
            request_windows.REPEAT_US, due_queue.SPARE_PLACES, timeline.Timeline(1).job_dedup.limits.age_ms,
        ]  # fmt: skip

    before = seen()
    with scale.scaled(everything_small()):
        small = dict(everything_small())
        assert seen()[:3] == [small["JOB_MEMORY_MS"]] * 3
        assert seen()[-1] == small["JOB_MEMORY_MS"]
        assert all(one != other for one, other in zip(before, seen(), strict=True))
    assert seen() == before


@pytest.mark.parametrize("group", range(-1, len(scale.SMALL)))
def test_small_limits_keep_their_relations(group: int) -> None:
    values = everything_small() if group < 0 else tuple(scale.SMALL[group].items())
    relations = [node for node in ast.parse(inspect.getsource(limits)).body if isinstance(node, ast.Assert)]
    assert relations
    with scale.scaled(values):
        for relation in relations:
            exec(compile(ast.Module([relation], []), "limits", "exec"), vars(limits))
