"""A push has each shared body once, however many of its messages end with it, and the client puts them together."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from zlib import crc32

import numpy as np

from dueq.client.core.consuming.arrivals import Arrivals
from dueq.core.delivery.pushes import Leaving, _each_shared_once
from dueq.core.ports.entry import ENTRY, FULL
from dueq.core.state.body_table import BodyTable, SharedBody
from dueq_codecs.messages import Push
from dueq_codecs.pushes import push_rows

FIRST, SECOND = b"first" * 100, b"second" * 90


def lane(*bodies: tuple[int, bytes]) -> Any:
    table = BodyTable()
    for number, data in bodies:
        table.by_number[number] = SharedBody(data[:32], number, len(data), crc32(data))
    return SimpleNamespace(partition=SimpleNamespace(timeline=SimpleNamespace(bodies=table)))


def leaving(numbers: list[int], lanes: list[int], dtype: Any = FULL) -> Leaving:
    entries = np.zeros(len(numbers), dtype)
    if dtype is FULL:
        entries["body"] = numbers
    slots = np.arange(len(numbers))
    both = [lane((5, FIRST), (6, SECOND)), lane((9, FIRST))]
    return Leaving(both, np.array(lanes), slots, entries, slots)


def test_each_body_is_sent_once_for_all_partitions() -> None:
    payloads = [b"a" + FIRST, b"own", SECOND, b"bc" + FIRST]
    column, size, pieces = _each_shared_once(leaving([5, 0, 6, 9], [0, 0, 0, 1]), list(payloads))
    assert (column.tolist(), size.tolist()) == ([1, 0, 2, 1], [len(FIRST), len(SECOND)])
    assert [bytes(piece) for piece in pieces] == [b"a", b"own", b"", b"bc", FIRST, SECOND]
    rows = push_rows(
        4, sequence=range(1, 5), token=7, attempt=1, size=[len(each) for each in payloads],
        crc=[crc32(each) for each in payloads],
    )  # fmt: skip
    push = Push("t", bytes(16), 1, 1, 1, 0, rows=rows, shared=column, shared_size=size)
    fresh, damaged, complete = Arrivals(1 << 20).push(push, b"".join(pieces), 0)
    assert ([each.payload for each in fresh], damaged, complete) == (payloads, [], True)


def test_without_shared_bodies_nothing_is_looked_at() -> None:
    payloads: list[Any] = [b"a", b"b"]
    for dtype in (ENTRY, FULL):
        column, size, pieces = _each_shared_once(leaving([0, 0], [0, 0], dtype), payloads)
        assert (len(column), len(size)) == (0, 0)
        assert pieces is payloads
