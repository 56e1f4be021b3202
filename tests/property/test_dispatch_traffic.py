"""Random traffic through dispatch and a real timeline: never early, never two holders, never above credit,
and nothing that is due is forgotten."""

from __future__ import annotations

import random
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dueq.core.ports.events import Route
from dueq_codecs.messages import Code, ConsumerAction, ConsumerReply, Push
from dueq_codecs.records import RecordKind

LED = runpy.run_path(str(Path(__file__).parents[1] / "unit" / "core" / "led.py"))
Stage, at, keys_in, START_MS = LED["Stage"], LED["at"], LED["keys_in"], LED["START_MS"]
CREDIT = 6
CREDIT_BYTES = 400
LEASE_MS = 1500


class Worker:
    """A consumer as an SDK behaves: drops pairs that it has seen, attaches again when it is told to."""

    def __init__(self, name: bytes) -> None:
        self.id = name * 16
        self.attach = 0
        self.number = 0
        self.awake = True
        self.seen_numbers: set[int] = set()
        self.held: dict[tuple[int, int], tuple[int, float]] = {}
        """(uid, key) -> (token, end of the lease as this consumer counts it)"""

    def push_seen(self) -> int:
        seen = 0
        while seen + 1 in self.seen_numbers:
            seen += 1
        return seen


class Traffic:
    """One run; `kind` ends the faults so that everything can be delivered."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.stage: Any = Stage(partitions=self.random.choice((1, 2, 3)))
        self.stage.instants = True
        self.workers = [Worker(name) for name in (b"a", b"b", b"c")]
        self.live: dict[tuple[int, int], int] = {}
        """(uid, key) -> due of messages that are neither acked nor cancelled"""
        self.ms = 0.0
        self.kind = False
        self.losses = self.random.choice((0.0, 0.0, 0.15))
        self.read = 0
        self.commit_late = self.random.choice((0.0, 0.5))

    # -------------------------------------------------------------- actions

    def schedule(self) -> None:
        uid = self.random.choice(list(self.stage.leds))
        dues = [int(self.ms) + self.random.randrange(-20, 400) for _ in range(self.random.randrange(1, 8))]
        dues = [max(due, 0) for due in dues]
        keys = self.stage.insert(dues, self.ms, uid, size=self.random.choice((10, 90)))
        self.live.update(((uid, key), due) for key, due in zip(keys, dues, strict=True))

    def say(self, worker: Worker, action: ConsumerAction) -> None:
        if action == ConsumerAction.ATTACH:
            worker.attach += 1
            worker.seen_numbers.clear()
        worker.number += 1
        held = [(uid, key, token) for (uid, key), (token, _) in worker.held.items()]
        before = len(self.stage.sent)
        self.stage.frame(
            action, self.ms, worker.id, worker.attach, worker.number, CREDIT, CREDIT_BYTES, LEASE_MS,
            worker.push_seen(), held if action == ConsumerAction.ATTACH else None,
            Route(worker.id + bytes([worker.attach % 256])),
        )  # fmt: skip
        assert before <= len(self.stage.sent)

    def ack(self, worker: Worker) -> None:
        for (uid, key), (token, end_ms) in list(worker.held.items()):
            if self.ms < end_ms and self.random.random() < 0.5:
                self.stage.leds[uid].change(RecordKind.ACK, [key], at(self.ms), token=[token])
                self.stage.commit(self.ms, None)
                del worker.held[uid, key]
                self.live.pop((uid, key), None)

    def withdraw(self) -> None:
        """Cancel or move something, as the partition does it: the dispatcher is asked first."""
        if not self.live:
            return
        uid, key = self.random.choice(list(self.live))
        led = self.stage.leds[uid]
        token = self.stage.dispatcher.withhold(uid, np.array([key], np.uint64)).tolist()
        if self.random.random() < 0.5:
            record = led.change(RecordKind.CANCEL, [key], at(self.ms), token=token)
        else:
            due = int(self.ms) + 300
            record = led.change(RecordKind.MOVE, [key], at(self.ms), token=token, due=[START_MS + due])
        outcome = None
        while led.open:
            committed = led.open.popleft()
            applied = led.timeline.apply(committed)
            self.stage.dispatcher.applied(uid, committed, applied, at(self.ms))
            if committed is record:
                outcome = applied.results[0].outcomes.tolist()
        if outcome == [0] and record.kind == RecordKind.CANCEL:
            del self.live[uid, key]
        elif outcome == [0]:
            self.live[uid, key] = due

    def fault(self) -> None:
        choice = self.random.randrange(5)
        worker = self.random.choice(self.workers)
        led = self.random.choice(list(self.stage.leds.values()))
        if choice == 0:
            worker.awake = not worker.awake
        elif choice == 1:
            led.full = not led.full
        elif choice == 2:
            led.answering = not led.answering
        elif choice == 3 and worker.attach:
            route = Route(worker.id + bytes([worker.attach % 256]))
            unsent = ConsumerReply("t", worker.id, worker.attach, 0, Code.OK)
            self.stage.dispatcher.route_lost(route, unsent, at(self.ms))
        elif choice == 4:
            self.stage.dispatcher.unlead(led.uid, at(self.ms))
            while led.open:  # the new leader applies what the old one had appended
                led.timeline.apply(led.open.popleft())
            led.epoch += 1
            self.stage.dispatcher.lead(led, at(self.ms))

    # -------------------------------------------------------------- the broker's side

    def turn(self) -> None:
        self.stage.tick(self.ms)
        if self.random.random() >= self.commit_late or self.kind:
            self.stage.commit(self.ms)
            self.stage.tick(self.ms)
        self.stage.read_payloads(self.ms)
        self.deliver()
        self.check_credit()

    def deliver(self) -> None:
        while self.read < len(self.stage.sent):
            _, message, _ = self.stage.sent[self.read]
            self.read += 1
            worker = next(worker for worker in self.workers if worker.id == message.consumer_id)
            if isinstance(message, Push):
                self.check_push(message)
            if not worker.awake or (not self.kind and self.random.random() < self.losses):
                continue
            if isinstance(message, ConsumerReply):
                if message.code == Code.UNKNOWN_SESSION and message.attach == worker.attach:
                    self.say(worker, ConsumerAction.ATTACH)
            elif message.attach == worker.attach:
                self.receive(worker, message)

    def receive(self, worker: Worker, push: Push) -> None:
        worker.seen_numbers.add(push.number)
        for uid, key, token, left_ms in zip(
            push.uid.tolist(), keys_in(push), push.token.tolist(), push.lease_left_ms.tolist(), strict=True
        ):
            held = worker.held.get((uid, key))
            if held is not None and held[0] == token:
                continue
            for other in self.workers:
                if other is not worker and (uid, key) in other.held:
                    assert other.held[uid, key][1] <= self.ms, "two consumers hold one message"
            worker.held[uid, key] = (token, self.ms + left_ms)

    # -------------------------------------------------------------- what must hold

    def check_push(self, push: Push) -> None:
        waits = push.due.tolist()
        for uid, key, due, left_ms in zip(
            push.uid.tolist(), keys_in(push), waits, push.lease_left_ms.tolist(), strict=True
        ):
            assert due <= START_MS + self.ms, "early"
            assert self.stage.leds[uid].answering, "pushed without the ISR"
            assert left_ms * 2 >= LEASE_MS, "less than half of the lease is left"
            assert (uid, key) in self.live, "pushed after it was done or cancelled"
            assert self.live[uid, key] <= self.ms, "pushed at an instant that it was moved away from"

    def check_credit(self) -> None:
        """Counted in the state, not by the dispatcher."""
        rows: dict[bytes, int] = {}
        size: dict[bytes, int] = {}
        for led in self.stage.leds.values():
            leased = led.timeline.leased()
            for high, low, bytes_ in zip(
                leased["consumer_high"].tolist(), leased["consumer_low"].tolist(), leased["size"].tolist(),
                strict=True,
            ):  # fmt: skip
                consumer = high.to_bytes(8, "big") + low.to_bytes(8, "big")
                rows[consumer] = rows.get(consumer, 0) + 1
                size[consumer] = size.get(consumer, 0) + bytes_
        assert all(count <= CREDIT for count in rows.values())
        assert all(weight <= CREDIT_BYTES for weight in size.values())
        for status in self.stage.dispatcher.sessions(at(self.ms)):
            assert 0 <= status.leases <= CREDIT
            assert 0 <= status.leased_bytes <= CREDIT_BYTES

    # -------------------------------------------------------------- a run

    def step(self) -> None:
        self.ms += self.random.choice((1, 3, 10, 40))
        for worker in self.workers:
            worker.held = {pair: held for pair, held in worker.held.items() if held[1] > self.ms}
            if not worker.awake:
                continue
            if not worker.attach:
                self.say(worker, ConsumerAction.ATTACH)
            elif self.random.random() < 0.1:
                self.say(worker, ConsumerAction.BEAT)
            self.ack(worker)
        self.turn()

    def run(self) -> None:
        for _ in range(250):
            action = self.random.random()
            if action < 0.3:
                self.schedule()
            elif action < 0.4:
                self.withdraw()
            elif action < 0.45:
                self.fault()
            self.step()
        self.recover()

    def recover(self) -> None:
        """No more faults: everything must be delivered and acked."""
        self.kind = True
        for worker in self.workers:
            worker.awake = True
        for led in self.stage.leds.values():
            led.full, led.answering = False, True
        until_ms = self.ms + 20_000
        while self.live and self.ms < until_ms:
            self.step()
        assert not self.live, "forgotten"
        for led in self.stage.leds.values():
            counts = self.stage.dispatcher.counts(led.uid, at(self.ms))
            assert counts == (0, 0, 0)
            assert self.stage.dispatcher._lanes[led.uid].leases.staged_bytes == 0
        assert all(status.leases == 0 for status in self.stage.dispatcher.sessions(at(self.ms)))


@pytest.mark.by_turns(4)
@pytest.mark.parametrize("seed", range(24))
def test_random_traffic_keeps_every_promise(seed: int) -> None:
    Traffic(seed).run()
