"""Fates of messages that clients are not told: they die, come back, expire, or a pass changes them.

The committed records are judged, one after the other. A message dies by its last attempt, by a NACK that says so, or by
its expiry, as its topic has it. It comes back by a REDRIVE only, and goes by a DISCARD that somebody has asked for, or
when it was dead for long enough. A pass changes each message once, as it says, and only those that its filter names. A
message that it was to change, and that has waited all the time, is changed when the pass ends; so is one that was given
back meanwhile, unless that happened too often, or too late.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field
from typing import Any, Final

from dueq import limits
from dueq.core.ports.entry import State
from dueq.core.state.pass_table import PassState
from dueq_chaos.sim.reference.naive import Naive
from dueq_chaos.sim.reference.naive_entry import NaiveEntry
from dueq_chaos.sim.reference.naive_passes import NaivePass
from dueq_codecs.records import Fate as NackFate
from dueq_codecs.records import JobState, Record, RecordKind
from dueq_codecs.topic_settings import TopicSettings

_GIVING_BACK: Final = (RecordKind.NACK, RecordKind.EXPIRE, RecordKind.RELEASE)
_BY_PASS: Final = (
    RecordKind.MOVE, RecordKind.CHANGE, RecordKind.CANCEL, RecordKind.DISCARD, RecordKind.REDRIVE,
)  # fmt: skip
_BEHIND_A_PASS: Final = (*_GIVING_BACK, RecordKind.REVEAL)
"""They let messages wait behind the place that a pass has reached: it goes through them once more."""
_LOOKED_AT: Final = (*_GIVING_BACK, *_BY_PASS, RecordKind.LAPSE, RecordKind.LEASE)


@dataclass
class Fate:
    """The fate of one message.

    Attributes:
        dead: it is dead at present.
        over: how it has ended without its consumer or owner being told; "": it has not.
        dues: new instants that passes and redrives have given it.
        ranks: the same of ranks.
        doomed: leases whose consumer has said that it is never to come again.
        unsure: leases that were perhaps given back otherwise, too.
        redrives: records by which it came back: its attempts are counted anew.
    """

    dead: bool = False
    over: str = ""
    dues: list[int] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)
    redrives: list[int] = field(default_factory=list)
    doomed: set[int] = field(default_factory=set)
    unsure: set[int] = field(default_factory=set)


class Fates:
    """Those of one partition's messages, by key."""

    def __init__(self) -> None:
        self._fates: dict[int, Fate] = {}
        self._before: dict[int, NaiveEntry] = {}
        self._changed: dict[str, set[int]] = {}
        self._touched: dict[int, int] = {}
        """The last record that names each message, but for those that reveal it."""
        self._given_back: list[int] = []
        """The records after which a pass has to look once more."""
        self._known_at: dict[tuple[int, int], int] = {}
        """By epoch and sequence of a pass's end: up to which record its leader had looked when it proposed that."""
        self._hidden: dict[str, set[int]] = {}
        """The jobs that were undecided when a pass began, by its name: it need not meet their messages."""
        self._retention_ms = TopicSettings().dead_retention_ms

    def of(self, key: int) -> Fate:
        """Return the fate of a message: an object that changes as the message does."""
        return self._fates.setdefault(key, Fate())

    def ends(self, record: Record, applied: int) -> None:
        """A leader that had applied all up to here ends a pass by this record."""
        self._known_at.setdefault((record.epoch, record.sequence), applied)

    def before(self, record: Record, naive: Naive) -> None:
        """Look at the messages that a record names, before it is applied."""
        self._before = {}
        named = _keys(record)
        if record.kind != RecordKind.REVEAL:
            self._touched.update(dict.fromkeys(named, record.sequence))
        if record.kind in _BEHIND_A_PASS:
            self._given_back.append(record.sequence)
        if record.kind in _LOOKED_AT:
            for key in named:
                entry = naive.live.get(key)
                if entry is not None:
                    self._before.setdefault(key, copy.copy(entry))

    def after(self, record: Record, naive: Naive) -> str:
        """Note what the record has done; return what is wrong with that, "" when nothing is."""
        for key in naive.keys.replaced:
            self.of(key).over = "another message has got its key"
        if record.kind == RecordKind.SETTINGS:
            self._retention_ms = min(
                self._retention_ms, _setting(naive, "dead_retention_ms", self._retention_ms)
            )
        if record.kind == RecordKind.PASS:
            known = naive.passes.by_name.get(record.name)
            if known is not None and known.sequence == record.sequence:
                jobs = naive.jobs.by_number.items()
                self._hidden[record.name] = {number for number, job in jobs if job.state == JobState.OPEN}
            return self._left_behind(record, naive)
        killed = {
            key
            for key, fate in zip(_keys(record), record.fate.tolist(), strict=False)
            if fate == NackFate.DEAD
        }
        if wrong := self._comes_again(record, naive):
            return f"record {record.sequence}, a {record.kind.name}: {wrong}"
        for key, was in self._before.items():
            wrong = self._judge(record, key, was, naive.live.get(key), naive, killed=key in killed)
            if wrong:
                return f"record {record.sequence}, a {record.kind.name}: {_spelt(key)} {wrong}"
        return ""

    def _comes_again(self, record: Record, naive: Naive) -> str:
        """Say which message waits again that a consumer has said is never to come again, under this very lease."""
        if record.kind != RecordKind.NACK:
            return ""
        for key, token in zip(_keys(record), record.token.tolist(), strict=True):
            was, now, fate = self._before.get(key), naive.live.get(key), self.of(key)
            ends = was is not None and was.state == State.LEASED and was.token == token
            if ends and now is not None and now.state == State.WAITING and token in fate.doomed - fate.unsure:
                return f"{_spelt(key)} is never to come again, by the lease {token}, and waits"
        return ""

    def _judge(
        self, record: Record, key: int, was: NaiveEntry, now: NaiveEntry | None, naive: Naive, *, killed: bool
    ) -> str:
        if record.kind == RecordKind.LEASE:
            most = was.attempts_max
            return f"has its attempt {now.attempt}, of {most}" if now and 0 < most < now.attempt else ""
        if now is not None and now.state == State.DEAD and was.state != State.DEAD:
            self.of(key).dead = True
            may_die = (killed and self.of(key).doomed) or _may_die(record, was, naive)
            return "" if may_die else "dies for no reason"
        if was.state == State.DEAD and (now is None or now.state != State.DEAD):
            if wrong := self._leaves_the_dead(record, key, was, now, naive):
                return wrong
        elif now is None and record.kind == RecordKind.LAPSE:
            self.of(key).over = "it has expired"
            if not 0 < was.expires <= record.stamp:
                return f"expires at {was.expires}, and lapses at {record.stamp}"
            if _setting(naive, "expired", "finish") == "dead" and _is_free(naive, was):
                return "is to be dead when it expires, and is gone"
        if record.name and record.kind in _BY_PASS:
            return self._by_pass(record, key, was, now, naive)
        return ""

    def _leaves_the_dead(
        self, record: Record, key: int, was: NaiveEntry, now: NaiveEntry | None, naive: Naive
    ) -> str:
        fate = self.of(key)
        fate.dead = False
        if now is None:
            fate.over = "it was discarded"
            # The dead of a job that was cancelled go with it.
            by_leader = not record.requests and not record.name and _is_free(naive, was)
            if by_leader and was.died_at + self._retention_ms > record.stamp:
                return f"died at {was.died_at}, and is discarded at {record.stamp}"
            may_go = record.kind == RecordKind.DISCARD or not _is_free(naive, was)
            return "" if may_go else "is dead, and goes"
        fate.redrives.append(record.sequence)
        fate.dues.append(now.due)
        if record.kind != RecordKind.REDRIVE or now.attempt:
            return f"is dead, and comes back with {now.attempt} attempts"
        return ""

    def _by_pass(
        self, record: Record, key: int, was: NaiveEntry, now: NaiveEntry | None, naive: Naive
    ) -> str:
        known, fate = naive.passes.by_name.get(record.name), self.of(key)
        if now is not None and now.version != record.sequence:
            return ""  # it is as it was
        changed = self._changed.setdefault(record.name, set())
        if known is None or known.state != PassState.RUNNING:
            return f"is changed by the pass {record.name}, which is over"
        if key in changed:
            return f"is changed by the pass {record.name} twice"
        changed.add(key)
        if not _is_about(known, was, naive):
            return f"is changed by the pass {record.name}, which is not about it: {known.work}"
        if now is None:
            fate.over = fate.over or f"the pass {record.name} has ended it"
            may_end = known.work["do"] in ("cancel", "purge") or not _is_free(naive, was)
            return "" if may_end else f"is ended by {known.work}"
        fate.dues.append(now.due)
        fate.ranks.append(now.rank)
        if not _is_as_asked(known.work, was, now):
            return f"was due at {was.due} of rank {was.rank}, is at {now.due} of {now.rank}, by {known.work}"
        return ""

    def _left_behind(self, record: Record, naive: Naive) -> str:
        """Say which message a pass that ends here has left: one that it is about, and that has waited for it.

        A message that expires before its new instant is left as it is. One whose job was undecided then may be.
        """
        known = naive.passes.by_name.get(record.name)
        if known is None or json.loads(record.document)["do"] != "end" or known.state != PassState.ENDED:
            return ""
        for key, entry in naive.live.items():
            may_expire = bool(entry.expires) and known.work["do"] in ("shift", "move")
            if entry.job in self._hidden.get(record.name, ()):
                continue
            waits = not may_expire and _is_about(known, entry, naive) and _is_free(naive, entry)
            if waits and self._has_waited(key, known, record):
                return f"the pass {record.name} ends, and has left {_spelt(key)}: {known.work}"
        return ""

    def _has_waited(self, key: int, known: NaivePass, end: Record) -> bool:
        """Whether a pass that ends has had to meet a message that waits."""
        touched = self._touched.get(key, 0)
        if touched < known.sequence:
            return True
        if known.work["filter"]["state"] == "dead":
            return False  # it goes through them once
        again = sum(1 for sequence in self._given_back if sequence > known.sequence)
        return again < limits.PASS_WALKS_MAX and touched <= self._known_at.get((end.epoch, end.sequence), -1)


def _is_free(naive: Naive, entry: NaiveEntry) -> bool:
    """Whether a message may be delivered as far as its job is concerned."""
    return naive.jobs.state_of(entry) == JobState.COMMITTED


def _may_die(record: Record, was: NaiveEntry, naive: Naive) -> bool:
    if record.kind == RecordKind.LAPSE:
        return 0 < was.expires <= record.stamp and _setting(naive, "expired", "finish") == "dead"
    most = was.attempts_max or _setting(naive, "max_attempts", 0)
    return record.kind in _GIVING_BACK and 0 < most <= was.attempt


def _is_about(known: NaivePass, entry: NaiveEntry, naive: Naive) -> bool:
    """Whether a pass is about a message as it is."""
    wanted: dict[str, Any] = known.work["filter"]
    state = State.DEAD if wanted["state"] == "dead" else State.WAITING
    if entry.state != state or max(entry.sequence, entry.version) >= known.sequence:
        return False
    if not wanted.get("due_from", 0) <= entry.due < wanted.get("due_until", entry.due + 1):
        return False
    if "job" in wanted:
        job = naive.jobs.by_key.get(bytes.fromhex(wanted["job"]))
        if job is None or job.number != entry.job:
            return False
    name = naive.groups.names.get(entry.group, "")
    group = wanted.get("group", "")
    return bool(not group or name == group or name.startswith(f"{group}."))


def _is_as_asked(work: dict[str, Any], was: NaiveEntry, now: NaiveEntry) -> bool:
    if work["do"] == "shift":
        return bool(now.due == max(was.due + work["by_ms"], 0))
    if work["do"] == "move":
        return bool(work["to_ms"] <= now.due <= work["to_ms"] + work["spread_ms"])
    if work["do"] == "change":
        return now.due == was.due and now.rank == work["rank"]
    return bool(work["do"] == "redrive")


def dead_retention_ms(naive: Naive) -> int:
    """Return for how long a partition's topic keeps dead messages."""
    return int(_setting(naive, "dead_retention_ms", TopicSettings().dead_retention_ms))


def _setting(naive: Naive, name: str, usual: Any) -> Any:
    return json.loads(naive.settings).get(name, usual) if naive.settings else usual


def _keys(record: Record) -> list[int]:
    if not len(record.target_sequence):
        return []
    columns = zip(record.target_sequence.tolist(), record.target_row.tolist(), strict=True)
    return [sequence << 16 | row for sequence, row in columns]


def _spelt(key: int) -> str:
    return f"{key >> 16}:{key & 0xFFFF}"
