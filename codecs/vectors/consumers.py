"""Consumers: their frames, and what leaders push to them."""

from __future__ import annotations

from typing import Any

from dueq_codecs import messages as m
from dueq_codecs.pushes import push_rows
from vectors.pieces import AT, CONSUMER, OTHER_CONSUMER, u16, u32, u64


def _push(number: int, released_us: int, rows: Any, **columns: Any) -> m.Push:
    return m.Push("flights", CONSUMER, 2, number, 5, released_us, "north", rows, **columns)


def consumers() -> dict[str, tuple[m.Message, list[bytes]]]:
    """Return them, by the names of their files."""
    return {
        "consumer_frame": (
            m.ConsumerFrame(
                m.ConsumerAction.ATTACH,
                "flights",
                CONSUMER,
                2,
                9,
                100,
                1 << 26,
                30_000,
                17,
                "north",
                held_uid=u32(12, 13),
                held_sequence=u64(40, 41),
                held_row=u16(0, 1),
                held_token=u64(70, 71),
            ),
            [],
        ),
        "consumer_pull": (
            m.ConsumerFrame(
                m.ConsumerAction.PULL,
                "flights",
                CONSUMER,
                2,
                9,
                100,
                1 << 26,
                30_000,
                0,
                "north",
                held_uid=u32(12),
                held_sequence=u64(40),
                held_row=u16(3),
                held_token=u64(70),
                holder=OTHER_CONSUMER,
                wait_ms=5_000,
                life=AT * 1000,
            ),
            [],
        ),
        "consumer_waiting": (
            m.ConsumerFrame(
                m.ConsumerAction.WAITING,
                "flights",
                CONSUMER,
                3,
                3,
                0,
                0,
                0,
                leader="north",
                pulls=CONSUMER + OTHER_CONSUMER,
                pull_attach=u64(2, 1),
                pull_wait_ms=u32(6_500, 90),
            ),
            [],
        ),
        "consumer_detached": (
            m.ConsumerFrame(
                m.ConsumerAction.ATTACH,
                "flights",
                CONSUMER,
                2,
                9,
                100,
                1 << 26,
                30_000,
                0,
                "north",
                held_uid=u32(12, 13),
                held_sequence=u64(40, 41),
                held_row=u16(0, 1),
                held_token=u64(70, 71),
                detached=True,
                aside=1,
            ),
            [],
        ),
        "consumer_reply": (
            m.ConsumerReply("flights", CONSUMER, 2, 9, m.Code.OK, "", 1234, 18, "north"),
            [],
        ),
        "consumer_reply_ended": (
            m.ConsumerReply(
                "flights", CONSUMER, 2, 9, m.Code.OK, "", 0, 1, "north", incarnation=4, mono_us=77, ended=True
            ),
            [],
        ),
        "consumer_reply_over": (
            m.ConsumerReply(
                "flights",
                CONSUMER,
                3,
                3,
                m.Code.OK,
                "",
                0,
                0,
                "north",
                incarnation=4,
                mono_us=77,
                over=u32(1),
            ),
            [],
        ),
        "push": (
            _push(
                18,
                AT * 1000 + 700,
                push_rows(
                    2,
                    uid=12,
                    first=AT,
                    sequence=40,
                    row=[0, 1],
                    due=[AT, AT - 5],
                    token=70,
                    attempt=[1, 65_535],
                    lease_left_ms=[30_000, 29_000],
                    size=[5, 3],
                    crc=[0x3610A686, 1],
                ),
            ),
            [b"helloabc"],
        ),
        "push_expires": (
            _push(
                20,
                AT * 1000,
                push_rows(1, uid=12, first=AT, sequence=40, due=AT, token=70, attempt=1, size=5),
                expires=u64(AT + 1),
            ),
            [b"hello"],
        ),
        "push_shared": (
            _push(
                20,
                AT * 1000,
                push_rows(2, uid=12, first=AT, sequence=40, due=AT, token=70, attempt=1, size=(6, 5)),
                shared=u16(1, 1),
                shared_size=u32(5),
            ),
            [b"ahello"],
        ),
        "push_keyed": (
            _push(
                19,
                AT * 1000 + 700,
                push_rows(
                    1,
                    uid=12,
                    first=AT,
                    sequence=40,
                    row=0,
                    due=AT,
                    token=70,
                    attempt=1,
                    lease_left_ms=30_000,
                    size=5,
                    crc=0x3610A686,
                    keyed=1,
                ),
            ),
            [b"\x02abcd"],
        ),
        "push_chunk": (m.PushChunk("flights", CONSUMER, 2, 12, 40, 2, 70, 0, 3, "north"), [b"part"]),
    }
