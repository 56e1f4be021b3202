"""Looking at messages as they are now: the leader's side.

    "message" ──► (confirmed, if it must be current) ──► looked up ──► (meta or payload read) ──► answer

Nothing is leased, moved or counted, and no snapshot is kept. The answer is the applied state of the leader at one
instant after the question came. The leader makes sure that no other one has gone on without it only if the question
says so (`replication/confirming`).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dueq import limits
from dueq.core.partition.index_walk import IndexWalk
from dueq.core.partition.requests import Refusal, invalid
from dueq.core.ports.entry import FLAG_UPLOAD, Entries, is_full, keys_of
from dueq.core.ports.events import Route
from dueq.core.ports.names import Answered, Lasting, Name
from dueq.core.ports.persistence import (
    CHUNK_INDEX_MAX,
    ChunkRead,
    IndexScanned,
    PayloadsRead,
    ReadChunk,
    ReadPayloads,
    ReadRemark,
    RemarkRead,
)
from dueq.core.state.cold import ColdIds
from dueq.core.state.forecast import counted_by_second
from dueq.core.state.matching import FilterRefused, filter_of
from dueq.core.turn.context import Context
from dueq.instant import Now
from dueq_codecs.documents import decode_document
from dueq_codecs.messages import Code, LookReply, LookRequest
from dueq_codecs.meta import prefix_bytes

if TYPE_CHECKING:
    from dueq.core.partition.partition import Partition

Body = bytes | memoryview
_RETRY_MS: Final = 50
_LOOKS_MAX: Final = 4
_KEY_DOCUMENT: Final = re.compile(r'\{"key":"[0-9a-f]{32}"\}\Z')
_CLASS_BYTES: Final = 8


@dataclass(slots=True)
class _Look:
    """A question under way.

    Attributes:
        epoch: of the leadership that answers it.
        since_us: (mono) when it came.
        looks: how often the message was looked for that bears its key.
        again: its message could not be read, and is looked up once more: it may be gone meanwhile.
    """

    route: Route
    request: LookRequest
    partition: Partition
    epoch: int
    since_us: int
    again: bool = False
    looks: int = 0

    @property
    def led(self) -> bool:
        """Whether the leadership goes on."""
        replica = self.partition.replica
        return replica.serving and replica.epoch == self.epoch


class Looking:
    """All questions about single messages to leaders here."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._asked: dict[tuple[Route, int], None] = {}
        self._unconfirmed: list[_Look] = []
        self._saving: dict[tuple[Route, int], _Look] = {}  # counts that wait for a checkpoint

    def requested(self, route: Route, request: LookRequest, partition: Partition, now: Now) -> Refusal | None:
        """Answer, sooner or later; or refuse."""
        refusal = _malformed(request)
        if refusal is None and not partition.replica.serving:
            refusal = Refusal(Code.NOT_LEADER, f"partition {request.uid} is not served here (yet)", _RETRY_MS)
        if refusal is None and len(self._asked) >= limits.LOOKS_MAX:
            refusal = Refusal(Code.BUSY, f"{len(self._asked)} messages are being looked at here", _RETRY_MS)
        if refusal is not None or (route, request.request_id) in self._asked:
            return refusal
        self._asked[route, request.request_id] = None
        look = _Look(route, request, partition, partition.epoch, now.mono_us)
        if request.upload:
            self._read_chunk(
                look, request.upload, request.chunk, lambda answer: self._answer_chunk(look, answer)
            )
        elif request.what == "count":
            self._count(look, now)
        elif request.what == "seconds":
            self._count_seconds(look, now)
        elif request.what == "leased":
            self._list_leased(look)
        elif request.current and not partition.confirmed_since(look.since_us, now):
            self._unconfirmed.append(look)
        else:
            self._look_up(look, now)
        return None

    def work(self, now: Now) -> None:
        """Answer those whose leadership is confirmed by now; ask for the others."""
        for look in [look for look in self._saving.values() if not look.led]:
            del self._saving[look.route, look.request.request_id]
            self._no_leader(look)
        if not self._unconfirmed:
            return
        waiting, self._unconfirmed = self._unconfirmed, []
        for look in waiting:
            if not look.led:
                self._no_leader(look)
            elif look.partition.confirmed_since(look.since_us, now):
                self._look_up(look, now)
            else:
                look.partition.ask_since(look.since_us, now)
                self._unconfirmed.append(look)

    # -------------------------------------------------------------- one message

    def _look_up(self, look: _Look, now: Now) -> None:
        request = look.request
        if not request.document:
            self._look_up_id(look, now)
            return

        def found(names: list[Name | None] | None, then: Now) -> None:
            if names is None:
                self._no_leader(look)
            elif isinstance(names[0], Answered):
                self._answer(look, _answered(request.uid, names[0]), b"")
            elif names[0] is None or isinstance(names[0], Lasting):
                self._reply(look, LookReply(request.request_id, Code.OK))
            else:
                first, key = names[0]
                request.first, request.sequence, request.row = first, key >> 16, key & 0xFFFF
                look.looks += 1
                self._look_up_id(look, then)

        look.partition.look_up_names([bytes.fromhex(decode_document(request.document)["key"])], found, now)

    def _look_up_id(self, look: _Look, now: Now) -> None:
        request = look.request
        ids = ColdIds(
            np.array([request.first], np.uint64),
            np.array([request.sequence], np.uint64),
            np.array([request.row], np.uint16),
        )

        def found(rows: Entries | None, then: Now) -> None:
            if rows is None:
                self._no_leader(look)
                return
            document = look.partition.message_document(rows, request.first, then)
            lost = document is None or document["state"] == "dead"
            if request.document and lost and look.looks < _LOOKS_MAX:
                self._look_up(look, then)  # another message may bear the key by now
            elif document is None:
                self._reply(look, LookReply(request.request_id, Code.OK))
            else:
                document["id"] = [request.first, request.uid, request.sequence, request.row]
                self._find_reason(look, rows, document)

        look.partition.look_up(ids, found, now)

    def _find_reason(self, look: _Look, rows: Entries, document: dict[str, Any]) -> None:
        """Go on once it is known why the message was given back last."""
        if not (is_full(rows) and rows["remark"][0]):
            self._found(look, rows, document)
            return
        key = int(keys_of(rows)[0])
        text = look.partition.contents.remark_of(key)

        def read(answer: object, then: Now) -> None:
            assert isinstance(answer, RemarkRead)
            document["reason"] = answer.text
            self._found(look, rows, document)

        if text is None:
            self._ctx.read(lambda token: ReadRemark(token, look.partition.uid, key), read)
        else:
            document["reason"] = text
            self._found(look, rows, document)

    def _found(self, look: _Look, rows: Entries, document: dict[str, Any]) -> None:
        """Answer with a message, once its meta or payload is read."""
        flags = int(rows["flags"][0])
        if flags & FLAG_UPLOAD:
            if not document["meta"]:
                self._answer(look, document, b"")
                return

            def read_head(answer: ChunkRead) -> None:
                self._take_body(look, document, answer.data, whole=False)

            self._read_chunk(look, int(rows["place"][0]), 0, read_head)
            return
        if not (look.request.payload or document["meta"]):
            self._answer(look, document, b"")
            return
        [cached] = look.partition.cached_payloads(rows)
        if cached is not None:
            self._take_body(look, document, cached, whole=look.request.payload)
            return

        def read(answer: object, then: Now) -> None:
            assert isinstance(answer, PayloadsRead)
            self._take_body(look, document, answer.payloads[0], whole=look.request.payload)

        self._ctx.read(lambda token: ReadPayloads(token, look.partition.uid, rows), read)

    def _take_body(self, look: _Look, document: dict[str, Any], body: Body | None, *, whole: bool) -> None:
        """Answer with a message, and its payload (`whole`) or only its key and headers."""
        if body is not None:
            self._answer(look, document, body if whole else body[: prefix_bytes(document["meta"], body)])
        elif not look.led:
            self._no_leader(look)
        elif not look.again:
            look.again = True
            self._look_up(look, self._ctx.turn)
        else:
            self._ctx.metrics.errors["payload_unreadable"] += 1
            text = f"the payload of a message of partition {look.partition.uid} cannot be read"
            self._reply(look, LookReply(look.request.request_id, Code.BROKEN, text))

    def _answer(self, look: _Look, document: dict[str, Any], body: Body) -> None:
        if not look.led:
            self._no_leader(look)
            return
        reply = LookReply(look.request.request_id, Code.OK, document=json.dumps(document))
        self._reply(look, reply, body)

    # -------------------------------------------------------------- counts

    def _count(self, look: _Look, now: Now) -> None:
        """Count what matches a filter, in the next `COUNT_ROWS` messages of the index.

        Perhaps in fewer: where there are very many groups, most reads may bring nothing.
        """
        request, partition = look.request, look.partition
        asked = decode_document(request.document)
        walk = partition.filtered_walk(filter_of(asked["filter"]))
        if asked["after"] is not None:
            wait_at, key, of = asked["after"]
            walk.walk.go_to(wait_at, key, bytes.fromhex(of))
        matched = reads = 0

        def page(entries: Entries, then: Now) -> None:
            nonlocal matched, reads
            matched, reads = matched + len(entries), reads + 1
            if not look.led:
                self._no_leader(look)
            elif walk.ended or walk.looked >= limits.COUNT_ROWS or reads >= limits.COUNT_READS:
                wait_at, key, of = walk.walk.place
                after = None if walk.ended else [wait_at, key, of.hex()]
                self._answer(look, {"matched": matched, "after": after}, b"")
            else:
                walk.read(page)

        self._once_saved(look, asked["after"] is None, lambda: walk.read(page), now)

    def _count_seconds(self, look: _Look, now: Now) -> None:
        """Count the messages that wait until each second of an interval, in the next `COUNT_ROWS` of the index."""
        request, partition = look.request, look.partition
        asked = decode_document(request.document)
        walk = IndexWalk(
            partition.uid, partition.contents.class_bytes, asked["from_ms"], asked["until_ms"] - 1
        )
        if asked["after"] is not None:
            wait_at, key, of = asked["after"]
            walk.go_to(wait_at, key, bytes.fromhex(of))
        counts: Counter[int] = Counter()
        looked = reads = 0

        def page(answer: object, then: Now) -> None:
            nonlocal looked, reads
            assert isinstance(answer, IndexScanned)
            entries = walk.take(answer)
            looked, reads = looked + len(entries), reads + 1
            inside = entries[entries["wait_at"] < asked["until_ms"]]
            counts.update(counted_by_second(partition.contents.decided(inside)))
            if not look.led:
                self._no_leader(look)
            elif walk.ended or looked >= limits.COUNT_ROWS or reads >= limits.COUNT_READS:
                wait_at, key, of = walk.place
                after = None if walk.ended else [wait_at, key, of.hex()]
                found = sorted((second * 1000, count) for second, count in counts.items())
                self._answer(look, {"counts": found, "after": after}, b"")
            else:
                self._ctx.read(walk.request, page)

        self._once_saved(look, asked["after"] is None, lambda: self._ctx.read(walk.request, page), now)

    def _once_saved(self, look: _Look, first: bool, then: Callable[[], object], now: Now) -> None:
        """Begin to read the index; the first time, once it has all that is applied by now."""

        def saved(hidden: frozenset[int], at: Now) -> None:
            if self._saving.pop((look.route, look.request.request_id), None) is not None:
                then()

        if first:
            self._saving[look.route, look.request.request_id] = look
            look.partition.once_saved(saved, now)
        else:
            then()

    # -------------------------------------------------------------- what consumers have

    def _list_leased(self, look: _Look) -> None:
        """Name the next messages by key that are leased."""
        rows, more = look.partition.contents.leased_after(
            decode_document(look.request.document)["after"], limits.LEASED_ROWS
        )
        named = zip(rows["first"].tolist(), rows["sequence"].tolist(), rows["row"].tolist(), strict=True)
        self._answer(look, {"leased": list(named), "more": more}, b"")

    # -------------------------------------------------------------- chunks

    def _read_chunk(self, look: _Look, upload: int, chunk: int, then: Callable[[ChunkRead], None]) -> None:
        def read(answer: object, now: Now) -> None:
            assert isinstance(answer, ChunkRead)
            then(answer)

        def make(token: int) -> ReadChunk:
            return ReadChunk(token, look.partition.uid, upload, chunk)

        self._ctx.read(make, read)

    def _answer_chunk(self, look: _Look, answer: ChunkRead) -> None:
        reply = LookReply(look.request.request_id, Code.OK)
        if answer.data is None:  # or the message is gone: the asker looks at it again
            reply.code = Code.BROKEN
            reply.text = (
                f"chunk {answer.chunk} of upload {answer.upload} of partition {answer.uid} is not there"
            )
        self._reply(look, reply, answer.data or b"")

    # -------------------------------------------------------------- answers

    def _no_leader(self, look: _Look) -> None:
        self._ctx.metrics.errors["not_leader"] += 1
        text = f"partition {look.request.uid} is not led here any more"
        reply = LookReply(look.request.request_id, Code.NOT_LEADER, text, retry_after_ms=_RETRY_MS)
        self._reply(look, reply)

    def _reply(self, look: _Look, reply: LookReply, body: Body = b"") -> None:
        del self._asked[look.route, look.request.request_id]
        reply.leader = self._ctx.settings.broker_id if reply.code is not Code.NOT_LEADER else ""
        self._ctx.reply(look.route, reply, [body])


def _answered(uid: int, name: Answered) -> dict[str, Any]:
    """What there is to say of an idempotency key: the message of the first answer, and the digest of its request."""
    message_id = [name.first, uid, name.key >> 16, name.key & 0xFFFF]
    return {"answered": message_id, "due": name.due, "digest": name.digest}


def _malformed(request: LookRequest) -> Refusal | None:
    if request.chunk > CHUNK_INDEX_MAX:
        return invalid(f"chunk {request.chunk} is beyond {CHUNK_INDEX_MAX}")
    if request.what in _MALFORMED:
        return _MALFORMED[request.what](request.document)
    if request.what != "message":
        what = ", ".join(("message", *_MALFORMED))
        return invalid(f"a look is at one of {what}, not at {request.what!r:.80}")
    if request.document and not _KEY_DOCUMENT.match(request.document):
        return invalid(
            f'a message is named by its id, or by {{"key":32 hex digits}}, not by {request.document:.80}'
        )
    if request.sequence > limits.SEQUENCE_MAX:
        return invalid(f"sequence {request.sequence} is beyond {limits.SEQUENCE_MAX}")
    return None


def _malformed_count(document: str) -> Refusal | None:
    try:
        asked = decode_document(document)
        filter_of(asked["filter"])
        if not _is_place(asked["after"]):
            return invalid(f"a count goes on after a place, not after {asked['after']!r:.80}")
    except FilterRefused as refused:
        return invalid(str(refused))
    except (ValueError, TypeError, KeyError, AttributeError):
        return invalid(f'a count is {{"filter":…,"after":…}}, not {document:.200}')
    return None


def _malformed_seconds(document: str) -> Refusal | None:
    most = limits.FORECAST_SECONDS_MAX
    try:
        asked = decode_document(document)
        begin, end = asked["from_ms"], asked["until_ms"]
        if type(begin) is not int or type(end) is not int or not 0 <= begin < end <= limits.DUE_MS_MAX + 1:
            return invalid(f"seconds begin before they end, not {begin!r:.40} to {end!r:.40}")
        if end - begin > most * 1000:
            return invalid(f"1 to {most} seconds are counted at once, not {(end - begin) / 1000:g}")
        if not _is_place(asked["after"]):
            return invalid(f"a count goes on after a place, not after {asked['after']!r:.80}")
    except (ValueError, TypeError, KeyError, AttributeError):
        return invalid(f'seconds are {{"from_ms":…,"until_ms":…,"after":…}}, not {document:.200}')
    return None


def _malformed_leased(document: str) -> Refusal | None:
    try:
        after = decode_document(document)["after"]
    except (ValueError, TypeError, KeyError):
        after = None
    if type(after) is not int or not -1 <= after < 1 << 56:
        return invalid(f'what is leased is listed {{"after":KEY}}, -1 at the beginning, not {document:.200}')
    return None


_MALFORMED: Final = {
    "count": _malformed_count,
    "seconds": _malformed_seconds,
    "leased": _malformed_leased,
}


def _is_place(after: Any) -> bool:
    """Whether this is a place in the index, or None; raises where it is nothing like that."""
    if after is None:
        return True
    wait_at, key, of = after
    if type(wait_at) is not int or type(key) is not int:
        return False
    return (
        0 <= wait_at <= limits.DUE_MS_MAX and -1 <= key < 1 << 56 and len(bytes.fromhex(of)) <= _CLASS_BYTES
    )
