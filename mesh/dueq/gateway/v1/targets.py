"""Where one message goes, if its topic's endpoint allows that."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dueq import Target
from dueq.gateway import instants
from dueq.gateway.v1.model import Asked, Duration


class AskedTarget(Asked):
    """Where a message goes, if its topic's endpoint allows targets; it begins the payload."""

    url: str = Field(description="https:// or http://.", examples=["https://example.com/task"])
    method: Literal["POST", "PUT", "PATCH", "GET", "HEAD", "DELETE", "OPTIONS"] = "POST"
    headers: dict[str, str] = Field(default={}, description="Of the request.")
    deadline: Duration | None = Field(default=None, description="How long the answer may take.")


def around(
    asked: AskedTarget, payload: bytes, headers: dict[str, str] | None, where: str
) -> tuple[bytes, dict[str, str]]:
    """Return payload and headers of a message with a target.

    Raises:
        InvalidRequest: a value is outside its limits.
        Unfit: the deadline is no duration.
    """
    deadline = None if asked.deadline is None else instants.duration(asked.deadline, f"{where}.deadline")
    return Target(asked.url, asked.method, asked.headers, deadline).around(payload, headers)
