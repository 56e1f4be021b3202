"""What a client makes of several answers about one topic."""

from __future__ import annotations

import pytest

from dueq.client.core.asking.directory import Directory, Topic
from dueq_codecs.messages import PartitionInfo, TopicInfo


def answer(*partitions: tuple[int, str, int]) -> TopicInfo:
    """One broker's answer: uid, leader and epoch of each partition."""
    return TopicInfo(
        "t",
        "timeline",
        3,
        2,
        0,
        0,
        tuple(PartitionInfo(uid, leader, epoch, True) for uid, leader, epoch in partitions),
    )


@pytest.mark.parametrize(
    ("first", "second", "leader"),
    [
        ((1, "b1", 4), (1, "b2", 5), "b2"),
        ((1, "b2", 5), (1, "b1", 4), "b2"),
        ((1, "b2", 5), (1, "", 5), "b2"),
        ((1, "", 5), (1, "b2", 5), "b2"),
        ((1, "b1", 4), (1, "", 5), ""),
    ],
)
def test_of_two_answers_the_higher_epoch_counts_and_of_equal_ones_that_which_names_a_leader(
    first: tuple[int, str, int], second: tuple[int, str, int], leader: str
) -> None:
    topic = Topic(answer(first), 0)
    topic.update(answer(second), 1)
    assert topic.leader(1) == leader
    assert topic.epoch(1) == max(first[2], second[2])


def test_each_partition_is_as_of_its_own_highest_epoch_and_those_of_a_topic_made_anew_take_their_place() -> (
    None
):
    topic = Topic(answer((1, "b1", 4), (2, "b2", 7)), 0)
    topic.update(answer((1, "b2", 5), (2, "b1", 6)), 1)
    assert (topic.leader(1), topic.leader(2)) == ("b2", "b2")
    topic.update(answer((4, "b3", 1)), 2)
    assert (topic.leader(1), topic.leader(4)) == ("", "b3")
    assert topic.uids == [4]


def test_a_broker_that_has_not_heard_of_the_newest_partitions_takes_none_away() -> None:
    """Ids of messages in them would be refused as those of another topic, and consumers leave their leaders."""
    topic = Topic(answer((1, "b1", 4), (5, "b2", 7)), 0)
    topic.update(answer((1, "b2", 5)), 1)
    assert (topic.leader(1), topic.leader(5), topic.fetched_us) == ("b2", "b2", 1)
    assert topic.uids == [1, 5]
    topic.update(answer((0, "b3", 9)), 2)  # of a topic that was deleted before
    assert topic.uids == [1, 5]
    assert topic.leader(0) == ""


def test_a_leader_that_was_hinted_is_forgotten_with_the_topic() -> None:
    """A client that makes and deletes topics all day would keep something of each of them."""
    directory = Directory(None, None, None, lambda topic: None, lambda name, error: None)  # type: ignore[arg-type]
    directory.hint("t", 1, "b1")
    directory.hint("u", 2, "b2")
    assert directory.leader("t", 1) == "b1"
    directory.forget("t")
    assert (directory.leader("t", 1), directory.leader("u", 2)) == ("", "b2")
