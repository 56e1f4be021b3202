"""Notices a disk that does not answer: a group commit that is under way look after look.

The kernel may hold a write back for ever. That raises no error, and nothing can end it. Meanwhile the broker would keep
its leaderships, and commit nothing (CockroachDB ends a node whose disk is stalled for the same reason).

Only what passes between looks counts, and of a long gap only its beginning: a process that was paused learns nothing
about its disk.
"""

from __future__ import annotations

from typing import Final

import structlog

_GAP_US: Final = 5_000_000
"""Looks are a second apart, and up to four under load."""
_SLOW_US: Final = 5_000_000


class DiskWatch:
    """Watches the group commits of one broker.

    Args:
        timeout_us: how long a commit may take; 0: as long as it likes, since nobody could take over.
        log: for what is seen.
    """

    def __init__(self, timeout_us: int, log: structlog.stdlib.BoundLogger) -> None:
        self._timeout_us, self._log = timeout_us, log
        self._commit = self._waited_us = self._looked_us = 0
        self._is_slow = False

    def look(self, commit: int, mono_us: int) -> str:
        """Return why the broker has to end; "" if it need not.

        Args:
            commit: the number of the commit that is under way; 0: none is.
            mono_us: now.
        """
        goes_on = commit and commit == self._commit
        self._waited_us = self._waited_us + min(mono_us - self._looked_us, _GAP_US) if goes_on else 0
        self._is_slow = self._is_slow and bool(goes_on)
        self._commit, self._looked_us = commit, mono_us
        if self._timeout_us and self._waited_us >= self._timeout_us:
            return f"the disk has not answered for {self._waited_us / 1e6:.1f} s"
        if self._waited_us >= _SLOW_US and not self._is_slow:
            self._is_slow = True
            self._log.warning("disk.slow", waited_s=round(self._waited_us / 1e6, 1))
        return ""
