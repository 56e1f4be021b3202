"""What is wrong, in words, with the next step. The worst comes first.

Pure: made of what one look has seen and of since when it has been so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

from dueq import limits
from dueq.gateway.dashboard.history import History
from dueq.gateway.dashboard.snapshot import Sight, TopicSight

Level = Literal["bad", "warn", "note"]

_ORDER: Final = {"bad": 0, "warn": 1, "note": 2}
_LEADERLESS_AFTER_MS: Final = 1500
"""A change of leaders takes less."""
_LATE_AFTER_MS: Final = 3000
"""What waits for less is on its way."""
_BEHIND_AFTER_MS: Final = 10_000
_LATE_MS: Final = 1000.0
_SOON_S: Final = 60


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
        since_ms: since when it has been so, Unix ms, as far as somebody looked.
        after_ms: it is shown once it has been so for as long.
    """

    key: str
    level: Level
    what: str
    next: str
    topic: str = ""
    dead: bool = False
    since_ms: int = 0
    after_ms: int = 0


@dataclass(slots=True)
class Alarms:
    """What is wrong, look by look.

    Attributes:
        dead_at_first: dead messages by topic when somebody began to look.
    """

    _since: dict[str, int] = field(default_factory=dict)
    dead_at_first: dict[str, int] = field(default_factory=dict)

    def take(self, sight: Sight, history: History) -> list[Alarm]:
        """Return what is wrong now, the worst first."""
        found = [_blind(sight)] if sight.fault else list(self._all(sight, history))
        since = {alarm.key: self._since.get(alarm.key, sight.at_ms) for alarm in found}
        self._since = since
        shown = [
            Alarm(
                each.key,
                each.level,
                each.what,
                each.next,
                each.topic,
                each.dead,
                since[each.key],
                each.after_ms,
            )
            for each in found
            if sight.at_ms - since[each.key] >= each.after_ms
        ]
        return sorted(shown, key=lambda alarm: _ORDER[alarm.level])

    def _all(self, sight: Sight, history: History) -> Iterator[Alarm]:
        yield from _of_brokers(sight)
        for name, topic in sight.topics.items():
            first = self.dead_at_first.setdefault(name, topic.dead)
            if topic.dead < first:
                self.dead_at_first[name] = first = topic.dead
            yield from _of_topic(name, topic, history.delivered(name), topic.dead - first)
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
                f"{sight.unseen:,} partitions do not fit into the brokers' answers; what is said here leaves them out.",
                "The metrics of each broker count all of them.",
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
    held = copies = leaderless = 0
    for topic in sight.topics.values():
        for partition in topic.partitions:
            if broker_id in partition.get("replicas", ()):
                held += 1
                copies += len(partition.get("isr", ())) <= topic.info.min_isr
                leaderless += not partition.get("serving")
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
            f"cannot read {len(_sized(broker.get('unopened'))):,} of its replicas: a newer build wrote them."
            if broker.get("unopened")
            else ""
        ),
        "Start it with the newer build.",
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


def _of_topic(name: str, topic: TopicSight, delivered: int, more_dead: int) -> Iterator[Alarm]:
    info = topic.info
    if topic.leaderless:
        yield Alarm(
            f"leaderless {name}",
            "bad",
            f"{_count(topic.leaderless, 'partition', 'partitions')} of {name} "
            f"{'has' if topic.leaderless == 1 else 'have'} no leader: nothing in them is delivered.",
            "Start the brokers that hold them; one of those in sync is enough.",
            name,
            after_ms=_LEADERLESS_AFTER_MS,
        )
    if info.paused:
        until = " until the instant that the pause names" if info.paused_until else ""
        due = (
            f"{_count(topic.ready, 'message is', 'messages are')} due and wait"
            if topic.ready
            else "nothing is due yet"
        )
        yield Alarm(
            f"paused {name}",
            "warn" if topic.ready else "note",
            f"{name} is paused{until}; {due}.",
            "Resume it: what is due is then delivered at once.",
            name,
        )
    else:
        yield from _of_consumers(name, topic, delivered)
    if topic.dead:
        growing = f", {more_dead:,} more since you look" if more_dead else ""
        yield Alarm(
            f"dead {name}",
            "warn" if more_dead else "note",
            f"{_count(topic.dead, 'message', 'messages')} of {name} "
            f"{'is' if topic.dead == 1 else 'are'} dead{growing}: no consumer gets them any more.",
            "Read why, then redrive or discard them.",
            name,
            dead=True,
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
    soon = sum(topic.next_minute[:_SOON_S])
    if topic.ready and not topic.consumers and not busy:
        yield Alarm(
            f"alone {name}",
            "bad",
            f"{_count(topic.ready, 'message', 'messages')} of {name} "
            f"{'is' if topic.ready == 1 else 'are'} due, and no consumer is there to take them.",
            "Start a consumer.",
            name,
            after_ms=_LEADERLESS_AFTER_MS,
        )
    elif topic.ready:
        credit = sum(int(each.get("credit", 0)) for each in topic.consumers)
        full = topic.consumers and sum(int(each.get("leased", 0)) for each in topic.consumers) >= credit
        yield Alarm(
            f"late {name}",
            "warn",
            f"{_count(topic.ready, 'message', 'messages')} of {name} "
            f"{'is' if topic.ready == 1 else 'are'} late: due, and not with a consumer yet.",
            "Its consumers have as many messages as they may: start more of them, or raise their credit."
            if full
            else f"Its rate is {topic.info.rate:,} a second: raise it, if they are to come sooner."
            if topic.info.rate
            else "See whether its consumers are at work; more of them take more at once.",
            name,
            after_ms=_LATE_AFTER_MS,
        )
    elif soon and not topic.consumers and not busy:
        yield Alarm(
            f"missing {name}",
            "warn",
            f"No consumer of {name} is there, and {_count(soon, 'message falls', 'messages fall')} due in a minute.",
            "Start a consumer before that.",
            name,
        )


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def shown(alarms: list[Alarm], topic: str | None = None) -> tuple[list[Alarm], int]:
    """Return the alarms that a page shows, and how many it leaves out.

    Args:
        alarms: all of them, the worst first.
        topic: only those about it, or about no topic; None: all.
    """
    wanted = [alarm for alarm in alarms if topic is None or alarm.topic in ("", topic)]
    return wanted[: limits.DASHBOARD_ROWS_MAX], max(len(wanted) - limits.DASHBOARD_ROWS_MAX, 0)
