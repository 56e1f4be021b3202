"""Messages that a consumer has given up do not wait for the end of their leases."""

from __future__ import annotations

from dueq_chaos.scenarios.stage import Stage
from dueq_chaos.sim.users import ConsumingUser, Habits, ProducingUser

SOON_MS = 5_000


def test_what_nobody_had_taken_when_it_was_given_up_comes_again_soon() -> None:
    """The SDK gives up after two thirds of a session without an answer, a leader after the whole: a leader that hears
    the consumer in between knows nothing of it."""
    stage = Stage()
    writer = ProducingUser(stage.sdk("writer"), stage.history)
    reader = ConsumingUser(
        stage.sdk("reader"), stage.history, stage.topic, credit=64, lease_ms=60_000, seed=1
    )
    reader.habits = Habits(idle_us=(9_000_000, 9_000_000))
    stage.run_ms(500)
    writer.schedule(stage.topic, [b"%d" % n for n in range(5)], [stage.now_ms + 100] * 5)
    stage.until(lambda: not reader.is_free, "they are in its buffer")
    stage.network.isolate("reader", stage.names)
    stage.until(lambda: reader.is_free, "it gives them up")
    reader.habits = Habits()
    stage.network.heal()
    healed_ms = stage.now_ms
    stage.until(lambda: stage.history.done() or stage.history.wrong, "all of them handled")
    stage.expect(stage.now_ms - healed_ms < SOON_MS, f"after {stage.now_ms - healed_ms} ms")
    stage.expect(not stage.history.verdicts(clock_error_us=1_000), f"{stage.history.verdicts()}")
    stage.finish()
