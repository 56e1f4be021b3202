"""Named scenarios of recurrences: what may not happen to a tick when leaders, clocks and wishes change."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from dueq import limits
from dueq.core.partition import recurrences
from dueq.core.state.recurrence import Recurrence
from dueq.core.turn.mesh_time import MeshTime
from dueq.recurring.terms import Terms
from dueq.recurring.ticks import first_made_up
from dueq_chaos.scenarios.hand import Hand
from dueq_chaos.scenarios.stage import Stage
from dueq_codecs.messages import Code
from dueq_codecs.records import Outcome


def acted(stage: Stage, hand: Hand, name: str, **document: Any) -> Outcome:
    """Do something to a recurrence, until it is answered for good."""
    request = stage.settled(hand, hand.recur(stage.leader, name, **document))
    stage.expect(request.replies[-1].code == Code.OK, f"OK, not {request.codes}")
    return Outcome(int(request.replies[-1].outcomes[0]))


def known(stage: Stage, name: str = "r") -> Recurrence:
    """The recurrence, as the leader knows it."""
    found = stage.replica(stage.leader).timeline.recurrences.get(name)
    assert found is not None
    return found


def dues(hand: Hand) -> list[int]:
    """The dues of all that was pushed, each message once."""
    return sorted({(pushed.sequence, pushed.row): pushed.due for pushed in hand.pushes}.values())


def consumer(stage: Stage) -> Hand:
    hand = stage.hand("consumer")
    for broker in stage.names:
        hand.attach(broker, credit=1_000, lease_ms=600_000)
    hand.stay()
    return hand


def test_a_leader_that_dies_with_ticks_on_their_way_costs_and_doubles_none() -> None:
    stage = Stage()
    hand = stage.hand("user")
    start = stage.now_ms + 2_000
    acted(stage, hand, "r", action="create", every_ms=1_000, start_ms=start)
    reader = consumer(stage)
    for _ in range(3):
        stage.run_ms(2_300)
        stage.nodes[stage.leader].crash()
        stage.until(lambda: stage.leader_of(stage.uid), "another leader")
        for broker in stage.names:
            if stage.nodes[broker].core is None:
                stage.nodes[broker].start()
    stage.until(lambda: len(dues(reader)) >= 12, "twelve ticks")
    found = dues(reader)
    stage.expect(found == list(range(start, start + 1_000 * len(found), 1_000)), f"each tick once: {found}")
    acted(stage, hand, "r", action="delete")
    stage.finish()


def test_nothing_that_was_to_come_comes_after_a_pause_and_its_tick_may_come_again() -> None:
    stage = Stage()
    hand, reader = stage.hand("user"), consumer(stage)
    start = stage.now_ms + 4_000
    acted(stage, hand, "r", action="create", every_ms=60_000, start_ms=start)
    stage.until(lambda: known(stage).fired, "it is fired ahead")
    stage.run_ms(3_900)
    stage.expect(acted(stage, hand, "r", action="pause") == Outcome.DONE, "a pause, just before the tick")
    stage.expect((known(stage).next, known(stage).unfinished) == (0, 0), "nothing is left")
    acted(stage, hand, "r", action="resume")
    stage.until(lambda: dues(reader), "the tick comes after all")
    stage.run_ms(2_000)
    stage.expect(dues(reader) == [start], f"once: {dues(reader)}")
    stage.finish()


def test_an_update_that_says_nothing_of_when_changes_no_tick() -> None:
    stage = Stage()
    hand, reader = stage.hand("user"), consumer(stage)
    start = stage.now_ms + 3_000
    acted(stage, hand, "r", action="create", every_ms=1_000, start_ms=start, payload="b2xk")
    stage.until(lambda: len(known(stage).fired) > 5, "many are fired ahead")
    acted(stage, hand, "r", action="update", payload="bmV3")
    stage.until(lambda: len(dues(reader)) >= 4, "four ticks")
    stage.expect({pushed.payload for pushed in reader.pushes} == {b"new"}, "all with the new payload")
    stage.expect(dues(reader)[:4] == list(range(start, start + 4_000, 1_000)), f"each tick: {dues(reader)}")
    acted(stage, hand, "r", action="delete")
    stage.finish()


def test_of_missed_ticks_so_many_are_made_up_for_as_the_terms_say() -> None:
    stage = Stage()
    hand = stage.hand("user")
    start = stage.now_ms + 1_000
    for name, missed in (("none", 0), ("last", 1), ("five", 5), ("all", 100)):
        acted(stage, hand, name, action="create", every_ms=10_000, start_ms=start, missed=missed)
    stage.isolate(*stage.names)
    stage.run_ms(150_000)
    stage.calm()
    stage.until(stage.whole, "a whole mesh")
    stage.run_ms(3_000)
    now_ms = stage.now_ms
    cutoff = now_ms - limits.MISSED_AFTER_MS
    reader = consumer(stage)
    stage.run_ms(3_000)
    made = {}
    for name in ("none", "last", "five", "all"):
        number = known(stage, name).number
        entries = stage.replica(stage.leader).timeline.leased()
        ticks = sorted(
            int(due) for due, of in zip(entries["due"], entries["recurrence"], strict=True) if of == number
        )
        made[name] = [tick for tick in ticks if start + 20_000 < tick < cutoff - 5_000]
    stage.expect(not made["none"], f"none: {made['none']}")
    stage.expect(len(made["last"]) <= 1, f"one at most: {made['last']}")
    stage.expect(len(made["five"]) <= 5, f"five at most: {made['five']}")
    stage.expect(len(made["all"]) > 5, f"all: {made['all']}")
    stage.expect(reader.pushes, "something came")
    stage.finish()


def test_missed_ticks_are_looked_for_little_by_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that looked for those of hundreds of recurrences in one turn would be taken for dead."""
    asked: Counter[int] = Counter()  # ticks that may be looked at, by the instant up to which they are missed

    def counting(terms: Terms, anchor_ms: int, tick_ms: int, until_ms: int, name: str) -> int:
        asked[until_ms] += terms.missed
        return first_made_up(terms, anchor_ms, tick_ms, until_ms, name)

    monkeypatch.setattr(recurrences, "first_made_up", counting)
    stage = Stage()
    hand = stage.hand("user")
    names = [f"r{number}" for number in range(12)]
    start = stage.now_ms + 1_000
    for name in names:
        acted(stage, hand, name, action="create", every_ms=1_000, start_ms=start, missed=100)
    stage.isolate(*stage.names)
    stage.run_ms(125_000)
    stage.calm()
    stage.until(stage.whole, "a whole mesh")
    stage.until(lambda: all(known(stage, name).next > stage.now_ms for name in names), "all have come up")
    stage.expect(
        0 < max(asked.values()) < recurrences.FIRE_ROWS_MAX + 100, f"in one turn: {max(asked.values())}"
    )
    stage.expect(
        all(known(stage, name).messages >= 100 for name in names), "a hundred of each were made up for"
    )
    for name in names:
        acted(stage, hand, name, action="delete")
    stage.finish()


def test_a_tick_is_skipped_while_a_message_is_unfinished_and_decided_when_it_comes() -> None:
    stage = Stage()
    hand, reader = stage.hand("user"), consumer(stage)
    start = stage.now_ms + 2_000
    acted(stage, hand, "r", action="create", every_ms=2_000, start_ms=start, overlap="skip")
    stage.until(lambda: len(reader.pushes) == 1, "the first tick")
    stage.run_ms(2_200)
    stage.expect(len(dues(reader)) == 1, "the second is skipped: nobody has acknowledged the first")
    stage.acked(reader, reader.pushes[:1])
    stage.until(lambda: len(dues(reader)) == 2, "the third tick")
    pushed = reader.pushes[-1]
    stage.expect(pushed.due == start + 4_000, f"the third, not {pushed.due - start}")
    stage.expect(pushed.at_ms - pushed.due < 40, f"at its instant, not {pushed.at_ms - pushed.due} ms later")
    acted(stage, hand, "r", action="delete")
    stage.finish()


def test_ticks_that_come_while_the_clock_is_measured_are_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    hand, reader = stage.hand("user"), consumer(stage)
    start = stage.now_ms + 15_000
    for name, missed in (("none", 0), ("last", 1)):
        acted(stage, hand, name, action="create", every_ms=10_000, start_ms=start, missed=missed)
    with monkeypatch.context() as measuring:
        measuring.setattr(MeshTime, "_try_release", lambda clock, now: None)
        for node in stage.nodes.values():
            node.core._clock.hold = True
        stage.run_ms(150_000)
        stage.expect(not reader.pushes, "nothing is pushed while nobody knows the time")
    stage.until(lambda: len(reader.pushes) >= 28, "all ticks of that time")
    for name in ("none", "last"):
        stage.expect(known(stage, name).skipped == 0, f"{name} has left none out")
        acted(stage, hand, name, action="delete")
    stage.finish()


def test_what_an_update_adds_counts_beside_the_payload_that_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it is in memory."""
    stage = Stage()
    hand = stage.hand("user")
    acted(stage, hand, "r", action="create", every_ms=60_000, payload="abcd" * 1_000)
    table = stage.replica(stage.leader).timeline.recurrences
    monkeypatch.setattr(limits, "RECURRENCES_BYTES_MAX", table.bytes + 500)
    headers = {"a": "b" * 600}
    refused = stage.answered(hand.recur(stage.leader, "r", action="update", headers=headers))
    stage.expect(refused.codes == [Code.TOO_MANY_RECURRENCES], f"{refused.codes}")
    shorter = acted(stage, hand, "r", action="update", headers=headers, payload="abcd")
    stage.expect(shorter == Outcome.DONE, "with a shorter payload there is room")
    stage.finish()
