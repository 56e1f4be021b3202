"""Whatever happens, every fault that has begun is undone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest

from dueq.errors import DueqError
from dueq_chaos.nemesis.conductor import Conductor
from dueq_chaos.nemesis.plan import Step
from dueq_chaos.nemesis.target import Target


class _Diary:
    """Notes what faults ask of a target; refuses what it is told to."""

    brokers = ("b1", "b2", "b3")

    def __init__(self, refused: str = "") -> None:
        self.entries: list[str] = []
        self._refused = refused

    def choose(self, who: str) -> list[str]:
        return [who]

    def text(self, brokers: Sequence[str]) -> str:
        return ", ".join(brokers)

    def hold_down(self, broker: str, fault: object) -> None:
        self._note(f"down {broker}")

    def let_up(self, fault: object) -> None:
        self._note("up")

    def pause(self, broker: str, fault: object) -> None:
        self._note(f"pause {broker}")

    def resume(self, fault: object) -> None:
        self._note("resume")

    def _note(self, text: str) -> None:
        self.entries.append(text)
        if text == self._refused:
            raise DueqError("no")


_KILL, _PAUSE = Step(0, 0.01, "kill", "b1"), Step(0, 60, "pause", "b2")


def _conductor(diary: _Diary) -> Conductor:
    return Conductor(cast(Target, diary))


def test_faults_begin_and_end_as_planned() -> None:
    diary = _Diary()
    conductor = _conductor(diary)
    conductor.play((_KILL,), 0.0, lambda: True)
    assert diary.entries == ["down b1", "up"]
    (happening,) = conductor.happenings
    assert happening.text == "kill -9 b1"
    assert happening.end_s is not None
    assert happening.end_s >= happening.begin_s


def test_an_interruption_undoes_what_lasts() -> None:
    diary = _Diary()
    conductor = _conductor(diary)
    conductor.play((_PAUSE,), 60, lambda: not conductor.broken)
    assert diary.entries == ["pause b2", "resume"]
    assert not conductor.broken


def test_an_error_of_the_watcher_undoes_what_lasts() -> None:
    diary = _Diary()

    def fail() -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _conductor(diary).play((_PAUSE,), 60, fail)
    assert diary.entries == ["pause b2", "resume"]


def test_a_fault_that_fails_half_way_is_undone_and_said() -> None:
    diary = _Diary(refused="pause b2")
    conductor = _conductor(diary)
    conductor.play((_PAUSE,), 60, lambda: not conductor.broken)
    assert diary.entries == ["pause b2", "resume"]
    assert conductor.happenings[0].trouble == "DueqError: no"


def test_a_fault_that_cannot_be_undone_keeps_no_other_from_being_undone() -> None:
    diary = _Diary(refused="resume")
    conductor = _conductor(diary)
    conductor.play((Step(0, 60, "kill", "b1"), _PAUSE), 60, lambda: len(conductor.broken) < 2)
    assert diary.entries == ["down b1", "pause b2", "resume", "up"]
    assert [happening.trouble for happening in conductor.happenings] == ["", "DueqError: no"]
