"""The summary: what a page about the whole mesh needs of each topic, in so few bytes that ten thousand fit.

Only the partitions that are led here are in it, topic by topic, made some at a time like the status. A topic with no
news (without messages, its replicas in sync) takes its name and one number.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from dueq import limits
from dueq.core.delivery.dispatch import TopicDispatcher
from dueq.core.front.topics import Topics
from dueq.core.ports.events import Route
from dueq.core.turn.context import Context
from dueq.core.turn.mesh_time import MeshTime
from dueq.instant import Now
from dueq_codecs.messages import Code, Reply

if TYPE_CHECKING:
    from dueq.core.front.status import Status
    from dueq.core.partition.partition import Partition

AT_ONCE: Final = 1000
"""Work of one turn, some milliseconds: a partition counts once, one with messages more."""
_WITH_MESSAGES: Final = 10
_WAITING_MAX: Final = 64
_BYTES_MAX: Final = limits.FRAME_BYTES_MAX - (64 << 10)
_COUNTS: Final = ("scheduled", "ready", "leased", "dead")
_MINUTE: Final = len(_COUNTS)


@dataclass(slots=True)
class _Row:
    """A topic, as far as it is led here.

    Attributes:
        served: partitions.
        behind: of them have fewer in-sync replicas than replicas.
        counts: messages that are scheduled, ready, leased, dead, and due within a minute.
    """

    served: int = 0
    behind: int = 0
    counts: list[int] = field(default_factory=lambda: [0] * (_MINUTE + 1))

    def shown(self) -> list[int]:
        """As it is told: what says nothing is left out."""
        return [self.served, self.behind, *self.counts] if self.behind or any(self.counts) else [self.served]


@dataclass(slots=True)
class _Summary:
    """One that is being made.

    Attributes:
        asked: whose question it answers.
        uids: partitions that are still missing.
        rows: by topic.
        replicas: of the partitions led here, by broker: how many it has, how many of these partitions have no copy to
            spare, and of how many it is not in sync.
        seconds: messages due in each second of the next minute.
    """

    asked: list[tuple[Route, int]]
    uids: list[int]
    rows: dict[str, _Row] = field(default_factory=dict)
    replicas: dict[str, list[int]] = field(default_factory=dict)
    seconds: list[int] = field(default_factory=lambda: [0] * 60)


class Summaries:
    """The requests for the summary, and the one that is being made."""

    def __init__(
        self,
        ctx: Context,
        clock: MeshTime,
        status: Status,
        topics: Topics,
        partitions: dict[int, Partition],
        dispatchers: dict[str, TopicDispatcher],
    ) -> None:
        self._ctx, self._clock, self._status = ctx, clock, status
        self._topics, self._partitions, self._dispatchers = topics, partitions, dispatchers
        self._waiting: list[tuple[Route, int]] = []
        self._making: _Summary | None = None
        self._disabled: tuple[int, list[list[str]]] = (-1, [])

    def ask(self, route: Route, request_id: int) -> None:
        """Answer with the summary of this broker, made after the question came."""
        if len(self._waiting) >= _WAITING_MAX:
            text = f"{len(self._waiting)} questions for the summary wait already"
            self._ctx.reply(route, Reply(request_id, Code.BUSY, text, retry_after_ms=1000))
            return
        self._waiting.append((route, request_id))

    def work(self, now: Now) -> None:
        """Do this turn's share; asks for another turn at once while something is left."""
        if self._making is None:
            if not self._waiting:
                return
            asked, self._waiting = self._waiting, []
            self._making = _Summary(asked, list(self._partitions))
        summary, done = self._making, 0
        while summary.uids and done < AT_ONCE:
            partition = self._partitions.get(summary.uids.pop())
            done += self._add(summary, partition, now) if partition is not None else 1
        if not summary.uids:
            self._answer(summary, now)
            self._making = None
        self._ctx.again = self._ctx.again or self._making is not None or bool(self._waiting)

    def _add(self, summary: _Summary, partition: Partition, now: Now) -> int:
        """Add a partition; returns how much work that was."""
        if not partition.replica.serving:
            return 1
        row = summary.rows.setdefault(partition.topic.name, _Row())
        row.served += 1
        isr = [member.broker_id for member in partition.replica.isr]
        spare = len(isr) > partition.topic.min_isr
        row.behind += len(isr) < len(partition.replicas)
        for broker_id in partition.replicas:
            known = summary.replicas.setdefault(broker_id, [0, 0, 0])
            known[0] += 1
            known[1] += not spare
            known[2] += broker_id not in isr
        if not partition.contents.count:
            return 1
        told = partition.describe(now)
        for place, name in enumerate(_COUNTS):
            row.counts[place] += int(str(told[name]))
        if told["scheduled"]:
            from_ms = self._clock.mesh_now_us(now) // 1000
            for second_ms, count in partition.contents.forecast(from_ms, 60):
                summary.seconds[min(max((second_ms - from_ms) // 1000, 0), 59)] += count
                row.counts[_MINUTE] += count
        return _WITH_MESSAGES

    def _answer(self, summary: _Summary, now: Now) -> None:
        head = self._status.broker(now)
        document = {
            **head,
            "held": len(self._partitions),
            "catalogue": self._topics.version,
            "replicas": summary.replicas,
            "due_next_minute": summary.seconds,
            "disabled": self._disabled_endpoints(),
        }
        text = json.dumps(document, separators=(",", ":"))[:-1]
        size, left_out = len(text), 0
        texts: dict[str, list[str]] = {"topics": [], "consumers": []}
        rows = ((name, row.shown()) for name, row in summary.rows.items())
        for what, each in (("topics", rows), ("consumers", self._consumers(now))):
            for name, row in each:
                part = json.dumps([name, *row], separators=(",", ":"))
                size += len(part) + 1
                if size > _BYTES_MAX:
                    left_out += 1
                else:
                    texts[what].append(part)
        lists = "".join(f',"{what}":[{",".join(parts)}]' for what, parts in texts.items())
        for route, request_id in summary.asked:
            reply = Reply(request_id, Code.OK, document=f'{text}{lists},"left_out":{left_out}}}')
            self._ctx.reply(route, reply)

    def _consumers(self, now: Now) -> Iterable[tuple[str, list[int]]]:
        """How many consumers each topic has here, with their credit and leases."""
        for name, dispatcher in self._dispatchers.items():
            sessions = dispatcher.sessions(now)
            if sessions:
                credit = sum(session.credit for session in sessions)
                yield name, [len(sessions), credit, sum(session.leases for session in sessions)]

    def _disabled_endpoints(self) -> list[list[str]]:
        """Topics, names and reasons of the endpoints that are disabled, the first by topic."""
        if self._disabled[0] != self._topics.version:
            found = sorted(
                [topic.name, str(topic.settings.endpoint["name"]), str(topic.settings.endpoint["disabled"])]
                for topic in self._topics.by_name.values()
                if topic.settings.endpoint is not None and topic.settings.endpoint["disabled"]
            )
            self._disabled = self._topics.version, found[: limits.ENDPOINTS_DISABLED_TOLD]
        return self._disabled[1]
