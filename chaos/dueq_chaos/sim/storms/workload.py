"""The actions of a storm's users: every operation of the SDK, over its real session machine."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Final

from dueq.client.core.ports import effects, events
from dueq.errors import TopicExists
from dueq_chaos.sim.environment.mesh import SimMesh
from dueq_chaos.sim.environment.sdk import ANYTHING, Answer
from dueq_chaos.sim.storms.plan import CARELESS, Options, Step, draw_habits
from dueq_chaos.sim.users import asking, bearing, deeds, hiding, repeating, triggering
from dueq_chaos.sim.users.asking import Asker
from dueq_chaos.sim.users.bearing import Bearers
from dueq_chaos.sim.users.careless import CarelessUsers
from dueq_chaos.sim.users.conditions import Conditions
from dueq_chaos.sim.users.configuring import ConfiguringUser
from dueq_chaos.sim.users.consuming import ConsumingUser
from dueq_chaos.sim.users.habits import Habits
from dueq_chaos.sim.users.jobs import LoadingUser
from dueq_chaos.sim.users.mortals import Mortals
from dueq_chaos.sim.users.producing import ProducingUser
from dueq_chaos.sim.users.pullers import Pullers
from dueq_chaos.sim.users.recurring import RecurringUser
from dueq_chaos.sim.users.surgeons import Surgeons
from dueq_chaos.sim.users.traffic import TOPIC, Traffic, topic_name
from dueq_chaos.sim.users.triggering import Triggering

_MORE_CONSUMER = (64, 5_000)
"""Credit and lease (ms) of the consumers of all topics but the first."""
_CALL_US = 20_000_000
_HASTY: Final = 0.5
"""How often somebody schedules into a topic that is just being created."""
_ANOTHER_FROM: Final = 92_000_000
"""From this seed on a topic that was created is created once more by others, which changes nothing."""
_HASTY_LOOKS: Final = 40
_HASTY_GAP_US: Final = 2_000
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
        producer = ProducingUser(mesh.sdk("producer"), mesh.history)
        self._producing = producer.client
        self.admin = mesh.sdk("admin")
        self.admin.asks_nonsense = ANYTHING
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
        self._kind_of = {
            topic_name(number): shape.kind for number, shape in enumerate(options.topology.topics)
        }
        self.traffic = Traffic(mesh, producer, self._kind_of)
        for index, name in enumerate(self.traffic.topics[1:], len(self.consumers)):
            self.consumers.append(self._consumer_of(name, index))
        for client in mesh.sdks.values():
            client.wire = options.wire
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
            **self.traffic.kinds,
            "reopen consumer": self._reopen,
            "change habits": self._change_habits,
            "crash client": self._crash_client,
            "create topic": self._create_topic,
            "delete topic": self._delete_topic,
            "load job": lambda random: self._loading().load(random),
            hiding.HIDE: self._hide,
            "pause topic": lambda random: self._pause(random, self._configurer().pause),
            "pause for a while": lambda random: self._pause(random, self._configurer().pause_for_a_while),
            "change settings": lambda random: self._configurer().change(self.traffic.topic(random), random),
            "add partitions": lambda random: self._configurer().grow(self.traffic.topic(random), random),
            "limit rate": lambda random: self._configurer().limit(self.traffic.topic(random), random),
            "purge": lambda random: self._configurer().purge(self.traffic.topic(random), random),
            triggering.TRIGGER: lambda random: self._operator().do(self.traffic.topic(random), random),
            asking.ASK: self._ask,
            bearing.DIE: lambda random: self._bear(bearing.DIE, random),
            bearing.RETURN: lambda random: self._bear(bearing.RETURN, random),
            "recur": self._recur,
        }

    def _consumer_of(self, topic: str, index: int) -> ConsumingUser:
        """Somebody for one of the other topics; all its partitions are consumed well."""
        credit, lease_ms = _MORE_CONSUMER
        user = ConsumingUser(
            self.mesh.sdk(f"consumer-{index + 1}"), self.mesh.history, topic,
            credit=credit, lease_ms=lease_ms, seed=self.mesh.world.seed * 31 + index,
        )  # fmt: skip
        user.weather, user.calm_from = self.mesh.weather, self.mesh.calm_from
        return user

    def do(self, step: Step) -> None:
        """Do one thing; nothing, if the process that would is dead."""
        if step.kind in CARELESS:
            self.done[step.kind] = self.done.get(step.kind, 0) + 1
            self._careless_users().do(step.kind, Random(step.seed))
            return
        if step.kind in deeds.KINDS:
            self.done[step.kind] = self.done.get(step.kind, 0) + 1
            self._users_of(step.kind).do(
                step.kind, self.traffic.topic(Random(step.seed)), Random(step.seed + 1)
            )
            return
        if step.kind in _PRODUCING and not self.traffic.alive:
            return
        self.done[step.kind] = self.done.get(step.kind, 0) + 1
        self._kinds[step.kind](Random(step.seed))

    def _users_of(self, kind: str) -> Mortals | Surgeons | Conditions | Pullers:
        """Those who do such things; they begin when they are asked first."""
        of = next(name for name, kinds in deeds.DEEDS.items() if kind in kinds)
        found = self._doers.get(of)
        if found is None:
            wire, mesh = self._producing.wire, self.mesh
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
        if self.traffic.alive:
            self.traffic.schedule(topic, payloads, dues, more=more)

    def _careless_users(self) -> CarelessUsers:
        if self._careless is None:
            self._careless = CarelessUsers(
                self.mesh,
                TOPIC,
                self.traffic.uids,
                self.consumers,
                self._producing.wire,
                self.traffic.ranks_of(TOPIC),
            )
        return self._careless

    def _configurer(self) -> ConfiguringUser:
        if self._configuring is None:
            self._configuring = ConfiguringUser(self.mesh, self._producing.wire)
        return self._configuring

    def _operator(self) -> Triggering:
        if self._triggering is None:
            self._triggering = Triggering(self.mesh, self._producing.wire, self.traffic.schedule)
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
            self.mesh.world.after(after_us, lambda: self.traffic.burst(random, 1, 50, 800))
        self.mesh.world.after(
            random.randint(50_000, 600_000), lambda: pause(self.traffic.topic(random), random)
        )

    def calm(self) -> None:
        """From now on all consumers work well; none consumes the topics that come and go."""
        self.traffic.sharing.calm()
        topics = self.mesh.coordinator.topics
        consumed = {part.uid for user in self.consumers for part in topics[user.topic].partitions}
        extra = {key[0] for key in self.mesh.history.messages} - consumed
        self.mesh.history.waive(sorted(extra), "nobody consumes its topic")
        for user in self.consumers:
            user.habits = Habits()
            if user.client.core is None:
                user.client.start()
            if not user.open:
                user.begin()
        if not self.traffic.alive:
            self._producing.start()
        if self._configuring is not None:
            self._configuring.calm()
        for doer in self._doers.values():
            doer.calm()

    # -------------------------------------------------------------- other users

    def _bear(self, kind: str, random: Random) -> None:
        """Let bearers of keys die, or come back."""
        if self._bearers is None:
            mortals = self._users_of("redrive")
            assert isinstance(mortals, Mortals)
            self._bearers = Bearers(self.mesh, self.traffic.producer, mortals)
        self._bearers.do(kind, self.traffic.topic(random), random)

    def _ask(self, random: Random) -> None:
        """Ask for messages that have ended."""
        if self._asker is None:
            self._asker = Asker(self.mesh, self._producing.wire)
        self._asker.do(self.traffic.topic(random), random)

    def _loading(self) -> LoadingUser:
        if self._loader is None:
            self._loader = LoadingUser(self.mesh, TOPIC, self._producing.wire, self.traffic.ranks_of(TOPIC))
        return self._loader

    def _hide(self, random: Random) -> None:
        """Load a hidden job, among many messages for all instants until its end."""
        now_ms = self.mesh.world.wall_us // 1000
        for _ in range(2 * len(self.mesh.coordinator.topics[TOPIC].partitions)):
            payloads = self.traffic.payloads(random.randint(*hiding.ROWS))
            self.traffic.send(TOPIC, payloads, [now_ms + random.randint(1_000, 10_000) for _ in payloads])
        self._loading().hide(random)

    def _recur(self, random: Random) -> None:
        if self._recurring is None:
            self._recurring = RecurringUser(self.mesh, TOPIC, self._producing.wire)
        self._recurring.recur(random)

    def end_recurrences(self) -> None:
        """Have nothing made any more."""
        if self._recurring is not None:
            self._recurring.end()

    # -------------------------------------------------------------- consuming

    def _reopen(self, random: Random) -> None:
        random.choice(self.consumers).close(random.randint(1_000, 3_000_000))

    def _change_habits(self, random: Random) -> None:
        random.choice(self.consumers).habits = draw_habits(random)

    def _crash_client(self, random: Random) -> None:
        after_us = random.randint(10_000, 5_000_000)
        if random.random() < 0.3:
            client = self._producing
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

        def created(value: object, failed: effects.Failed | None) -> None:
            self._may_exist(name, value, failed)
            if failed is None and self.traffic.alive:
                self._extra_topics.append(name)
                self._schedule_soon(name, 3)
                if self.mesh.world.seed >= _ANOTHER_FROM:  # somebody else wants it, too
                    another = self.admin.draw_id()
                    self._order_topic(name, another, partitions, document, partial(self._may_exist, name))

        self._order_topic(name, creation_id, partitions, document, created)
        if hasty:
            self._hasten(name, _HASTY_LOOKS)

    def _order_topic(
        self, name: str, creation_id: bytes, partitions: int, document: str, answer: Answer
    ) -> None:
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

        self.admin.call(build, _CALL_US, answer)

    def _may_exist(self, name: str, value: object, failed: effects.Failed | None) -> None:
        if failed is not None and isinstance(failed.error, TopicExists):
            self.mesh.history.wrong.append(f"topic {name} may exist already, and is refused: {failed.error}")

    def _schedule_soon(self, topic: str, rows: int) -> None:
        now_ms = self.mesh.world.wall_us // 1000
        self.traffic.producer.schedule(topic, self.traffic.payloads(rows), [now_ms + 1_000] * rows)

    def _hasten(self, topic: str, looks: int) -> None:
        """Schedule from the moment on when the topic can be known: somebody comes before all is in order there."""
        known = topic in self.mesh.coordinator.topics
        if known and self.traffic.alive:
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
