"""Messages that a consumer has given up do not wait for the end of their leases."""

from __future__ import annotations

import pytest

from dueq.core.delivery.consumers import ConsumerSession
from dueq.instant import Now
from dueq_chaos.scenarios.stage import Stage
from dueq_chaos.sim.users.consuming import ConsumingUser
from dueq_chaos.sim.users.habits import Habits
from dueq_chaos.sim.users.producing import ProducingUser

SOON_MS = 5_000


def test_what_nobody_had_taken_when_it_was_given_up_comes_again_soon() -> None:
    """The SDK gives up after two thirds of a session without an answer, and a leader after the whole session. A
    leader that hears the consumer in between does not know that it has given up.
    """
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


def _forgetful(stage: Stage) -> ConsumingUser:
    """A user of credit for two, in fine weather, that lets every lease run out; and messages that are due by and by."""
    writer = ProducingUser(stage.sdk("writer"), stage.history)
    user = ConsumingUser(stage.sdk("user"), stage.history, stage.topic, credit=2, lease_ms=100, seed=1)
    user.habits = Habits(forget=1.0)
    user.calm_from = lambda uid: 0
    stage.run_ms(500)
    dues = [stage.now_ms + 100 + 3 * n for n in range(20)]
    writer.schedule(stage.topic, [b"%d" % n for n in range(20)], dues)
    return user


def test_a_lease_that_is_over_makes_room_before_its_holder_is_told() -> None:
    """The SDK looks for leases that are over every 20 ms at most; the leader may give the next one sooner."""
    stage = Stage()
    user = _forgetful(stage)
    seen: list[int] = []
    hold = user._within_credit

    def within_credit() -> None:
        seen.append(len(user._inbox) + len(user._held))
        hold()

    user._within_credit = within_credit  # type: ignore[method-assign]
    stage.run_ms(3_000)
    stage.expect(max(seen) > 2, "one that is over is still there when the next one comes")
    stage.expect(not stage.history.wrong, f"{stage.history.wrong}")


def test_a_leader_that_gives_more_than_the_credit_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases that are not over count."""
    free_rows = ConsumerSession.free_rows

    def one_more(self: ConsumerSession, now: Now) -> int:
        return free_rows(self, now) + 1 if self.credit else 0

    monkeypatch.setattr(ConsumerSession, "free_rows", one_more)
    stage = Stage()
    _forgetful(stage)
    stage.until(lambda: stage.history.wrong, "a verdict")
    stage.expect("holds 3 messages, of 2 at most" in stage.history.wrong[0], f"{stage.history.wrong}")


def test_what_another_leader_has_given_is_not_counted() -> None:
    """b1 gives b3 its partition back: it counts the leases there no longer, and gives as many of its own anew."""
    stage = Stage(partitions=3, replicas=2, min_isr=1)
    own, _, moved = stage.uids
    stage.nodes["b3"].crash()
    stage.until(lambda: stage.leader_of(moved) == "b1", "b1 leads in b3's place")
    stage.nodes["b3"].start()
    user = ConsumingUser(stage.sdk("user"), stage.history, stage.topic, credit=4, lease_ms=300_000, seed=1)
    user.habits = Habits(forget=1.0)
    user.calm_from = stage.calm_from
    stage.run_ms(5_000)
    for uid in (moved, own):
        stage.stored(*[b"%d of %d" % (n, uid) for n in range(8)], due=stage.now_ms + 100, uid=uid)
        stage.run_ms(1_000)
    stage.expect(any(delivery.uid == moved for delivery in user.held), "it holds some of b3's")
    stage.until(lambda: stage.leader_of(moved) == "b3", "b3 leads again", within_ms=120_000)
    stage.run_ms(1_000)
    stage.expect(len(user.held) > 4, f"it holds more: {len(user.held)}")
    stage.expect(not stage.history.wrong, f"{stage.history.wrong}")
