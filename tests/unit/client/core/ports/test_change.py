"""The parts that wait in a window: in order, and when the first of them is to go."""

from __future__ import annotations

import numpy as np

from dueq.client.core.ports.change import NEVER_US, Change, Part, RequestWindow
from dueq_codecs.records import RecordKind

PARTS = 400


class WatchedPart(Part):
    """Counts how often anybody asks when a part is to go."""

    looks = 0

    @property
    def send_by_us(self) -> int:
        WatchedPart.looks += 1
        return self._at_us

    @send_by_us.setter
    def send_by_us(self, at_us: int) -> None:
        self._at_us = at_us


def part(at_us: int = NEVER_US, kind: RecordKind = RecordKind.ACK, name: int = 1) -> Part:
    one = np.array([name], np.uint64)
    return WatchedPart(
        kind, "departures", 1, b"i" * 16, 1, lambda part: None, first=one, target_sequence=one,
        target_row=np.array([0], np.uint16), token=one,
        amount_ms=one if kind is RecordKind.EXTEND else np.empty(0, np.uint64), send_by_us=at_us,
    )  # fmt: skip


def window_of(*parts: Part) -> RequestWindow:
    window = RequestWindow(1)
    for each in parts:
        window.push(each, 0)
    return window


def test_what_is_taken_out_does_not_say_any_more_when_to_send() -> None:
    first, second, third = part(10), part(20), part()
    window = window_of(first, second, third)
    assert window.send_by_us == 10
    assert window.remove(first)
    assert not window.remove(first)
    assert window.send_by_us == 20
    assert window.remove(second)
    assert window.send_by_us == NEVER_US
    assert (list(window.waiting), window.rows) == ([third], 1)


def test_a_part_that_waits_again_says_so_again() -> None:
    again = part(10)
    window = window_of(again)
    assert window.take() == [again]
    assert window.send_by_us == NEVER_US
    window.push(again, 0)
    assert window.send_by_us == 10


def test_what_was_passed_goes_first_and_in_its_order() -> None:
    ack, first, second, late = part(), part(5, RecordKind.NACK), part(6, RecordKind.NACK, 2), part()
    for each in (first, second):
        each.amount_ms = np.array([0], np.uint64)
    window = window_of(ack, first, second, late)
    assert window.take() == [ack, late]
    assert list(window.waiting) == [first, second]
    assert window.send_by_us == 5


def test_a_request_is_patient_only_if_nobody_waits_for_any_part_of_it() -> None:
    """A leader answers patient requests late: who waits for one of the acks would wait with them."""
    waited, patient = part(), part()
    patient.patient = True
    for parts, found in (([patient], True), ([patient, waited], False), ([waited], False)):
        assert Change(window_of(*parts), parts, 1, 1).request.patient is found


def test_parts_that_expire_do_not_look_at_all_others() -> None:
    """Of n that wait each is looked at a few times, whichever of them goes."""
    for order in (1, -1):
        parts = [part(at_us) for at_us in range(PARTS)]
        window = window_of(*parts)
        WatchedPart.looks = 0
        for each in parts[::order]:
            assert window.remove(each)
            assert window.send_by_us == min((p._at_us for p in window.waiting), default=NEVER_US)  # type: ignore[attr-defined]
        assert WatchedPart.looks <= PARTS


def test_when_to_send_is_forgotten_with_the_parts() -> None:
    """A part that waits for long holds nothing of those that came and went behind it."""
    window = window_of(part(0))
    for at_us in range(1, PARTS):
        passing = part(at_us)
        window.push(passing, 0)
        window.remove(passing)
    assert len(window._send_by) <= 4
