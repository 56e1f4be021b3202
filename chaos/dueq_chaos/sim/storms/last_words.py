"""The last words of a storm: frames between brokers that nothing follows, and of which some get lost.

As a rule, the next frame makes up for a lost one. So messages come and go once more while frames between brokers
get lost, and then there is silence: every replica has to be told again what it must know.
"""

from __future__ import annotations

from random import Random

from dueq_chaos.sim.environment.mesh import SimMesh
from dueq_chaos.sim.storms.workload import Workload
from dueq_chaos.sim.users.traffic import TOPIC

_SHARE = 0.25
"""Share of the seeds whose storms end so."""
_LOST = 0.3
_MESSAGES = 4
_AHEAD_MS = (50, 600)
_US = 20_000_000
_AFTER_US = 1_000_000
_LOOK_US = 20_000


def has_some(seed: int) -> bool:
    """Whether a seed's storm ends so; from a stream of its own."""
    return Random(seed * 0x27D4EB2F + 67).random() < _SHARE


def speak(mesh: SimMesh, workload: Workload) -> None:
    """Have a few messages come and go while frames between brokers get lost."""
    random = Random(mesh.world.seed * 0x27D4EB2F + 71)
    now_ms = mesh.world.wall_us // 1000
    mesh.harm()
    mesh.network.weather.lost_share = _LOST
    dues = [now_ms + random.randint(*_AHEAD_MS) for _ in range(_MESSAGES)]
    workload.traffic.schedule(TOPIC, [b"last-%d" % at for at in range(_MESSAGES)], dues)
    mesh.world.run(_AHEAD_MS[1] * 1000)
    mesh.world.run_until(mesh.history.done, _US, _LOOK_US)
    mesh.world.run(_AFTER_US)
    mesh.calm()
