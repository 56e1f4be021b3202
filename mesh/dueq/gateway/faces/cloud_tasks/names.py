"""Names of resources, and the topics that queues are.

A queue `projects/P/locations/L/queues/Q` is the topic `cloud-tasks.L.Q.P`, where the colons of P are underscores: none
of the three parts has an underscore, and L and Q have no dots.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple, Self

from dueq.gateway.faces.cloud_tasks.status import Code, RpcError
from dueq_codecs.meta import KEY_BYTES_MAX

PREFIX: Final = "cloud-tasks."
_PROJECT: Final = re.compile(r"[A-Za-z0-9:.-]{1,100}\Z")
_LOCATION: Final = re.compile(r"[A-Za-z0-9-]{1,63}\Z")
_QUEUE: Final = re.compile(r"[A-Za-z0-9-]{1,100}\Z")
_TASK: Final = re.compile(r"[A-Za-z0-9_-]{1,500}\Z")
_PARTS: Final = {
    "project": (_PROJECT, "1 to 100 letters, digits, hyphens, colons and periods"),
    "location": (_LOCATION, "1 to 63 letters, digits and hyphens"),
    "queue": (_QUEUE, "1 to 100 letters, digits and hyphens"),
    "task": (_TASK, f"1 to {KEY_BYTES_MAX} letters, digits, hyphens and underscores"),
}


class Location(NamedTuple):
    """Where queues are."""

    project: str
    location: str

    @classmethod
    def checked(cls, project: str, location: str) -> Self:
        """Return a location.

        Raises:
            RpcError: INVALID_ARGUMENT: a part is none.
        """
        return cls(_checked("project", project), _checked("location", location))

    def __str__(self) -> str:
        return f"projects/{self.project}/locations/{self.location}"

    @property
    def topics(self) -> str:
        """How the names of its topics begin."""
        return f"{PREFIX}{self.location}."


class QueueName(NamedTuple):
    """The name of a queue."""

    project: str
    location: str
    queue: str

    @classmethod
    def checked(cls, project: str, location: str, queue: str) -> Self:
        """Return a name; raises as `Location.checked`."""
        return cls(*Location.checked(project, location), _checked("queue", queue))

    @classmethod
    def of(cls, text: str) -> Self:
        """Take a name apart; raises as `checked`."""
        parts = text.split("/")
        if len(parts) != 6 or parts[0::2] != ["projects", "locations", "queues"]:
            raise RpcError(
                Code.INVALID_ARGUMENT,
                f"a queue is projects/PROJECT/locations/LOCATION/queues/QUEUE, not {text!r:.200}",
            )
        return cls.checked(*parts[1::2])

    @classmethod
    def of_topic(cls, topic: str) -> Self | None:
        """Return the queue that a topic is, if it is one."""
        location, _, rest = topic.removeprefix(PREFIX).partition(".")
        queue, _, project = rest.partition(".")
        if not topic.startswith(PREFIX) or not project:
            return None
        return cls(project.replace("_", ":"), location, queue)

    def __str__(self) -> str:
        return f"projects/{self.project}/locations/{self.location}/queues/{self.queue}"

    @property
    def topic(self) -> str:
        """The topic that the queue is."""
        return f"{PREFIX}{self.location}.{self.queue}.{self.project.replace(':', '_')}"

    def task(self, task: str) -> str:
        """Return the name of one of its tasks."""
        return f"{self}/tasks/{task}"

    def task_of(self, name: str) -> str:
        """Return the last part of a task's name.

        Raises:
            RpcError: INVALID_ARGUMENT: it is none of this queue.
        """
        begin = f"{self}/tasks/"
        if not name.startswith(begin):
            raise RpcError(Code.INVALID_ARGUMENT, f"a task of this queue is {begin}TASK, not {name!r:.700}")
        return checked_task(name.removeprefix(begin))


def checked_task(task: str) -> str:
    """Return the last part of a task's name.

    Raises:
        RpcError: INVALID_ARGUMENT: it is none, or too long for a key.
    """
    found = _checked("task", task)
    if len(found) > KEY_BYTES_MAX:
        raise RpcError(
            Code.INVALID_ARGUMENT,
            f"the ID of a task has at most {KEY_BYTES_MAX} characters here, not {len(found)}",
        )
    return found


def _checked(part: str, value: str) -> str:
    pattern, words = _PARTS[part]
    if not pattern.match(value):
        raise RpcError(Code.INVALID_ARGUMENT, f"the ID of a {part} is {words}, not {value!r:.120}")
    return value
