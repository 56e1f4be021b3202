"""Questions about messages that are refused, with what was wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from dueq import limits
from dueq.core.front.looking import Looking, _malformed
from dueq.core.partition.filtered_walk import FilteredWalk
from dueq.core.ports.entry import NO_ENTRIES
from dueq.core.ports.events import Route
from dueq.core.ports.persistence import IndexScanned, ScanIndex
from dueq.core.state.fair import FairOrder
from dueq.core.state.matching import RowFilter
from dueq.instant import Now
from dueq.limits import COUNT_READS
from dueq_codecs.messages import LookReply, LookRequest

_HOUR_MS = 3_600_000


def refused(what: str, document: Any) -> str:
    text = document if isinstance(document, str) else json.dumps(document)
    refusal = _malformed(LookRequest(1, "mail", 1, what, document=text))
    return refusal.text if refusal is not None else ""


def test_what_is_well_formed_is_not_refused() -> None:
    assert refused("seconds", {"from_ms": 0, "until_ms": _HOUR_MS, "after": None}) == ""
    assert refused("seconds", {"from_ms": 0, "until_ms": 1, "after": [5, 1 << 40, "00ff"]}) == ""
    assert refused("leased", {"after": -1}) == ""


@pytest.mark.parametrize(
    ("what", "document", "told"),
    [
        ("seconds", "{", "seconds are"),
        ("seconds", {"from_ms": 0}, "seconds are"),
        ("seconds", {"from_ms": 5, "until_ms": 5, "after": None}, "begin before they end"),
        ("seconds", {"from_ms": True, "until_ms": 5, "after": None}, "begin before they end"),
        (
            "seconds",
            {"from_ms": 0, "until_ms": limits.DUE_MS_MAX + 2, "after": None},
            "begin before they end",
        ),
        ("seconds", {"from_ms": 0, "until_ms": _HOUR_MS + 1, "after": None}, "1 to 3600 seconds"),
        ("seconds", {"from_ms": 0, "until_ms": 5, "after": [0, -2, ""]}, "goes on after a place"),
        ("seconds", {"from_ms": 0, "until_ms": 5, "after": "no"}, "seconds are"),
        ("leased", "", '{"after":KEY}'),
        ("leased", {"after": 1 << 56}, '{"after":KEY}'),
        ("leased", {"after": None}, '{"after":KEY}'),
        ("count", "[" * 60_000, 'a count is {"filter"'),
        ("count", '{"filter":' + "[" * 900 + "]" * 900 + ',"after":null}', 'a count is {"filter"'),
        ("seconds", "[" * 60_000, "seconds are"),
        ("count", {"filter": {"state": "waiting"}, "after": [1.5, 0, ""]}, "not after [1.5, 0, '']"),
        ("count", {"filter": {"state": "waiting"}, "after": [1, 0.5, ""]}, "not after [1, 0.5, '']"),
        ("count", {"filter": {"state": "waiting"}, "after": [True, 0, ""]}, "not after [True, 0, '']"),
        ("seconds", {"from_ms": 0, "until_ms": 5, "after": [0.0, 0, ""]}, "not after [0.0, 0, '']"),
        ("seconds", {"from_ms": 0, "until_ms": 5, "after": [0, False, ""]}, "not after [0, False, '']"),
        ("leased", "[" * 60_000, '{"after":KEY}'),
        ("everything", "", "message, count, seconds, leased"),
    ],
)
def test_what_is_not_is_refused_with_the_value(what: str, document: Any, told: str) -> None:
    assert told in refused(what, document)


@pytest.mark.parametrize("what", ["message", "count"])
def test_a_chunk_that_no_key_can_name_is_refused(what: str) -> None:
    refusal = _malformed(LookRequest(1, "mail", 1, what, upload=7, chunk=65_536))
    assert refusal is not None
    assert refusal.text == "chunk 65536 is beyond 65535"
    assert _malformed(LookRequest(1, "mail", 1, "message", upload=7, chunk=65_535)) is None


class Counted:
    """A led partition of very many groups, in each of which nothing waits for as late as is asked for."""

    def __init__(self, groups: int) -> None:
        self.groups, self.uid, self.epoch, self.applied = groups, 1, 1, 9
        self.replica = SimpleNamespace(serving=True, epoch=1)
        self.settings = SimpleNamespace(broker_id="a")
        self.timeline = SimpleNamespace(
            low_water=0, order=FairOrder(), jobs=SimpleNamespace(barred=lambda rows: None), groups=None
        )
        self.reads: list[Callable[[], None]] = []
        self.answers: list[dict[str, Any]] = []

    def filtered_walk(self, wanted: RowFilter) -> FilteredWalk:
        context: Any = self
        return FilteredWalk(context, context, wanted, self.applied + 1)

    def once_saved(self, then: Callable[[frozenset[int], Now], None], now: Now) -> None:
        then(frozenset(), now)

    def read(self, make: Callable[[int], ScanIndex], then: Callable[[object, Now], None]) -> None:
        of = int.from_bytes(make(1).of, "big")
        following = (of + 1).to_bytes(6, "big") if of < self.groups else None
        answer = IndexScanned(1, 1, NO_ENTRIES, True, following=following)
        self.reads.append(lambda: then(answer, Now(1, 1)))

    def reply(self, route: Route, reply: LookReply, bodies: list[bytes]) -> None:
        self.answers.append(json.loads(reply.document))


def test_one_answer_to_a_count_takes_a_bounded_number_of_reads_however_many_groups_have_nothing() -> None:
    led: Any = Counted(2 * COUNT_READS)
    looking, after, reads = Looking(led), None, []
    for answers in (1, 2, 3):
        asked = {"filter": {"state": "waiting", "due_from": 99}, "after": after}
        request = LookRequest(1, "t", 1, "count", document=json.dumps(asked))
        looking.requested(Route(b"c"), request, led, Now(1, 1))
        reads.append(0)
        while led.reads:
            reads[-1] += 1
            led.reads.pop(0)()
        assert len(led.answers) == answers
        assert led.answers[-1]["matched"] == 0
        after = led.answers[-1]["after"]
    assert (after, reads) == (None, [COUNT_READS, COUNT_READS, 1])
