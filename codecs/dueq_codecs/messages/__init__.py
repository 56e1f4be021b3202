"""Everything that travels between clients and brokers and between brokers, as plain types.

`dueq_codecs.frames` turns each into one header frame (16 bytes of envelope + FlatBuffers) and back; payload
bytes travel beside it in ZeroMQ frames of their own (`bodies`). Instants are Unix ms UTC unless a name says
`_us`; `wall` and `mono` name the two clocks.
"""

from __future__ import annotations

from dueq_codecs.codes import Code
from dueq_codecs.messages.brokers import (
    Ack,
    Append,
    Fence,
    JobAsk,
    JobTell,
    Leadership,
    Mismatch,
    PeerFrame,
    SnapshotChunk,
    SnapshotRequest,
    UploadAck,
    UploadChunk,
    UploadWanted,
    Vote,
    VoteRequest,
)
from dueq_codecs.messages.browsing import BrowseReply, BrowseRequest
from dueq_codecs.messages.changes import ChangeReply, ChangeRequest, ChunkReply, ChunkRequest
from dueq_codecs.messages.consumers import ConsumerAction, ConsumerFrame, ConsumerReply, PushChunk
from dueq_codecs.messages.looking import LookReply, LookRequest
from dueq_codecs.messages.sessions import PROTOCOL_VERSION, Hello, HelloReply, Role
from dueq_codecs.messages.topics import (
    BrokerInfo,
    CreateTopicRequest,
    DeleteTopicRequest,
    InspectRequest,
    MetadataReply,
    MetadataRequest,
    PartitionInfo,
    Reply,
    TopicInfo,
    UpdateTopicRequest,
)
from dueq_codecs.messages.unions import BrokerMessage, ClientMessage, Message, PeerMessage, Relay
from dueq_codecs.pushes import Push

__all__ = [
    "Ack",
    "Append",
    "BrokerInfo",
    "BrokerMessage",
    "BrowseReply",
    "BrowseRequest",
    "ChangeReply",
    "ChangeRequest",
    "ChunkReply",
    "ChunkRequest",
    "ClientMessage",
    "Code",
    "ConsumerAction",
    "ConsumerFrame",
    "ConsumerReply",
    "CreateTopicRequest",
    "DeleteTopicRequest",
    "Fence",
    "Hello",
    "HelloReply",
    "InspectRequest",
    "JobAsk",
    "JobTell",
    "Leadership",
    "LookReply",
    "LookRequest",
    "Message",
    "MetadataReply",
    "MetadataRequest",
    "Mismatch",
    "PROTOCOL_VERSION",
    "PartitionInfo",
    "PeerFrame",
    "PeerMessage",
    "Push",
    "PushChunk",
    "Relay",
    "Reply",
    "Role",
    "SnapshotChunk",
    "SnapshotRequest",
    "TopicInfo",
    "UpdateTopicRequest",
    "UploadAck",
    "UploadChunk",
    "UploadWanted",
    "Vote",
    "VoteRequest",
]
