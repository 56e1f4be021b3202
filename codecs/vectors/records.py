"""Records: at least one of each kind."""

from __future__ import annotations

import dataclasses

import numpy as np

from dueq_codecs.meta import Meta
from dueq_codecs.records import Fate, JobAction, Record, RecordKind, RequestRef
from vectors.pieces import (
    AT,
    BODY,
    CLIENT,
    CONSUMER,
    JOB,
    OTHER_CONSUMER,
    PURGE,
    claim,
    insert,
    insert_shared,
    keys,
    once,
    places,
    record,
    settings,
    targets,
    u8,
    u16,
    u32,
    u64,
)


def records() -> dict[str, Record]:
    """One record of each kind."""
    kind = RecordKind
    return {
        "record_barrier": record(kind.BARRIER),
        "record_insert": record(kind.INSERT, 3, **insert()),
        "record_insert_uploads": dataclasses.replace(
            record(kind.INSERT, 3, **insert(), upload=u64(0, 5 << 32 | 9, 0)),
            requests=(RequestRef(CLIENT, 3, 1, 1), RequestRef(CONSUMER, 4, 2, 2)),
        ),
        "record_insert_once": dataclasses.replace(record(kind.INSERT, 3, **insert(), **once()), version=2),
        "record_claim": dataclasses.replace(record(kind.INSERT, 1, **claim()), version=2),
        "record_lease": record(
            kind.LEASE,
            first=u64(AT, AT, AT - 1),
            target_sequence=u64(40, 40, 39),
            target_row=u16(0, 1, 7),
            consumer=u16(0, 1, 0),
            consumers=(CONSUMER, OTHER_CONSUMER),
            lease_ms=u64(30_000, 43_200_000),
        ),
        "record_lease_detached": record(
            kind.LEASE,
            first=u64(AT, AT),
            target_sequence=u64(40, 39),
            target_row=u16(0, 7),
            token=u64(0, 38),
            consumer=u16(1, 0),
            consumers=(CONSUMER, OTHER_CONSUMER),
            lease_ms=u64(30_000, 5_000),
            detached=np.array([0, 1], np.uint8),
        ),
        "record_move": record(kind.MOVE, 2, **targets(0), due=u64(AT + 9, AT + 8)),
        "record_insert_ranks": record(kind.INSERT, 3, **insert(), rank=u16(0, 7, 65_535)),
        "record_insert_groups": record(
            kind.INSERT, 3, **insert(), group=u16(1, 0, 1), groups=("acme.reports", "")
        ),
        "record_insert_unique": dataclasses.replace(
            record(kind.INSERT, 3, **insert(), **keys(), keyed=Meta.KEY, retry=True), version=2
        ),
        "record_insert_window": dataclasses.replace(
            record(kind.INSERT, 3, **insert(), window=u32(0, 599_000, 7)), version=2
        ),
        "record_insert_ends": record(
            kind.INSERT, 3, **insert(), expires=u64(0, AT + 60_000, 1), attempts_max=u16(5, 0, 65_535)
        ),
        "record_insert_shared": dataclasses.replace(
            record(kind.INSERT, 3, **insert_shared(), shared=BODY, shared_size=20_480), version=2
        ),
        "record_body": dataclasses.replace(
            record(kind.BODY, 1, size=u32(5), crc=u32(0x3610A686), shared=BODY, shared_size=5), version=2
        ),
        "record_body_known": dataclasses.replace(
            record(kind.BODY, 1, amount_ms=u64(0), shared=BODY, shared_size=5), version=2
        ),
        "record_body_ages": dataclasses.replace(record(kind.BODY), version=2),
        "record_nack_headers": dataclasses.replace(
            record(kind.NACK, 2, **targets(), amount_ms=u64(0, 5000), document='{"tries":"é"}'), version=2
        ),
        "record_nack_reasons": record(
            kind.NACK,
            2,
            **targets(),
            amount_ms=u64(0, 5000),
            fate=u8(Fate.DEAD, Fate.DELAY),
            reason=u16(1, 0),
            reasons=("", "the card was refused: é"),
        ),
        "record_release_delay": record(kind.RELEASE, 2, **targets(), amount_ms=u64(0, 5000)),
        "record_expire_delay": record(
            kind.EXPIRE,
            **targets(),
            amount_ms=u64(0, 5000),
            reason=u16(0, 0),
            reasons=("the lease ran out",),
        ),
        "record_lapse": record(kind.LAPSE, **places(), reason=u16(0, 0), reasons=("expired",)),
        "record_discard": record(kind.DISCARD, **places(), name="p1"),
        "record_redrive": record(kind.REDRIVE, 2, **places(), due=u64(0, AT + 9)),
        "record_group": record(kind.GROUP, 1, name="acme", document='{"max_unacked":50,"weight":10}'),
        "record_change": record(kind.CHANGE, 2, **targets(0), rank=u16(3, 65_535)),
        "record_recurrence": record(
            kind.RECURRENCE,
            1,
            name="nightly é",
            document='{"action":"create","cron":"0 3 * * *","zone":"Europe/Berlin"}',
            tick=u64(AT),
            following=u64(AT + 3_600_000),
        ),
        "record_recurrence_withdraws": record(
            kind.RECURRENCE,
            1,
            name="nightly é",
            document='{"action":"pause"}',
            tick=u64(0),
            following=u64(0),
            **targets(0),
        ),
        "record_fire": record(
            kind.FIRE,
            **(insert() | {"due": u64(AT, AT + 7, 0)}),
            recurrence=u64(40, 41, 39),
            tick=u64(AT, AT + 5, AT + 9),
            following=u64(AT + 60_000, 0, AT + 70_000),
            rank=u16(9, 0, 0),
            group=u16(0, 1, 0),
            groups=("acme.eu", ""),
        ),
        "record_fire_asked": record(
            kind.FIRE,
            1,
            due=u64(AT),
            size=u32(3),
            crc=u32(1),
            name="nightly é",
            recurrence=u64(40),
            tick=u64(0),
            following=u64(0),
        ),
        "record_cancel": record(kind.CANCEL, 2, **targets(0)),
        "record_trigger": dataclasses.replace(record(kind.TRIGGER, 2, **targets(0)), version=2),
        "record_ack": record(kind.ACK, 2, **targets()),
        "record_nack": record(kind.NACK, 2, **targets(), amount_ms=u64(0, 5000)),
        "record_extend": record(kind.EXTEND, 2, **targets(), amount_ms=u64(30_000, 60_000)),
        "record_release": record(kind.RELEASE, 2, **targets()),
        "record_expire": record(kind.EXPIRE, **targets()),
        "record_insert_job": record(
            kind.INSERT, 3, **insert(), job=JOB, job_until=AT + 60_000, keyed=Meta.KEY
        ),
        "record_job": record(kind.JOB, 1, job=JOB, job_until=AT + 60_000, job_action=JobAction.COMMIT),
        "record_reveal": record(
            kind.REVEAL, first=u64(AT, AT + 1), target_sequence=u64(40, 41), target_row=u16(0, 9), job=JOB
        ),
        "record_pass": dataclasses.replace(record(kind.PASS, 1, name="p1", document=PURGE), version=2),
        "record_move_expected": dataclasses.replace(
            record(kind.MOVE, **targets(0), due=u64(AT + 9, AT + 10), expected=u64(41, 0)), version=2
        ),
        "record_cancel_pass": dataclasses.replace(record(kind.CANCEL, **targets(0), name="p1"), version=2),
        "record_settings": dataclasses.replace(record(kind.SETTINGS, document=settings()), version=2),
    }
