"""What one producing process schedules, moves and cancels, in all topics of a storm."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Final

from dueq import limits
from dueq_chaos.sim.environment.mesh import SimMesh
from dueq_chaos.sim.judging.claimed import Asked
from dueq_chaos.sim.judging.history import MessageKey
from dueq_chaos.sim.reference.bodies import body_of
from dueq_chaos.sim.users import repeating
from dueq_chaos.sim.users.keyed import DUPLICATES, KEYS, draw_keys, look
from dueq_chaos.sim.users.producing import ProducingUser
from dueq_chaos.sim.users.ranks import Ranks
from dueq_chaos.sim.users.sharing import Sharing

TOPIC: Final = "storm"
_CALL_US: Final = 20_000_000
_BOTH_FROM: Final = 92_000_000
"""From this seed on messages with idempotency keys have unique keys, too, where keys are unique."""
_YEAR_AFTER_NEXT_MS: Final = 401 * 86_400_000


def topic_name(number: int) -> str:
    """The name of a storm's topic, counted from 0."""
    return f"{TOPIC}-{number + 1}" if number else TOPIC


class Traffic:
    """The producing process.

    Args:
        mesh: where.
        producer: the process.
        kinds: of the topics that are consumed, by name.

    Attributes:
        producer: as given.
        topics: the names.
        ranked: those whose messages have ranks.
        sharing: groups of fair topics.
        kinds: what it can do, by the kind of the step.
    """

    def __init__(self, mesh: SimMesh, producer: ProducingUser, kinds: dict[str, str]) -> None:
        self.mesh, self.producer = mesh, producer
        producer.client.asks_nonsense = (
            "a message with a key has a group in the fair topic",
            "in which each first level of groups has keys of its own",
        )
        self.topics = list(kinds)
        self.ranked = {name for name, kind in kinds.items() if kind == "priority"}
        self.sharing = Sharing(mesh, [name for name, kind in kinds.items() if kind == "fair"])
        self._ranks = Ranks(mesh.world.seed)
        self._batches = 0
        self.kinds: dict[str, Callable[[Random], None]] = {
            "schedule": lambda random: self._schedule(random, -200, 4_000),
            "schedule far": lambda random: self._schedule(random, 3_600_000, 90_000_000),
            "schedule very far": lambda random: self._schedule(
                random, _YEAR_AFTER_NEXT_MS, 2 * _YEAR_AFTER_NEXT_MS
            ),
            "schedule long": self._schedule_long,
            "schedule headed": self._schedule_headed,
            "schedule shared": self._schedule_shared,
            "schedule keyed": self._schedule_keyed,
            "schedule once": self._schedule_once,
            "schedule steadily": self._schedule_steadily,
            "claim and schedule": self._claim_and_schedule,
            "close body": lambda random: self.producer.close_body(self.topic(random), body_of(random)),
            "impatient schedule": self._schedule_impatiently,
            "look by key": self._look_by_key,
            "alter": self._alter,
            "time-outs": self._time_outs,
            "backlog": self._backlog,
        }

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self.producer.client.core is not None

    def ranks_of(self, topic: str) -> Ranks | None:
        """Return who gives messages of a topic their ranks; None: they have none."""
        return self._ranks if topic in self.ranked else None

    @property
    def _topic_of(self) -> dict[int, str]:
        """The topic of each partition that is consumed; there may be more by and by."""
        topics = self.mesh.coordinator.topics
        return {part.uid: name for name in self.topics for part in topics[name].partitions}

    @property
    def uids(self) -> list[int]:
        """Those partitions."""
        return list(self._topic_of)

    def topic(self, random: Random) -> str:
        """One of the topics; where there is one only, nothing is left to chance."""
        return random.choice(self.topics) if len(self.topics) > 1 else TOPIC

    def payloads(self, rows: int) -> list[bytes]:
        """Return so many payloads that nobody else sends."""
        self._batches += 1
        return [b"%d-%d" % (self._batches, row) for row in range(rows)]

    def schedule(
        self, topic: str, payloads: list[bytes], dues: list[int], timeout_us: int = _CALL_US,
        more: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        """Schedule rows; in a priority topic with ranks, some of which are changed again soon."""
        ranks = self._ranks.draw(len(payloads)) if topic in self.ranked else None
        self.producer.schedule(
            topic,
            payloads,
            dues,
            timeout_us,
            ranks,
            groups=self.sharing.groups_of(topic, len(payloads)),
            more=more,
        )
        if topic in self.ranked and self._ranks.chance(0.3):
            mine = frozenset(payloads)
            self.mesh.world.after(self._ranks.soon_us(), lambda: self._think_again(mine))

    def send(self, topic: str, payloads: list[bytes], dues: list[int]) -> None:
        """Schedule rows, if there is somebody to do it."""
        if self.alive:
            self.schedule(topic, payloads, dues)

    def burst(self, random: Random, requests: int, soon_ms: int, late_ms: int) -> None:
        """Schedule a message or two, several times over."""
        for _ in range(requests):
            if self.alive:
                now_ms = self.mesh.world.wall_us // 1000
                payloads = self.payloads(random.randint(1, 3))
                dues = [now_ms + random.randint(soon_ms, late_ms) for _ in payloads]
                self.schedule(self.topic(random), payloads, dues)

    def schedule_at(self, due_ms: int, rows: int) -> None:
        """Schedule some messages for one instant."""
        if self.alive:
            self.schedule(TOPIC, self.payloads(rows), [due_ms] * rows)

    def schedule_long(self, random: Random, soon_ms: int) -> None:
        """Payloads that travel in chunks ahead of their record, among short ones."""
        if not self.alive:
            return
        payloads = self.payloads(random.randint(1, 3))
        payloads[0] += bytes(limits.CHUNK_BYTES + random.randint(1, limits.CHUNK_BYTES))
        now_ms = self.mesh.world.wall_us // 1000
        self.schedule(
            self.topic(random),
            payloads,
            [now_ms + random.randint(soon_ms, soon_ms + 2_000) for _ in payloads],
        )

    def alter_due(self, random: Random, due_ms: int) -> None:
        """Cancel what is due at an instant, or move it away."""
        due = [key for key in self._alterable(touched=False) if self._due(key) == due_ms]
        self._change(due, [due_ms + 2_000] * len(due) if random.random() < 0.3 else None)

    def move_far(self, random: Random) -> None:
        """Move a few of the messages that wait to instants far behind all others."""
        chosen = self._alterable(touched=False)
        chosen = random.sample(chosen, min(random.randint(1, 4), len(chosen)))
        far_ms = self.mesh.world.wall_us // 1000 + 60_000
        self._change(chosen, [far_ms + random.randint(0, 9_000) for _ in chosen])

    def bring_near(self) -> None:
        """Move what would be due long after the end to now."""
        if not self.alive:
            self.producer.client.start()
        now_ms = self.mesh.world.wall_us // 1000
        far: list[MessageKey] = []
        for key, message in self.mesh.history.messages.items():
            dues = [message.due_ms, *message.moves[-1:], *message.maybe_dues, *message.fate.dues[-1:]]
            if not message.finished and not message.changing and max(dues) > now_ms + 30_000:
                far.append(key)
        for topic, keys in self._by_topic(far).items():
            self.producer.alter(topic, keys, [now_ms + 500] * len(keys))

    def _schedule(self, random: Random, soon_ms: int, late_ms: int) -> None:
        now_ms = self.mesh.world.wall_us // 1000
        payloads = self.payloads(random.choice([1, 1, random.randint(1, 12), random.randint(10, 80)]))
        if random.random() < 0.2:
            dues = [now_ms + random.randint(soon_ms, late_ms)] * len(payloads)
        else:
            dues = [now_ms + random.randint(soon_ms, late_ms) for _ in payloads]
        self.schedule(self.topic(random), payloads, dues)

    def _schedule_headed(self, random: Random) -> None:
        """Schedule messages whose headers follow from their payloads."""
        now_ms = self.mesh.world.wall_us // 1000
        payloads = self.payloads(random.choice([1, random.randint(1, 12), random.randint(10, 80)]))
        dues = [now_ms + random.randint(-200, 4_000) for _ in payloads]
        self.producer.schedule(self.topic(random), payloads, dues, _CALL_US, headed=True)

    def _schedule_shared(self, random: Random) -> None:
        """Schedule messages that have one body."""
        now_ms = self.mesh.world.wall_us // 1000
        topic, body = self.topic(random), body_of(random)
        payloads = self.payloads(random.choice([1, random.randint(1, 12), random.randint(10, 80)]))
        dues = [now_ms + random.randint(-200, 4_000) for _ in payloads]
        headed = random.random() < 0.3
        self.producer.schedule(topic, payloads, dues, _CALL_US, headed=headed, shared=body)

    def _schedule_keyed(self, random: Random) -> None:
        """Schedule messages that want unique keys, of which there are few."""
        now_ms = self.mesh.world.wall_us // 1000
        payloads = self.payloads(random.choice([1, 1, 2, random.randint(1, 9)]))
        late_ms = random.choice([1_500, 4_000, 20_000])
        dues = [now_ms + random.randint(-200, late_ms) for _ in payloads]
        self.producer.schedule(
            self.topic(random), payloads, dues, random.choice([_CALL_US, _CALL_US, 300_000]),
            unique=draw_keys(random, len(payloads)), on_duplicate=random.choice(DUPLICATES),
        )  # fmt: skip

    def _schedule_once(self, random: Random) -> None:
        """Schedule messages with idempotency keys, of which there are few."""
        names = repeating.draw_names(random, random.choice([1, 1, 2, random.randint(1, 9)]))
        topic = self.topic(random)
        settings = self.mesh.coordinator.topics[topic].settings
        both = self.mesh.world.seed >= _BOTH_FROM and settings.keys == "unique"
        self._schedule_named(random, topic, repeating.apart(names) if both else names, both=both)

    def _claim_and_schedule(self, random: Random) -> None:
        """The same with one key for all."""
        topic, then = self.topic(random), Random(random.getrandbits(32))
        repeating.claim(
            self.producer.client,
            random,
            topic,
            random.randint(1, 9),
            partial(self._schedule_named, then, topic),
        )

    def _schedule_named(self, random: Random, topic: str, names: Asked, *, both: bool = False) -> None:
        if not self.alive:
            return
        now_ms, payloads = self.mesh.world.wall_us // 1000, self.payloads(len(names))
        dues = [now_ms + random.randint(-200, 4_000) for _ in payloads]
        self.mesh.history.requests.ask(topic, payloads, names, now_ms)
        timeout_us = random.choice([_CALL_US, _CALL_US, 300_000])
        self.producer.schedule(
            topic, payloads, dues, timeout_us, more={"once": names},
            unique=[repeating.key_of(once) for once in names] if both else None,
            on_duplicate=random.choice(DUPLICATES) if both else None,
        )  # fmt: skip

    def _look_by_key(self, random: Random) -> None:
        """Ask what a key names, and cancel or move it."""
        topic = self.topic(random)
        due_ms = self.mesh.world.wall_us // 1000 + random.randint(0, 2_000)
        dues = random.choice([None, [due_ms]])
        alter = partial(self._alter_if_free, topic, dues)
        look(self.producer.client, self.mesh.history, topic, random.choice(KEYS), alter)

    def _alter_if_free(self, topic: str, dues: list[int] | None, key: MessageKey) -> None:
        message = self.mesh.history.messages[key]
        if self.alive and not message.finished and not message.unsure:
            self.producer.alter(topic, [key], dues)

    def _schedule_long(self, random: Random) -> None:
        self.schedule_long(random, 0)

    def _schedule_impatiently(self, random: Random) -> None:
        """With so little time that the outcome often stays unknown."""
        payloads = self.payloads(random.randint(1, 5))
        now_ms = self.mesh.world.wall_us // 1000
        dues = [now_ms + random.randint(-200, 2_000) for _ in payloads]
        self.schedule(self.topic(random), payloads, dues, timeout_us=random.randint(500, 1_000_000))

    def _schedule_steadily(self, random: Random) -> None:
        """Small requests, a few milliseconds apart, for a second or two."""
        at_us = 0
        for _ in range(random.randint(20, 100)):
            at_us += random.randint(1_000, 30_000)
            self.mesh.world.after(at_us, lambda: self.burst(random, 1, -200, 1_500))

    def _time_outs(self, random: Random) -> None:
        """Many messages far ahead, moved on a few times and cancelled: each time a place in the due queue."""
        rows = random.randint(60, 400)
        now_ms = self.mesh.world.wall_us // 1000
        payloads = self.payloads(rows)
        mine = frozenset(payloads)
        self.schedule(TOPIC, payloads, [now_ms + random.randint(600_000, 86_400_000) for _ in payloads])
        rounds = random.randint(1, 5)

        def go_on(left: int) -> None:
            messages = self.mesh.history.messages
            chosen = [key for key in self._alterable(touched=False) if messages[key].payload in mine]
            far_ms = self.mesh.world.wall_us // 1000 + 600_000
            self._change(chosen, [far_ms + random.randint(0, 9_000) for _ in chosen] if left else None)
            if left:
                self.mesh.world.after(random.randint(200_000, 1_000_000), lambda: go_on(left - 1))

        self.mesh.world.after(random.randint(200_000, 1_000_000), lambda: go_on(rounds))

    def _backlog(self, random: Random) -> None:
        """Many messages that are due together, or nearly so, and soon after them a few urgent ones."""
        topic = random.choice(sorted(self.ranked))
        since_ms = self.mesh.world.wall_us // 1000 + random.choice([-50, 0, 400])
        spread_ms = random.choice([0, 0, 400])
        for _ in range(random.randint(1, 4)):
            names = self.payloads(random.randint(10, 70))
            payloads = [name + bytes(random.choice([0, 0, 300, 900])) for name in names]
            self.schedule(topic, payloads, [since_ms + random.randint(0, spread_ms) for _ in names])

        def urgent() -> None:
            if self.alive:
                payloads = self.payloads(random.randint(1, 3))
                dues = [self.mesh.world.wall_us // 1000 + random.randint(-50, 300) for _ in payloads]
                self.producer.schedule(
                    topic, payloads, dues, ranks=[random.choice([0, 0, 1])] * len(payloads)
                )

        for _ in range(random.randint(1, 4)):
            self.mesh.world.after(random.randint(1_000, 1_500_000), urgent)

    def _alter(self, random: Random) -> None:
        """Move or cancel some messages, untouched ones or not; of a priority topic many get other ranks instead."""
        chosen = self._alterable(touched=random.random() < 0.3)
        chosen = random.sample(chosen, min(random.choice([1, 3, 20]), len(chosen)))
        if not chosen:
            return
        now_ms = self.mesh.world.wall_us // 1000
        dues = [now_ms + random.randint(-100, 5_000) for _ in chosen] if random.random() < 0.5 else None
        if self.ranked and self._ranks.chance(0.5):
            self._rank(chosen)
        else:
            self._change(chosen, dues)

    def _alterable(self, *, touched: bool) -> list[MessageKey]:
        """Messages of which nobody knows that they are finished, or being changed; touched: delivered ones, too."""
        uids = self.uids
        return [
            key
            for key, message in self.mesh.history.messages.items()
            if not message.finished and not message.unsure and key[0] in uids
            and (touched or not message.deliveries)
        ]  # fmt: skip

    def _due(self, key: MessageKey) -> int:
        message = self.mesh.history.messages[key]
        return [message.due_ms, *message.moves][-1]

    def _think_again(self, payloads: frozenset[bytes]) -> None:
        """Give some of these messages other ranks, no matter what has become of them."""
        messages = self.mesh.history.messages
        found = [key for key in self._alterable(touched=True) if messages[key].payload in payloads]
        if found and self.alive:
            self._rank([found[at] for at in self._ranks.sample(len(found))])

    def _rank(self, keys: list[MessageKey]) -> None:
        for topic, some in self._by_topic(keys).items():
            if topic in self.ranked:
                self.producer.alter(topic, some, None, self._ranks.others(len(some)))

    def _change(self, keys: list[MessageKey], dues: list[int] | None) -> None:
        if not self.alive:
            return
        due_of = dict(zip(keys, dues, strict=True)) if dues is not None else None
        for topic, some in self._by_topic(keys).items():
            self.producer.alter(topic, some, [due_of[key] for key in some] if due_of is not None else None)

    def _by_topic(self, keys: list[MessageKey]) -> dict[str, list[MessageKey]]:
        found: dict[str, list[MessageKey]] = {}
        topic_of = self._topic_of
        for key in keys:
            found.setdefault(topic_of.get(key[0], TOPIC), []).append(key)
        return found
