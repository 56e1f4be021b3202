"""Random correct executions are never blamed; one fault put into one of them is found, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dueq_chaos.history.judging import Verdict
from tests.unit.history.ideal import Ideal, with_victim
from tests.unit.history.scribe import Scribe


@pytest.mark.parametrize("seed", range(40))
def test_a_correct_execution_is_never_blamed(seed: int, tmp_path: Path) -> None:
    judgement = Ideal(seed).play(60).judge(tmp_path)
    assert judgement.findings == {verdict: [] for verdict in Verdict}
    assert judgement.counts.delivered > 20


def delivered(scribe: Scribe, due: int = 5_000, released: float = 5_000.5) -> None:
    scribe.deliver("victim", due, released, token=7, lease=8_000, client="v")


def acked(scribe: Scribe) -> None:
    scribe.settle("ack", "victim", 5_100, 5_110, 7, client="v")


def nothing(scribe: Scribe) -> None:
    delivered(scribe)
    acked(scribe)


def drop_the_delivery(scribe: Scribe) -> None:
    """It never comes."""


def release_it_early(scribe: Scribe) -> None:
    delivered(scribe, released=4_900)
    acked(scribe)


def ignore_a_move(scribe: Scribe) -> None:
    scribe.move("victim", 9_000, 4_000, 4_010)
    nothing(scribe)


def ignore_a_cancel(scribe: Scribe) -> None:
    scribe.cancel("victim", 4_000, 4_010)
    nothing(scribe)


def forget_the_lease(scribe: Scribe) -> None:
    delivered(scribe)
    scribe.polls("v", 5_500, 14_000)
    scribe.deliver("victim", 5_000, 9_000, token=8, attempt=2, client="w")
    scribe.settle("ack", "victim", 9_100, 9_110, 8, client="w")


def forget_the_ack(scribe: Scribe) -> None:
    nothing(scribe)
    scribe.deliver("victim", 5_000, 9_000, token=8, attempt=2, client="w")
    scribe.settle("ack", "victim", 9_100, 9_110, 8, client="w")


def insert_it_twice(scribe: Scribe) -> None:
    nothing(scribe)
    payload = b"payload of victim"
    scribe.deliver("victims-copy", 5_000, 5_001, token=8, payload=payload, client="w")
    scribe.settle("ack", "victims-copy", 5_100, 5_110, 8, client="w")


def damage_it(scribe: Scribe) -> None:
    scribe.deliver("victim", 5_000, 5_000.5, token=7, payload=b"?", client="v")
    acked(scribe)


@pytest.mark.parametrize(
    ("fault", "verdict"),
    [
        (nothing, None),
        (drop_the_delivery, Verdict.LOST),
        (release_it_early, Verdict.EARLY),
        (ignore_a_move, Verdict.EARLY),
        (ignore_a_cancel, Verdict.CANCELLED),
        (forget_the_lease, Verdict.TWICE),
        (forget_the_ack, Verdict.AGAIN),
        (insert_it_twice, Verdict.UNEXPECTED),
        (damage_it, Verdict.DAMAGED),
    ],
)
@pytest.mark.parametrize("seed", range(100, 104))
def test_one_fault_is_found_and_nothing_else(
    fault: Callable[[Scribe], None], verdict: Verdict | None, seed: int, tmp_path: Path
) -> None:
    scribe = with_victim(seed)
    fault(scribe)
    found = scribe.judge(tmp_path).findings
    assert {v: len(messages) for v, messages in found.items() if messages} == (
        {verdict: 1} if verdict else {}
    )
