"""A follower that is being filled writes each part of one snapshot once, in order; a leader keeps the log for it."""

from __future__ import annotations

from dueq import limits
from dueq.core.ports.effects import Persist, Read, SendPeer
from dueq.core.ports.entry import NO_ENTRIES
from dueq.core.ports.persistence import (
    InstallRows,
    PartitionRead,
    ReadPartition,
    ReadSnapshot,
    RecoveredPartition,
    SnapshotRead,
)
from dueq.core.replication.installing import Installation, SnapshotService
from dueq_codecs.messages import Code, SnapshotChunk, SnapshotRequest
from tests.unit.core.replica_stage import UID, Stage


class Filling:
    """An installation whose leader b2 is played by the test; writes are synced by `sync`, or at once."""

    def __init__(self, wiping: frozenset[int] = frozenset()) -> None:
        self.stage = Stage()
        self.stage.ctx.wiping = wiping
        self.rows: list[bytes] = []
        self.asked: list[tuple[int, int]] = []
        self.reads: list[ReadPartition] = []
        self.ended: list[RecoveredPartition] = []
        stage = self.stage
        self.installation = Installation(
            stage.ctx,
            stage.replica,
            "t",
            "b2",
            lambda recovered, now: self.ended.append(recovered),
            stage.now,
        )
        self.sync()

    def part(
        self, snapshot: int, part: int, code: Code = Code.OK, last: bool = False, syncs: bool = True
    ) -> None:
        """A part comes from the leader."""
        chunk = SnapshotChunk("b2", 22, UID, 1, snapshot, part, 9, 1, last, code)
        self.installation.chunk_received(chunk, b"%d of %d" % (part, snapshot), self.stage.now)
        if syncs:
            self.sync()

    def sync(self) -> None:
        ctx, now = self.stage.ctx, self.stage.now
        ctx.close_writes()
        for effect in ctx.take():
            if isinstance(effect, Persist):
                self.rows += [bytes(write.data) for write in effect.writes if isinstance(write, InstallRows)]
                ctx.persisted(effect.token, now)
        effects = list(ctx.take())
        requests = [effect.request for effect in effects if isinstance(effect, Read)]
        self.reads += [read for read in requests if isinstance(read, ReadPartition)]
        messages = [effect.message for effect in effects if isinstance(effect, SendPeer)]
        self.asked += [
            (asked.snapshot, asked.part) for asked in messages if isinstance(asked, SnapshotRequest)
        ]


def test_parts_are_asked_for_one_after_the_other_and_repeats_are_not_written() -> None:
    filling = Filling()
    for part in (0, 0, 1, 3, 2):
        filling.part(5, part)
    assert filling.rows == [b"0 of 5", b"1 of 5", b"2 of 5"]
    assert filling.asked == [(0, 0), (5, 1), (5, 2), (5, 3)]


def test_parts_of_another_snapshot_are_not_mixed_with_those_of_the_first() -> None:
    """The leader has read one out twice, as the first answer was late: each is the state of another instant."""
    filling = Filling()
    filling.part(5, 0)
    filling.part(6, 1)
    filling.part(5, 1)
    assert filling.rows == [b"0 of 5", b"1 of 5"]


def test_a_snapshot_that_its_leader_has_closed_ends_the_installation() -> None:
    filling = Filling()
    filling.part(5, 0)
    filling.part(5, 1, Code.BUSY)
    assert filling.installation.ended
    assert filling.ended == []


def test_what_was_filled_and_is_wiped_for_another_leaders_snapshot_is_not_read_back() -> None:
    """Else the replica would count as whole, and its disk would hold nothing of it."""
    filling = Filling()
    filling.part(5, 0, last=True)
    [read] = filling.reads
    filling.installation.replaced()
    recovered = RecoveredPartition(UID, "t", 1, 0, 9, 10, 9, [(1, 9)], [], 0, NO_ENTRIES, {}, b"", [])
    filling.stage.ctx.read_done(read.token, PartitionRead(read.token, UID, recovered), filling.stage.now)
    assert filling.ended == []


def test_an_installation_that_another_has_replaced_asks_for_nothing_and_reads_nothing() -> None:
    filling = Filling()
    filling.part(5, 0, last=True, syncs=False)
    filling.installation.replaced()
    filling.sync()
    assert filling.reads == []
    assert filling.ended == []
    filling.stage.mono_us += limits.LEADER_SILENCE_MS * 1000 + 1
    filling.installation.tick(filling.stage.now)
    filling.sync()
    assert filling.asked == [(0, 0)]


def test_no_part_is_asked_for_before_the_old_rows_are_gone() -> None:
    """The first part would have to wait until all of them are, and every other partition with it."""
    filling = Filling(wiping=frozenset((UID,)))
    for _ in range(3):
        filling.installation.tick(filling.stage.now)
        filling.sync()
    filling.part(5, 0)
    assert (filling.asked, filling.rows) == ([], [])
    filling.stage.ctx.wiping = frozenset((UID + 1,))
    filling.installation.tick(filling.stage.now)
    filling.sync()
    assert filling.asked == [(0, 0)]
    filling.part(5, 0)
    assert filling.asked == [(0, 0), (5, 1)]


def test_the_log_is_kept_after_a_snapshot_for_as_long_as_it_is_read() -> None:
    stage = Stage()
    stage.lead("b2", "b3")
    service = SnapshotService(stage.ctx, stage.replica)
    assert service.needed_from(stage.now) is None
    service.requested(stage.peer("b3"), SnapshotRequest("b3", 33, UID, 1, 0, 0), stage.now)
    [read] = [effect.request for effect in stage.ctx.take() if isinstance(effect, Read)]
    assert isinstance(read, ReadSnapshot)
    stage.ctx.read_done(read.token, SnapshotRead(read.token, UID, 5, 0, 7, 1, b"rows", False), stage.now)
    assert service.needed_from(stage.now) == 8
    stage.mono_us += limits.SNAPSHOT_IDLE_MS * 1000 + 1
    assert service.needed_from(stage.now) is None


def test_a_part_that_is_being_read_is_not_read_once_more_for_a_follower_that_asks_again() -> None:
    """Else, where many replicas are filled at once, each would be read out again and again before the next part."""
    stage = Stage()
    stage.lead("b2", "b3")
    service = SnapshotService(stage.ctx, stage.replica)

    def ask(follower: str, snapshot: int, part: int) -> list[int]:
        request = SnapshotRequest(follower, 0, UID, 1, snapshot, part)
        service.requested(stage.peer(follower), request, stage.now)
        return [effect.request.token for effect in stage.ctx.take() if isinstance(effect, Read)]

    [first] = ask("b3", 0, 0)
    assert ask("b3", 0, 0) == []
    assert len(ask("b2", 0, 0)) == 1
    stage.ctx.read_done(first, SnapshotRead(first, UID, 5, 0, 7, 1, b"rows", False), stage.now)
    stage.ctx.take()
    [second] = ask("b3", 5, 1)
    assert ask("b3", 5, 1) == []
    stage.ctx.read_done(second, SnapshotRead(second, UID, 5, 1, 7, 1, b"rows", False), stage.now)
    stage.ctx.take()
    assert len(ask("b3", 5, 1)) == 1, "its answer was lost"


def test_a_broker_reads_a_few_parts_at_a_time_and_goes_on_with_snapshots_before_it_begins_others() -> None:
    """Else payloads that consumers wait for would be read after the parts of all replicas that are being filled."""
    stage = Stage()
    stage.lead("b2", "b3")
    most = limits.FOLLOWER_READS_MAX
    under_way: list[ReadSnapshot] = []

    def order() -> None:
        orders = [effect.request for effect in stage.ctx.take() if isinstance(effect, Read)]
        under_way.extend(order for order in orders if isinstance(order, ReadSnapshot))

    def done() -> None:
        read = under_way.pop(0)
        stage.ctx.read_done(read.token, SnapshotRead(read.token, UID, 5, 0, 7, 1, b"", False), stage.now)
        order()

    for number in (*range(1, most + 1), 0, most + 1, most + 2):
        service = SnapshotService(stage.ctx, stage.replica)
        for _ in range(2):
            service.requested(stage.peer("b3"), SnapshotRequest("b3", 0, UID, 1, number, 0), stage.now)
    order()
    assert [read.snapshot for read in under_way] == list(range(1, most + 1))
    done()
    done()
    assert [read.snapshot for read in under_way] == list(range(3, most + 3))
    stage.replica.give_up(stage.now, "nobody waits for the last one any more")
    while under_way:
        assert 0 not in [read.snapshot for read in under_way]
        done()
    again = list[int]()
    for number in range(most):
        stage.ctx.follower_reads.begin(lambda number=number: not again.append(number), first=True)  # type: ignore[misc]
    assert len(again) == most, "the places of those that ended after its leadership are free, too"
