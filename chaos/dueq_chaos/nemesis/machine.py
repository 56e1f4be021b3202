"""The faults that this machine allows, found out by trying."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from glob import glob
from pathlib import Path
from tempfile import TemporaryDirectory

_FAKETIME = (
    "/usr/lib/*/faketime/libfaketimeMT.so.1",
    "/usr/lib*/faketime/libfaketimeMT.so.1",
    "/usr/local/lib*/faketime/libfaketimeMT.so.1",
)
_TRY_S = 10


def faketime_library() -> str:
    """The path of libfaketime for threaded programs; empty when it is not installed."""
    return next((found for pattern in _FAKETIME for found in sorted(glob(pattern))), "")


def no_clocks() -> str:
    """Why clocks cannot be set here; empty when they can."""
    library = faketime_library()
    if not library:
        return "libfaketime is not installed (Debian package faketime)"
    script = "import time; print(time.time() < 1e9, time.monotonic() > 0)"
    tried = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ
        | {"LD_PRELOAD": library, "FAKETIME": "2001-01-01 00:00:00", "FAKETIME_DONT_FAKE_MONOTONIC": "1"},
        capture_output=True, text=True, timeout=_TRY_S, check=False,
    )  # fmt: skip
    return "" if tried.stdout.strip() == "True True" else f"{library} does not work with {sys.executable}"


def no_small_disks() -> str:
    """Why a small disk cannot be mounted here; empty when it can."""
    if os.geteuid() != 0:
        return "mounting a small disk (tmpfs) needs root"
    with TemporaryDirectory() as folder:
        tried = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m", "dueq-try", folder],
            capture_output=True, text=True, timeout=_TRY_S, check=False,
        )  # fmt: skip
        if tried.returncode:
            return f"mounting a tmpfs fails: {tried.stderr.strip()}"
        subprocess.run(["umount", folder], check=True, timeout=_TRY_S)
    return ""


def no_proxies() -> str:
    """Why the proxy cannot tell who speaks here; empty when it can."""
    return (
        "" if Path("/proc/net/tcp").exists() else "there is no /proc/net/tcp to see who opened a connection"
    )


def no_namespaces() -> str:
    """Why brokers cannot have network namespaces of their own here; empty when they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "`ip` is not installed (Debian package iproute2)"
    name = f"dueq-try-{os.getpid()}"
    commands = (
        ["ip", "netns", "add", name],
        [
            "ip",
            "link",
            "add",
            f"dqt{os.getpid() % 10**6}",
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            name,
        ],
        ["ip", "-n", name, "link", "set", "eth0", "up"],
    )
    try:
        for command in commands:
            tried = subprocess.run(command, capture_output=True, text=True, timeout=_TRY_S, check=False)
            if tried.returncode:
                return f"`{' '.join(command)}` fails: {tried.stderr.strip()}"
    finally:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=_TRY_S, check=False)
    return ""


def impossible_kinds(reasons: Mapping[str, str], needs: Mapping[str, str]) -> dict[str, str]:
    """Return the kinds of faults that cannot be had, each with the reason.

    Args:
        reasons: by need: why it cannot be met, empty when it can.
        needs: by kind of fault: its need, empty for none.
    """
    return {kind: reasons[need] for kind, need in needs.items() if need and reasons[need]}
