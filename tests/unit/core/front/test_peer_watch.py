"""Who else there is: registered, silent, heard again, gone."""

from __future__ import annotations

from dueq import limits
from dueq.core.broker import BrokerCore
from dueq.core.ports.effects import ConnectPeer, Effect, Log
from dueq.core.ports.events import Event
from dueq.core.ports.membership import Registration, RegistrationsSeen
from dueq.core.turn.settings import CoreSettings
from dueq.instant import Now


class Mesh:
    """A broker among others, none of which says anything."""

    def __init__(self) -> None:
        self._ms = 0
        self._core = BrokerCore(CoreSettings("b1", 1, "s1", "cluster", "tcp://b1"), [], self._now())

    def _now(self) -> Now:
        return Now(1_700_000_000_000_000 + self._ms * 1000, 1_000_000 + self._ms * 1000)

    def pass_ms(self, ms: int, *events: Event) -> list[Effect]:
        """Let time pass in turns of 50 ms, the first of which has the events; returns what is to be done."""
        effects = self._core.step(list(events), self._now())
        for _ in range(0, ms, 50):
            self._ms += 50
            effects += self._core.step([], self._now())
        return effects


def seen(**lives: int) -> RegistrationsSeen:
    return RegistrationsSeen({
        name: Registration(name, life, f"s-{name}", f"tcp://{name}", "", 1) for name, life in lives.items()
    })  # fmt: skip


def connected(effects: list[Effect]) -> list[tuple[str, int]]:
    return [(each.broker_id, each.incarnation) for each in effects if isinstance(each, ConnectPeer)]


def said(effects: list[Effect]) -> list[str]:
    return [each.event for each in effects if isinstance(each, Log) and each.event.startswith("peer.")]


def test_each_life_of_a_peer_is_connected_once() -> None:
    mesh = Mesh()
    assert connected(mesh.pass_ms(100, seen(b1=1, b2=7))) == [("b2", 7)]
    assert connected(mesh.pass_ms(100, seen(b1=1, b2=7))) == []
    assert connected(mesh.pass_ms(100, seen(b1=1, b2=8))) == [("b2", 8)]


def test_a_silent_peer_is_said_once_and_tried_again_every_five_seconds() -> None:
    mesh = Mesh()
    mesh.pass_ms(0, seen(b2=7))
    effects = mesh.pass_ms(limits.LEADER_SILENCE_MS + 100)
    assert (said(effects), connected(effects)) == (["peer.fell_silent"], [("b2", 7)])
    effects = mesh.pass_ms(10_000)
    assert (said(effects), connected(effects)) == ([], [("b2", 7)] * 2)


def test_a_peer_whose_registration_is_gone_is_said_and_not_tried_again() -> None:
    mesh = Mesh()
    mesh.pass_ms(0, seen(b2=7))
    effects = mesh.pass_ms(10_000, seen(b1=1))
    assert (said(effects), connected(effects)) == (["peer.registration_gone"], [])
