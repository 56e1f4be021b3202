"""The actions of a storm's users: every operation of the SDK, over its real session machine."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Final

from dueq import limits
from dueq.client.core.ports import events
from dueq_chaos.sim.environment.mesh import SimMesh
from dueq_chaos.sim.judging.claimed import Asked
from dueq_chaos.sim.judging.history import MessageKey
from dueq_chaos.sim.reference.bodies import body_of
from dueq_chaos.sim.storms.plan import CARELESS, Options, Step, draw_habits
from dueq_chaos.sim.users import asking, bearing, deeds, repeating, triggering
from dueq_chaos.sim.users.asking import Asker
from dueq_chaos.sim.users.bearing import Bearers
from dueq_chaos.sim.users.careless import CarelessUsers
from dueq_chaos.sim.users.conditions import Conditions
from dueq_chaos.sim.users.configuring import ConfiguringUser
from dueq_chaos.sim.users.consuming import ConsumingUser
from dueq_chaos.sim.users.habits import Habits
from dueq_chaos.sim.users.jobs import LoadingUser
from dueq_chaos.sim.users.keyed import DUPLICATES, KEYS, draw_keys, look
from dueq_chaos.sim.users.mortals import Mortals
from dueq_chaos.sim.users.producing import ProducingUser
from dueq_chaos.sim.users.pullers import Pullers
from dueq_chaos.sim.users.ranks import Ranks
from dueq_chaos.sim.users.recurring import RecurringUser
from dueq_chaos.sim.users.sharing import Sharing
from dueq_chaos.sim.users.surgeons import Surgeons
from dueq_chaos.sim.users.triggering import Triggering

TOPIC = "storm"
_MORE_CONSUMER = (64, 5_000)
"""Credit and lease (ms) of the consumers of all topics but the first."""
_CALL_US = 20_000_000
_HASTY: Final = 0.5
"""How often somebody schedules into a topic that is just being created."""
_HASTY_LOOKS: Final = 40
_HASTY_GAP_US: Final = 2_000
_YEAR_AFTER_NEXT_MS = 401 * 86_400_000
_PRODUCING = (
    "schedule", "schedule far", "schedule long", "schedule headed", "schedule shared", "close body", "schedule keyed",
    "look by key", *repeating.KINDS,
    "impatient schedule", "alter", "time-outs", "backlog",
)  # fmt: skip


_NAMED_FROM: Final = 10_000
"""Storms of smaller seeds are as they were before there were names."""
_NAMED: Final = 0.5
"""Share of the storms whose consumers have names."""
_DETACHED: Final = 0.5
"""Share of the other storms, from that seed on, whose consumers have detached leases."""


def topic_name(number: int) -> str:
    """The name of a storm's topic, counted from 0."""
    return f"{TOPIC}-{number + 1}" if number else TOPIC


def name_of(seed: int, index: int) -> bytes:
    """Return the id of a consumer with a name, in some storms; from a stream of its own. Empty: it has none."""
    names = Random(seed * 0x9E3779B1 + 71)
    if seed < _NAMED_FROM or names.random() >= _NAMED:
        return b""
    return names.randbytes(15) + bytes((index,))


def is_detached(seed: int) -> bool:
    """Return whether leases of a storm's consumers are detached; from a stream of its own."""
    drawn = Random(seed * 0x9E3779B1 + 97).random()
    return seed >= _NAMED_FROM and not name_of(seed, 0) and drawn < _DETACHED


class Workload:
    """One producing process, some consuming ones, and one that makes and deletes topics.

    Attributes:
        done: how many steps, by kind.
    """

    def __init__(self, mesh: SimMesh, options: Options) -> None:
        self.mesh = mesh
        self.done: dict[str, int] = {}
        self.producer = ProducingUser(mesh.sdk("producer"), mesh.history)
        self.admin = mesh.sdk("admin")
        self.consumers: list[ConsumingUser] = []
        for index, (credit, lease_ms) in enumerate(options.consumers):
            last = index == len(options.consumers) - 1
            reach = mesh.names[:1] if options.relayed and last else None
            user = ConsumingUser(
                mesh.sdk(f"consumer-{index + 1}", reach), mesh.history, TOPIC,
                credit=credit, lease_ms=lease_ms, seed=mesh.world.seed * 31 + index,
                name=name_of(mesh.world.seed, index), detached=is_detached(mesh.world.seed),
            )  # fmt: skip
            if reach is None:
                user.weather, user.calm_from = mesh.weather, mesh.calm_from
            user.habits = options.habits[index] if index < len(options.habits) else Habits()
            self.consumers.append(user)
        self.topics = [topic_name(number) for number in range(len(options.topology.topics))]
        shapes = zip(self.topics, options.topology.topics, strict=True)
        self.ranked = {name for name, shape in shapes if shape.kind == "priority"}
        self.ranks = Ranks(mesh.world.seed)
        self._kind_of = {
            name: shape.kind for name, shape in zip(self.topics, options.topology.topics, strict=True)
        }
        self._sharing = Sharing(mesh, [name for name, kind in self._kind_of.items() if kind == "fair"])
        for index, name in enumerate(self.topics[1:], len(self.consumers)):
            self.consumers.append(self._consumer_of(name, index))
        for client in mesh.sdks.values():
            client.wire = options.wire
        self._batches = 0
        self._extra_topics: list[str] = []
        self._loader: LoadingUser | None = None
        self._recurring: RecurringUser | None = None
        self._careless: CarelessUsers | None = None
        self._configuring: ConfiguringUser | None = None
        self._triggering: Triggering | None = None
        self._asker: Asker | None = None
        self._bearers: Bearers | None = None
        self._doers: dict[str, Mortals | Surgeons | Conditions | Pullers] = {}
        self._kinds: dict[str, Callable[[Random], None]] = {
            "schedule": lambda random: self._schedule(random, -200, 4_000),
            "schedule far": lambda random: self._schedule(random, 3_600_000, 90_000_000),
            "schedule long": self._schedule_long,
            "schedule headed": self._schedule_headed,
            "schedule shared": self._schedule_shared,
            "schedule keyed": self._schedule_keyed,
            "look by key": self._look_by_key,
            "schedule once": self._schedule_once,
            "claim and schedule": self._claim_and_schedule,
            "close body": lambda random: self.producer.close_body(self._topic(random), body_of(random)),
            "impatient schedule": self._schedule_impatiently,
            "alter": self._alter,
            "reopen consumer": self._reopen,
            "change habits": self._change_habits,
            "crash client": self._crash_client,
            "create topic": self._create_topic,
            "delete topic": self._delete_topic,
            "load job": self._load_job,
            "pause topic": lambda random: self._pause(random, self._configurer().pause),
            "pause for a while": lambda random: self._pause(random, self._configurer().pause_for_a_while),
            "change settings": lambda random: self._configurer().change(self._topic(random), random),
            "add partitions": lambda random: self._configurer().grow(self._topic(random), random),
            "limit rate": lambda random: self._configurer().limit(self._topic(random), random),
            "purge": lambda random: self._configurer().purge(self._topic(random), random),
            triggering.TRIGGER: lambda random: self._operator().do(self._topic(random), random),
            asking.ASK: self._ask,
            bearing.DIE: lambda random: self._bear(bearing.DIE, random),
            bearing.RETURN: lambda random: self._bear(bearing.RETURN, random),
            "recur": self._recur,
            "time-outs": self._time_outs,
            "schedule steadily": self._schedule_steadily,
            "backlog": self._backlog,
            "schedule very far": lambda random: self._schedule(
                random, _YEAR_AFTER_NEXT_MS, 2 * _YEAR_AFTER_NEXT_MS
            ),
        }

    @property
    def _topic_of(self) -> dict[int, str]:
        """The topic of each partition that is consumed; there may be more by and by."""
        topics = self.mesh.coordinator.topics
        return {part.uid: name for name in self.topics for part in topics[name].partitions}

    @property
    def uids(self) -> list[int]:
        """Those partitions."""
        return list(self._topic_of)

    def _consumer_of(self, topic: str, index: int) -> ConsumingUser:
        """Somebody for one of the other topics; all its partitions are consumed well."""
        credit, lease_ms = _MORE_CONSUMER
        user = ConsumingUser(
            self.mesh.sdk(f"consumer-{index + 1}"), self.mesh.history, topic,
            credit=credit, lease_ms=lease_ms, seed=self.mesh.world.seed * 31 + index,
        )  # fmt: skip
        user.weather, user.calm_from = self.mesh.weather, self.mesh.calm_from
        return user

    def _topic(self, random: Random) -> str:
        """One of the topics; where there is one only, nothing is left to chance."""
        return random.choice(self.topics) if len(self.topics) > 1 else TOPIC

    def do(self, step: Step) -> None:
        """Do one thing; nothing, if the process that would is dead."""
        if step.kind in CARELESS:
            self.done[step.kind] = self.done.get(step.kind, 0) + 1
            self._careless_users().do(step.kind, Random(step.seed))
            return
        if step.kind in deeds.KINDS:
            self.done[step.kind] = self.done.get(step.kind, 0) + 1
            self._users_of(step.kind).do(step.kind, self._topic(Random(step.seed)), Random(step.seed + 1))
            return
        if step.kind in _PRODUCING and self.producer.client.core is None:
            return
        self.done[step.kind] = self.done.get(step.kind, 0) + 1
        self._kinds[step.kind](Random(step.seed))

    def _users_of(self, kind: str) -> Mortals | Surgeons | Conditions | Pullers:
        """Those who do such things; they begin when they are asked first."""
        of = next(name for name, kinds in deeds.DEEDS.items() if kind in kinds)
        found = self._doers.get(of)
        if found is None:
            wire, mesh = self.producer.client.wire, self.mesh
            if of == "death":
                found = Mortals(mesh, wire, self._schedule_more, self.consumers)
            elif of == "surgery":
                found = Surgeons(mesh, wire, self._kind_of)
            elif of == "conditions":
                found = Conditions(mesh, wire, self._schedule_more)
            else:
                found = Pullers(mesh, wire)
            self._doers[of] = found
        return found

    def _schedule_more(
        self, topic: str, payloads: list[bytes], dues: list[int], more: dict[str, Any]
    ) -> None:
        if self.producer.client.core is not None:
            self.schedule(topic, payloads, dues, more=more)

    def _careless_users(self) -> CarelessUsers:
        if self._careless is None:
            self._careless = CarelessUsers(
                self.mesh, TOPIC, self.uids, self.consumers, self.producer.client.wire, self._ranks_of(TOPIC)
            )
        return self._careless

    def _configurer(self) -> ConfiguringUser:
        if self._configuring is None:
            self._configuring = ConfiguringUser(self.mesh, self.producer.client.wire)
        return self._configuring

    def _operator(self) -> Triggering:
        if self._triggering is None:
            self._triggering = Triggering(self.mesh, self.producer.client.wire, self.schedule)
        return self._triggering

    @property
    def triggers(self) -> bool:
        """Whether messages are triggered in this storm."""
        return self._triggering is not None

    def held_back(self) -> list[str]:
        """Trigger messages of a paused topic; return which do not come."""
        return self._operator().held_back(TOPIC, self._configurer().hold, self._configurer().calm)

    def _pause(self, random: Random, pause: Callable[[str, Random], None]) -> None:
        """While messages fall due all the time."""
        for after_us in range(0, 1_200_000, 60_000):
            self.mesh.world.after(after_us, lambda: self.burst(random, 1, 50, 800))
        self.mesh.world.after(random.randint(50_000, 600_000), lambda: pause(self._topic(random), random))

    def calm(self) -> None:
        """From now on all consumers work well; none consumes the topics that come and go."""
        self._sharing.calm()
        extra = {key[0] for key in self.mesh.history.messages} - set(self.uids)
        self.mesh.history.waive(sorted(extra), "nobody consumes its topic")
        for user in self.consumers:
            user.habits = Habits()
            if user.client.core is None:
                user.client.start()
            if not user.open:
                user.begin()
        if self.producer.client.core is None:
            self.producer.client.start()
        if self._configuring is not None:
            self._configuring.calm()
        for doer in self._doers.values():
            doer.calm()

    def bring_near(self) -> None:
        """Move what would be due long after the end to now."""
        if self.producer.client.core is None:
            self.producer.client.start()
        now_ms = self.mesh.world.wall_us // 1000
        far: list[MessageKey] = []
        for key, message in self.mesh.history.messages.items():
            dues = [message.due_ms, *message.moves[-1:], *message.maybe_dues, *message.fate.dues[-1:]]
            if not message.finished and not message.changing and max(dues) > now_ms + 30_000:
                far.append(key)
        for topic, keys in self._by_topic(far).items():
            self.producer.alter(topic, keys, [now_ms + 500] * len(keys))

    # -------------------------------------------------------------- producing

    def _payloads(self, rows: int) -> list[bytes]:
        self._batches += 1
        return [b"%d-%d" % (self._batches, row) for row in range(rows)]

    def schedule(
        self, topic: str, payloads: list[bytes], dues: list[int], timeout_us: int = _CALL_US,
        more: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        """Schedule rows; in a priority topic with ranks, some of which are changed again soon."""
        ranks = self.ranks.draw(len(payloads)) if topic in self.ranked else None
        self.producer.schedule(
            topic,
            payloads,
            dues,
            timeout_us,
            ranks,
            groups=self._sharing.groups_of(topic, len(payloads)),
            more=more,
        )
        if topic in self.ranked and self.ranks.chance(0.3):
            mine = frozenset(payloads)
            self.mesh.world.after(self.ranks.soon_us(), lambda: self._think_again(mine))

    def send(self, topic: str, payloads: list[bytes], dues: list[int]) -> None:
        """Schedule rows, if there is somebody to do it."""
        if self.producer.client.core is not None:
            self.schedule(topic, payloads, dues)

    def _think_again(self, payloads: frozenset[bytes]) -> None:
        """Give some of these messages other ranks, no matter what has become of them."""
        messages = self.mesh.history.messages
        found = [key for key in self._alterable(touched=True) if messages[key].payload in payloads]
        if found and self.producer.client.core is not None:
            self._rank([found[at] for at in self.ranks.sample(len(found))])

    def _rank(self, keys: list[MessageKey]) -> None:
        for topic, some in self._by_topic(keys).items():
            if topic in self.ranked:
                self.producer.alter(topic, some, None, self.ranks.others(len(some)))

    def _ranks_of(self, topic: str) -> Ranks | None:
        return self.ranks if topic in self.ranked else None

    def _schedule(self, random: Random, soon_ms: int, late_ms: int) -> None:
        now_ms = self.mesh.world.wall_us // 1000
        payloads = self._payloads(random.choice([1, 1, random.randint(1, 12), random.randint(10, 80)]))
        if random.random() < 0.2:
            dues = [now_ms + random.randint(soon_ms, late_ms)] * len(payloads)
        else:
            dues = [now_ms + random.randint(soon_ms, late_ms) for _ in payloads]
        self.schedule(self._topic(random), payloads, dues)

    def _schedule_headed(self, random: Random) -> None:
        """Schedule messages whose headers follow from their payloads."""
        now_ms = self.mesh.world.wall_us // 1000
        payloads = self._payloads(random.choice([1, random.randint(1, 12), random.randint(10, 80)]))
        dues = [now_ms + random.randint(-200, 4_000) for _ in payloads]
        self.producer.schedule(self._topic(random), payloads, dues, _CALL_US, headed=True)

    def _schedule_shared(self, random: Random) -> None:
        """Schedule messages that have one body."""
        now_ms = self.mesh.world.wall_us // 1000
        topic, body = self._topic(random), body_of(random)
        payloads = self._payloads(random.choice([1, random.randint(1, 12), random.randint(10, 80)]))
        dues = [now_ms + random.randint(-200, 4_000) for _ in payloads]
        headed = random.random() < 0.3
        self.producer.schedule(topic, payloads, dues, _CALL_US, headed=headed, shared=body)

    def _schedule_keyed(self, random: Random) -> None:
        """Schedule messages that want unique keys, of which there are few."""
        now_ms = self.mesh.world.wall_us // 1000
        payloads = self._payloads(random.choice([1, 1, 2, random.randint(1, 9)]))
        late_ms = random.choice([1_500, 4_000, 20_000])
        dues = [now_ms + random.randint(-200, late_ms) for _ in payloads]
        self.producer.schedule(
            self._topic(random), payloads, dues, random.choice([_CALL_US, _CALL_US, 300_000]),
            unique=draw_keys(random, len(payloads)), on_duplicate=random.choice(DUPLICATES),
        )  # fmt: skip

    def _schedule_once(self, random: Random) -> None:
        """Schedule messages with idempotency keys, of which there are few."""
        names = repeating.draw_names(random, random.choice([1, 1, 2, random.randint(1, 9)]))
        self._schedule_named(random, self._topic(random), names)

    def _claim_and_schedule(self, random: Random) -> None:
        """The same with one key for all."""
        topic, then = self._topic(random), Random(random.getrandbits(32))
        repeating.claim(
            self.producer.client,
            random,
            topic,
            random.randint(1, 9),
            partial(self._schedule_named, then, topic),
        )

    def _schedule_named(self, random: Random, topic: str, names: Asked) -> None:
        if self.producer.client.core is None:
            return
        now_ms, payloads = self.mesh.world.wall_us // 1000, self._payloads(len(names))
        dues = [now_ms + random.randint(-200, 4_000) for _ in payloads]
        self.mesh.history.requests.ask(topic, payloads, names, now_ms)
        timeout_us = random.choice([_CALL_US, _CALL_US, 300_000])
        self.producer.schedule(topic, payloads, dues, timeout_us, more={"once": names})

    def _look_by_key(self, random: Random) -> None:
        """Ask what a key names, and cancel or move it."""
        topic = self._topic(random)
        due_ms = self.mesh.world.wall_us // 1000 + random.randint(0, 2_000)
        dues = random.choice([None, [due_ms]])
        alter = partial(self._alter_if_free, topic, dues)
        look(self.producer.client, self.mesh.history, topic, random.choice(KEYS), alter)

    def _alter_if_free(self, topic: str, dues: list[int] | None, key: MessageKey) -> None:
        message = self.mesh.history.messages[key]
        if self.producer.client.core is not None and not message.finished and not message.unsure:
            self.producer.alter(topic, [key], dues)

    def _bear(self, kind: str, random: Random) -> None:
        """Let bearers of keys die, or come back."""
        if self._bearers is None:
            mortals = self._users_of("redrive")
            assert isinstance(mortals, Mortals)
            self._bearers = Bearers(self.mesh, self.producer, mortals)
        self._bearers.do(kind, self._topic(random), random)

    def _ask(self, random: Random) -> None:
        """Ask for messages that have ended."""
        if self._asker is None:
            self._asker = Asker(self.mesh, self.producer.client.wire)
        self._asker.do(self._topic(random), random)

    def burst(self, random: Random, requests: int, soon_ms: int, late_ms: int) -> None:
        """Schedule a message or two, several times over."""
        for _ in range(requests):
            if self.producer.client.core is not None:
                now_ms = self.mesh.world.wall_us // 1000
                payloads = self._payloads(random.randint(1, 3))
                dues = [now_ms + random.randint(soon_ms, late_ms) for _ in payloads]
                self.schedule(self._topic(random), payloads, dues)

    def schedule_at(self, due_ms: int, rows: int) -> None:
        """Schedule some messages for one instant."""
        if self.producer.client.core is not None:
            self.schedule(TOPIC, self._payloads(rows), [due_ms] * rows)

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

    def _schedule_long(self, random: Random) -> None:
        self.schedule_long(random, 0)

    def schedule_long(self, random: Random, soon_ms: int) -> None:
        """Payloads that travel in chunks ahead of their record, among short ones."""
        if self.producer.client.core is None:
            return
        payloads = self._payloads(random.randint(1, 3))
        payloads[0] += bytes(limits.CHUNK_BYTES + random.randint(1, limits.CHUNK_BYTES))
        now_ms = self.mesh.world.wall_us // 1000
        self.schedule(
            self._topic(random),
            payloads,
            [now_ms + random.randint(soon_ms, soon_ms + 2_000) for _ in payloads],
        )

    def _schedule_impatiently(self, random: Random) -> None:
        """With so little time that the outcome often stays unknown."""
        payloads = self._payloads(random.randint(1, 5))
        now_ms = self.mesh.world.wall_us // 1000
        dues = [now_ms + random.randint(-200, 2_000) for _ in payloads]
        self.schedule(self._topic(random), payloads, dues, timeout_us=random.randint(500, 1_000_000))

    def _time_outs(self, random: Random) -> None:
        """Many messages far ahead, moved on a few times and cancelled: each time a place in the due queue."""
        rows = random.randint(60, 400)
        now_ms = self.mesh.world.wall_us // 1000
        payloads = self._payloads(rows)
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

    def _schedule_steadily(self, random: Random) -> None:
        """Small requests, a few milliseconds apart, for a second or two."""
        at_us = 0
        for _ in range(random.randint(20, 100)):
            at_us += random.randint(1_000, 30_000)
            self.mesh.world.after(at_us, lambda: self.burst(random, 1, -200, 1_500))

    def _backlog(self, random: Random) -> None:
        """Many messages that are due together, or nearly so, and soon after them a few urgent ones."""
        topic = random.choice(sorted(self.ranked))
        since_ms = self.mesh.world.wall_us // 1000 + random.choice([-50, 0, 400])
        spread_ms = random.choice([0, 0, 400])
        for _ in range(random.randint(1, 4)):
            names = self._payloads(random.randint(10, 70))
            payloads = [name + bytes(random.choice([0, 0, 300, 900])) for name in names]
            self.schedule(topic, payloads, [since_ms + random.randint(0, spread_ms) for _ in names])

        def urgent() -> None:
            if self.producer.client.core is not None:
                payloads = self._payloads(random.randint(1, 3))
                dues = [self.mesh.world.wall_us // 1000 + random.randint(-50, 300) for _ in payloads]
                self.producer.schedule(
                    topic, payloads, dues, ranks=[random.choice([0, 0, 1])] * len(payloads)
                )

        for _ in range(random.randint(1, 4)):
            self.mesh.world.after(random.randint(1_000, 1_500_000), urgent)

    def _load_job(self, random: Random) -> None:
        if self._loader is None:
            self._loader = LoadingUser(self.mesh, TOPIC, self.producer.client.wire, self._ranks_of(TOPIC))
        self._loader.load(random)

    def _recur(self, random: Random) -> None:
        if self._recurring is None:
            self._recurring = RecurringUser(self.mesh, TOPIC, self.producer.client.wire)
        self._recurring.recur(random)

    def end_recurrences(self) -> None:
        """Have nothing made any more."""
        if self._recurring is not None:
            self._recurring.end()

    def _alter(self, random: Random) -> None:
        """Move or cancel some messages, untouched ones or not; of a priority topic many get other ranks instead."""
        chosen = self._alterable(touched=random.random() < 0.3)
        chosen = random.sample(chosen, min(random.choice([1, 3, 20]), len(chosen)))
        if not chosen:
            return
        now_ms = self.mesh.world.wall_us // 1000
        dues = [now_ms + random.randint(-100, 5_000) for _ in chosen] if random.random() < 0.5 else None
        if self.ranked and self.ranks.chance(0.5):
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

    def _change(self, keys: list[MessageKey], dues: list[int] | None) -> None:
        if self.producer.client.core is None:
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

    # -------------------------------------------------------------- consuming

    def _reopen(self, random: Random) -> None:
        random.choice(self.consumers).close(random.randint(1_000, 3_000_000))

    def _change_habits(self, random: Random) -> None:
        random.choice(self.consumers).habits = draw_habits(random)

    def _crash_client(self, random: Random) -> None:
        after_us = random.randint(10_000, 5_000_000)
        if random.random() < 0.3:
            client = self.producer.client
            client.crash()
            for message in self.mesh.history.messages.values():
                message.changing = False
            self.mesh.world.after(after_us, lambda: client.start() if client.core is None else None)
            return
        user = random.choice(self.consumers)
        if user.client.core is not None:
            user.client.crash()
            user.crashed(after_us)

    # -------------------------------------------------------------- topics

    def _create_topic(self, random: Random) -> None:
        name = f"extra-{random.randint(1, 3)}"
        creation_id = random.getrandbits(128).to_bytes(16, "big")
        partitions = random.randint(1, 2)
        hasty = random.random() < _HASTY
        document = json.dumps({"max_attempts": random.randint(1, 5)}) if hasty else ""

        def build(call: int, deadline_us: int) -> events.Event:
            return events.CreateTopic(
                call,
                deadline_us,
                creation_id,
                name,
                partitions=partitions,
                replicas=min(3, len(self.mesh.names)),
                exist_ok=True,
                document=document,
            )

        def created(value: object, failed: object) -> None:
            if failed is None and self.producer.client.core is not None:
                self._extra_topics.append(name)
                self._schedule_soon(name, 3)

        self.admin.call(build, _CALL_US, created)
        if hasty:
            self._hasten(name, _HASTY_LOOKS)

    def _schedule_soon(self, topic: str, rows: int) -> None:
        now_ms = self.mesh.world.wall_us // 1000
        self.producer.schedule(topic, self._payloads(rows), [now_ms + 1_000] * rows)

    def _hasten(self, topic: str, looks: int) -> None:
        """Schedule from the moment on when the topic can be known: somebody comes before all is in order there."""
        known = topic in self.mesh.coordinator.topics
        if known and self.producer.client.core is not None:
            self._schedule_soon(topic, 1)
        if looks:
            gap_us = _HASTY_GAP_US if known else 10 * _HASTY_GAP_US
            self.mesh.world.after(gap_us, lambda: self._hasten(topic, looks - 1))

    def _delete_topic(self, random: Random) -> None:
        if self._extra_topics:
            name = random.choice(self._extra_topics)
            self._extra_topics.remove(name)
            self.admin.call(
                lambda call, at: events.DeleteTopic(call, at, name), _CALL_US, lambda value, failed: None
            )
