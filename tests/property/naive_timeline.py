"""The timeline's rules once more, row by row: a dictionary instead of columns, no disk and no window."""

from __future__ import annotations

from typing import Any, Final
from zlib import crc32

from dueq.core.dedup import ANSWER_BYTES, CLIENT_BYTES, JOB_DEDUP_LIMITS, DedupLimits
from dueq.core.entry import State
from dueq.core.forecast import FAR_MS
from dueq.core.timeline import AGE_STEP_MS
from dueq_codecs.messages import Code
from dueq_codecs.records import JobAction, JobState, Outcome, Record, RecordKind, RequestRef

CONSUMERS = [bytes([number]) * 16 for number in range(11, 14)]
PLACE: Final = (0, 2)
"""The partition's place in its topic: it decides about half of the jobs."""
ENDED: Final = (JobState.ABORTED, JobState.CANCELLED)


class Memory:
    """What became of past requests."""

    def __init__(self, limits: DedupLimits) -> None:
        self.limits = limits
        self.answers: list[dict[str, Any]] = []
        self.floors: dict[bytes, tuple[int, int]] = {}

    def weight(self) -> int:
        clients = {answer["client"] for answer in self.answers} | self.floors.keys()
        return CLIENT_BYTES * len(clients) + sum(ANSWER_BYTES + a["rows"] for a in self.answers)

    def drop(self, answer: dict[str, Any]) -> None:
        self.answers.remove(answer)
        floor, age = self.floors.get(answer["client"], (-1, 0))
        self.floors[answer["client"]] = (max(floor, answer["number"]), max(age, answer["age"]))

    def idle(self) -> list[tuple[int, bytes]]:
        busy = {answer["client"] for answer in self.answers}
        return sorted((age, client) for client, (_, age) in self.floors.items() if client not in busy)

    def expire(self, now: int) -> None:
        while self.answers and self.answers[0]["age"] < now - self.limits.age_ms:
            self.drop(self.answers[0])
        for floor_age, client in self.idle():
            if floor_age < now - self.limits.age_ms:
                del self.floors[client]

    def recall(self, request: RequestRef) -> tuple[Code, Any, bool] | None:
        for answer in self.answers:
            if (answer["client"], answer["number"]) == (request.client_id, request.sequence):
                if answer["digest"] == request.digest:
                    return Code.OK, answer, False
                return Code.SEQUENCE_REUSED, None, False
        if request.sequence <= self.floors.get(request.client_id, (-1, 0))[0]:
            return Code.OUTCOME_UNKNOWN, None, False
        return None

    def judge(self, request: RequestRef, record: Record, row: int, age: int) -> tuple[Code, Any, bool]:
        verdict = self.recall(request)
        if verdict is not None:
            return verdict
        answer = {
            "client": request.client_id, "number": request.sequence, "digest": request.digest,
            "stamp": record.stamp, "age": age, "sequence": record.sequence, "row": row, "outcomes": [],
            "rows": 0 if record.kind == RecordKind.INSERT else request.rows,
        }  # fmt: skip
        self.answers.append(answer)
        mine = [a for a in self.answers if a["client"] == request.client_id]
        if len(mine) > self.limits.window:
            self.drop(min(mine, key=lambda a: a["number"]))
        while self.weight() > self.limits.bytes_max:
            if self.answers:
                self.drop(self.answers[0])
            else:
                del self.floors[self.idle()[0][1]]
        return Code.OK, answer, True

    def names(self) -> set[tuple[str, int]]:
        mine = {(answer["client"].hex(), answer["number"]) for answer in self.answers}
        return mine | {(client.hex(), floor) for client, (floor, _) in self.floors.items()}


class Twin:
    """The rules, row by row."""

    def __init__(self, limits: DedupLimits) -> None:
        self.live: dict[int, dict[str, int]] = {}
        self.ended: list[int] = []
        self.memory, self.job_memory = Memory(limits), Memory(JOB_DEDUP_LIMITS)
        self.jobs: dict[bytes, dict[str, int]] = {}
        self.stamp = self.age = 0

    # records

    def apply(self, record: Record) -> dict[str, Any]:
        self.age += min(max(record.stamp - self.stamp, 0), AGE_STEP_MS)
        self.stamp = record.stamp
        self.memory.expire(self.age)
        self.job_memory.expire(self.age)
        of_job = record.kind == RecordKind.INSERT and bool(record.job)
        memory = self.job_memory if of_job else self.memory
        late = of_job and self.takes_no_more(record)
        told: dict[str, Any] = {"leased": [], "refused": [], "ended": [], "gone": [], "waiting": []}
        verdicts = []
        row = 0
        for request in record.requests:
            if late:
                verdict = memory.recall(request) or (Code.JOB_ENDED, None, False)
            else:
                verdict = memory.judge(request, record, row, self.age)
            verdicts.append((request, *verdict))
            row += request.rows
        row = 0
        for request, _, answer, fresh in verdicts:
            for at in range(row, row + request.rows):
                if fresh:
                    outcome = self.one(record, at, told)
                    if record.kind != RecordKind.INSERT:
                        answer["outcomes"].append(outcome)
                elif record.kind == RecordKind.INSERT:
                    self.ended.append(record.sequence << 16 | at)
            row += request.rows
        if not record.requests:
            for at in range(record.rows):
                self.one(record, at, told)
        told["results"] = [
            (r.client_id, r.sequence, code, a["sequence"], a["row"], a["stamp"], a["outcomes"][:], not fresh)
            if a is not None
            else (r.client_id, r.sequence, code, 0, 0, 0, [], False)
            for r, code, a, fresh in verdicts
        ]
        return told

    # jobs

    def takes_no_more(self, record: Record) -> bool:
        job = self.jobs.get(record.job)
        if record.job_until and record.stamp > record.job_until:
            return True
        if job is None:
            return False
        open_state = JobState.OPEN if job["until"] else JobState.COMMITTED
        return job["until"] != record.job_until or job["state"] != open_state

    def job_of(self, record: Record, state: JobState) -> dict[str, int]:
        fresh = {"number": len(self.jobs) + 1, "state": state, "until": record.job_until, "cleared": 0}
        return self.jobs.setdefault(record.job, fresh)

    def state_of(self, entry: dict[str, int]) -> int:
        states = [job["state"] for job in self.jobs.values() if job["number"] == entry["job"]]
        return states[0] if states else JobState.COMMITTED

    def act(self, record: Record, told: dict[str, Any]) -> Outcome:
        action = record.job_action
        if action == JobAction.CLEARED and record.job not in self.jobs:
            return Outcome.NOT_FOUND
        job = self.job_of(record, JobState.OPEN)
        before = job["state"]
        outcome = self.decide(record, job)
        if before != job["state"] == JobState.COMMITTED:
            told["waiting"] += [key for key in self.waiting() if self.live[key]["job"] == job["number"]]
        return outcome

    def decide(self, record: Record, job: dict[str, int]) -> Outcome:
        action = record.job_action
        if action == JobAction.CLEARED:
            job["cleared"] |= job["state"] == JobState.COMMITTED
            return Outcome.DONE if job["state"] == JobState.COMMITTED else Outcome.ENDED
        if action == JobAction.CANCEL:
            job["state"] = job["state"] if job["state"] == JobState.ABORTED else JobState.CANCELLED
            return Outcome.DONE
        wanted = JobState.COMMITTED if action == JobAction.COMMIT else JobState.ABORTED
        home = crc32(record.job) % PLACE[1] == PLACE[0]
        too_late = action == JobAction.COMMIT and home and 0 < job["until"] < record.stamp
        if job["state"] == JobState.OPEN and not too_late:
            job["state"] = wanted
        return Outcome.DONE if job["state"] == wanted else Outcome.ENDED

    def reveal(self, record: Record, entry: dict[str, int], key: int, told: dict[str, Any]) -> None:
        job = self.jobs.get(record.job)
        at = max(entry["due"], record.stamp)
        if job is None or job["state"] != JobState.COMMITTED or entry["job"] != job["number"]:
            return
        if entry["wait_at"] == job["until"] and not entry["attempt"] and at < job["until"]:
            told["gone"].append(key)
            self.wait(key, at, record.stamp, told)

    # rows

    def one(self, record: Record, at: int, told: dict[str, Any]) -> Outcome:
        kind, stamp = record.kind, record.stamp
        if kind == RecordKind.JOB:
            return self.act(record, told)
        if kind == RecordKind.INSERT:
            number = 0
            if record.job:
                state = JobState.OPEN if record.job_until else JobState.COMMITTED
                number = self.job_of(record, state)["number"]
            due = int(record.due[at])
            key = record.sequence << 16 | at
            entry = {
                "first": max(due, stamp, record.job_until), "job": number, "due": due,
                "sequence": record.sequence, "row": at, "size": int(record.size[at]), "crc": int(record.crc[at]),
                "attempt": 0,
            }  # fmt: skip
            self.live[key] = entry
            self.wait(key, max(due, stamp), stamp, told)
            return Outcome.DONE
        key = int(record.target_sequence[at]) << 16 | int(record.target_row[at])
        entry = self.live.get(key, {})
        same = bool(entry) and entry["first"] == int(record.first[at])
        waiting = same and entry["state"] == State.WAITING
        leased = same and entry["state"] == State.LEASED
        if kind == RecordKind.LEASE:
            if not waiting:
                told["refused"].append(key)
                return Outcome.NOT_FOUND
            if self.state_of(entry) != JobState.COMMITTED:
                told["refused"].append(key)
                if self.state_of(entry) in ENDED:
                    told["gone"].append(key)
                    self.finish(key)
                return Outcome.NOT_FOUND
            consumer = CONSUMERS.index(record.consumers[record.consumer[at]])
            entry |= {
                "state": State.LEASED, "token": record.sequence, "attempt": entry["attempt"] + 1,
                "consumer": consumer + 11, "lease_ms": int(record.lease_ms[record.consumer[at]]),
            }  # fmt: skip
            told["leased"].append(key)
            return Outcome.DONE
        if kind == RecordKind.REVEAL:
            if waiting:
                self.reveal(record, entry, key, told)
            return Outcome.DONE
        if kind == RecordKind.MOVE and same and self.state_of(entry) in ENDED:
            return Outcome.NOT_FOUND
        mine = leased and entry["token"] == int(record.token[at])
        if kind in (RecordKind.MOVE, RecordKind.CANCEL):
            if not waiting and not mine:
                return Outcome.LEASED if leased else Outcome.NOT_FOUND
            told["gone" if waiting else "ended"].append(key)
            entry["attempt"] -= mine
            if kind == RecordKind.CANCEL:
                self.finish(key)
            else:
                entry["due"] = int(record.due[at])
                self.wait(key, max(entry["due"], stamp), stamp, told)
            return Outcome.DONE
        if not mine:
            return Outcome.STALE
        if kind == RecordKind.EXTEND:
            entry["lease_ms"] = int(record.amount_ms[at])
            told["leased"].append(key)
            return Outcome.DONE
        told["ended"].append(key)
        if kind == RecordKind.ACK:
            self.finish(key)
            return Outcome.DONE
        wait_at = max(entry["due"], stamp)
        if kind == RecordKind.NACK:
            wait_at = max(entry["due"], stamp + int(record.amount_ms[at]))
        entry["attempt"] -= kind == RecordKind.RELEASE
        self.wait(key, wait_at, stamp, told)
        return Outcome.DONE

    def wait(self, key: int, wait_at: int, stamp: int, told: dict[str, Any]) -> None:
        state = self.state_of(self.live[key])
        if state in ENDED:
            self.finish(key)
            return
        if state == JobState.OPEN:
            number = self.live[key]["job"]
            wait_at = max(wait_at, *(job["until"] for job in self.jobs.values() if job["number"] == number))
        self.live[key] |= {
            "state": State.WAITING, "wait_at": wait_at, "far": wait_at > stamp + FAR_MS,
            "token": 0, "consumer": 0, "lease_ms": 0,
        }  # fmt: skip
        told["waiting"].append(key)

    def finish(self, key: int) -> None:
        del self.live[key]
        self.ended.append(key)

    def waiting(self) -> dict[int, int]:
        return {key: e["wait_at"] for key, e in self.live.items() if e["state"] == State.WAITING}

    def may_be_delivered(self, key: int) -> bool:
        return self.state_of(self.live[key]) == JobState.COMMITTED

    def columns(self, key: int) -> tuple[int, ...]:
        e = self.live[key]
        consumer = int.from_bytes(bytes([e["consumer"]]) * 8, "big")
        return (
            e["wait_at"], e["first"], e["due"], e["sequence"], e["token"], consumer, consumer,
            e["size"], e["crc"], e["lease_ms"], e["row"], e["attempt"], int(e["state"]), int(e["far"]) * 2, e["job"],
        )  # fmt: skip
