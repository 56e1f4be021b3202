"""Whether a mesh serves: asked gently, believed only when all is there."""

from __future__ import annotations

import pytest

from dueq import Disconnected, DueqError
from dueq.bench.serving import seconds_until, served
from dueq.client.topics import PartitionInfo, TopicInfo


def topic(*leaders: str) -> TopicInfo:
    placement = tuple(PartitionInfo(uid, uid, leader, 1, bool(leader)) for uid, leader in enumerate(leaders))
    return TopicInfo("t", "timeline", len(placement), 1, 1, 1, placement=placement)


class Mesh:
    """Answers as told, one answer after the other."""

    def __init__(self, *answers: list[TopicInfo] | Exception) -> None:
        self.answers = list(answers)

    def topics(self, *, timeout: float | None = None) -> list[TopicInfo]:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_a_partition_without_a_leader_a_missing_topic_or_the_dead_leader_is_not_served() -> None:
    assert served([topic("b1", "b2")])
    assert not served([topic("b1", "")])
    assert not served([topic("b1", "b2")], without="b2")
    assert not served([topic("b1")], count=2)


def test_it_is_asked_until_it_is_so() -> None:
    mesh = Mesh(Disconnected("not yet"), [topic("")], [topic("b1")])
    assert seconds_until(mesh, served, 60.0) < 60.0  # type: ignore[arg-type]
    assert mesh.answers == [[topic("b1")]]


def test_patience_has_an_end_and_says_what_was_wrong() -> None:
    with pytest.raises(DueqError, match="not every partition"):
        seconds_until(Mesh([topic("")]), served, 0.0)  # type: ignore[arg-type]
