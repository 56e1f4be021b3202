"""The compare-and-set of a recovery whose answer is lost, and ZooKeeper with it."""

from __future__ import annotations

from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss, NoAuthError
from kazoo.handlers.threading import KazooTimeoutError

from dueq.cluster.layout import Layout
from dueq.cluster.recovering import Holding, PartitionFacts, Recovering, best_survivor
from dueq.cluster.znodes import encode_registration
from dueq.core.ports.membership import Member, PartitionAssignment, PartitionNode, Registration, Topic
from dueq.errors import OutcomeUnknown

LIVING = Registration("b2", 50, "s2", "tcp://b2:1")
TOPIC = Topic("t", "00" * 16, "timeline", (PartitionAssignment(4, ("b1", "b2")),), 2, 1)
LOST = PartitionNode("b1", 11, 5, (Member("b1", "s1"),))
FACTS = PartitionFacts(TOPIC, 0, 0, LOST, {"b2": LIVING}, {"b2": Holding("follower", 4, 120, 118)})


class _Result:
    def __init__(self, found: Any) -> None:
        self._found = found

    def get(self, timeout: float) -> Any:
        if isinstance(self._found, Exception):
            raise self._found
        return self._found


class FallsSilent:
    """A connection that takes the set, and answers nothing but errors from then on."""

    def __init__(self, error: Exception) -> None:
        self._error, self._taken = error, False

    def _answer(self, found: Any) -> _Result:
        return _Result(self._error if self._taken else found)

    def sync_async(self, path: str) -> _Result:
        return self._answer(path)

    def get_children_async(self, path: str) -> _Result:
        return self._answer(["b2"])

    def get_async(self, path: str) -> _Result:
        return self._answer((encode_registration(LIVING), None))

    def set_async(self, path: str, value: bytes, version: int) -> _Result:
        self._taken = True
        return _Result(ConnectionLoss())


@pytest.mark.parametrize("error", [KazooTimeoutError(), NoAuthError()], ids=["silent", "refuses"])
def test_a_set_whose_node_cannot_be_read_again_is_said_to_be_unknown(error: Exception) -> None:
    """It was said that ZooKeeper does not answer: an error after which nothing was changed."""
    recovering = Recovering(FallsSilent(error), Layout("/dueq"), "zk:1", 10.0)
    with pytest.raises(OutcomeUnknown, match="did not confirm"):
        recovering.accept_loss(FACTS, "b2")


def test_the_best_survivor_has_the_latest_epoch_before_the_longest_log() -> None:
    """What is longer in an older epoch was never committed. One that is being filled, or is gone, has nothing."""
    registrations = dict.fromkeys(("b1", "b2", "b3", "b4"), LIVING)
    topic = Topic("t", "00" * 16, "timeline", (PartitionAssignment(4, ("b1", "b2", "b3", "b5")),), 2, 1)
    held = {
        "b1": Holding("follower", 3, 120, 100),
        "b2": Holding("follower", 4, 110, 110),
        "b3": Holding("installing", 5, 130, 130),
        "b4": Holding("follower", 5, 130, 130),
        "b5": Holding("follower", 5, 130, 130),
    }
    facts = PartitionFacts(topic, 0, 0, LOST, registrations, held)
    assert best_survivor(facts) == "b2"
    assert best_survivor(PartitionFacts(topic, 0, 0, LOST, registrations, {})) == ""
