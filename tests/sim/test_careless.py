"""Careless users, and what is judged of the answers that they get."""

from __future__ import annotations

from random import Random

from dueq.errors import OutcomeUnknown
from dueq_chaos.scenarios.stage import Stage
from dueq_chaos.sim.judging.history import History, Message
from dueq_chaos.sim.storms.plan import CARELESS, draw
from dueq_chaos.sim.users.careless import CarelessUsers
from dueq_chaos.sim.users.consuming import ConsumingUser
from dueq_chaos.sim.users.naming import Named, misanswered, wrong_name
from dueq_chaos.sim.users.producing import ProducingUser
from dueq_chaos.sim.users.readers import BrowsingUser, shown_of
from dueq_chaos.sim.watching.invariants import Invariants
from dueq_codecs.records import Outcome

RIGHT, WRONG = Named("right", (1, 2, 3)), Named("wrong", None)
DONE, LEASED, NOT_FOUND = Outcome.DONE, Outcome.LEASED, Outcome.NOT_FOUND


def test_a_name_that_is_nobodys_is_not_found() -> None:
    assert not misanswered([WRONG, RIGHT], [NOT_FOUND, DONE], True)
    assert misanswered([WRONG, RIGHT], [DONE, DONE], True)
    assert misanswered([WRONG], [LEASED], False)
    assert not misanswered([WRONG], [OutcomeUnknown("")], False)


def test_a_wrong_name_is_not_the_name_of_a_message_of_another_partition_by_chance() -> None:
    history = History()
    history.messages = {(1, 9, 6): Message(b"", 0, 100), (2, 9, 6): Message(b"", 0, 107)}
    right = {history.text_of(key) for key in history.messages}
    random = Random(1)
    assert right.isdisjoint(wrong_name(random, history, (1, 9, 6), [2]).text for _ in range(100))


def test_a_message_that_is_named_twice_is_cancelled_once_and_moved_each_time() -> None:
    assert not misanswered([RIGHT, RIGHT], [DONE, NOT_FOUND], True)
    assert misanswered([RIGHT, RIGHT], [DONE, DONE], True)
    assert not misanswered([RIGHT, RIGHT], [DONE, DONE], False)
    assert misanswered([RIGHT, RIGHT], [DONE, NOT_FOUND], False)
    assert not misanswered([RIGHT, RIGHT], [LEASED, LEASED], True)
    assert misanswered([RIGHT, RIGHT], [LEASED, DONE], True)


def test_some_storms_have_careless_users_and_directed_ones_have_none() -> None:
    careless = [seed for seed in range(100) if any(step.kind in CARELESS for step in draw(seed).steps)]
    assert 20 <= len(careless) <= 50
    assert not [seed for seed in careless if seed % 16 == 13]


def test_every_kind_of_carelessness_does_no_harm() -> None:
    stage = Stage(partitions=2)
    Invariants(stage, clock_error_us=0)
    writer = ProducingUser(stage.sdk("writer"), stage.history)
    readers = [
        ConsumingUser(stage.sdk(f"c{n}"), stage.history, stage.topic, credit=8, lease_ms=1_500, seed=n)
        for n in range(2)
    ]
    for user in readers:
        user.habits.extend, user.habits.shorten, user.habits.work_us = 0.5, 1.0, (1_000, 300_000)
    careless = CarelessUsers(stage, stage.topic, stage.uids, readers, wire=True)
    stage.run_ms(1_000)
    random = Random(7)
    for turn in range(40):
        payloads = [b"%d-%d" % (turn, row) for row in range(6)]
        dues = [stage.now_ms + random.randint(0, 3_000) for _ in payloads]
        writer.schedule(stage.topic, payloads, dues)
        careless.do(CARELESS[turn % len(CARELESS)], random)
        stage.run_ms(200)
        stage.expect(not stage.history.wrong, f"{stage.history.wrong}")
    stage.until(stage.history.done, "everything is finished", 60_000)


def test_a_walk_is_compared_with_the_state_after_its_record() -> None:
    stage = Stage()
    Invariants(stage, clock_error_us=0)
    messages = stage.stored(*[b"%d" % n for n in range(10)])
    producer = stage.hand("producer")
    stage.settled(producer, producer.cancel("b1", messages[:3]))
    stage.run_ms(500)
    state = stage.state_after(stage.uid, stage.replica("b1").timeline.applied)
    assert state is not None
    stage.expect(len(shown_of(stage.uid, state)) == 7, "what was not cancelled")
    reader = BrowsingUser(stage, stage.topic, wire=True)
    for seed in range(5):
        reader.browse(Random(seed))
    stage.until(lambda: not reader.client.calls and not reader.client.waiting, "the walks are over")
    stage.expect(not stage.history.wrong, f"{stage.history.wrong}")

    stage.step("a reader that was shown something else says so")
    earlier = stage.state_after(stage.uid, messages[0].sequence)
    setattr(stage, "state_after", lambda uid, sequence: earlier)  # noqa: B010
    reader.browse(Random(1))
    stage.until(lambda: stage.history.wrong, "a verdict")
