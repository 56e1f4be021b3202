"""How runs end: in a forked process, in a cancelled task, while handlers come to their end."""

from __future__ import annotations

import os
import signal

from dueq.client.handling import ending_signals


def test_a_process_that_a_handler_has_forked_ends_by_sigterm() -> None:
    """Such as a worker of multiprocessing: who ends that waits until it has ended."""
    with ending_signals(lambda: None):
        told, tell = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(tell, b"x")
            signal.pause()
            os._exit(0)
        os.read(told, 1)
        os.kill(child, signal.SIGTERM)
        _, status = os.waitpid(child, 0)
        os.close(told)
        os.close(tell)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGTERM
