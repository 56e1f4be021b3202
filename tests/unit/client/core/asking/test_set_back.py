"""Brokers that name only older partitions of a topic: they lag, or ZooKeeper was restored from an old backup."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dueq.client.core.asking.directory import MADE_MAX, SET_BACK_US
from dueq.client.core.ports.effects import Completed, ConsumerFailed, Effect, Failed, Log, Send
from dueq.client.core.ports.events import CreateTopic, FrameReceived
from dueq.errors import TopicNotFound
from dueq_codecs.messages import (
    ChangeRequest,
    Code,
    CreateTopicRequest,
    MetadataReply,
    MetadataRequest,
    Reply,
)
from tests.unit.client.stage import TOPIC, Stage, attached, endpoint, of, sent

SET_BACK_MS = SET_BACK_US / 1000


class Mesh(Stage):
    """Two brokers, of which each may lag, or be cut off from ZooKeeper."""

    def __init__(self) -> None:
        super().__init__(["a", "b"], {7: "a", 8: "b"})
        self.up_to_date: set[str] = set()
        self.cut_off: set[str] = set()
        self.older = {1: "a", 2: "b"}

    def answer(self, effects: Sequence[Effect]) -> None:
        """Answer every question about the topic among the effects, and those that follow."""
        for effect in effects:
            if not isinstance(effect, Send) or not isinstance(effect.message, MetadataRequest):
                continue
            [broker] = [name for name in self.brokers if self.links[endpoint(name)] == effect.link]
            newer, self.leaders = self.leaders, self.leaders if broker in self.up_to_date else self.older
            reply = self.metadata(effect.message.request_id)
            self.leaders = newer
            reply.text = "ZooKeeper is away: this may be old" if broker in self.cut_off else ""
            self.answer(self.step(FrameReceived(effect.link, reply)))

    def pass_ms(self, ms: float) -> None:
        until = self.ms + ms
        while self.ms < until:
            self.answer(self.run_until(self.ms + 100))

    def uids(self) -> list[int]:
        topic = self.core._directory.get(TOPIC)
        assert topic is not None
        return topic.uids

    def warnings(self) -> list[dict[str, object]]:
        return [log.fields for log in of(self.effects, Log) if log.event == "topic.set_back"]


@pytest.fixture
def mesh() -> Mesh:
    """A consumer asks every two seconds which partitions there are."""
    mesh = Mesh()
    attached(mesh)
    assert mesh.uids() == [7, 8]
    return mesh


def test_what_all_brokers_have_said_for_long_is_believed(mesh: Mesh) -> None:
    """The client asked for the newer partitions for ever, and every call ended without an answer."""
    mesh.pass_ms(SET_BACK_MS - 5_000)
    assert (mesh.uids(), mesh.warnings()) == ([7, 8], [])
    mesh.pass_ms(10_000)
    assert mesh.uids() == [1, 2]
    assert mesh.warnings() == [{"topic": TOPIC, "partitions": [1, 2], "before": [7, 8]}]
    request = sent(mesh.insert(5, b"x"), ChangeRequest) or sent(mesh.run_until(mesh.ms + 50), ChangeRequest)
    assert request[0].uid in (1, 2)
    mesh.pass_ms(2 * SET_BACK_MS)
    assert len(mesh.warnings()) == 1


@pytest.mark.parametrize("excuse", ["up_to_date", "cut_off"])
def test_a_broker_that_lags_is_not_believed(mesh: Mesh, excuse: str) -> None:
    """Another one knows better, or says that it may lag, too."""
    getattr(mesh, excuse).add("b")
    mesh.pass_ms(3 * SET_BACK_MS)
    assert (mesh.uids(), mesh.warnings()) == ([7, 8], [])


def test_brokers_that_have_caught_up_are_believed_at_once(mesh: Mesh) -> None:
    mesh.pass_ms(2 * SET_BACK_MS)
    assert mesh.uids() == [1, 2]
    mesh.up_to_date |= {"a", "b"}
    mesh.pass_ms(5_000)
    assert mesh.uids() == [7, 8]


def test_a_client_that_created_the_topic_is_told_and_takes_the_older_one_in_the_end() -> None:
    mesh = Mesh()
    mesh.connect()
    effects = mesh.step(CreateTopic(1, mesh.at_us(5_000), b"c" * 16, TOPIC, replicas=1))
    [request] = sent(effects, CreateTopicRequest)
    mesh.up_to_date |= {"a", "b"}
    mesh.answer(mesh.receive("a", Reply(request.request_id, Code.OK, document="[7,8]")))
    mesh.pass_ms(100)
    assert of(mesh.effects, Completed)
    mesh.up_to_date.clear()
    mesh.answer(mesh.insert(2, b"x"))
    [failed] = of(mesh.effects, Failed)
    assert isinstance(failed.error, TopicNotFound)
    assert str(failed.error) == (
        f"there is no topic {TOPIC!r} with the partition 7 that it was created with, only an older one"
    )
    for call in range(3, 3 + int(SET_BACK_MS / 1_000) + 5):
        mesh.answer(mesh.insert(call, b"x", timeout_ms=500))
        mesh.pass_ms(1_000)
    assert mesh.uids() == [1, 2]


def deny(mesh: Mesh, effects: Sequence[Effect]) -> None:
    """Every broker says that there is no topic."""
    for effect in effects:
        if isinstance(effect, Send) and isinstance(effect.message, MetadataRequest):
            reply = MetadataReply(effect.message.request_id, Code.TOPIC_NOT_FOUND, "there is no such topic")
            deny(mesh, mesh.step(FrameReceived(effect.link, reply)))


def test_a_topic_that_is_gone_after_a_broker_named_only_older_partitions(mesh: Mesh) -> None:
    """This client has not created it, so it cannot say with which partition it began."""
    mesh.answer(mesh.run_until(mesh.ms + 10))
    mesh.leaders = mesh.older = {7: "a"}
    mesh.pass_ms(2_500)  # these brokers have not heard of the other one
    assert mesh.uids() == [7, 8]
    deny(mesh, mesh.run_until(mesh.ms + 2_500))
    [failed] = of(mesh.effects, ConsumerFailed)
    assert isinstance(failed.error, TopicNotFound)


def test_a_client_that_creates_ever_more_topics_knows_of_the_last_ones_which_partitions_are_too_old(
    mesh: Mesh,
) -> None:
    directory = mesh.core._directory
    for number in range(10, 3 * MADE_MAX):
        directory.made(f"t{number}", [number])
    assert len(directory._since) <= MADE_MAX
    directory.made(TOPIC, [9_000])
    assert directory.is_past(mesh.metadata(1).topics[0])


def test_a_topic_that_was_created_again_is_one_of_the_last(mesh: Mesh) -> None:
    directory = mesh.core._directory
    directory.made(TOPIC, [10])
    for number in range(MADE_MAX - 1):
        directory.made(f"t{number}", [10])
    directory.made(TOPIC, [9_000])
    directory.made("one more", [10_000])
    assert directory.is_past(mesh.metadata(1).topics[0])
