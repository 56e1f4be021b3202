"""The simulated network does to frames between brokers what a plot asks for."""

from __future__ import annotations

from dueq_chaos.sim.environment.network import Network
from dueq_chaos.sim.environment.world import World


def test_what_is_held_up_arrives_when_it_is_released_and_in_its_order() -> None:
    world = World(1)
    network, came = Network(world), list[int]()
    network.hold("b1", "b2")
    for number in range(20):
        network.send("b1", "b2", lambda number=number: came.append(number))  # type: ignore[misc]
        world.run(1_000)
    network.send("b2", "b1", lambda: came.append(-1))
    world.run(1_000)
    assert came == [-1]
    network.release()
    world.run(100_000)
    assert came == [-1, *range(20)]


def test_healing_releases_what_is_held_up() -> None:
    world = World(1)
    network, came = Network(world), list[str]()
    network.hold("b1", "b2")
    network.send("b1", "b2", lambda: came.append("held"))
    world.run(1_000)
    network.heal()
    world.run(1_000)
    assert came == ["held"]


def test_what_is_held_up_is_lost_if_the_link_is_cut_when_it_is_released() -> None:
    world = World(1)
    network, came = Network(world), list[str]()
    network.hold("b1", "b2")
    network.send("b1", "b2", lambda: came.append("held"))
    world.run(1_000)
    network.cut("b1", "b2")
    network.release()
    world.run(1_000)
    assert came == []
    network.join("b1", "b2")
    network.send("b1", "b2", lambda: came.append("later"))
    world.run(1_000)
    assert came == ["later"]


def test_an_echo_brings_everything_once_more() -> None:
    world = World(1)
    network, came = Network(world), list[int]()
    network.echo("b1", "b2", 500_000)
    network.send("b1", "b2", lambda: came.append(world.now_us))
    world.run(1_000_000)
    first, again = came
    assert first < 1_001_000
    assert again >= 1_500_000
