"""An EXTEND counts from when it is taken: no record that is made before its own may end its lease."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from dueq.core.partition.proposals import Proposals
from dueq.core.ports.events import Route
from dueq.instant import Now
from dueq_codecs.messages import ChangeRequest
from dueq_codecs.records import RecordKind

UID = 1
NOW = Now(1_700_000_000_000_000, 5_000_000)


def test_leases_do_not_run_out_from_when_their_extension_is_taken() -> None:
    """In the same turn the timer of the lease may bring an EXPIRE."""
    told: list[tuple[int, list[int], list[int], list[int]]] = []

    def extending(uid: int, keys: Any, tokens: Any, amount_ms: Any, now: Now) -> None:
        told.append((uid, keys.tolist(), tokens.tolist(), amount_ms.tolist()))

    gathering = SimpleNamespace(end=lambda uid: None)
    context: Any = SimpleNamespace(gathering=gathering, touch=lambda partition: None, inserts_refused=None)
    replica: Any = SimpleNamespace(uid=UID, serving=True, healthy=lambda now: True)
    dispatcher: Any = SimpleNamespace(extending=extending)
    partition: Any = SimpleNamespace(
        answered=lambda request: None,
        contents=None,
        level=1,
        fullness=lambda request, under_way: None,
        fullness_of_names=lambda request: None,
    )
    topic: Any = SimpleNamespace(min_isr=1)
    uploads: Any = SimpleNamespace()
    proposals = Proposals(context, topic, replica, uploads, dispatcher, partition)
    request = ChangeRequest(1, RecordKind.EXTEND, "t", UID, b"c" * 16, 1, 0)
    request.first = np.array([5], np.uint64)
    request.target_sequence, request.target_row = np.array([7], np.uint64), np.array([2], np.uint16)
    request.token, request.amount_ms = np.array([9], np.uint64), np.array([4_000], np.uint64)
    assert proposals.request(Route(b"r"), request, b"", NOW) is None
    assert told == [(UID, [7 << 16 | 2], [9], [4_000])]
