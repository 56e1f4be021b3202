"""Which messages travel between clients and brokers and between brokers, and the one that carries another."""

from __future__ import annotations

from dataclasses import dataclass, field

from dueq_codecs.messages.brokers import PeerFrame, SnapshotChunk, SnapshotRequest, UploadChunk, UploadWanted
from dueq_codecs.messages.browsing import BrowseReply, BrowseRequest
from dueq_codecs.messages.changes import ChangeReply, ChangeRequest, ChunkReply, ChunkRequest
from dueq_codecs.messages.consumers import ConsumerFrame, ConsumerReply, PushChunk
from dueq_codecs.messages.looking import LookReply, LookRequest
from dueq_codecs.messages.sessions import Hello, HelloReply
from dueq_codecs.messages.topics import (
    CreateTopicRequest,
    DeleteTopicRequest,
    InspectRequest,
    MetadataReply,
    MetadataRequest,
    Reply,
    UpdateTopicRequest,
)
from dueq_codecs.pushes import Push


@dataclass(slots=True)
class Relay:
    """A client's frame on its way to the leader through another broker (or the answer on its way back).

    The inner message and its bodies follow as ZeroMQ frames of their own.
    """

    sender: str
    incarnation: int
    identity: bytes
    """The client's connection at the relaying broker."""
    back: bool
    """True on the way back to the client."""
    inner: ClientMessage | BrokerMessage
    bodies: list[bytes | memoryview] = field(default_factory=list)
    principal: str = ""
    """The principal of the session at the relaying broker; empty: not authenticated."""


ClientMessage = (
    Hello
    | MetadataRequest
    | CreateTopicRequest
    | DeleteTopicRequest
    | UpdateTopicRequest
    | InspectRequest
    | ChangeRequest
    | ChunkRequest
    | ConsumerFrame
    | BrowseRequest
    | LookRequest
)
BrokerMessage = (
    HelloReply
    | MetadataReply
    | Reply
    | ChangeReply
    | ChunkReply
    | ConsumerReply
    | Push
    | PushChunk
    | BrowseReply
    | LookReply
)
PeerMessage = PeerFrame | UploadChunk | UploadWanted | SnapshotRequest | SnapshotChunk | Relay
Message = ClientMessage | BrokerMessage | PeerMessage
