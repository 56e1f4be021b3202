"""The common base of all bodies that clients send, for every face."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ModelWrapValidatorHandler, model_validator

from dueq import limits


class Known(BaseModel):
    """A model that refuses an object of very many fields at once.

    Otherwise each field that it does not have would be an error of its own, and a short request take seconds.
    """

    @model_validator(mode="wrap")
    @classmethod
    def _look(cls, given: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        most = len(cls.model_fields) + limits.GATEWAY_FIELDS_UNKNOWN_MAX
        if isinstance(given, dict) and len(given) > most:
            raise ValueError(
                f"an object of {len(given)} fields; there are {len(cls.model_fields)} that it can have"
            )
        return handler(given)
