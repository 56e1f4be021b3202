"""Named scenarios of consumers' conversations with a leader: late frames, silence, inherited leases."""

from __future__ import annotations

from dueq.core.ports.events import ClientFrameReceived, Event
from dueq_chaos.scenarios.stage import Stage
from dueq_chaos.scenarios.taps import Match
from dueq_chaos.sim.users.consuming import ConsumingUser
from dueq_chaos.sim.users.habits import Habits
from dueq_codecs.messages import Code, ConsumerAction, ConsumerFrame
from dueq_codecs.topic_settings import AS_CREATED

PROMPT_MS = 100
"""A message for which there is credit is not later than that while nothing is wrong."""


def _attaches_of(hand: str) -> Match:
    def match(event: Event) -> bool:
        return (
            isinstance(event, ClientFrameReceived)
            and isinstance(event.message, ConsumerFrame)
            and event.message.action == ConsumerAction.ATTACH
            and event.route.identity.startswith(hand.encode())
        )

    return match


def test_an_attach_that_comes_after_its_goodbye_opens_no_session() -> None:
    """Two connections, or a relay: the frames change places, and nobody is there any more."""
    stage = Stage()
    late, living = stage.hand("late"), stage.hand("living")
    held = stage.hold("b1", _attaches_of("late"))
    late.attach("b1", credit=1_000, lease_ms=30_000)
    stage.run_ms(20)
    late.goodbye("b1")
    stage.run_ms(20)
    stage.step("the attach comes now")
    held.let_go()
    stage.run_ms(20)
    living.attach("b1", credit=1_000, lease_ms=30_000)
    living.stay()
    messages = stage.stored(*[b"%d" % n for n in range(20)], due=stage.now_ms + 100)
    stage.acked(living, stage.delivered(living, *messages))
    stage.expect(not late.pushes, "nothing is pushed to whom has gone")
    stage.expect(stage.now_ms - messages[0].due < 1_000, "all of them come at once")
    stage.finish()


def test_a_repeated_attach_after_the_goodbye_opens_no_session() -> None:
    """A relay repeats what it has brought before."""
    stage = Stage()
    gone, living = stage.hand("gone"), stage.hand("living")
    seen = stage.watch("b1", _attaches_of("gone"))
    gone.attach("b1", credit=1_000, lease_ms=30_000)
    stage.run_ms(20)
    gone.goodbye("b1")
    stage.run_ms(20)
    stage.doors["b1"].pass_on(seen.events[0])
    stage.run_ms(20)
    stage.expect(gone.consumer_replies["b1"].code == Code.UNKNOWN_SESSION, "it is told so")
    living.attach("b1", credit=1_000, lease_ms=30_000)
    messages = stage.stored(*[b"%d" % n for n in range(20)], due=stage.now_ms + 100)
    stage.acked(living, stage.delivered(living, *messages))
    stage.expect(not gone.pushes, "nothing is pushed to whom has gone")
    stage.finish()


def test_who_said_goodbye_may_come_again() -> None:
    """A later attach is another one, however soon it comes."""
    stage = Stage()
    back = stage.hand("back")
    back.attach("b1")
    stage.run_ms(20)
    back.goodbye("b1")
    back.attach("b1")
    stage.run_ms(20)
    [message] = stage.stored(b"m", due=stage.now_ms + 50)
    stage.acked(back, stage.delivered(back, message))
    stage.finish()


def test_a_living_consumer_gets_messages_as_soon_as_an_inherited_lease_has_run_out() -> None:
    """It lost the lease long before, by its own count, and said so then: the leader asks it instead of waiting for its
    next beat."""
    stage = Stage()
    user = ConsumingUser(stage.sdk("user"), stage.history, stage.topic, credit=64, lease_ms=4_000, seed=1)
    user.habits = Habits(forget=1.0)
    stage.run_ms(1_000)
    stage.stored(b"forgotten", due=stage.now_ms + 50)
    stage.until(lambda: user._held, "it has it")
    stage.run_ms(2_500)
    stage.step("the leader dies; the lease is counted anew by the next one")
    stage.nodes["b1"].crash()
    stage.until(lambda: stage.leader_of(stage.uid), "another leader")
    served_ms = stage.now_ms
    user.habits = Habits()
    leader = stage.leader
    expired = stage.nodes[leader].core.metrics.messages  # type: ignore[union-attr]
    stage.until(lambda: expired["expire", stage.topic], "the inherited lease runs out at the leader")
    stage.expect(stage.now_ms - served_ms > 3_500, "long after its holder has lost it")
    [message] = stage.stored(b"next", due=stage.now_ms + 50)
    stage.until(lambda: stage.history.strangers.get(message.key), "the next message")
    late_ms = stage.now_ms - message.due
    stage.expect(late_ms < PROMPT_MS, f"{late_ms} ms late")


def test_a_dead_consumer_gets_nothing_after_a_lease_of_its_has_run_out() -> None:
    """It is asked, says nothing, and others need not wait for its session's end."""
    stage = Stage()
    dead, living = stage.hand("dead"), stage.hand("living")
    dead.attach("b1", credit=64, lease_ms=500)
    [first] = stage.stored(b"first", due=stage.now_ms + 50)
    stage.delivered(dead, first)
    stage.run_ms(1_500)
    stage.expect(dead.consumer_replies["b1"].code == Code.UNKNOWN_SESSION, "it is asked to attach again")
    living.attach("b1", credit=64, lease_ms=30_000)
    living.stay()
    messages = stage.stored(*[b"%d" % n for n in range(20)], due=stage.now_ms + 50)
    stage.acked(living, stage.delivered(living, first, *messages))
    stage.expect(len(dead.got(first)) + len(dead.pushes) <= 2, "nothing more goes to the dead one")
    stage.finish()


def test_an_ack_that_a_leaderless_partition_cannot_take_holds_up_no_other_partition_of_its_broker() -> None:
    """The consumer goes on naming what it has acked there. b1 does not answer a consumer that states a partition
    which another broker may lead. But decided messages need no answer, and b1 leads another partition, which is in
    order.
    """
    stage = Stage()
    stage._order("pairs", (("b1", "b3"), ("b1", "b2")), min_isr=2, kind="timeline", settings=AS_CREATED)
    stage.until(lambda: len(stage.coordinator.topics["pairs"].partitions) == 2, "the topic")
    blocked, sound = (part.uid for part in stage.coordinator.topics["pairs"].partitions)
    stage.topic = "pairs"
    stage.until(lambda: stage.leader_of(blocked) == stage.leader_of(sound) == "b1", "b1 leads both")
    user = ConsumingUser(stage.sdk("user"), stage.history, stage.topic, credit=64, lease_ms=60_000, seed=1)
    user.habits = Habits(work_us=(2_000_000, 2_000_000))
    stage.run_ms(1_000)
    stage.stored(b"acked without a leader", due=stage.now_ms + 50, uid=blocked)
    stage.until(lambda: user.held, "it has it")
    stage.nodes["b3"].crash()
    stage.run_ms(12_000)
    stage.expect(stage.leader_of(blocked) is None, "fewer than two replicas")
    [message] = stage.stored(b"next", due=stage.now_ms + 50, uid=sound)
    stage.run_ms(1_000)
    stage.expect(stage.history.strangers.get(message.key), "it comes while the other partition has no leader")
    stage.nodes["b3"].start()
    stage.until(lambda: stage.leader_of(blocked), "a leader again")
    stage.until(lambda: user.is_free, "both are acked")
    stage.expect(len(stage.history.strangers) == 2, "nothing else came")
    stage.finish()
