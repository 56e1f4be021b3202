"""A broker whose surroundings can be tampered with."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dueq.local import BrokerChild
from dueq_chaos.nemesis.machine import faketime_library

_MOUNT_S = 10


@dataclass
class TamperedBroker(BrokerChild):
    """A broker behind a prefix: another environment, another network namespace; the process is the broker's own.

    Attributes:
        namespace: of the network; empty for this process's.
        variables: added to its environment.
        entry: the module that runs `dueq`.
    """

    namespace: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    entry: str = "dueq.cli.main"

    def command(self) -> list[str]:
        """See BrokerChild."""
        python, flag, _, *rest = super().command()
        inside = ["ip", "netns", "exec", self.namespace] if self.namespace else []
        settings = [f"{name}={value}" for name, value in self.variables.items()]
        return [*inside, "env", *settings, python, flag, self.entry, *rest]


class FalseClock:
    """A wall clock that can be set, by libfaketime; it looks at its file once a second."""

    def __init__(self, folder: Path, broker: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / broker
        self.set(0)

    @property
    def variables(self) -> dict[str, str]:
        """The environment of a process that must read this clock."""
        return {
            "LD_PRELOAD": faketime_library(),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            # Else waits for a condition until a monotonic instant (Python's GIL among them) come out far too long.
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
            "NO_FAKE_STAT": "1",
        }

    def set(self, ahead_s: float) -> None:
        """Set it ahead of the machine's clock by this many seconds."""
        partial = self._file.with_suffix(".partial")
        partial.write_text(f"{ahead_s:+.3f}\n", encoding="ascii")
        partial.replace(self._file)


class SmallDisk:
    """A disk of its own for one broker's data: a tmpfs, which needs root.

    Args:
        folder: where to mount it; made when it is not there.
        broker: whose it is.
        size_bytes: of the disk.

    Raises:
        subprocess.CalledProcessError: it cannot be mounted.
    """

    def __init__(self, folder: Path, broker: str, size_bytes: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        _run("mount", "-t", "tmpfs", "-o", f"size={size_bytes}", f"dueq-{broker}", str(folder))
        self.folder, self.broker, self._size = folder, broker, size_bytes
        self._filler = folder / "filler"

    @property
    def data(self) -> Path:
        """The broker's data folder on it."""
        return self.folder / "data"

    def fill(self, leave: float) -> None:
        """Fill it with a file of somebody else's.

        Args:
            leave: the share of the disk to leave free, 0–1.
        """
        rest = int(self._size * leave)
        block = bytes(1 << 16)
        with self._filler.open("ab", buffering=0) as file:
            try:
                while _free(self.folder) > rest:
                    file.write(block[: max(4096, min(len(block), _free(self.folder) - rest))])
            except OSError:
                return  # full to the last byte

    def empty(self) -> None:
        """Take that file away."""
        self._filler.unlink(missing_ok=True)

    def unmount(self) -> None:
        """Take the disk away with all that is on it."""
        _run("umount", "--lazy", str(self.folder))


def _free(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=_MOUNT_S)
