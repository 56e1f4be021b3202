"""The gateway of a local mesh, as a child process."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException
from importlib.util import find_spec
from pathlib import Path

from dueq.lifeline import child_environment

_POLL_S = 0.05
_ATTEMPT_S = 2.0
_PACKAGES = ("fastapi", "fastapi_offline", "uvicorn", "websockets", "aiohttp", "cryptography")


def installed() -> bool:
    """Return whether the gateway's packages are there (`pip install 'dueq[gateway]'`)."""
    return all(find_spec(name) is not None for name in _PACKAGES)


class GatewayChild:
    """A gateway process that cannot outlive this one.

    Attributes:
        address: `HOST:PORT`.
        log: the file that gets what it says, appended.
        arguments: of `dueq gateway`, besides where it listens and its brokers.
    """

    def __init__(self, address: str, log: Path, arguments: Sequence[str] = ()) -> None:
        self.address, self.log, self.arguments = address, log, tuple(arguments)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where it is reached."""
        return f"http://{self.address}"

    @property
    def pid(self) -> int:
        """The process id, 0 while there has been none."""
        return self._process.pid if self._process else 0

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """How it ended; None while it runs, or before it was launched."""
        return self._process.poll() if self._process is not None else None

    def start(self, endpoints: Sequence[str], timeout: float) -> bool:
        """Start it, and return whether it answers in time (seconds)."""
        self.launch(endpoints)
        deadline = time.monotonic() + timeout
        while self.running and time.monotonic() < deadline:
            if self._answers():
                return True
            time.sleep(_POLL_S)
        return False

    def launch(self, endpoints: Sequence[str]) -> None:
        """Start it, and wait for nothing."""
        words = [sys.executable, "-m", "dueq.cli.main", "gateway", "--listen", self.address, *self.arguments]
        for endpoint in endpoints:
            words += ["--endpoint", endpoint]
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=child_environment(),
                start_new_session=True,
            )  # fmt: skip

    def stop(self, timeout: float) -> None:
        """End it: by SIGTERM, after `timeout` seconds by SIGKILL."""
        if self._process is None:
            return
        if self.running:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End it with SIGKILL."""
        if self._process is not None and self.running:
            self._process.kill()
            self._process.wait()

    def _answers(self) -> bool:
        connection = HTTPConnection(self.address, timeout=_ATTEMPT_S)
        try:
            connection.request("GET", "/healthz")
            return connection.getresponse().status == 200
        except (OSError, HTTPException):
            return False
        finally:
            connection.close()
