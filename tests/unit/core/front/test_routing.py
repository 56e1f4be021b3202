"""The map of leaders keeps the latest word."""

from __future__ import annotations

from dueq.core.front.routing import Routing
from dueq.core.ports.membership import PartitionNode
from dueq_codecs.messages import Leadership


def test_a_late_word_of_an_older_epoch_changes_nothing() -> None:
    routing = Routing()
    routing.heard("b2", Leadership(7, epoch=3, leads=True, serving=True))
    routing.heard("b1", Leadership(7, epoch=2, leads=True, serving=True))
    assert routing.leader_of(7).broker_id == "b2"


def test_a_late_word_that_an_older_leader_has_given_up_hides_no_later_one() -> None:
    routing = Routing()
    routing.heard("b2", Leadership(7, epoch=3, leads=True, serving=False))
    routing.heard("b1", Leadership(7, epoch=2, leads=False, serving=False))
    assert (routing.leader_of(7).broker_id, routing.leader_of(7).epoch) == ("b2", 3)


def test_who_has_given_up_is_not_named_any_more() -> None:
    routing = Routing()
    routing.heard("b1", Leadership(7, epoch=2, leads=True, serving=True))
    routing.heard("b1", Leadership(7, epoch=2, leads=False, serving=False))
    routing.heard("b1", Leadership(7, epoch=2, leads=True, serving=True))
    assert routing.leader_of(7).broker_id == ""


def test_the_node_serves_where_no_leader_has_spoken() -> None:
    routing = Routing()
    routing.node_seen(7, PartitionNode("b3", 1, 4, ()))
    assert (routing.leader_of(7).broker_id, routing.leader_of(7).stage) == ("b3", 0)


def test_a_node_without_a_leader_tells_that_the_last_one_leads_no_more() -> None:
    routing = Routing()
    routing.heard("b1", Leadership(7, epoch=2, leads=True, serving=True))
    routing.node_seen(7, PartitionNode("", 0, 2, ()))
    assert routing.leader_of(7).broker_id == ""
