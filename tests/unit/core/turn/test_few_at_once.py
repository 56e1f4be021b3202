"""Work that is ordered elsewhere: a few pieces at a time, and none is forgotten."""

from __future__ import annotations

from dueq.core.turn.few_at_once import FewAtOnce, Start


class Work:
    """Pieces of work that note when they begin."""

    def __init__(self, most: int) -> None:
        self.few = FewAtOnce(most)
        self.begun: list[str] = []

    def want(self, name: str, *, first: bool = False, is_wanted: bool = True) -> None:
        self.few.begin(self._start(name, is_wanted), first=first)

    def _start(self, name: str, is_wanted: bool) -> Start:
        def start() -> bool:
            self.begun.append(name)
            return is_wanted

        return start


def test_no_more_than_a_few_are_under_way_and_the_others_follow_in_their_order() -> None:
    work = Work(2)
    for name in "abcd":
        work.want(name)
    assert work.begun == ["a", "b"]
    work.few.ended()
    assert work.begun == ["a", "b", "c"]
    work.few.ended()
    work.few.ended()
    assert work.begun == ["a", "b", "c", "d"]


def test_what_is_urgent_begins_before_all_that_came_earlier() -> None:
    work = Work(1)
    for name in "ab":
        work.want(name)
    for name in "xy":
        work.want(name, first=True)
    for _ in range(3):
        work.few.ended()
    assert work.begun == ["a", "x", "y", "b"]


def test_what_has_nothing_to_do_any_more_takes_no_place() -> None:
    """Nobody says that it has ended: after a few of them, nothing would ever begin again."""
    work = Work(1)
    for name in "abc":
        work.want(name, is_wanted=False)
    work.want("d")
    work.want("e", is_wanted=False)
    work.want("f")
    assert work.begun == ["a", "b", "c", "d"]
    work.few.ended()
    assert work.begun == ["a", "b", "c", "d", "e", "f"]
