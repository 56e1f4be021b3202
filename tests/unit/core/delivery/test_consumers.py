"""Who gets how much: rows are dealt in runs, and shares stay even."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from dueq.core.delivery.consumers import RUN_ROWS, Consumers, ConsumerSession, Turn
from dueq.limits import DEAL_LOOKS_MAX
from tests.unit.core.led import Stage, at


def _line(
    count: int, credit: int = 1_000, credit_bytes: int = 1 << 30
) -> tuple[Consumers, list[ConsumerSession]]:
    consumers = Consumers()
    sessions = []
    for number in range(count):
        session = consumers.open(bytes([number]) * 16, at(0))
        session.credit, session.credit_bytes, session.reachable = credit, credit_bytes, True
        consumers.offer(session, at(0))
        sessions.append(session)
    return consumers, sessions


def _deal(
    consumers: Consumers, waits: list[int], sizes: list[int] | None = None, turn: Turn | None = None
) -> list[int]:
    """Deal rows; returns the session number of each, 0 for one that found nobody."""
    weights = np.array(sizes if sizes is not None else [10] * len(waits), np.uint32)
    deal = consumers.deal(weights, np.array(waits, np.uint64), turn or Turn(), at(0))
    owners = [deal.owners[index].number_here for index in deal.column.tolist()]
    if deal.rows is None:
        return owners
    dealt = [0] * len(waits)
    for row, owner in zip(deal.rows.tolist(), owners, strict=True):
        dealt[row] = owner
    return dealt


def _finish(consumers: Consumers, owners: list[int], size: int = 10) -> None:
    """All of these leases end."""
    kept = [owner for owner in owners if owner]
    if kept:
        consumers.give_back(np.array(kept), np.full(len(kept), size, np.uint32), at(0))


def test_rows_of_one_millisecond_go_to_one_consumer_in_runs() -> None:
    consumers, _ = _line(3)
    assert _deal(consumers, [5] * 20) == [1] * RUN_ROWS + [2] * RUN_ROWS + [3] * 4
    # The third was dealt least.
    assert _deal(consumers, [6, 6, 7, 8, 9, 9]) == [3, 3, 3, 3, 1, 1]


def test_single_messages_go_round() -> None:
    consumers, _ = _line(3)
    assert [_deal(consumers, [due])[0] for due in range(7)] == [1, 2, 3, 1, 2, 3, 1]


def test_partitions_that_are_dealt_in_one_turn_make_common_runs() -> None:
    consumers, _ = _line(2)
    turn = Turn()
    assert _deal(consumers, [5, 5, 6], turn=turn) == [1, 1, 2]
    assert _deal(consumers, [5, 6, 6], turn=turn) == [1, 2, 2]
    assert sorted(_deal(consumers, [5, 6])) == [1, 2]  # a turn of its own: both were dealt three


def test_who_has_a_credit_of_one_gets_one_at_a_time() -> None:
    consumers, _ = _line(2, credit=1)
    assert _deal(consumers, [5, 5, 5]) == [1, 2, 0]
    assert _deal(consumers, [5]) == [0]
    _finish(consumers, [2])
    assert _deal(consumers, [5, 5]) == [2, 0]


def test_who_joins_late_has_no_claim_to_what_others_got_before() -> None:
    consumers, _ = _line(1)
    _finish(consumers, _deal(consumers, [5] * 500))
    other = consumers.open(b"o" * 16, at(0))
    other.credit, other.credit_bytes, other.reachable = 1_000, 1 << 30, True
    consumers.offer(other, at(0))
    owners = _deal(consumers, list(range(100)))
    assert abs(owners.count(1) - owners.count(other.number_here)) <= RUN_ROWS


@pytest.mark.parametrize("rows_a_millisecond", [(2, 2), (1, 3), (0, 12)])
@pytest.mark.parametrize("credit_bytes", [1 << 30, 400])
@pytest.mark.parametrize("rows_a_deal", [1, 2, 5, 60])
def test_shares_are_even_over_a_second(
    rows_a_millisecond: tuple[int, int], credit_bytes: int, rows_a_deal: int
) -> None:
    rng = Random(f"{rows_a_millisecond} {credit_bytes} {rows_a_deal}")
    waits = [ms for ms in range(1_000) for _ in range(rng.randint(*rows_a_millisecond))]
    consumers, sessions = _line(3, credit=50, credit_bytes=credit_bytes)
    counts = dict.fromkeys((session.number_here for session in sessions), 0)
    out: list[int] = []
    while waits:
        dealt = _deal(consumers, waits[:rows_a_deal])
        waits = [wait for wait, owner in zip(waits[:rows_a_deal], dealt, strict=True) if not owner] + waits[
            rows_a_deal:
        ]
        out += [owner for owner in dealt if owner]
        for owner in dealt:
            if owner:
                counts[owner] += 1
        rng.shuffle(out)
        keep = rng.randrange(30)
        _finish(consumers, out[keep:])
        out = out[:keep]
    even = sum(counts.values()) / 3
    assert all(abs(count - even) <= 0.05 * even for count in counts.values()), counts


@pytest.mark.parametrize("busy", [1, 3])
def test_an_idle_consumer_gets_what_does_not_fit_those_that_are_next(busy: int) -> None:
    consumers, sessions = _line(busy + 1, credit_bytes=1_000)
    assert _deal(consumers, [1] * busy, [600] * busy) == list(range(1, busy + 1))
    sessions[-1].served = 9
    assert _deal(consumers, [2], [600]) == [busy + 1]
    assert _deal(consumers, [3], [600]) == [0]


def test_a_heavy_row_keeps_its_claim_and_light_ones_go_on() -> None:
    consumers, _ = _line(2, credit_bytes=100)
    assert _deal(consumers, [1, 1, 1, 1], [60, 60, 60, 10]) == [1, 2, 0, 2]
    _finish(consumers, [1], 60)
    assert _deal(consumers, [1], [60]) == [1]


def test_no_more_bytes_are_out_than_the_credit_allows_but_for_a_single_message() -> None:
    rng = Random(7)
    consumers, sessions = _line(4, credit=20, credit_bytes=300)
    out: list[tuple[int, int]] = []
    for _ in range(500):
        sizes = [rng.choice((5, 50, 200, 1_000)) for _ in range(rng.randint(1, 12))]
        waits = sorted(rng.randrange(3) for _ in sizes)
        out += [
            (owner, size) for owner, size in zip(_deal(consumers, waits, sizes), sizes, strict=True) if owner
        ]
        for session in sessions:
            mine = [size for owner, size in out if owner == session.number_here]
            assert (session.rows_out, session.bytes_out) == (len(mine), sum(mine))
            assert len(mine) <= 20
            assert sum(mine) <= 300 or len(mine) == 1
        rng.shuffle(out)
        for owner, size in out[len(out) // 2 :]:
            _finish(consumers, [owner], size)
        out = out[: len(out) // 2]


@pytest.mark.parametrize("credit_bytes", [1 << 20, 800])
def test_three_consumers_share_2000_messages_of_a_second_evenly(credit_bytes: int) -> None:
    rng = Random(credit_bytes)
    stage = Stage(partitions=3)
    names = [bytes([name]) * 16 for name in b"abc"]
    for name in names:
        stage.attach(0, name, credit=200, credit_bytes=credit_bytes, lease_ms=60_000)
    for uid in stage.leds:
        stage.insert([rng.randrange(40, 1_040) for _ in range(667)], uid=uid, size=8)
    counts = dict.fromkeys(names, 0)
    frames = 0
    for ms in range(0, 1_060, 2):
        if ms % 400 == 0:
            for number, name in enumerate(names):
                stage.beat(
                    ms, name, credit=200, credit_bytes=credit_bytes, number=2 + ms + number, push_seen=1 << 40
                )
        for push in stage.run(ms):
            counts[push.consumer_id] += len(push.rows)
            frames += 1
            stage.ack(push, ms)
    assert sum(counts.values()) == 2_001
    assert all(abs(count - 667) <= 0.05 * 667 for count in counts.values()), counts
    assert frames < 2_001 / 2


@pytest.mark.parametrize("shrinks", [False, True], ids=["alike", "each a little smaller"])
def test_messages_that_fit_nobody_are_not_held_against_every_consumer(
    monkeypatch: pytest.MonkeyPatch, shrinks: bool
) -> None:
    """One client may open thousands of consumers, each with a message and hardly any room for another."""
    count, rows = 1_500, 1_000
    consumers = Consumers()
    for number in range(count):
        session = consumers.open(number.to_bytes(16, "big"), at(0))
        session.credit, session.reachable, session.rows_out = 1_000, True, 1
        session.credit_bytes = 10_000 - number
        consumers.offer(session, at(0))
    looks = 0
    fits = ConsumerSession.fits

    def counted(session: ConsumerSession, size: int) -> bool:
        nonlocal looks
        looks += 1
        return fits(session, size)

    monkeypatch.setattr(ConsumerSession, "fits", counted)
    sizes = [10_001 - row * shrinks for row in range(rows)]
    assert _deal(consumers, [1] * rows, sizes) == [0] * rows
    assert looks <= DEAL_LOOKS_MAX + count
    assert len(consumers._line) == count
    assert all(_deal(consumers, [1], [10]))


def test_each_message_that_fits_nobody_keeps_one_consumer_free() -> None:
    """The emptiest drains, and so on: a smaller one behind goes to the fuller ones."""
    consumers, sessions = _line(4, credit_bytes=100)
    for session, out in zip(sessions, (40, 10, 20, 30), strict=True):
        session.rows_out, session.bytes_out = 1, out
    assert _deal(consumers, [1, 1, 1, 1], [95, 95, 60, 60]) == [0, 0, 1, 4]
    assert _deal(consumers, [1, 1, 1], [95, 95, 95]) == [0, 0, 0]


def test_large_messages_of_several_partitions_keep_one_consumer_free_each() -> None:
    """A further one is left out for each of them, and smaller ones of other partitions go to the rest."""
    consumers, sessions = _line(3, credit_bytes=100)
    for session in sessions:
        session.rows_out, session.bytes_out = 1, 60
    turn = Turn()
    for waits in range(2):
        assert _deal(consumers, [waits], [80], turn) == [0]
    assert _deal(consumers, [2], [10], turn) == [3]
    assert _deal(consumers, [3], [80], turn) == [0]
    assert _deal(consumers, [4], [10], turn) == [0]


def test_a_backlog_for_which_there_is_room_to_the_byte_goes_out_in_long_runs() -> None:
    """In short ones it would cost many times the frames."""
    backlog = [5] * 200
    owners = _deal(_line(2, credit_bytes=2_000)[0], backlog)
    assert owners == _deal(_line(2)[0], backlog)
    assert owners[: 2 * RUN_ROWS] == [1] * 2 * RUN_ROWS
