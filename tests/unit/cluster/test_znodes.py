"""The JSON of the coordinator's facts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import pytest

from dueq.cluster.coordinator import CoordinatorUnreadable
from dueq.cluster.znodes import (
    TopicRefused,
    check_feature_level,
    decode_cluster,
    decode_node,
    decode_registration,
    decode_topic,
    decode_uid,
    encode_cluster,
    encode_node,
    encode_registration,
    encode_topic,
    new_topic,
    tombstone_names,
    tombstone_uids,
    updated_topic,
)
from dueq.core.ports.membership import (
    CreateTopic,
    Member,
    PartitionAssignment,
    PartitionNode,
    Registration,
    Topic,
    UpdateTopic,
)
from dueq.limits import UID_MAX, UPDATES_KNOWN
from dueq_codecs.topic_settings import TopicSettings

REGISTRATION = Registration("b1", 2**63 - 1, "s" * 32, "tcp://host:7400", "host:9100", 3)
NODE = PartitionNode("b1", 2**63 - 1, 7, (Member("b1", "s1"), Member("b2", "s2")))
TOPIC = Topic(
    "departures", "c" * 32, "timeline", (PartitionAssignment(4, ("b1", "b2")), PartitionAssignment(5, ("b2", "b1"))),
    2, 2, TopicSettings(payload_bytes_max=1 << 20, horizon_ms=1000),
)  # fmt: skip


def order(partitions: int = 2, **fields: object) -> CreateTopic:
    values: dict[str, object] = {
        "token": 1, "name": "departures", "creation_id": "c" * 32, "kind": "timeline",
        "replicas_of": (("b1", "b2"),) * partitions, "members": (Member("b1", "s1"), Member("b2", "s2")),
        "replicas": 2, "min_isr": 2, "settings": TopicSettings(),
    }  # fmt: skip
    return CreateTopic(**(values | fields))  # type: ignore[arg-type]


def test_every_fact_reads_back_as_it_was_written() -> None:
    assert decode_registration(encode_registration(REGISTRATION)) == REGISTRATION
    assert decode_node(encode_node(NODE)) == NODE
    assert decode_topic(encode_topic(TOPIC)) == TOPIC
    assert decode_cluster(encode_cluster("abc", 2)) == ("abc", 2)


def test_a_topic_of_an_older_build_has_the_settings_that_it_was_created_with() -> None:
    fields = json.loads(encode_topic(TOPIC))
    del fields["settings"]
    del fields["home_partitions"]
    assert decode_topic(json.dumps(fields).encode()) == TOPIC


def test_the_coordinator_keeps_the_secrets_of_endpoints() -> None:
    endpoint = {
        "name": "e", "version": 1, "url": "https://example.com/", "timeout_ms": 1000, "in_flight": 1, "targets": False,
        "filter": {}, "disabled": "", "headers": {"a": "b"}, "secrets": [["whsec_" + "A" * 40, 0]],
    }  # fmt: skip
    settings = TOPIC.settings.changed({"endpoint": endpoint}, "a" * 32)
    assert decode_topic(encode_topic(replace(TOPIC, settings=settings))).settings.endpoint == endpoint


def test_a_changed_topic_shows_older_builds_what_they_know() -> None:
    changed = TOPIC.settings.changed({"horizon_ms": 7, "payload_bytes_max": 8}, "a" * 32)
    fields = json.loads(encode_topic(replace(TOPIC, settings=changed)))
    assert (fields["horizon_ms"], fields["payload_bytes_max"]) == (7, 8)
    assert decode_topic(json.dumps(fields).encode()).settings == changed


def test_members_read_back_are_members() -> None:
    assert decode_node(encode_node(NODE)).isr[0].store_id == "s1"


@pytest.mark.parametrize("decode", [decode_registration, decode_node, decode_topic, decode_cluster])
@pytest.mark.parametrize(
    "value", [None, b"", b"{", b"[]", b"3", b'{"format":1}', b'{"leader":"b1"}', b"\xff"]
)
def test_what_is_damaged_is_refused(decode: object, value: bytes | None) -> None:
    with pytest.raises(CoordinatorUnreadable):
        decode(value)  # type: ignore[operator]


def test_an_unknown_format_is_refused_with_its_number() -> None:
    with pytest.raises(CoordinatorUnreadable, match="format 9"):
        decode_node(encode_node(NODE).replace(b'"format":1', b'"format":9'))


def test_a_cluster_ahead_of_the_broker_is_refused() -> None:
    check_feature_level("abc", 3, REGISTRATION)
    with pytest.raises(CoordinatorUnreadable, match=r"feature level 4.* knows only 3"):
        check_feature_level("abc", 4, REGISTRATION)


def test_a_new_topic_takes_uids_without_gaps() -> None:
    topic, nodes = new_topic(order(partitions=3), first_uid=7)
    assert [part.uid for part in topic.partitions] == [7, 8, 9]
    assert nodes[8] == PartitionNode("", 0, 0, (Member("b1", "s1"), Member("b2", "s2")))
    assert list(tombstone_uids(*tombstone_names(topic))) == [7, 8, 9]


def test_a_topic_knows_its_last_changes() -> None:
    topic = TOPIC
    ids = [f"{number:032x}" for number in range(UPDATES_KNOWN + 3)]
    for update in ids:
        settings = topic.settings.changed({}, update)
        found = updated_topic(topic, UpdateTopic(1, topic.name, topic.creation_id, settings), 9)
        assert found is not None
        topic = decode_topic(encode_topic(found[0]))
    assert [topic.has_stored(update) for update in ids] == [False] * 2 + [True] * (UPDATES_KNOWN + 1)


def test_a_topic_that_an_older_build_has_changed_knows_its_last_change() -> None:
    fields = json.loads(encode_topic(replace(TOPIC, settings=TOPIC.settings.changed({}, "a" * 32))))
    del fields["earlier_updates"]
    topic = decode_topic(json.dumps(fields).encode())
    assert [topic.has_stored(update) for update in ("a" * 32, "b" * 32)] == [True, False]


def grown(topic: Topic, partitions: int, first_uid: int) -> Topic:
    settings = topic.settings.changed({}, "a" * 32)
    added = (("b2", "b1"),) * partitions
    found = updated_topic(
        topic, UpdateTopic(1, topic.name, topic.creation_id, settings, added, NODE.isr), first_uid
    )
    assert found is not None
    assert set(found[1]) == set(range(first_uid, first_uid + partitions))
    return found[0]


def test_added_partitions_are_behind_the_others_and_home_to_nothing() -> None:
    topic = grown(grown(TOPIC, 2, 9), 1, 11)
    assert [part.uid for part in topic.partitions] == [4, 5, 9, 10, 11]
    assert (topic.home_partitions, topic.settings.version) == (2, 2)
    assert decode_topic(encode_topic(topic)) == topic


def test_the_tombstones_of_a_grown_topic_leave_out_what_is_of_others() -> None:
    assert tombstone_names(grown(grown(TOPIC, 2, 9), 1, 11)) == ["4-5", "9-11"]
    assert tombstone_names(grown(TOPIC, 1, 6)) == ["4-6"]


def test_added_partitions_need_known_stores_and_numbers() -> None:
    settings = TOPIC.settings.changed({}, "a" * 32)
    with pytest.raises(TopicRefused, match="b9"):
        updated_topic(
            TOPIC, UpdateTopic(1, "departures", TOPIC.creation_id, settings, (("b9",),), NODE.isr), 9
        )
    with pytest.raises(TopicRefused, match="do not fit"):
        updated_topic(
            TOPIC,
            UpdateTopic(1, "departures", TOPIC.creation_id, settings, (("b1",),) * 2, NODE.isr),
            UID_MAX,
        )


def test_a_topic_that_was_made_anew_does_not_get_the_settings_of_the_one_before() -> None:
    settings = TOPIC.settings.changed({}, "a" * 32)
    assert updated_topic(TOPIC, UpdateTopic(1, TOPIC.name, "b" * 32, settings), 9) is None
    assert updated_topic(TOPIC, UpdateTopic(1, TOPIC.name, TOPIC.creation_id, settings), 9) is not None


def test_the_last_uid_can_be_used_and_none_after_it() -> None:
    new_topic(order(partitions=1), first_uid=UID_MAX)
    with pytest.raises(TopicRefused, match="do not fit"):
        new_topic(order(partitions=2), first_uid=UID_MAX)


def test_a_topic_without_partitions_is_refused() -> None:
    with pytest.raises(TopicRefused, match="at least one"):
        new_topic(order(partitions=0), first_uid=1)


NODES: dict[str, tuple[Callable[[bytes], Any], bytes]] = {
    "registration": (decode_registration, encode_registration(REGISTRATION)),
    "node": (decode_node, encode_node(NODE)),
    "topic": (decode_topic, encode_topic(TOPIC)),
    "cluster": (decode_cluster, encode_cluster("abc", 2)),
}
STRANGE = [
    b"Infinity", b"-1", b"1e99", b"9" * 40, b"9" * 5_000, b"null", b"{}", b"[]", b'"x"', b"[[1]]", b"[" * 100_000,
    rb'"\ud800"', rb'[["\udfff",["b1"]]]', b'"\xed\xa0\x80"',
]  # fmt: skip


@pytest.mark.parametrize("strange", STRANGE, ids=lambda value: value[:12].decode(errors="replace"))
@pytest.mark.parametrize("what", NODES)
def test_no_value_of_a_node_brings_anything_but_a_refusal(what: str, strange: bytes) -> None:
    """Any other error ended the connection of every broker that read it, again and again; a number that fits into no
    frame, or a text that is none, ended the brokers."""
    decode, value = NODES[what]
    for name, old in json.loads(value).items():
        field = json.dumps(name).encode() + b":"
        at = value.index(field) + len(field)
        changed = value[:at] + strange + value[at + len(json.dumps(old, separators=(",", ":"))) :]
        try:
            found = decode(changed)
        except CoordinatorUnreadable:
            continue
        json.dumps(found if isinstance(found, tuple) else asdict(found), ensure_ascii=False).encode()
        for number in re.findall(r"(?:incarnation|epoch|uid|level|replicas|isr)=(-?\d+)", repr(found)):
            assert 0 <= int(number) < 1 << 64


@pytest.mark.parametrize(
    "value", [None, b"", b"x", b"0", b"-1", b" 1", b"9" * 5_000, b"\xb2", "٣".encode(), b"16777217"]
)
def test_a_counter_of_partitions_that_is_none_is_refused(value: bytes | None) -> None:
    with pytest.raises(CoordinatorUnreadable):
        decode_uid(value)


def test_the_counter_may_be_used_up() -> None:
    assert decode_uid(str(UID_MAX + 1).encode()) == UID_MAX + 1


@pytest.mark.parametrize(
    "name", ["", "4", "4-", "-4", "a-b", "1-2-3", "0-1", "1-99999999", "1-" + "9" * 5_000, "²-³"]
)
def test_a_strange_tombstone_is_refused(name: str) -> None:
    with pytest.raises(CoordinatorUnreadable):
        tombstone_uids(name)


def test_a_replica_is_not_named_twice() -> None:
    """It would count as two copies: a leader alone would hold a majority."""
    twice = replace(NODE, isr=NODE.isr[:1] * 2)
    with pytest.raises(CoordinatorUnreadable):
        decode_node(encode_node(twice))
    for parts in ((PartitionAssignment(4, ("b1", "b1")),), TOPIC.partitions[:1] * 2):
        with pytest.raises(CoordinatorUnreadable):
            decode_topic(encode_topic(replace(TOPIC, partitions=parts)))
    with pytest.raises(CoordinatorUnreadable):
        decode_topic(encode_topic(TOPIC).replace(b'[4,["b1","b2"]]', b"[]"))
    replaced = replace(NODE, isr=(Member("b1", "s1"), Member("b1", "s2")))
    assert decode_node(encode_node(replaced)) == replaced
