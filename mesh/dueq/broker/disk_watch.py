"""Notices a disk that does not answer: a group commit that is under way look after look, and nothing is written.

The writer also asks how much space is free, before commits. A file system that is gone holds that up, too, so it counts
as a commit here.

The kernel may hold a write back for ever. That raises no error, and nothing can end it. Meanwhile the broker would keep
its leaderships, and commit nothing (CockroachDB ends a node whose disk is stalled for the same reason). A disk that is
only slow goes on taking what LevelDB compacts: to end the broker would make that worse.

Only what passes between looks counts, and of a long gap only its beginning: a process that was paused learns nothing
about its disk.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

_GAP_US: Final = 4_000_000
"""Looks are a second apart, and up to so much under load."""
_SLOW_US: Final = 5_000_000
_PROGRESS_BYTES: Final = 1 << 16
"""More than the lines of a log that may lie on another disk."""
_COUNTERS: Final = Path("/proc/self/io")
_WRITTEN: Final = "write_bytes:"


def bytes_written() -> int:
    """Return how many bytes this process has given to disks (proc(5)); 0 where the kernel does not say."""
    try:
        lines = _COUNTERS.read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.removeprefix(_WRITTEN)) for line in lines if line.startswith(_WRITTEN)), 0)


class DiskWatch:
    """Watches the group commits of one broker.

    Args:
        timeout_us: how long a commit may take while nothing is written; 0: as long as it likes, since nobody could take
            over.
        log: for what is seen.
        written: how many bytes the disks were given by now.
    """

    def __init__(
        self,
        timeout_us: int,
        log: structlog.stdlib.BoundLogger,
        written: Callable[[], int] = bytes_written,
    ) -> None:
        self._timeout_us, self._log, self._written = timeout_us, log, written
        self._commit = self._looked_us = self._bytes = 0
        self._waited_us = self._still_us = 0
        self._is_slow = False

    def look(self, commit: int, mono_us: int) -> str:
        """Return why the broker has to end; "" if it need not.

        Args:
            commit: the number of the commit that is under way; 0: none is.
            mono_us: now.
        """
        gap_us = min(mono_us - self._looked_us, _GAP_US)
        goes_on = bool(commit) and commit == self._commit
        self._commit, self._looked_us = commit, mono_us
        if not goes_on:
            self._waited_us, self._is_slow = 0, False
            return ""
        self._still_us = 0 if self._has_progress() or not self._waited_us else self._still_us
        self._waited_us += gap_us
        self._still_us += gap_us
        if self._timeout_us and self._still_us >= self._timeout_us:
            return f"the disk has not answered for {self._still_us / 1e6:.1f} s"
        if self._waited_us >= _SLOW_US and not self._is_slow:
            self._is_slow = True
            self._log.warning("disk.slow", waited_s=round(self._waited_us / 1e6, 1))
        return ""

    def _has_progress(self) -> bool:
        """Whether more has been written since the last time that this was so."""
        written = self._written()
        if written < self._bytes + _PROGRESS_BYTES:
            return False
        self._bytes = written
        return True
