"""A store on the disk: two LevelDB databases in the broker's data folder."""

from __future__ import annotations

from dueq.storage.kinds import Opening, StoreKind
from dueq.storage.ordered.store import OrderedStore


def _open(opening: Opening) -> OrderedStore:
    assert opening.folder is not None, "a durable store is opened in a folder"
    return OrderedStore.open(opening.folder, opening.broker_id)


KIND = StoreKind("leveldb", durable=True, open=_open)
