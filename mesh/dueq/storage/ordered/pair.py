"""Two databases that belong together, and how a start notices that they do not.

`timeline/` and `payload/` are synced one after the other, so a crash leaves them at most one write apart. A lost
folder, a broken disk or a restored backup can leave any two states of them, or of two stores. Then a record whose
payload is missing would be trusted. So both databases name their store, and each batch carries a *stamp*: the
database's own position (a count of its batches), and the position of the other one when the batch was written, which
was synced by then. A database that is behind the position in the other one's stamp has lost something. (These are the
vector clocks of Fidge and Mattern, of two processes.) It costs one more row in a batch that is written anyway.

One loss is not noticed: that of a `timeline/` that is older, but not older than the last start nor than the last write
to `payload/`. To the mesh that is a replica that holds less than it had acked.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from struct import Struct
from typing import Final

from dueq.storage.ordered import layout
from dueq.storage.ordered.engine import Engine, EngineDamaged, Operation

_STAMP: Final = Struct(">QQ")
"""Own position, the other's."""


class Half:
    """One of the two databases: an engine all of whose batches carry a stamp.

    Attributes:
        at: how many batches it has taken.
        needs: the position of the other one that its last batch named; it is never behind that.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        found = engine.get(layout.STAMP)
        self.stamped = found is not None
        self.at, self.needs = _STAMP.unpack(found) if found is not None else (0, 0)
        self._other = self
        self.get, self.scan, self.keys = engine.get, engine.scan, engine.keys
        self.snapshot, self.level0_files, self.close = engine.snapshot, engine.level0_files, engine.close

    def pair(self, other: Half) -> None:
        """Name the other one's position from now on."""
        self._other = other

    def write(self, operations: Iterable[Operation], *, sync: bool) -> None:
        """See Engine."""
        needs = self._other.at
        stamp: Operation = (layout.STAMP, _STAMP.pack(self.at + 1, needs))
        self._engine.write(chain(operations, (stamp,)), sync=sync)
        self.at, self.needs, self.stamped = self.at + 1, needs, True


def paired(timeline: Engine, payload: Engine) -> tuple[Half, Half]:
    """Return both as halves of one store; nothing is written.

    Raises:
        EngineDamaged: they do not belong together, or one of them has lost something.
    """
    halves = Half(timeline), Half(payload)
    trouble = _misfit(*halves)
    if trouble:
        raise EngineDamaged(trouble)
    halves[0].pair(halves[1])
    halves[1].pair(halves[0])
    return halves


def _misfit(timeline: Half, payload: Half) -> str:
    """Say why these two are not one store; "" when they are, or may become one."""
    store, other = timeline.get(layout.STORE_ID), payload.get(layout.STORE_ID)
    if store is None:
        return "timeline/ is empty and payload/ is not" if _holds_payloads(payload) else ""
    if other is None:  # a store of before there were stamps has none
        return f"payload/ of the store {store.decode()} is gone" if timeline.stamped else ""
    if other != store:
        return f"timeline/ is of the store {store.decode()}, payload/ of {other.decode()}"
    if payload.at < timeline.needs:
        return f"payload/ is older than timeline/: at its write {payload.at}, not {timeline.needs}"
    if timeline.at < payload.needs:
        return f"timeline/ is older than payload/: at its write {timeline.at}, not {payload.needs}"
    return ""


def _holds_payloads(payload: Half) -> bool:
    return next(iter(payload.keys(layout.FIRST_UID, layout.BEHIND_ALL)), None) is not None


def claim(timeline: Half, payload: Half, rows: list[Operation], store_id: str) -> None:
    """Make both name the store, and each other's present state; `rows` go to `timeline/` beside its name.

    The name is in `payload/` first: a start that finds it there alone has been interrupted here.
    """
    name: Operation = (layout.STORE_ID, store_id.encode())
    payload.write([name], sync=True)
    if rows or not timeline.stamped:
        timeline.write([*rows, name], sync=True)
