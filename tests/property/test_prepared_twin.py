"""Pushes as they were laid out are those that are made from the leases, frame by frame, whatever happens meanwhile."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from dueq import limits
from dueq.core.delivery.lane import Lane
from dueq.core.delivery.leases import Phase, Slots
from dueq.core.delivery.pushing import Pushing
from dueq.core.ports.entry import Entries, keys_of
from dueq_codecs.frames import encode
from dueq_codecs.messages import ConsumerAction, Push
from dueq_codecs.records import RecordKind

TRAFFIC = runpy.run_path(str(Path(__file__).parent / "test_dispatch_traffic.py"))
Traffic, LED, LEASE_MS = TRAFFIC["Traffic"], TRAFFIC["LED"], TRAFFIC["LEASE_MS"]
at, START_MS = LED["at"], LED["START_MS"]


class Meddled(Traffic):  # type: ignore[misc, valid-type]
    """Traffic in which more happens to leases between their grant and their instant; each turn is a whole one."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.stage.instants = False

    def meddle(self) -> None:
        """Something that takes effect at once, or is committed later."""
        uid = self.random.choice(list(self.stage.leds))
        lane, led = self.stage.dispatcher._lanes[uid], self.stage.leds[uid]
        granted = np.flatnonzero(lane.leases.phase == Phase.GRANTED)
        choice = self.random.randrange(8)
        if choice == 0 and len(granted):
            self.extend(uid, led, lane, int(self.random.choice(granted.tolist())))
        elif choice == 1 and len(granted):
            soonest = lane.leases.entry.take(granted)
            soonest = soonest[np.argsort(soonest["wait_at"], kind="stable")[:1]]
            token = self.stage.dispatcher.withhold(uid, keys_of(soonest)).tolist()
            led.change(RecordKind.CANCEL, keys_of(soonest).tolist(), at(self.ms), token=token)
            self.live.pop((uid, int(keys_of(soonest)[0])), None)
            self.ms = max(self.ms, int(soonest["wait_at"][0]) - START_MS)
            self.stage.tick(self.ms)
        elif choice == 2:
            worker = self.random.choice(self.workers)
            if worker.attach:
                worker.held.clear()
                self.say(worker, ConsumerAction.GOODBYE)
                worker.attach += 1  # that attach has ended
        elif choice == 3:
            self.stage.tick(self.ms, paused=True)
        elif choice == 4:
            self.stage.dispatcher.shift(self.random.choice((1_000, 500_000)), at(self.ms))
        elif choice == 5:
            self.ms += 800
        elif choice == 6:
            led.cached = not led.cached
        else:
            keys = self.stage.insert([int(self.ms) + 60], self.ms, uid, size=2 * limits.CHUNK_BYTES, upload=7)
            self.live[uid, keys[0]] = int(self.ms) + 60

    def turn(self) -> None:
        """Like the base, but payloads may come late."""
        self.stage.tick(self.ms)
        if self.random.random() >= self.commit_late:
            self.stage.commit(self.ms)
            self.stage.tick(self.ms)
        if self.random.random() < 0.5:
            self.stage.read_payloads(self.ms)
        self.deliver()

    def extend(self, uid: int, led: Any, lane: Any, slot: int) -> None:
        """A lease that its consumer cannot know yet is made longer or shorter."""
        key, token = int(keys_of(lane.leases.entry.take([slot]))[0]), int(lane.leases.token[slot])
        columns = np.array([key], np.uint64), np.array([token], np.uint64)
        amount_ms = self.random.choice((LEASE_MS // 3, LEASE_MS * 2))
        amounts = np.array([amount_ms], np.uint64)
        self.stage.dispatcher.extending(uid, *columns, amounts, at(self.ms))
        led.change(RecordKind.EXTEND, [key], at(self.ms), token=[token], amount_ms=[amount_ms])

    def check_push(self, push: Any) -> None:
        """The promises have a test of their own, with the credit."""

    def receive(self, worker: Any, push: Any) -> None:
        if not isinstance(push, Push):
            return
        worker.seen_numbers.add(push.number)
        for uid, key, token in zip(push.uid.tolist(), LED["keys_in"](push), push.token.tolist(), strict=True):
            worker.held[uid, key] = (token, self.ms + LEASE_MS)

    def run(self) -> None:
        for _ in range(200):
            action = self.random.random()
            if action < 0.3:
                self.schedule()
            elif action < 0.4:
                self.withdraw()
            elif action < 0.45:
                self.fault()
            elif action < 0.52:
                self.meddle()
            self.step()


def _unprepared(lane: Lane, slots: Slots, entries: Entries, mesh_ms: int) -> None:
    lane.schedule(slots, np.ascontiguousarray(entries["wait_at"]))


def _history(seed: int) -> tuple[list[tuple[Any, list[bytes]]], Any, Any]:
    traffic = Meddled(seed)
    traffic.run()
    sent = [
        (route, [bytes(frame) for frame in encode(message, bodies)])
        for route, message, bodies in traffic.stage.sent
    ]
    metrics = traffic.stage.metrics
    return (
        sent,
        (dict(metrics.messages), dict(metrics.redelivered), metrics.lateness_of("t").counts),
        [counts.document() for counts in metrics.statistics._hours.values()],
    )


@pytest.mark.by_turns(4)
@pytest.mark.parametrize("seed", range(24))
def test_what_was_laid_out_leaves_as_if_it_were_made_at_its_instant(seed: int) -> None:
    sent, counted, hours = _history(seed)
    with patch.object(Lane, "grant", _unprepared):
        expected, expected_counts, expected_hours = _history(seed)
    for ours, theirs in zip(sent, expected, strict=False):
        assert ours == theirs
    assert len(sent) == len(expected)
    assert counted == expected_counts
    assert hours == expected_hours


def test_the_histories_push_what_was_laid_out() -> None:
    with patch.object(Pushing, "_release", autospec=True, side_effect=Pushing._release) as released:
        _history(1)
        _history(2)
    assert released.call_count > 10
