"""Requests that bring or name a shared body: what is refused and why, and what the log gets of them."""

from __future__ import annotations

from zlib import crc32

import numpy as np
import pytest

from dueq import limits
from dueq.core.partition.body_requests import check_body
from dueq.core.partition.requests import check_change
from dueq.core.state.body_table import BodyTable, SharedBody
from dueq_chaos.scenarios.stage import Stage
from dueq_chaos.scenarios.taps import appends
from dueq_codecs.messages import ChangeRequest, Code
from dueq_codecs.meta import Meta, with_key
from dueq_codecs.records import Outcome, RecordKind
from dueq_codecs.rules import crc_joined, shared_name
from dueq_codecs.topic_settings import TopicSettings
from tests.unit.core.partition.test_requests import NOW, SETTINGS, insert

BODY = b"dear customer" * 100


def bringing(body: bytes = BODY) -> ChangeRequest:
    request = ChangeRequest(1, RecordKind.BODY, "t", 1, b"c" * 16, 1, 0)
    request.shared, request.shared_size = shared_name(body), len(body)
    request.size, request.crc = np.array([len(body)], np.uint32), np.array([crc32(body)], np.uint32)
    return request


def naming(*own: bytes) -> ChangeRequest:
    request = insert([each + BODY for each in own], [0] * len(own))
    request.shared, request.shared_size = shared_name(BODY), len(BODY)
    return request


def kept() -> BodyTable:
    table = BodyTable()
    table.by_name[shared_name(BODY)] = SharedBody(shared_name(BODY), 5, len(BODY), crc32(BODY))
    return table


def refusal(
    request: ChangeRequest, body: bytes = b"", table: BodyTable | None = None, longest: int = 1 << 20
) -> tuple[Code, str]:
    settings = TopicSettings(payload_bytes_max=longest)
    found = check_body(request, [body] if body else [], settings, table or BodyTable())
    assert found is not None
    return found.code, found.text


def test_a_body_is_brought_kept_and_named() -> None:
    assert check_change(bringing(), [BODY], SETTINGS, NOW) is None
    assert check_body(bringing(), [BODY], SETTINGS, BodyTable()) is None
    request = naming(with_key(b"a", b""), with_key(b"bc", b""))
    request.keyed = Meta.KEY
    own = b"\1a\2bc"
    assert check_change(request, [own], SETTINGS, NOW) is None
    assert check_body(request, [own], SETTINGS, kept()) is None
    assert check_change(naming(b"", b""), [b""], SETTINGS, NOW) is None


@pytest.mark.parametrize(("body", "longest"), [(b"x" * (limits.BODY_BYTES_MAX + 1), 1 << 20), (b"x" * 9, 8)])
def test_a_body_has_at_most_so_many_bytes(body: bytes, longest: int) -> None:
    code, text = refusal(bringing(body), body, longest=longest)
    assert (code, f"{len(body)} bytes" in text) == (Code.PAYLOAD_TOO_LARGE, True)


def test_a_damaged_body_or_another_name_is_refused() -> None:
    assert "CRC" in refusal(bringing(), BODY[::-1])[1]
    request = bringing()
    request.shared = b"n" * 32
    assert "6e6e" in refusal(request, BODY)[1]


def test_a_grace_has_a_limit() -> None:
    request = bringing()
    request.amount_ms = np.array([limits.BODY_GRACE_MS + 1], np.uint64)
    assert "3600001" in refusal(request, BODY)[1]


def test_an_unknown_body_is_refused_by_name() -> None:
    code, text = refusal(naming(b""))
    assert (code, shared_name(BODY).hex() in text) == (Code.UNKNOWN_BODY, True)


def test_a_damaged_payload_names_its_row() -> None:
    request = naming(b"a", b"b")
    assert refusal(request, b"ac", kept())[1].startswith("row 1")


@pytest.mark.parametrize("first", [b"", b"a", b"key and headers"])
def test_crcs_are_joined(first: bytes) -> None:
    assert crc_joined(crc32(first), crc32(BODY), len(BODY)) == crc32(first + BODY)


def test_a_shared_body_is_kept_that_was_put_while_its_end_waited_for_its_commit() -> None:
    """The leader drops bytes that it has already. It must not, where a record ahead of them lets go of those."""
    stage = Stage()
    one, other = stage.hand("one"), stage.hand("other")
    data = b"x" * 1_000
    stage.settled(one, one.bring("b1", data))
    held = stage.hold("b2", appends("b1"))
    ended = one.keep("b1", data, 0)
    stage.until(lambda: held.events, "the record that ends its grace, on its way")
    again = other.bring("b1", data)
    end = stage.replica("b1").replica.log.end
    stage.until(lambda: stage.replica("b1").replica.log.end > end, "the record that puts it again")
    held.forget()
    stage.until(lambda: ended.final and again.final, "both answers")
    stage.expect(ended.outcomes == again.outcomes == [Outcome.DONE], f"{ended.outcomes} {again.outcomes}")
    stage.expect(shared_name(data) in stage.replica("b1").timeline.bodies.by_name, "it is kept")

    stage.step("whoever puts what is kept adds nothing to the log")
    end = stage.replica("b1").replica.log.end
    stage.settled(one, one.bring("b1", data))
    entry = stage.replica("b1").replica.log.get(end + 1)
    stage.expect(entry is not None and not entry.body, "its bytes are dropped")
    stage.finish()
