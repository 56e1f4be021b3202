"""Alarms: each fault in words, with the next step. The worst comes first.

Pure: made of the findings of one look, and of how long they have lasted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from dueq import limits
from dueq.client.summaries import ReplicaCounts
from dueq.gateway import instants
from dueq.gateway.dashboard.history import History
from dueq.gateway.dashboard.snapshot import Sight, TopicSight

Level = Literal["bad", "warn", "note"]

_ORDER: Final = {"bad": 0, "warn": 1, "note": 2}
_LEADERLESS_AFTER_MS: Final = 1500
"""A change of leaders takes less."""
_LATE_AFTER_MS: Final = 3000
"""A message that waits for less is on its way."""
_BEHIND_AFTER_MS: Final = 10_000
_REASON_MAX: Final = 120
_LATE_MS: Final = 1000.0
_GROWING_MS: Final = 600_000
"""For how long dead messages that came are a warning."""
_DEAD_EVERY_MS: Final = 30_000


@dataclass(frozen=True, slots=True)
class Alarm:
    """Something that somebody should know.

    Attributes:
        key: the same at each look at the same trouble.
        level: "bad": messages are not delivered, or are in danger; "warn": they soon may be; "note": worth knowing.
        what: what is wrong, a sentence.
        next: what to do about it, a sentence.
        topic: whose page says more; "": none.
        dead: its dead messages say more.
        weight: messages that it is about; of two that are alike, the one about more comes first.
        until_ms: when it ends by itself, Unix ms; None: it does not, or nobody knows.
        since_ms: since when it has been so, Unix ms, as far as somebody looked.
        after_ms: it is shown once it has been so for as long.
    """

    key: str
    level: Level
    what: str
    next: str
    topic: str = ""
    dead: bool = False
    weight: int = 0
    until_ms: int | None = None
    since_ms: int = 0
    after_ms: int = 0


@dataclass(slots=True)
class Alarms:
    """The faults of the mesh, look by look."""

    _since: dict[str, int] = field(default_factory=dict)
    _dead: dict[str, deque[tuple[int, int]]] = field(default_factory=dict)

    def take(self, sight: Sight, history: History) -> list[Alarm]:
        """Return the faults that there are now, the worst first."""
        found = [_blind(sight)] if sight.fault else list(self._all(sight, history))
        since = {alarm.key: self._since.get(alarm.key, sight.at_ms) for alarm in found}
        self._since = since
        shown = [
            replace(each, since_ms=since[each.key])
            for each in found
            if sight.at_ms - since[each.key] >= each.after_ms
        ]
        # What is wrong with a broker or the whole mesh is often the cause of what is wrong with topics.
        return sorted(shown, key=lambda alarm: (_ORDER[alarm.level], bool(alarm.topic), -alarm.weight))

    def _all(self, sight: Sight, history: History) -> Iterator[Alarm]:
        yield from _of_brokers(sight)
        disabled = {topic: (endpoint, why) for topic, endpoint, why in sight.disabled}
        for name in sorted(disabled.keys() & sight.topics.keys()):
            yield _disabled(sight.topics[name], *disabled[name])
        delivered = history.delivered()
        self._dead = {name: known for name, known in self._dead.items() if name in sight.topics}
        for name, topic in sight.topics.items():
            if topic.quiet:
                self._dead.pop(name, None)
                continue
            grown = self._grown(name, topic.dead, sight.at_ms)
            failing = sight.failing.get(name)
            yield from _of_topic(name, topic, delivered[name], grown, name in disabled, failing)
        late = history.lateness()
        if late.count and (late.most_ms is None or late.most_ms > _LATE_MS):
            yield Alarm(
                "lateness",
                "warn",
                f"One in a hundred of the last minute's messages came more than {_LATE_MS / 1000:g} second late.",
                "Look for a broker that is short of a core, a slow disk, or more partitions than cores.",
            )
        if sight.unseen:
            yield Alarm(
                "left out",
                "note",
                f"{sight.unseen:,} topics do not fit into the brokers' answers; what is said here leaves them out.",
                "The metrics of each broker count all of them.",
            )

    def _grown(self, name: str, dead: int, at_ms: int) -> tuple[int, int]:
        """How many messages of a topic have died meanwhile, and in how long a time, ms: ten minutes at most."""
        known = self._dead.setdefault(name, deque())
        while known and (known[-1][1] > dead or known[0][0] < at_ms - _GROWING_MS):
            if known[-1][1] > dead:  # some were redriven or discarded: what is left is counted anew
                known.clear()
            else:
                known.popleft()
        if not known or known[-1][0] <= at_ms - _DEAD_EVERY_MS:
            known.append((at_ms, dead))
        begun_ms, first = known[0]
        return dead - first, at_ms - begun_ms


def _disabled(topic: TopicSight, endpoint: str, why: str) -> Alarm:
    info, waiting = topic.info, topic.ready
    of = _count(waiting, "message of", "messages of")
    held = f"{of} {info.name} {'is due and waits' if waiting == 1 else 'are due and wait'}"
    return Alarm(
        f"disabled {info.name}",
        "bad",
        f"The endpoint {endpoint} of {info.name} is disabled: {why}. {held if waiting else 'Nothing is due yet'}.",
        "Mend its receiver, or give it another URL; then resume the endpoint: what is due is sent at once.",
        info.name,
        weight=waiting,
    )


def _failing(topic: TopicSight, endpoint: str, why: str) -> Alarm:
    """The gateway is the consumer that has as much as it may: more of them would not help."""
    name, waiting = topic.info.name, topic.ready
    held = f" {_count(waiting, 'message is due and waits', 'messages are due and wait')}."
    reason = " ".join(why.split())[:_REASON_MAX].rstrip(" .")
    return Alarm(
        f"failing {name}",
        "bad" if waiting else "warn",
        f"The receiver of the endpoint {endpoint} of {name} fails: {reason}.{held if waiting else ''}",
        "Mend it, or give the endpoint another URL: what has failed is sent again by the topic's back-off.",
        name,
        weight=waiting,
    )


def _blind(sight: Sight) -> Alarm:
    return Alarm(
        "blind",
        "bad",
        "No broker answers this gateway: nothing is known of the mesh just now.",
        f"Start the brokers, or see whether the gateway can reach them. It tries again every second. ({sight.fault})",
    )


def _of_brokers(sight: Sight) -> Iterator[Alarm]:
    for broker_id, broker in sight.brokers.items():
        if not broker["alive"]:
            yield _away(sight, broker_id)
            continue
        for key, level, what, next_step in _BROKER_RULES:
            text = what(broker)
            if text:
                yield Alarm(f"{key} {broker_id}", level, f"Broker {broker_id} {text}", next_step)
    levels = {broker.get("feature_level") for broker in sight.brokers.values() if broker["alive"]} - {None}
    if len(levels) > 1:
        yield Alarm(
            "levels",
            "note",
            "Brokers of two builds run side by side; what only the newer one can do waits.",
            "Finish the upgrade: one broker at a time.",
        )


def _away(sight: Sight, broker_id: str) -> Alarm:
    counts = sight.replicas.get(broker_id, ReplicaCounts())
    copies = counts.at_risk
    # Of a partition without a leader no leader tells.
    leaderless = sum(
        min(topic.leaderless, sum(broker_id in each.replicas for each in topic.info.placement))
        for topic in sight.topics.values()
        if topic.leaderless
    )
    held = counts.held + leaderless
    if leaderless:
        consequence = f"{_count(leaderless, 'of its partitions has', 'of its partitions have')} no leader"
    elif held:
        some = "" if copies == held else f"{copies:,} of them "
        danger = f", and {some}must not lose another" if copies else ""
        fewer = f"{_count(held, 'partition has', 'partitions have')} one copy fewer"
        consequence = f"others have taken over; {fewer}{danger}"
    else:
        consequence = "it holds nothing, so nothing is missing"
    return Alarm(
        f"away {broker_id}",
        "bad" if held else "warn",
        f"Broker {broker_id} does not answer: {consequence}.",
        "Start it again on its own folder: it catches up by itself."
        if held
        else "Start it again, if it is still wanted.",
    )


_REFUSING: Final = {
    "disk_full": "its disk is full",
    "memory_full": "its store in memory is full",
    "busy": "its disk does not keep up",
}

_BROKER_RULES: Final[tuple[tuple[str, Level, Callable[[dict[str, object]], str], str], ...]] = (
    (
        "coordinator",
        "bad",
        lambda broker: (
            "has lost ZooKeeper: messages flow on, but no leadership can change."
            if broker.get("degraded")
            else ""
        ),
        "Start ZooKeeper again, or see why it is out of reach.",
    ),
    (
        "inserts",
        "bad",
        lambda broker: (
            f"refuses new messages: {_REFUSING.get(str(broker['inserts_refused']), broker['inserts_refused'])}."
            if broker.get("inserts_refused")
            else ""
        ),
        "Make room for its store, or let consumers catch up; it takes messages again by itself.",
    ),
    (
        "clock",
        "bad",
        lambda broker: _clock(broker.get("clock")),
        "Let NTP or chrony set its clock right. Messages stay on mesh time, so none comes early.",
    ),
    (
        "unopened",
        "bad",
        lambda broker: (
            f"cannot open {len(_sized(broker.get('unopened'))):,} of its replicas."
            if broker.get("unopened")
            else ""
        ),
        "The status of the broker has the reason: start the newer build that wrote them, or make room on its disk.",
    ),
    (
        "orphans",
        "note",
        lambda broker: (
            f"holds {len(_sized(broker.get('orphans'))):,} replicas of topics that the coordinator does not know."
            if broker.get("orphans")
            else ""
        ),
        "If the coordinator lost its data, see “Recover a partition” in the manual; nothing is deleted meanwhile.",
    ),
)


def _clock(clock: object) -> str:
    alarm = clock.get("alarm") if isinstance(clock, dict) else ""
    return f"says of its clock: {alarm}." if alarm else ""


def _sized(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _of_topic(
    name: str,
    topic: TopicSight,
    delivered: int,
    grown: tuple[int, int],
    disabled: bool,
    failing: tuple[str, str] | None,
) -> Iterator[Alarm]:
    info = topic.info
    if topic.leaderless:
        them = _them(topic.leaderless)
        yield Alarm(
            f"leaderless {name}",
            "bad",
            f"{_count(topic.leaderless, 'partition', 'partitions')} of {name} "
            f"{'has' if topic.leaderless == 1 else 'have'} no leader: nothing in {them} is delivered.",
            f"Start the brokers that hold {them}; one of those in sync is enough.",
            name,
            after_ms=_LEADERLESS_AFTER_MS,
        )
    if disabled:
        pass  # that is said already, and why it is paused
    elif info.paused:
        due = (
            _count(topic.ready, "message is due and waits", "messages are due and wait")
            if topic.ready
            else "how much waits is not known while a partition has no leader"
            if topic.leaderless
            else "nothing is due yet"
        )
        yield Alarm(
            f"paused {name}",
            "warn" if topic.ready else "note",
            f"{name} is paused{'' if info.paused_until else ' until it is resumed'}; {due}.",
            "Resume it: what is due is then delivered at once.",
            name,
            weight=topic.ready,
            until_ms=instants.ms_of(info.paused_until) if info.paused_until else None,
        )
    elif failing is not None and topic.total > topic.dead:
        yield _failing(topic, *failing)
    else:
        yield from _of_consumers(name, topic, delivered)
    if topic.dead:
        more_dead, in_ms = grown
        growing = f", {more_dead:,} more in the last {_lately(in_ms)}" if more_dead else ""
        yield Alarm(
            f"dead {name}",
            "warn" if more_dead else "note",
            f"{_count(topic.dead, 'message', 'messages')} of {name} "
            f"{'is' if topic.dead == 1 else 'are'} dead{growing}: no consumer gets {_them(topic.dead)} any more.",
            "Read why, stop what kills them, then redrive them."
            if more_dead
            else f"Read why, then redrive or discard {_them(topic.dead)}.",
            name,
            dead=True,
            weight=topic.dead,
        )
    if topic.behind:
        yield Alarm(
            f"behind {name}",
            "note",
            f"{_count(topic.behind, 'partition', 'partitions')} of {name} "
            f"{'has' if topic.behind == 1 else 'have'} fewer in-sync copies than wanted.",
            "A broker that comes back catches up by itself; if none is away, look at the slowest disk.",
            name,
            after_ms=_BEHIND_AFTER_MS,
        )


def _of_consumers(name: str, topic: TopicSight, delivered: int) -> Iterator[Alarm]:
    busy = bool(topic.leased or delivered)
    ready, soon = min(topic.ready, topic.free), min(topic.next_minute, topic.free)
    paused = _paused_groups(topic)
    if topic.ready > ready:
        yield _held(name, topic, topic.ready - ready)
    if ready and not topic.sessions and not busy:
        yield Alarm(
            f"alone {name}",
            "bad",
            f"{_count(ready, 'message', 'messages')} of {name} "
            f"{'is' if ready == 1 else 'are'} due, and no consumer is there to take {_them(ready)}.{paused}",
            "Start a consumer of this topic: it gets at once what no paused group holds."
            if paused
            else f"Start a consumer of this topic: it gets {_them(ready)} at once.",
            name,
            weight=ready,
            after_ms=_LEADERLESS_AFTER_MS,
        )
    elif ready:
        full = topic.sessions and topic.held >= topic.credit
        yield Alarm(
            f"late {name}",
            "warn",
            f"{_count(ready, 'message', 'messages')} of {name} "
            f"{'is' if ready == 1 else 'are'} late: due, and not with a consumer yet.{paused}",
            "Its consumers have as many messages as they may: start more of them, or raise their credit."
            if full
            else f"Its rate is {topic.info.rate:,} a second: raise it, if they are to come sooner."
            if topic.info.rate
            else "Resume what is paused, or see whether its consumers are at work on the rest."
            if paused
            else "See whether its consumers are at work; more of them take more at once.",
            name,
            weight=ready,
            after_ms=_LATE_AFTER_MS,
        )
    elif soon and not topic.sessions and not busy:
        yield Alarm(
            f"missing {name}",
            "warn",
            f"No consumer of {name} is there, and {_count(soon, 'message falls', 'messages fall')} due "
            "within a minute.",
            "Start a consumer before that.",
            name,
            weight=soon,
        )


def _held(name: str, topic: TopicSight, held: int) -> Alarm:
    """Messages that are due, and that a paused group holds for certain."""
    one = len(topic.paused_groups) == 1
    return Alarm(
        f"held {name}",
        "warn",
        f"{_count(held, 'message', 'messages')} of {name} {'is' if held == 1 else 'are'} due and "
        f"{'waits' if held == 1 else 'wait'} in {'a paused group' if one else 'paused groups'}.{_paused_groups(topic)}",
        "Resume the group: consumers get nothing of it before."
        if one
        else "Resume the groups: consumers get nothing of them before.",
        name,
        weight=held,
        after_ms=_LATE_AFTER_MS,
    )


def _paused_groups(topic: TopicSight) -> str:
    """Say which groups are paused and hold messages."""
    if not topic.paused_groups:
        return ""
    first, *others = topic.paused_groups
    more = f" and {_count(len(others), 'other', 'others')}" if others else ""
    is_paused = "are paused and hold" if others else "is paused and holds"
    which = "groups" if others else "group"
    return f" The {which} {first!r:.80}{more} {is_paused} {_count(topic.in_paused, 'message', 'messages')}, due or not."


def _them(number: int) -> str:
    return "it" if number == 1 else "them"


def _lately(ms: int) -> str:
    return "minute" if ms < 90_000 else f"{round(ms / 60_000)} minutes"


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def shown(alarms: list[Alarm], topic: str | None = None) -> tuple[list[Alarm], int, int]:
    """Return the alarms that a page shows, how many it leaves out, and how many of all are more than notes.

    Args:
        alarms: all of them, the worst first.
        topic: only those about it, or about no topic; None: all.
    """
    wanted = [alarm for alarm in alarms if topic is None or alarm.topic in ("", topic)]
    serious = sum(alarm.level != "note" for alarm in wanted)
    return wanted[: limits.DASHBOARD_ROWS_MAX], max(len(wanted) - limits.DASHBOARD_ROWS_MAX, 0), serious
