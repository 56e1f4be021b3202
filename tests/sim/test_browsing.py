"""Browsing in a simulated mesh: snapshots beside changes, leaders that go, and how many may read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dueq import limits
from dueq.client.browsing import BrowsePage, Walk
from dueq.client.core.ports.effects import Failed
from dueq.errors import SnapshotLost
from dueq_chaos.scenarios.stage import Stage
from dueq_chaos.sim.environment.sdk import SimClient
from dueq_codecs.messages import BrowseRequest, Code
from dueq_codecs.meta import Meta, with_key
from dueq_codecs.records import JobAction, RecordKind

FAR_MS = 3_600_000


def test_a_snapshot_shows_what_was_there_when_it_was_made_whatever_happens_meanwhile() -> None:
    stage = Stage()
    producer, reader = stage.hand("producer"), stage.hand("reader")
    due = stage.now_ms + FAR_MS
    stored = stage.stored(*[b"%d" % number for number in range(10)], dues=[due + at for at in range(10)])
    stage.step("a page of four; then one message is cancelled, one moved, one added")
    first, body = stage.page(reader, "b1", limit=4, payloads=True)
    stage.expect(first.code == Code.OK and not first.last, "a page of several")
    stage.expect(first.stamp <= stage.now_ms and first.applied > 0, "which says of when it is")
    for request in (
        producer.cancel("b1", stored[6:7]), producer.move("b1", stored[7:8], [due - 60_000]),
        producer.insert("b1", [b"new"], [due + 5]),
    ):  # fmt: skip
        stage.settled(producer, request)
    place = {"after_wait_at": int(first.wait_at[-1]), "after_key": int(first.sequence[-1]) << 16 | 3}
    rest, more = stage.page(reader, "b1", snapshot=first.snapshot, payloads=True, **place)
    stage.expect(body + more == b"0123456789" and rest.last, f"the ten as they were, not {body + more!r}")
    stage.expect(rest.applied == first.applied, "after the same record")

    stage.step("a new snapshot shows what is there now, by the instant until which it waits")
    found = stage.browsed(reader, "b1", payloads=True, limit=3)
    stage.expect([row.body for row in found] == [b"7", *[b"%d" % n for n in (0, 1, 2, 3, 4, 5)], b"new", b"8", b"9"],
                 f"what waits now, not {found}")  # fmt: skip
    between = stage.browsed(reader, "b1", from_ms=due + 2, until_ms=due + 5)
    stage.expect([row.sequence << 16 | row.row for row in between] == [
        message.sequence << 16 | message.row for message in stored[2:5]], "a range leaves out its end")  # fmt: skip
    stage.expect(not any(row.body for row in between), "payloads only when asked for")
    stage.finish()


def test_leased_messages_are_not_shown_and_browsing_changes_nothing() -> None:
    stage = Stage()
    consumer, reader = stage.hand("consumer"), stage.hand("reader")
    soon = stage.stored(b"soon", due=stage.now_ms + 200)
    later = stage.stored(b"later", due=stage.now_ms + FAR_MS)
    consumer.attach("b1", lease_ms=60_000)
    consumer.stay()
    stage.delivered(consumer, *soon)
    before = stage.replica("b1").replica.log.end
    found = stage.browsed(reader, "b1", payloads=True)
    stage.expect([row.body for row in found] == [b"later"], "only what waits")
    stage.expect(found[0].attempt == 0, "nobody has had it")
    stage.expect(stage.replica("b1").replica.log.end == before, "no record was written")
    stage.delivered(consumer, *soon)
    stage.expect(not consumer.got(later[0]), "nor was anything delivered")
    stage.finish()


def test_a_new_leader_knows_no_snapshot_of_the_one_before() -> None:
    """Pages of two leaders are of two states: what was moved in between would be shown twice, or never."""
    stage = Stage()
    reader = stage.hand("reader")
    stage.stored(*[b"%d" % number for number in range(10)])
    first, _ = stage.page(reader, "b1", limit=4)
    stage.step("the leader dies between two pages")
    stage.nodes["b1"].crash()
    stage.until(lambda: stage.leader_of(stage.uid), "a leader")
    place = {"after_wait_at": int(first.wait_at[-1]), "after_key": int(first.sequence[-1]) << 16 | 3}
    second, _ = stage.page(reader, stage.leader, snapshot=first.snapshot, **place)
    stage.expect(second.code == Code.UNKNOWN_SESSION, f"no such snapshot, not {second.code.name}")
    stage.expect(len(stage.browsed(reader, stage.leader)) == 10, "a new one shows all")
    stage.step("the old one comes back, leads again, and has forgotten it")
    stage.nodes["b1"].start()
    stage.until(stage.whole, "a whole mesh")
    stage.nodes[stage.leader].crash()
    stage.until(lambda: stage.leader_of(stage.uid), "a leader")
    third, _ = stage.page(reader, stage.leader, snapshot=first.snapshot, **place)
    stage.expect(third.code == Code.UNKNOWN_SESSION, f"no such snapshot, not {third.code.name}")


def test_a_leader_that_is_deposed_answers_those_who_wait_for_a_snapshot() -> None:
    stage = Stage()
    reader = stage.hand("reader")
    stage.stored(b"x")
    stage.step("b1's disk stands still, so there is no checkpoint; then the others take over")
    stage.spindles["b1"].stopped = True
    producer = stage.hand("producer")
    producer.insert("b1", [b"y"], [stage.now_ms + FAR_MS])
    stage.run_ms(5)
    number = reader.browse("b1")
    stage.run_ms(50)
    stage.expect(number not in reader.pages, "no page before the checkpoint is on the disk")
    stage.isolate("b1")
    stage.until(lambda: number in reader.pages, "an answer")
    stage.expect(reader.pages[number][0].code == Code.NOT_LEADER, "not led here any more")
    stage.spindles["b1"].go()
    stage.finish()


def test_another_broker_relays_pages() -> None:
    stage = Stage()
    reader = stage.hand("reader")
    stage.stored(b"one", b"two")
    found = stage.browsed(reader, "b2", payloads=True)
    stage.expect([row.body for row in found] == [b"one", b"two"], "the leader's page")
    stage.finish()


def test_few_snapshots_are_kept_and_not_for_long() -> None:
    stage = Stage()
    reader = stage.hand("reader")
    stage.stored(b"one", b"two")
    kept = [stage.page(reader, "b1", limit=1)[0].snapshot for _ in range(limits.BROWSE_SNAPSHOTS_MAX)]
    stage.expect(len(set(kept)) == len(kept), "one each")
    busy, _ = stage.page(reader, "b1", limit=1)
    stage.expect(busy.code == Code.BUSY and busy.retry_after_ms > 0, "no more than that")
    stage.page(reader, "b1", snapshot=kept[0], close=True)
    again, _ = stage.page(reader, "b1", limit=1)
    stage.expect(again.code == Code.OK, "who is done makes room")
    stage.run_ms(limits.SNAPSHOT_IDLE_MS + 1_000)
    gone, _ = stage.page(reader, "b1", snapshot=again.snapshot)
    stage.expect(gone.code == Code.UNKNOWN_SESSION, "nobody read it")
    stage.expect(stage.page(reader, "b1")[0].code == Code.OK, "and there is room again")
    stage.finish()


def test_a_request_that_makes_no_sense_is_refused() -> None:
    stage = Stage()
    reader = stage.hand("reader")
    for fields in (
        {"from_ms": limits.DUE_MS_MAX + 1}, {"until_ms": 1 << 60}, {"after_key": 1 << 56}, {"chunk": 1 << 16},
        {"upload": 5}, {"close": True},
    ):  # fmt: skip
        reply, _ = stage.page(reader, "b1", **fields)
        stage.expect(reply.code == Code.INVALID_REQUEST, f"{fields}: {reply.code.name}")
    # A number above all of the topic's may be of a topic that was made anew: this broker has not heard of it yet.
    reply, _ = stage.page(reader, "b1", uid=999)
    stage.expect(reply.code == Code.NOT_LEADER, f"not known here: {reply.code.name}")


def test_keys_are_shown_without_payloads() -> None:
    stage = Stage()
    producer, reader = stage.hand("producer"), stage.hand("reader")
    stored = [with_key(b"name", b"payload"), with_key(b"", b"other")]
    stage.settled(producer, producer.insert("b1", stored, [stage.now_ms + FAR_MS] * 2, keyed=Meta.KEY))
    stage.expect([row.body for row in stage.browsed(reader, "b1")] == [b"\x04name", b"\0"], "keys")
    stage.expect([row.body for row in stage.browsed(reader, "b1", payloads=True)] == stored, "all of it")
    stage.finish()


def test_a_request_that_is_repeated_while_it_waits_makes_one_snapshot() -> None:
    stage = Stage()
    reader = stage.hand("reader")
    stage.stored(b"x")
    stage.spindles["b1"].stopped = True
    number = reader.browse("b1")
    for _ in range(3):
        reader.send("b1", BrowseRequest(number, stage.topic, stage.uid))
    stage.run_ms(50)
    stage.spindles["b1"].go()
    stage.until(lambda: number in reader.pages, "a page")
    others = [stage.page(reader, "b1")[0].code for _ in range(limits.BROWSE_SNAPSHOTS_MAX)]
    expected = [Code.OK] * (limits.BROWSE_SNAPSHOTS_MAX - 1) + [Code.BUSY]
    stage.expect(others == expected, f"room for all but one: {others}")


def test_messages_of_a_job_that_is_not_decided_are_shown_to_nobody() -> None:
    """The others are, also where a page is full of what is hidden; a snapshot made before goes on hiding them."""
    stage = Stage()
    producer, reader = stage.hand("producer"), stage.hand("reader")
    until = stage.now_ms + 600_000
    change = producer._change(RecordKind.INSERT, 0, "")
    change.job, change.job_until = b"j" * 16, until
    rows = 300
    change.due = np.full(rows, until + FAR_MS, np.uint64)
    change.size, change.crc = np.zeros(rows, np.uint32), np.zeros(rows, np.uint32)
    stage.settled(producer, producer._ask("b1", change, [], [b""] * rows, 0))
    open_ones = stage.stored(b"before", b"after", dues=[until - 1, until + 2 * FAR_MS])
    page, _ = stage.page(reader, "b1", limit=1)
    found = stage.browsed(reader, "b1", payloads=True, limit=5)
    stage.expect([row.body for row in found] == [b"before", b"after"], f"not what is hidden: {found}")

    stage.step("the job is committed")
    commit = producer._change(RecordKind.JOB, 0, "")
    commit.job, commit.job_until, commit.job_action = b"j" * 16, until, JobAction.COMMIT
    stage.settled(producer, producer._ask("b1", commit, [], [], 0))
    at = {"after_wait_at": until - 1, "after_key": open_ones[0].sequence << 16}
    rest, body = stage.page(reader, "b1", snapshot=page.snapshot, payloads=True, **at)
    stage.expect(body == b"after" and rest.last, f"the old snapshot is as it was: {body!r}")
    stage.expect(len(stage.browsed(reader, "b1", limit=100)) == rows + 2, "a new one shows all")
    stage.finish()


# ------------------------------------------------------------------ with the SDK's own session machine


def next_page(stage: Stage, sdk: SimClient, walk: Walk) -> BrowsePage:
    """Ask for one page, as `Client.browse_pages` does."""
    while (order := walk.call()) is not None:
        answers: list[tuple[Any, Failed | None]] = []
        sdk.call(order.build, 20_000_000, lambda value, failed: answers.append((value, failed)))  # noqa: B023
        stage.until(lambda: answers, "an answer")  # noqa: B023
        value, failed = answers[0]
        if failed is None:
            walk.take(value)
        elif isinstance(failed.error, SnapshotLost):
            walk.lost(failed.error)
        else:
            raise failed.error
    return walk.page()


@pytest.mark.parametrize("reach", [["b1", "b2", "b3"], ["b3"]])
def test_the_sdk_begins_anew_at_the_next_leader_while_nothing_was_handed_out(reach: list[str]) -> None:
    stage = Stage()
    ids = [b"%d" % number for number in range(3)]
    stage.stored(*ids)
    sdk, walk = stage.sdk("reader", reach), Walk(stage.topic, 0, payloads=True)
    stage.step("the first page has come, its long payloads have not; the leader dies")
    first = walk.call()
    assert first is not None
    answers: list[Any] = []
    sdk.call(first.build, 20_000_000, lambda value, failed: answers.append(value))
    stage.until(lambda: answers, "the first page")
    answer = answers[0]
    answer.reply.upload[0], answer.reply.size[0] = 77, limits.CHUNK_BYTES + 1
    walk.take(answer)
    stage.expect(walk.in_chunks, "a chunk is to be read")
    stage.nodes["b1"].crash()
    page = next_page(stage, sdk, walk)
    stage.expect(page.payloads == ids and walk.done, f"all of it, from {stage.leader}: {page.payloads}")
    stage.expect(page.epoch > 1, "from the new leadership")


@pytest.mark.parametrize("reach", [["b1", "b2", "b3"], ["b3"]])
def test_the_sdk_never_mixes_the_snapshots_of_two_leaders(reach: list[str]) -> None:
    stage = Stage()
    stage.stored(*[b"x"] * 600)
    stage.stored(*[b"x"] * 600)
    sdk, walk = stage.sdk("reader", reach), Walk(stage.topic, 0)
    stage.expect(len(next_page(stage, sdk, walk)) == limits.BROWSE_ROWS_MAX, "a full page")
    stage.expect(not walk.done, "there is more")
    stage.step("the leader dies, another one serves")
    stage.nodes["b1"].crash()
    with pytest.raises(SnapshotLost, match="browse again"):
        next_page(stage, sdk, walk)
    again = Walk(stage.topic, 0)
    rows = len(next_page(stage, sdk, again)) + len(next_page(stage, sdk, again))
    stage.expect(rows == 1_200 and again.done, "from the beginning, all is there")


def test_a_priority_topic_is_shown_by_rank_whatever_the_page_and_the_client() -> None:
    """The place of a row names it: so a client that knows nothing of ranks sees each message once, too."""
    stage = Stage(kind="priority")
    producer, reader = stage.hand("producer"), stage.hand("reader")
    due = stage.now_ms + FAR_MS
    ranks = [7, 0, 65_535, 7, 0, 300]
    payloads = [b"%d" % number for number in range(6)]
    request = producer.insert("b1", payloads, [due + 5 - at for at in range(6)], ranks=ranks)
    stored = stage.settled(producer, request).stored()
    stage.settled(producer, producer.insert("b1", [b"plain"], [due]))
    stage.settled(producer, producer.rank("b1", stored[5:], [1]))
    stage.settled(producer, producer.move("b1", stored[4:5], [due + 50]))
    order = [(0, b"plain"), (0, b"1"), (0, b"4"), (1, b"5"), (7, b"3"), (7, b"0"), (65_535, b"2")]
    for limit in (1, 2, 5, 100):
        found = stage.browsed(reader, "b1", payloads=True, limit=limit)
        stage.expect([(row.rank, row.body) for row in found] == order, f"by rank, {limit} a page: {found}")
    found = stage.browsed(reader, "b1", payloads=True, from_ms=due + 2, until_ms=due + 6, limit=1)
    stage.expect([row.body for row in found] == [b"1", b"3", b"0", b"2"], f"a range: {found}")

    sdk, walk = stage.sdk("sdk"), Walk(stage.topic, 0)
    page = next_page(stage, sdk, walk)
    stage.expect(page.rank.tolist() == [rank for rank, _ in order], f"ranks, not {page.rank}")
    inserted = stored[0].sequence
    changed = dict(zip([body for _, body in order], page.version.tolist(), strict=True))
    stage.expect(changed[b"0"] == inserted < changed[b"plain"] < changed[b"5"] < changed[b"4"], f"{changed}")
    stage.finish()
