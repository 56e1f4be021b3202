"""An accepted Hello says who speaks on a connection."""

from __future__ import annotations

from typing import Any

import pytest

from dueq.broker.introductions import Identity, Introductions
from dueq_codecs.messages import PROTOCOL_VERSION, Code
from tests.unit.broker.stage import CLUSTER, broker_hello


def introductions() -> Introductions:
    return Introductions(Identity("b1", 1, CLUSTER))


def test_an_accepted_hello_binds_its_connection() -> None:
    known = introductions()
    assert known.accept(b"x", broker_hello("b2", incarnation=7)) is None
    assert known.life_of(b"x") == ("b2", 7)
    assert known.life_of(b"y") is None


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"cluster_id": "c2"}, Code.WRONG_CLUSTER),
        ({"cluster_id": ""}, Code.WRONG_CLUSTER),
        ({"protocol_min": PROTOCOL_VERSION + 1, "protocol_max": PROTOCOL_VERSION + 2}, Code.WRONG_VERSION),
        ({"protocol_min": 0, "protocol_max": PROTOCOL_VERSION - 1}, Code.WRONG_VERSION),
    ],
)
def test_a_hello_of_another_cluster_or_version_is_refused(changes: dict[str, Any], code: Code) -> None:
    known = introductions()
    refusal = known.accept(b"x", broker_hello("b2", **changes))
    assert refusal is not None
    assert refusal[0] is code
    assert known.life_of(b"x") is None


def test_nobody_is_accepted_before_the_cluster_is_known() -> None:
    known = Introductions(Identity("b1", 1))
    refusal = known.accept(b"x", broker_hello("b2", cluster_id=""))
    assert refusal is not None
    assert refusal[0] is Code.WRONG_CLUSTER


@pytest.mark.parametrize("name", ["", "b1", "b" * 65])
def test_a_peer_has_a_name_that_is_not_ours(name: str) -> None:
    """And none of megabytes: a thousand of them were kept."""
    refusal = introductions().accept(b"x", broker_hello(name))
    assert refusal is not None
    assert refusal[0] is Code.BAD_FRAME


@pytest.mark.parametrize("changes", [{"cluster_id": "c" * 1_000_000}, {"name": "b" * 1_000_000}])
def test_a_refusal_quotes_no_more_than_helps(changes: dict[str, Any]) -> None:
    """It goes to the log, once a second."""
    refusal = introductions().accept(b"x", broker_hello(**{"name": "b2", **changes}))
    assert refusal is not None
    assert len(refusal[1]) < 200


def test_of_two_connections_of_one_life_the_higher_attach_counts() -> None:
    known = introductions()
    assert known.accept(b"new", broker_hello("b2", attach=5)) is None
    assert known.accept(b"old", broker_hello("b2", attach=4)) is not None
    assert known.accept(b"twin", broker_hello("b2", attach=5)) is not None
    assert known.life_of(b"new") == ("b2", 1)
    assert known.accept(b"newer", broker_hello("b2", attach=6)) is None
    assert known.life_of(b"new") is None
    assert known.life_of(b"newer") == ("b2", 1)


def test_a_hello_may_be_repeated_on_its_connection() -> None:
    known = introductions()
    assert known.accept(b"x", broker_hello("b2", attach=5)) is None
    assert known.accept(b"x", broker_hello("b2", attach=5)) is None
    assert known.life_of(b"x") == ("b2", 1)


def test_a_late_hello_of_an_earlier_life_does_not_unbind_the_present_one() -> None:
    """Which life is the present one is for the core to know."""
    known = introductions()
    assert known.accept(b"new", broker_hello("b2", incarnation=3, attach=1)) is None
    assert known.accept(b"old", broker_hello("b2", incarnation=2, attach=9)) is None
    assert known.life_of(b"new") == ("b2", 3)


def test_a_connection_that_says_another_name_is_bound_to_that_alone() -> None:
    known = introductions()
    assert known.accept(b"x", broker_hello("b2")) is None
    assert known.accept(b"x", broker_hello("b3")) is None
    assert known.life_of(b"x") == ("b3", 1)
    assert known.accept(b"y", broker_hello("b2")) is None
    assert known.life_of(b"y") == ("b2", 1)


def test_who_says_hello_under_a_thousand_names_takes_no_more_room() -> None:
    known = introductions()
    for number in range(3_000):
        assert known.accept(number.to_bytes(5, "big"), broker_hello(f"b{number + 2}")) is None
    bound = sum(known.life_of(number.to_bytes(5, "big")) is not None for number in range(3_000))
    assert bound == 1_024
    assert known.life_of((2_999).to_bytes(5, "big")) is not None
