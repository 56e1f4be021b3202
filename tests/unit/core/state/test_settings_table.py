"""Settings in a partition's state: the newest version counts, and a checkpoint has it."""

from __future__ import annotations

import pytest

from dueq.core.ports.tables import TableRow
from dueq.core.state.applied import Applied
from dueq.core.state.settings_table import SettingsTable
from dueq.core.state.timeline import Timeline
from dueq.errors import UnknownVersion
from dueq_codecs.records import Record, RecordKind
from dueq_codecs.topic_settings import AS_CREATED, TopicSettings


def settings_record(settings: TopicSettings, sequence: int = 1) -> Record:
    return Record(RecordKind.SETTINGS, 1, sequence, 1, 1_000, version=2, document=settings.encode())


def applied(timeline: Timeline, settings: TopicSettings) -> Applied:
    return timeline.apply(settings_record(settings, timeline.applied + 1))


def test_the_newest_version_counts_in_whatever_order_they_are_logged() -> None:
    timeline = Timeline(1)
    first = AS_CREATED.changed({"paused": True}, "a" * 32)
    second = first.changed({"horizon_ms": 5}, "b" * 32)
    assert applied(timeline, second).settings == second
    assert applied(timeline, first).settings is None
    assert applied(timeline, second).settings is None
    assert timeline.settings == second


def test_a_checkpoint_has_the_document_once_and_recovery_finds_it() -> None:
    table = SettingsTable()
    settings = AS_CREATED.changed({"paused": True}, "a" * 32)
    timeline = Timeline(1)
    applied(timeline, settings)
    save = timeline.checkpoint()
    assert save is not None
    [row] = save.tables[b"s"]
    table.recover([row])
    assert table.current == settings
    assert table.changed_rows() == []


def test_a_row_of_a_newer_build_is_refused() -> None:
    with pytest.raises(UnknownVersion, match="settings of version 9"):
        SettingsTable().recover([TableRow(b"", b"\x09{}")])
