"""The bodies of requests."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, StrictInt, StrictStr, model_validator

from dueq.gateway.asked import Known
from dueq.gateway.faces.doq.queue import UNACKED_MAX, Type

Name = Annotated[StrictStr, Field(max_length=1024)]
Priority = Annotated[StrictInt, Field(ge=0, lt=1 << 63)]
Metadata = dict[StrictStr, StrictStr]


class Asked(Known):
    """A body: names of its members in any case, each once; unknown members are refused."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _lower(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        found: dict[str, Any] = {}
        for name, value in given.items():
            if name == "$schema":
                continue
            # Only one of both could count, as of two names in the same case.
            if name.lower() in found:
                raise ValueError(f"the member {name.lower()!r:.80} comes twice in one object")
            found[name.lower()] = value
        return found


def _word(given: object) -> object:
    return "" if given is None else given


class Settings(Asked):
    """Settings of a queue."""

    strategy: Annotated[StrictStr, BeforeValidator(_word), Field(pattern="^(round_robin|weighted|)$")] = ""
    max_unacked: Annotated[StrictInt, Field(ge=0, le=UNACKED_MAX)] | None = None
    ack_timeout: Annotated[StrictInt, Field(ge=60, le=12 * 3600)] | None = None

    def echo(self) -> dict[str, Any]:
        """Return them as the answer to the request says them."""
        shown = {
            "strategy": self.strategy.upper(),
            "max_unacked": self.max_unacked,
            "ack_timeout": self.ack_timeout,
        }
        return {name: value for name, value in shown.items() if value}


class NewQueue(Asked):
    """A queue to be created."""

    name: Name
    type: Type
    settings: Settings = Settings()


class Update(Asked):
    """Settings that take the place of a queue's."""

    settings: Settings


class NewMessage(Asked):
    """A message to be put into a queue."""

    id: StrictStr | None = None
    group: StrictStr | None = None
    priority: Priority
    content: StrictStr
    metadata: Metadata | None = None


class Nack(Asked):
    """A message that is given back."""

    priority: Priority
    metadata: Metadata | None = None


class NewPriority(Asked):
    """Another priority."""

    priority: Priority


class Numbers(Asked):
    """How many numbers are wanted."""

    number: Annotated[StrictInt, Field(ge=1, le=1000)]
