"""Giving up the data of an ISR: the one change of a partition's node that a person makes, not a leader.

Only a member of the ISR may lead. So a partition whose ISR has lost all of its disks never has a leader again: any
other replica could lack acknowledged messages. Only a person can know that those disks do not come back, and decide
which replica goes on. The repair itself is one compare-and-set of the node: no leader, the same epoch, and an ISR of
this one replica with its present disk. The rest is an ordinary election. As the ISR has fewer than min_isr members,
the new leader commits nothing before other replicas have caught up.

It is refused wherever it could be a mistake: while a leader lives, while a member of the ISR lives that has not lost
its data, while a living replica does not say what it holds, and for a replica that holds less than another living one.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, KazooException, NoNodeError, WriterNotClosedException
from kazoo.handlers.threading import KazooTimeoutError

from dueq.cluster.coordinator import CoordinatorUnavailable
from dueq.cluster.layout import Layout, split_address
from dueq.cluster.requests import CONNECTION_ERRORS
from dueq.cluster.znodes import decode_node, decode_registration, decode_topic, encode_node
from dueq.core.ports.membership import Member, PartitionNode, Registration, Topic
from dueq.errors import InvalidRequest, OutcomeUnknown, Refused, TopicNotFound, Unavailable

_log = logging.getLogger("dueq.cluster.recovering")
# A person reads one line that says what was wrong, not each of kazoo's attempts.
_log.addHandler(logging.NullHandler())

_SESSION_S: Final = 10.0
_UNREADY: Final = "installing"
"""The role of a replica that is being filled, or whose data was found damaged: its data is not usable."""
_UNPROVEN: Final = "unproven"
"""The role of one that was filled and may lack later commits: a member of this role does not lead."""


class RecoveryRefused(Refused):
    """The partition needs no recovery, or not by this replica; nothing was changed."""


class PartitionChanged(Unavailable):
    """The partition's node has changed since it was looked at; nothing was changed by us: look again."""


class Holding(NamedTuple):
    """A replica's own account of what it holds of the partition.

    Attributes:
        role: "leader", "follower", "installing" or "unproven".
        last_epoch, end: of the last record in its log; logs are compared by them, in this order.
        commit: what it knows to be committed.
    """

    role: str
    last_epoch: int
    end: int
    commit: int


class Fate(Enum):
    """The known facts about the disk that a member of the ISR had when it joined."""

    PRESENT = "present"
    """Its broker is registered with it: nothing is lost."""
    AWAY = "away"
    """Its broker is not registered. Whether the disk is lost, only a person can know."""
    REPLACED = "replaced"
    """Its broker is registered with another disk."""
    UNUSABLE = "unusable"
    """Its broker is registered with it, and says that its data of this partition is incomplete, or may be."""


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """All that ZooKeeper holds of one partition, as read at one time, and what its replicas say.

    Attributes:
        version: of the node, for the compare-and-set.
        registrations: the living brokers, by id.
        held: of the replicas that answered, by broker id.
    """

    topic: Topic
    index: int
    version: int
    node: PartitionNode
    registrations: Mapping[str, Registration]
    held: Mapping[str, Holding]

    @property
    def uid(self) -> int:
        """The partition's uid."""
        return self.topic.partitions[self.index].uid

    @property
    def name(self) -> str:
        """The partition's name for people."""
        return f"{self.topic.name}/{self.index}"

    @property
    def replicas(self) -> tuple[str, ...]:
        """The brokers that the partition was given to."""
        return self.topic.partitions[self.index].replicas

    @property
    def leader_lives(self) -> bool:
        """Whether the life that the node names as leader is registered."""
        seen = self.registrations.get(self.node.leader)
        return seen is not None and seen.incarnation == self.node.incarnation

    def fate(self, member: Member) -> Fate:
        """Return the known facts about a member's disk."""
        seen = self.registrations.get(member.broker_id)
        if seen is None:
            return Fate.AWAY
        if seen.store_id != member.store_id:
            return Fate.REPLACED
        own = self.held.get(member.broker_id)
        return Fate.UNUSABLE if own is not None and own.role in (_UNREADY, _UNPROVEN) else Fate.PRESENT

    def wanted(self, survivor: str) -> PartitionNode:
        """Return the node by which `survivor` alone may lead."""
        own = Member(survivor, self.registrations[survivor].store_id)
        return PartitionNode("", 0, self.node.epoch, (own,))


def reason_against(facts: PartitionFacts, survivor: str | None = None) -> str:
    """Return why the partition may not be recovered.

    Args:
        facts: as read.
        survivor: the replica that is to go on; None while none is chosen.

    Returns:
        A sentence for the person who asked; "" when it may be.
    """
    if survivor is not None and survivor not in facts.replicas:
        return f"{survivor} is not a replica of {facts.name}; its replicas are {', '.join(facts.replicas)}"
    node = facts.node
    if facts.leader_lives:
        return f"{facts.name} has a leader, {node.leader} (epoch {node.epoch}), which lives: nothing is to recover"
    for member in node.isr:
        if facts.fate(member) is Fate.PRESENT:
            return (
                f"{member.broker_id} is up with the disk {member.store_id} that the ISR of {facts.name} names: "
                "nothing is lost, it will lead; wait"
            )
    if survivor is not None and survivor not in facts.registrations:
        return f"{survivor} is not registered in ZooKeeper: start it first"
    for broker_id in facts.replicas:
        # It may hold more than every other one. The log of a replica that has stopped is a person's to weigh.
        if broker_id in facts.registrations and broker_id not in facts.held:
            return f"{broker_id} is up and does not say what it holds of {facts.name}: wait, or stop it"
    return "" if survivor is None else _reason_against_survivor(facts, survivor)


def _reason_against_survivor(facts: PartitionFacts, survivor: str) -> str:
    own = facts.held[survivor]
    if own.role == _UNREADY:
        return f"{survivor} itself has only a part of {facts.name}: its catching up was never finished"
    best = best_survivor(facts)
    most = facts.held[best]
    # A replica that has committed what the new leader lacks could never follow it.
    if (most.last_epoch, most.end) > (own.last_epoch, own.end):
        return (
            f"{best} holds more of {facts.name} (up to record {most.end} of epoch {most.last_epoch}) than {survivor} "
            f"(up to record {own.end} of epoch {own.last_epoch}): recover from {best}"
        )
    return ""


def best_survivor(facts: PartitionFacts) -> str:
    """Return the living replica that holds most; "" when none answers."""
    usable = {
        broker_id: (held.last_epoch, held.end)
        for broker_id, held in facts.held.items()
        if held.role != _UNREADY and broker_id in facts.replicas and broker_id in facts.registrations
    }
    return max(usable, key=lambda broker_id: usable[broker_id], default="")


class Recovering:
    """One partition's node, for a person: to be read, and to be changed once. Belongs to one thread."""

    def __init__(self, client: Any, layout: Layout, address: str, timeout_s: float) -> None:
        self._client, self._layout, self._address, self._timeout_s = client, layout, address, timeout_s

    def look(
        self, name: str, index: int, ask: Callable[[Mapping[str, Registration], int], Mapping[str, Holding]]
    ) -> PartitionFacts:
        """Read all that there is to know of a partition.

        Args:
            name: the topic's.
            index: the partition's place in it, from 0.
            ask: asks the living brokers what they hold of the partition with a uid.

        Raises:
            TopicNotFound: there is no topic of this name.
            InvalidRequest: the topic has no such partition.
            CoordinatorUnavailable: ZooKeeper did not answer in time.
            CoordinatorUnreadable: its content is damaged, or of a format that this build does not know.
        """
        found = self._get(self._layout.topic(name))
        if found is None:
            raise TopicNotFound(
                f"there is no topic {name!r} below {self._layout.root} in ZooKeeper at {self._address}"
            )
        topic = decode_topic(found[0])
        if not 0 <= index < len(topic.partitions):
            raise InvalidRequest(
                f"topic {name!r} has no partition {index}: its partitions are 0 to {len(topic.partitions) - 1}"
            )
        uid = topic.partitions[index].uid
        # The registrations first: a node that changes after it was read makes the compare-and-set fail.
        registrations = self._registrations()
        version, node = self._node(name, uid)
        return PartitionFacts(topic, index, version, node, registrations, ask(registrations, uid))

    def accept_loss(self, facts: PartitionFacts, survivor: str) -> None:
        """Make `survivor`, with its present disk, the whole ISR of the partition, by one compare-and-set.

        When this returns, it has happened and is durable; the survivor takes over by itself.

        Raises:
            RecoveryRefused: the partition, or this choice, is not to be recovered.
            PartitionChanged: the node has changed since `facts` were read.
            OutcomeUnknown: ZooKeeper's answer was lost, and the node does not show that it has happened.
        """
        # Look once more: a broker may have been started whose disk was thought to be lost, or that was not asked.
        living = self._registrations()
        held = {
            broker_id: held
            for broker_id, held in facts.held.items()
            if living.get(broker_id) == facts.registrations.get(broker_id)
        }
        facts = replace(facts, registrations=living, held=held)
        if refused := reason_against(facts, survivor):
            raise RecoveryRefused(refused)
        wanted = facts.wanted(survivor)
        path = self._layout.partition(facts.uid)
        try:
            self._client.set_async(path, encode_node(wanted), facts.version).get(timeout=self._timeout_s)
        except (BadVersionError, NoNodeError) as error:
            raise PartitionChanged(
                f"{facts.name} has changed while it was looked at: look again before anything is given up"
            ) from error
        except (*CONNECTION_ERRORS, KazooTimeoutError) as error:
            self._settle(facts, wanted, error)
        except KazooException as error:
            raise CoordinatorUnavailable(f"ZooKeeper at {self._address} refuses: {error!r}") from error

    def _settle(self, facts: PartitionFacts, wanted: PartitionNode, error: Exception) -> None:
        """The set's answer was lost: see whether the node shows it, or what followed from it."""
        try:
            version, node = self._node(facts.topic.name, facts.uid)
        except CoordinatorUnavailable as silent:
            raise OutcomeUnknown(
                f"ZooKeeper at {self._address} did not confirm the change of {facts.name}, which may have "
                f"happened or may still happen: look again ({silent})"
            ) from error
        survivor = wanted.isr[0]
        if node == wanted or (node.epoch > wanted.epoch and survivor in node.isr):
            return
        if version != facts.version:
            raise PartitionChanged(
                f"{facts.name} has changed meanwhile, not by this command: look again before anything is given up"
            ) from error
        raise OutcomeUnknown(
            f"ZooKeeper at {self._address} did not confirm the change of {facts.name}; it had not happened when it was "
            "read again, and may still happen: look again"
        ) from error

    def node(self, facts: PartitionFacts) -> PartitionNode:
        """Read the node anew."""
        return self._node(facts.topic.name, facts.uid)[1]

    # ------------------------------------------------------------ reading

    def _registrations(self) -> dict[str, Registration]:
        found = {}
        for segment in self._children(self._layout.brokers):
            value = self._get(f"{self._layout.brokers}/{segment}")
            if value is not None:
                seen = decode_registration(value[0])
                found[seen.broker_id] = seen
        return dict(sorted(found.items()))

    def _node(self, name: str, uid: int) -> tuple[int, PartitionNode]:
        found = self._get(self._layout.partition(uid))
        if found is None:
            raise PartitionChanged(
                f"partition {uid} of topic {name!r} is gone: the topic has just been deleted"
            )
        return found[1].version, decode_node(found[0])

    def _children(self, path: str) -> list[str]:
        children: list[str] | None = self._read(path, self._client.get_children_async)
        return children or []

    def _get(self, path: str) -> tuple[bytes, Any] | None:
        """Return a node's value and state, None when it is not there."""
        found: tuple[bytes, Any] | None = self._read(path, self._client.get_async)
        return found

    def _read(self, path: str, read: Callable[[str], Any]) -> Any:
        """Read the present content: without the sync, a server that is behind may answer with an older one."""
        self._wait(lambda: self._client.sync_async(path))
        return self._wait(lambda: read(path))

    def _wait(self, send: Callable[[], Any]) -> Any:
        """Make a request that changes nothing, again after a lost connection, until the time is over."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            left_s = deadline - time.monotonic()
            try:
                return send().get(timeout=max(left_s, 0.0))
            except NoNodeError:
                return None
            except (*CONNECTION_ERRORS, KazooTimeoutError) as error:
                if left_s <= 0 or isinstance(error, KazooTimeoutError):
                    raise _no_answer(self._address, self._timeout_s) from error
            except KazooException as error:
                raise CoordinatorUnavailable(f"ZooKeeper at {self._address} refuses: {error!r}") from error


@contextmanager
def connect(address: str, timeout_s: float) -> Iterator[Recovering]:
    """Connect to a cluster's ZooKeeper, without becoming a part of the cluster.

    Args:
        address: `HOST:PORT[,HOST:PORT…][/ROOT]`.
        timeout_s: for the connection and for each request.

    Raises:
        ValueError: the address is none, or the root is not an absolute path.
        CoordinatorUnavailable: nobody answered in time.
    """
    hosts, root = split_address(address)
    layout = Layout(root)
    client = KazooClient(hosts=hosts, timeout=_SESSION_S, logger=_log)
    try:
        try:
            client.start(timeout_s)
        except KazooTimeoutError as error:
            raise _no_answer(hosts, timeout_s) from error
        yield Recovering(client, layout, hosts, timeout_s)
    finally:
        client.stop()
        with contextlib.suppress(WriterNotClosedException):
            client.close()


def _no_answer(address: str, timeout_s: float) -> CoordinatorUnavailable:
    return CoordinatorUnavailable(f"ZooKeeper at {address} did not answer within {timeout_s:g} s")
