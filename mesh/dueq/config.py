"""A broker's configuration: one dataclass; a TOML file is overruled by the environment, that by flags."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Self

from dueq import limits
from dueq.errors import InvalidRequest
from dueq.storage.kinds import DEFAULT, is_durable

_PREFIX: Final = "DUEQ_"
_OTHERS: Final = frozenset(
    {
        "DUEQ_ENDPOINTS",
        "DUEQ_OIDC_ISSUER",
        "DUEQ_OIDC_KEY_FILE",
        "DUEQ_PARENT_PID",
        "DUEQ_TEST_FEATURE_LEVEL",
        "DUEQ_WEBHOOK_ALLOW",
    }
)
"""Variables that are not for the broker."""
_SERVICE_LINK: Final = re.compile(r"DUEQ_(\w+_)?(SERVICE_(HOST|PORT(_\w+)?)|PORT(_\w+)?)")
"""Variables that Kubernetes sets in every container when a service is called dueq, or dueq-something."""
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_ADDRESS: Final = re.compile(r"(?:\[[0-9A-Fa-f:.%]+\]|[^:/\s\[\]]+):(?P<port>\d{1,5})")
WILDCARDS: Final = ("*", "0.0.0.0", "[::]")
"""Hosts that a broker can listen at, and that nobody can connect to."""
_HOT_ROWS: Final = range(64, (1 << 24) + 1)
_STORE_MEMORY: Final = range(16 << 20, 1 << 50)
_OFFSET_MS: Final = range(1, 60_001)
_DISK_MS: Final = range(5_000, 3_600_001)


@dataclass(frozen=True)
class BrokerConfig:
    """Everything that `dueq broker` can be told. A value out of its range raises InvalidRequest.

    Attributes:
        id: the broker's name in the mesh, 1–64 of A-Z a-z 0-9 . _ -.
        data: its data folder; needed, but for a store in memory.
        zookeeper: `HOST:PORT[,HOST:PORT…][/ROOT]`; empty: the in-process stand-in of a single broker.
        listen: where to bind, `tcp://ADDRESS:PORT`; port 0: any that is free.
        advertise: where clients and peers reach it, `tcp://HOST:PORT`; empty: where it is bound (with the host's name
            for a wildcard).
        metrics: `ADDRESS:PORT` of the Prometheus page, port 0: any that is free; empty: none.
        log_level: debug, info, warning or error.
        log_format: auto (readable on a terminal, JSON otherwise), console or json.
        max_clock_offset_ms: a clock further from the mesh's than this hands its leaderships over; 1–60,000.
        disk_timeout_ms: a disk that takes nothing for this long while a write waits ends the broker, so that others
            take over; 5,000–3,600,000. A single broker waits for as long as it takes.
        hot_rows_total: waiting messages kept in memory over all partitions; 64–16,777,216.
        store: the kind of store that keeps everything: leveldb, memory, or one that another package brings. In `memory`
            nothing survives the process: a broker that starts again catches up from the others.
        store_memory_bytes: how much a store in memory may hold, as it counts; from 16 MiB.
        secrets_key: keys that seal the secrets of endpoints for the coordinator, with commas between them: the base64
            of 32 bytes each, the newest first. Empty: they are kept as they are.
        secrets_key_file: a file with such keys, one a line.
    """

    id: str
    data: Path | None = None
    zookeeper: str = ""
    listen: str = "tcp://127.0.0.1:7400"
    advertise: str = ""
    metrics: str = ""
    log_level: str = "info"
    log_format: str = "auto"
    max_clock_offset_ms: int = limits.MAX_CLOCK_OFFSET_MS
    disk_timeout_ms: int = limits.DISK_TIMEOUT_MS
    hot_rows_total: int = limits.HOT_ROWS_TOTAL
    store: str = DEFAULT
    store_memory_bytes: int = limits.STORE_MEMORY_BYTES
    secrets_key: str = field(default="", repr=False)
    secrets_key_file: Path | None = None

    def __post_init__(self) -> None:
        """Check every value.

        Raises:
            InvalidRequest: naming the setting, its value and what it may be.
        """
        if not _NAME.fullmatch(self.id):
            raise InvalidRequest(f"id has 1 to 64 characters of A-Z a-z 0-9 . _ -, not {self.id!r}")
        if is_durable(self.store) and self.data is None:
            raise InvalidRequest("the setting 'data' is missing")
        _within("store_memory_bytes", self.store_memory_bytes, _STORE_MEMORY)
        _endpoint("listen", self.listen, port_min=0)
        if self.advertise:
            _endpoint("advertise", self.advertise, port_min=1)
            if self.advertise.removeprefix("tcp://").rpartition(":")[0] in WILDCARDS:
                raise InvalidRequest(f"advertise is what others connect to, not {self.advertise!r}")
        if self.metrics:
            _address("metrics", self.metrics, "ADDRESS:PORT", self.metrics, port_min=0)
        _one_of("log_level", self.log_level, ("debug", "info", "warning", "error"))
        _one_of("log_format", self.log_format, ("auto", "console", "json"))
        _within("max_clock_offset_ms", self.max_clock_offset_ms, _OFFSET_MS)
        _within("disk_timeout_ms", self.disk_timeout_ms, _DISK_MS)
        _within("hot_rows_total", self.hot_rows_total, _HOT_ROWS)

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
        settings = {} if file is None else _read(file)
        variables = _from_environment(os.environ if environment is None else environment)
        settings |= variables
        settings |= {name: value for name, value in flags.items() if value is not None}
        known = {each.name: each for each in fields(cls)}
        for name in settings:
            if name not in known:
                where = f" ({_PREFIX}{name.upper()} in the environment)" if name in variables else ""
                raise InvalidRequest(f"there is no setting {name!r}{where}; there are {', '.join(known)}")
        for name, each in known.items():
            if name not in settings and each.default is MISSING:
                raise InvalidRequest(f"the setting {name!r} is missing")
        return cls(**{name: _typed(name, str(known[name].type), value) for name, value in settings.items()})


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidRequest(f"the configuration file {file} cannot be read: {error}") from error


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    return {
        name.removeprefix(_PREFIX).lower(): value
        for name, value in environment.items()
        if name.startswith(_PREFIX) and name not in _OTHERS and not _SERVICE_LINK.fullmatch(name)
    }


def _typed(name: str, wanted: str, value: Any) -> Any:
    """Make a setting of what a file, a variable or a flag gives; a number may come as text, nothing else differs."""
    if wanted == "int":
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, str) and re.fullmatch(r"\d{1,18}", value.strip()):
            return int(value)
        raise InvalidRequest(f"{name} is a whole number, not {value!r}")
    if not isinstance(value, str | Path):
        raise InvalidRequest(f"{name} is a text, not {value!r}")
    if not wanted.startswith("Path"):
        return str(value)
    if not str(value):  # as a Path it would be the working directory
        raise InvalidRequest(f"{name} is a path, not nothing")
    return Path(value)


def _endpoint(name: str, value: str, port_min: int) -> None:
    address = value.removeprefix("tcp://") if value.startswith("tcp://") else ""
    _address(name, value, "tcp://ADDRESS:PORT", address, port_min)


def _address(name: str, value: str, form: str, address: str, port_min: int) -> None:
    """Check `address`, the part of `value` that is an address and a port."""
    found = _ADDRESS.fullmatch(address)
    port = int(found["port"]) if found else -1
    if not port_min <= port <= 65_535:
        raise InvalidRequest(f"{name} is {form} with a port of {port_min} to 65535, not {value!r}")


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InvalidRequest(f"{name} is one of {', '.join(allowed)}, not {value!r}")


def _within(name: str, value: int, allowed: range) -> None:
    if value not in allowed:
        raise InvalidRequest(f"{name} is {allowed[0]} to {allowed[-1]}, not {value}")
