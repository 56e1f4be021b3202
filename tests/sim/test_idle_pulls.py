"""Pulls that wait for long: through changes of leaders, lost frames and the end of their client."""

from __future__ import annotations

from typing import Any

import numpy as np

from dueq.client import pulls
from dueq.client.core import Delivery
from dueq.client.core.ports import effects
from dueq.core.ports.events import ClientFrameReceived, Event
from dueq_chaos.scenarios.stage import Stage
from dueq_chaos.sim.environment.sdk import SimClient
from dueq_codecs.messages import ConsumerAction, ConsumerFrame

LONG_S = 120.0
LATE_MS = 150
"""How late a message may be for a pull that waits, while nothing is wrong."""
BELIEVED_MS = 6_500


class Idle:
    """A process with pulls that wait."""

    def __init__(
        self, stage: Stage, count: int = 1, wait_s: float = LONG_S, reach: list[str] | None = None
    ) -> None:
        self.stage = stage
        self.sdk: SimClient = stage.sdk("idle", reach)
        self.came: list[tuple[int, bytes]] = []
        self.failed: list[effects.Failed] = []
        self.ended = 0
        for _ in range(count):
            call, _ = pulls.pull(stage.topic, 1, wait_s, 30.0, None, ())
            self.sdk.call(call.build, int(wait_s * 1e6) + 10_000_000, self._answered)

    def _answered(self, value: Any, failed: effects.Failed | None) -> None:
        self.ended += 1
        if failed is not None:
            self.failed.append(failed)
            return
        found: list[Delivery] = value
        self.came += [(self.stage.now_ms, bytes(delivery.payload)) for delivery in found]


def frames(action: ConsumerAction) -> Any:
    def match(event: Event) -> bool:
        return (
            isinstance(event, ClientFrameReceived)
            and isinstance(event.message, ConsumerFrame)
            and event.message.action == action
        )

    return match


def comes_in_time(stage: Stage, idle: Idle, text: bytes, uid: int = 0) -> None:
    before = len(idle.came)
    [message] = stage.stored(text, due=stage.now_ms + 1_000, uid=uid)
    stage.until(lambda: len(idle.came) > before, f"{text!r} comes", 10_000)
    at_ms, payload = idle.came[-1]
    stage.expect(payload == text, f"{payload!r}")
    stage.expect(0 <= at_ms - message.due <= LATE_MS, f"{text!r} was {at_ms - message.due} ms late")


def test_idle_pulls_cost_one_frame_for_each_leader_now_and_then() -> None:
    stage = Stage(partitions=3)
    asked = [stage.watch(name, frames(ConsumerAction.PULL)) for name in stage.names]
    told = [stage.watch(name, frames(ConsumerAction.WAITING)) for name in stage.names]
    idle = Idle(stage, count=20)
    stage.run_ms(10_000)
    before, lists = sum(len(each.events) for each in asked), sum(len(each.events) for each in told)
    stage.run_ms(60_000)
    stage.expect(sum(len(each.events) for each in asked) == before, "no pull is repeated")
    sent = sum(len(each.events) for each in told) - lists
    stage.expect(0 < sent <= 3 * 25, f"{sent} lists")
    for number, uid in enumerate(stage.uids):
        comes_in_time(stage, idle, b"%d" % number, uid)
    stage.expect(not idle.failed, f"{idle.failed}")


def test_a_client_that_reaches_one_broker_only_lists_its_pulls_by_that() -> None:
    stage = Stage(partitions=3)
    asked = [stage.watch(name, frames(ConsumerAction.PULL)) for name in stage.names]
    idle = Idle(stage, reach=["b2"])
    stage.run_ms(10_000)
    before = sum(len(each.events) for each in asked)
    stage.run_ms(60_000)
    stage.expect(sum(len(each.events) for each in asked) == before, "no pull is repeated")
    comes_in_time(stage, idle, b"by way of another")


def test_a_message_comes_to_an_idle_pull_though_its_leader_died() -> None:
    stage = Stage(partitions=2)
    idle = Idle(stage, count=3)
    stage.run_ms(20_000)
    dead = stage.leader
    stage.nodes[dead].crash()
    stage.until(lambda: all(stage.leader_of(uid) not in (None, dead) for uid in stage.uids), "others lead")
    stage.run_ms(BELIEVED_MS)
    for number, uid in enumerate(stage.uids):
        comes_in_time(stage, idle, b"after %d" % number, uid)
    stage.nodes[dead].start()
    stage.run_ms(20_000)
    comes_in_time(stage, idle, b"and when it is back")


def test_lists_that_are_lost_are_made_good() -> None:
    stage = Stage()
    idle = Idle(stage)
    stage.run_ms(10_000)
    lost = stage.hold(stage.leader, frames(ConsumerAction.WAITING))
    stage.run_ms(30_000)
    stage.expect(lost.events, "lists were lost")
    comes_in_time(stage, idle, b"m")


def test_nothing_is_given_to_the_pulls_of_a_process_that_has_died() -> None:
    stage = Stage()
    idle = Idle(stage, count=3)
    stage.run_ms(20_000)
    idle.sdk.crash()
    stage.network.isolate("idle", stage.names)  # nobody tells the leader
    stage.run_ms(BELIEVED_MS + 200)
    other = stage.hand("other")
    other.attach(stage.leader, credit=10, lease_ms=30_000)
    other.stay()
    messages = stage.stored(b"a", b"b", b"c", due=stage.now_ms + 200)
    found = stage.delivered(other, *messages)
    stage.expect([pushed.attempt for pushed in found] == [1, 1, 1], "it is their first attempt")


def test_a_pull_ends_when_its_time_is_over_and_gets_nothing_after_it() -> None:
    stage = Stage(partitions=3)
    idle = Idle(stage, wait_s=15.0)
    stage.run_ms(14_000)
    stage.expect(not idle.ended, "it waits")
    stage.until(lambda: idle.ended, "its end", 2_000)
    stage.expect(not idle.came and not idle.failed, "it got nothing")
    [message] = stage.stored(b"m", due=stage.now_ms + 100)
    stage.run_ms(500)
    row = stage.replica(stage.leader).timeline.rows(
        np.array([message.sequence << 16 | message.row], np.uint64)
    )
    stage.expect(row["attempt"].tolist() == [0], "nobody was given it")
