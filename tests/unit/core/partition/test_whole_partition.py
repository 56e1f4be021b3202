"""What a partition sees to, whichever of its parts does the work."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dueq import limits
from dueq.core.ports.events import Route
from dueq.core.state.summary import Summary
from dueq_codecs.digest import request_digest
from dueq_codecs.messages import Ack, ChangeRequest, Code
from dueq_codecs.records import FEATURE_LEVEL, RecordKind
from dueq_codecs.topic_settings import AS_CREATED
from tests.unit.core.partition.test_leaderships_that_end import CLIENT, TOPIC, Stage
from tests.unit.core.replica_stage import UID, entry, filled


def test_what_the_disk_has_as_committed_is_applied_as_soon_as_a_broker_starts() -> None:
    """Who asks it for the partition's counts would be told of an older state than it was told before."""
    recovered = filled(1, 1)
    recovered.unproven, recovered.summary = False, Summary(1_000, level=1).pack()
    recovered.tail, recovered.log_end, recovered.commit = [entry(2, 1), entry(3, 1)], 3, 2
    stage = Stage(recovered)
    assert stage.partition.applied == 2


def test_a_replica_that_applies_nothing_more_goes_on_to_take_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it takes waits for no disk to be applied: without its acks, its leader could commit nothing."""
    recovered = filled(0, 1)
    recovered.unknown = "entries of 999 bytes"
    stage = Stage(recovered)
    stage.partition.keep_cached(0)
    monkeypatch.setattr(limits, "UNAPPLIED_BYTES_MAX", 0)
    stage.append("b2", 1, (0, 1), 1, commit=1)
    assert stage.replica.commit == 1
    stage.append("b2", 1, (1, 1), 1, commit=1)
    assert stage.replica.end == 2


def test_a_wait_for_settings_that_is_not_well_formed_is_refused() -> None:
    stage = Stage()
    stage.serve()
    request = ChangeRequest(5, RecordKind.SETTINGS, "t", UID, CLIENT, 0, 0, document='{"version":0}')
    refusal = stage.partition.request(Route(b"client"), request, [], stage.now)
    assert refusal is not None
    assert (refusal.code, refusal.text) == (
        Code.INVALID_REQUEST, "request sequences count from 1, not 0",
    )  # fmt: skip


def test_an_ack_that_somebody_waits_for_brings_an_end_of_turn() -> None:
    """There the follower is sent what it lacks; else it would wait until something else happens."""
    stage = Stage()
    stage.lead("b2", "b3")
    stage.sync()
    stage.ctx.touched.clear()
    stage.partition.ack_received(stage.peer("b2"), Ack(UID, 1, 0), stage.mono_us, stage.now)
    assert UID in stage.ctx.touched


def test_nothing_is_taken_before_the_settings_that_a_topic_was_created_with() -> None:
    """It would be delivered though the topic is paused, for one."""
    stage = Stage()
    stage.partition.topic_changed(
        replace(TOPIC, settings=AS_CREATED.changed({"paused": True}, "a" * 32)), stage.now
    )
    stage.serve()
    request = ChangeRequest(1, RecordKind.CANCEL, "t", UID, CLIENT, 1, 0)
    request.first, request.target_sequence = np.full(1, 1_000, np.uint64), np.ones(1, np.uint64)
    request.target_row, request.token = np.zeros(1, np.uint16), np.zeros(1, np.uint64)
    request.digest = request_digest(request)
    refusal = stage.partition.request(Route(b"client"), request, [], stage.now)
    assert refusal is not None
    assert refusal.code == Code.BUSY
    stage.ctx.levels |= dict.fromkeys(("b2", "b3"), FEATURE_LEVEL)
    for _ in range(3):
        stage.partition.tick(stage.now)
        stage.acked()
    assert stage.partition.request(Route(b"client"), request, [], stage.now) is None
