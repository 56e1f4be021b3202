"""Whether a partition may be recovered, from whom, and what a person is shown before."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import replace

import pytest

from dueq.cli.main import run
from dueq.cli.partition import document, show
from dueq.cluster.recovering import (
    Fate,
    Holding,
    PartitionFacts,
    RecoveryRefused,
    best_survivor,
    reason_against,
)
from dueq.core.ports.membership import Member, PartitionAssignment, PartitionNode, Registration, Topic

B1, B2 = Member("b1", "s1"), Member("b2", "s2")


def living(broker_id: str, store_id: str, incarnation: int = 50) -> Registration:
    return Registration(broker_id, incarnation, store_id, f"tcp://{broker_id}:7400")


@pytest.fixture
def facts() -> PartitionFacts:
    """b1 led with b2; both are up again with empty disks. b3 was left behind; b4 is no replica."""
    topic = Topic(
        "t", "00" * 16, "timeline",
        (PartitionAssignment(6, ("b4",)), PartitionAssignment(7, ("b1", "b2", "b3"))), 3, 2,
    )  # fmt: skip
    registrations = {
        "b1": living("b1", "new1"), "b2": living("b2", "new2"), "b3": living("b3", "s3"), "b4": living("b4", "s4"),
    }  # fmt: skip
    held = {
        "b1": Holding("follower", 0, 0, 0),
        "b2": Holding("follower", 0, 0, 0),
        "b3": Holding("follower", 4, 120, 118),
    }
    return PartitionFacts(topic, 1, 12, PartitionNode("b1", 11, 5, (B1, B2)), registrations, held)


def with_living(facts: PartitionFacts, *registrations: Registration) -> PartitionFacts:
    return replace(
        facts, registrations={**facts.registrations, **{seen.broker_id: seen for seen in registrations}}
    )


def test_when_every_disk_of_the_isr_is_replaced_a_survivor_may_go_on(facts: PartitionFacts) -> None:
    assert reason_against(facts) == ""
    assert reason_against(facts, "b3") == ""
    assert facts.wanted("b3") == PartitionNode("", 0, 5, (Member("b3", "s3"),))
    assert best_survivor(facts) == "b3"


def test_a_living_leader_is_left_alone(facts: PartitionFacts) -> None:
    assert "b1 (epoch 5), which lives" in reason_against(with_living(facts, living("b1", "s1", 11)))


def test_a_member_with_the_disk_that_the_isr_names_will_lead(facts: PartitionFacts) -> None:
    reason = reason_against(with_living(facts, living("b2", "s2")))
    assert "b2 is up with the disk s2" in reason
    assert "wait" in reason


@pytest.mark.parametrize("role", ["installing", "unproven"])
def test_a_member_whose_own_data_is_incomplete_is_lost(facts: PartitionFacts, role: str) -> None:
    found = with_living(facts, living("b2", "s2"))
    found = replace(found, held={**facts.held, "b2": Holding(role, 0, 0, 0)})
    assert found.fate(B2) is Fate.UNUSABLE
    assert reason_against(found) == ""
    reason = reason_against(found, "b2")
    assert ("only a part" if role == "installing" else "recover from b3") in reason


def test_who_is_away_counts_as_lost_only_if_a_person_says_so(facts: PartitionFacts) -> None:
    registrations = {"b3": facts.registrations["b3"]}
    found = replace(facts, registrations=registrations, held={"b3": facts.held["b3"]})
    assert [found.fate(member) for member in found.node.isr] == [Fate.AWAY, Fate.AWAY]
    assert reason_against(found) == ""


def test_who_is_no_replica_or_not_up_cannot_go_on(facts: PartitionFacts) -> None:
    assert "b4 is not a replica of t/1; its replicas are b1, b2, b3" in reason_against(facts, "b4")
    gone = replace(facts, registrations={k: v for k, v in facts.registrations.items() if k != "b3"})
    assert "b3 is not registered" in reason_against(gone, "b3")


@pytest.mark.parametrize("other", [Holding("follower", 4, 121, 0), Holding("follower", 5, 3, 0)])
def test_who_holds_less_than_another_replica_does_not_go_on(facts: PartitionFacts, other: Holding) -> None:
    found = replace(facts, held={**facts.held, "b2": other})
    assert best_survivor(found) == "b2"
    assert "recover from b2" in reason_against(found, "b3")


@pytest.mark.parametrize("silent", ["b1", "b2", "b3"])
@pytest.mark.parametrize("survivor", [None, "b2", "b3"])
def test_nothing_is_given_up_while_a_living_replica_does_not_say_what_it_holds(
    facts: PartitionFacts, silent: str, survivor: str | None
) -> None:
    """It may hold acknowledged messages which the others lack, as a replica that is paused for a moment does."""
    found = replace(
        facts, held={broker_id: held for broker_id, held in facts.held.items() if broker_id != silent}
    )
    assert f"{silent} is up and does not say what it holds" in reason_against(found, survivor)


def test_a_replica_that_is_stopped_need_not_say_what_it_holds(facts: PartitionFacts) -> None:
    registrations = {key: seen for key, seen in facts.registrations.items() if key != "b2"}
    found = replace(facts, registrations=registrations, held={"b1": facts.held["b1"], "b3": facts.held["b3"]})
    assert reason_against(found, "b3") == ""


def test_when_nobody_answers_there_is_no_best_survivor(facts: PartitionFacts) -> None:
    assert best_survivor(replace(facts, held={})) == ""


def test_looking_shows_disks_and_logs_and_says_what_would_be_lost(
    facts: PartitionFacts, capsys: pytest.CaptureFixture[str]
) -> None:
    assert show(facts, None, as_json=False) == 2
    page = capsys.readouterr().out
    for word in ("no leader lives", "s1", "new1", "up with another disk", "120", "118"):
        assert word in page
    assert "--from b3 --accept-loss" in page
    assert "lost" in page


def test_looking_at_what_needs_no_recovery_says_so_below_the_tables(
    facts: PartitionFacts, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RecoveryRefused, match="will lead; wait"):
        show(with_living(facts, living("b2", "s2")), "b3", as_json=False)
    assert "up with this disk" in capsys.readouterr().out


def test_json_has_everything_and_the_reason(
    facts: PartitionFacts, capsys: pytest.CaptureFixture[str]
) -> None:
    assert show(facts, "b3", as_json=True) == 2
    shown = json.loads(capsys.readouterr().out)
    assert shown == document(facts, "")
    assert shown["isr"][0] == {"broker": "b1", "store_id": "s1", "fate": "replaced"}
    assert shown["replicas"][2]["held"] == {"role": "follower", "last_epoch": 4, "end": 120, "commit": 118}
    assert (shown["best"], shown["refused"]) == ("b3", "")
    assert show(facts, "b4", as_json=True) == 1
    assert "not a replica" in json.loads(capsys.readouterr().out)["refused"]


# ---------------------------------------------------------------- the command


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that is taken, but where nobody answers."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["t", "0"], "--zookeeper"),
        (["t", "-1", "--zookeeper", "127.0.0.1:1"], "-1"),
        (["t", "0", "--zookeeper", "127.0.0.1:1", "--accept-loss"], "--from BROKER"),
        (["t", "0", "--zookeeper", "127.0.0.1:1", "--accept-loss", "--from", "b", "--json"], "--json"),
        (["t", "0", "--zookeeper", "127.0.0.1:1//x"], "root"),
    ],
)
def test_wrong_usage_is_2_and_says_what_is_wrong(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DUEQ_ZOOKEEPER", raising=False)
    assert run(["partition", "recover", *words]) == 2
    assert why in capsys.readouterr().err


def test_no_zookeeper_is_one_line_and_1(closed_port: int, capsys: pytest.CaptureFixture[str]) -> None:
    address = f"127.0.0.1:{closed_port}"
    assert run(["partition", "recover", "t", "0", "--zookeeper", address, "--timeout", "0.3"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"dueq: CoordinatorUnavailable: ZooKeeper at {address} did not answer")
    assert len(captured.err.strip().splitlines()) == 1
