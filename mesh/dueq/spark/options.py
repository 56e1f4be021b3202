"""Options of `format("dueq")`: they come as text, and a slip must not go unnoticed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Final

from dueq.client.arguments import endpoint_list
from dueq.client.times import instant_ms
from dueq.errors import InvalidRequest
from dueq.spark.hints import did_you_mean

_OF_SPARK: Final = frozenset({"checkpointlocation", "queryname"})
"""Spark's own, which it passes on."""


class Options:
    """The options of one read or write.

    Args:
        given: as Spark has them; names in any case.
        known: what there is for this use.
        use: what they are for, in error texts.

    Raises:
        InvalidRequest: one is not known; the text says what may have been meant.
    """

    def __init__(self, given: Mapping[str, str], known: Collection[str], use: str) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        for name in self._given:
            if name not in known and name not in _OF_SPARK:
                raise InvalidRequest(f"dueq has no option {name!r} {use}{did_you_mean(name, known)}")

    def text(self, name: str, default: str = "") -> str:
        """Return an option as it is."""
        return self._given.get(name, default)

    def needed(self, name: str) -> str:
        """Return an option that there must be.

        Raises:
            InvalidRequest: it is missing or empty.
        """
        value = self._given.get(name, "")
        if not value:
            raise InvalidRequest(f"dueq needs the option {name!r}: .option({name!r}, …)")
        return value

    def endpoints(self) -> tuple[str, ...]:
        """Return the brokers; by default those of DUEQ_ENDPOINTS."""
        return tuple(endpoint_list(self._given.get("endpoints")))

    def flag(self, name: str, default: bool) -> bool:
        """Return a yes or no.

        Raises:
            InvalidRequest: it is neither "true" nor "false".
        """
        value = self._given.get(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise InvalidRequest(f"the option {name!r} is true or false, not {value!r}")
        return value.lower() == "true"

    def whole(self, name: str, default: int, low: int, high: int) -> int:
        """Return a whole number within low … high.

        Raises:
            InvalidRequest: it is none, or outside.
        """
        value = self._given.get(name)
        if value is None:
            return default
        try:
            number = int(value) if value.strip().isdecimal() else None
        except ValueError:
            number = None
        if number is None or not low <= number <= high:
            raise InvalidRequest(
                f"the option {name!r} is a whole number from {low} to {high}, not {value!r:.80}"
            )
        return number

    def seconds(self, name: str, default: float, low: float, high: float) -> float:
        """Return a number of seconds within low … high.

        Raises:
            InvalidRequest: it is none, or outside.
        """
        value = self._given.get(name)
        if value is None:
            return default
        try:
            number = float(value)
        except ValueError:
            number = -1.0
        if not low <= number <= high:
            raise InvalidRequest(f"the option {name!r} is {low:g} to {high:g} seconds, not {value!r}")
        return number

    def instant(self, name: str) -> int | None:
        """Return an instant in Unix ms; None when it is not given.

        Raises:
            InvalidRequest: it is neither Unix ms nor ISO 8601 with a time zone.
        """
        value = self._given.get(name)
        if value is None:
            return None
        try:
            moment = int(value) if value.strip().isdecimal() else datetime.fromisoformat(value)
            return instant_ms(moment, name)
        except (ValueError, InvalidRequest) as error:
            raise InvalidRequest(
                f"the option {name!r} is Unix ms, or ISO 8601 with a time zone such as 2030-01-31T09:00:00Z, "
                f"not {value!r}"
            ) from error
