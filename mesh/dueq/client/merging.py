"""Merges the status documents of all brokers into one document of the mesh."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Document = dict[str, Any]

_HELD = ("role", "epoch", "last_epoch", "end", "commit", "scheduled", "broken")


def merged_status(endpoints: Mapping[str, str], documents: Mapping[str, Document]) -> Document:
    """Put status documents together.

    Args:
        endpoints: of every broker asked or registered, by id.
        documents: of those that answered, by id.

    Returns:
        {"brokers": {id: {"alive", "endpoint", "metrics", "degraded", "leaderships", "clock", …}},
        "topics": {name: {"kind", "replicas", "min_isr", "partitions": [{"uid", "index", "leader", "isr", …}]}},
        "consumers": [{"topic", "consumer", "broker", "credit", "leased", …}]}.
        A partition is as its leader sees it, else as the replica that has applied most of its log; its `held`
        says of each broker that answered what it holds: {id: {"role", "epoch", "last_epoch", "end", "commit"}}.
    """
    partitions = _newest(documents)
    topics: Document = {}
    for document in documents.values():
        for name, settings in _mapping(document, "topics").items():
            topics.setdefault(name, {**settings, "partitions": []})
    for view in sorted(partitions, key=lambda view: (str(view.get("topic")), int(view.get("index", 0)))):
        topics.setdefault(str(view.get("topic", "")), {"partitions": []})["partitions"].append(view)
    return {
        "brokers": _brokers(endpoints, documents, partitions),
        "topics": {name: topics[name] for name in sorted(topics)},
        "consumers": [
            session for document in documents.values() for session in _listed(document, "consumers")
        ],
    }


def _brokers(
    endpoints: Mapping[str, str], documents: Mapping[str, Document], partitions: Iterable[Document]
) -> Document:
    """Brokers that answered, are registered, or should hold replicas but are missing."""
    registered: Document = {}
    for document in documents.values():
        registered |= _mapping(document, "brokers")
    missing = {str(broker_id) for view in partitions for broker_id in view.get("replicas", ())}
    brokers: Document = {}
    for broker_id in sorted({*endpoints, *registered, *missing}):
        known = registered.get(broker_id, {})
        own = _mapping(documents.get(broker_id, {}), "broker")
        endpoint = endpoints.get(broker_id) or known.get("endpoint", "")
        alive = broker_id in documents
        brokers[broker_id] = {**known, **own, "endpoint": endpoint, "alive": alive, "reachable": alive}
        if "clock" in own:
            brokers[broker_id]["clock"] = _clock(own["clock"])
        left_out = documents.get(broker_id, {}).get("partitions_left_out", 0)
        if left_out:
            brokers[broker_id]["partitions_left_out"] = left_out
    return brokers


def _clock(clock: Document) -> Document:
    """Add the offset of the broker's clock: how far it is ahead of mesh time."""
    if "offset_ms" in clock or clock.get("mesh_offset_ms") is None:
        return clock
    return {**clock, "offset_ms": 0.0 - clock["mesh_offset_ms"]}


def _newest(documents: Mapping[str, Document]) -> list[Document]:
    best: dict[int, tuple[tuple[bool, int, int], Document]] = {}
    held: dict[int, Document] = {}
    for broker_id in sorted(documents):
        for view in _listed(documents[broker_id], "partitions"):
            leads = view.get("leader") == broker_id
            rank = (leads, int(view.get("epoch", 0)), int(view.get("sequence", 0)))
            uid = int(view["uid"])
            held.setdefault(uid, {})[broker_id] = {key: view[key] for key in _HELD if key in view}
            if uid not in best or rank > best[uid][0]:
                best[uid] = (rank, view)
    return [{**view, "held": held[uid]} for uid, (_, view) in best.items()]


def _mapping(document: Document, name: str) -> Document:
    value = document.get(name)
    return value if isinstance(value, dict) else {}


def _listed(document: Document, name: str) -> list[Document]:
    value = document.get(name)
    return value if isinstance(value, list) else []
