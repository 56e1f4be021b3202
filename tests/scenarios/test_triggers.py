"""Named scenarios of triggered messages: they are next, wherever they lie."""

from __future__ import annotations

from dueq_chaos.scenarios.stage import Stage

FAR_MS = 3_600_000


def test_the_next_leader_finds_what_was_triggered_on_its_disk() -> None:
    stage = Stage(hot_rows_total=16)
    stage.step("many messages are ready, and nobody is there")
    due = stage.now_ms
    for batch in range(4):
        stage.stored(*[b"%d-%d" % (batch, row) for row in range(50)], due=due)
    (far,) = stage.stored(b"far", due=stage.now_ms + FAR_MS)
    stage.step("one that is far ahead is triggered: it lies behind them, most of which are only on the disk")
    stage.settled(stage.hand("producer"), stage.hand("producer").trigger("b1", [far]))
    stage.run_ms(6_000)  # a checkpoint has it
    for name in ("b1", "b2", "b3"):
        stage.nodes[name].crash()
        stage.nodes[name].start()
    stage.until(lambda: stage.leader_of(stage.uid), "a leader")
    consumer = stage.hand("consumer")
    consumer.attach(stage.leader, credit=1, lease_ms=30_000)
    consumer.stay()
    stage.until(lambda: consumer.pushes, "a message")
    stage.expect(consumer.pushes[0].payload == b"far", f"it is next, not {consumer.pushes[0].payload!r}")
    consumer.goodbye(stage.leader)
    stage.finish()
