"""Who waits for a checkpoint, and which one that is."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from dueq.core.partition.checkpoints import Checkpoints
from dueq.core.turn.deadlines import Deadlines
from dueq.instant import Now

UID = 1
NOW = Now(60_000_000, 60_000_000)


class Replica:
    """A replica whose disk saves a checkpoint when it is told to."""

    def __init__(self) -> None:
        self.uid, self.applied = UID, 3
        self.wants_checkpoint = False
        self.settings = SimpleNamespace(broker_id="b1")
        self.checkpoints: Deadlines[int] = Deadlines()
        self.under_way: list[Callable[[Now], None]] = []
        self.told: list[str] = []
        self.hidden: frozenset[int] = frozenset()
        self.seen: list[frozenset[int]] = []
        self.touched = False
        context: Any = self
        self.care = Checkpoints(context, context, context, NOW)

    def checkpoint(self) -> object:
        return SimpleNamespace(applied=self.applied)

    def hidden_jobs(self) -> frozenset[int]:
        return self.hidden

    def checkpoint_saved(self, applied: int) -> None:
        """It is all the same to these tests."""

    def persist(self, write: object) -> None:
        """It is saved by `saved`."""

    def touch(self, partition: object) -> None:
        self.touched = True

    def when_persisted(self, then: Callable[[Now], None]) -> None:
        self.under_way.append(then)

    def ask(self, name: str) -> None:
        def saved(hidden: frozenset[int], now: Now) -> None:
            self.told.append(name)
            self.seen.append(hidden)

        self.care.after(saved, NOW)

    def made(self) -> bool:
        return self.care.make(NOW) is not None

    def filled_anew(self) -> None:
        context: Any = self
        self.care.leadership_lost()
        self.care.begin(context)

    def saved(self) -> None:
        self.under_way.pop(0)(NOW)


def test_who_asks_when_all_is_on_the_disk_is_told_at_once() -> None:
    replica = Replica()
    replica.ask("first")
    assert replica.told == ["first"]


def test_who_asks_is_told_when_a_checkpoint_has_what_was_applied_by_then() -> None:
    replica = Replica()
    replica.applied = 5
    replica.ask("first")
    assert replica.made()
    replica.applied = 7
    replica.ask("second")
    assert not replica.made()  # one at a time
    replica.saved()
    assert replica.told == ["first"]  # the one that was saved has nothing of what came while it was under way
    assert replica.made()
    replica.saved()
    assert replica.told == ["first", "second"]


def test_checkpoints_are_made_again_after_the_disk_was_filled_anew_while_one_was_under_way() -> None:
    """It counts no more, so nothing says that it has ended."""
    replica = Replica()
    replica.applied = 5
    replica.ask("of the disk that goes")
    assert replica.made()
    replica.filled_anew()
    replica.applied = 7
    replica.ask("of the disk that came")
    assert replica.made()


def test_none_is_made_while_somebody_reads_the_disk_as_it_is() -> None:
    replica = Replica()
    replica.applied = 5
    replica.ask("first")
    replica.care.hold()
    assert not replica.made()
    replica.touched = False
    replica.care.let_go()
    assert replica.touched, "there may be nothing else that would have it made"
    assert replica.made()


def test_who_waits_is_told_which_jobs_hid_their_messages_at_that_checkpoint() -> None:
    """What it reads then has messages that nobody is shown."""
    replica = Replica()
    replica.applied, replica.hidden = 5, frozenset({8})
    replica.ask("first")
    assert replica.made()
    replica.hidden = frozenset()
    replica.saved()
    replica.ask("second")
    assert replica.seen == [frozenset({8}), frozenset({8})]
