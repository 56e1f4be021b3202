"""Requests outside their limits are refused whole, and the text names the row, the value and the limit."""

from __future__ import annotations

import json
from dataclasses import replace
from zlib import crc32

import numpy as np
import pytest

from dueq import limits
from dueq.core.partition.requests import check_change, check_chunk, check_topic
from dueq.core.ports.membership import PartitionAssignment, Topic
from dueq.instant import Now
from dueq_codecs.messages import ChangeRequest, ChunkRequest, Code
from dueq_codecs.meta import PREFIX_BYTES_MAX, Meta, packed_headers, prefix_of, with_key
from dueq_codecs.records import JobAction, OnDuplicate, RecordKind
from dueq_codecs.rules import homes_of_keys, key_hashes, once_hashes
from dueq_codecs.topic_settings import TopicSettings

NOW = Now(1_700_000_000_000_000, 1)
SETTINGS = TopicSettings(payload_bytes_max=1 << 20)


def insert(payloads: list[bytes], dues: list[int], uploads: list[int] | None = None) -> ChangeRequest:
    request = ChangeRequest(1, RecordKind.INSERT, "t", 1, b"c" * 16, 1, 0)
    request.due = np.array(dues, np.uint64)
    request.size = np.array([len(payload) for payload in payloads], np.uint32)
    request.crc = np.array([crc32(payload) for payload in payloads], np.uint32)
    if uploads:
        request.upload = np.array(uploads, np.uint64)
    return request


def named(kind: RecordKind, amount_ms: list[int]) -> ChangeRequest:
    request = ChangeRequest(1, kind, "t", 1, b"c" * 16, 1, 0)
    rows = len(amount_ms)
    request.first = request.target_sequence = request.token = np.ones(rows, np.uint64)
    request.target_row = np.zeros(rows, np.uint16)
    request.amount_ms = np.array(amount_ms, np.uint64)
    return request


def refusal(
    request: ChangeRequest, body: bytes = b"", settings: TopicSettings = SETTINGS
) -> tuple[Code, str]:
    found = check_change(request, [body] if body else [], settings, NOW)
    assert found is not None
    return found.code, found.text


def test_a_good_batch_is_taken_also_with_an_empty_payload_and_a_past_due() -> None:
    assert (
        check_change(insert([b"a", b"", b"bc"], [0, 5, limits.DUE_MS_MAX]), [b"abc"], SETTINGS, NOW) is None
    )


def test_an_empty_batch_is_refused() -> None:
    assert refusal(insert([], [])) == (Code.INVALID_REQUEST, "a request has 1 to 1024 rows, not 0")


def test_a_due_beyond_the_range_names_its_row() -> None:
    code, text = refusal(insert([b"a", b"b"], [1, limits.DUE_MS_MAX + 1]), b"ab")
    assert code == Code.INVALID_REQUEST
    assert text.startswith("row 1: due 281474976710656")


def test_a_due_beyond_the_horizon_of_the_topic_is_refused() -> None:
    settings = TopicSettings(horizon_ms=60_000)
    code, text = refusal(insert([b"a"], [NOW.wall_ms + 60_001]), b"a", settings)
    assert code == Code.INVALID_REQUEST
    assert "horizon of 60000 ms" in text


def test_a_payload_over_the_topics_limit_is_refused() -> None:
    settings = TopicSettings(payload_bytes_max=3)
    assert refusal(insert([b"ab", b"abcd"], [1, 1]), b"ababcd", settings) == (
        Code.PAYLOAD_TOO_LARGE,
        "row 1: a payload of 4 bytes is over the topic's 3",
    )


def test_sizes_that_do_not_add_up_to_the_body_are_refused() -> None:
    assert refusal(insert([b"abc"], [1]), b"ab") == (
        Code.INVALID_REQUEST,
        "the sizes add up to 3 bytes, the body has 2",
    )


def test_sizes_that_overflow_32_bits_together_are_refused() -> None:
    request = insert([b"a"] * 5, [1] * 5)
    request.size = np.full(5, 0xFFFFFFFF, np.uint32)
    settings = TopicSettings(payload_bytes_max=1 << 40)
    assert refusal(request, b"a", settings)[0] == Code.INVALID_REQUEST


def test_a_damaged_payload_names_its_row() -> None:
    code, text = refusal(insert([b"ab", b"cd"], [1, 1]), b"abxd")
    assert code == Code.INVALID_REQUEST
    assert text.startswith("row 1: the payload does not have the CRC")


@pytest.mark.parametrize("payloads", [[b"ab", b""], [b""]])
def test_an_empty_payload_has_its_crc_too(payloads: list[bytes]) -> None:
    """Whoever reads it checks that: the message would never be delivered."""
    request = insert(payloads, [1] * len(payloads))
    request.crc[-1] = 1
    code, text = refusal(request, b"".join(payloads))
    assert code == Code.INVALID_REQUEST
    assert (
        text == f"row {len(payloads) - 1}: the payload does not have the CRC 0x00000001 that was sent with it"
    )


@pytest.mark.parametrize(("size", "upload"), [(limits.CHUNK_BYTES + 1, 0), (5, 9)])
def test_long_payloads_and_only_those_are_uploads(size: int, upload: int) -> None:
    request = insert([b""], [1], [upload])
    request.size = np.array([size], np.uint32)
    assert "are uploaded first" in refusal(request)[1]


@pytest.mark.parametrize(
    ("kind", "amount", "text"),
    [
        (RecordKind.NACK, limits.DELAY_MS_MAX + 1, "a delay has 0 to"),
        (RecordKind.EXTEND, limits.LEASE_MS_MIN - 1, "a lease has 100 to"),
        (RecordKind.EXTEND, limits.LEASE_MS_MAX + 1, "a lease has 100 to"),
    ],
)
def test_amounts_have_bounds(kind: RecordKind, amount: int, text: str) -> None:
    assert text in refusal(named(kind, [limits.LEASE_MS_MIN, amount]))[1]


def nack(rows: int, document: str) -> ChangeRequest:
    request = named(RecordKind.NACK, [0] * rows)
    request.target_row, request.document = np.arange(rows, dtype=np.uint16), document
    return request


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ('{"a":"b"' + " " * limits.HEADING_BYTES_MAX + "}", "has at most 131072 bytes of JSON, not 131081"),
        (json.dumps({"a": "\x00" * 15_000}), "the headers of 32 rows have 2880288 bytes"),
    ],
    ids=["spaces", "many rows"],
)
def test_headers_of_a_nack_are_not_longer_than_a_partition_may_keep(document: str, text: str) -> None:
    code, said = refusal(nack(32, document))
    assert (code, text in said) == (Code.INVALID_REQUEST, True), said


def test_the_longest_headers_of_a_nack_are_taken() -> None:
    request = nack(16, json.dumps({"a": "\x00" * 16_000}))
    assert check_change(request, [], SETTINGS, NOW) is None


@pytest.mark.parametrize("kind", [RecordKind.BARRIER, RecordKind.LEASE, RecordKind.EXPIRE])
def test_what_only_leaders_may_write_is_refused(kind: RecordKind) -> None:
    assert "is not an operation of clients" in refusal(named(kind, [1]))[1]


def test_a_sequence_beyond_forty_bits_is_refused() -> None:
    request = named(RecordKind.ACK, [1])
    request.target_sequence = np.array([limits.SEQUENCE_MAX + 1], np.uint64)
    assert "is beyond" in refusal(request)[1]


def chunk(index: int, body: bytes, size: int, chunks: int) -> ChunkRequest:
    return ChunkRequest(1, "t", 1, b"c" * 16, 0, index, chunks, size, crc32(body))


def test_chunks_must_fit_their_payload() -> None:
    size = limits.CHUNK_BYTES + 10
    whole, rest = b"x" * limits.CHUNK_BYTES, b"y" * 10
    assert check_chunk(chunk(0, whole, size, 2), [whole], SETTINGS) is None
    assert check_chunk(chunk(1, rest, size, 2), [rest], SETTINGS) is None
    for wrong in (
        check_chunk(chunk(2, rest, size, 2), [rest], SETTINGS),
        check_chunk(chunk(1, rest, size, 3), [rest], SETTINGS),
        check_chunk(chunk(1, whole, size, 2), [whole], SETTINGS),
        check_chunk(chunk(0, rest, 10, 1), [rest], SETTINGS),
        check_chunk(chunk(0, whole, size, 2), [b"z" * limits.CHUNK_BYTES], SETTINGS),
        check_chunk(chunk(0, whole, 2 << 20, 8), [whole], SETTINGS),
    ):
        assert wrong is not None


def test_the_longest_payload_of_a_topic_may_have_a_meta_before_it() -> None:
    size = SETTINGS.payload_bytes_max + max(PREFIX_BYTES_MAX)
    chunks = -(-size // limits.CHUNK_BYTES)
    whole = b"x" * limits.CHUNK_BYTES
    assert check_chunk(chunk(0, whole, size, chunks), [whole], SETTINGS) is None
    too_long = check_chunk(chunk(0, whole, size + 1, chunks), [whole], SETTINGS)
    assert too_long is not None
    assert too_long.code is Code.PAYLOAD_TOO_LARGE


@pytest.mark.parametrize("action", [JobAction.COMMIT, JobAction.ABORT, JobAction.CANCEL])
def test_no_job_is_hidden_for_longer_than_jobs_are_remembered(action: JobAction) -> None:
    longest_ms = limits.JOB_HIDDEN_MS_MAX + limits.HANDOVER_MS
    request = insert([b"a"], [1])
    request.job, request.job_until = b"j" * 16, NOW.wall_ms + longest_ms
    assert check_change(request, [b"a"], SETTINGS, NOW) is None
    request.job_until += 1
    assert "a job is hidden for at most 604800000 ms" in refusal(request, b"a")[1]

    ending = ChangeRequest(1, RecordKind.JOB, "t", 1, b"c" * 16, 1, 0, job=b"j" * 16, job_action=action)
    ending.job_until = NOW.wall_ms + longest_ms + 30_000  # as a leader whose clock is ahead has taken it
    assert check_change(ending, [], SETTINGS, NOW) is None
    for until in (NOW.wall_ms + longest_ms + limits.HANDOVER_MS + 1, limits.DUE_MS_MAX):
        ending.job_until = until
        assert f"a job is hidden for at most 604800000 ms, not until {until}" in refusal(ending)[1]


def test_only_leaders_say_that_nothing_of_a_job_is_hidden_any_more() -> None:
    request = ChangeRequest(1, RecordKind.JOB, "t", 1, b"c" * 16, 1, 0, job=b"j" * 16, job_until=5)
    request.job_action = JobAction.CLEARED
    assert refusal(request)[1].startswith("CLEARED is not an action of clients")


def test_no_two_rows_name_one_upload() -> None:
    request = insert([b"", b"", b"", b""], [1, 1, 1, 1], [9, 8, 0, 9])
    request.size[[0, 1, 3]] = limits.CHUNK_BYTES + 1
    assert refusal(request) == (Code.INVALID_REQUEST, "row 3: upload 9 is named by row 0, too")


def keyed(payloads: list[bytes], uploads: list[int] | None = None) -> ChangeRequest:
    request = insert(payloads, [1] * len(payloads), uploads)
    request.keyed = Meta.KEY
    return request


def test_a_key_does_not_count_against_the_topics_limit() -> None:
    settings = TopicSettings(payload_bytes_max=3)
    stored = with_key(b"k" * 255, b"abc")
    assert check_change(keyed([stored]), [stored], settings, NOW) is None


@pytest.mark.parametrize("stored", [b"", b"\x03ab"])
def test_a_payload_too_short_for_its_key_names_its_row(stored: bytes) -> None:
    good = with_key(b"", b"")
    assert refusal(keyed([good, stored]), good + stored) == (
        Code.INVALID_REQUEST,
        f"row 1: its {len(stored)} bytes are too few for the key that they begin with",
    )


@pytest.mark.parametrize("mode", [Meta.KEY, Meta.HEADERS], ids=str)
def test_payloads_without_a_byte_begin_with_no_key_though_no_body_comes_with_them(mode: Meta) -> None:
    request = keyed([b"", b""])
    request.keyed = mode
    code, text = refusal(request)
    assert (code, text[:31]) == (Code.INVALID_REQUEST, "row 0: its 0 bytes are too few ")


@pytest.mark.parametrize("mode", [Meta.KEY, Meta.HEADERS], ids=str)
def test_uploads_alone_need_no_body(mode: Meta) -> None:
    request = keyed([bytes(limits.CHUNK_BYTES + 1)], [9])
    request.keyed = mode
    assert check_change(request, [], SETTINGS, NOW) is None


def test_the_key_of_an_upload_is_not_looked_for_in_the_body() -> None:
    long = with_key(b"k", bytes(limits.CHUNK_BYTES))
    short = with_key(b"k", b"")
    assert check_change(keyed([long, short], [9, 0]), [short], SETTINGS, NOW) is None
    code, text = refusal(keyed([long, b"\x09"], [9, 0]), b"\x09")
    assert (code, text[:6]) == (Code.INVALID_REQUEST, "row 1:")


def headed(payloads: list[bytes], uploads: list[int] | None = None) -> ChangeRequest:
    request = keyed(payloads, uploads)
    request.keyed = Meta.HEADERS
    return request


def test_headers_are_looked_at_row_by_row() -> None:
    good = prefix_of(Meta.HEADERS, b"key", packed_headers({"a": "b"})) + b"payload"
    assert check_change(headed([good, good]), [good + good], SETTINGS, NOW) is None
    for bad, said in (
        (b"\0", "row 1: its 1 bytes are too few for the key and headers that they begin with"),
        (b"\0\x04\0\x01a\xff\xff", "row 1: header 1 is longer than the 4 bytes of all headers"),
        (b"\0\x05\0\x01a\x01\0\xff", "row 1: its key and headers are no UTF-8: byte 0xff"),
    ):
        code, text = refusal(headed([good, bad]), good + bad)
        assert code == Code.INVALID_REQUEST
        assert said in text


def test_the_topics_limit_is_on_what_comes_after_the_headers() -> None:
    settings = replace(SETTINGS, payload_bytes_max=4)
    before = prefix_of(Meta.HEADERS, b"", packed_headers({"a": "b"}))
    assert check_change(headed([before + b"1234"]), [before + b"1234"], settings, NOW) is None
    found = check_change(headed([before + b"12345"]), [before + b"12345"], settings, NOW)
    assert found is not None
    assert found.code == Code.PAYLOAD_TOO_LARGE
    assert found.text == "row 0: a payload of 5 bytes is over the topic's 4"


def test_rows_that_were_uploaded_have_their_headers_elsewhere() -> None:
    long, short = bytes(limits.CHUNK_BYTES + 1), prefix_of(Meta.HEADERS, b"", b"")
    assert check_change(headed([long, short], [9, 0]), [short], SETTINGS, NOW) is None


def test_a_window_that_is_too_long_or_ends_too_late_names_its_row() -> None:
    request = insert([b"a", b"b"], [1, 2])
    request.window = np.array([limits.WINDOW_MS_MAX, limits.WINDOW_MS_MAX + 1], np.uint32)
    assert refusal(request, b"ab") == (
        Code.INVALID_REQUEST,
        "row 1: a window has at most 604800000 ms, not 604800001",
    )
    request = insert([b"a", b"b"], [1, limits.DUE_MS_MAX - 5])
    request.window = np.array([0, 6], np.uint32)
    assert (
        refusal(request, b"ab")[1] == f"row 1: due {limits.DUE_MS_MAX + 1} is beyond {limits.DUE_MS_MAX} ms"
    )
    request.window = np.array([0, 5], np.uint32)
    assert check_change(request, [b"ab"], SETTINGS, NOW) is None


def topic(keys: str = "unique", kind: str = "timeline") -> Topic:
    partitions = tuple(PartitionAssignment(uid, ("b1",)) for uid in (1, 2, 3))
    return Topic("t", "0" * 32, kind, partitions, 1, 1, TopicSettings(1, keys=keys))


def hashed(*keys: bytes, does: OnDuplicate = OnDuplicate.REFUSE) -> ChangeRequest:
    request = insert([with_key(key, b"x") for key in keys], [0] * len(keys))
    request.keyed, request.on_duplicate = Meta.KEY, does
    request.key_high, request.key_low = key_hashes(keys)
    return request


AT_HOME, AWAY = b"f", b"a"


def test_unique_keys_are_taken_where_they_are_at_home() -> None:
    high, _ = key_hashes([AT_HOME, AWAY])
    assert homes_of_keys(high, 3).tolist()[0] == 0
    assert check_topic(hashed(AT_HOME, b""), topic()) is None
    assert check_topic(hashed(AWAY), topic(kind="fair")) is None
    refused = check_topic(hashed(b"", AT_HOME, AWAY), topic())
    assert refused is not None
    away = int(homes_of_keys(high, 3)[1])
    assert refused.text == f"row 2: its key is at home in partition {away} of 3, not in 0"


def test_idempotency_keys_are_taken_where_they_are_at_home_or_where_something_else_decides() -> None:
    """Elsewhere nobody would find that the request was made before."""
    names = [b"%d" % number for number in range(20)]
    homes = homes_of_keys(once_hashes(names)[0], 3).tolist()
    high, low = once_hashes([names[homes.index(0)], names[homes.index(2)]])
    asked = insert([b"x", b"y", b"z"], [0, 0, 0])
    asked.once_high = np.array([0, *high], np.uint64)
    asked.once_low, asked.once_digest = np.array([0, *low], np.uint64), np.zeros(3, np.uint64)
    refused = check_topic(asked, topic("free"))
    assert refused is not None
    assert refused.text == "row 2: its key is at home in partition 2 of 3, not in 0"
    asked.groups, asked.group = ("a",), np.zeros(3, np.uint16)
    assert check_topic(asked, topic("free", kind="fair")) is None
    keyed = hashed(AT_HOME)
    keyed.once_high, keyed.once_low, keyed.once_digest = high[1:], low[1:], np.zeros(1, np.uint64)
    assert check_topic(keyed, topic()) is None


def test_no_row_has_one_hash_for_both_of_its_keys() -> None:
    """Its answer would take the place of the message that bears the key, and replicas would differ a day later."""
    asked = hashed(AT_HOME, AT_HOME)
    asked.once_high, asked.once_low = asked.key_high.copy(), asked.key_low.copy()
    asked.once_high[0] ^= np.uint64(1)
    asked.once_digest = np.ones(2, np.uint64)
    for kind in ("timeline", "fair"):
        refused = check_topic(asked, topic(kind=kind))
        assert refused is not None
        assert refused.text == "row 1: its idempotency key has the hash of its unique key"


def test_unique_keys_come_with_hashes_and_free_ones_without() -> None:
    refused = check_topic(hashed(AT_HOME), topic("free"))
    assert refused is not None
    assert refused.text == "the keys of topic t are free: 1 rows have hashes of unique ones"
    plain = insert([with_key(b"k", b"x")], [0])
    plain.keyed = Meta.KEY
    refused = check_topic(plain, topic())
    assert refused is not None
    assert refused.text.startswith("the keys of topic t are unique, and 1 rows have keys without hashes")
    assert check_topic(insert([b"x"], [0]), topic()) is None


def test_a_hidden_job_replaces_nothing() -> None:
    request = hashed(AT_HOME, does=OnDuplicate.REPLACE)
    request.job, request.job_until = b"j" * 16, 5
    refused = check_topic(request, topic())
    assert refused is not None
    assert refused.text.startswith("on_duplicate is replace, and the job is hidden")


def test_keys_beside_headers_come_with_hashes_too() -> None:
    stored = [prefix_of(Meta.HEADERS, key, packed_headers({"a": "b"})) + b"x" for key in (b"", AT_HOME)]
    settings = TopicSettings(1, keys="unique")
    request = insert(stored, [0, 0])
    request.keyed = Meta.HEADERS
    text = "row 1: the topic's keys are unique, and its key has no hash"
    assert refusal(request, b"".join(stored), settings) == (Code.INVALID_REQUEST, text)
    request.key_high, request.key_low = key_hashes([b"", AT_HOME])
    request.on_duplicate = OnDuplicate.REFUSE
    assert check_change(request, [b"".join(stored)], settings, NOW) is None


def test_what_expires_before_it_can_be_delivered_is_refused() -> None:
    request = insert([b"a", b"b", b"c"], [1_000, 0, 5_000])
    request.expires = np.array([1_001, 5, 0], np.uint64)
    assert check_change(request, [b"abc"], SETTINGS, NOW) is None
    request.expires[0] = 1_000
    assert refusal(request, b"abc") == (
        Code.INVALID_REQUEST, "row 0: expires 1000 is not behind its due instant, 1000",
    )  # fmt: skip
    request.expires[0], request.window = 1_600, np.array([600, 0, 0], np.uint32)
    assert refusal(request, b"abc") == (
        Code.INVALID_REQUEST, "row 0: expires 1600 is not behind the end of its window, 1600",
    )  # fmt: skip
    request.expires[0] = 1_601
    assert check_change(request, [b"abc"], SETTINGS, NOW) is None


@pytest.mark.parametrize("kind", [RecordKind.CANCEL, RecordKind.TRIGGER, RecordKind.ACK, RecordKind.EXTEND])
def test_a_message_is_named_only_so_often(kind: RecordKind) -> None:
    """Its rows take effect one after the other: a thousand of them would hold up the broker for 60 ms."""
    request = named(kind, [1_000] * 40)
    request.target_sequence = np.array([5, 6, 7, 8] * 10, np.uint64)
    assert check_change(request, [], SETTINGS, NOW) is None
    request.target_sequence[:16] = 9
    assert check_change(request, [], SETTINGS, NOW) is None
    request.target_sequence[30] = 9
    assert refusal(request) == (
        Code.INVALID_REQUEST,
        "row 30: a request names a message at most 16 times, and earlier rows name message 9/0 so often",
    )
    request.target_row = np.arange(40, dtype=np.uint16)
    assert check_change(request, [], SETTINGS, NOW) is None, "they are of one record, but others"


def test_nothing_is_set_for_messages_without_a_group() -> None:
    asked = ChangeRequest(1, RecordKind.GROUP, "t", 1, b"c" * 16, 1, 0, document='{"paused":true}')
    refused = check_topic(asked, topic("free", kind="fair"))
    assert refused is not None
    assert (refused.code, refused.text) == (
        Code.INVALID_REQUEST, "settings are for a group of 1 to 255 bytes of UTF-8, not for ''",
    )  # fmt: skip
    asked.name = "acme"
    assert check_topic(asked, topic("free", kind="fair")) is None
