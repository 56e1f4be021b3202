"""The cost of a process: memory, processor, disk."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_USER_TIME, _SYSTEM_TIME = 11, 12
"""Places in `/proc/PID/stat` behind the name of the program, which ends with the last parenthesis."""


def rss_anon_mb(pid: int) -> float:
    """The private memory of a living process, in MB (10⁶ bytes)."""
    return rss_anon_bytes(Path(f"/proc/{pid}/status").read_text(encoding="ascii")) / 1e6


def rss_anon_bytes(status: str) -> int:
    """The private memory of a process, from the text of its `/proc/PID/status`.

    Raises:
        ValueError: the text does not say.
    """
    for line in status.splitlines():
        name, _, value = line.partition(":")
        if name == "RssAnon":
            return int(value.split()[0]) * 1024
    raise ValueError("no RssAnon in the status of the process")


def peak_mb(word: str, below: int) -> float:
    """The most memory that one of some living processes has had (VmHWM), in MB; 0 without any.

    Args:
        word: is in the command of each.
        below: their ancestor's pid.
    """
    most = 0
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if word in (entry / "cmdline").read_text(errors="replace") and _is_below(int(entry.name), below):
                for line in (entry / "status").read_text().splitlines():
                    if line.startswith("VmHWM:"):
                        most = max(most, int(line.split()[1]) * 1024)
        except OSError:  # it has ended in between
            continue
    return most / 1e6


def _is_below(pid: int, ancestor: int) -> bool:
    while pid > 1 and pid != ancestor:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid == ancestor


def cpu_s(stat: str) -> float:
    """The processor time that a process has used, user and system, from the text of its `/proc/PID/stat`."""
    fields = stat.rpartition(")")[2].split()
    return (int(fields[_USER_TIME]) + int(fields[_SYSTEM_TIME])) / _TICKS_PER_S


def cpu_ms_per_s(pids: Sequence[int], seconds: float) -> list[float]:
    """Watch processes for this many seconds; returns what each used of the processor, in ms per second."""
    before, begun_s = [process_cpu_s(pid) for pid in pids], time.monotonic()
    time.sleep(seconds)
    elapsed_s = time.monotonic() - begun_s
    return [(process_cpu_s(pid) - used) / elapsed_s * 1e3 for pid, used in zip(pids, before, strict=True)]


def disk_bytes(folder: Path) -> int:
    """The space of the files below a folder on the disk, without the ballast that is kept for a full disk."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            if name != "ballast":
                total += _blocks(Path(place) / name) * 512
    return total


def _blocks(path: Path) -> int:
    """0 where a compaction has removed the file in between."""
    try:
        return path.stat().st_blocks
    except FileNotFoundError:
        return 0


def process_cpu_s(pid: int) -> float:
    """The processor time that a living process has used, user and system."""
    return cpu_s(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8"))
