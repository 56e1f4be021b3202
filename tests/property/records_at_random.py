"""Records at random, for a log that a naive reference applies, too."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
from tests.property.checkpoint_disk import UID
from tests.property.idempotency import name_requests

from dueq.core.ports.entry import State
from dueq.core.state.forecast import FAR_MS, HOUR_MS
from dueq_chaos.sim.reference.naive import Naive
from dueq_codecs.meta import Meta
from dueq_codecs.records import LEVEL_OF_KINDS, NO_U64, JobAction, OnDuplicate, Record, RecordKind, RequestRef
from dueq_codecs.topic_settings import TopicSettings

CLIENTS = [bytes([number]) * 16 for number in range(1, 5)]
CONSUMERS = [bytes([number]) * 16 for number in range(11, 14)]
PLACE = (0, 2)
"""The partition's place in its topic: it decides about half of the jobs."""
START = 1_700_000_000_000

BODIES = [bytes([number]) * 32 for number in range(21, 24)]
PASSES = ("p1", "p2", "p3")
WORKING = (RecordKind.CANCEL, RecordKind.MOVE, RecordKind.CHANGE, RecordKind.DISCARD, RecordKind.REDRIVE)
ACTS = (
    *('{"do":"purge","filter":{"state":"waiting"}}',) * 3, '{"do":"shift","filter":{"state":"waiting"},"by_ms":5}',
    '{"do":"purge","filter":{"state":"dead"}}', '{"do":"redrive","filter":{"state":"dead"},"spread_ms":9}',
    '{"do":"stop"}', '{"do":"end"}', '{"do":"end","skipped":{"horizon":2}}',
)  # fmt: skip
BY_LEADER = (
    RecordKind.BARRIER, RecordKind.LEASE, RecordKind.EXPIRE, RecordKind.REVEAL, RecordKind.SETTINGS, RecordKind.LAPSE,
)  # fmt: skip


class Maker:
    """Makes records of all kinds, as users and leaders might: some repeated, some forged.

    Args:
        seed: of everything that is drawn.
        twin: the reference, from which messages are chosen.
        strange: how often jobs, forged ids and repeated requests come, of the usual.
    """

    def __init__(self, seed: int, twin: Naive, strange: float = 1) -> None:
        self.rng = random.Random(seed)
        self.recurs = seed % 3 == 0
        self.strange = strange  # how often jobs, forged ids and repeated requests come, of the usual
        self.weights: list[float] = []  # of the kinds of records, if not the usual
        self.once_rng = random.Random(seed + 1)
        self.key_rng, self.keyed = random.Random(seed), 0.1  # how often records have unique keys
        self.remember = [0, 300, 2000, 60_000]  # ms, for which keys are remembered
        self.twin = twin
        self.log: list[Record] = []
        self.stamp = START
        self.level = self.rng.choice([1, LEVEL_OF_KINDS])
        self.numbers = dict.fromkeys(CLIENTS, 0)
        self.requests: dict[tuple[bytes, int], int] = {}
        self.known: list[tuple[int, int]] = []  # (first, key)
        # Each job of a run, and until when it is hidden (0: not at all).
        ahead = [self.rng.choice([0, 300, 2000, 60_000, 3 * HOUR_MS]) for _ in range(6)]
        self.jobs = {
            self.rng.randbytes(16): START + after_ms if after_ms else 0 for after_ms in ahead
        }  # fmt: skip

    def instant(self) -> int:
        ahead = self.rng.choice([-5000, 0, 50, 1000, 60_000, HOUR_MS, 3 * HOUR_MS, FAR_MS])
        return self.stamp + ahead + self.rng.randrange(3)

    def make(self) -> Record:
        rng = self.rng
        self.stamp += rng.choice([0, 1, 20, 500, -300])
        often = self.strange * self.recurs
        newer = (
            [3, 1, 1, 3 * often, 9 * often, 2, 2 * self.strange, 2 * self.strange, 3 * self.strange, 3, 0]
            if self.level >= LEVEL_OF_KINDS
            else [0] * 11
        )
        weights = self.weights or [1, 8, 8, 4, 3, 4, 3, 2, 2, 2, 2, 2, *newer]
        kind = rng.choices(list(RecordKind), weights)[0]
        if kind == RecordKind.MOVE and self.level >= LEVEL_OF_KINDS and self.key_rng.random() < 0.3:
            kind = RecordKind.TRIGGER
        if kind == RecordKind.BARRIER and rng.random() < 0.5:
            self.level = LEVEL_OF_KINDS
        sequence = len(self.log) + 1
        record = Record(kind, UID, sequence, 1, self.stamp, self.level)
        rows = 0 if kind == RecordKind.BARRIER else rng.choice([1, 1, 2, 3, 9])
        if kind in (RecordKind.JOB, RecordKind.REVEAL) or (
            kind == RecordKind.INSERT and rng.random() < 0.5 * self.strange
        ):
            self.name_job(record)
        if kind == RecordKind.INSERT:
            record.due = np.array([self.instant() for _ in range(rows)], np.uint64)
            record.size = np.array([rng.randrange(20_000) for _ in range(rows)], np.uint32)
            record.crc = np.array([rng.getrandbits(32) for _ in range(rows)], np.uint32)
            if self.level >= LEVEL_OF_KINDS and rng.random() < 0.3:
                record.window = np.array([rng.randrange(600_000) for _ in range(rows)], np.uint32)
            modes = list(Meta) if self.level >= LEVEL_OF_KINDS else [Meta.NONE, Meta.KEY]
            record.keyed = rng.choice(modes)
            if self.level >= LEVEL_OF_KINDS and rng.random() < 0.3:
                record.rank = np.array([rng.choice([0, 1, 7, 65_535]) for _ in range(rows)], np.uint16)
            if self.level >= LEVEL_OF_KINDS and rng.random() < 0.2:
                record.groups = tuple(rng.sample(["", "a", "a.b", "c"], rng.randint(1, min(rows, 4))))
                record.group = np.array([rng.randrange(len(record.groups)) for _ in range(rows)], np.uint16)
            if self.level >= LEVEL_OF_KINDS and rng.random() < 0.3 * self.strange:
                record.expires = np.array([rng.choice([0, self.instant()]) for _ in range(rows)], np.uint64)
                record.attempts_max = np.array([rng.choice([0, 1, 2]) for _ in range(rows)], np.uint16)
            if self.level >= LEVEL_OF_KINDS and rng.random() < 0.3:
                self.share(record)
            if self.level >= LEVEL_OF_KINDS and self.key_rng.random() < self.keyed * self.strange:
                self.name_keys(record, rows)
            if self.level >= LEVEL_OF_KINDS and self.once_rng.random() < 0.2 * self.strange:
                name_requests(self.once_rng, record, rows)
            for row in range(rows):
                key = record.sequence << 16 | row
                self.known.append((max(int(record.due[row]), self.stamp, record.job_until), key))
        elif kind == RecordKind.SETTINGS:
            record.document = TopicSettings(
                max(sequence + rng.choice([0, 0, -30]), 1),
                max_attempts=rng.choice([0, 1, 1, 2]) if rng.random() < self.strange else 0,
                expired=rng.choice(["dead", "finish"]),
                keys="unique",
                remember_ms=self.key_rng.choice(self.remember),
            ).encode()
        elif kind == RecordKind.BODY:
            self.bring(record)
        elif kind == RecordKind.PASS:
            record.name, record.document = rng.choice(PASSES), rng.choice(ACTS)
        elif kind == RecordKind.GROUP:
            record.name = rng.choice(["a", "a.b", "d"])
            record.document = rng.choice(
                [
                    '{"weight":3}',
                    '{"weight":1,"paused":false}',
                    '{"paused":true}',
                    '{"burst":2,"rate":9}',
                    '{"rate":0}',
                ]
            )
        elif kind == RecordKind.RECURRENCE:
            self.recur(record)
        elif kind == RecordKind.FIRE:
            self.fire(record, rows)
        elif kind != RecordKind.JOB and rows:
            self.name(record, rows)
        if (
            kind in (*WORKING, RecordKind.TRIGGER)
            and rows
            and self.level >= LEVEL_OF_KINDS
            and rng.random() < 0.2
        ):
            versions = [
                rng.choice([0, int(record.target_sequence[row]), rng.randrange(1, 60)]) for row in range(rows)
            ]
            record.expected = np.array(versions, np.uint64)
        by_leader = kind in BY_LEADER or (kind == RecordKind.FIRE and record.tick.any())
        if not by_leader and not (kind in (RecordKind.JOB, *WORKING) and rng.random() < 0.3):
            self.request(record)
        elif kind in WORKING and self.level >= LEVEL_OF_KINDS and rng.random() < 0.7:
            record.name, record.expected = rng.choice(PASSES), NO_U64  # a leader expects no version
        return record

    def share(self, record: Record) -> None:
        """Have the payloads go on with a shared body: one that is kept, mostly."""
        kept = [(name, body.size) for name, body in self.twin.bodies.by_name.items()]
        strange = (self.rng.choice(BODIES), self.rng.choice([7, 8]))
        record.shared, record.shared_size = self.rng.choice(kept * 4 or [strange] * 4 + [strange])
        record.size = record.size + np.uint32(record.shared_size)

    def a_body(self) -> tuple[bytes, int]:
        """Return the name and size of a shared body: one that is kept, mostly."""
        kept = [(name, body.size) for name, body in self.twin.bodies.by_name.items()]
        return self.key_rng.choice(kept * 4 or [(BODIES[0], 8)])

    def bring(self, record: Record) -> None:
        """Bring a shared body, or keep one for longer or shorter."""
        rng = self.rng
        record.shared, record.shared_size = rng.choice(BODIES), rng.choice([7, 7, 7, 8])
        if rng.random() < 0.5:
            record.size = np.array([record.shared_size], np.uint32)
            record.crc = np.array([rng.getrandbits(32)], np.uint32)
        if rng.random() < 0.6:
            record.amount_ms = np.array([rng.choice([0, 0, 300, 5000, 1 << 40])], np.uint64)

    def recur(self, record: Record) -> None:
        """Do something to a recurrence, and take back what is coming of it."""
        rng = self.rng
        action = rng.choice(["create", "create", "update", "pause", "resume", "delete", "trigger"])
        document: dict[str, Any] = {"action": action}
        if action == "create":
            document |= {"cron": "* * * * *", "zone": "Europe/Berlin", "payload": "YWI="}
        elif action == "update":
            headed: dict[str, Any] = rng.choice(
                [{"headers": {"a": "b"}}, {"rank": 3, "group": "a.b"}, {"rank": 0}]
            )
            document |= rng.choice(
                [{"every_ms": 5000}, {"missed": 0}, {"payload": ""}, headed, {"zone": "UTC"}]
            )
        if action in ("create", "update") and self.key_rng.random() < 0.4:
            document.pop("payload", None)
            record.shared, record.shared_size = self.a_body()
        record.name, record.document = rng.choice("abc"), json.dumps(document)
        record.tick = np.array([self.stamp], np.uint64)
        record.following = np.array([rng.choice([0, self.stamp + 1000])], np.uint64)
        known = self.twin.recurrences.by_name.get(record.name)
        coming = list(known.coming) if known is not None else []
        keys = [known.ticks[tick] for tick in coming if rng.random() < 0.8] if known is not None else []
        keys = [key for key in keys if key in self.twin.live]
        record.first = np.array([self.twin.live[key].first for key in keys], np.uint64)
        record.target_sequence = np.array([key >> 16 for key in keys], np.uint64)
        record.target_row = np.array([key & 0xFFFF for key in keys], np.uint16)
        record.token = np.array([rng.choice([self.twin.live[key].token, 0]) for key in keys], np.uint64)

    def fire(self, record: Record, rows: int) -> None:
        """Fire some recurrences, ticks that they wait for and others; or make messages that belong to no tick."""
        rng = self.rng
        known = list(self.twin.recurrences.by_name.values())
        asked = rng.random() < 0.2
        columns = []
        for _ in range(rows):
            each = rng.choice(known) if known else None
            tick = each.next if each is not None and rng.random() < 0.9 else self.stamp
            due = rng.choice([0, tick, tick, tick, self.stamp, self.instant()])
            size = rng.randrange(20_000) if due else 0
            number = each.number if each is not None else 5
            columns.append(
                (number, 0 if asked else tick, rng.choice([0, tick + 1000, tick + 1000]), due, size)
            )
        record.keyed = rng.choice([Meta.NONE, Meta.HEADERS])
        if rng.random() < 0.5:
            record.rank = np.array([rng.randrange(3) for _ in range(rows)], np.uint16)
        if rng.random() < 0.5:
            record.groups = tuple(rng.sample(["", "a", "a.b", "e"], rng.randint(1, min(rows, 4))))
            record.group = np.array([rng.randrange(len(record.groups)) for _ in range(rows)], np.uint16)
        number, tick, following, due, size = (list(column) for column in zip(*columns, strict=True))
        record.recurrence, record.tick = np.array(number, np.uint64), np.array(tick, np.uint64)
        record.following, record.due = np.array(following, np.uint64), np.array(due, np.uint64)
        record.size, record.crc = np.array(size, np.uint32), np.array(size, np.uint32)
        if self.key_rng.random() < 0.4:
            record.shared, record.shared_size = self.a_body()
            record.size += np.uint32(record.shared_size)
        for row in range(rows):
            self.known.append((max(due[row], self.stamp), record.sequence << 16 | row))

    def name_keys(self, record: Record, rows: int) -> None:
        """Give rows unique keys of which there are few; some are what an earlier attempt may have left."""
        rng = self.key_rng
        record.keyed = record.keyed or Meta.KEY
        record.key_high = np.array([rng.choice([0, 1, 1, 2, 3, 4, 5, 6, 7]) for _ in range(rows)], np.uint64)
        record.key_low = record.key_high * np.uint64(3)
        actions = [OnDuplicate.REFUSE, OnDuplicate.KEEP, *[OnDuplicate.REPLACE] * 2 * (not record.job_until)]
        record.on_duplicate, record.retry = rng.choice(actions), rng.random() < 0.4
        borne = [entry for entry in self.twin.live.values() if entry.key_high]
        for row in range(rows):
            if borne and rng.random() < 0.5:
                entry = rng.choice([entry for entry in borne if entry.token] * (rng.random() < 0.5) or borne)
                record.key_high[row], record.key_low[row] = entry.key_high, entry.key_low
                record.due[row], record.size[row], record.crc[row] = entry.due, entry.size, entry.crc
                record.due[row] += rng.random() < 0.2  # nearly what an earlier attempt has left
                if len(record.window):
                    record.due[row] += record.window[row]

    def name_job(self, record: Record) -> None:
        rng = self.rng
        record.job, until = rng.choice(list(self.jobs.items()))
        if record.kind == RecordKind.REVEAL:
            return
        record.job_until = until if rng.random() < 0.95 else until + 1
        if record.kind == RecordKind.JOB:
            record.job_action = rng.choice(list(JobAction)[1:])

    def name(self, record: Record, rows: int) -> None:
        rng = self.rng
        ids, tokens = [], []
        for _ in range(rows):
            leased = [(e.first, k) for k, e in self.twin.live.items() if e.state == State.LEASED]
            waiting = [(e.first, k) for k, e in self.twin.live.items() if e.state == State.WAITING]
            dead = [(e.first, k) for k, e in self.twin.live.items() if e.state == State.DEAD]
            over = [
                (e.first, k)
                for k, e in self.twin.live.items()
                if e.state == State.WAITING and 0 < e.expires <= self.stamp
            ]
            if record.kind == RecordKind.LAPSE:
                dead = over
            pool = [leased, waiting, self.known, self.known[-12:], dead]
            of_dead = 9 * (record.kind in (RecordKind.LAPSE, RecordKind.DISCARD, RecordKind.REDRIVE))
            first, key = rng.choice(rng.choices(pool, [4, 4, 1, 1, of_dead])[0] or self.known or [(1, 1)])
            if rng.random() < 0.05 * self.strange:
                first += rng.choice([1, -1, 1 << 48])
            if rng.random() < 0.03 * self.strange and record.kind != RecordKind.LEASE:
                key += 1 << 56 if rng.random() < 0.3 else rng.choice([1, 1 << 16])
            token = self.twin.live[key].token if key in self.twin.live else 0
            ids.append((first, key))
            tokens.append(rng.choice([token, token, token, 0, 3]))
        record.first = np.array([first for first, _ in ids], np.uint64)
        record.target_sequence = np.array([key >> 16 for _, key in ids], np.uint64)
        record.target_row = np.array([key & 0xFFFF for _, key in ids], np.uint16)
        says_why = record.kind in (RecordKind.LAPSE, RecordKind.EXPIRE, RecordKind.NACK)
        if says_why and self.level >= LEVEL_OF_KINDS and rng.random() < 0.4 * self.strange:
            record.reasons = tuple(rng.sample(["", "late", "é"], rng.randint(1, min(rows, 3))))
            record.reason = np.array([rng.randrange(len(record.reasons)) for _ in ids], np.uint16)
        if record.kind == RecordKind.NACK and self.level >= LEVEL_OF_KINDS and self.key_rng.random() < 0.3:
            record.document = self.key_rng.choice(["{}", '{"tries":"é"}'])
        if record.kind == RecordKind.REDRIVE:
            record.due = np.array([rng.choice([0, self.instant()]) for _ in ids], np.uint64)
        if record.kind in (RecordKind.REVEAL, RecordKind.LAPSE, RecordKind.DISCARD, RecordKind.REDRIVE):
            return
        if record.kind == RecordKind.LEASE:
            record.consumers = tuple(CONSUMERS)
            record.consumer = np.array([rng.randrange(3) for _ in ids], np.uint16)
            record.lease_ms = np.array([1000, 2000, 3000], np.uint64)
            if rng.random() < 0.3:
                record.detached = np.array([0, 1, rng.randrange(2)], np.uint8)
            if rng.random() < 0.3:
                record.token = np.array(tokens, np.uint64)
            return
        record.token = np.array(tokens, np.uint64)
        if record.kind == RecordKind.MOVE:
            back = rng.random() < 0.3
            record.due = np.array([f if back and f < 1 << 48 else self.instant() for f, _ in ids], np.uint64)
        if record.kind == RecordKind.CHANGE:
            record.rank = np.array([rng.choice([0, 1, 7, 65_535]) for _ in ids], np.uint16)
        optional = record.kind in (RecordKind.EXPIRE, RecordKind.RELEASE) and self.level >= LEVEL_OF_KINDS
        if (
            record.kind == RecordKind.NACK
            and self.level >= LEVEL_OF_KINDS
            and rng.random() < 0.3 * self.strange
        ):
            record.fate = np.array([rng.choice([0, 2]) for _ in ids], np.uint8)
        if record.kind in (RecordKind.NACK, RecordKind.EXTEND) or (
            optional and rng.random() < 0.4 * self.strange
        ):
            record.amount_ms = np.array([rng.choice([0, 7, 5000]) for _ in ids], np.uint64)

    def request(self, record: Record) -> None:
        rng = self.rng
        left = record.rows
        requests = []
        while left:
            rows = rng.randint(1, left)
            left -= rows
            client = rng.choice(CLIENTS)
            if rng.random() < 0.2 * self.strange and self.requests:
                client, number = rng.choice(list(self.requests))
                digest = self.requests[client, number] + (rng.random() < 0.2)
            else:
                self.numbers[client] += rng.choice([1, 1, 1, 3, -1])
                number = max(self.numbers[client], 0)
                digest = self.requests.setdefault((client, number), rng.getrandbits(63))
            requests.append(RequestRef(client, number, digest, rows))
        record.requests = tuple(requests)
