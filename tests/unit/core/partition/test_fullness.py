"""What a partition has no room for is refused for a while, and the text names how much there is and may be."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dueq import limits
from dueq.core.partition.fullness import UnderWay, fullness, fullness_of_names, names_of
from dueq.core.ports.names import hashes_of
from dueq_codecs.messages import ChangeRequest, Code
from dueq_codecs.records import Record, RecordKind

KEY = np.ones(1, np.uint64)


def of(**kept: Any) -> Any:
    """A timeline that keeps this, and nothing else."""
    nothing = {
        "uid": 7, "names_count": 0, "triggered": {}, "triggered_leased": 0, "bodies": SimpleNamespace(by_name={}),
        "groups": SimpleNamespace(by_name={}), "jobs": SimpleNamespace(by_key={}),
        "passes": SimpleNamespace(by_name={}), "headings": SimpleNamespace(size=0),
    }  # fmt: skip
    return SimpleNamespace(**(nothing | kept))


def asked(kind: RecordKind, **fields: Any) -> ChangeRequest:
    request = ChangeRequest(1, kind, "t", 7, b"c" * 16, 1, 0)
    for name, value in fields.items():
        setattr(request, name, value)
    return request


def names(**kept: str) -> Any:
    """A timeline that keeps one thing by each of these names."""
    tables = {
        "bodies": SimpleNamespace(by_name={name.encode(): 1 for name in kept.get("bodies", "")}),
        "groups": SimpleNamespace(by_name=dict.fromkeys(kept.get("groups", ""))),
        "jobs": SimpleNamespace(by_key={name.encode(): 1 for name in kept.get("jobs", "")}),
        "passes": SimpleNamespace(by_name=dict.fromkeys(kept.get("passes", ""))),
    }
    return of(**tables)


CASES = {
    "BODIES_MAX": (names(bodies="ab"), asked(RecordKind.BODY, shared=b"c"), "keeps 2 shared bodies"),
    "GROUPS_MAX": (
        names(groups="ab"),
        asked(RecordKind.INSERT, groups=("a", "c")),
        "has 2 groups, and may have 2",
    ),
    "JOBS_MAX": (names(jobs="ab"), asked(RecordKind.INSERT, job=b"c"), "knows 2 jobs"),
    "PASSES_MAX": (names(passes="ab"), asked(RecordKind.PASS, name="c"), "knows 2 passes"),
    "TRIGGERED_MAX": (
        of(triggered={1: 1}, triggered_leased=1),
        asked(RecordKind.TRIGGER, target_sequence=KEY),
        "2 triggered messages of partition 7 wait for consumers or are leased, and 2 may",
    ),
    "HEADINGS_BYTES_MAX": (
        of(headings=SimpleNamespace(size=1)),
        asked(RecordKind.NACK, document="{}", target_sequence=KEY),
        "keeps 1 bytes of replaced headers, and may keep 2",
    ),
}


@pytest.mark.parametrize("bound", CASES)
def test_what_is_too_much_is_refused_for_a_while(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    timeline, request, text = CASES[bound]
    monkeypatch.setattr(limits, bound, 3)
    assert fullness(timeline, request, UnderWay()) is None, "the last room is taken"
    monkeypatch.setattr(limits, bound, 2)
    refusal = fullness(timeline, request, UnderWay())
    assert refusal is not None
    assert refusal.code is Code.BUSY
    assert text in refusal.text


@pytest.mark.parametrize(
    "request_",
    [
        asked(RecordKind.NACK, target_sequence=KEY),
        asked(RecordKind.RECURRENCE, name="r", document='{"action":"pause"}'),
    ],
    ids=["a NACK without headers", "a recurrence"],
)
def test_what_replaces_no_headers_needs_no_room_for_them(
    request_: ChangeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HEADINGS_BYTES_MAX", 2)
    assert fullness(of(headings=SimpleNamespace(size=3)), request_, UnderWay()) is None


def test_unique_keys_beyond_the_bound_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    request = asked(RecordKind.INSERT, key_high=KEY, key_low=KEY)
    assert fullness_of_names(of(names_count=2), request) is None
    monkeypatch.setattr(limits, "NAMES_MAX", 2)
    refusal = fullness_of_names(of(names_count=2), request)
    assert refusal is not None
    assert (refusal.code, refusal.retry_after_ms > 0) == (Code.BUSY, True)
    assert "keeps 2 unique keys, and may keep 2" in refusal.text
    assert fullness_of_names(of(names_count=2), asked(RecordKind.INSERT)) is None


def test_the_idempotency_key_is_looked_for_first() -> None:
    one, two = np.array([1, 2], np.uint64), np.array([0, 3], np.uint64)
    request = asked(RecordKind.INSERT, key_high=one, key_low=one, once_high=two, once_low=two)
    assert names_of(request) == hashes_of(np.array([1, 3], np.uint64), np.array([1, 3], np.uint64))
    assert names_of(asked(RecordKind.INSERT, key_high=one, key_low=one)) == hashes_of(one, one)
    assert names_of(asked(RecordKind.INSERT, once_high=two, once_low=two)) == hashes_of(two, two)


@pytest.mark.parametrize(
    "known",
    [
        asked(RecordKind.BODY, shared=b"a"),
        asked(RecordKind.INSERT, groups=("a", "")),
        asked(RecordKind.INSERT, job=b"a"),
        asked(RecordKind.PASS, name="a"),
    ],
)
def test_what_is_kept_already_takes_no_room(known: ChangeRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    for bound in ("BODIES_MAX", "GROUPS_MAX", "JOBS_MAX", "PASSES_MAX"):
        monkeypatch.setattr(limits, bound, 1)
    assert fullness(names(bodies="a", groups="a", jobs="a", passes="a"), known, UnderWay()) is None


@pytest.mark.parametrize(
    ("bound", "request_"),
    [
        ("TRIGGERED_MAX", asked(RecordKind.TRIGGER, target_sequence=KEY)),
        ("HEADINGS_BYTES_MAX", asked(RecordKind.NACK, document="x", target_sequence=KEY)),
    ],
)
def test_what_is_under_way_needs_room_until_it_is_applied(
    bound: str, request_: ChangeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their records are short: before the first is applied, a client could send as many as it likes."""
    monkeypatch.setattr(limits, bound, 2)
    under_way = UnderWay()
    for _ in range(2):
        assert fullness(of(), request_, under_way) is None
        under_way.begin(request_)
    assert fullness(of(), request_, under_way) is not None
    record = Record(request_.kind, 7, 1, 1, 0, document=request_.document, target_sequence=KEY)
    under_way.end(record)
    assert fullness(of(), request_, under_way) is None
