"""Passes: work on all messages of a topic that match a filter. Brokers do it, and their owner follows the progress."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from typing import Final

from dueq.client import arguments
from dueq.client.calls import Call
from dueq.client.core import PartsCall
from dueq.client.core.asking.inspecting import Inspection
from dueq.client.core.ports import events
from dueq.errors import InvalidRequest

STATES: Final = ("waiting",)
POLL_S: Final = 0.1
_OVER: Final = ("ended", "stopped")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a pass is, over all partitions that answered.

    Attributes:
        done: messages that it has finished.
        skipped: messages that a consumer had when it ended.
        left: at most so many messages are still to be looked at; may be too high.
        ended: every partition has worked it off, or it was stopped.
    """

    done: int = 0
    skipped: int = 0
    left: int = 0
    ended: bool = False


def new_name() -> str:
    """Return a name that no other pass has."""
    return secrets.token_hex(16)


def purge(topic: str, name: str, state: str) -> Call[None]:
    """Begin to finish all messages in a state.

    Raises:
        InvalidRequest: messages in that state cannot be purged.
    """
    if state not in STATES:
        raise InvalidRequest(f"state is one of {', '.join(STATES)}, not {state!r:.80}")
    return _act(topic, name, {"do": "purge", "filter": {"state": state}})


def stop(topic: str, name: str) -> Call[None]:
    """Stop a pass: what it has finished stays so."""
    return _act(topic, name, {"do": "stop"})


def _act(topic: str, name: str, document: dict[str, object]) -> Call[None]:
    text, named = json.dumps(document), arguments.topic_name(topic)

    def finish(call: PartsCall) -> None:
        return None

    return Call(lambda number, at: events.ActOnPass(number, at, named, name, text), finish)


def look(topic: str, name: str) -> Call[Progress]:
    """Ask how far a pass is."""
    return Call(lambda number, at: events.Inspect(number, at, f"pass {name}", topic), _progress)


def _progress(found: Inspection) -> Progress:
    uids = {partition.uid for partition in found.metadata.topics[0].partitions}
    views: dict[int, dict[str, int | str]] = {}
    for text in found.documents.values():
        for view in json.loads(text)["partitions"]:
            known = views.get(view["uid"])
            if view["uid"] in uids and (known is None or view["sequence"] > known["sequence"]):
                views[view["uid"]] = view
    begun = [view for view in views.values() if view["state"] != "unknown"]
    return Progress(
        sum(int(view["done"]) for view in begun),
        sum(int(view["skipped"]) for view in begun),
        sum(int(view["left"]) for view in begun),
        # A partition that was added since has nothing to do with it.
        bool(begun) and len(views) == len(uids) and all(view["state"] in _OVER for view in begun),
    )
