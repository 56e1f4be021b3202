"""From the traffic's histories to an outcome's numbers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from dueq_chaos.history.checker import Judgement, check
from dueq_chaos.history.columns import History
from dueq_chaos.history.judging import Rules, Verdict
from dueq_chaos.history.operations import VERSION
from dueq_chaos.nemesis.noted import Noted, judge_keys, judge_ticks, read_notes

_EXAMPLES = 5
_EMPTIED_GRACE_US = 2_000_000
_STAMP_US = 50_000
"""Half a round trip on a busy machine."""
STAMPED_AHEAD = "stamped ahead of time"
"""A verdict of our own: clients and the true clock are on one machine here."""


def join(histories: Iterable[Path], path: Path, **facts: str) -> None:
    """Put the histories of several processes into one file; an older one is replaced.

    A last line that a killed process left unfinished is ignored.

    Args:
        histories: the files.
        path: of the result.
        facts: for the header line.
    """
    with path.open("wb") as whole:
        whole.write(json.dumps({"dueq_history": VERSION, **facts}).encode() + b"\n")
        for history in histories:
            with history.open("rb") as part:
                part.readline()
                whole.writelines(line for line in part if line.endswith(b"\n"))


def judge(history: History, emptied: bool, clocks_off_s: float = 0) -> Judgement:
    """Judge a history.

    A leader whose clock is behind stamps its releases with it, as mesh time is the smaller of its own clock and the
    mesh's. So if clocks were set, leases are judged by tokens rather than by stamps. Clients all read the machine's
    own, true clock: whether a message was early is judged as ever.

    Args:
        history: of all clients.
        emptied: at the end every leader said that nothing waits any more, and consumers went on to listen: then
            almost nothing can still be pending.
        clocks_off_s: how far the farthest broker's clock was set off, seconds.
    """
    rules = Rules(grace_us=_EMPTIED_GRACE_US) if emptied else Rules()
    judgement = check(history, rules)
    if clocks_off_s:
        lenient = check(history, replace(rules, clock_us=rules.clock_us + int(clocks_off_s * 1e6)))
        lenient.findings[Verdict.EARLY] = judgement.findings[Verdict.EARLY]
        return lenient
    return judgement


def stamped_ahead(history: History, delayed_s: float = 0) -> int:
    """How many deliveries say that they were released after they arrived.

    Mesh time is ahead of the true time by the best round trip between brokers at most.

    Args:
        history: of all clients.
        delayed_s: the longest time for which a frame between brokers was held back on purpose, seconds.
    """
    deliveries = history.deliveries
    arrived_us = history.clock.wall(history.operations.completed[deliveries.operation])
    return int((deliveries.columns["released"] > arrived_us + _STAMP_US + delayed_s * 1e6).sum())


def verdicts(judgement: Judgement) -> dict[str, int]:
    """How often each thing happened that must not, zeros too."""
    return {verdict.value: len(findings) for verdict, findings in judgement.findings.items()}


def examples(judgement: Judgement, history: History) -> list[str]:
    """Some findings of each verdict, in a sentence each."""
    return [
        f"{verdict.value}: message {history.ids[finding.message].decode()}: {finding.reason}"
        for verdict, findings in judgement.findings.items()
        for finding in findings[:_EXAMPLES]
    ]


def counts(judgement: Judgement) -> dict[str, int]:
    """How much of what there was."""
    found = judgement.counts
    return {
        "calls of clients": found.calls,
        "messages acknowledged": found.acknowledged,
        "inserts refused": found.refused,
        "inserts of unknown outcome": found.unknown,
        "of these appeared": found.appeared,
        "messages moved": found.moved,
        "messages cancelled": found.cancelled,
        "messages delivered": found.delivered,
        "repeated deliveries": found.redelivered,
        "messages acked": found.acked,
        "pending at the end": found.pending,
    }


# -------------------------------------------------------------- notes


def of_ticks(paths: Iterable[Path]) -> Noted:
    """Judge the recurrences."""
    return judge_ticks(chain.from_iterable(map(read_notes, paths)))


def of_keys(paths: Iterable[Path], clocks_off_s: float = 0) -> Noted:
    """Judge the messages that are known by keys."""
    return judge_keys(chain.from_iterable(map(read_notes, paths)), int(clocks_off_s * 1e6))


def noted_verdicts(noted: Sequence[Noted]) -> dict[str, int]:
    """How often each thing happened that must not, zeros too."""
    return {what: len(found) for each in noted for what, found in each.findings.items()}


def noted_examples(noted: Sequence[Noted]) -> list[str]:
    """Some findings of each verdict, in a sentence each."""
    return [
        f"{what}: {text}"
        for each in noted
        for what, found in each.findings.items()
        for text in found[:_EXAMPLES]
    ]


def noted_counts(noted: Sequence[Noted]) -> dict[str, int]:
    """How much of what there was."""
    return {what: count for each in noted for what, count in each.counts.items()}
