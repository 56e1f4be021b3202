"""Headers that a NACK has put in place of a message's own: kept beside it, saved, and gone with it."""

from __future__ import annotations

from dueq.core.state.heading_table import HeadingTable
from dueq.core.state.timeline import Timeline
from dueq_codecs.records import LEVEL_OF_KINDS, Outcome, RecordKind
from tests.unit.core.state.test_timeline import NOON, UID, Shelf, Story, u64

HEADERS = '{"tries":"1"}'


def give_back(story: Story, headers: str) -> int:
    """Insert a message and give it back with headers; returns its key."""
    story.insert(NOON)
    leased = story.lease(story.timeline.waiting_hot())
    assert story.request(
        RecordKind.NACK, leased, amount_ms=u64(0), document=headers, version=LEVEL_OF_KINDS
    ) == [Outcome.DONE]
    return int(leased["sequence"][0]) << 16


def test_they_are_kept_until_the_message_ends() -> None:
    story = Story()
    key = give_back(story, HEADERS)
    headings = story.timeline.headings
    assert (headings.by_key, headings.size) == ({key: HEADERS}, len(HEADERS))
    leased = story.lease(story.timeline.waiting_hot())
    assert headings.by_key == {key: HEADERS}
    assert story.request(RecordKind.ACK, leased) == [Outcome.DONE]
    assert (headings.by_key, headings.size) == ({}, 0)


def test_the_next_ones_follow_and_none_leave_them() -> None:
    story = Story()
    key = give_back(story, HEADERS)
    for given, kept in (("", HEADERS), ("{}", "{}")):
        leased = story.lease(story.timeline.waiting_hot())
        story.request(RecordKind.NACK, leased, amount_ms=u64(0), document=given, version=LEVEL_OF_KINDS)
        assert story.timeline.headings.by_key == {key: kept}


def test_a_stale_nack_changes_nothing() -> None:
    story = Story()
    story.insert(NOON)
    leased = story.lease(story.timeline.waiting_hot())
    leased["token"] += 1
    story.request(RecordKind.NACK, leased, amount_ms=u64(0), document=HEADERS, version=LEVEL_OF_KINDS)
    assert story.timeline.headings.by_key == {}


def test_a_checkpoint_has_them_and_their_end() -> None:
    story, shelf = Story(), Shelf()
    key = give_back(story, HEADERS)
    shelf.save(story.timeline)
    headings = Timeline(UID, shelf.recover()).headings
    assert (headings.by_key, headings.size) == ({key: HEADERS}, len(HEADERS))
    story.request(RecordKind.CANCEL, story.timeline.waiting_hot())
    shelf.save(story.timeline)
    assert shelf.last is not None
    assert [row.value for row in shelf.last.tables[b"h"]] == [None]


def test_headers_that_were_recovered_leave_the_disk_with_their_message() -> None:
    """Else the next restart would find them again, and nothing would ever give back their room."""
    story, shelf = Story(), Shelf()
    give_back(story, HEADERS)
    shelf.save(story.timeline)
    table = HeadingTable()
    assert shelf.last is not None
    table.recover(shelf.last.tables[b"h"])
    table.forget(story.timeline.waiting_hot())
    assert [row.value for row in table.changed_rows()] == [None]


def test_the_room_that_headers_take_is_given_back_whatever_letters_they_have() -> None:
    story = Story()
    give_back(story, '{"name":"Zoë"}')
    headings = story.timeline.headings
    assert headings.size == len('{"name":"Zoë"}'.encode())
    story.request(RecordKind.CANCEL, story.timeline.waiting_hot())
    assert headings.size == 0
