"""The driver's side of a load: the mesh reached, the topic found, the job begun."""

from __future__ import annotations

import hashlib
import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from dueq.client.numbered import mesh_time_ms
from dueq.errors import Disconnected, InvalidRequest, TopicNotFound
from dueq.spark.hints import did_you_mean

if TYPE_CHECKING:
    from dueq import Client
    from dueq.client.topics import TopicInfo

PATIENCE_S: Final = 300.0
"""Seconds for which a task repeats a request that the mesh cannot take just now."""
HIDDEN_FOR_S: Final = 6 * 3600.0
HIDDEN_FOR_MAX_S: Final = 7 * 86_400.0
_REACH_S: Final = 15.0


def reach(client: Client, endpoints: Sequence[str]) -> None:
    """See that the driver reaches the mesh.

    Raises:
        Disconnected: no endpoint answers; the text says from where, and which.
    """
    try:
        client.topics(timeout=_REACH_S)
    except Disconnected as error:
        text = (
            f"the Spark driver on {socket.gethostname()} reaches no broker at {', '.join(endpoints)}: {error}"
        )
        raise Disconnected(text) from error


def topic_of(client: Client, topic: str) -> TopicInfo:
    """Return a topic's settings.

    Raises:
        TopicNotFound: there is none; the text says what it may have been meant to be.
    """
    try:
        return client.describe(topic)
    except TopicNotFound as error:
        names = [info.name for info in client.topics()]
        raise TopicNotFound(f"there is no topic {topic!r}{did_you_mean(topic, names)}") from error


def horizon_end_ms(info: TopicInfo, now_ms: int) -> int | None:
    """Return the last instant for which a topic takes messages, Unix ms; None: it has no horizon."""
    return None if info.horizon is None else now_ms + info.horizon // timedelta(milliseconds=1)


@dataclass(frozen=True)
class Begun:
    """A job that is being loaded; travels to the executors.

    Attributes:
        job_id: its name.
        name: what requests are named after.
        began_ms: mesh time before it began, Unix ms.
        complete: an earlier call had loaded all of it, so that nothing is to be sent.
    """

    job_id: str
    name: bytes
    began_ms: int
    complete: bool = False


def begin(client: Client, topic: str, job_id: str | None, hidden_for: float | None) -> Begun:
    """Begin a job, or go on with it.

    Args:
        client: of the driver.
        topic: its name.
        job_id: the job's; None draws one.
        hidden_for: seconds; None: its messages are not hidden.

    Raises:
        InvalidRequest: messages cannot be hidden.
    """
    if hidden_for is not None:
        raise InvalidRequest("this mesh cannot hide a job until it is committed: leave atomic out")
    chosen = job_id or f"spark-{secrets.token_hex(8)}"
    return Begun(chosen, hashlib.blake2b(chosen.encode(), digest_size=16).digest(), mesh_time_ms(client))


def commit(client: Client, begun: Begun) -> None:
    """Show all of a hidden job."""


def abort(client: Client, begun: Begun) -> None:
    """Withdraw all of a hidden job; what cannot be withdrawn now the mesh withdraws when its time is over."""
