"""Named scenarios with the SDK's own session machine on a simulated mesh."""

from __future__ import annotations

from dueq.limits import CHUNK_BYTES, CONSUMER_SESSION_MS
from dueq_chaos.scenarios.stage import Stage
from dueq_chaos.sim.users.consuming import ConsumingUser
from dueq_chaos.sim.users.habits import Habits
from dueq_chaos.sim.users.producing import ProducingUser
from dueq_codecs.messages import ChunkRequest


def producing(stage: Stage, name: str = "writer") -> ProducingUser:
    """A process that schedules."""
    return ProducingUser(stage.sdk(name), stage.history)


def consuming(stage: Stage, name: str, *, credit: int = 64, lease_ms: int = 30_000) -> ConsumingUser:
    """A process that consumes."""
    user = ConsumingUser(
        stage.sdk(name), stage.history, stage.topic, credit=credit, lease_ms=lease_ms, seed=len(name)
    )
    user.habits = Habits()
    return user


def stored(stage: Stage, count: int) -> None:
    """Wait until so many inserts are acknowledged."""
    stage.until(lambda: len(stage.history.messages) == count, f"{count} acknowledged inserts")


def well(stage: Stage, count: int) -> None:
    """Every message was acknowledged once, and nothing forbidden has happened."""
    stored(stage, count)
    stage.until(lambda: stage.history.done() or stage.history.wrong, "every message handled")
    stage.expect(not stage.history.verdicts(clock_error_us=1_000), f"{stage.history.verdicts()}")
    stage.finish()


def test_a_long_payload_whose_leader_dies_between_its_chunks_arrives_whole() -> None:
    """S6. Chunks go ahead of the record; a leader that dies in between leaves no message without its body."""
    stage = Stage()
    writer = producing(stage)
    consuming(stage, "reader")
    chunks = stage.watch("b1", lambda event: isinstance(getattr(event, "message", None), ChunkRequest))
    payload = bytes(range(256)) * (4 * CHUNK_BYTES // 256) + b"end"
    writer.schedule(stage.topic, [payload], [stage.now_ms + 300])
    stage.until(lambda: len(chunks.events) >= 2, "two of five chunks at b1")
    stage.nodes["b1"].crash()
    well(stage, 1)
    [message] = stage.history.messages.values()
    stage.expect(message.deliveries[-1].payload == payload, "byte for byte")


def one_at_a_time(stage: Stage) -> ConsumingUser:
    """A consumer with a credit of 1 and six messages due at each of three leaders."""
    stage.expect({stage.leader_of(uid) for uid in stage.uids} == {"b1", "b2", "b3"}, "three leaders")
    writer = producing(stage)
    reader = consuming(stage, "reader", credit=1)
    stage.run_ms(1_000)
    due = stage.now_ms + 500
    for turn in range(6):
        writer.schedule(stage.topic, [b"%d-%d" % (turn, n) for n in range(3)], [due] * 3)
    stored(stage, 18)
    return reader


def test_a_credit_of_one_reaches_messages_of_three_leaders() -> None:
    """B14. Left with one leader, the others' messages would wait for ever."""
    stage = Stage(partitions=3)
    one_at_a_time(stage)
    well(stage, 18)


def test_a_credit_of_one_holds_one_message() -> None:
    """B14, L9. Granted to each leader it would hold three: two would wait behind a slow handler, leases running."""
    stage = Stage(partitions=3)
    one_at_a_time(stage)
    most = 0

    def watch() -> bool:
        nonlocal most
        leases = [
            stage.replica(stage.leader_of(uid) or "b1", uid).timeline.leased_count for uid in stage.uids
        ]
        most = max(most, sum(leases))
        return stage.history.done()

    stage.until(watch, "all of them handled")
    assert most == 1, f"{most} leases at once with a credit of 1"


def test_a_consumer_that_nobody_hears_gives_up_before_others_get_its_messages() -> None:
    """S8. Cut off with leases of a minute, it declares them lost by itself; only then are they given to another."""
    stage = Stage()
    writer, first = producing(stage), consuming(stage, "first", lease_ms=60_000)
    first.habits = Habits(work_us=(600_000_000, 600_000_001))
    stage.run_ms(500)
    writer.schedule(stage.topic, [b"%d" % n for n in range(5)], [stage.now_ms + 100] * 5)
    stored(stage, 5)
    held = [message.deliveries for message in stage.history.messages.values()]
    stage.until(lambda: all(held), "all of them are at the first")
    stage.network.isolate("first", stage.names)
    cut_ms = stage.now_ms
    consuming(stage, "second", lease_ms=60_000)
    stage.until(lambda: stage.history.done() or stage.history.wrong, "the second has handled them")
    stage.expect(
        stage.now_ms - cut_ms >= CONSUMER_SESSION_MS * 9 // 10, "not before the first's session is over"
    )
    stage.network.heal()
    well(stage, 5)


def test_a_change_of_leader_costs_a_busy_consumer_nothing() -> None:
    """B8. Held messages are stated at the new leader, acks repeated: nothing twice, nothing a whole lease late."""
    stage = Stage()
    writer, reader = producing(stage), consuming(stage, "reader")
    reader.habits = Habits(work_us=(4_000_000, 6_000_000))
    stage.run_ms(500)
    base = stage.now_ms
    writer.schedule(stage.topic, [b"%d" % n for n in range(60)], [base + 500 + 10 * n for n in range(60)])
    stored(stage, 60)
    stage.run_ms(800)
    stage.nodes["b1"].crash()
    well(stage, 60)
    counts = {len(message.deliveries) for message in stage.history.messages.values()}
    stage.expect(counts == {1}, f"each was handed out once: {counts}")
    latest = max(m.deliveries[0].at_us / 1000 - m.due_ms for m in stage.history.messages.values())
    stage.expect(latest < 6_000, f"late by {latest:.0f} ms, with leases of 30 s")


def test_a_call_without_an_answer_can_be_repeated_safely() -> None:
    """S14. No broker answers until the time-out. The call's own retry finds out, and stores nothing twice."""
    stage = Stage()
    writer = producing(stage)
    consuming(stage, "reader")
    stage.run_ms(500)
    writer.schedule(stage.topic, [b"first"], [stage.now_ms + 20_000])
    stored(stage, 1)
    for name in stage.names:
        stage.network.cut(name, "writer", both=False)
    writer.schedule(
        stage.topic, [b"%d" % n for n in range(30)], [stage.now_ms + 20_000] * 30, timeout_us=2_000_000
    )
    stage.run_ms(1_900)
    stage.expect(len(stage.history.messages) == 1, "not answered")
    stage.expect(stage.replica(stage.leader).timeline.scheduled_count == 31, "but done")
    stage.run_ms(200)
    stage.network.heal()
    stored(stage, 31)
    stage.expect(stage.replica(stage.leader).timeline.scheduled_count == 31, "stored once")
    well(stage, 31)
