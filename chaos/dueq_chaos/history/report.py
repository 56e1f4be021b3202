"""The findings of a check, for people and for programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dueq_chaos.history.checker import Finding, Judgement, listened_until
from dueq_chaos.history.columns import History
from dueq_chaos.history.counting import Counts
from dueq_chaos.history.judging import Rules
from dueq_chaos.history.lives import Lives
from dueq_chaos.history.story import Event, Stories

_COLUMN = "   "


class Report:
    """One judgement of one history.

    Args:
        history: the one that was judged.
        judgement: of it.
        examples: stories told for each verdict.
    """

    def __init__(self, history: History, judgement: Judgement, examples: int = 3) -> None:
        self._history, self._judgement, self._examples = history, judgement, examples
        self._lives = Lives(history, judgement.rules, listened_until(history))
        self._stories = Stories(history)

    def as_json(self) -> dict[str, Any]:
        """The whole result: `clean`, `cut`, `rules`, `counts`, and `verdicts` with a number and examples each."""
        judgement = self._judgement
        return {
            "clean": judgement.clean,
            "files": self._history.files,
            "cut": self._history.cut,
            "rules": asdict(judgement.rules),
            "counts": asdict(judgement.counts),
            "examined": judgement.examined,
            "verdicts": {
                verdict.value: {
                    "messages": len(found),
                    "examples": [self._example(finding) for finding in found[: self._examples]],
                }
                for verdict, found in judgement.findings.items()
            },
        }

    def print(self, console: Console) -> None:
        """Print tables and stories."""
        for file in self._history.cut:
            console.print(f"{file}: the last line was cut off (a crash?) and is passed over", style="yellow")
        console.print(_counts_table(self._judgement.counts))
        console.print(_doubt(self._judgement.rules), style="dim", highlight=False)
        clocks_ms = self._judgement.counts.clocks_ms
        if clocks_ms * 1000 > self._judgement.rules.clock_us:
            told = (
                f"A client's wall clock was {clocks_ms:g} ms from the usual: are all on one machine's clock?"
            )
            console.print(told, style="yellow")
        console.print(self._verdicts_table())
        for verdict, found in self._judgement.findings.items():
            for finding in found[: self._examples]:
                self._print_story(console, finding)
            if len(found) > self._examples:
                console.print(f"… and {len(found) - self._examples:,} more {verdict.value}\n")
        if self._judgement.clean:
            console.print("Nothing happened that must not happen.", style="bold green")

    def _verdicts_table(self) -> Table:
        table = Table("verdict", box=None, pad_edge=False)
        table.add_column("messages", justify="right")
        for verdict, found in self._judgement.findings.items():
            style = "bold red" if found else "green"
            table.add_row(verdict.value, Text(f"{len(found):,}", style))
        return table

    def _print_story(self, console: Console, finding: Finding) -> None:
        console.print(
            Text.assemble((self._id(finding), "bold"), ": ", (finding.verdict.value, "bold red"), f": {finding.reason}")
        )  # fmt: skip
        for event in self._told(finding):
            who = f"{event.who} " if event.who else "-- "
            console.print(
                Text(f"{_COLUMN}{event.at_ms:>13,.3f} ms  {who}{event.what}").append(
                    f"  {event.where}", "dim"
                )
            )
        console.print()

    def _example(self, finding: Finding) -> dict[str, Any]:
        return {
            "id": self._id(finding),
            "reason": finding.reason,
            "story": [event.as_json() for event in self._told(finding)],
        }

    def _id(self, finding: Finding) -> str:
        return bytes(self._history.ids[finding.message]).decode("ascii")

    def _told(self, finding: Finding) -> list[Event]:
        return self._stories.tell(self._lives.life(finding.message))


def _counts_table(counts: Counts) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    rows: list[tuple[str, int, str]] = [
        ("message operations", counts.operations, f"in {counts.calls:,} calls of {counts.clients:,} clients"),
        ("messages", counts.messages, f"over {counts.seconds:,.1f} s"),
        ("acknowledged", counts.acknowledged, ""),
        ("refused", counts.refused, "inserts"),
        ("unknown", counts.unknown, f"inserts, {counts.appeared:,} of them delivered"),
        ("moved", counts.moved, ""),
        ("cancelled", counts.cancelled, ""),
        ("delivered", counts.delivered, ""),
        ("redelivered", counts.redelivered, "deliveries beyond a message's first"),
        ("acked", counts.acked, ""),
        ("pending", counts.pending, "due later, or too near the end to be missed"),
        ("on time", counts.on_time, _lateness(counts)),
    ]
    for name, number, more in rows:
        table.add_row(name, f"{number:,}", Text(more, "dim"))
    return table


def _lateness(counts: Counts) -> str:
    if counts.lateness_ms is None:
        return ""
    half, most, worst = counts.lateness_ms
    return f"lateness p50 {half:.3f} ms, p99 {most:.3f} ms, max {worst:.3f} ms"


def _doubt(rules: Rules) -> str:
    return (
        f"Benefit of the doubt: clocks {rules.clock_us / 1000:g} ms, end {rules.grace_us / 1e6:g} s, "
        f"silence {rules.silence_us / 1e6:g} s."
    )
