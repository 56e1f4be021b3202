"""The result of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dueq_chaos.nemesis.conductor import Happening
from dueq_chaos.nemesis.series import Series


@dataclass(frozen=True)
class Outcome:
    """Everything that the report shows.

    Attributes:
        settings: those asked for, by name.
        impossible: faults that this machine does not allow: kind and reason.
        happenings: the faults as they were.
        deaths: brokers that ended by themselves: (`time.monotonic()`, text).
        series: of the traffic.
        faults_s: beginning and end of the faults, `time.monotonic()`.
        counts: how many of what: messages, deliveries, …
        verdicts: how often each thing happened that must not, zeros too.
        examples: stories of some of them.
        troubles: what else went wrong: a broker with a bug, a mesh that did not become whole.
        interrupted: it was ended before its time.
    """

    settings: Mapping[str, str]
    impossible: Mapping[str, str]
    happenings: Sequence[Happening]
    deaths: Sequence[tuple[float, str]]
    series: Series
    faults_s: tuple[float, float]
    counts: Mapping[str, int]
    verdicts: Mapping[str, int]
    examples: Sequence[str] = ()
    troubles: Sequence[str] = field(default_factory=tuple)
    interrupted: bool = False

    @property
    def good(self) -> bool:
        """Whether nothing happened that must not."""
        return not any(self.verdicts.values()) and not self.troubles
