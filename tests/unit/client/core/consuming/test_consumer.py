"""A consumer's sessions and credit: what the SDK promises however brokers and links behave."""

from __future__ import annotations

from dueq.client.core.ports import events
from dueq.client.core.ports.effects import Completed, Failed, LeaseLost, Send
from dueq.errors import ClientClosed
from dueq_codecs.messages import (
    ChangeRequest,
    Code,
    ConsumerAction,
    ConsumerFrame,
    ConsumerReply,
    MetadataRequest,
)
from dueq_codecs.records import RecordKind
from tests.unit.client.stage import (
    CONSUMER,
    TOPIC,
    Stage,
    attached,
    confirm,
    confirm_all,
    delivered,
    endpoint,
    of,
    ok,
    push,
    sent,
    settle,
)


def test_it_attaches_to_every_leader_and_divides_the_credit() -> None:
    frames = attached(Stage(["a", "b", "c"], {1: "a", 2: "b", 3: "c", 4: "a"}), credit=10)
    assert set(frames) == {"a", "b", "c"}
    assert sum(frame.credit for frame in frames.values()) == 10
    assert all(frame.action is ConsumerAction.ATTACH and frame.credit >= 3 for frame in frames.values())


def test_a_leader_out_of_reach_is_attached_through_another_broker() -> None:
    stage = Stage(["a", "b"], {1: "a", 2: "b"})
    stage.connect("a")
    frames = [e for e in of(stage.consume(), Send) if isinstance(e.message, ConsumerFrame)]
    assert {e.message.leader: e.link for e in frames} == dict.fromkeys(("a", "b"), stage.links[endpoint("a")])
    again = [e for e in of(stage.connect("b"), Send) if isinstance(e.message, ConsumerFrame)]
    assert [(e.message.leader, e.message.action, e.link) for e in again] == [
        ("b", ConsumerAction.ATTACH, stage.links[endpoint("b")])
    ]


def test_a_leader_that_forgot_the_session_hears_what_is_held() -> None:
    stage = Stage()
    attached(stage)
    first, second = delivered(stage, "a", b"x", b"y")
    [request] = settle(stage, RecordKind.ACK, first)
    beat = sent(stage.run_until(2_600), ConsumerFrame)[-1]
    unknown = ConsumerReply(TOPIC, CONSUMER, beat.attach, beat.number, Code.UNKNOWN_SESSION)
    [attach] = sent(stage.receive("a", unknown), ConsumerFrame)
    assert (attach.action, attach.attach) == (ConsumerAction.ATTACH, 2)
    assert attach.held_row.tolist() == [first.row, second.row]
    assert attach.held_token.tolist() == [60, 60]
    assert request.token.tolist() == [60]


def test_an_attach_that_is_refused_at_once_is_made_again_soon() -> None:
    """A leader that begins to serve asks those who came before: a second later would be late for what was due."""
    stage = Stage()
    stage.connect()
    [frame] = sent(stage.consume(), ConsumerFrame)
    unknown = ConsumerReply(TOPIC, CONSUMER, frame.attach, frame.number, Code.UNKNOWN_SESSION)
    assert not sent(stage.receive("a", unknown), ConsumerFrame), "not as fast as refusals come"
    [again] = sent(stage.run_until(stage.ms + 150), ConsumerFrame)
    assert (again.action, again.attach) == (ConsumerAction.ATTACH, frame.attach + 1)


def test_a_partition_that_moves_is_attached_at_its_new_leader_with_its_leases() -> None:
    stage = Stage(["a", "b"], {1: "a", 2: "b"})
    attached(stage)
    [delivery] = delivered(stage, "a", b"x")
    stage.leaders, stage.epoch = {1: "b", 2: "b"}, 2
    effects = stage.answer_metadata(stage.run_until(2_100))
    frames = sent(effects, ConsumerFrame)
    assert {frame.leader for frame in frames} == {"b"}
    [attach] = [frame for frame in frames if frame.action is ConsumerAction.ATTACH]
    assert attach.held_uid.tolist() == [1]
    stage.receive("b", confirm(attach))
    assert not of(confirm_all(stage, 8_000, "b"), LeaseLost)  # type: ignore[arg-type]
    assert not delivery.lost


def test_a_lost_push_is_reported_by_a_beat_a_second_later() -> None:
    stage = Stage()
    attached(stage)
    delivered(stage, "a", b"y", number=2, sequence=51)
    [beat] = sent(stage.run_until(1_010), ConsumerFrame)
    assert (beat.action, beat.push_seen) == (ConsumerAction.BEAT, 0)
    delivered(stage, "a", b"x", number=1)
    stage.receive("a", confirm(beat, push_sent=2))
    [beat] = sent(stage.run_until(3_600), ConsumerFrame)
    assert beat.push_seen == 2


def test_a_push_that_is_lost_between_others_is_reported_as_soon() -> None:
    stage = Stage()
    attached(stage)
    delivered(stage, "a", b"x")
    stage.run_until(600)
    delivered(stage, "a", b"z", number=3, sequence=52)
    [beat] = sent(stage.run_until(1_010), ConsumerFrame)
    assert (beat.action, beat.push_seen) == (ConsumerAction.BEAT, 1)


def test_credit_of_one_moves_to_where_messages_wait_once_it_is_free() -> None:
    stage = Stage(["a", "b"], {1: "a", 2: "b"})
    frames = attached(stage, credit=1)
    rich, poor = sorted(frames, key=lambda leader: -frames[leader].credit)
    assert [frames[rich].credit, frames[poor].credit] == [1, 0]
    [lowered] = sent(stage.receive(poor, confirm(frames[poor], waiting=3)), ConsumerFrame)
    assert (lowered.leader, lowered.credit) == (rich, 0)
    [raised] = sent(stage.receive(rich, confirm(lowered)), ConsumerFrame)
    assert (raised.leader, raised.credit) == (poor, 1)


def test_credit_of_one_stays_while_its_message_is_held() -> None:
    stage = Stage(["a", "b"], {1: "a", 2: "b"})
    frames = attached(stage, credit=1)
    rich, poor = sorted(frames, key=lambda leader: -frames[leader].credit)
    uid = {"a": 1, "b": 2}[rich]
    [delivery] = delivered(stage, rich, b"x", attach=frames[rich].attach, uid=uid)
    assert not sent(stage.receive(poor, confirm(frames[poor], waiting=3)), ConsumerFrame)
    [request] = settle(stage, RecordKind.ACK, delivery)
    [lowered] = sent(stage.receive(rich, ok(request, 99, outcomes=[0])), ConsumerFrame)
    assert (lowered.leader, lowered.credit) == (rich, 0)


def test_a_leader_that_gives_more_than_we_count_gets_no_credit_for_it() -> None:
    """By a's clock a lease of it is over that we still count, and that a's next message comes for."""
    stage = Stage(["a", "b"], {1: "a", 2: "b"})
    frames = attached(stage, credit=4)
    limits_of = {leader: frame.credit for leader, frame in frames.items()}
    assert limits_of == {"a": 2, "b": 2}
    for leader, uid in (("a", 1), ("b", 2)):
        delivered(stage, leader, b"x", b"y", attach=frames[leader].attach, uid=uid)
        stage.receive(leader, confirm(frames[leader], waiting=3))
    message, body = push("a", frames["a"].attach, 2, [b"z"], sequence=51)
    told = sent(stage.receive("a", message, body), ConsumerFrame)
    told += sent(stage.run_until(stage.ms + 20_000), ConsumerFrame)
    assert {frame.leader for frame in told} == {"a", "b"}
    assert max(frame.credit for frame in told if frame.leader == "a") == 2


def test_closing_releases_confirms_and_says_goodbye_everywhere() -> None:
    stage = Stage(["a", "b"], {1: "a", 2: "b"})
    attached(stage)
    handled, unhandled = delivered(stage, "a", b"x", b"y")
    stage.step(events.Settle(CONSUMER, RecordKind.ACK, [handled]))
    effects = stage.step(events.CloseConsumer(9, stage.at_us(5_000), CONSUMER, [unhandled]))
    requests = {request.kind: request for request in sent(effects, ChangeRequest)}
    assert set(requests) == {RecordKind.ACK, RecordKind.RELEASE}
    stage.receive("a", ok(requests[RecordKind.ACK], 98, outcomes=[0]))
    effects = stage.receive("a", ok(requests[RecordKind.RELEASE], 99, outcomes=[0]))
    goodbyes = sent(effects, ConsumerFrame)
    assert {frame.leader: frame.action for frame in goodbyes} == dict.fromkeys("ab", ConsumerAction.GOODBYE)
    stage.receive("a", confirm(goodbyes[0]))
    [done] = of(stage.receive("b", confirm(goodbyes[1])), Completed)
    assert done.call == 9


def test_a_consumer_that_is_closed_before_it_is_open_never_takes_anything() -> None:
    stage = Stage()
    stage.connect()
    opening = stage.step(events.OpenConsumer(1, stage.at_us(30_000), CONSUMER, TOPIC, 8, 64 << 20, 30_000))
    closing = stage.step(events.CloseConsumer(2, stage.at_us(5_000), CONSUMER, []))
    assert [(failed.call, type(failed.error)) for failed in of(closing, Failed)] == [(1, ClientClosed)]
    assert [done.call for done in of(closing, Completed)] == [2]
    assert sent(stage.answer_metadata(opening) + stage.run_until(20_000), ConsumerFrame) == []


def test_a_consumer_whose_opening_nobody_waits_for_any_more_never_takes_anything() -> None:
    """A task that is cancelled while it opens a consumer does this."""
    stage = Stage()
    stage.connect()
    opening = stage.step(events.OpenConsumer(1, stage.at_us(30_000), CONSUMER, TOPIC, 8, 64 << 20, 30_000))
    stage.step(events.Abandon(1))
    assert sent(stage.answer_metadata(opening) + stage.run_until(40_000), ConsumerFrame) == []


def test_closing_ends_at_its_deadline_though_nobody_answers() -> None:
    stage = Stage()
    attached(stage)
    [delivery] = delivered(stage, "a", b"x")
    stage.step(events.CloseConsumer(9, stage.at_us(2_000), CONSUMER, [delivery]))
    effects = stage.run_until(2_000)
    assert [done.call for done in of(effects, Completed)] == [9]
    assert sent(effects, ConsumerFrame)[-1].action is ConsumerAction.GOODBYE
    assert sent(stage.run_until(30_000), ConsumerFrame) == []


def moved(frame: ConsumerFrame) -> ConsumerReply:
    """The word of a leader, unasked, that another one serves; `frame` is the last that it has seen."""
    return ConsumerReply(
        TOPIC, CONSUMER, frame.attach, frame.number, Code.NOT_LEADER, "a partition has another leader",
        leader=frame.leader,
    )  # fmt: skip


def test_a_consumer_that_hears_of_another_leader_attaches_to_it_though_the_first_answer_is_old() -> None:
    """The broker that it asks may hear of the new leader a little later than the old one did."""
    stage = Stage(["a", "b"], {1: "a"})
    [frame] = attached(stage).values()
    stage.answer_metadata(stage.run_until(500))
    stage.step(ms=600)
    asking = stage.receive("a", moved(frame))
    assert sent(asking, MetadataRequest)
    assert sent(stage.answer_metadata(asking), ConsumerFrame) == []
    stage.leaders, stage.epoch = {1: "b"}, 2
    effects = stage.run_until(800)
    [attach] = sent(stage.answer_metadata(effects), ConsumerFrame)
    assert (attach.action, attach.leader) == (ConsumerAction.ATTACH, "b")


def test_word_of_another_leader_is_no_answer_to_a_goodbye() -> None:
    """It left before the goodbye came: whether the leader has ended the session is not known by it."""
    stage = Stage()
    [frame] = attached(stage).values()
    effects = stage.step(events.CloseConsumer(9, stage.at_us(5_000), CONSUMER, []))
    goodbye = sent(effects, ConsumerFrame)[-1]
    assert goodbye.action is ConsumerAction.GOODBYE
    assert of(stage.receive("a", moved(frame)), Completed) == []
    [again] = sent(stage.run_until(400), ConsumerFrame)
    assert again.action is ConsumerAction.GOODBYE
    assert of(stage.receive("a", confirm(again)), Completed)
