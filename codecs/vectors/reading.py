"""Browsing, looking at messages, and their answers."""

from __future__ import annotations

import dataclasses

import numpy as np

from dueq_codecs import messages as m
from vectors.pieces import AT, u16, u32, u64


def reading() -> dict[str, tuple[m.Message, list[bytes]]]:
    """Return them, by the names of their files."""
    reply = m.BrowseReply(
        9,
        m.Code.OK,
        leader="north",
        snapshot=6,
        epoch=5,
        applied=41,
        stamp=AT,
        last=True,
        wait_at=u64(AT, AT + 1),
        first=u64(AT, AT),
        due=u64(AT - 5, AT + 1),
        sequence=u64(40, 40),
        row=u16(0, 1),
        size=u32(5, 700_000),
        crc=u32(0x3610A686, 1),
        attempt=u16(0, 2),
        keyed=np.array([1, 0], "u1"),
        upload=u64(0, 5 << 32 | 9),
        body_size=u32(3, 0),
    )
    return {
        "browse_request": (
            m.BrowseRequest(9, "flights", 12, 6, AT, AT + 60_000, AT + 1, 40 << 16 | 1, 100, True),
            [],
        ),
        "browse_request_chunk": (m.BrowseRequest(9, "flights", 12, 6, upload=5 << 32 | 9, chunk=2), []),
        "browse_reply": (reply, [b"\x02ab"]),
        "browse_reply_ranks": (
            dataclasses.replace(reply, rank=u16(3, 65_535), version=u64(40, 77)),
            [b"\x02ab"],
        ),
        "look_request": (
            m.LookRequest(9, "flights", 12, "message", AT, 40, 1, True, True, 5 << 32 | 9, 2),
            [],
        ),
        "look_request_count": (
            m.LookRequest(9, "flights", 12, "count", document='{"filter":{"state":"waiting"}}'),
            [],
        ),
        "look_reply": (
            m.LookReply(9, m.Code.OK, leader="north", document='{"state":"waiting"}'),
            [b"\x02abhello"],
        ),
        "browse_request_class": (
            m.BrowseRequest(9, "flights", 12, after_wait_at=AT, after_key=40 << 16 | 1, after_of=8),
            [],
        ),
        "browse_reply_classes": (dataclasses.replace(reply, of=u64(7, 1 << 16 | 9)), [b"\x02ab"]),
        "browse_reply_headings": (
            dataclasses.replace(reply, heading=u16(1, 0), headings=("", '{"tries":"é"}')),
            [b"\x02ab"],
        ),
        "browse_reply_groups": (
            dataclasses.replace(reply, group=u16(1, 0), groups=("", "acme.reports")),
            [b"\x02ab"],
        ),
        "browse_request_dead": (m.BrowseRequest(9, "flights", 12, dead=True), []),
        "browse_reply_dead": (
            dataclasses.replace(
                reply, expires=u64(0, AT), died_at=u64(AT, AT + 2), reason=u16(1, 0), reasons=("", "é")
            ),
            [b"\x02ab"],
        ),
    }
