"""Named scenarios of extends: what a holder believes of its lease, and what its leader makes of it."""

from __future__ import annotations

from collections.abc import Callable

from dueq import limits
from dueq.client import calls
from dueq.client.core.ports import effects
from dueq.client.endings import Ending
from dueq_chaos.scenarios.stage import Stage
from dueq_chaos.sim.environment.sdk import SimClient
from dueq_chaos.sim.users.consuming import ConsumingUser
from dueq_chaos.sim.users.habits import Habits
from dueq_codecs.messages import BrokerMessage, ChangeReply
from dueq_codecs.records import Outcome, RecordKind

LONG_MS = 30_000
SLOW = Habits(work_us=(10**9, 10**9))


class Holder:
    """A consumer with one message, at work on it."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.user = _slow(stage, "holder")
        self.client: SimClient = self.user.client
        stage.run_ms(1_000)
        [self.message] = stage.stored(b"one", due=stage.now_ms + 50)
        stage.until(lambda: self.user._held, "it has the message")
        [self.delivery] = self.user._held
        self.answers: list[tuple[list[Outcome] | None, effects.Failed | None]] = []

    @property
    def left_ms(self) -> float:
        """How long it believes that it has the message."""
        return (self.delivery.deadline_us - self.stage.world.now_us) / 1000

    def extend(self, length_ms: int) -> None:
        """Ask for another end, and let the session machine send it."""
        call = calls.settle(self.user.consumer_id, RecordKind.EXTEND, [self.delivery], Ending(length_ms))
        self.client.call(call.build, 20_000_000, lambda *answer: self.answers.append(answer))
        self.stage.run_ms(0.1)

    def lose_answers(self, count: int) -> None:
        """The next answers to its requests are lost on the way."""
        received: Callable[[str, BrokerMessage, list[bytes | memoryview]], None] = self.client.received
        left = [count]

        def deaf(identity: str, message: BrokerMessage, bodies: list[bytes | memoryview]) -> None:
            if isinstance(message, ChangeReply) and left[0]:
                left[0] -= 1
            else:
                received(identity, message, bodies)

        setattr(self.client, "received", deaf)  # noqa: B010


def _slow(stage: Stage, name: str) -> ConsumingUser:
    user = ConsumingUser(stage.sdk(name), stage.history, stage.topic, credit=1, lease_ms=LONG_MS, seed=1)
    user.habits = SLOW
    return user


def test_who_asks_for_less_than_is_left_believes_that_at_once() -> None:
    """The leader ends the lease at the shorter instant, whether its answer arrives or not."""
    stage = Stage()
    holder = Holder(stage)
    rival = _slow(stage, "rival")
    stage.run_ms(500)
    holder.lose_answers(1)
    holder.extend(150)
    stage.expect(holder.left_ms <= 150, f"{holder.left_ms} ms are believed to be left")
    stage.until(lambda: rival._held, "the message is with another")
    stage.expect(holder.delivery.lost, "its first holder knows by then")
    stage.run_ms(2_000)
    stage.expect(holder.answers == [([Outcome.DONE], None)], f"{holder.answers}")
    stage.expect(not stage.history.wrong, f"{stage.history.wrong}")


def test_who_is_told_that_it_has_more_learns_so_from_the_answer() -> None:
    """The extension that is asked for is longer than what is left. Nobody relies on it before it is confirmed."""
    stage = Stage()
    holder = Holder(stage)
    stage.run_ms(500)
    holder.lose_answers(1)
    holder.extend(2 * LONG_MS)
    stage.run_ms(100)
    stage.expect(holder.left_ms < LONG_MS, f"{holder.left_ms} ms are believed to be left")
    stage.until(lambda: holder.answers, "the answer to the repetition")
    stage.expect(holder.left_ms > LONG_MS, f"{holder.left_ms} ms are believed to be left")


def test_of_two_extends_on_their_way_the_shorter_counts_until_both_are_answered() -> None:
    """They may be applied in either order; the log says which was the last."""
    stage = Stage()
    holder = Holder(stage)
    holder.lose_answers(1)
    holder.extend(5_000)
    stage.run_ms(5)
    holder.extend(2 * LONG_MS)
    stage.until(lambda: holder.answers, "an answer to the second")
    stage.expect(holder.left_ms < 5_000, f"{holder.left_ms} ms are believed to be left")
    stage.until(lambda: len(holder.answers) == 2, "an answer to the first")
    stage.expect(holder.left_ms > LONG_MS, f"{holder.left_ms} ms are believed to be left")
    stage.run_ms(10_000)
    stage.expect(not holder.delivery.lost, "it still has it")


def test_a_refused_extend_changes_nothing() -> None:
    """Nothing was logged: the lease is as long as it was, and the caller is told why."""
    stage = Stage()
    holder = Holder(stage)
    holder.extend(limits.LEASE_MS_MAX + 1)
    stage.until(lambda: holder.answers, "an answer")
    [(outcomes, failed)] = holder.answers
    stage.expect(outcomes is None and failed is not None, f"{holder.answers}")
    stage.expect(LONG_MS / 2 < holder.left_ms < LONG_MS, f"{holder.left_ms} ms")
    stage.expect(not holder.delivery.lost, "it still has it")


def test_an_extend_of_what_was_given_up_is_stale() -> None:
    """Given back, or lost: it is with nobody here any more, so nothing is asked of the leader."""
    stage = Stage()
    holder = Holder(stage)
    back = calls.settle(holder.user.consumer_id, RecordKind.NACK, [holder.delivery], Ending(60_000))
    holder.client.call(back.build, 20_000_000, lambda *answer: None)
    holder.extend(LONG_MS)
    stage.until(lambda: holder.answers, "an answer")
    stage.expect(holder.answers == [([Outcome.STALE], None)], f"{holder.answers}")


def test_an_extend_waits_for_a_leader_and_its_holder_counts_from_asking() -> None:
    """Its length counts from when it is applied: its holder gives up before its leader does, never after."""
    stage = Stage()
    holder = Holder(stage)
    rival = _slow(stage, "rival")
    stage.run_ms(500)
    for name in stage.names:
        stage.nodes[name].crash()
    holder.extend(1_000)
    lost_at: list[int] = []
    stage.run_ms(200)
    for name in stage.names:
        stage.nodes[name].start()

    def again() -> bool:
        if holder.delivery.lost and not lost_at:
            lost_at.append(stage.world.now_us)
        return bool(rival._held) or any(held is not holder.delivery for held in holder.user._held)

    stage.until(again, "the message is handed out again")
    stage.expect(lost_at and lost_at[0] < stage.world.now_us, "its first holder had given it up before")
    stage.expect(not stage.history.wrong, f"{stage.history.wrong}")


def test_an_ack_of_what_was_given_back_is_stale() -> None:
    """The message comes again: nobody may believe that it is done."""
    stage = Stage()
    holder = Holder(stage)
    for kind in (RecordKind.NACK, RecordKind.ACK, RecordKind.NACK):
        call = calls.settle(holder.user.consumer_id, kind, [holder.delivery], Ending())
        holder.client.call(call.build, 20_000_000, lambda *answer: holder.answers.append(answer))
    stage.until(lambda: len(holder.answers) == 3, "three answers")
    outcomes = sorted(str(outcomes) for outcomes, _ in holder.answers)
    expected = sorted(str([outcome]) for outcome in (Outcome.DONE, Outcome.STALE, Outcome.DONE))
    stage.expect(outcomes == expected, f"the first counts, once more is the same: {outcomes}")
