"""A broker's configuration: one dataclass; a TOML file is overruled by the environment, that by flags."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, Self

from dueq import limits
from dueq.errors import InvalidRequest

_PREFIX = "DUEQ_"


@dataclass(frozen=True)
class BrokerConfig:
    """Everything that `dueq broker` can be told.

    Attributes:
        id: the broker's name in the mesh, 1–64 of A-Z a-z 0-9 . _ -.
        data: its data folder.
        zookeeper: `HOST:PORT[,HOST:PORT…][/ROOT]`; empty: the in-process stand-in of a single broker.
        listen: where to bind, `tcp://ADDRESS:PORT`.
        advertise: where clients and peers reach it; empty: `listen` (with the host's name for a wildcard).
        metrics: `ADDRESS:PORT` of the Prometheus page; empty: none.
        log_level: debug, info, warning or error.
        log_format: auto (readable on a terminal, JSON otherwise), console or json.
        max_clock_offset_ms: a clock further from the mesh's than this hands its leaderships over.
        hot_rows_total: waiting messages kept in memory over all partitions.
    """

    id: str
    data: Path
    zookeeper: str = ""
    listen: str = "tcp://127.0.0.1:7400"
    advertise: str = ""
    metrics: str = ""
    log_level: str = "info"
    log_format: str = "auto"
    max_clock_offset_ms: int = limits.MAX_CLOCK_OFFSET_MS
    hot_rows_total: int = limits.HOT_ROWS_TOTAL

    def __post_init__(self) -> None:
        """Check every value.

        Raises:
            InvalidRequest: naming the setting, its value and what it may be.
        """
        allowed = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
        if not 1 <= len(self.id) <= 64 or not set(self.id) <= allowed:
            raise InvalidRequest(f"id has 1 to 64 characters of A-Z a-z 0-9 . _ -, not {self.id!r}")
        for name in ("listen", "advertise"):
            value = getattr(self, name)
            if value and (not value.startswith("tcp://") or ":" not in value[6:]):
                raise InvalidRequest(f"{name} is tcp://ADDRESS:PORT, not {value!r}")
        if self.metrics and not self.metrics.rpartition(":")[2].isdigit():
            raise InvalidRequest(f"metrics is ADDRESS:PORT, not {self.metrics!r}")
        _one_of("log_level", self.log_level, ("debug", "info", "warning", "error"))
        _one_of("log_format", self.log_format, ("auto", "console", "json"))
        if not 1 <= self.max_clock_offset_ms <= 60_000:
            raise InvalidRequest(f"max_clock_offset_ms is 1 to 60000, not {self.max_clock_offset_ms}")
        if not 64 <= self.hot_rows_total <= 1 << 24:
            raise InvalidRequest(f"hot_rows_total is 64 to {1 << 24}, not {self.hot_rows_total}")

    @classmethod
    def load(
        cls, flags: Mapping[str, Any], file: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> Self:
        """Put a configuration together.

        Args:
            flags: what the command line gives; None values count as not given.
            file: a TOML file with settings at its top level.
            environment: DUEQ_<SETTING>; None: the process's own.

        Raises:
            InvalidRequest: an unknown name, a missing or a wrong value, or a file that is not TOML.
        """
        settings: dict[str, Any] = {}
        if file is not None:
            settings.update(_read(file))
        variables = os.environ if environment is None else environment
        known = {field.name: field for field in fields(cls)}
        for name in known:
            if (value := variables.get(_PREFIX + name.upper())) is not None:
                settings[name] = value
        settings.update({name: value for name, value in flags.items() if value is not None})
        for name in settings:
            if name not in known:
                raise InvalidRequest(f"there is no setting {name!r}; there are {', '.join(known)}")
        for name, field in known.items():
            if name not in settings and field.default is MISSING:
                raise InvalidRequest(f"the setting {name!r} is missing")
        return cls(**{name: _typed(name, str(known[name].type), value) for name, value in settings.items()})


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise InvalidRequest(f"the configuration file {file} cannot be read: {error}") from error


def _typed(name: str, wanted: str, value: Any) -> Any:
    if wanted == "int":
        try:
            return int(value)
        except (TypeError, ValueError) as error:
            raise InvalidRequest(f"{name} is a whole number, not {value!r}") from error
    return Path(value) if wanted == "Path" else str(value)


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InvalidRequest(f"{name} is one of {', '.join(allowed)}, not {value!r}")
