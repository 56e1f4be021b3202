"""The network breaks: partitions of all sorts, delay, loss, connections that are reset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from dueq_chaos.nemesis.faults.fault import Fault
from dueq_chaos.nemesis.network.rules import CLIENTS, ZOOKEEPER, Rule, Way, ways

if TYPE_CHECKING:
    from dueq_chaos.nemesis.target import Target

_CUT = Rule(cut=True)


class _Wired(Fault):
    """A fault that is a table of rules."""

    needs: ClassVar[str] = "wires"
    lane: ClassVar[str] = "network"

    def begin(self, target: Target) -> str:
        """See Fault."""
        brokers = target.choose(self.step.who)
        others = [broker for broker in target.brokers if broker not in brokers] or target.brokers
        target.wires.add(self, self.table(brokers, others))
        return self.text(target.text(brokers))

    def end(self, target: Target) -> None:
        """See Fault."""
        target.wires.remove(self)

    def table(self, brokers: list[str], others: list[str]) -> Mapping[Way, Rule]:
        """The rules for the chosen brokers against the other brokers."""
        raise NotImplementedError

    def text(self, who: str) -> str:
        """Return the deed in words, for people."""
        raise NotImplementedError


class Cut(_Wired):
    """Nothing passes between the chosen brokers and the others; clients and ZooKeeper reach all."""

    kind: ClassVar[str] = "cut"

    def table(self, brokers: list[str], others: list[str]) -> Mapping[Way, Rule]:
        """See _Wired."""
        return dict.fromkeys(ways(brokers, others), _CUT)

    def text(self, who: str) -> str:
        """See _Wired."""
        return f"cut {who} | other brokers"


class CutOut(_Wired):
    """Frames of the chosen brokers do not reach the other brokers."""

    kind: ClassVar[str] = "cut-out"

    def table(self, brokers: list[str], others: list[str]) -> Mapping[Way, Rule]:
        """See _Wired."""
        return dict.fromkeys(ways(brokers, others, both=False), _CUT)

    def text(self, who: str) -> str:
        """See _Wired."""
        return f"cut {who} → other brokers"


class CutIn(_Wired):
    """Frames of the other brokers do not reach the chosen ones."""

    kind: ClassVar[str] = "cut-in"

    def table(self, brokers: list[str], others: list[str]) -> Mapping[Way, Rule]:
        """See _Wired."""
        return dict.fromkeys(ways(others, brokers, both=False), _CUT)

    def text(self, who: str) -> str:
        """See _Wired."""
        return f"cut other brokers → {who}"


class Isolate(_Wired):
    """The chosen brokers are cut off from all: brokers, clients and ZooKeeper."""

    kind: ClassVar[str] = "isolate"

    def table(self, brokers: list[str], others: list[str]) -> Mapping[Way, Rule]:
        """See _Wired."""
        return dict.fromkeys(ways(brokers, [*others, CLIENTS, ZOOKEEPER]), _CUT)

    def text(self, who: str) -> str:
        """See _Wired."""
        return f"isolate {who}"


class CutZooKeeper(_Wired):
    """The chosen brokers do not reach ZooKeeper, the others do."""

    kind: ClassVar[str] = "cut-zookeeper"

    def table(self, brokers: list[str], others: list[str]) -> Mapping[Way, Rule]:
        """See _Wired."""
        return dict.fromkeys(ways(brokers, [ZOOKEEPER]), _CUT)

    def text(self, who: str) -> str:
        """See _Wired."""
        return f"cut {who} | zookeeper"


class Slow(_Wired):
    """Everything between the chosen brokers and the others takes `amount` ms longer, up to half as much again."""

    kind: ClassVar[str] = "slow"
    needs: ClassVar[str] = "delays"

    def table(self, brokers: list[str], others: list[str]) -> Mapping[Way, Rule]:
        """See _Wired."""
        rule = Rule(delay_ms=self.step.amount, jitter_ms=self.step.amount / 2)
        return dict.fromkeys(ways(brokers, others), rule)

    def text(self, who: str) -> str:
        """See _Wired."""
        return f"delay {self.step.amount:g} ms {who}"


class Lossy(_Wired):
    """A share of all segments between the chosen brokers and everybody else is lost."""

    kind: ClassVar[str] = "lossy"
    needs: ClassVar[str] = "delays"

    def table(self, brokers: list[str], others: list[str]) -> Mapping[Way, Rule]:
        """See _Wired."""
        return dict.fromkeys(ways(brokers, [*others, CLIENTS]), Rule(loss=self.step.amount))

    def text(self, who: str) -> str:
        """See _Wired."""
        return f"lose {self.step.amount:.0%} {who}"


class Reset(Fault):
    """All connections of the chosen brokers break at once; new ones are fine."""

    kind: ClassVar[str] = "reset"
    needs: ClassVar[str] = "delays"
    lane: ClassVar[str] = "network"

    def begin(self, target: Target) -> str:
        """See Fault."""
        brokers = target.choose(self.step.who)
        for broker in brokers:
            target.wires.reset(broker)
        return f"reset {target.text(brokers)}"

    def end(self, target: Target) -> None:
        """Nothing is left to undo."""
