"""Cutting and gathering: whatever the sizes, requests stay within their limits and nothing is lost or doubled."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.client.stage import Stage, of, ok, sent

from dueq import ids, limits
from dueq.client.core.changing.changing import runs
from dueq.client.core.ports.effects import Completed
from dueq_codecs.messages import ChangeRequest

sizes = st.lists(
    st.one_of(st.integers(0, 600), st.integers(0, limits.CHUNK_BYTES), st.just(limits.CHUNK_BYTES + 1)),
    max_size=3_000,
)


@given(sizes)
@settings(max_examples=50)
def test_runs_cover_all_rows_in_order_and_fit_a_request(column: list[int]) -> None:
    size = np.array(column, np.uint32)
    found = list(runs(size))
    assert [row for start, end in found for row in range(start, end)] == list(range(len(column)))
    for start, end in found:
        inline = sum(value for value in column[start:end] if value <= limits.CHUNK_BYTES)
        assert 0 < end - start <= limits.REQUEST_ROWS_MAX
        assert inline <= limits.REQUEST_BYTES_MAX


@given(st.lists(st.tuples(st.integers(1, 40), st.booleans()), min_size=1, max_size=40), st.integers(1, 3))
@settings(max_examples=50)
def test_every_call_gets_the_ids_of_its_own_rows(calls: list[tuple[int, bool]], partitions: int) -> None:
    """A leader that answers now and then: each row is sent once, and its id names where it is."""
    stage = Stage(uids=dict.fromkeys(range(1, partitions + 1), "a"))
    stage.connect()
    stage.learn_topic()
    open_requests: list[ChangeRequest] = []
    placed: dict[str, tuple[int, int]] = {}
    answered: dict[int, list[str]] = {}
    sequence = 100

    def answer() -> None:
        nonlocal sequence
        request = open_requests.pop(0)
        sequence += 1
        for row, due in enumerate(request.due.tolist()):
            placed[str(ids.MessageId(due, request.uid, sequence, row))] = (due, request.uid)
        effects = stage.receive("a", ok(request, sequence))
        open_requests.extend(sent(effects, ChangeRequest))
        answered.update({done.call: done.value.ids() for done in of(effects, Completed)})

    for call, (rows, pause) in enumerate(calls, 1):
        effects = stage.insert(call, *[b"x"] * rows, due=10_000 + call)
        open_requests.extend(sent(effects, ChangeRequest))
        if pause and open_requests:
            answer()
    for _ in range(2 * len(calls)):
        if open_requests:
            answer()
        effects = stage.run_until(stage.ms + 20)  # who was answered together is waited for
        open_requests.extend(sent(effects, ChangeRequest))
    assert not open_requests
    assert sorted(answered) == list(range(1, len(calls) + 1))
    for call, texts in answered.items():
        assert len(texts) == calls[call - 1][0]
        assert {placed.pop(text)[0] for text in texts} == {10_000 + call}
    assert not placed
