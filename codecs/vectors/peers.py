"""Frames between brokers."""

from __future__ import annotations

from dueq_codecs import messages as m
from dueq_codecs.records import JobState, LogEntry
from vectors.changes import changes
from vectors.pieces import AT
from vectors.records import records


def _peer_frame() -> m.PeerFrame:
    sent = records()
    return m.PeerFrame(
        "north",
        11,
        "south",
        12,
        5_000_001,
        AT * 1000,
        4_999_000,
        AT * 1000 - 900,
        AT * 1000 - 450,
        True,
        appends=[
            m.Append(
                12,
                5,
                40,
                4,
                39,
                [LogEntry(sent["record_insert"], b"helloabc"), LogEntry(sent["record_barrier"])],
            ),
            m.Append(13, 6, 1, 1, 1),
        ],
        acks=[m.Ack(14, 2, 88), m.Ack(15, 3, (1 << 40) - 1)],
        mismatches=[m.Mismatch(16, 4, 10, 3, 9, True), m.Mismatch(17, 4, 10, 3, 9)],
        vote_requests=[m.VoteRequest(18, 1, 4, 4, 77)],
        votes=[m.Vote(19, 2, True, 4, 78), m.Vote(20, 3, False, 5, 79)],
        fences=[m.Fence(21, 9)],
        leaderships=[m.Leadership(22, 9, True, False), m.Leadership(23, 8, False, False)],
        upload_acks=[m.UploadAck(24, 5 << 32 | 9, 2)],
    )


def peers() -> dict[str, tuple[m.Message, list[bytes]]]:
    """Return them, by the names of their files."""
    request, bodies = changes()["change_insert"]
    assert isinstance(request, m.ChangeRequest)
    return {
        "peer_frame": (_peer_frame(), []),
        "peer_frame_jobs": (
            m.PeerFrame(
                "north",
                11,
                "south",
                12,
                5_000_001,
                AT * 1000,
                job_asks=[m.JobAsk(12, 13, 1 << 63, 7, AT + 60_000)],
                job_tells=[m.JobTell(13, 1 << 63, 7, int(JobState.COMMITTED))],
            ),
            [],
        ),
        "peer_frame_heartbeat": (m.PeerFrame("north", 11, "south", 12, 5_000_001, AT * 1000), []),
        "upload_chunk": (m.UploadChunk("north", 11, 12, 5, 5 << 32 | 9, 0, 3, 0xCAFE), [b"part"]),
        "upload_wanted": (m.UploadWanted("south", 12, 12, 5 << 32 | 9), []),
        "snapshot_request": (m.SnapshotRequest("south", 12, 12, 5, 6, 7), []),
        "snapshot_chunk": (m.SnapshotChunk("north", 11, 12, 5, 6, 7, 41, 5, True), [b"rows"]),
        "relay": (m.Relay("south", 12, b"\0\x01\x02\x03\x04", False, request, list(bodies)), []),
        "relay_of_principal": (
            m.Relay("south", 12, b"\0\x01\x02\x03\x04", False, m.DeleteTopicRequest(4, "t"), [], "alice"),
            [],
        ),
        "relay_back": (m.Relay("north", 11, b"\0\x01\x02\x03\x04", True, m.Reply(4, m.Code.OK)), []),
    }
