"""Connections that all receivers share, and that none of them takes from the others."""

from __future__ import annotations

import pytest

pytest.importorskip("aiohttp")

from dueq.gateway.webhooks.room import Room, Share


def filled(share: Share) -> int:
    """Begin as many requests as there is room for; return how many."""
    before = share.under_way
    while share.free:
        share.begin()
    return share.under_way - before


def test_who_never_answers_leaves_the_others_their_shares() -> None:
    room = Room(100)
    hanging, busy, third = (room.share(lambda: None) for _ in range(3))
    assert filled(hanging) == 50
    assert filled(busy) == filled(third) == 50 // 3


def test_one_alone_has_half_and_all_together_have_no_more_than_all() -> None:
    room = Room(64)
    shares = [room.share(lambda: None) for _ in range(32)]
    assert sum(map(filled, shares)) == room.under_way <= 64


def test_more_than_there_is_room_for_have_one_each() -> None:
    room = Room(4)
    shares = [room.share(lambda: None) for _ in range(10)]
    assert filled(shares[0]) == 2
    assert [filled(each) for each in shares[1:]] == [1] * 9


def test_who_waits_is_woken_when_there_is_room() -> None:
    room, woken = Room(4), list[str]()
    first, second = room.share(lambda: woken.append("first")), room.share(lambda: woken.append("second"))
    filled(first)
    filled(second)
    first.end()
    assert woken == ["first"], "its own share is free again"
    second.end()
    assert woken == ["first", "second"]


def test_who_waits_is_woken_when_another_leaves() -> None:
    room, woken = Room(4), list[str]()
    first, second = room.share(lambda: woken.append("first")), room.share(lambda: None)
    assert (filled(first), filled(second)) == (2, 1)
    second.end()
    second.leave()
    assert woken == ["first"]
    assert room.each == 2


def test_who_has_given_up_takes_nobodys_turn() -> None:
    room, woken = Room(4), list[str]()
    busy = room.share(lambda: woken.append("busy"))
    first, second = room.share(lambda: woken.append("first")), room.share(lambda: woken.append("second"))
    assert (filled(busy), filled(first), filled(second)) == (2, 1, 1)
    busy.give_up()
    first.give_up()
    for share in (busy, busy, first):
        share.end()
    assert woken == ["second"]


def test_who_gives_up_as_its_turn_comes_lets_the_next_one_have_it() -> None:
    room, woken = Room(4), list[str]()
    busy = room.share(lambda: woken.append("busy"))
    first, second = room.share(lambda: woken.append("first")), room.share(lambda: woken.append("second"))
    assert (filled(busy), filled(first), filled(second)) == (2, 1, 1)
    busy.give_up()
    for share in (busy, busy, first):
        share.end()
    assert woken == ["first"]
    first.give_up()
    assert woken == ["first", "second"]
