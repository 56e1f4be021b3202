"""Requests that change messages, and their answers."""

from __future__ import annotations

import dataclasses

import numpy as np

from dueq_codecs import messages as m
from dueq_codecs.meta import Meta
from dueq_codecs.records import Fate, JobAction, Outcome, RecordKind
from vectors.pieces import (
    AT,
    BODY,
    CLIENT,
    JOB,
    PURGE,
    change,
    claim,
    insert,
    insert_shared,
    keys,
    once,
    places,
    targets,
    u8,
    u16,
    u32,
    u64,
)


def changes() -> dict[str, tuple[m.Message, list[bytes]]]:
    """Return them, by the names of their files."""
    kind = RecordKind
    uploads = insert() | {"upload": u64(0, 0, 5 << 32 | 9)}
    return {
        "change_insert": (change(kind.INSERT, **insert()), [b"helloabc"]),
        "change_insert_uploads": (change(kind.INSERT, **uploads), [b"hello"]),
        "change_move": (
            dataclasses.replace(change(kind.MOVE, **targets(), due=u64(AT + 9, AT + 8)), token=u64()),
            [],
        ),
        "change_group": (change(kind.GROUP, name="acme", document='{"paused":true}'), []),
        "change_cancel": (change(kind.CANCEL, **targets(0)), []),
        "change_trigger": (dataclasses.replace(change(kind.TRIGGER, **targets()), token=u64()), []),
        "change_ack": (change(kind.ACK, **targets()), []),
        "change_ack_patient": (change(kind.ACK, **targets(), patient=True), []),
        "change_nack": (change(kind.NACK, **targets(), amount_ms=u64(0, 5000)), []),
        "change_insert_ends": (
            change(kind.INSERT, **insert(), expires=u64(0, AT, 1), attempts_max=u16(5, 0, 65_535)),
            [b"helloabc"],
        ),
        "change_insert_shared": (
            change(kind.INSERT, **insert_shared(), shared=BODY, shared_size=20_480),
            [b"helloabc"],
        ),
        "change_body": (
            change(kind.BODY, size=u32(5), crc=u32(0x3610A686), shared=BODY, shared_size=5),
            [b"hello"],
        ),
        "change_body_known": (change(kind.BODY, amount_ms=u64(0), shared=BODY, shared_size=5), []),
        "change_nack_headers": (
            change(kind.NACK, **targets(), amount_ms=u64(0, 5000), document='{"tries":"é"}'),
            [],
        ),
        "change_nack_reasons": (
            change(
                kind.NACK,
                **targets(),
                amount_ms=u64(0, 0),
                fate=u8(Fate.BACK_OFF, Fate.DEAD),
                reason=u16(0, 1),
                reasons=("é", ""),
            ),
            [],
        ),
        "change_release_delay": (change(kind.RELEASE, **targets(), amount_ms=u64(0, 5000)), []),
        "change_discard": (change(kind.DISCARD, **places()), []),
        "change_redrive": (change(kind.REDRIVE, **places(), due=u64(0, AT + 9)), []),
        "change_extend": (change(kind.EXTEND, **targets(), amount_ms=u64(30_000, 60_000)), []),
        "change_insert_job": (
            change(kind.INSERT, **insert(), job=JOB, job_until=AT + 60_000, keyed=Meta.KEY),
            [b"helloabc"],
        ),
        "change_insert_unique": (
            change(kind.INSERT, **insert(), **keys(), keyed=Meta.KEY),
            [b"\x03abc\0ab\0"],
        ),
        "change_insert_once": (change(kind.INSERT, **insert(), **once()), [b"helloabc"]),
        "change_claim": (change(kind.INSERT, **claim()), [b""]),
        "change_insert_window": (
            change(kind.INSERT, **insert(), window=u32(600_000, 600_000, 10)),
            [b"helloabc"],
        ),
        "change_reply_window": (
            m.ChangeReply(7, m.Code.OK, uid=12, epoch=5, sequence=41, stamp=AT, window=u32(0, 599_000, 7)),
            [],
        ),
        "change_reply_unique": (
            m.ChangeReply(
                7,
                m.Code.OK,
                uid=12,
                epoch=5,
                sequence=41,
                stamp=AT,
                outcomes=np.array([Outcome.DONE, Outcome.TAKEN, Outcome.HIDDEN], "u1"),
                present_first=u64(AT, 0),
                present_sequence=u64(40, 0),
                present_row=u16(7, 0),
                present_due=u64(AT - 5, 0),
            ),
            [],
        ),
        "change_job": (change(kind.JOB, job=JOB, job_until=AT + 60_000, job_action=JobAction.CANCEL), []),
        "change_job_grown": (
            change(kind.JOB, job=JOB, job_action=JobAction.COMMIT, home_partitions=6),
            [],
        ),
        "change_pass": (change(kind.PASS, name="p1", document=PURGE), []),
        "change_settings": (change(kind.SETTINGS, document='{"version":3}'), []),
        "change_recurrence": (
            change(kind.RECURRENCE, name="nightly é", document='{"action":"trigger"}'),
            [],
        ),
        "change_release": (change(kind.RELEASE, **targets()), []),
        "change_reply": (
            m.ChangeReply(
                7,
                m.Code.OK,
                uid=12,
                epoch=5,
                sequence=41,
                row=2047,
                stamp=AT,
                outcomes=np.array(range(Outcome.UNKNOWN + 1), "u1"),
                retry_after_ms=1,
                leader="north",
            ),
            [],
        ),
        "chunk_request": (
            m.ChunkRequest(8, "flights", 12, CLIENT, 5 << 32 | 9, 1, 3, 700_000, 0xCAFE),
            [b"part"],
        ),
        "chunk_reply": (m.ChunkReply(8, m.Code.NOT_LEADER, "moved", 5 << 32 | 9, 1, 20, "south"), []),
    }
