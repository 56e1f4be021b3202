"""Planted bugs: the simulator is itself tested by putting known mistakes into the product.

with BUGS["due-minus-one"].planted():
    assert Storm(0).run().verdicts
"""

from __future__ import annotations

from typing import Final

from dueq_chaos.bugs.bodies import BODIES
from dueq_chaos.bugs.bug import Bug
from dueq_chaos.bugs.clients import CLIENTS
from dueq_chaos.bugs.conditional import CONDITIONAL
from dueq_chaos.bugs.delivering import DELIVERING
from dueq_chaos.bugs.elections import ELECTIONS
from dueq_chaos.bugs.endings import ENDINGS
from dueq_chaos.bugs.fair import FAIR
from dueq_chaos.bugs.handling import HANDLING
from dueq_chaos.bugs.jobs import JOBS
from dueq_chaos.bugs.keys import KEYS
from dueq_chaos.bugs.memory import MEMORY
from dueq_chaos.bugs.prepared import PREPARED
from dueq_chaos.bugs.priority import PRIORITY
from dueq_chaos.bugs.recurring import RECURRING
from dueq_chaos.bugs.replication import REPLICATION
from dueq_chaos.bugs.rules import RULES
from dueq_chaos.bugs.small import SMALL
from dueq_chaos.bugs.standing import STANDING
from dueq_chaos.bugs.state import STATE
from dueq_chaos.bugs.storage import STORAGE
from dueq_chaos.bugs.surgery import SURGERY
from dueq_chaos.bugs.topics import TOPICS
from dueq_chaos.bugs.upgrading import UPGRADING
from dueq_chaos.bugs.waking import WAKING

BUGS: Final[dict[str, Bug]] = {
    bug.name: bug
    for bug in (
        *REPLICATION,
        *ELECTIONS,
        *STANDING,
        *STORAGE,
        *STATE,
        *DELIVERING,
        *PREPARED,
        *PRIORITY,
        *FAIR,
        *ENDINGS,
        *SURGERY,
        *CONDITIONAL,
        *CLIENTS,
        *JOBS,
        *BODIES,
        *KEYS,
        *RECURRING,
        *WAKING,
        *HANDLING,
        *MEMORY,
        *RULES,
        *SMALL,
        *UPGRADING,
        *TOPICS,
    )
}
"""Every planted bug by its name."""
