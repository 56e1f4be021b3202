"""Jobs, browsing, inspecting and errors, as the page on the wire protocol has them, without our own client."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from dueq.local import LocalMesh
from tests.integration.plain_client import ACK, CHUNK, JOB, PlainClient
from tests.integration.plain_consumer import PlainConsumer
from tests.integration.plain_wire import encode, id_text

pytestmark = pytest.mark.integration

PAGE = Path(__file__).resolve().parents[2] / "docs/reference/protocol.md"
DONE, ENDED = 0, 5
OK, INVALID_REQUEST, NOT_LEADER, UNKNOWN_SESSION, BAD_FRAME, WRONG_CLUSTER, JOB_ENDED = (
    0,
    1,
    10,
    12,
    15,
    17,
    19,
)
COMMIT, ABORT = 1, 2


@pytest.fixture(scope="module")
def one_broker() -> Iterator[LocalMesh]:
    with LocalMesh(brokers=1, zookeeper=False) as mesh:
        yield mesh


@pytest.fixture
def plain(one_broker: LocalMesh) -> Iterator[PlainClient]:
    client = PlainClient(one_broker.endpoints[0])
    yield client
    client.close()


def test_a_hidden_job_is_shown_once_home_has_committed_it(plain: PlainClient) -> None:
    uids = plain.create_topic("job", 3, 1)
    key, until = os.urandom(16), plain.mesh_ms() + 60_000
    of_job: dict[str, Any] = {"job": key, "job_until": until}
    ids = [plain.schedule("job", uid, [b"hidden"], [0], **of_job)[0] for uid in uids]
    consumer = PlainConsumer(plain, "job")
    assert consumer.take(1, 1.5) == []
    home = uids[crc32(key) % len(uids)]
    assert plain.change(JOB, "job", home, job_action=COMMIT, **of_job)["outcomes"] == [DONE]
    assert plain.change(JOB, "job", home, job_action=ABORT, **of_job)["outcomes"] == [ENDED]
    deliveries = consumer.take(3, 60)
    assert sorted(delivery.id for delivery in deliveries) == sorted(ids)
    assert set(consumer.settle(ACK, deliveries)) == {DONE}
    late = plain.change(2, "job", home, b"x", due=[0], size=[1], crc=[crc32(b"x")], **of_job)
    assert late["code"] == JOB_ENDED
    consumer.close()


def test_pages_of_what_waits(plain: PlainClient) -> None:
    (uid,) = plain.create_topic("pages", 1, 1)
    later = plain.mesh_ms() + 3_600_000
    payloads = [b"%d" % number for number in range(5)] + [bytes(CHUNK + 1)]
    ids = plain.schedule("pages", uid, payloads, [later + number for number in range(6)])
    page = plain.ask("BrowseRequest", topic="pages", uid=uid, limit=4, payloads=True)
    place = {"topic": "pages", "uid": uid, "snapshot": page["snapshot"]}
    rows, bodies = [], []
    while True:
        assert page["code"] == OK, page["text"]
        start = 0
        for row in range(len(page["wait_at"])):
            rows.append(tuple(page[name][row] for name in ("first", "sequence", "row", "size", "upload")))
            bodies.append(page["body"][start : start + page["body_size"][row]])
            start += page["body_size"][row]
        if page["last"]:
            break
        behind = {
            "after_wait_at": page["wait_at"][-1],
            "after_key": page["sequence"][-1] << 16 | page["row"][-1],
        }
        page = plain.ask("BrowseRequest", limit=4, payloads=True, **place, **behind)
    assert [id_text(first, uid, sequence, row) for first, sequence, row, _, _ in rows] == ids
    assert bodies == [*payloads[:5], b""]
    chunks = [plain.ask("BrowseRequest", upload=rows[5][4], chunk=chunk, **place)["body"] for chunk in (0, 1)]
    assert b"".join(chunks) == payloads[5]
    assert plain.ask("BrowseRequest", close=True, **place)["last"]
    request_id = 1 << 40
    plain.send("BrowseRequest", request_id=request_id, **place)
    assert plain.answer(request_id)["code"] == UNKNOWN_SESSION


def keys_of(document: Any) -> set[str]:
    """All keys of a JSON document, at whatever depth; those of `senders` are no words."""
    if isinstance(document, list):
        return set().union(*map(keys_of, document))
    if not isinstance(document, dict):
        return set()
    return set(document).union(*(keys_of(value) for key, value in document.items() if key != "senders"))


def test_documents_have_the_keys_that_the_page_lists(plain: PlainClient) -> None:
    (uid,) = plain.create_topic("inspected", 1, 1)
    plain.schedule("inspected", uid, [b"x"], [plain.mesh_ms() + 60_000], job=os.urandom(16))
    plain.schedule("inspected", uid, [b"x"], [0])
    consumer = PlainConsumer(plain, "inspected")
    consumer.take(1, 60)
    consumer.close()
    for what, seconds in (("describe", 0), ("forecast", 3600), ("hours", 0), ("jobs", 0), ("statistics", 0)):
        answer = plain.ask("InspectRequest", what=what, topic="inspected", seconds=seconds)
        assert answer["code"] == OK, answer["text"]
        (row,) = re.findall(rf"^\| `{what}` \|.*", PAGE.read_text(), re.MULTILINE)
        assert keys_of(json.loads(answer["document"])) == set(re.findall(r'"(\w+)"', row)), what
    status = json.loads(plain.ask("InspectRequest", what="status")["document"])
    assert set(status) == {"broker", "brokers", "topics", "consumers", "partitions"}
    assert plain.ask("InspectRequest", what="nothing")["code"] == INVALID_REQUEST


def test_a_frame_that_is_none_is_answered_and_harms_nobody(plain: PlainClient) -> None:
    frame = encode("MetadataRequest", {"request_id": 77, "topic": "t"})
    plain.send_frames([frame, b"a body where none belongs"])
    assert plain.answer(77)["code"] == BAD_FRAME
    plain.send_frames([frame[:-1] + b"x"])
    assert plain.answer(0)["code"] == BAD_FRAME
    plain.send(
        "ChangeRequest", request_id=78, kind=3, topic="t", uid=1, client_id=plain.client_id, sequence=1
    )
    assert plain.answer(78)["code"] == BAD_FRAME


def test_a_goodbye_ends_its_attach_and_those_before_it(plain: PlainClient) -> None:
    plain.create_topic("goodbye", 1, 1)
    consumer = PlainConsumer(plain, "goodbye")
    consumer.take(1, 0.5)
    consumer.close()
    base = {
        "topic": "goodbye",
        "consumer_id": consumer.consumer_id,
        "credit": 1,
        "credit_bytes": 1,
        "lease_ms": 1000,
    }
    codes = []
    for attach in (1, 2):
        plain.send("ConsumerFrame", action=0, attach=attach, number=attach, **base)
        while not plain.for_consumers:
            plain.turn()
        codes.append(plain.for_consumers.popleft()[0]["code"])
    assert codes == [UNKNOWN_SESSION, OK]


def test_another_cluster_is_told(plain: PlainClient) -> None:
    plain.send("Hello", name="x", cluster_id="another", protocol_min=1, protocol_max=1)
    with pytest.raises(AssertionError, match="this is cluster"):
        plain.answer(request_id=1)
