"""Child processes that cannot outlive their parent, even when it is killed with SIGKILL."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PARENT_VARIABLE = "DUEQ_PARENT_PID"
_PR_SET_PDEATHSIG = 1


def child_environment() -> dict[str, str]:
    """The environment for a `dueq` process that must die with this one."""
    return os.environ | {_PARENT_VARIABLE: str(os.getpid())}


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent dies, if the parent has asked for it.

    The child itself calls this first of all. The parent may have died since the fork. That shows in a changed parent
    id, so there is no gap. The kernel means the *thread* that started the child (prctl(2), PR_SET_PDEATHSIG): start
    children from a thread that lives as long as they must.
    """
    parent = os.environ.pop(_PARENT_VARIABLE, "")
    if not parent or not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(parent):
        raise SystemExit(1)
