"""One table of a specification: typed values out of TOML, and errors that say what may have been meant."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import date, time
from typing import Any, Final

from dueq.errors import InvalidRequest
from dueq.spark.hints import did_you_mean

_DURATION: Final = re.compile(r"(\d{1,9})(s|m|h|d)")
_UNIT_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_TIME: Final = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?")


class Settings:
    """The values of one table.

    Args:
        name: of the table, as in `[due]`; empty: the top level.
        values: what stands there.
        known: the keys that there are.

    Raises:
        InvalidRequest: it is no table, or has a key that is not known; the text says what may have been meant.
    """

    def __init__(self, name: str, values: object, known: Collection[str]) -> None:
        self._name = name
        if not isinstance(values, Mapping):
            raise InvalidRequest(f"[{name}] is a table, not {_shown(values)}")
        self._values: Mapping[str, Any] = values
        for key in values:
            if key not in known:
                raise InvalidRequest(f"there is no {self._at(key)}{did_you_mean(key, known)}")

    def has(self, key: str) -> bool:
        """Whether the key is there."""
        return key in self._values

    def raw(self, key: str) -> Any:
        """Return a value as it is; None when it is not there."""
        return self._values.get(key)

    def one_of(self, keys: tuple[str, ...]) -> str:
        """Return which of these alternatives is given.

        Raises:
            InvalidRequest: none is, or several are.
        """
        given = [key for key in keys if key in self._values]
        if len(given) == 1:
            return given[0]
        said = "none of them" if not given else f"{' and '.join(given)}"
        raise InvalidRequest(f"{self._where()} has exactly one of {', '.join(keys)}, not {said}")

    def only_with(self, key: str, keys: Collection[str], why: str) -> None:
        """See that none of `keys` is given, as `key` is.

        Raises:
            InvalidRequest: one is.
        """
        for other in keys:
            if other in self._values:
                raise InvalidRequest(f"{self._at(other)} does not go with {key}: {why}")

    def text(self, key: str, default: str | None = None) -> str:
        """Return a text that is not empty.

        Raises:
            InvalidRequest: it is another thing, empty, or missing without a default.
        """
        if key not in self._values:
            if default is None:
                raise InvalidRequest(f"{self._at(key)} is missing")
            return default
        value = self._values[key]
        if not isinstance(value, str) or not value.strip():
            raise InvalidRequest(f"{self._at(key)} is a text, not {_shown(value)}")
        return value

    def choice(self, key: str, allowed: tuple[str, ...], default: str) -> str:
        """Return one of some words.

        Raises:
            InvalidRequest: it is none of them.
        """
        value = self.text(key, default)
        if value not in allowed:
            raise InvalidRequest(f"{self._at(key)} is not {value!r}{did_you_mean(value, allowed)}")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts; a single text is a list of one.

        Raises:
            InvalidRequest: it is missing, empty, or has other things in it.
        """
        value = self._values.get(key)
        found = [value] if isinstance(value, str) else value
        if not isinstance(found, list) or not found or not all(isinstance(t, str) and t for t in found):
            raise InvalidRequest(f"{self._at(key)} is a text or a list of texts, not {_shown(value)}")
        return tuple(found)

    def pairs(self, key: str) -> dict[str, str]:
        """Return a table of plain values as texts, as Spark takes its options; empty when it is not there.

        Raises:
            InvalidRequest: it is no table, or holds lists or tables.
        """
        value = self._values.get(key, {})
        if not isinstance(value, Mapping):
            raise InvalidRequest(f"{self._at(key)} is a table, not {_shown(value)}")
        found = {}
        for name, one in value.items():
            if not isinstance(one, str | bool | int | float):
                raise InvalidRequest(
                    f"{self._at(key)}.{name} is a text, a number or true/false, not {_shown(one)}"
                )
            found[name] = str(one).lower() if isinstance(one, bool) else str(one)
        return found

    def flag(self, key: str, default: bool) -> bool:
        """Return true or false.

        Raises:
            InvalidRequest: it is neither.
        """
        value = self._values.get(key, default)
        if not isinstance(value, bool):
            raise InvalidRequest(f"{self._at(key)} is true or false, not {_shown(value)}")
        return value

    def whole(self, key: str, low: int, high: int) -> int | None:
        """Return a whole number from low to high; None when it is not there.

        Raises:
            InvalidRequest: it is none, or outside.
        """
        value = self._values.get(key)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise InvalidRequest(
                f"{self._at(key)} is a whole number from {low} to {high}, not {_shown(value)}"
            )
        return value

    def seconds(self, key: str, default: str | None, high_s: int) -> int:
        """Return a duration such as "90s", "30m", "2h", "1d" or "1h30m" in seconds.

        Raises:
            InvalidRequest: it is none, longer than `high_s`, or missing without a default.
        """
        value = self._values.get(key, default)
        compact = value.replace(" ", "") if isinstance(value, str) else ""
        parts = _DURATION.findall(compact)
        total = sum(int(number) * _UNIT_S[unit] for number, unit in parts)
        if not parts or "".join(n + u for n, u in parts) != compact or not 1 <= total <= high_s:
            said = "missing" if value is None else _shown(value)
            raise InvalidRequest(
                f'{self._at(key)} is a duration such as "90s", "30m" or "1h30m", '
                f"from 1 s to {high_s // 3600} h, not {said}"
            )
        return total

    def time_of_day(self, key: str) -> int:
        """Return a time of day, `09:00` as a text or TOML's own, in seconds after midnight.

        Raises:
            InvalidRequest: it is none, or missing.
        """
        value = self._values.get(key)
        if isinstance(value, time) and value.microsecond == 0:
            return value.hour * 3600 + value.minute * 60 + value.second
        found = _TIME.fullmatch(value.strip()) if isinstance(value, str) else None
        if found is None:
            said = "missing" if value is None else _shown(value)
            raise InvalidRequest(
                f'{self._at(key)} is a time of day such as "09:00" or "21:30:00", not {said}'
            )
        return int(found[1]) * 3600 + int(found[2]) * 60 + int(found[3] or 0)

    def day(self, key: str) -> date:
        """Return a day, `2030-01-31` as a text or TOML's own.

        Raises:
            InvalidRequest: it is none.
        """
        value = self._values.get(key)
        if type(value) is date:
            return value
        try:
            return date.fromisoformat(value if isinstance(value, str) else "")
        except ValueError:
            raise InvalidRequest(
                f"{self._at(key)} is a day such as 2030-01-31, not {_shown(value)}"
            ) from None

    def _at(self, key: str) -> str:
        return f"[{self._name}] {key}" if self._name else key

    def _where(self) -> str:
        return f"[{self._name}]" if self._name else "the specification"


def _shown(value: object) -> str:
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, str | int | float | list) or value is None else str(value)
