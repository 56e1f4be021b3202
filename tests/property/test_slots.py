"""Slots of `max_unacked` come back, whatever ends a lease: at random, a fair topic's leader has out just what it may.

Messages end by acks, nacks, releases, cancels, moves and deaths, also before their push has left; leases run out,
consumers say goodbye or fall silent, jobs are aborted, and leaders change. After each of these no group has more out
than it may. And when consumers have asked again, none has less while it has something ready: no slot is lost.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from tests.unit.core.led import ALICE, BOB, START_MS, Stage, at

from dueq.core.ports.entry import Entries, State, is_wide, keys_of
from dueq_codecs.messages import ConsumerAction
from dueq_codecs.records import Fate, JobAction, Record, RecordKind, RequestRef

LIMITS = {"a": 3, "a.x": 2}
GROUPS = ("a.x", "a.y", "b")
LEASE_MS = 1_500
CREDIT = 20
STEPS = 60


class Slots:
    """One leader after the other of one partition, and two consumers."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.stage = Stage(kind="fair")
        self.led = self.stage.leds[1]
        self.ms = 0.0
        self.keys: list[int] = []
        self.jobs = 0
        self.attaches = {ALICE: 0, BOB: 0}
        for name, most in LIMITS.items():
            document = f'{{"max_unacked":{most}}}'
            self.led.append(Record(RecordKind.GROUP, 1, 0, 0, 0, name=name, document=document), at(0))
        self.stage.commit(0)

    # -------------------------------------------------------------- what is seen from outside

    def rows(self) -> Entries:
        """All messages that have not ended."""
        found = self.led.timeline.rows(np.array(self.keys, np.uint64))
        return found.take(
            np.flatnonzero((found["state"] == State.WAITING) | (found["state"] == State.LEASED))
        )

    def of_group(self, rows: Entries, name: str) -> Entries:
        numbers = rows["group"].tolist() if is_wide(rows) else []
        names = [self.led.timeline.groups.name_of(number) or "" for number in numbers]
        return rows.take([at for at, each in enumerate(names) if f"{each}.".startswith(f"{name}.")])

    def out(self, name: str) -> int:
        rows = self.of_group(self.rows(), name)
        return int(np.count_nonzero(rows["state"] == State.LEASED))

    # -------------------------------------------------------------- what happens

    def insert(self) -> None:
        rows = self.random.randint(1, 6)
        self.keys += self.stage.insert([int(self.ms)] * rows, self.ms, group=self.random.choice(GROUPS))

    def half_way(self) -> None:
        """Leases are proposed, and not applied yet; or applied, and not pushed."""
        self.stage.tick(self.ms)
        if self.random.random() < 0.5:
            self.stage.commit(self.ms)

    def run(self) -> None:
        self.stage.run(self.ms)

    def settle(self) -> None:
        """Consumers decide about some of what is leased; some of it is decided twice."""
        rows = self.rows()
        leased = rows.take(np.flatnonzero(rows["state"] == State.LEASED))
        if not len(leased):
            return
        chosen = leased[self.random.sample(range(len(leased)), self.random.randint(1, len(leased)))]
        keys, tokens = keys_of(chosen).tolist(), chosen["token"].tolist()
        kind = self.random.choice((RecordKind.ACK, RecordKind.NACK, RecordKind.RELEASE))
        columns: dict[str, object] = {"token": tokens}
        if kind == RecordKind.NACK:
            columns["amount_ms"] = [self.random.choice((0, 200))] * len(keys)
        for _ in range(self.random.randint(1, 2)):
            record = self.led.change(kind, keys, at(self.ms), **columns)
            if kind == RecordKind.NACK and self.random.random() < 0.3:
                record.fate = np.full(len(keys), Fate.DEAD, np.uint8)
        self.stage.commit(self.ms)

    def withdraw(self) -> None:
        """Cancel or move some messages: what is granted and not pushed is withheld."""
        rows = self.rows()
        if not len(rows):
            return
        chosen = keys_of(rows[self.random.sample(range(len(rows)), min(len(rows), 2))])
        tokens = self.stage.dispatcher.withhold(1, chosen)
        columns: dict[str, object] = {"token": tokens.tolist()}
        kind = self.random.choice((RecordKind.CANCEL, RecordKind.MOVE))
        if kind == RecordKind.MOVE:
            columns["due"] = [START_MS + int(self.ms) + self.random.choice((0, 300))] * len(chosen)
        self.led.change(kind, chosen.tolist(), at(self.ms), **columns)
        if self.random.random() < 0.7:
            self.stage.commit(self.ms)

    def abort_a_job(self) -> None:
        """What was hidden takes no slot, and an aborted job leaves none taken."""
        self.jobs += 1
        job = self.jobs.to_bytes(16, "big")
        until_ms = START_MS + int(self.ms) + 60_000
        record = Record(RecordKind.INSERT, 1, 0, 0, 0, job=job, job_until=until_ms)
        record.due, record.size = np.array([until_ms] * 2, np.uint64), np.full(2, 4, np.uint32)
        record.crc = np.zeros(2, np.uint32)
        record.groups, record.group = ("a.x",), np.zeros(2, np.uint16)
        for each, number in (
            (record, 1),
            (Record(RecordKind.JOB, 1, 0, 0, 0, job=job, job_until=until_ms), 2),
        ):
            each.job_action = JobAction.ABORT if number == 2 else each.job_action
            each.requests = (RequestRef(job, number, number, max(each.rows, 1)),)
            self.led.append(each, at(self.ms))
        self.stage.commit(self.ms)

    def say(self, consumer: bytes, action: ConsumerAction) -> None:
        if action == ConsumerAction.ATTACH:
            self.attaches[consumer] += 1
        self.stage.frame(
            action, self.ms, consumer, self.attaches[consumer], int(self.ms) + 1, CREDIT, lease_ms=LEASE_MS
        )

    def attach(self) -> None:
        self.say(self.random.choice((ALICE, BOB)), ConsumerAction.ATTACH)

    def leave(self) -> None:
        consumer = self.random.choice((ALICE, BOB))
        if self.attaches[consumer]:
            self.say(consumer, ConsumerAction.GOODBYE)

    def lead_anew(self) -> None:
        """Another leader, or the same broker once more: it knows what the log says and nothing else."""
        self.stage.commit(self.ms)
        self.stage.dispatcher.unlead(1, at(self.ms))
        self.stage.dispatcher.lead(self.led, at(self.ms))

    def wait(self) -> None:
        """Some leases run out, or a silent consumer's session ends."""
        self.ms += self.random.choice((50, 400, LEASE_MS + 100, 11_000))
        self.stage.run(self.ms)

    # -------------------------------------------------------------- what must hold

    def check_most(self) -> None:
        for name, most in LIMITS.items():
            assert self.out(name) <= most, f"{name} has {self.out(name)} out, of {most}"

    def check_least(self) -> None:
        """With consumers that have credit, each group has out what it may, as far as it has something ready."""
        for consumer in (ALICE, BOB):
            self.ms += 1
            self.say(consumer, ConsumerAction.ATTACH)
        self.stage.run(self.ms)
        rows = self.rows()
        due = rows["wait_at"] <= START_MS + int(self.ms)
        ready = rows.take(np.flatnonzero(due | (rows["state"] == State.LEASED)))
        of_x, of_a = len(self.of_group(ready, "a.x")), len(self.of_group(ready, "a"))
        wanted = min(LIMITS["a"], min(LIMITS["a.x"], of_x) + of_a - of_x)
        assert self.out("a") == wanted, f"a has {self.out('a')} out, and may have {wanted}"
        assert self.out("b") == len(self.of_group(ready, "b"))


@pytest.mark.parametrize("seed", range(25))
def test_a_group_has_never_more_out_than_it_may_and_never_less_for_long(seed: int) -> None:
    slots = Slots(seed)
    acts = (
        slots.insert, slots.insert, slots.half_way, slots.half_way, slots.run, slots.settle, slots.settle,
        slots.withdraw, slots.withdraw, slots.abort_a_job, slots.attach, slots.leave, slots.lead_anew, slots.wait,
    )  # fmt: skip
    for step in range(STEPS):
        slots.random.choice(acts)()
        slots.ms += 1
        slots.check_most()
        if step % 5 == 4:
            slots.check_least()
