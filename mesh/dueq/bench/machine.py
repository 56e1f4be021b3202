"""The machine on which the figures were measured."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from dueq import __version__

_PACKAGES = ("pyzmq", "plyvel", "plyvel-next", "numpy", "kazoo", "pyspark")
_IN_MEMORY = frozenset({"tmpfs", "ramfs"})
_JAVA_S = 10.0


@dataclass(frozen=True)
class Machine:
    """Facts for the header of a report.

    Attributes:
        system: kernel and architecture.
        processor: its model.
        cores: how many this process may use.
        memory_bytes: of the machine.
        load: of the machine in the minute before the run.
        python: implementation and version.
        packages: versions by name.
        java: version of the Java that ZooKeeper runs on; "" when there is none.
        folder: where the data lies.
        filesystem: its type.
    """

    system: str
    processor: str
    cores: int
    memory_bytes: int
    load: float
    python: str
    packages: dict[str, str]
    java: str
    folder: str
    filesystem: str

    @classmethod
    def find(cls, folder: Path) -> Machine:
        """Look at this machine, and at the filesystem of a folder."""
        pages, page_bytes = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
        return cls(
            system=f"{platform.system()} {platform.release()} {platform.machine()}",
            processor=_processor(),
            cores=len(os.sched_getaffinity(0)),
            memory_bytes=pages * page_bytes,
            load=round(os.getloadavg()[0], 2),
            python=f"{platform.python_implementation()} {platform.python_version()}",
            packages=_packages(),
            java=_java(),
            folder=str(folder),
            filesystem=filesystem_of(folder, Path("/proc/mounts").read_text(encoding="utf-8").splitlines()),
        )

    def lines(self) -> list[str]:
        """The header of a report."""
        packages = ", ".join(f"{name} {number}" for name, number in self.packages.items())
        lines = [
            f"{self.cores} cores of {self.processor}, {self.memory_bytes / 2**30:.0f} GiB, {self.system}, "
            f"load before the run {self.load:.2f}",
            f"{self.python}; {packages}; Java {self.java or 'none'}",
            f"data on {self.filesystem} ({self.folder})",
        ]
        if self.filesystem in _IN_MEMORY:
            lines.append("NOTE: this filesystem is in memory: syncing costs nothing here, unlike on any disk")
        if self.load > self.cores / 2:
            lines.append("NOTE: the machine was busy with something else before the run")
        return lines

    def document(self) -> dict[str, Any]:
        """All fields, fit for JSON."""
        return asdict(self)


class Processor(NamedTuple):
    """Processor time of all cores since the machine began, in the kernel's ticks.

    Attributes:
        used: by whatever ran here.
        stolen: in which something here was ready to run, and the host ran another machine.
    """

    used: int
    stolen: int

    @classmethod
    def read(cls, first_line: str) -> Processor:
        """Understand the first line of `/proc/stat` (proc_stat(5))."""
        user, nice, system, _, _, irq, softirq, stolen, *_ = map(int, first_line.split()[1:])
        return cls(user + nice + system + irq + softirq, stolen)

    @classmethod
    def now(cls) -> Processor:
        """How much it is now."""
        with Path("/proc/stat").open(encoding="utf-8") as file:
            return cls.read(file.readline())

    def stolen_since(self, earlier: Processor) -> float:
        """Return the share of the wanted processor time since then that the host gave to others, 0 to 1."""
        stolen = self.stolen - earlier.stolen
        wanted = self.used - earlier.used + stolen
        return stolen / wanted if wanted else 0.0


def filesystem_of(folder: Path, mounts: Iterable[str]) -> str:
    """Return the type of the filesystem that holds a folder.

    Args:
        folder: an absolute path.
        mounts: lines as in `/proc/mounts`; of two for one place the later counts.
    """
    found, length = "unknown", -1
    for line in mounts:
        _, place, kind, *_ = line.split(" ")
        place = place.replace("\\040", " ")
        if folder.is_relative_to(place) and len(place) >= length:
            found, length = kind, len(place)
    return found


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.processor() or "unknown"


def _packages() -> dict[str, str]:
    found = {"dueq": __version__}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _java() -> str:
    try:
        said = subprocess.run(["java", "-version"], capture_output=True, text=True, timeout=_JAVA_S).stderr
    except (OSError, subprocess.TimeoutExpired):
        return ""
    quoted = said.split('"')
    return quoted[1] if len(quoted) > 2 else ""
