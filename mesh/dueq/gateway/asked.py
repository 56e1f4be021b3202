"""The common base of all bodies that clients send, for every face."""

from __future__ import annotations

from typing import Any, Final, Self

from pydantic import BaseModel, ModelWrapValidatorHandler, ValidationError, model_validator

from dueq import limits

_KINDS_MAX: Final = 2


class Known(BaseModel):
    """A model that refuses an object of very many fields, or with very many faults, at once.

    Otherwise each field that it does not have, and each value of a map that does not fit, would be an error of its own,
    and a short request take seconds.
    """

    @model_validator(mode="wrap")
    @classmethod
    def _look(cls, given: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        fields = len(cls.model_fields)
        most = fields + limits.GATEWAY_FIELDS_UNKNOWN_MAX
        if isinstance(given, dict) and len(given) > most:
            raise ValueError(f"an object of {len(given)} fields; there are {fields} that it can have")
        try:
            return handler(given)
        except ValidationError as error:
            # A value that may be of several kinds is an error of each.
            if error.error_count() <= _KINDS_MAX * fields + limits.GATEWAY_FIELDS_UNKNOWN_MAX:
                raise
            raise ValueError(f"an object with {error.error_count()} faults") from None
