"""Comparison of the results of `apply`, and of its state, with the naive reference."""

from __future__ import annotations

from collections import Counter
from typing import Any

from dueq.core.ports.entry import FLAG_FAR, FLAG_TRIGGERED, FULL, Entries, State, keys_of, widened
from dueq.core.ports.names import Answered, Name, Remembered, pack_name
from dueq.core.state.applied import Applied
from dueq.core.state.forecast import HOUR_MS
from dueq.core.state.timeline import Timeline
from dueq.recurring.terms import unpacked
from dueq_chaos.sim.reference.naive import Naive
from dueq_chaos.sim.reference.naive_entry import Told
from dueq_chaos.sim.reference.naive_keys import NaiveName
from dueq_chaos.sim.reference.naive_recurrences import DEFAULTS
from dueq_codecs.records import Record


def deed_differs(record: Record, applied: Applied, timeline: Timeline, told: Told, naive: Naive) -> str:
    """Compare what one record did: its answers, and each message that it concerned.

    Args:
        record: the record.
        applied, timeline: the product's results; everything is in its memory.
        told, naive: the reference's results.

    Returns:
        The difference; "" when all is well.
    """
    if told.results or applied.results:
        found: list[Any] = [
            (
                result.client_id, result.client_sequence, result.code, result.sequence, result.row, result.stamp,
                result.outcomes.tolist(), result.repeated, result.window.tolist(),
                result.present.tolist(),
            )
            for result in applied.results
        ]  # fmt: skip
        if found != told.results:
            return _text(record, "answers", found, told.results)
    if (len(applied.refused) or told.refused) and sorted(applied.refused.tolist()) != sorted(told.refused):
        return _text(record, "refused", sorted(applied.refused.tolist()), sorted(told.refused))
    if (len(applied.ended) or told.ended) and sorted(_keys(applied.ended)) != sorted(told.ended):
        return _text(record, "ended", sorted(_keys(applied.ended)), sorted(told.ended))
    live, waits = naive.live, State.WAITING
    waiting = {
        key
        for key in told.waiting
        if key in live and live[key].state == waits and naive.may_be_delivered(key)
    }
    for what, rows, named in (
        ("waiting", applied.waiting, waiting),
        ("leased", applied.leased, set(told.leased)),
    ):
        if len(rows) or named:
            wrong = _rows_differ(rows, named, naive)
            if wrong:
                return f"after record {record.sequence}, a {record.kind.name}: {what}: {wrong}"
    counts = timeline.scheduled_count, timeline.leased_count, timeline.jobs.given
    waits_for = [entry.state for entry in live.values()].count(waits)
    expected_counts = waits_for, len(naive.leased), naive.jobs.given
    if counts != expected_counts:
        return _text(record, "(waiting, leased, jobs)", counts, expected_counts)
    return ""


def _keys(rows: Entries) -> list[int]:
    found: list[int] = keys_of(rows).tolist() if len(rows) else []
    return found


def _rows_differ(rows: Entries, keys: set[int], naive: Naive) -> str:
    """Compare whole entries with those of the reference, key by key."""
    found = dict(zip(_keys(rows), widened(rows, FULL.itemsize).tolist(), strict=True))
    if found.keys() != keys:
        return f"keys {sorted(found)} should be {sorted(keys)}"
    for key, row in found.items():
        expected = naive.live[key].columns()
        if row != expected:
            return f"entry {row} should be {expected}"
    return ""


def _text(record: Record, what: str, found: object, expected: object) -> str:
    return f"after record {record.sequence}, a {record.kind.name}: {what} {found} should be {expected}"


def state_differs(timeline: Timeline, naive: Naive) -> str:
    """Compare the whole state with the reference's.

    Args:
        timeline: which has everything in memory.
        naive: after the same record.

    Returns:
        The difference; "" when all is well.
    """
    found: dict[str, Any] = timeline.export()
    for what, expected in _exported(naive).items():
        mine = found[what]
        if what in ("dedup", "job_answers"):
            mine = {(client, number) for client, number, _ in mine}
        if what == "names":
            mine = [(digest, row) for digest, row in mine if row is not None]
        if mine != expected:
            return f"after record {naive.applied}: {what} is {mine}, should be {expected}"
    return (
        _keys_are_wrong(naive)
        or _jobs_differ(timeline, naive)
        or recurrences_differ(timeline, naive)
        or bodies_differ(timeline, naive)
        or triggered_differ(timeline, naive)
        or headings_differ(timeline, naive)
    )


def _exported(naive: Naive) -> dict[str, Any]:
    hours: dict[int, int] = {}
    far = 0
    for entry in naive.live.values():
        if entry.state == State.WAITING and not entry.flags & FLAG_FAR:
            hours[entry.wait_at // HOUR_MS] = hours.get(entry.wait_at // HOUR_MS, 0) + 1
        elif entry.state == State.WAITING:
            far += 1
    return {
        "applied": naive.applied, "stamp": naive.stamp, "age": naive.age,
        "scheduled": len(naive.waiting()), "leased": len(naive.leased),
        "dead": len(naive.live) - len(naive.waiting()) - len(naive.leased),
        "entries": sorted(entry.columns() for entry in naive.live.values()),
        "hours": sorted(hours.items()), "far": far, "jobs_given": naive.jobs.given,
        "settings": naive.settings, "passes": _passes(naive), "names": names_of(naive),
        "dedup": naive.memory.names(), "job_answers": naive.job_memory.names(),
    }  # fmt: skip


def _keys_are_wrong(naive: Naive) -> str:
    """Every waiting or leased message with a key bears it, and every key that is borne has its message."""
    bearing = {
        (entry.key_high, entry.key_low): key
        for key, entry in naive.live.items()
        if entry.state != State.DEAD and (entry.key_high or entry.key_low)
    }
    borne = {digest: name.key for digest, name in naive.keys.names.items() if name.until is None}
    return "" if bearing == borne else f"after record {naive.applied}: keys {borne} are borne by {bearing}"


def names_of(naive: Naive) -> list[tuple[str, str]]:
    """Return the unique keys as `Timeline.export` has them: (hash, row) in hex."""
    rows = {f"{high:016x}{low:016x}": _row_of(name) for (high, low), name in naive.keys.names.items()}
    return sorted((digest, pack_name(name).hex()) for digest, name in rows.items())


def _row_of(name: NaiveName) -> Name:
    if name.until is None:
        return name.first, name.key
    if name.answered is not None:
        digest, due = name.answered
        return Answered(name.first, name.key, due, digest, name.until)
    return Remembered(name.first, name.key, *name.last, name.until)


def _passes(naive: Naive) -> list[tuple[str, dict[str, Any]]]:
    return sorted(
        (
            name,
            {
                "sequence": known.sequence, "work": known.work, "total": known.total,
                "done": known.done, "skipped": known.skipped, "state": int(known.state), "ended_ms": known.ended,
            },
        )
        for name, known in naive.passes.by_name.items()
    )  # fmt: skip


def _jobs_differ(timeline: Timeline, naive: Naive) -> str:
    counts: dict[int, list[int]] = {}
    for entry in naive.live.values():
        counts.setdefault(entry.job, [0, 0, 0])[entry.state - 1] += 1
    expected = {
        key: (job.number, job.state, job.until, job.cleared, *counts.get(job.number, (0, 0, 0)))
        for key, job in naive.jobs.by_key.items()
    }
    found = {
        key: (job.number, job.state, job.until, job.cleared_flag, job.waiting, job.leased, job.dead)
        for key, job in timeline.jobs.by_key.items()
    }
    if found == expected:
        return ""
    return f"after record {naive.applied}: jobs are {found}, should be {expected}"


def recurrences_differ(timeline: Timeline, naive: Naive) -> str:
    """Compare what is known of recurrences; returns what differs, "" when nothing does."""
    unfinished = Counter(entry.recurrence for entry in naive.live.values() if entry.state != State.DEAD)
    expected = {
        name: (
            known.number, known.terms, known.payload, known.anchor, known.paused, known.next, known.past,
            unfinished[known.number], known.messages, known.skipped, sorted(known.coming.items()),
        )
        for name, known in naive.recurrences.by_name.items()
    }  # fmt: skip
    found = {
        each.name: (
            each.number, DEFAULTS | unpacked(each.document), each.payload, each.anchor, each.paused, each.next,
            each.past, each.unfinished, each.messages, each.skipped,
            sorted((fired.tick, fired.first) for fired in each.fired),
        )
        for each in timeline.recurrences.by_number.values()
    }  # fmt: skip
    if found == expected:
        return ""
    return f"after record {naive.applied}: recurrences are {found}, should be {expected}"


def headings_differ(timeline: Timeline, naive: Naive) -> str:
    """Compare which messages have got other headers; returns what differs, "" when nothing does."""
    if timeline.headings.by_key == naive.headings:
        return ""
    return f"after record {naive.applied}: headers are {timeline.headings.by_key}, should be {naive.headings}"


def triggered_differ(timeline: Timeline, naive: Naive) -> str:
    """Compare which triggered messages wait, and how many are leased; returns what differs, "" when nothing does."""
    triggered = {key: entry for key, entry in naive.live.items() if entry.flags & FLAG_TRIGGERED}
    expected = {key: entry.first for key, entry in triggered.items() if entry.state == State.WAITING}
    leased = sum(entry.state == State.LEASED for entry in triggered.values())
    if (expected, leased) == (timeline.triggered, timeline.triggered_leased):
        return ""
    return (
        f"after record {naive.applied}: triggered are {timeline.triggered} and {timeline.triggered_leased} leased, "
        f"should be {expected} and {leased}"
    )


def bodies_differ(timeline: Timeline, naive: Naive) -> str:
    """Compare which shared bodies are kept, and what names them; returns what differs, "" when nothing does."""
    messages = naive.body_users()
    expected = {
        name: (known.number, known.size, known.crc, messages[known.number], known.until)
        for name, known in naive.bodies.by_name.items()
    }
    found = {
        each.name: (each.number, each.size, each.crc, each.messages, each.until_ms)
        for each in timeline.bodies.by_number.values()
    }
    if found == expected:
        return ""
    return f"after record {naive.applied}: shared bodies are {found}, should be {expected}"
