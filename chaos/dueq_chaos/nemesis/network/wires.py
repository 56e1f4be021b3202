"""The wires of a mesh, seen from the one who cuts them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Protocol

from dueq.errors import DueqError
from dueq_chaos.nemesis.network.proxy import Port
from dueq_chaos.nemesis.network.rules import Rule, Way, merge


class WiresError(DueqError):
    """The wires cannot be laid or do not obey."""


class Wires(Protocol):
    """What faults do to the network; every implementation can cut single directions."""

    def add(self, fault: object, table: Mapping[Way, Rule]) -> None:
        """Let a fault's rules hold until `remove`."""

    def remove(self, fault: object) -> None:
        """Undo what a fault has added; nothing when it has added nothing."""

    def reset(self, who: str) -> None:
        """Break all connections of somebody at once."""

    def started(self, broker: str, pid: int) -> None:
        """A broker process is there."""

    def close(self) -> None:
        """Take the wires away."""


class ProxyWires:
    """Wires through a proxy process on loopback; works everywhere, needs no rights.

    Args:
        ports: what the proxy listens on.

    Raises:
        WiresError: it does not start.
    """

    def __init__(self, ports: Sequence[Port]) -> None:
        self._tables: dict[object, Mapping[Way, Rule]] = {}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "dueq_chaos.nemesis.network.proxy", json.dumps([asdict(p) for p in ports])],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        self._await_answer()

    def add(self, fault: object, table: Mapping[Way, Rule]) -> None:
        """See Wires."""
        self._tables[fault] = table
        self._apply()

    def remove(self, fault: object) -> None:
        """See Wires."""
        if self._tables.pop(fault, None) is not None:
            self._apply()

    def reset(self, who: str) -> None:
        """See Wires."""
        self._order({"reset": who})

    def started(self, broker: str, pid: int) -> None:
        """See Wires."""
        self._order({"brokers": {broker: pid}})

    def close(self) -> None:
        """See Wires."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _apply(self) -> None:
        merged = merge(self._tables.values())
        self._order({"rules": [[one, other, rule.as_json()] for (one, other), rule in merged.items()]})

    def _order(self, order: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise WiresError(f"the proxy process has ended with {self._process.poll()}") from error
        self._await_answer()

    def _await_answer(self) -> None:
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise WiresError(f"the proxy process has ended with {self._process.wait()}")
