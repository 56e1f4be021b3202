"""A store in memory: nothing survives the process.

Each start begins a new store with a new identity. To the mesh the broker is a stranger under an old name: it leads
nothing, counts for nothing, and catches up from the other replicas. If no other replica is left, the messages are gone.
"""

from __future__ import annotations

import os

from dueq.storage.kinds import Opening, StoreKind
from dueq.storage.ordered.memory import MemoryEngine
from dueq.storage.ordered.room import MemoryRoom
from dueq.storage.ordered.store import OrderedStore


def _open(opening: Opening) -> OrderedStore:
    room = MemoryRoom(opening.memory_bytes)
    return OrderedStore.on(
        MemoryEngine(room), MemoryEngine(room), opening.broker_id, "", os.urandom(8).hex(), room
    )


KIND = StoreKind("memory", durable=False, open=_open)
