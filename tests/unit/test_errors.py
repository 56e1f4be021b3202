"""Errors of dueq, taken along to other processes and copied."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import dueq.errors
from dueq.errors import (
    Busy,
    ClientClosed,
    DueqError,
    KeyTaken,
    NotYetApplied,
    OutcomeUnknown,
    PartialFailure,
    StaleLease,
    VersionDiffers,
)
from dueq_codecs.records import Outcome

KINDS = [
    kind for kind in vars(dueq.errors).values() if isinstance(kind, type) and issubclass(kind, DueqError)
]
FULL: dict[type[DueqError], Callable[[], DueqError]] = {
    KeyTaken: lambda: KeyTaken("taken", "an id", 1_800_000_000_000),
    VersionDiffers: lambda: VersionDiffers("differs", 7),
    StaleLease: lambda: StaleLease("over", [Outcome.DONE, Outcome.STALE]),
    Busy: lambda: Busy("busy", 2.5),
    OutcomeUnknown: lambda: OutcomeUnknown("perhaps", lambda timeout: "repeated"),
    NotYetApplied: lambda: NotYetApplied("departures", 3, (1, 4), "no leader"),
    PartialFailure: lambda: PartialFailure(
        "half", ["an id", KeyTaken("taken", "another"), Outcome.DONE], lambda timeout: "repeated"
    ),
}
"""Those that are more than a text, with everything that they can hold."""


def made(kind: type[DueqError]) -> DueqError:
    return FULL[kind]() if kind in FULL else kind("why")


def pickled(error: DueqError) -> DueqError:
    found: DueqError = pickle.loads(pickle.dumps(error))
    return found


def told(error: DueqError) -> tuple[Any, ...]:
    """All that an error says: errors are not equal to each other, so those within it as texts."""
    attributes = {name: repr(value) for name, value in vars(error).items() if name != "_retry"}
    return type(error), error.args, str(error), attributes


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("taken", [pickled, copy.copy, copy.deepcopy])
def test_an_error_says_all_of_it_in_another_process_and_as_a_copy(
    kind: type[DueqError], taken: Callable[[DueqError], DueqError]
) -> None:
    error = made(kind)
    error.add_note("while the day was planned")
    assert told(taken(error)) == told(error)


@pytest.mark.parametrize("kind", [OutcomeUnknown, PartialFailure])
def test_another_process_cannot_retry_and_says_so(kind: type[OutcomeUnknown | PartialFailure]) -> None:
    taken = pickled(made(kind))
    assert isinstance(taken, OutcomeUnknown | PartialFailure)
    with pytest.raises(ClientClosed, match="not sent by this client"):
        taken.retry()


@pytest.mark.parametrize("copying", [copy.copy, copy.deepcopy])
@pytest.mark.parametrize("kind", [OutcomeUnknown, PartialFailure])
def test_a_copy_can_retry(
    kind: type[OutcomeUnknown | PartialFailure], copying: Callable[[DueqError], DueqError]
) -> None:
    copied = copying(made(kind))
    assert isinstance(copied, OutcomeUnknown | PartialFailure)
    assert copied.retry() == "repeated"


def test_rows_that_were_refused_for_good_are_refused_again_in_another_process() -> None:
    taken = pickled(PartialFailure("1 of 2 rows were refused", ["an id", KeyTaken("taken", "another")]))
    assert isinstance(taken, PartialFailure)
    with pytest.raises(KeyTaken) as refused:
        taken.retry()
    assert refused.value.present == "another"
