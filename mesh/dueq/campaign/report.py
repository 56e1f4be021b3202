"""The report of a campaign: its results, or its plan."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dueq.time_text import instant_text

PLANNED, LOADED, THERE, NOTHING = "planned", "loaded", "already loaded", "nothing to send"


@dataclass
class CampaignReport:
    """Figures of one run.

    Attributes:
        name, topic: of the specification.
        job_id: by which it is cancelled.
        state: "planned" (a dry run), "loaded", "already loaded" by an earlier run, or "nothing to send".
        rows: of the source (as many as its condition leaves). Each is one of the next five:
        messages: to be sent.
        bad: cannot be messages; `reasons` says how many for which reason.
        suppressed, duplicates, past: left out.
        nonexistent, ambiguous: messages whose local time did not exist, or came twice.
        quiet_moved: messages that quiet hours moved.
        delayed: messages that smoothing moved; `longest_delay_s` by how much at most.
        per_second: smoothing's limit; None without smoothing.
        first_ms, last_ms: when the first and the last leave, Unix ms; None without messages.
        busiest_minute_before, busiest_minute: messages in the fullest minute, as dues are asked for, and as they leave.
        committed: messages that the mesh has taken; None before loading.
        left: of what an earlier run has loaded; None where this one plans or loads.
        deduplicated: of these, those that an earlier run had loaded.
        per_partition: messages by partition of the topic.
        planning_s, loading_s: how long it took.
        plot: file of the picture.
    """

    name: str
    topic: str
    job_id: str = ""
    state: str = PLANNED
    rows: int = 0
    messages: int = 0
    bad: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    suppressed: int = 0
    duplicates: int = 0
    past: int = 0
    nonexistent: int = 0
    ambiguous: int = 0
    quiet_moved: int = 0
    delayed: int = 0
    longest_delay_s: int = 0
    per_second: int | None = None
    first_ms: int | None = None
    last_ms: int | None = None
    busiest_minute_before: int = 0
    busiest_minute: int = 0
    committed: int | None = None
    left: int | None = None
    deduplicated: int = 0
    per_partition: dict[int, int] = field(default_factory=dict)
    planning_s: float = 0.0
    loading_s: float = 0.0
    plot: str = ""

    def document(self) -> dict[str, Any]:
        """Return it for JSON."""
        return asdict(self)

    def write(self, file: Path) -> None:
        """Write it as JSON."""
        file.write_text(json.dumps(self.document(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    def lines(self) -> list[tuple[str, str]]:
        """Return the report for people, as names and values; zeros for lack of a table are left out."""
        if self.state == THERE:
            return [("left of it", f"{self.left or 0:,}")]
        found = [("rows", f"{self.rows:,}"), ("messages", f"{self.messages:,}")]
        left_out = (
            ("bad", self.bad), *((f"bad: {reason}", count) for reason, count in sorted(self.reasons.items())),
            ("suppressed", self.suppressed), ("duplicates", self.duplicates), ("past", self.past),
        )  # fmt: skip
        found += [(f"left out: {name}", f"{count:,}") for name, count in left_out if count]
        local = (
            ("local times that did not exist", self.nonexistent), ("local times that came twice", self.ambiguous),
            ("moved by quiet hours", self.quiet_moved),
        )  # fmt: skip
        found += [(name, f"{count:,}") for name, count in local if count]
        if self.per_second is not None:
            found.append(("at most a second", f"{self.per_second:,}"))
            found.append(("delayed by smoothing", f"{self.delayed:,}, by up to {self.longest_delay_s:,} s"))
        if self.first_ms is not None and self.last_ms is not None:
            found += [("first", instant_text(self.first_ms)), ("last", instant_text(self.last_ms))]
        found.append(
            ("busiest minute", f"{self.busiest_minute:,} (as asked for: {self.busiest_minute_before:,})")
        )
        if self.committed is not None:
            there = f", {self.deduplicated:,} of them before" if self.deduplicated else ""
            found.append(("committed", f"{self.committed:,}{there}, in {self.loading_s:,.1f} s"))
        return found
