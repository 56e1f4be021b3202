"""Which offers of a snapshot a replica takes, and which one takes the place of the one under way."""

from __future__ import annotations

from dueq import limits
from dueq.core.partition.filling import Filling
from dueq.core.ports.effects import Persist, Read, SendPeer
from dueq.core.ports.persistence import ReadPartition, RecoveredPartition
from dueq.instant import Now
from dueq_codecs.messages import Code, SnapshotChunk, SnapshotRequest
from tests.unit.core.replica_stage import UID, Stage, entry


class Follower:
    """Broker b1, to which b2 and b3 offer snapshots; its disk is quick."""

    def __init__(self) -> None:
        self.stage = Stage()
        self.wiped = self.reads = 0
        self.asked: list[tuple[str, int, int]] = []
        """Parts that were asked for: of whom, snapshot, part."""
        self.filling = Filling(self.stage.ctx, self.stage.replica, "t", self._wiped, self._filled)

    def _wiped(self) -> None:
        self.wiped += 1

    def _filled(self, recovered: RecoveredPartition, now: Now) -> None:
        """It is all the same to these tests."""

    def offered(self, name: str, epoch: int, held: tuple[int, int] = (9, 1)) -> None:
        """A leader offers a snapshot; its log goes on from the record `held` (sequence, epoch)."""
        self._received(name, SnapshotChunk(name, int(name[1]) * 11, UID, epoch, 0, 0, *held, False, Code.OK))

    def part(self, name: str, epoch: int, snapshot: int, part: int, code: Code = Code.OK) -> None:
        """A leader sends a part."""
        self._received(
            name, SnapshotChunk(name, int(name[1]) * 11, UID, epoch, snapshot, part, 9, 1, False, code)
        )

    def last_part_before_the_end_of_a_turn(self, name: str, epoch: int, snapshot: int, part: int) -> None:
        """A leader sends its last part; more comes in the same turn."""
        chunk = SnapshotChunk(name, int(name[1]) * 11, UID, epoch, snapshot, part, 9, 1, True, Code.OK)
        self.filling.received(self.stage.peer(name), chunk, b"", self.stage.now)

    def _received(self, name: str, chunk: SnapshotChunk) -> None:
        self.filling.received(self.stage.peer(name), chunk, b"", self.stage.now)
        self._turn()

    def pass_ms(self, ms: int) -> None:
        self.stage.mono_us += ms * 1000
        self.filling.tick(self.stage.now)
        self._turn()

    def _turn(self) -> None:
        """The turn ends, and what it writes is synced."""
        ctx = self.stage.ctx
        ctx.close_writes()
        effects = ctx.take()
        for effect in effects:
            if isinstance(effect, Persist):
                ctx.persisted(effect.token, self.stage.now)
        for effect in [*effects, *ctx.take()]:
            if isinstance(effect, SendPeer) and isinstance(effect.message, SnapshotRequest):
                self.asked.append((effect.broker_id, effect.message.snapshot, effect.message.part))
            self.reads += isinstance(effect, Read) and isinstance(effect.request, ReadPartition)


def test_an_offer_of_the_next_leader_takes_the_place_of_what_the_one_before_did_not_end() -> None:
    """The parts that are still to come would be asked of one who does not lead any more, for ever."""
    follower = Follower()
    follower.offered("b2", 1)
    follower.part("b2", 1, 5, 0)
    follower.offered("b3", 2)
    assert follower.asked == [("b2", 0, 0), ("b2", 5, 1), ("b3", 0, 0)]
    assert follower.wiped == 2


def test_what_an_earlier_leader_has_filled_is_not_read_back_once_another_ones_snapshot_has_wiped_it() -> None:
    """It would count as whole, and its disk would hold nothing."""
    follower = Follower()
    follower.offered("b2", 1)
    follower.last_part_before_the_end_of_a_turn("b2", 1, 5, 0)
    follower.offered("b3", 2)
    assert (follower.reads, follower.asked) == (0, [("b2", 0, 0), ("b3", 0, 0)])


def test_an_offer_that_is_repeated_while_it_is_filled_does_not_begin_anew() -> None:
    follower = Follower()
    follower.offered("b2", 1)
    follower.part("b2", 1, 5, 0)
    follower.offered("b2", 1)
    assert follower.asked == [("b2", 0, 0), ("b2", 5, 1)]


def test_a_part_whose_answer_was_lost_is_asked_for_again() -> None:
    follower = Follower()
    follower.offered("b2", 1)
    follower.part("b2", 1, 5, 0)
    follower.pass_ms(limits.LEADER_SILENCE_MS)
    assert follower.asked == [("b2", 0, 0), ("b2", 5, 1)]
    follower.pass_ms(1)
    assert follower.asked[2:] == [("b2", 5, 1)]


def test_a_filling_that_its_leader_has_closed_is_begun_anew_with_the_next_offer() -> None:
    """What its log held before is gone, though it would go on from there: it would stay empty for ever."""
    follower = Follower()
    follower.stage.append("b2", 1, (0, 0), 1, 1)
    follower.offered("b2", 1)
    follower.part("b2", 1, 5, 0)
    follower.part("b2", 1, 5, 1, Code.BUSY)
    follower.offered("b2", 1, held=(2, 1))
    assert follower.asked == [("b2", 0, 0), ("b2", 5, 1), ("b2", 0, 0)]


def test_one_that_holds_what_the_leaders_log_goes_on_from_is_not_wiped() -> None:
    follower = Follower()
    follower.stage.append("b2", 1, (0, 0), 1, 1)
    follower.offered("b2", 1, held=(2, 1))
    assert (follower.wiped, follower.asked) == (0, [])
    mismatch = follower.stage.mismatch_to("b2")
    assert mismatch is not None
    assert (mismatch.end, mismatch.installing) == (2, False)


def test_one_that_holds_another_record_in_its_place_is_filled() -> None:
    """It can never go on from there, and its leader has nothing older."""
    follower = Follower()
    follower.stage.append("b2", 1, (0, 0), 1, 1)
    follower.offered("b3", 3, held=(2, 2))
    assert follower.wiped == 1
    assert follower.asked == [("b3", 0, 0)]


def test_one_that_may_be_about_to_lead_is_not_wiped_by_an_offer_that_comes_late() -> None:
    """It could not lead then, though the coordinator says that it does."""
    follower = Follower()
    stage = follower.stage
    stage.append("b2", 1, (0, 0))
    stage.node("b2", 1, "b1", "b2", "b3", incarnation=22)
    stage.pass_ms(2_000, "b3")
    stage.votes(b3=True)
    stage.pass_ms(400, "b3")
    assert stage.replica.is_standing
    follower.offered("b2", 1)
    assert (follower.wiped, stage.replica.installing) == (0, False)


def test_a_replica_that_leads_takes_no_offer_of_an_epoch_before_its_own() -> None:
    follower = Follower()
    follower.stage.append("b2", 1, (0, 0))
    follower.stage.replica.lead(2, follower.stage.now)
    follower.stage.replica.append_own(entry(2, 2), follower.stage.now)
    follower.offered("b2", 1)
    assert follower.wiped == 0
    assert follower.stage.replica.is_leader
