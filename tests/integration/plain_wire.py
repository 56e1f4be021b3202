"""Frames, digests and ids as docs/reference/protocol.md and the schema describe them; nothing of dueq is used."""

from __future__ import annotations

import re
import struct
from hashlib import blake2b
from pathlib import Path
from typing import Any
from zlib import crc32

import flatbuffers
from flatbuffers.table import Table

SCHEMA = Path(__file__).resolve().parents[2] / "codecs/schema/dueq.fbs"
KINDS = {
    "Hello": 1, "MetadataRequest": 2, "CreateTopicRequest": 3, "DeleteTopicRequest": 4, "InspectRequest": 5,
    "ChangeRequest": 6, "ChunkRequest": 7, "ConsumerFrame": 8, "BrowseRequest": 9,
    "UpdateTopicRequest": 10, "LookRequest": 11,
    "HelloReply": 32, "MetadataReply": 33, "Reply": 34, "ChangeReply": 35, "ChunkReply": 36, "ConsumerReply": 37,
    "Push": 38, "PushChunk": 39, "BrowseReply": 40, "LookReply": 41,
}  # fmt: skip
NAMES = {number: name for name, number in KINDS.items()}
TYPES = {"ubyte": ("B", "Uint8"), "bool": ("?", "Bool"), "ushort": ("H", "Uint16"), "uint": ("I", "Uint32"),
         "ulong": ("Q", "Uint64"), "long": ("q", "Int64")}  # fmt: skip
DIGEST = {"first": "Q", "target_sequence": "Q", "target_row": "H", "token": "Q", "due": "Q", "size": "I", "crc": "I",
          "amount_ms": "Q"}  # fmt: skip

Message = dict[str, Any]
Field = tuple[str, str]


def declared(word: str) -> dict[str, list[Field]]:
    """The fields of every table or struct, in the schema's order: name and type."""
    text = re.sub(r"//.*", "", SCHEMA.read_text())
    found = re.findall(word + r" (\w+) \{(.*?)\}", text, re.DOTALL)
    return {name: re.findall(r"(\w+):([\w\[\]]+);", fields) for name, fields in found}


TABLES = declared("table")
STRUCTS = declared("struct")
FORMATS = {name: "<" + "".join(TYPES[kind][0] for _, kind in fields) for name, fields in STRUCTS.items()}


def encode(name: str, values: Message) -> bytes:
    """A header frame: envelope and FlatBuffer."""
    builder, offsets = flatbuffers.Builder(), {}
    for field, kind in TABLES[name]:
        value = values.get(field)
        if not value or kind in TYPES:
            continue
        if kind == "string":
            offsets[field] = builder.CreateString(value)
            continue
        if kind[1:-1] in STRUCTS:
            offsets[field] = _structs(builder, FORMATS[kind[1:-1]], value)
            continue
        code, item = TYPES[kind[1:-1]]
        builder.StartVector(struct.calcsize(code), len(value), struct.calcsize(code))
        for number in reversed(value):
            getattr(builder, f"Prepend{item}")(number)
        offsets[field] = builder.EndVector()
    builder.StartObject(len(TABLES[name]))
    for slot, (field, kind) in enumerate(TABLES[name]):
        if field in offsets:
            builder.PrependUOffsetTRelativeSlot(slot, offsets[field], 0)
        elif kind in TYPES and values.get(field):
            getattr(builder, f"Prepend{TYPES[kind][1]}Slot")(slot, values[field], 0)
    builder.Finish(builder.EndObject())
    body = bytes(builder.Output())
    head = struct.pack("<4sBBHI", b"dueq", 1, KINDS[name], 0, len(body))
    return head + struct.pack("<I", crc32(body, crc32(head))) + body


def _structs(builder: flatbuffers.Builder, code: str, rows: list[tuple[int, ...]]) -> int:
    """A vector of structs whose fields leave no gaps: their bytes, one after the other."""
    data = b"".join(struct.pack(code, *row) for row in rows)
    builder.StartVector(struct.calcsize(code), len(rows), 8)
    for byte in reversed(data):
        builder.PrependByte(byte)
    return int(builder.EndVector())


def decode(frame: bytes) -> Message:
    """The fields of a message, with its name as `message`; an absent one is 0 or empty."""
    magic, version, kind, flags, length, crc = struct.unpack_from("<4sBBHII", frame)
    assert (magic, version, flags, length) == (b"dueq", 1, 0, len(frame) - 16)
    body = frame[16:]
    assert crc32(body, crc32(frame[:12])) == crc
    table, values = Table(body, struct.unpack_from("<I", body)[0]), {"message": NAMES[kind]}
    for slot, (field, type_) in enumerate(TABLES[NAMES[kind]]):
        at = table.Offset(4 + 2 * slot)
        if type_ in TYPES:
            code = "<" + TYPES[type_][0]
            values[field] = struct.unpack_from(code, body, table.Pos + at)[0] if at else 0
        elif type_ == "string":
            values[field] = table.String(table.Pos + at).decode() if at else ""
        elif type_ == "[string]":
            start, count = (table.Vector(at), table.VectorLen(at)) if at else (0, 0)
            values[field] = [table.String(start + 4 * index).decode() for index in range(count)]
        elif type_[1:-1] in STRUCTS:
            code, start = FORMATS[type_[1:-1]], table.Vector(at) if at else 0
            end = start + (table.VectorLen(at) if at else 0) * struct.calcsize(code)
            values[field] = list(struct.iter_unpack(code, body[start:end]))
        else:
            code = f"<{table.VectorLen(at) if at else 0}{TYPES[type_[1:-1]][0]}"
            values[field] = list(struct.unpack_from(code, body, table.Vector(at) if at else 0))
    return values


def digest(request: Message, rows: int) -> int:
    """64 bits over what matters in a change."""
    topic = request["topic"].encode()
    data = struct.pack("<BIII", request["operation"], request["uid"], rows, len(topic)) + topic
    if request.get("job") or request.get("keyed"):
        names = ("job_until", "job_action", "keyed")
        job = bytes(request.get("job", b""))
        data += struct.pack("<16sQBB", job, *[int(request.get(name, 0)) for name in names])
    if request.get("key_high"):
        hashes = struct.pack(f"<{rows}Q{rows}Q", *request["key_high"], *request["key_low"])
        data += b"keys" + bytes((request["on_duplicate"],)) + hashes
    if request.get("once_high"):
        columns = [*request["once_high"], *request["once_low"], *request["once_digest"]]
        data += b"once" + bytes((request.get("claim", False),)) + struct.pack(f"<{3 * rows}Q", *columns)
    if request.get("window"):
        data += b"window" + struct.pack(f"<{rows}I", *request["window"])
    if request.get("shared"):
        data += b"shared" + bytes(request["shared"]) + struct.pack("<I", request["shared_size"])
        if request["operation"] == 22:
            data += bytes((len(request.get("size", [])), len(request.get("amount_ms", []))))
    for name, code in {"expires": "Q", "attempts_max": "H", "fate": "B", "expected": "Q"}.items():
        if column := request.get(name, []):
            data += name.encode() + struct.pack(f"<{len(column)}{code}", *column)
    if column := request.get("reason", []):
        texts = "\0".join(request["reasons"]).encode()
        data += b"reason" + struct.pack(f"<{len(column)}HI", *column, len(texts)) + texts
    for text in (request.get("name", ""), request.get("document", "")):
        if text:
            data += struct.pack("<I", len(text.encode())) + text.encode()
    for name, code in DIGEST.items():
        column = request.get(name, [])
        data += struct.pack(f"<{len(column)}{code}", *column)
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little")


def id_text(first: int, uid: int, sequence: int, row: int) -> str:
    """An id as people write it."""
    value = first << 80 | uid << 56 | sequence << 16 | row
    return "".join("0123456789ABCDEFGHJKMNPQRSTVWXYZ"[value >> shift & 31] for shift in range(125, -1, -5))
