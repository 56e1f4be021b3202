"""Nothing that arrives can make decoding do anything but return a message or raise FrameError."""

from __future__ import annotations

import dataclasses
import random
import runpy
import struct
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import pytest

from dueq_codecs.envelope import ENVELOPE_BYTES, seal
from dueq_codecs.frames import FrameError, decode, decode_record, encode, encode_record
from dueq_codecs.layouts import LAYOUTS, Kind
from dueq_codecs.log import RECORD
from dueq_codecs.messages import PROTOCOL_VERSION, Code

SAMPLES = runpy.run_path(str(Path(__file__).resolve().parents[3] / "codecs/vectors/samples.py"))
MESSAGES = {name: encode(*sample) for name, sample in SAMPLES["messages"]().items()}
RECORDS = {name: encode_record(record) for name, record in SAMPLES["records"]().items()}
WORDS = [0, 1, 3, 4, 0x7FFFFFFC, 0x7FFFFFFF, 0x80000000, 0xFFFFFF00, 0xFFFFFFFC, 0xFFFFFFFF]


def resealed(frame: bytes, body: bytes) -> bytes:
    """The frame with another FlatBuffer under a CRC that fits."""
    return seal(frame[5], body)


def try_message(frames: list[bytes]) -> None:
    """Decode; what is accepted must be something that we could have meant to send."""
    try:
        message, bodies = decode(frames)
    except FrameError:
        return
    encode(message, bodies)


def try_record(data: bytes) -> None:
    try:
        record = decode_record(data)
    except FrameError:
        return
    record.encoded = None
    encode_record(record)


def mutations(body: bytes, seed: int) -> Iterator[bytes]:
    """Every word replaced by every nasty one, and random flips."""
    for at in range(0, len(body) - 3, 2):
        for word in WORDS:
            yield body[:at] + struct.pack("<I", word) + body[at + 4 :]
    dice = random.Random(seed)
    for _ in range(300):
        changed = bytearray(body)
        for _ in range(dice.randint(1, 4)):
            changed[dice.randrange(len(changed))] = dice.randrange(256)
        yield bytes(changed)


@pytest.mark.parametrize("name", MESSAGES)
def test_a_damaged_table_with_a_fitting_crc_is_refused_or_harmless(name: str) -> None:
    header, *bodies = MESSAGES[name]
    for body in mutations(header[ENVELOPE_BYTES:], seed=len(header)):
        try_message([resealed(header, body), *bodies])


@pytest.mark.parametrize("name", RECORDS)
def test_a_damaged_record_with_a_fitting_crc_is_refused_or_harmless(name: str) -> None:
    data = RECORDS[name]
    for body in mutations(data[ENVELOPE_BYTES:], seed=len(data)):
        try_record(resealed(data, body))


@pytest.mark.parametrize("name", MESSAGES)
def test_every_truncation_of_the_header_is_refused(name: str) -> None:
    header, *bodies = MESSAGES[name]
    for length in range(len(header)):
        with pytest.raises(FrameError):
            decode([header[:length], *bodies])


@pytest.mark.parametrize("name", MESSAGES)
def test_a_truncated_table_with_a_fitting_envelope_is_refused_or_harmless(name: str) -> None:
    header, *bodies = MESSAGES[name]
    for length in range(len(header) - ENVELOPE_BYTES):
        try_message([resealed(header, header[ENVELOPE_BYTES : ENVELOPE_BYTES + length]), *bodies])


@pytest.mark.parametrize("name", RECORDS)
def test_every_truncation_of_a_record_is_refused(name: str) -> None:
    data = RECORDS[name]
    for length in range(len(data)):
        with pytest.raises(FrameError):
            decode_record(data[:length])
        try_record(resealed(data, data[ENVELOPE_BYTES : ENVELOPE_BYTES + length]))


@pytest.mark.parametrize("name", MESSAGES)
def test_every_flipped_bit_is_noticed(name: str) -> None:
    header, *bodies = MESSAGES[name]
    for at in range(len(header)):
        flipped = bytearray(header)
        flipped[at] ^= 1 << at % 8
        with pytest.raises(FrameError):
            decode([bytes(flipped), *bodies])


@pytest.mark.parametrize("name", MESSAGES)
def test_a_missing_or_surplus_frame_is_refused(name: str) -> None:
    frames = MESSAGES[name]
    for wrong in (frames[:-1], [*frames, b""], [*frames, frames[-1]]):
        with pytest.raises(FrameError):
            decode(wrong)


def test_random_bytes_are_refused() -> None:
    dice = random.Random(1)
    for _ in range(2000):
        with pytest.raises(FrameError):
            decode([dice.randbytes(dice.randrange(100)) for _ in range(dice.randrange(3))])
        with pytest.raises(FrameError):
            decode_record(dice.randbytes(dice.randrange(100)))


def test_random_tables_of_every_kind_are_refused_or_harmless() -> None:
    dice = random.Random(2)
    for kind in range(256):
        for _ in range(40):
            try_message([seal(kind, dice.randbytes(dice.randrange(80)))])
    for _ in range(2000):
        try_record(seal(Kind.RECORD, dice.randbytes(dice.randrange(80))))


def test_a_table_that_overlaps_its_own_vtable_is_refused_or_harmless() -> None:
    # Root offset 4; the table is its own vtable for every small distance that fits.
    for distance in range(-16, 16):
        for filling in range(0, 64, 2):
            body = struct.pack("<Ii", 4, distance) + struct.pack("<H", filling) * 20
            for kind in Kind:
                try_message([seal(kind, body)])


@pytest.mark.parametrize("version", [PROTOCOL_VERSION - 1, PROTOCOL_VERSION + 1])
def test_another_protocol_version_is_answered_as_such(version: int) -> None:
    header, *bodies = MESSAGES["change_insert"]
    with pytest.raises(FrameError) as caught:
        decode([seal(header[5], header[ENVELOPE_BYTES:], version=version), *bodies])
    assert caught.value.code == Code.WRONG_VERSION
    assert caught.value.request_id == 0


def test_flags_that_are_yet_to_come_are_refused() -> None:
    """They could change what the rest means."""
    header, *bodies = MESSAGES["change_insert"]
    head = header[:6] + struct.pack("<H", 1) + header[8:12]
    body = header[ENVELOPE_BYTES:]
    flagged = head + struct.pack("<I", crc32(body, crc32(head))) + body
    with pytest.raises(FrameError, match="flags 0x1 are not known"):
        decode([flagged, *bodies])


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(FrameError, match="kind 255 is not known"):
        decode([seal(255, MESSAGES["hello"][0][ENVELOPE_BYTES:])])


def test_a_record_is_no_message_and_a_message_no_record() -> None:
    with pytest.raises(FrameError, match="kind 96 is not known"):
        decode([RECORDS["record_ack"]])
    with pytest.raises(FrameError, match="not a record"):
        decode_record(MESSAGES["hello"][0])


def test_a_record_of_a_kind_yet_to_come_is_of_a_wrong_version() -> None:
    record = dataclasses.replace(SAMPLES["records"]()["record_barrier"], kind=99)
    with pytest.raises(FrameError) as caught:
        decode_record(seal(Kind.RECORD, RECORD.write(record)))
    assert caught.value.code == Code.WRONG_VERSION


def test_a_relay_of_a_relay_is_refused_before_it_is_opened() -> None:
    relay = MESSAGES["relay"]
    with pytest.raises(FrameError, match="not between a client and a broker"):
        decode([relay[0]] * 5000)


def test_strings_that_all_claim_the_same_bytes_cost_no_memory() -> None:
    text, slots = 100_000, 20_000
    # A MetadataReply with one vector, `replica` (its 19th field): many offsets, all to one long string.
    vtable = struct.pack("<21H", 42, 8, *[0] * 18, 4)
    body = struct.pack("<I", 48) + vtable + bytes(2) + struct.pack("<iI", 44, 4)
    body += struct.pack("<I", slots) + struct.pack(f"<{slots}I", *[4 * (slots - i) for i in range(slots)])
    body += struct.pack("<I", text) + b"x" * text
    frame = seal(Kind.METADATA_REPLY, body)
    tracemalloc.start()
    with pytest.raises(FrameError, match="strings of replica claim more bytes"):
        decode([frame])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000


def test_a_list_of_a_million_texts_is_refused_before_it_is_read() -> None:
    """Reading each of them took a broker's loop half a second for each frame."""
    slots = 65_537
    # A BrowseReply with one vector, `groups`: many offsets, all to one empty string.
    field = [field.name for field in LAYOUTS[Kind.BROWSE_REPLY].fields].index("groups")
    vtable = struct.pack(f"<{3 + field}H", 6 + 2 * field, 8, *[0] * field, 4).ljust(80, b"\0")
    body = struct.pack("<I", 84) + vtable + struct.pack("<iI", 80, 4)
    body += (
        struct.pack("<I", slots)
        + struct.pack(f"<{slots}I", *[4 * (slots - i) for i in range(slots)])
        + bytes(4)
    )
    with pytest.raises(FrameError, match="groups has 65537 texts"):
        decode([seal(Kind.BROWSE_REPLY, body), b""])


def test_long_vtables_are_not_kept() -> None:
    tracemalloc.start()
    for number in range(200):
        # A Reply whose vtable has places for thousands of fields that nobody knows.
        vtable = struct.pack("<2H", 60_000, 4).ljust(60_000 - 2, b"\0") + struct.pack("<H", number)
        decode([seal(Kind.REPLY, struct.pack("<I", 60_004) + vtable + struct.pack("<i", 60_000))])
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert kept < 1_000_000


def test_vectors_that_share_their_bytes_are_refused() -> None:
    # PeerFrame: `append_uid` (field 10) and `ack_uid` (field 16) are one vector of 1,000 numbers.
    vtable = struct.pack("<19H", 38, 12, *[0] * 10, 4, *[0] * 5, 8)
    body = struct.pack("<I", 44) + vtable + bytes(2) + struct.pack("<iII", 40, 8, 4)
    body += struct.pack("<1001I", 1000, *range(1000))
    with pytest.raises(FrameError, match="vectors claim more bytes"):
        decode([seal(Kind.PEER_FRAME, body)])


@pytest.mark.parametrize("count", [1 << 16, 1 << 29, (1 << 32) - 1])
def test_a_vector_longer_than_its_frame_is_refused(count: int) -> None:
    header = MESSAGES["change_reply"][0]
    at = header.rindex(struct.pack("<I", 5) + bytes([0, 1, 2, 3, 4]))
    body = header[ENVELOPE_BYTES:at] + struct.pack("<I", count) + header[at + 4 :]
    with pytest.raises(FrameError, match=f"outcomes claims {count} items") as caught:
        decode([resealed(header, body)])
    assert caught.value.request_id == 7
