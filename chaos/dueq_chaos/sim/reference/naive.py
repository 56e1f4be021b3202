"""The rules of `apply` once more, row by row: a dictionary instead of columns, no disk and no window.

The replicas of a partition are compared with each other, but they all run one `apply`: a mistake in it makes them wrong
together. This is the reference: written from the rules (docs/explanation), it shares constants with the product
and no code. Slow and stupid on purpose: clever code here would have to be proved.
"""

from __future__ import annotations

import json
from collections import Counter
from copy import deepcopy
from typing import Any, Final

from dueq import limits
from dueq.core.ports.entry import FLAG_DETACHED, FLAG_FAR, FLAG_TRIGGERED, FLAG_UPLOAD, State, meta_flags
from dueq.core.state import dedup
from dueq.core.state.dedup import DedupLimits
from dueq.core.state.forecast import FAR_MS
from dueq.core.state.timeline import AGE_STEP_MS
from dueq.limits import DELAY_MS_MAX
from dueq_chaos.sim.reference.naive_bodies import NaiveBodies
from dueq_chaos.sim.reference.naive_entry import NaiveEntry, Told
from dueq_chaos.sim.reference.naive_groups import NaiveGroups
from dueq_chaos.sim.reference.naive_jobs import ENDED, NaiveJobs
from dueq_chaos.sim.reference.naive_keys import NaiveKeys, key_of
from dueq_chaos.sim.reference.naive_memory import NaiveMemory, Verdict
from dueq_chaos.sim.reference.naive_passes import NaivePasses
from dueq_chaos.sim.reference.naive_places import places_of
from dueq_chaos.sim.reference.naive_recurrences import NaiveRecurrences
from dueq_codecs.messages import Code
from dueq_codecs.records import (
    LEVEL_OF_KINDS,
    WITH_PAYLOADS,
    Fate,
    JobState,
    OnDuplicate,
    Outcome,
    Record,
    RecordKind,
    RequestRef,
)
from dueq_codecs.shape import REVOKING

CANCELLING: Final = (RecordKind.CANCEL, RecordKind.RECURRENCE)
ATTEMPT_MAX: Final = (1 << 16) - 1
LEASE_MS_MAX: Final = (1 << 32) - 1


class Naive:
    """One partition's state.

    Args:
        place: the partition's place in its topic, and how many the topic has.
        limits: of what is remembered of requests; None: the usual.

    Attributes:
        live: key -> message.
        leased: keys of those that a consumer holds.
        ended: keys of those that ended, and of rows that never took effect, each once.
        jobs: what is known of jobs.
        groups: what is known of groups.
        settings: the topic's, as the newest document that came.
        passes: what is known of passes.
        remarks: why messages were given back last, by key.
        recurrences: what is known of recurrences.
        bodies: what is known of shared bodies.
        keys: what unique keys name.
        triggered_leases: (token, key) of each lease of a triggered message.
        headings: the headers that NACKs have given messages, by key.
        shown: (token, key) of each lease of such a message, and the headers that it comes with.
    """

    def __init__(self, place: tuple[int, int], limits: DedupLimits | None = None) -> None:
        self.live: dict[int, NaiveEntry] = {}
        self.leased: set[int] = set()
        self.ended: list[int] = []
        self.memory = NaiveMemory(limits or dedup.DEDUP_LIMITS)
        self.job_memory = NaiveMemory(dedup.JOB_DEDUP_LIMITS)
        self.jobs = NaiveJobs(place)
        self.groups = NaiveGroups()
        self.recurrences = NaiveRecurrences()
        self.bodies = NaiveBodies()
        self.keys = NaiveKeys()
        self.stamp = self.latest = self.age = self.applied = 0
        self.settings = ""
        self.passes = NaivePasses()
        self.remarks: dict[int, str] = {}
        self.triggered_leases: set[tuple[int, int]] = set()
        self.headings: dict[int, str] = {}
        self.shown: dict[tuple[int, int], str] = {}

    def is_triggered(self, key: int) -> bool:
        """Whether no pause and no rate holds a message."""
        return key in self.live and self.live[key].flags & FLAG_TRIGGERED != 0

    def was_triggered(self, token: int, key: int) -> bool:
        """Whether that was so when this lease of it was granted."""
        return (token, key) in self.triggered_leases

    # ---------------------------------------------------------------- records

    def apply(self, record: Record) -> Told:
        """Apply the next committed record."""
        self.applied = record.sequence
        self.age += min(max(record.stamp - self.stamp, 0), AGE_STEP_MS)
        self.stamp = record.stamp
        self.latest = max(self.latest, record.stamp)
        self.memory.expire(self.age)
        self.job_memory.expire(self.age)
        self.jobs.forget(self.age, self.stamp, self.live.values())
        self.groups.forget(self.live.values())
        self.passes.forget(self.age)
        named = self.body_users() if self.bodies.by_name else {}
        self.ended += [number << 16 for number in self.bodies.forget(self.age, named)]
        self.keys.forget(self.age)
        self.keys.replaced = []
        told = Told()
        verdicts = self._judge(record)
        told.effective = not verdicts or any(fresh for _, (_, _, fresh) in verdicts)
        self._number_groups(record, verdicts)
        row = 0
        places = places_of(record) if record.kind in WITH_PAYLOADS else []
        for request, (_, answer, fresh) in verdicts:
            for at in range(row, row + request.rows):
                if fresh:
                    outcome = self._row(record, at, told, places)
                    if answer is not None:
                        answer.outcomes.append(outcome)
                elif record.kind in WITH_PAYLOADS or (record.kind == RecordKind.BODY and len(record.size)):
                    self.ended.append(record.sequence << 16 | at)
            if fresh and answer is not None and record.kind == RecordKind.INSERT:
                met = [self.keys.met[at] for at in range(row, row + request.rows) if at in self.keys.met]
                self.memory_of(record).note(answer, met)
            row += request.rows
        self.keys.met.clear()
        if not record.requests:
            for at in range(record.rows):
                self._row(record, at, told, places)
        for request, (code, answer, fresh) in verdicts:
            name = request.client_id, request.sequence, code
            if answer is None:
                told.results.append((*name, 0, 0, 0, [], False, [], []))
            else:
                place = answer.sequence, answer.row, answer.stamp
                told.results.append((*name, *place, answer.outcomes[:], not fresh, answer.window, answer.met))
        return told

    def body_users(self) -> Counter[int]:
        """Count the messages and recurrences that have a shared body, by its number."""
        users = Counter(entry.body for entry in self.live.values())
        for recurrence in self.recurrences.by_name.values():
            if name := recurrence.terms["body"]:
                users[self.bodies.by_name[bytes.fromhex(name)].number] += 1
        return users

    def memory_of(self, record: Record) -> NaiveMemory:
        """Return the memory of the requests of such a record."""
        return self.job_memory if record.kind == RecordKind.INSERT and record.job else self.memory

    def _judge(self, record: Record) -> list[tuple[RequestRef, Verdict]]:
        of_job = record.kind == RecordKind.INSERT and bool(record.job)
        memory = self.memory_of(record)
        late = of_job and self.jobs.take_no_more(record)
        strange = self.bodies.refuses(record)
        verdicts: list[tuple[RequestRef, Verdict]] = []
        row = 0
        for request in record.requests:
            if late or strange:
                code = Code.JOB_ENDED if late else Code.UNKNOWN_BODY
                verdict = memory.recall(request) or (code, None, False)
            else:
                verdict = memory.judge(request, record, row, self.age)
            verdicts.append((request, verdict))
            row += request.rows
        return verdicts

    def _number_groups(self, record: Record, verdicts: list[tuple[RequestRef, Verdict]]) -> None:
        """Groups with a row that takes effect get a number, in the order in which the record names them."""
        if not len(record.group):
            return
        fresh = [verdict[2] for request, verdict in verdicts for _ in range(request.rows)]
        if record.kind == RecordKind.FIRE:
            trial, known = deepcopy(self.recurrences), not self.bodies.refuses(record)
            fresh = [
                known and (not fresh or fresh[at]) and trial.fire(record, at)[1] for at in range(record.rows)
            ]
        used = {place for at, place in enumerate(record.group.tolist()) if not fresh or fresh[at]}
        for place in sorted(used):
            self.groups.number(record.groups[place])

    def may_be_delivered(self, key: int) -> bool:
        """Whether nothing but time keeps a message from being leased."""
        return self.jobs.state_of(self.live[key]) == JobState.COMMITTED

    def _act(self, record: Record, told: Told) -> Outcome:
        outcome, committed = self.jobs.act(record, self.age)
        if committed is not None:
            told.waiting += [key for key in self.waiting() if self.live[key].job == committed.number]
        return outcome

    def _configure(self, record: Record) -> Outcome:
        known = json.loads(self.settings)["version"] if self.settings else 0
        if json.loads(record.document)["version"] > known:
            self.settings = record.document
        return Outcome.DONE

    def _work(self, record: Record, at: int, key: int, entry: NaiveEntry | None, told: Told) -> Outcome:
        """A row of a pass."""
        known = self.passes.by_name.get(record.name)
        if entry is None or known is None or not known.may_change(entry):
            return Outcome.UNKNOWN
        if record.kind in (RecordKind.DISCARD, RecordKind.REDRIVE):
            outcome = self._end_death(record, at, key, entry, told)
        else:
            outcome = self._withdraw(record, at, key, entry, told)
        known.count(outcome)
        return outcome

    # ---------------------------------------------------------------- rows

    def _row(self, record: Record, at: int, told: Told, places: list[tuple[int, int]]) -> Outcome:
        kind = record.kind
        if kind == RecordKind.JOB:
            return self._act(record, told)
        if kind == RecordKind.GROUP:
            return self.groups.set(record)
        if kind == RecordKind.SETTINGS:
            return self._configure(record)
        if kind == RecordKind.BODY:
            outcome, garbage = self.bodies.act(record, self.age)
            self.ended += [record.sequence << 16] if garbage else []
            return outcome
        if kind == RecordKind.PASS:
            return self.passes.act(record, self.live.values(), self.age)
        if kind == RecordKind.INSERT:
            return self._insert(record, at, told, places[at])
        if kind == RecordKind.FIRE:
            return self._fire(record, at, told, places[at])
        if kind == RecordKind.RECURRENCE:
            return self._recur(record, told)
        key = int(record.target_sequence[at]) << 16 | int(record.target_row[at])
        entry = self.live.get(key)
        same = entry is not None and entry.first == int(record.first[at])
        if record.name:
            return self._work(record, at, key, entry if same else None, told)
        if kind == RecordKind.LEASE:
            return self._lease(record, at, key, entry if same else None, told)
        if kind == RecordKind.REVEAL:
            if same and entry is not None and entry.state == State.WAITING:
                return self._reveal(record, key, entry, told)
            return Outcome.STALE
        if kind == RecordKind.LAPSE:
            return self._lapse(record, at, key, entry if same else None, told)
        if kind in (RecordKind.DISCARD, RecordKind.REDRIVE):
            return self._end_death(record, at, key, entry if same else None, told)
        if kind in REVOKING:
            return self._withdraw(record, at, key, entry if same else None, told)
        return self._settle(record, at, key, entry if same else None, told)

    def _insert(self, record: Record, at: int, told: Told, place: tuple[int, int]) -> Outcome:
        number = 0
        if record.job:
            state = JobState.OPEN if record.job_until else JobState.COMMITTED
            number = self.jobs.of(record, state, self.age).number
        due, key = int(record.due[at]), record.sequence << 16 | at
        body = self.bodies.use(record, self.age) if record.shared else 0
        digest = key_of(record, at)
        if (again := self.keys.again(record, at, self.age)) is not None:
            self.ended.append(key)
            return again
        if digest != (0, 0):
            outcome = self._meet(record, at, digest, number, told)
            if outcome != Outcome.DONE:
                self.ended.append(key)
                return self.keys.refused(record, at, self.age, outcome)
        uploaded = len(record.upload) > 0 and record.upload[at] > 0
        flags = meta_flags(record.keyed) | FLAG_UPLOAD * uploaded
        self.live[key] = NaiveEntry(
            max(due, record.stamp, record.job_until), due, record.sequence, at, int(record.size[at]),
            int(record.crc[at]), *place, flags, number, rank=int(record.rank[at]) if len(record.rank) else 0,
            group=self.groups.numbers.get(record.groups[int(record.group[at])], 0) if len(record.group) else 0,
            recurrence=int(record.recurrence[at]) if len(record.recurrence) else 0,
            expires=int(record.expires[at]) if len(record.expires) else 0,
            attempts_max=int(record.attempts_max[at]) if len(record.attempts_max) else 0,
            body=body,
            key_high=digest[0], key_low=digest[1],
        )  # fmt: skip
        self.keys.begin(record, at, self.age, (self.live[key].first, key, due))
        self._wait(key, due, told)
        return Outcome.DONE

    def _meet(self, record: Record, at: int, digest: tuple[int, int], job: int, told: Told) -> Outcome:
        """A row with a unique key meets what that names; DONE: it may take the key."""
        name = self.keys.names.get(digest)
        if name is None:
            return Outcome.DONE
        bearer = self.live[name.key] if name.until is None else None
        waits = bearer is not None and bearer.state == State.WAITING
        if bearer is not None and bearer.job != job:
            if self.jobs.state_of(bearer) == JobState.OPEN:
                self.keys.met[at] = (0, 0, 0, 0)
                return Outcome.HIDDEN
            if waits and self.jobs.state_of(bearer) in ENDED:
                self._replace(name.key, told)
                return Outcome.DONE
        last = (bearer.due, bearer.size, bearer.crc) if bearer is not None else name.last
        own = self.keys.is_own(record, at, last)
        if not own and record.on_duplicate == OnDuplicate.REPLACE:
            if waits:
                self._replace(name.key, told)
                return Outcome.DONE
            outcome = Outcome.TAKEN if bearer is None else Outcome.LEASED
        else:
            outcome = Outcome.KEPT if own or record.on_duplicate == OnDuplicate.KEEP else Outcome.TAKEN
        self.keys.met[at] = name.first, name.key >> 16, name.key & 0xFFFF, last[0]
        return outcome

    def _replace(self, key: int, told: Told) -> None:
        told.gone.append(key)
        self.keys.replaced.append(key)
        told.waiting = [each for each in told.waiting if each != key]
        entry = self.live[key]
        self.keys.names.pop((entry.key_high, entry.key_low))
        self._finish(key)

    def _let_key_go(self, entry: NaiveEntry) -> None:
        """A message ends: its key is free, or remembered for a while."""
        digest = entry.key_high, entry.key_low
        key = entry.sequence << 16 | entry.row
        if entry.state == State.DEAD or not self.keys.is_borne_by(digest, key):
            return
        remember = 0 if self.jobs.state_of(entry) in ENDED else int(self._setting("remember_ms", 0))
        last = entry.due, entry.size, entry.crc
        self.keys.end(digest, last, self.age + remember if remember else None)

    def _fire(self, record: Record, at: int, told: Told, place: tuple[int, int]) -> Outcome:
        if self.bodies.refuses(record):
            self.ended.append(record.sequence << 16 | at)
            return Outcome.NOT_FOUND
        outcome, is_new = self.recurrences.fire(record, at)
        if is_new:
            self._insert(record, at, told, place)
        else:
            self.ended.append(record.sequence << 16 | at)
        return outcome

    def _recur(self, record: Record, told: Told) -> Outcome:
        withdrawn = set()
        for at in range(len(record.target_sequence)):
            key = int(record.target_sequence[at]) << 16 | int(record.target_row[at])
            entry = self.live.get(key)
            same = entry is not None and entry.first == int(record.first[at])
            if self._withdraw(record, at, key, entry if same else None, told) == Outcome.DONE:
                withdrawn.add(key)
        if record.shared:
            self.bodies.use(record, self.age)
        return self.recurrences.act(record, withdrawn)

    def _lease(self, record: Record, at: int, key: int, entry: NaiveEntry | None, told: Told) -> Outcome:
        token = int(record.token[at]) if len(record.token) else 0
        if token and (entry is None or entry.state != State.LEASED or entry.token != token):
            told.refused.append(key)
            return Outcome.NOT_FOUND
        if entry is None or (not token and entry.state != State.WAITING):
            told.refused.append(key)
            return Outcome.NOT_FOUND
        if not token and self.jobs.state_of(entry) != JobState.COMMITTED:
            told.refused.append(key)
            if self.jobs.state_of(entry) in ENDED:
                told.gone.append(key)
                self._finish(key)
            return Outcome.NOT_FOUND
        entry.state, entry.token = State.LEASED, record.sequence
        entry.attempt = min(entry.attempt + 1, ATTEMPT_MAX)
        consumer = int(record.consumer[at])
        entry.consumer = record.consumers[consumer]
        entry.lease_ms = min(int(record.lease_ms[consumer]), LEASE_MS_MAX)
        if len(record.detached) and record.detached[consumer]:
            entry.flags |= FLAG_DETACHED
        self.leased.add(key)
        if entry.flags & FLAG_TRIGGERED:
            self.triggered_leases.add((record.sequence, key))
        if key in self.headings:
            self.shown[record.sequence, key] = self.headings[key]
        told.leased.append(key)
        return Outcome.DONE

    def _reveal(self, record: Record, key: int, entry: NaiveEntry, told: Told) -> Outcome:
        """Only what waits for its job's `until` and never began anew, and is due before."""
        job = self.jobs.by_key.get(record.job)
        if job is None or job.state != JobState.COMMITTED or entry.job != job.number:
            return Outcome.STALE
        if entry.wait_at != job.until or entry.attempt or max(entry.due, record.stamp) >= job.until:
            return Outcome.STALE
        told.gone.append(key)
        self._wait(key, entry.due, told)
        return Outcome.DONE

    def _withdraw(self, record: Record, at: int, key: int, entry: NaiveEntry | None, told: Told) -> Outcome:
        if entry is None or (record.kind not in CANCELLING and self.jobs.state_of(entry) in ENDED):
            return Outcome.NOT_FOUND
        if record.kind == RecordKind.RECURRENCE and entry.attempt != (entry.state == State.LEASED):
            return Outcome.NOT_FOUND  # it was delivered once
        if _differs(record, at, entry):
            return Outcome.CHANGED
        if entry.state == State.DEAD:
            return Outcome.DEAD
        if entry.state == State.LEASED:
            token = int(record.token[at])
            if not token or entry.token != token:
                return Outcome.LEASED
            entry.attempt = max(entry.attempt - 1, 0)
            told.ended.append(key)
        else:
            told.gone.append(key)
        if record.kind in CANCELLING:
            self._finish(key)
            return Outcome.DONE
        if record.version >= LEVEL_OF_KINDS:
            entry.version = record.sequence
        if record.kind == RecordKind.CHANGE:
            entry.rank = int(record.rank[at])
            self._wait(key, None, told)
        elif record.kind == RecordKind.TRIGGER:
            entry.due = record.stamp
            entry.flags |= FLAG_TRIGGERED
            self._wait(key, entry.due, told)
        else:
            entry.due = int(record.due[at])
            entry.flags &= ~FLAG_TRIGGERED
            self._wait(key, entry.due, told)
        return Outcome.DONE

    def _settle(self, record: Record, at: int, key: int, entry: NaiveEntry | None, told: Told) -> Outcome:
        kind = record.kind
        if entry is None or entry.state != State.LEASED or entry.token != int(record.token[at]):
            return Outcome.STALE
        if kind == RecordKind.EXTEND:
            entry.lease_ms = min(int(record.amount_ms[at]), LEASE_MS_MAX)
            told.leased.append(key)
            return Outcome.DONE
        told.ended.append(key)
        if kind == RecordKind.ACK:
            self._finish(key)
            return Outcome.DONE
        amount = int(record.amount_ms[at]) if len(record.amount_ms) else None
        counts = kind != RecordKind.RELEASE
        if kind == RecordKind.RELEASE:
            counts = bool(amount) and entry.first + limits.RELEASE_AGE_MS_MAX < record.stamp
            entry.attempt = entry.attempt if counts else max(entry.attempt - 1, 0)
        else:
            entry.flags &= ~FLAG_TRIGGERED
        if record.document:
            self.headings[key] = record.document
        self._remark(record, at, key, entry)
        if record.version >= LEVEL_OF_KINDS:
            most = entry.attempts_max or self._setting("max_attempts", 0)
            last = counts and 0 < most <= entry.attempt
            if last or (len(record.fate) and record.fate[at] == Fate.DEAD):
                self._bury(key, entry)
                return Outcome.DONE
        not_before = entry.due
        if amount is not None:
            longest = limits.RELEASE_DELAY_MS_MAX if kind == RecordKind.RELEASE else DELAY_MS_MAX
            not_before = max(entry.due, record.stamp + min(amount, longest))
        self._wait(key, not_before, told)
        return Outcome.DONE

    # ---------------------------------------------------------------- the dead

    def _setting(self, name: str, usual: Any) -> Any:
        return json.loads(self.settings).get(name, usual) if self.settings else usual

    def _remark(self, record: Record, at: int, key: int, entry: NaiveEntry) -> None:
        text = record.reasons[int(record.reason[at])] if len(record.reason) else ""
        if text:
            entry.remark = record.sequence << 16 | at
            self.remarks[key] = text

    def _bury(self, key: int, entry: NaiveEntry) -> None:
        if self.jobs.state_of(entry) in ENDED:
            self._finish(key)
            return
        self._let_key_go(entry)
        entry.state, entry.died_at = State.DEAD, self.stamp
        entry.token, entry.lease_ms, entry.consumer = 0, 0, bytes(16)
        entry.flags &= ~(FLAG_DETACHED | FLAG_TRIGGERED)
        self.leased.discard(key)

    def _lapse(self, record: Record, at: int, key: int, entry: NaiveEntry | None, told: Told) -> Outcome:
        if entry is None or entry.state != State.WAITING:
            return Outcome.STALE
        if not 0 < entry.expires <= record.stamp:
            told.refused.append(key)
            return Outcome.STALE
        told.gone.append(key)
        if self._setting("expired", "finish") == "dead":
            self._remark(record, at, key, entry)
            self._bury(key, entry)
        else:
            self._finish(key)
        return Outcome.DONE

    def _end_death(self, record: Record, at: int, key: int, entry: NaiveEntry | None, told: Told) -> Outcome:
        if entry is None or entry.state != State.DEAD:
            return Outcome.NOT_FOUND
        if _differs(record, at, entry):
            return Outcome.CHANGED
        if record.kind == RecordKind.DISCARD:
            self._finish(key)
            return Outcome.DONE
        digest = entry.key_high, entry.key_low
        if digest != (0, 0) and self.jobs.state_of(entry) not in ENDED:
            if not self.keys.may_be_had_by(digest, key):
                return Outcome.TAKEN
            self.keys.take(digest, entry.first, key)
        entry.due = max(int(record.due[at]), record.stamp)
        entry.version, entry.attempt, entry.died_at = record.sequence, 0, 0
        if entry.expires <= entry.due:
            entry.expires = 0
        self._wait(key, entry.due, told)
        return Outcome.DONE

    def _wait(self, key: int, not_before: int | None, told: Told) -> None:
        """Wait from that instant on; None: since when it last began to."""
        entry = self.live[key]
        state = self.jobs.state_of(entry)
        if state in ENDED:
            self._finish(key)
            return
        if not_before is not None:
            entry.wait_at = max(not_before, self.stamp)
            if state == JobState.OPEN:
                entry.wait_at = max(entry.wait_at, self.jobs.by_number[entry.job].until)
        entry.state, entry.token, entry.lease_ms, entry.consumer = State.WAITING, 0, 0, bytes(16)
        entry.flags &= ~(FLAG_FAR | FLAG_DETACHED)
        if entry.wait_at > self.stamp + FAR_MS:
            entry.flags |= FLAG_FAR
        self.leased.discard(key)
        told.waiting.append(key)

    def _finish(self, key: int) -> None:
        self._let_key_go(self.live.pop(key))
        self.remarks.pop(key, None)
        self.headings.pop(key, None)
        self.leased.discard(key)
        self.ended.append(key)

    def waiting(self) -> dict[int, int]:
        """Return where each waiting message waits: key -> instant."""
        return {key: entry.wait_at for key, entry in self.live.items() if entry.state == State.WAITING}


def _differs(record: Record, at: int, entry: NaiveEntry) -> bool:
    """Whether a message has not the version that is expected of it."""
    expected = int(record.expected[at]) if len(record.expected) else 0
    return expected not in (0, max(entry.version, entry.sequence))
