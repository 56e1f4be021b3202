"""Whether threads are at work, however they begin and wait while somebody looks."""

from __future__ import annotations

import threading
from typing import Any

from dueq.testing.threads import Threads


def test_work_that_is_handed_over_while_somebody_looks_is_seen() -> None:
    """The thread that hands it over waits before it is looked at itself, and nobody has begun the work yet."""
    threads = Threads(lambda: 0)

    class Late(dict[int, Any]):
        def items(self) -> Any:
            if not self:
                self[0] = "handed over"
                threads.hand_over("work")
            return {}.items()

    threads._waiters = Late()
    assert threads._busy() is threading.current_thread()
