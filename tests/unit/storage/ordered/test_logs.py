"""The store's memory of a log: which epoch each record has, through trims and cuts."""

from __future__ import annotations

import pytest

from dueq.storage.ordered.logs import LogState

EPOCHS = [1, 1, 3, 3, 3, 7]
"""Of records 1 to 6."""


def filled() -> LogState:
    log = LogState()
    for sequence, epoch in enumerate(EPOCHS, start=1):
        log.append(sequence, epoch, b"record")
    return log


@pytest.mark.parametrize("below", range(2, 8))
def test_a_trimmed_log_knows_the_epochs_of_what_is_left_and_of_the_record_before(below: int) -> None:
    log = filled()
    log.trim(below, 0)
    assert [log.epoch_at(sequence) for sequence in range(below - 1, 7)] == EPOCHS[below - 2 :]


@pytest.mark.parametrize("start", range(2, 7))
def test_a_log_that_was_cut_goes_on_in_another_epoch(start: int) -> None:
    log = filled()
    log.cut(start, 0)
    log.append(start, 8, b"another")
    assert [log.epoch_at(sequence) for sequence in range(1, start + 1)] == [*EPOCHS[: start - 1], 8]
