"""Attempts of one request wait for one answer."""

from __future__ import annotations

from dueq.core.partition.awaited import ATTEMPTS_MAX, AwaitedRequests
from dueq.core.ports.events import Route
from dueq_codecs.messages import ChangeRequest
from dueq_codecs.records import RecordKind

ROUTE = Route(b"r")


def change(
    request_id: int,
    sequence: int = 1,
    digest: int = 7,
    kind: RecordKind = RecordKind.INSERT,
    job: bytes = b"",
) -> ChangeRequest:
    request = ChangeRequest(request_id, kind, "t", 1, b"c" * 16, sequence, digest)
    request.job = job
    return request


def test_a_repetition_gets_the_answer_of_the_attempt_that_waits() -> None:
    awaited = AwaitedRequests()
    assert not awaited.joins(ROUTE, change(1))
    first = awaited.begin(ROUTE, change(1))
    relayed = Route(b"r", "b2")
    assert awaited.joins(relayed, change(2))
    assert awaited.end(first) == [(ROUTE, 1), (relayed, 2)]
    assert not awaited.joins(ROUTE, change(3)), "it waits no more"


def test_attempts_are_bounded_and_the_newest_are_kept() -> None:
    awaited = AwaitedRequests()
    first = awaited.begin(ROUTE, change(1))
    for request_id in range(2, 1000):
        assert awaited.joins(ROUTE, change(request_id))
    assert awaited.end(first) == [(ROUTE, 1000 - ATTEMPTS_MAX + n) for n in range(ATTEMPTS_MAX)]


def test_another_number_content_or_memory_is_another_request() -> None:
    """INSERTs of jobs are numbered apart from all other requests; a JOB is not one of them."""
    awaited = AwaitedRequests()
    first = awaited.begin(ROUTE, change(1))
    assert not awaited.joins(ROUTE, change(2, sequence=2))
    assert not awaited.joins(ROUTE, change(2, digest=8))
    assert not awaited.joins(ROUTE, change(2, job=b"j" * 16))
    assert awaited.joins(ROUTE, change(2, kind=RecordKind.JOB, job=b"j" * 16))
    assert [request_id for _, request_id in awaited.end(first)] == [1, 2]


def test_a_number_with_two_contents_ends_with_the_first_one() -> None:
    awaited = AwaitedRequests()
    first = awaited.begin(ROUTE, change(1))
    other = awaited.begin(ROUTE, change(2, digest=8))
    assert awaited.end(other) == [(ROUTE, 2)]
    assert awaited.joins(ROUTE, change(3)), "the first one waits still"
    awaited.end(first)
    assert not awaited.joins(ROUTE, change(4))
