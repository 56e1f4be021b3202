"""A real ZooKeeper on this machine, from the jars that PySpark ships.

For local meshes and tests. A production server is not the product's business.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from dueq.errors import DueqError
from dueq.ports import free_ports, is_free

_HOST: Final = "127.0.0.1"
_MAIN: Final = "org.apache.zookeeper.server.ZooKeeperServerMain"
_PURGE: Final = "org.apache.zookeeper.server.PurgeTxnLog"
_JARS: Final = (
    "zookeeper-[0-9]*.jar",
    "zookeeper-jute-*.jar",
    "slf4j-api-*.jar",
    "metrics-core-*.jar",
    "snappy-java-*.jar",
    "log4j-api-*.jar",
    "log4j-core-*.jar",
    "log4j-slf4j2-impl-*.jar",
)
_JAVA_OPTIONS: Final = (
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.apache.logging.log4j.level=WARN",
)
_CONFIG: Final = "zoo.cfg"
_DATA: Final = "./data"
"""As seen from the server's folder, in which it runs: Java reads a configuration in an encoding of its own."""
_INSTEAD: Final = "or do without ZooKeeper: `dueq up --brokers 1 --no-zookeeper`"
_POLL_S: Final = 0.02
_TERM_S: Final = 5.0
_LOGS_KEPT: Final = 16

# The child asks the kernel to be killed with its parent, makes sure that the parent did not die before the
# question, and only then becomes Java. Done after exec, because a forked child of a threaded process must not
# run Python before it (the locks of the other threads stay locked for ever).
_LAUNCH: Final = (
    "import ctypes,os,signal,sys\n"
    "ctypes.CDLL(None).prctl(1,signal.SIGKILL,0,0,0)\n"
    "os.getppid()==int(sys.argv[1]) or sys.exit(1)\n"
    "os.execv(sys.argv[2],sys.argv[2:])\n"
)


class ZooKeeperServerError(DueqError):
    """The local ZooKeeper cannot be started; the text says what to do."""


class ZooKeeperServer:
    """One ZooKeeper process with its data in a folder; start it again on the folder and it goes on.

    The process dies with the one that started it, also on SIGKILL. The kernel means the *thread* that called
    `start` (prctl(2), PR_SET_PDEATHSIG): call it from a thread that lives as long as the server must.

    Attributes:
        folder: holds the configuration, the data, `zookeeper.log`, and the port that was used last.
    """

    def __init__(self, folder: str | Path, port: int = 0) -> None:
        """Choose folder and port; nothing is started yet.

        Args:
            folder: made when it is not there.
            port: of 127.0.0.1; 0 for the one used last on this folder if it is free, else any free one.
        """
        self.folder = Path(folder).absolute()
        self._wanted_port = port
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None
        self._log_from = 0

    @property
    def address(self) -> str:
        """`host:port` for clients."""
        return f"{_HOST}:{self._port}"

    @property
    def pid(self) -> int:
        """The process id, 0 while it does not run."""
        return self._process.pid if self._process is not None else 0

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> Path:
        """The file that gets what the server says."""
        return self.folder / "zookeeper.log"

    def start(self, timeout_s: float = 120.0) -> None:
        """Start the server and return once it serves clients.

        Args:
            timeout_s: seconds within which it must serve.

        Raises:
            ZooKeeperServerError: there is no Java or no PySpark, the port is taken, the folder cannot be written, the
                process ended, or time ran out; nothing is left running.
        """
        assert not self.running, f"this ZooKeeper runs already as {self.pid}"
        try:
            self._start(timeout_s)
        except OSError as error:
            self.kill()
            raise ZooKeeperServerError(f"the folder {self.folder} cannot be used: {error}") from error

    def _start(self, timeout_s: float) -> None:
        java, classpath = _java(), _classpath()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._port = self._choose_port()
        self._write_config()
        if len(list((self.folder / "data" / "version-2").glob("log.*"))) > _LOGS_KEPT:
            # A standalone server never purges by itself.
            self._launch([java, "-cp", classpath, _PURGE, _DATA, _DATA, "-n", "3"]).wait()
        self._process = self._launch([java, *_JAVA_OPTIONS, "-cp", classpath, _MAIN, f"./{_CONFIG}"])
        try:
            self._wait_until_serving(timeout_s)
        except BaseException:
            self.kill()
            raise
        (self.folder / "port").write_text(f"{self._port}\n", encoding="ascii")

    def stop(self) -> None:
        """End the server, also a paused one; returns when the process is gone. May be called again."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        self._process.send_signal(signal.SIGCONT)
        try:
            self._process.wait(_TERM_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def kill(self) -> None:
        """End the server with SIGKILL; returns when the process is gone. May be called again."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Stop the server in its tracks (SIGSTOP); when this returns, none of its threads runs."""
        assert self._process is not None, "this ZooKeeper does not run"
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Let the server go on after `pause`."""
        assert self._process is not None, "this ZooKeeper does not run"
        self._process.send_signal(signal.SIGCONT)

    # ------------------------------------------------------------ inside

    def _launch(self, command: list[str]) -> subprocess.Popen[bytes]:
        launcher = [sys.executable, "-I", "-S", "-c", _LAUNCH, str(os.getpid()), *command]
        with self.log.open("ab") as log:
            self._log_from = log.tell()
            # A session of its own: Ctrl-C at the terminal is for the supervisor, which stops all in order.
            return subprocess.Popen(
                launcher,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
            )

    def _choose_port(self) -> int:
        if self._wanted_port:
            if not is_free(self._wanted_port):
                raise ZooKeeperServerError(
                    f"port {self._wanted_port} of {_HOST} is in use: choose another one"
                )
            return self._wanted_port
        try:
            last = int((self.folder / "port").read_text(encoding="ascii"))
        except (OSError, ValueError):
            last = 0
        return last if last and is_free(last) else free_ports(1)[0]

    def _write_config(self) -> None:
        lines = (
            "tickTime=500",
            f"dataDir={_DATA}",
            f"clientPortAddress={_HOST}",
            f"clientPort={self._port}",
            "minSessionTimeout=500",
            "maxSessionTimeout=60000",
            "maxClientCnxns=0",
            "admin.enableServer=false",
            "4lw.commands.whitelist=ruok,srvr",
            "autopurge.snapRetainCount=3",
            "autopurge.purgeInterval=1",
            "preAllocSize=1024",
        )
        (self.folder / _CONFIG).write_text("".join(f"{line}\n" for line in lines), encoding="ascii")

    def _wait_until_serving(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while True:
            serves = _serves(self._port)
            if not self.running:
                raise ZooKeeperServerError(
                    f"ZooKeeper ended at its start; {self.log} says:\n{self._log_tail()}"
                )
            if serves:
                return
            if time.monotonic() > deadline:
                raise ZooKeeperServerError(
                    f"ZooKeeper did not serve {self.address} within {timeout_s:g} s; {self.log} says:\n"
                    f"{self._log_tail()}"
                )
            time.sleep(_POLL_S)

    def _log_tail(self) -> str:
        """Return what it has said last, since it was started last."""
        with self.log.open("rb") as log:
            log.seek(self._log_from)
            lines = log.read().decode("utf-8", "replace").splitlines()
        return "\n".join([line for line in lines if line.strip() and not line.startswith("\tat ")][-8:])


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=os.path.join(home, "bin")) if home else None
    found = found or shutil.which("java")
    if found is None:
        raise ZooKeeperServerError(
            "a local ZooKeeper needs Java, and there is no `java` on the PATH or in JAVA_HOME: "
            f"`apt-get install default-jre-headless`, {_INSTEAD}"
        )
    return found


def _classpath() -> str:
    """Return the jars that the server needs, out of the hundreds that PySpark ships."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise ZooKeeperServerError(
            "a local ZooKeeper is started from the jars that PySpark ships, and PySpark is not installed: "
            f"`pip install 'dueq[spark]'`, {_INSTEAD}"
        )
    folder = Path(spec.submodule_search_locations[0]) / "jars"
    jars: list[Path] = []
    for pattern in _JARS:
        found = sorted(folder.glob(pattern))
        if not found:
            raise ZooKeeperServerError(
                f"the PySpark in {folder.parent} ships no {pattern}: `pip install --force-reinstall pyspark`, "
                f"{_INSTEAD}"
            )
        jars += found
    return os.pathsep.join(map(str, jars))


def _serves(port: int) -> bool:
    """Ask the server for its state; it answers `ruok` long before it serves, so that is not enough."""
    try:
        with socket.create_connection((_HOST, port), timeout=1.0) as connection:
            connection.sendall(b"srvr")
            return connection.recv(64).startswith(b"Zookeeper version")
    except OSError:
        return False
