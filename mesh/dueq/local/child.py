"""One broker as a child process that cannot outlive its parent."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dueq.lifeline import child_environment

_TAIL_BYTES = 4096


@dataclass
class BrokerChild:
    """A broker process of a local mesh; start, kill and start again at will.

    Attributes:
        broker_id: as in `dueq broker --id`.
        endpoint: where clients and peers reach it, `tcp://host:port`.
        metrics: `host:port` of its metrics page.
        data: its data folder.
        log: the file that gets its standard error, appended.
        arguments: further arguments of `dueq broker`.
        durable: whether it keeps anything in its data folder.
    """

    broker_id: str
    endpoint: str
    metrics: str
    data: Path
    log: Path
    arguments: Sequence[str] = ()
    durable: bool = True
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    _log_from: int = field(default=0, repr=False)

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
        """The exit status, as `subprocess.Popen.returncode`; None while it runs or before its first start."""
        return self._process.poll() if self._process else None

    def start(self) -> None:
        """Start the process; returns at once, long before the broker serves.

        Raises:
            OSError: the process cannot be started.
        """
        assert not self.running, f"{self.broker_id} runs already as {self.pid}"
        if self.durable:
            self.data.mkdir(parents=True, exist_ok=True)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._log_from = log.tell()
            # A session of its own: Ctrl-C at the terminal is for the supervisor, which stops all in order.
            self._process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=child_environment(), start_new_session=True,
            )  # fmt: skip

    def command(self) -> list[str]:
        """The command line of the process."""
        data = ["--data", str(self.data)] if self.durable else []
        return [
            sys.executable, "-m", "dueq.cli.main", "broker", "--id", self.broker_id,
            "--listen", self.endpoint, "--advertise", self.endpoint, *data,
            "--metrics", self.metrics, *self.arguments,
        ]  # fmt: skip

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if the process is there."""
        if self._process is not None and self.running:
            self._process.send_signal(number)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the process to end.

        Args:
            timeout: seconds; None for ever.

        Returns:
            Whether it has ended.
        """
        if self._process is None:
            return True
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """End the process with SIGKILL and wait until it is gone."""
        self.send(signal.SIGKILL)
        self.wait()

    def log_tail(self, lines: int = 8) -> str:
        """Return the last lines that the broker has said since its last start."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(self._log_from, self.log.stat().st_size - _TAIL_BYTES))
                text = log.read().decode("utf-8", "replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-lines:])
