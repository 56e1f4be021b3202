"""A process that stands still: its session with the coordinator ends, and what it was told of it must still read."""

from __future__ import annotations

from dueq.core.ports.events import Event
from dueq.core.ports.membership import CoordinatorChanged, CoordinatorState, NodeSeen
from dueq_chaos.scenarios.stage import Stage


def test_a_session_ends_in_its_time_though_its_broker_sleeps() -> None:
    stage = Stage()
    stage.nodes["b1"].pause(5_000_000)
    stage.run_ms(2_900)
    stage.expect("b1" in stage.coordinator.registrations, "the session's time is not over")
    stage.run_ms(200)
    stage.expect("b1" not in stage.coordinator.registrations, "it is expired")
    seen = stage.watch("b1", lambda event: isinstance(event, CoordinatorChanged))
    stage.until(lambda: not stage.nodes["b1"].paused, "b1 is awake")
    stage.until(lambda: "b1" in stage.coordinator.registrations, "a new session", within_ms=1_000)
    told = [event.state for event in seen.events if isinstance(event, CoordinatorChanged)]
    stage.expect(told == [CoordinatorState.SUSPENDED, CoordinatorState.CONNECTED], f"{told}")
    stage.finish()


def test_a_short_sleep_ends_no_session() -> None:
    stage = Stage()
    stage.nodes["b2"].pause(2_500_000)
    stage.run_ms(2_600)
    stage.run_ms(2_000)
    stage.expect("b2" in stage.coordinator.registrations, "it is registered")
    stage.finish()


def test_what_a_watch_has_told_of_in_a_sleep_is_read_after_it() -> None:
    """Nothing is read for a process that sleeps. When it wakes, it learns what is there then."""
    stage = Stage()

    def is_news(event: Event) -> bool:
        return isinstance(event, NodeSeen)

    seen = stage.watch("b1", is_news)
    stage.nodes["b1"].pause(2_800_000)
    stage.until(lambda: stage.leader_of(stage.uid) not in (None, "b1"), "another leader")
    stage.run_ms(200)
    stage.expect(not seen.events, "nothing was read")
    stage.until(lambda: not stage.nodes["b1"].paused, "b1 is awake")
    stage.expect(not seen.events, "nor has it been at once")
    stage.until(lambda: seen.events, "the node, as it is by now", within_ms=100)
    [latest] = [event for event in seen.events[-1:] if isinstance(event, NodeSeen)]
    stage.expect(latest.node == stage.node_of(), f"{latest}")
    stage.finish()
