"""The simulated network: every message has its own delay, so messages overtake each other; some are lost or
come twice; links are cut one way or both.

Bytes of a `Stream` (one direction of one connection) come once and in order. A lost part is sent again later, as TCP
does, and holds up the parts behind it. A cut breaks the connection without any notice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from dueq_chaos.sim.environment.world import World

DELAY_US = (50, 400)
"""The usual delay of a message, least and most."""


@dataclass
class Weather:
    """How bad the network is; shares are of all messages."""

    delay_us: tuple[int, int] = DELAY_US
    slow_share: float = 0.0
    slow_us: tuple[int, int] = (5_000, 300_000)
    lost_share: float = 0.0
    twice_share: float = 0.0
    late_share: float = 0.0
    """Between brokers: messages that come long after their successors."""
    late_us: tuple[int, int] = (300_000, 4_000_000)
    damaged_share: float = 0.0
    """To clients: bodies of which a bit has turned on the way."""
    held_share: float = 0.0
    """Of what goes over a connection of a client, so much is held up for long, and all that follows it."""
    held_us: tuple[int, int] = (400_000, 2_500_000)


class Stream:
    """One direction of one connection: what is sent later comes later."""

    __slots__ = ("last_us", "line")

    def __init__(self, line: Line) -> None:
        self.line = line
        self.last_us = 0


class Line:
    """One connection of a client to a broker.

    Attributes:
        broken: nothing passes any more, and neither end has been told.
        hung_up: the broker knows that the client is gone.
    """

    __slots__ = ("broken", "down", "hung_up", "up")

    def __init__(self) -> None:
        self.broken = self.hung_up = False
        self.up, self.down = Stream(self), Stream(self)


class Network:
    """Between named ends: brokers ("b1") and clients ("c1").

    Attributes:
        lines: the connections of clients that are more than a name, by the identity that the broker sees.
        sent: messages so far.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.weather = Weather()
        self._cut: dict[tuple[str, str], None] = {}
        self._held: dict[tuple[str, str], list[Callable[[], None]]] = {}
        self._echoes: dict[tuple[str, str], int] = {}
        self.lines: dict[str, Line] = {}
        self.sent = 0

    def cut(self, source: str, target: str, both: bool = True) -> None:
        """Nothing passes from source to target (and back) any more."""
        self._cut[source, target] = None
        if both:
            self._cut[target, source] = None

    def isolate(self, who: str, others: list[str]) -> None:
        """Cut an end off from all others."""
        for other in others:
            if other != who:
                self.cut(who, other)

    def hold(self, source: str, target: str) -> None:
        """Between brokers: frames from source to target are held up on the way until `release` or `heal`."""
        self._held.setdefault((source, target), [])

    def release(self) -> None:
        """Let the frames that were held up arrive now, in their order."""
        held, self._held = self._held, {}
        for path, frames in held.items():
            at_us = self._world.now_us
            for deliver in frames:
                at_us += self._world.random.randint(*self.weather.delay_us)
                self._world.at(at_us, partial(self._arrive, path, deliver))

    def echo(self, source: str, target: str, after_us: int) -> None:
        """Between brokers: every frame from source to target arrives once more after this delay, from now on."""
        self._echoes[source, target] = after_us

    def join(self, one: str, other: str) -> None:
        """The link between two ends is whole again."""
        self._cut.pop((one, other), None)
        self._cut.pop((other, one), None)

    def heal(self) -> None:
        """Every link is whole again."""
        self._cut.clear()
        self._echoes.clear()
        self.release()

    def connected(self, source: str, target: str) -> bool:
        """Whether messages pass from source to target just now."""
        return (source, target) not in self._cut

    def stream(self, stream: Stream, source: str, target: str, deliver: Callable[[], None]) -> None:
        """Deliver after a while, after everything sent before on this stream; a cut breaks the connection."""
        self.sent += 1
        random, weather = self._world.random, self.weather
        bad = random.random() < weather.slow_share + weather.lost_share
        delay_us = self._world.between(*(weather.slow_us if bad else weather.delay_us))
        if weather.held_share and random.random() < weather.held_share:
            delay_us = random.randint(*weather.held_us)
        stream.last_us = max(stream.last_us, self._world.now_us + delay_us)

        def arrive() -> None:
            if (source, target) in self._cut:
                stream.line.broken = True
            if not stream.line.broken:
                deliver()

        self._world.at(stream.last_us, arrive)

    def send(self, source: str, target: str, deliver: Callable[[], None]) -> None:
        """Deliver after a while, perhaps never, perhaps twice."""
        self.sent += 1
        world, weather, path = self._world, self.weather, (source, target)
        random = world.random
        if random.random() < weather.lost_share:
            return
        arrive = partial(self._arrive, path, deliver)
        if (echo_us := self._echoes.get(path)) is not None:
            world.after(echo_us, arrive)
        if weather.late_share and random.random() < weather.late_share:
            world.after(random.randint(*weather.late_us), arrive)
            if random.random() < 0.5:
                return
        copies = 2 if random.random() < weather.twice_share else 1
        for _ in range(copies):
            slow = random.random() < weather.slow_share
            delay_us = world.between(*(weather.slow_us if slow else weather.delay_us))
            world.at(world.now_us + delay_us, arrive)

    def _arrive(self, path: tuple[str, str], deliver: Callable[[], None]) -> None:
        if path in self._held:
            self._held[path].append(deliver)
        elif path not in self._cut:
            deliver()

    def carried(self, bodies: list[bytes | memoryview]) -> list[bytes | memoryview]:
        """The bodies as a client receives them: in bad weather a bit of one has turned."""
        random, share = self._world.random, self.weather.damaged_share
        if not share or not bodies or random.random() >= share:
            return bodies
        at = random.randrange(len(bodies))
        body = bytearray(bodies[at])
        if body:
            body[random.randrange(len(body))] ^= 1 << random.randrange(8)
        return [*bodies[:at], bytes(body), *bodies[at + 1 :]]
