"""Where bytes of credit are short, a large message has a claim to a consumer."""

from __future__ import annotations

import pytest

from dueq_codecs.groups import GroupSettings
from dueq_codecs.messages import Push
from dueq_codecs.records import RecordKind
from tests.unit.core.led import ALICE, Stage, at, keys_in

KINDS = ("timeline", "priority", "fair")
HOUR_MS = 3_600_000
LARGE = 1_000


def attach(stage: Stage, ms: int, name: bytes) -> None:
    stage.attach(ms, name, credit=10, credit_bytes=LARGE, lease_ms=HOUR_MS)


def beat(stage: Stage, ms: int, name: bytes, number: int) -> None:
    stage.beat(ms, name, number=number, credit=10, credit_bytes=LARGE, lease_ms=HOUR_MS, push_seen=1 << 40)


def ack_first(stage: Stage, ms: int, held: list[tuple[int, int, int]]) -> None:
    """Settle the message that is held longest."""
    uid, key, token = held.pop(0)
    stage.leds[uid].change(RecordKind.ACK, [key], at(ms), token=[token])
    stage.commit(ms)


def rows_of(pushes: list[Push]) -> list[tuple[int, int, int]]:
    return [
        row
        for push in pushes
        for row in zip(push.uid.tolist(), keys_in(push), push.token.tolist(), strict=True)
    ]


def came_among_small_ones(
    stage: Stage, uid: int, held: list[tuple[int, int, int]], until_ms: int
) -> list[tuple[int, int]]:
    """Small messages keep coming to a partition, and ALICE settles one at a time; returns (uid, key) of what came."""
    seen: list[tuple[int, int]] = []
    for ms in range(3, until_ms, 10):
        stage.insert([ms], ms=ms, uid=uid, size=100)
        came = rows_of(stage.run(ms))
        seen += [(row[0], row[1]) for row in came]
        held += came
        if held:
            ack_first(stage, ms, held)
        beat(stage, ms, ALICE, ms)
    return seen


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("partitions", [1, 2])
@pytest.mark.parametrize("large_uid", [1, 2])
def test_small_messages_that_keep_coming_do_not_starve_a_large_one(
    kind: str, partitions: int, large_uid: int
) -> None:
    """One consumer, which always has some small ones; those of another partition have no claim before it, either."""
    uid, other = min(large_uid, partitions), 1 + (large_uid % partitions)
    stage = Stage(partitions=partitions, kind=kind)
    attach(stage, 0, ALICE)
    stage.insert([0] * 6, uid=other, size=100)
    held = rows_of(stage.run(1))
    assert len(held) == 6
    [large] = stage.insert([2], ms=2, uid=uid, size=900)
    assert (uid, large) in came_among_small_ones(stage, other, held, until_ms=203)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("uid", [1, 2])
@pytest.mark.parametrize("size", [100, 900])
def test_a_partition_that_always_has_more_does_not_starve_another(kind: str, uid: int, size: int) -> None:
    """Its messages wait in vain for longer than the other's, while there is credit for one at a time."""
    other = 3 - uid
    stage = Stage(partitions=2, kind=kind)
    attach(stage, 0, ALICE)
    stage.insert([0] * 20, uid=other, size=100)
    held = rows_of(stage.run(1))
    [key] = stage.insert([2], ms=2, uid=uid, size=size)
    assert (uid, key) in came_among_small_ones(stage, other, held, until_ms=403)


@pytest.mark.parametrize("uid", [1, 2])
def test_a_partition_whose_groups_get_nothing_does_not_starve_another(uid: int) -> None:
    """It is ready for longest, and asked first."""
    stage = Stage(partitions=2, kind="fair")
    groups = stage.leds[uid].timeline.groups
    stage.insert([0], uid=uid, group="closed")
    group = groups.by_name["closed"]
    group.settings = GroupSettings(paused=True)
    groups.limited["closed"] = group
    stage.attach(0, credit=1)
    keys = stage.insert([2] * 3, ms=2, uid=3 - uid)
    for ms, key in enumerate(keys, 3):
        held = rows_of(stage.run(ms))
        assert [(row[0], row[1]) for row in held] == [(3 - uid, key)]
        ack_first(stage, ms, held)


def test_where_bytes_are_short_the_smallest_ranks_of_all_partitions_come_first() -> None:
    stage = Stage(partitions=2, kind="priority")
    attach(stage, 0, ALICE)
    for _ in range(4):
        stage.insert([0], uid=1, size=250, rank=9)
    [first] = stage.insert([0], uid=1, size=250)
    seconds = [stage.insert([0], uid=2, size=250, rank=1)[0] for _ in range(4)]
    came = [(row[0], row[1]) for row in rows_of(stage.run(1))]
    assert came == [(1, first), *((2, key) for key in seconds[:3])]
