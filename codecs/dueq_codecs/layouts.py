"""The table of every message: its number on the wire, its fields in the order of `codecs/schema/dueq.fbs`.

A field is only ever added at the end of its table; an old reader skips it, and an old writer leaves it out,
which reads as 0 or empty. The order of the attributes in `messages` means nothing here.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from dueq_codecs import messages as m
from dueq_codecs.fields import Column, Id, Octets, Scalar, Structs, Text, Texts
from dueq_codecs.flat import Layout
from dueq_codecs.meta import Meta
from dueq_codecs.metadata import METADATA_REPLY
from dueq_codecs.peer import PEER_FRAME
from dueq_codecs.pushes import PUSH_ROW
from dueq_codecs.records import JobAction, OnDuplicate, Outcome, RecordKind


class Kind(IntEnum):
    """The number of each message in a frame's envelope. Never used again once given."""

    HELLO = 1
    METADATA_REQUEST = 2
    CREATE_TOPIC_REQUEST = 3
    DELETE_TOPIC_REQUEST = 4
    INSPECT_REQUEST = 5
    CHANGE_REQUEST = 6
    CHUNK_REQUEST = 7
    CONSUMER_FRAME = 8
    BROWSE_REQUEST = 9
    UPDATE_TOPIC_REQUEST = 10
    LOOK_REQUEST = 11
    HELLO_REPLY = 32
    METADATA_REPLY = 33
    REPLY = 34
    CHANGE_REPLY = 35
    CHUNK_REPLY = 36
    CONSUMER_REPLY = 37
    PUSH = 38
    PUSH_CHUNK = 39
    BROWSE_REPLY = 40
    LOOK_REPLY = 41
    PEER_FRAME = 64
    UPLOAD_CHUNK = 65
    UPLOAD_WANTED = 66
    SNAPSHOT_REQUEST = 67
    SNAPSHOT_CHUNK = 68
    RELAY = 69
    RECORD = 96
    """A log record: never a frame by itself, only behind a PeerFrame and in the log."""


LAYOUTS: Final[dict[Kind, Layout]] = {
    Kind.HELLO: Layout(
        m.Hello,
        Scalar("role", "B", m.Role),
        Text("name"),
        Text("cluster_id"),
        Scalar("incarnation", "Q"),
        Scalar("attach", "Q"),
        Scalar("protocol_min", "B"),
        Scalar("protocol_max", "B"),
        Scalar("sent_wall_us", "Q"),
        Text("agent"),
        Text("principal"),
    ),
    Kind.HELLO_REPLY: Layout(
        m.HelloReply,
        Scalar("code", "B", m.Code),
        Text("text"),
        Text("cluster_id"),
        Text("broker_id"),
        Scalar("incarnation", "Q"),
        Scalar("protocol", "B"),
        Scalar("feature_level", "I"),
        Scalar("echo_wall_us", "Q"),
        Scalar("received_wall_us", "Q"),
        Scalar("sent_wall_us", "Q"),
        Scalar("mesh_offset_us", "q"),
    ),
    Kind.METADATA_REQUEST: Layout(
        m.MetadataRequest,
        Scalar("request_id", "Q"),
        Text("topic"),
        Scalar("brokers_only", "?"),
        Text("after"),
    ),
    Kind.METADATA_REPLY: METADATA_REPLY,
    Kind.CREATE_TOPIC_REQUEST: Layout(
        m.CreateTopicRequest,
        Scalar("request_id", "Q"),
        Id("creation_id"),
        Text("topic"),
        Text("kind"),
        Scalar("partitions", "I"),
        Scalar("replicas", "I"),
        Scalar("min_isr", "I"),
        Scalar("payload_bytes_max", "Q"),
        Scalar("horizon_ms", "Q"),
        Scalar("exist_ok", "?"),
        Text("document"),
    ),
    Kind.DELETE_TOPIC_REQUEST: Layout(m.DeleteTopicRequest, Scalar("request_id", "Q"), Text("topic")),
    Kind.UPDATE_TOPIC_REQUEST: Layout(
        m.UpdateTopicRequest,
        Scalar("request_id", "Q"),
        Id("update_id"),
        Text("topic"),
        Scalar("version", "Q"),
        Text("document"),
        Scalar("partitions", "I"),
    ),
    Kind.INSPECT_REQUEST: Layout(
        m.InspectRequest,
        Scalar("request_id", "Q"),
        Text("what"),
        Text("topic"),
        Scalar("seconds", "I"),
        Text("broker"),
    ),
    Kind.REPLY: Layout(
        m.Reply,
        Scalar("request_id", "Q"),
        Scalar("code", "B", m.Code),
        Text("text"),
        Text("document"),
        Scalar("retry_after_ms", "I"),
    ),
    Kind.CHANGE_REQUEST: Layout(
        m.ChangeRequest,
        Scalar("request_id", "Q"),
        Scalar("kind", "B", RecordKind),
        Text("topic"),
        Scalar("uid", "I"),
        Id("client_id"),
        Scalar("sequence", "Q"),
        Scalar("digest", "Q"),
        Column("first", "Q"),
        Column("target_sequence", "Q"),
        Column("target_row", "H"),
        Column("token", "Q"),
        Column("due", "Q"),
        Column("size", "I"),
        Column("crc", "I"),
        Column("upload", "Q"),
        Column("amount_ms", "Q"),
        Octets("job"),
        Scalar("job_until", "Q"),
        Scalar("job_action", "B", JobAction),
        Scalar("keyed", "B", Meta),
        Scalar("patient", "?"),
        Column("rank", "H"),
        Column("group", "H"),
        Texts("groups"),
        Text("name"),
        Text("document"),
        Scalar("home_partitions", "I"),
        Column("key_high", "Q"),
        Column("key_low", "Q"),
        Scalar("on_duplicate", "B", OnDuplicate),
        Scalar("retry", "?"),
        Column("window", "I"),
        Column("expires", "Q"),
        Column("attempts_max", "H"),
        Column("fate", "B"),
        Column("reason", "H"),
        Texts("reasons"),
        Column("expected", "Q"),
        Octets("shared"),
        Scalar("shared_size", "I"),
        Column("once_high", "Q"),
        Column("once_low", "Q"),
        Column("once_digest", "Q"),
        Scalar("claim", "?"),
    ),
    Kind.CHANGE_REPLY: Layout(
        m.ChangeReply,
        Scalar("request_id", "Q"),
        Scalar("code", "B", m.Code),
        Text("text"),
        Scalar("uid", "I"),
        Scalar("epoch", "Q"),
        Scalar("sequence", "Q"),
        Scalar("row", "H"),
        Scalar("stamp", "Q"),
        Column("outcomes", "B", Outcome),
        Scalar("retry_after_ms", "I"),
        Text("leader"),
        Column("present_first", "Q"),
        Column("present_sequence", "Q"),
        Column("present_row", "H"),
        Column("present_due", "Q"),
        Column("window", "I"),
    ),
    Kind.CHUNK_REQUEST: Layout(
        m.ChunkRequest,
        Scalar("request_id", "Q"),
        Text("topic"),
        Scalar("uid", "I"),
        Id("client_id"),
        Scalar("upload", "Q"),
        Scalar("chunk", "I"),
        Scalar("chunks", "I"),
        Scalar("size", "Q"),
        Scalar("crc", "I"),
    ),
    Kind.CHUNK_REPLY: Layout(
        m.ChunkReply,
        Scalar("request_id", "Q"),
        Scalar("code", "B", m.Code),
        Text("text"),
        Scalar("upload", "Q"),
        Scalar("chunk", "I"),
        Scalar("retry_after_ms", "I"),
        Text("leader"),
    ),
    Kind.CONSUMER_FRAME: Layout(
        m.ConsumerFrame,
        Scalar("action", "B", m.ConsumerAction),
        Text("topic"),
        Id("consumer_id"),
        Scalar("attach", "Q"),
        Scalar("number", "Q"),
        Scalar("credit", "I"),
        Scalar("credit_bytes", "Q"),
        Scalar("lease_ms", "Q"),
        Scalar("push_seen", "Q"),
        Text("leader"),
        Column("held_uid", "I"),
        Column("held_sequence", "Q"),
        Column("held_row", "H"),
        Column("held_token", "Q"),
        Octets("holder"),
        Scalar("wait_ms", "Q"),
        Scalar("life", "Q"),
        Scalar("detached", "?"),
    ),
    Kind.CONSUMER_REPLY: Layout(
        m.ConsumerReply,
        Text("topic"),
        Id("consumer_id"),
        Scalar("attach", "Q"),
        Scalar("number", "Q"),
        Scalar("code", "B", m.Code),
        Text("text"),
        Scalar("waiting", "Q"),
        Scalar("push_sent", "Q"),
        Text("leader"),
        Scalar("coming", "I"),
        Scalar("incarnation", "Q"),
        Scalar("mono_us", "Q"),
        Scalar("ended", "?"),
    ),
    Kind.PUSH: Layout(
        m.Push,
        Text("topic"),
        Id("consumer_id"),
        Scalar("attach", "Q"),
        Scalar("number", "Q"),
        Scalar("epoch", "Q"),
        Scalar("released_at_us", "Q"),
        Text("leader"),
        Structs("rows", PUSH_ROW, "PushRow"),
        Scalar("incarnation", "Q"),
        Scalar("mono_us", "Q"),
        Column("rank", "H"),
        Column("version", "Q"),
        Column("group", "H"),
        Texts("groups"),
        Column("expires", "Q"),
        Column("shared", "H"),
        Column("shared_size", "I"),
    ),
    Kind.PUSH_CHUNK: Layout(
        m.PushChunk,
        Text("topic"),
        Id("consumer_id"),
        Scalar("attach", "Q"),
        Scalar("uid", "I"),
        Scalar("sequence", "Q"),
        Scalar("row", "H"),
        Scalar("token", "Q"),
        Scalar("chunk", "I"),
        Scalar("chunks", "I"),
        Text("leader"),
    ),
    Kind.BROWSE_REQUEST: Layout(
        m.BrowseRequest,
        Scalar("request_id", "Q"),
        Text("topic"),
        Scalar("uid", "I"),
        Scalar("snapshot", "Q"),
        Scalar("from_ms", "Q"),
        Scalar("until_ms", "Q"),
        Scalar("after_wait_at", "Q"),
        Scalar("after_key", "Q"),
        Scalar("limit", "I"),
        Scalar("payloads", "?"),
        Scalar("upload", "Q"),
        Scalar("chunk", "I"),
        Scalar("close", "?"),
        Scalar("dead", "?"),
        Scalar("after_of", "Q"),
    ),
    Kind.BROWSE_REPLY: Layout(
        m.BrowseReply,
        Scalar("request_id", "Q"),
        Scalar("code", "B", m.Code),
        Text("text"),
        Scalar("retry_after_ms", "I"),
        Text("leader"),
        Scalar("snapshot", "Q"),
        Scalar("epoch", "Q"),
        Scalar("applied", "Q"),
        Scalar("stamp", "Q"),
        Scalar("last", "?"),
        Column("wait_at", "Q"),
        Column("first", "Q"),
        Column("due", "Q"),
        Column("sequence", "Q"),
        Column("row", "H"),
        Column("size", "I"),
        Column("crc", "I"),
        Column("attempt", "H"),
        Column("keyed", "B"),
        Column("upload", "Q"),
        Column("body_size", "I"),
        Column("rank", "H"),
        Column("version", "Q"),
        Column("expires", "Q"),
        Column("died_at", "Q"),
        Column("reason", "H"),
        Texts("reasons"),
        Column("of", "Q"),
    ),
    Kind.LOOK_REQUEST: Layout(
        m.LookRequest,
        Scalar("request_id", "Q"),
        Text("topic"),
        Scalar("uid", "I"),
        Text("what"),
        Scalar("first", "Q"),
        Scalar("sequence", "Q"),
        Scalar("row", "H"),
        Scalar("current", "?"),
        Scalar("payload", "?"),
        Scalar("upload", "Q"),
        Scalar("chunk", "I"),
        Text("document"),
    ),
    Kind.LOOK_REPLY: Layout(
        m.LookReply,
        Scalar("request_id", "Q"),
        Scalar("code", "B", m.Code),
        Text("text"),
        Scalar("retry_after_ms", "I"),
        Text("leader"),
        Text("document"),
    ),
    Kind.PEER_FRAME: PEER_FRAME,
    Kind.UPLOAD_CHUNK: Layout(
        m.UploadChunk,
        Text("sender"),
        Scalar("incarnation", "Q"),
        Scalar("uid", "I"),
        Scalar("epoch", "Q"),
        Scalar("upload", "Q"),
        Scalar("chunk", "I"),
        Scalar("chunks", "I"),
        Scalar("crc", "I"),
    ),
    Kind.UPLOAD_WANTED: Layout(
        m.UploadWanted,
        Text("sender"),
        Scalar("incarnation", "Q"),
        Scalar("uid", "I"),
        Scalar("upload", "Q"),
    ),
    Kind.SNAPSHOT_REQUEST: Layout(
        m.SnapshotRequest,
        Text("sender"),
        Scalar("incarnation", "Q"),
        Scalar("uid", "I"),
        Scalar("epoch", "Q"),
        Scalar("snapshot", "Q"),
        Scalar("part", "I"),
    ),
    Kind.SNAPSHOT_CHUNK: Layout(
        m.SnapshotChunk,
        Text("sender"),
        Scalar("incarnation", "Q"),
        Scalar("uid", "I"),
        Scalar("epoch", "Q"),
        Scalar("snapshot", "Q"),
        Scalar("part", "I"),
        Scalar("applied", "Q"),
        Scalar("applied_epoch", "Q"),
        Scalar("last", "?"),
        Scalar("code", "B", m.Code),
    ),
    Kind.RELAY: Layout(
        m.Relay,
        Text("sender"),
        Scalar("incarnation", "Q"),
        Octets("identity"),
        Scalar("back", "?"),
        Text("principal"),
    ),
}

KINDS: Final[dict[type[object], Kind]] = {layout.message: kind for kind, layout in LAYOUTS.items()}
