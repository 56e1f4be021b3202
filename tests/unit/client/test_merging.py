"""The picture of the mesh, out of what its brokers say."""

from __future__ import annotations

from typing import Any

from dueq.client.merging import merged_status


def partition(uid: int, leader: str, **more: Any) -> dict[str, Any]:
    return {"uid": uid, "index": uid - 1, "topic": "t", "leader": leader, "epoch": 1, "sequence": 5, **more}


def document(broker_id: str, *partitions: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "broker": {"id": broker_id, "leaderships": 1, "clock": {"mesh_offset_ms": 1.5, "hold": False}},
        "brokers": {"a": {"metrics": "m:1"}, "b": {"metrics": "m:2"}},
        "topics": {"t": {"kind": "timeline", "replicas": 2, "min_isr": 2}},
        "partitions": list(partitions),
        "consumers": [],
        **more,
    }


ENDPOINTS = {"a": "tcp://a:1", "b": "tcp://b:1"}


def test_a_partition_is_as_its_leader_sees_it() -> None:
    mine = partition(1, "a", scheduled=7)
    theirs = partition(1, "a", scheduled=6, sequence=9)
    for documents in (
        {"a": document("a", mine), "b": document("b", theirs)},
        {"b": document("b", theirs), "a": document("a", mine)},
    ):
        topic = merged_status(ENDPOINTS, documents)["topics"]["t"]
        assert [view["scheduled"] for view in topic["partitions"]] == [7]
        assert topic["min_isr"] == 2


def test_without_its_leader_it_is_as_whoever_knows_most_sees_it() -> None:
    documents = {
        "a": document("a", partition(1, "", sequence=3), partition(2, "a")),
        "b": document("b", partition(1, "", sequence=4)),
    }
    views = merged_status(ENDPOINTS, documents)["topics"]["t"]["partitions"]
    assert [(view["uid"], view["sequence"]) for view in views] == [(1, 4), (2, 5)]


def test_a_partition_says_what_each_replica_holds() -> None:
    documents = {
        "a": document("a", partition(1, "a", role="leader", end=9, commit=8, last_epoch=1)),
        "b": document("b", partition(1, "a", role="follower", end=7, commit=6, last_epoch=1)),
    }
    (view,) = merged_status(ENDPOINTS, documents)["topics"]["t"]["partitions"]
    assert view["held"] == {
        "a": {"role": "leader", "epoch": 1, "last_epoch": 1, "end": 9, "commit": 8},
        "b": {"role": "follower", "epoch": 1, "last_epoch": 1, "end": 7, "commit": 6},
    }


def test_who_does_not_answer_is_not_alive_and_who_is_gone_is_still_named() -> None:
    documents = {"a": document("a", partition(1, "a", replicas=["a", "c"]))}
    brokers = merged_status(ENDPOINTS, documents)["brokers"]
    assert {name: broker["alive"] for name, broker in brokers.items()} == {"a": True, "b": False, "c": False}
    assert (brokers["b"]["metrics"], brokers["b"]["endpoint"]) == ("m:2", "tcp://b:1")


def test_a_clocks_offset_is_how_far_it_is_ahead_of_the_mesh() -> None:
    status = merged_status(ENDPOINTS, {"a": document("a")})
    assert status["brokers"]["a"]["clock"]["offset_ms"] == -1.5


def test_a_topic_without_partitions_here_and_documents_of_another_build_are_taken() -> None:
    assert merged_status(ENDPOINTS, {"a": {}, "b": {"partitions": None}})["topics"] == {}
    assert merged_status(ENDPOINTS, {"a": document("a")})["topics"]["t"]["partitions"] == []
    assert merged_status({}, {}) == {"brokers": {}, "topics": {}, "consumers": []}


def test_consumers_of_all_brokers_are_listed() -> None:
    session = {"topic": "t", "consumer": "c", "broker": "a", "credit": 1, "leased": 0}
    documents = {
        "a": document("a", consumers=[session]),
        "b": document("b", consumers=[session | {"broker": "b"}]),
    }
    assert [each["broker"] for each in merged_status(ENDPOINTS, documents)["consumers"]] == ["a", "b"]
