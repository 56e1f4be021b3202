"""What leaders may have out to a consumer; `tests/property/test_credit_division.py` has all divisions at once."""

from __future__ import annotations

import pytest

from dueq.client.core.consuming.credit import Share, affordable


@pytest.mark.parametrize(
    "spread",
    [
        Share(limit=6, held=0, waiting=0),
        Share(limit=1, held=6, waiting=0),
        Share(limit=1, held=4, waiting=0, coming=2),
    ],
    ids=["has been granted", "is held", "is held or on its way"],
)
def test_what_a_leader_may_have_out_is_nobody_elses(spread: Share) -> None:
    assert affordable(10, [spread, Share(limit=2, held=0, waiting=9)], [1, 9]) == [1, 4]


def test_free_credit_is_lent_once() -> None:
    shares = [Share(limit=0, held=0, waiting=9) for _ in range(3)]
    assert affordable(10, shares, [6, 6, 6]) == [6, 4, 0]
