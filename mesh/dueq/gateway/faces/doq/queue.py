"""A queue: the topic that it is, and the content of the topic's label.

The topic is `doq.n.NAME`, or `doq.h.` and a hash where the name is no name of a topic; the label has the name itself.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, Self, get_args

from dueq import TopicInfo
from dueq_codecs.documents import decode_document

LABEL: Final = "doq"
"""The label of a topic that is a queue: its `Queue`, as JSON."""
ACK_TIMEOUT_S: Final = 1800
"""How long a message is in flight unless the queue says otherwise."""
PLAIN_MAX: Final = 65_535
"""In a delayed queue: priorities below are ranks of messages due now, others are instants, Unix s."""
UNACKED_MAX: Final = 1_000_000
"""Most messages of a group in flight that a queue may be set to."""
DEFAULT_GROUP: Final = "default"
_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]{1,200}\Z")

Type = Literal["delayed", "fair"]
Strategy = Literal["round_robin", "weighted", ""]


@dataclass(frozen=True, slots=True)
class Queue:
    """The settings of a queue.

    Attributes:
        name: any text.
        type: "delayed": by priority, and by time; "fair": groups take turns.
        strategy: of a fair queue; both are round robin here.
        max_unacked: messages of a group in flight; 0: no limit.
        ack_timeout_s: how long a message is in flight; 0: as usual.
    """

    name: str
    type: Type
    strategy: Strategy = ""
    max_unacked: int = 0
    ack_timeout_s: int = 0

    @classmethod
    def of(cls, info: TopicInfo) -> Self | None:
        """Return the queue that a topic is; None: it is none."""
        try:
            found = cls(**decode_document(info.labels[LABEL]))
        except (KeyError, TypeError, ValueError):
            return None
        numbers = (found.max_unacked, found.ack_timeout_s)
        sound = (
            isinstance(found.name, str)
            and found.type in get_args(Type)
            and found.strategy in get_args(Strategy)
            and all(type(each) is int and 0 <= each <= UNACKED_MAX for each in numbers)
        )
        return found if sound else None

    def label(self) -> str:
        """Return it as the topic's label."""
        return json.dumps(asdict(self), ensure_ascii=False, separators=(",", ":"))

    @property
    def lease_s(self) -> int:
        """How long a message is in flight, seconds."""
        return self.ack_timeout_s or ACK_TIMEOUT_S

    def place(self, priority: int, now_ms: int) -> tuple[int, int]:
        """Return the due (Unix ms) and the rank of a message of this priority."""
        if self.type == "fair":
            return now_ms, priority
        if priority < PLAIN_MAX:
            return now_ms, priority
        return priority * 1000, PLAIN_MAX

    def priority(self, due: int, rank: int) -> int:
        """Return the priority of a message of this due and rank."""
        return due // 1000 if self.type == "delayed" and rank == PLAIN_MAX else rank

    def settings(self) -> dict[str, Any]:
        """Return its settings as an answer about it has them."""
        shown: dict[str, Any] = {
            "strategy": self.strategy.upper() or "STRATEGY_UNSPECIFIED",
            "ack_timeout": self.lease_s,
        }
        return shown | ({"max_unacked": self.max_unacked} if self.max_unacked else {})


def topic_of(name: str) -> str:
    """Return the topic of the queue of a name."""
    if _PLAIN.match(name):
        return f"doq.n.{name}"
    return f"doq.h.{hashlib.sha256(name.encode()).hexdigest()}"
