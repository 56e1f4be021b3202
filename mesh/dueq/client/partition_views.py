"""What the leaders of a topic's partitions say about them, of answers that may be old."""

from __future__ import annotations

import json
from typing import Any

from dueq.client.core.asking.inspecting import Inspection
from dueq.errors import NotLeader


def newest_views(found: Inspection, topic: str, wanted: set[int]) -> dict[int, dict[str, Any]]:
    """Return the newest view of each of these partitions.

    Raises:
        NotLeader: one of them has no leader just now.
    """
    newest: dict[int, dict[str, Any]] = {}
    for _, text in sorted(found.documents.items()):
        for view in json.loads(text)["partitions"]:
            known = newest.get(view["uid"])
            if known is None or (view["epoch"], view["sequence"]) > (known["epoch"], known["sequence"]):
                newest[view["uid"]] = view
    if missing := wanted - newest.keys():
        raise NotLeader(f"partition {min(missing)} of {topic!r} has no leader just now")
    return {uid: newest[uid] for uid in wanted}
