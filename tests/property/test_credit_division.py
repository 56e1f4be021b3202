"""Credit: never more in force than the user allows, and nobody starves, whatever leaders say in which order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dueq.client.core.consuming.credit import Share, affordable, wanted

shares = st.lists(
    st.builds(
        Share,
        limit=st.integers(0, 300),
        held=st.integers(0, 300),
        waiting=st.integers(0, 2_000),
        promised=st.integers(0, 1_000),
        coming=st.integers(0, 20),
    ),
    min_size=1,
    max_size=12,
)


@given(st.integers(1, 600), shares)
def test_the_whole_credit_is_divided(credit: int, leaders: list[Share]) -> None:
    limits = wanted(credit, leaders)
    assert sum(limits) == credit
    assert min(limits) >= 0


@given(st.integers(1, 600), shares)
def test_what_is_held_keeps_its_credit_and_where_messages_wait_some_goes(
    credit: int, leaders: list[Share]
) -> None:
    limits = wanted(credit, leaders)
    held = sum(share.held for share in leaders)
    if held <= credit:
        assert all(limit >= share.held for limit, share in zip(limits, leaders, strict=True))
    kept = held + sum(share.promised for share in leaders)
    if credit - kept >= 2 * len(leaders):
        starved = [
            s for limit, s in zip(limits, leaders, strict=True) if s.waiting and not s.held and not limit
        ]
        assert not starved


@given(st.integers(1, 600), shares)
def test_told_limits_never_add_up_to_more_than_the_credit(credit: int, leaders: list[Share]) -> None:
    before = sum(share.most for share in leaders)
    told = affordable(credit, leaders, wanted(credit, leaders))
    raised = sum(max(limit - share.limit, 0) for limit, share in zip(told, leaders, strict=True))
    assert raised <= max(credit - before, 0)


@given(st.integers(1, 4), st.lists(st.integers(1, 30), min_size=1, max_size=6))
def test_with_little_credit_every_leader_is_served_in_turn(credit: int, waiting: list[int]) -> None:
    """Leaders confirm at once; each message that a leader has credit for is pushed and acked."""
    leaders = [Share(0, 0, number) for number in waiting]
    turn = 0
    for _ in range(3 * sum(waiting) + 3):
        for _ in range(2):  # lowered ones confirm, then the others can be raised
            told = affordable(credit, leaders, wanted(credit, leaders))
            for share, limit in zip(leaders, told, strict=True):
                if limit > share.limit:
                    turn += 1
                    share.served, share.promised = turn, limit - share.limit
                share.limit = limit
        assert sum(share.limit for share in leaders) <= credit
        for share in leaders:
            share.waiting -= min(share.limit, share.waiting)
            share.promised = 0
    assert [share.waiting for share in leaders] == [0] * len(leaders)
