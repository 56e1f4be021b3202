"""The promises of every coordinator."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dueq.cluster.coordinator import CoordinatorUnreadable
from dueq.core.ports.membership import (
    ConfirmDeleted,
    CoordinatorChanged,
    CoordinatorState,
    Member,
    NodeSeen,
    PartitionNode,
    RegistrationsSeen,
    SetOutcome,
)


def test_a_start_delivers_connected_first_and_then_the_own_registration(begin: Any) -> None:
    life = begin()
    assert life.coordinator.cluster_id
    life.wait(RegistrationsSeen, lambda seen: seen.registrations == {"b1": life.registration})
    assert life.events[0] == CoordinatorChanged(CoordinatorState.CONNECTED)


def test_the_cluster_id_outlives_every_broker(begin: Any) -> None:
    first = begin()
    cluster_id = first.coordinator.cluster_id
    first.coordinator.stop()
    assert begin(incarnation=2).coordinator.cluster_id == cluster_id


def test_a_new_topic_has_all_its_replicas_in_the_isr_and_was_never_led(begin: Any) -> None:
    life = begin()
    members = (Member("b1", "s1"), Member("b2", "s2"), Member("b3", "s3"))
    done = life.create(
        "departures", replicas_of=(("b1", "b2"), ("b2", "b3")), members=members, replicas=2, min_isr=2
    )
    assert done.error == ""
    assert [part.replicas for part in done.topic.partitions] == [("b1", "b2"), ("b2", "b3")]
    life.topics(lambda seen: seen.topics == {"departures": done.topic})
    for part, isr in zip(done.topic.partitions, (members[:2], members[1:]), strict=True):
        seen = life.wait(NodeSeen, lambda seen, uid=part.uid: seen.uid == uid)
        assert seen.node == PartitionNode("", 0, 0, isr)


def test_a_topic_is_delivered_before_its_partitions_nodes(begin: Any) -> None:
    life = begin()
    topic = life.create("departures").topic
    uids = [part.uid for part in topic.partitions]
    first = life.topics(lambda seen: "departures" in seen.topics)
    node = life.wait(NodeSeen, lambda seen: seen.uid == uids[0])
    assert life.events.index(first) < life.events.index(node)


def test_a_create_with_the_same_creation_id_is_a_success_and_makes_nothing_new(begin: Any) -> None:
    life = begin()
    first = life.create("departures", creation_id="a" * 32)
    second = life.create("departures", creation_id="a" * 32)
    assert second.error == ""
    assert second.topic == first.topic


def test_a_create_with_another_creation_id_says_that_the_topic_exists(begin: Any) -> None:
    life = begin()
    first = life.create("departures")
    done = life.create("departures")
    assert done.error == "exists"
    assert done.topic == first.topic
    assert "departures" in done.text


def test_a_create_that_comes_again_makes_no_topic_that_was_deleted_since(begin: Any) -> None:
    """The first attempt was held up, the second one has made the topic, and somebody has deleted it."""
    life = begin()
    life.create("departures", creation_id="a" * 32)
    life.delete("departures")
    life.create("arrivals")
    life.delete("arrivals")
    life.coordinator.stop()
    again = begin(incarnation=2)
    late = again.create("departures", creation_id="a" * 32)
    assert (late.error, late.topic) == ("not_found", None)
    assert "'departures' was created by this request, and has been deleted since" in late.text
    assert again.create("departures", creation_id="b" * 32).error == ""


def test_settings_are_stored_once_on_top_of_the_version_before(begin: Any) -> None:
    life = begin()
    created = life.create("departures").topic
    first = created.settings.changed({"paused": True}, "a" * 32)
    done = life.update("departures", first)
    assert (done.error, done.topic) == ("", replace(created, settings=first))
    life.topics(lambda seen: seen.topics == {"departures": done.topic})
    other = created.settings.changed({"horizon_ms": 9}, "b" * 32)
    assert life.update("departures", other).topic == done.topic
    assert life.update("departures", first).topic == done.topic
    second = first.changed({"paused": False}, "c" * 32)
    assert life.update("departures", second).topic.settings == second
    assert life.update("arrivals", first).error == "not_found"


def test_changed_settings_outlive_every_broker(begin: Any) -> None:
    life = begin()
    settings = life.create("departures").topic.settings.changed({"horizon_ms": 9}, "a" * 32)
    life.update("departures", settings)
    life.coordinator.stop()
    again = begin(incarnation=2)
    again.topics(lambda seen: seen.topics["departures"].settings == settings)


def test_a_topic_gets_more_partitions_with_nodes_and_all_of_them_go_with_it(begin: Any) -> None:
    life = begin()
    created = life.create("departures").topic
    between = life.create("arrivals").topic
    done = life.update("departures", created.settings.changed({}, "a" * 32), added=2)
    assert done.topic.partitions[:2] == created.partitions
    assert (len(done.topic.partitions), done.topic.home_partitions) == (4, 2)
    life.topics(lambda seen: seen.topics.get("departures") == done.topic)
    for part in done.topic.partitions[2:]:
        seen = life.wait(NodeSeen, lambda seen, uid=part.uid: seen.uid == uid)
        assert seen.node == PartitionNode("", 0, 0, (Member("b1", "s1"),))
    assert life.delete("departures").error == ""
    uids = {part.uid for part in done.topic.partitions}
    life.topics(lambda seen: seen.topics == {"arrivals": between} and seen.tombstones == uids)


def test_an_older_build_does_not_register_where_a_topic_has_grown(begin: Any) -> None:
    life = begin()
    created = life.create("departures").topic
    life.update("departures", created.settings.changed({}, "a" * 32), added=1)
    life.coordinator.stop()
    with pytest.raises(CoordinatorUnreadable, match="feature level 2"):
        begin(incarnation=2, level=1)


def test_a_replica_without_a_known_store_is_refused(begin: Any) -> None:
    done = begin().create("departures", replicas_of=(("b9",),))
    assert done.error == "unavailable"
    assert "b9" in done.text


def test_names_of_dots_are_topics_like_others(begin: Any) -> None:
    life = begin()
    for name in (".", "..", "a.b"):
        assert life.create(name).error == ""
    life.topics(lambda seen: seen.topics.keys() == {".", "..", "a.b"})
    for name in (".", "..", "a.b"):
        assert life.delete(name).error == ""
    life.topics(lambda seen: not seen.topics and seen.tombstones)


def test_a_compare_and_set_at_the_seen_version_is_done(begin: Any) -> None:
    life = begin()
    uid = life.create("departures").topic.partitions[0].uid
    seen = life.wait(NodeSeen, lambda seen: seen.uid == uid)
    done = life.set(uid, seen.version, life.node(epoch=1))
    assert done.outcome is SetOutcome.DONE
    assert done.version > seen.version
    assert life.read(uid) == NodeSeen(uid, done.version, life.node(epoch=1))


def test_a_compare_and_set_at_an_old_version_changes_nothing(begin: Any) -> None:
    life = begin()
    uid = life.create("departures").topic.partitions[0].uid
    version = life.read(uid).version
    version_after = life.set(uid, version, life.node(epoch=1)).version
    assert life.set(uid, version, life.node(epoch=2)).outcome is SetOutcome.BAD_VERSION
    assert life.read(uid) == NodeSeen(uid, version_after, life.node(epoch=1))


def test_a_compare_and_set_never_takes_a_negative_version_for_any_version(begin: Any) -> None:
    life = begin()
    uid = life.create("departures").topic.partitions[0].uid
    assert life.set(uid, -1, life.node(epoch=1)).outcome is SetOutcome.BAD_VERSION


def test_a_compare_and_set_of_a_partition_that_is_not_there_is_a_bad_version(begin: Any) -> None:
    assert begin().set(77, 0, PartitionNode("", 0, 0, ())).outcome is SetOutcome.BAD_VERSION


def test_a_partition_that_is_not_there_reads_as_none(begin: Any) -> None:
    assert begin().read(77) == NodeSeen(77, -1, None)


def test_many_compare_and_sets_are_each_answered_once(begin: Any) -> None:
    life = begin()
    topic = life.create("departures", partitions=300).topic
    versions = {
        part.uid: life.wait(NodeSeen, lambda s, u=part.uid: s.uid == u).version for part in topic.partitions
    }
    tokens = [life.send_set(uid, version, life.node(epoch=1)) for uid, version in versions.items()]
    tokens += [life.send_set(uid, version, life.node(epoch=2)) for uid, version in versions.items()]
    outcomes = [life.set_done(token).outcome for token in tokens]
    for first, second in zip(outcomes[:300], outcomes[300:], strict=True):
        if SetOutcome.UNKNOWN not in (first, second):  # no answer came in time, as on a busy machine
            assert (first, second) == (SetOutcome.DONE, SetOutcome.BAD_VERSION)


def test_a_deleted_topic_leaves_tombstones_of_all_its_partitions(begin: Any) -> None:
    life = begin()
    uids = {part.uid for part in life.create("departures", partitions=3).topic.partitions}
    kept = life.create("arrivals").topic
    assert life.delete("departures").error == ""
    seen = life.topics(lambda seen: seen.tombstones == uids)
    assert seen.topics == {"arrivals": kept}
    assert life.read(min(uids)).node is None


def test_a_tombstone_goes_when_its_only_holder_holds_nothing_any_more(begin: Any) -> None:
    life = begin()
    uids = {part.uid for part in life.create("departures", partitions=3).topic.partitions}
    life.delete("departures")
    life.topics(lambda seen: seen.tombstones == uids)
    since = life.mark()
    life.coordinator.submit(ConfirmDeleted(tuple(uids)))
    life.topics(lambda seen: not seen.tombstones, since)
    life.coordinator.submit(ConfirmDeleted(tuple(uids)))
    assert life.delete("departures").error == "not_found"
    life.coordinator.stop()
    begin(incarnation=2).topics(lambda seen: not seen.tombstones)


def test_deleting_a_topic_that_is_not_there_says_so(begin: Any) -> None:
    done = begin().delete("departures")
    assert done.error == "not_found"
    assert "departures" in done.text


def test_a_topic_made_again_is_not_deleted_for_the_one_before(begin: Any) -> None:
    life = begin()
    before = life.create("departures").topic
    assert life.delete("departures", before.uid).error == ""
    created = life.create("departures").topic
    done = life.delete("departures", before.uid)
    assert (done.error, done.topic) == ("not_found", created)
    assert life.create("departures").error == "exists"
    assert life.delete("departures", created.uid).error == ""


def test_partition_uids_are_never_used_again(begin: Any) -> None:
    life = begin()
    uids: list[int] = []
    for _ in range(3):
        uids += [part.uid for part in life.create("departures").topic.partitions]
        life.delete("departures")
    life.coordinator.stop()
    life = begin(incarnation=2)
    uids += [part.uid for part in life.create("departures").topic.partitions]
    assert len(set(uids)) == len(uids)
    assert min(uids) > 0


def test_a_topic_made_again_under_its_name_is_seen_as_the_new_one(begin: Any) -> None:
    life = begin()
    life.create("departures")
    life.delete("departures")
    topic = life.create("departures").topic
    life.topics(lambda seen: seen.topics == {"departures": topic})
    life.wait(NodeSeen, lambda seen: seen.uid == topic.partitions[0].uid and seen.node is not None)


def test_the_next_life_finds_topics_nodes_and_tombstones(begin: Any) -> None:
    first = begin()
    topic = first.create("departures").topic
    gone = first.create("arrivals").topic
    first.delete("arrivals")
    uid = topic.partitions[0].uid
    done = first.set(uid, first.read(uid).version, first.node(epoch=4))
    first.coordinator.stop()

    second = begin(incarnation=2)
    second.topics(
        lambda seen: (
            seen.topics == {"departures": topic} and seen.tombstones == {part.uid for part in gone.partitions}
        )
    )
    assert second.wait(NodeSeen, lambda seen: seen.uid == uid) == NodeSeen(
        uid, done.version, first.node(epoch=4)
    )


def test_nothing_is_delivered_after_the_stop(begin: Any) -> None:
    life = begin()
    life.create("departures")
    life.coordinator.stop()
    count = life.mark()
    life.send_set(1, 0, life.node(epoch=1))
    life.coordinator.stop()
    assert life.mark() == count
