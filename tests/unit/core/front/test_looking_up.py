"""Questions about messages to their leader: who is answered, when, with what, and who is sent elsewhere."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dueq import limits
from dueq.core.front.looking import _LOOKS_MAX, Looking
from dueq.core.ports.entry import FLAG_UPLOAD, FULL, Entries
from dueq.core.ports.events import Route
from dueq.core.ports.names import Answered, Remembered
from dueq.core.ports.persistence import (
    ChunkRead,
    IndexScanned,
    PayloadsRead,
    ReadChunk,
    ReadPayloads,
    ReadRemark,
    RemarkRead,
    ScanIndex,
)
from dueq.instant import Now
from dueq_codecs.messages import Code, LookReply, LookRequest
from dueq_codecs.meta import Meta

ROUTE = Route(b"r")
KEY = "0f" * 16
BY_KEY = json.dumps({"key": KEY}, separators=(",", ":"))
HOUR_MS = 3_600_000
STORED = b"\x03key" + b"payload"


def at(ms: int) -> Now:
    return Now(1, 1_000_000 + ms * 1000)


def row(**columns: int) -> Entries:
    found = np.zeros(1, FULL)
    for name, value in columns.items():
        found[name] = value
    return found


class Walk:
    """A way through an index of so many pages, each of which has one match among ten messages."""

    def __init__(self, led: Led) -> None:
        self._led = led
        self.looked = 0
        self.walk = self
        self.place: tuple[int, int, bytes] = (0, -1, b"")

    @property
    def ended(self) -> bool:
        return self.place[0] >= self._led.pages

    def go_to(self, wait_at: int, key: int, of: bytes) -> None:
        self.place = wait_at, key, of

    def read(self, then: Callable[[Entries, Now], None]) -> None:
        self.looked += 10
        self.place = self.place[0] + 1, 7, b"\x0a"
        self._led.walked.append(lambda: then(row(), at(9)))


class Led:
    """A led partition, in which everything happens when the test says so."""

    def __init__(self) -> None:
        self.uid, self.epoch = 1, 1
        self.replica = SimpleNamespace(serving=True, epoch=1)
        self.confirmed_us = 0
        self.asked: list[int] = []
        self.named: list[tuple[list[bytes], Callable[[Any, Now], None]]] = []
        self.looked: list[tuple[Any, Callable[[Entries | None, Now], None]]] = []
        self.saved: list[Callable[[frozenset[int], Now], None]] = []
        self.walked: list[Callable[[], None]] = []
        self.pages = 1
        self.documents: list[dict[str, Any] | None] = []
        self.cached: bytes | None = STORED
        self.remark: str | None = None
        self.contents = SimpleNamespace(
            class_bytes=0,
            remark_of=lambda key: self.remark,
            leased_after=self._leased_after,
            decided=lambda rows: rows[rows["row"] != 66],
        )
        self.leased = [5, 6, 7]

    def _leased_after(self, key: int, most: int) -> tuple[Entries, bool]:
        found = [each for each in self.leased if each > key]
        return np.concatenate([row(first=3, sequence=each) for each in found]), True

    def led_by_another(self) -> None:
        self.replica.serving = False

    def led_anew(self) -> None:
        self.replica.epoch = self.epoch = self.epoch + 1

    def confirmed_since(self, since_us: int, now: Now) -> bool:
        return self.confirmed_us >= since_us

    def ask_since(self, since_us: int, now: Now) -> None:
        self.asked.append(since_us)

    def look_up_names(self, hashes: list[bytes], then: Callable[[Any, Now], None], now: Now) -> None:
        self.named.append((hashes, then))

    def look_up(self, ids: Any, then: Callable[[Entries | None, Now], None], now: Now) -> None:
        self.looked.append((ids, then))

    def message_document(self, rows: Entries, first: int, now: Now) -> dict[str, Any] | None:
        return self.documents.pop(0)

    def cached_payloads(self, rows: Entries) -> list[bytes | None]:
        return [self.cached]

    def once_saved(self, then: Callable[[frozenset[int], Now], None], now: Now) -> None:
        self.saved.append(then)

    def filtered_walk(self, wanted: object) -> Walk:
        return Walk(self)


class Broker:
    """What looking sees of its broker, with one led partition."""

    def __init__(self) -> None:
        self.led = Led()
        self.settings = SimpleNamespace(broker_id="b1")
        self.metrics = SimpleNamespace(errors=Counter[str]())
        self.turn = at(0)
        self.reads: list[tuple[Any, Callable[[object, Now], None]]] = []
        self.replies: list[tuple[LookReply, bytes]] = []
        context: Any = self
        self.looking = Looking(context)

    def read(self, make: Callable[[int], Any], then: Callable[[object, Now], None]) -> None:
        self.reads.append((make(1), then))

    def reply(self, route: Route, reply: LookReply, bodies: list[bytes | memoryview]) -> None:
        self.replies.append((reply, bytes(bodies[0])))

    # -------------------------------------------------------------- the asker

    def ask(self, what: str = "message", request_id: int = 1, ms: int = 0, **fields: Any) -> Code | None:
        """Ask; returns why it is refused."""
        document = fields.pop("document", "")
        text = document if isinstance(document, str) else json.dumps(document)
        request = LookRequest(request_id, "t", 1, what, document=text, **fields)
        led: Any = self.led
        refusal = self.looking.requested(ROUTE, request, led, at(ms))
        return refusal.code if refusal is not None else None

    def codes(self) -> list[Code]:
        return [reply.code for reply, _ in self.replies]

    def told(self) -> Any:
        """The document of the one answer."""
        [(reply, _)] = self.replies
        assert reply.code == Code.OK
        return json.loads(reply.document)

    # -------------------------------------------------------------- what is found

    def found(self, document: dict[str, Any] | None, rows: Entries | None = None) -> None:
        """The message that is looked for is in memory now."""
        self.led.documents.append(document)
        _, then = self.led.looked.pop(0)
        then(row() if rows is None else rows, at(1))

    def name_found(self, name: object) -> None:
        """What the key names is known now."""
        _, then = self.led.named.pop(0)
        then([name], at(1))

    def came(self, kind: type, answer: object) -> None:
        """The disk answers the one read that is under way."""
        [(request, then)] = self.reads
        self.reads.clear()
        assert isinstance(request, kind)
        then(answer, at(2))

    def chunk_came(self, data: bytes | None) -> None:
        self.came(ReadChunk, ChunkRead(1, 1, 77, 0, data))

    def payload_came(self, data: bytes | None) -> None:
        self.came(ReadPayloads, PayloadsRead(1, 1, row(), [data]))

    def scanned(self, *entries: Entries, exhausted: bool = False) -> None:
        found = np.concatenate([row()[:0], *entries])
        self.came(ScanIndex, IndexScanned(1, 1, found, exhausted))


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def led(broker: Broker) -> Led:
    return broker.led


def waiting(meta: Meta = Meta.NONE) -> dict[str, Any]:
    return {"state": "waiting", "meta": int(meta)}


def seconds(until_ms: int = HOUR_MS, after: list[Any] | None = None) -> dict[str, Any]:
    return {"from_ms": 1_000, "until_ms": until_ms, "after": after}


def count(after: list[Any] | None = None) -> dict[str, Any]:
    return {"filter": {"state": "waiting"}, "after": after}


# ---------------------------------------------------------------- who is answered


def test_who_does_not_serve_answers_nothing(broker: Broker, led: Led) -> None:
    led.led_by_another()
    assert broker.ask() == Code.NOT_LEADER
    assert (led.looked, broker.replies) == ([], [])


def test_there_are_no_more_questions_than_a_leader_has_room_for(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LOOKS_MAX", 2)
    assert [broker.ask(request_id=number) for number in (1, 2, 3)] == [None, None, Code.BUSY]
    broker.found(waiting())
    assert broker.ask(request_id=3) is None, "the answer has made room"


def test_a_question_that_is_repeated_while_it_is_looked_up_is_not_looked_up_twice(
    broker: Broker, led: Led
) -> None:
    broker.ask()
    broker.ask()
    assert len(led.looked) == 1
    broker.found(waiting())
    assert broker.codes() == [Code.OK]
    broker.ask()
    assert len(led.looked) == 1, "after the answer it is a new one"


def test_an_answer_says_who_leads_unless_this_broker_does_not(broker: Broker, led: Led) -> None:
    for number in (1, 2):
        broker.ask(request_id=number)
    broker.found(waiting())
    led.led_by_another()
    broker.found(waiting())
    assert [(reply.code, reply.leader) for reply, _ in broker.replies] == [
        (Code.OK, "b1"), (Code.NOT_LEADER, ""),
    ]  # fmt: skip
    assert broker.replies[1][0].retry_after_ms > 0
    assert broker.metrics.errors == {"not_leader": 1}


@pytest.mark.parametrize("ends", [Led.led_by_another, Led.led_anew])
def test_what_was_found_when_the_leadership_had_ended_is_no_answer(
    broker: Broker, led: Led, ends: Callable[[Led], None]
) -> None:
    """Another one may have changed the message since, and told somebody."""
    broker.ask(payload=True)
    led.cached = None
    broker.found(waiting())
    ends(led)
    broker.payload_came(STORED)
    assert broker.codes() == [Code.NOT_LEADER]


@pytest.mark.parametrize("document", ["", BY_KEY])
def test_who_waits_for_the_disk_is_told_when_the_leadership_ends(
    broker: Broker, led: Led, document: str
) -> None:
    broker.ask(document=document)
    [(_, then)] = led.named or led.looked
    then(None, at(1))
    assert broker.codes() == [Code.NOT_LEADER]


# ---------------------------------------------------------------- what must be current


def test_what_need_not_be_current_is_looked_up_at_once(broker: Broker, led: Led) -> None:
    broker.ask()
    assert len(led.looked) == 1
    broker.ask(request_id=2, current=True)
    assert len(led.looked) == 1


def test_what_must_be_current_is_looked_up_once_the_leadership_is_confirmed_since_the_question(
    broker: Broker, led: Led
) -> None:
    since_us = at(5).mono_us
    led.confirmed_us = since_us - 1
    broker.ask(current=True, ms=5)
    broker.looking.work(at(6))
    broker.looking.work(at(7))
    assert (led.looked, led.asked) == ([], [since_us, since_us])
    led.confirmed_us = since_us
    broker.looking.work(at(8))
    broker.looking.work(at(9))
    assert (len(led.looked), len(led.asked)) == (1, 2)


def test_where_it_is_confirmed_already_nobody_is_asked(broker: Broker, led: Led) -> None:
    led.confirmed_us = at(5).mono_us
    broker.ask(current=True, ms=5)
    assert (len(led.looked), led.asked) == (1, [])


@pytest.mark.parametrize("ends", [Led.led_by_another, Led.led_anew])
def test_who_waits_for_a_confirmation_is_told_when_the_leadership_ends(
    broker: Broker, led: Led, ends: Callable[[Led], None]
) -> None:
    broker.ask(current=True)
    ends(led)
    led.confirmed_us = at(99).mono_us
    broker.looking.work(at(6))
    broker.looking.work(at(7))
    assert (broker.codes(), led.looked) == ([Code.NOT_LEADER], [])


# ---------------------------------------------------------------- by a key


def test_a_message_is_found_by_its_key(broker: Broker, led: Led) -> None:
    broker.ask(document=BY_KEY)
    assert led.named[0][0] == [bytes.fromhex(KEY)]
    broker.name_found((9, 5 << 16 | 3))
    ids = led.looked[0][0]
    assert [column.tolist() for column in ids] == [[9], [5], [3]]
    broker.found(waiting())
    assert broker.told()["id"] == [9, 1, 5, 3]


def test_a_key_that_names_no_message_gets_an_empty_answer(broker: Broker) -> None:
    names = (None, Remembered(9, 5 << 16, 1, 1, 1, 1))
    for number, name in enumerate(names):
        broker.ask(request_id=number, document=BY_KEY)
        broker.name_found(name)
    assert [(reply.code, reply.document) for reply, _ in broker.replies] == [(Code.OK, "")] * len(names)


def test_an_idempotency_key_is_told_with_the_message_of_its_first_answer(broker: Broker, led: Led) -> None:
    broker.ask(document=BY_KEY)
    broker.name_found(Answered(9, 5 << 16 | 3, 77, 1 << 63, 1000))
    assert broker.told() == {"answered": [9, 1, 5, 3], "due": 77, "digest": 1 << 63}
    assert not led.looked, "it is the answer whatever has become of the message"


@pytest.mark.parametrize("lost", [None, {"state": "dead", "meta": 0}])
def test_where_the_message_of_a_key_is_over_the_key_is_looked_up_again(
    broker: Broker, led: Led, lost: dict[str, Any] | None
) -> None:
    """Another message may bear it by now."""
    broker.ask(document=BY_KEY)
    broker.name_found((9, 5 << 16))
    broker.found(lost)
    assert broker.replies == []
    broker.name_found((9, 6 << 16))
    broker.found(waiting())
    assert broker.told()["id"] == [9, 1, 6, 0]


def test_that_is_not_done_for_ever(broker: Broker, led: Led) -> None:
    """A key that names a dead message for as long as that is kept is answered with it."""
    broker.ask(document=BY_KEY)
    for _ in range(_LOOKS_MAX):
        assert broker.replies == []
        broker.name_found((9, 5 << 16))
        broker.found({"state": "dead", "meta": 0})
    assert broker.told()["state"] == "dead"


@pytest.mark.parametrize(("document", "state"), [({"state": "dead", "meta": 0}, "dead"), (None, "")])
def test_what_was_asked_for_by_its_id_is_looked_up_once(
    broker: Broker, led: Led, document: dict[str, Any] | None, state: str
) -> None:
    broker.ask()
    broker.found(document)
    [(reply, _)] = broker.replies
    assert (reply.code, led.looked) == (Code.OK, [])
    assert (json.loads(reply.document)["state"] if state else reply.document) == state


# ---------------------------------------------------------------- why it was given back


def test_the_reason_is_read_where_the_memory_has_none(broker: Broker) -> None:
    broker.ask()
    broker.found(waiting(), row(remark=1))
    assert broker.replies == []
    broker.came(ReadRemark, RemarkRead(1, 1, "no space"))
    assert broker.told()["reason"] == "no space"


def test_the_reason_in_memory_is_newer_than_that_on_the_disk(broker: Broker, led: Led) -> None:
    led.remark = "no time"
    broker.ask()
    broker.found(waiting(), row(remark=1))
    assert (broker.told()["reason"], broker.reads) == ("no time", [])


def test_nothing_is_read_for_a_message_that_was_never_given_back_with_a_reason(broker: Broker) -> None:
    broker.ask()
    broker.found(waiting(), row())
    assert "reason" not in broker.told()


# ---------------------------------------------------------------- its payload


@pytest.mark.parametrize(
    ("meta", "payload", "body"),
    [
        (Meta.NONE, False, b""),
        (Meta.KEY, False, b"\x03key"),
        (Meta.NONE, True, STORED),
        (Meta.KEY, True, STORED),
    ],
)
@pytest.mark.parametrize("cached", [True, False])
def test_a_payload_comes_when_it_is_asked_for_and_otherwise_the_meta_alone(
    broker: Broker, led: Led, meta: Meta, payload: bool, body: bytes, cached: bool
) -> None:
    led.cached = STORED if cached else None
    broker.ask(payload=payload)
    broker.found(waiting(meta))
    if body and not cached:
        broker.payload_came(STORED)
    assert broker.reads == []
    assert broker.replies[0][1] == body


@pytest.mark.parametrize("cached", [True, False])
def test_an_empty_payload_is_one(broker: Broker, led: Led, cached: bool) -> None:
    led.cached = b"" if cached else None
    broker.ask(payload=True)
    broker.found(waiting())
    if not cached:
        broker.payload_came(b"")
    assert (broker.codes(), broker.reads) == ([Code.OK], [])


@pytest.mark.parametrize("meta", [Meta.NONE, Meta.KEY])
def test_of_a_long_payload_only_the_meta_comes_from_its_first_chunk(broker: Broker, meta: Meta) -> None:
    """Its chunks are asked for one by one."""
    broker.ask(payload=True)
    broker.found(waiting(meta), row(flags=FLAG_UPLOAD, place=77))
    if meta:
        assert (broker.reads[0][0].upload, broker.reads[0][0].chunk) == (77, 0)
        broker.chunk_came(STORED)
    assert (broker.reads, broker.replies[0][1]) == ([], b"\x03key" if meta else b"")


def test_a_message_whose_payload_is_gone_is_looked_up_once_more_as_it_may_be_over(
    broker: Broker, led: Led
) -> None:
    led.cached = None
    broker.ask(payload=True)
    broker.found(waiting())
    broker.payload_came(None)
    assert broker.replies == []
    broker.found(None)
    [(reply, _)] = broker.replies
    assert (reply.code, reply.document) == (Code.OK, "")
    assert not broker.metrics.errors


def test_a_payload_that_cannot_be_read_twice_is_damage(broker: Broker, led: Led) -> None:
    led.cached = None
    broker.ask(payload=True)
    for _ in range(2):
        broker.found(waiting())
        broker.payload_came(None)
    assert (broker.codes(), led.looked) == ([Code.BROKEN], [])
    assert broker.metrics.errors == {"payload_unreadable": 1}


def test_a_payload_that_cannot_be_read_after_the_leadership_is_no_damage(broker: Broker, led: Led) -> None:
    led.cached = None
    broker.ask(payload=True)
    broker.found(waiting())
    led.led_by_another()
    broker.payload_came(None)
    assert (broker.codes(), led.looked) == ([Code.NOT_LEADER], [])
    assert broker.metrics.errors == {"not_leader": 1}


# ---------------------------------------------------------------- chunks


@pytest.mark.parametrize(("data", "code"), [(b"chunk", Code.OK), (None, Code.BROKEN)])
def test_a_chunk_is_answered_with_its_bytes_or_with_that_it_is_not_there(
    broker: Broker, data: bytes | None, code: Code
) -> None:
    broker.ask(upload=77, chunk=3)
    assert (broker.reads[0][0].upload, broker.reads[0][0].chunk) == (77, 3)
    broker.chunk_came(data)
    [(reply, body)] = broker.replies
    assert (reply.code, body) == (code, data or b"")
    assert bool(reply.text) == (data is None)


# ---------------------------------------------------------------- counts


@pytest.mark.parametrize("what", ["count", "seconds"])
def test_a_count_begins_once_the_index_has_all_that_is_applied_and_goes_on_at_once(
    broker: Broker, led: Led, what: str
) -> None:
    asked = count if what == "count" else seconds
    broker.ask(what, document=asked())
    assert (led.walked, broker.reads, len(led.saved)) == ([], [], 1)
    led.saved.pop()(frozenset(), at(1))
    assert len(led.walked) + len(broker.reads) == 1
    led.walked.clear()
    broker.reads.clear()
    broker.ask(what, request_id=2, document=asked(after=[2_000, 7, ""]))
    assert (len(led.walked) + len(broker.reads), led.saved) == (1, [])


@pytest.mark.parametrize("ends", [Led.led_by_another, Led.led_anew])
def test_who_waits_for_a_checkpoint_is_told_once_when_the_leadership_ends(
    broker: Broker, led: Led, ends: Callable[[Led], None]
) -> None:
    broker.ask("count", document=count())
    broker.looking.work(at(1))
    assert broker.replies == []
    ends(led)
    broker.looking.work(at(2))
    broker.looking.work(at(3))
    assert broker.codes() == [Code.NOT_LEADER]
    led.saved.pop()(frozenset(), at(4))
    assert led.walked == [], "nobody waits for it any more"


def test_where_all_is_on_the_disk_already_a_count_begins_in_the_same_turn(broker: Broker, led: Led) -> None:
    led.once_saved = lambda then, now: then(frozenset(), now)  # type: ignore[method-assign]
    broker.ask("count", document=count())
    assert len(led.walked) == 1


def test_a_count_adds_up_its_pages_and_says_where_it_goes_on(
    broker: Broker, led: Led, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "COUNT_ROWS", 20)
    led.pages = 3
    broker.ask("count", document=count(after=[0, -1, ""]))
    led.walked.pop()()
    led.walked.pop()()
    assert broker.told() == {"matched": 2, "after": [2, 7, "0a"]}
    broker.replies.clear()
    broker.ask("count", document=count(after=[2, 7, "0a"]))
    led.walked.pop()()
    assert broker.told() == {"matched": 1, "after": None}


@pytest.mark.parametrize("ends", [Led.led_by_another, Led.led_anew])
def test_a_count_ends_with_the_leadership(broker: Broker, led: Led, ends: Callable[[Led], None]) -> None:
    led.pages = 3
    broker.ask("count", document=count(after=[0, -1, ""]))
    ends(led)
    led.walked.pop()()
    assert (broker.codes(), led.walked) == ([Code.NOT_LEADER], [])
    broker.led = Led()
    broker.ask("seconds", request_id=2, document=seconds(after=[1_000, -1, ""]))
    ends(broker.led)
    broker.scanned()
    assert (broker.codes(), broker.reads) == ([Code.NOT_LEADER] * 2, [])


def test_seconds_are_counted_in_order_up_to_the_end_and_not_what_no_consumer_may_see(broker: Broker) -> None:
    broker.ask("seconds", document=seconds(9_000, [1_000, -1, ""]))
    broker.scanned(row(wait_at=8_999), row(wait_at=7_000), row(wait_at=8_000, row=66), row(wait_at=8_001))
    assert broker.replies == []
    broker.scanned(row(wait_at=8_999), row(wait_at=9_000))
    assert broker.told() == {"counts": [[7_000, 1], [8_000, 3]], "after": None}


def test_seconds_go_on_where_the_answer_before_has_ended(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "COUNT_ROWS", 2)
    broker.ask("seconds", document=seconds(after=[3_000, 7, ""]))
    assert (broker.reads[0][0].after_wait_at, broker.reads[0][0].after_key) == (3_000, 7)
    broker.scanned(row(wait_at=3_000, row=8), row(wait_at=4_000, row=9))
    assert broker.told() == {"counts": [[3_000, 1], [4_000, 1]], "after": [4_000, 9, ""]}


def test_one_answer_of_seconds_takes_a_bounded_number_of_reads(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "COUNT_READS", 3)
    broker.ask("seconds", document=seconds(after=[1_000, -1, ""]))
    for _ in range(3):
        assert broker.replies == []
        broker.scanned()
    assert broker.told() == {"counts": [], "after": [1_000, -1, ""]}


# ---------------------------------------------------------------- what consumers have


def test_what_is_leased_is_named_from_a_key_on(broker: Broker) -> None:
    broker.ask("leased", document={"after": 5})
    assert broker.told() == {"leased": [[3, 6, 0], [3, 7, 0]], "more": True}


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    "document",
    [f'{{"key":"{KEY}"}} ', f'{{"key":"{KEY}"}}\n', '{"key":"0f"}', "{", f'{{"key":"{KEY.upper()}"}}'],
)
def test_a_key_in_any_other_form_is_refused(broker: Broker, document: str) -> None:
    assert broker.ask(document=document) == Code.INVALID_REQUEST


def test_a_sequence_that_no_log_has_is_refused(broker: Broker) -> None:
    assert broker.ask(sequence=limits.SEQUENCE_MAX + 1) == Code.INVALID_REQUEST
    assert broker.ask(sequence=limits.SEQUENCE_MAX) is None


@pytest.mark.parametrize(
    ("after", "fine"),
    [
        ([limits.DUE_MS_MAX, (1 << 56) - 1, "ff" * 8], True),
        ([0, -1, ""], True),
        ([limits.DUE_MS_MAX + 1, 0, ""], False),
        ([-1, 0, ""], False),
        ([0, 1 << 56, ""], False),
        ([0, -2, ""], False),
        ([0, 0, "ff" * 9], False),
    ],
)
def test_a_count_goes_on_only_after_a_place_that_an_index_may_have(
    broker: Broker, after: list[Any], fine: bool
) -> None:
    expected = None if fine else Code.INVALID_REQUEST
    assert broker.ask("count", document=count(after)) == expected
    assert broker.ask("seconds", request_id=2, document=seconds(after=after)) == expected


def test_a_filter_that_is_none_is_refused_before_anything_is_read(broker: Broker, led: Led) -> None:
    assert broker.ask("count", document={"filter": {"no": 1}, "after": None}) == Code.INVALID_REQUEST
    assert led.saved == []


@pytest.mark.parametrize(
    ("after", "fine"), [(-1, True), (-2, False), ((1 << 56) - 1, True), (1 << 56, False)]
)
def test_what_is_leased_is_listed_only_after_a_key_that_there_may_be(
    broker: Broker, led: Led, after: int, fine: bool
) -> None:
    led.contents.leased_after = lambda key, most: (row()[:0], False)
    assert broker.ask("leased", document={"after": after}) == (None if fine else Code.INVALID_REQUEST)


def test_the_last_second_that_can_be_due_may_be_counted(broker: Broker) -> None:
    end = limits.DUE_MS_MAX + 1
    assert broker.ask("seconds", document={"from_ms": end - 1, "until_ms": end, "after": None}) is None
    most = limits.FORECAST_SECONDS_MAX * 1000
    asked = {"from_ms": end - most, "until_ms": end, "after": None}
    assert broker.ask("seconds", request_id=2, document=asked) is None
