"""A process's dealings with its files, from the record that strace(1) keeps of its system calls.

Each thread has a file of its own (`-ff`), so no line is cut in two. `-ttt -T` say when a call began and how long it
took. `-y` names its file, and `-xx` shows the written bytes.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

CALLS = (
    "openat", "write", "writev", "pwrite64", "fsync", "fdatasync", "rename", "renameat", "renameat2", "unlink",
    "unlinkat", "ftruncate", "truncate", "mkdir", "mkdirat",
)  # fmt: skip
"""System calls that change files, and those that make the changes durable."""
_BYTES_MAX = 1 << 22
_TRY_S = 20
_LINE = re.compile(
    r"^(?P<at>\d+\.\d+) (?P<name>\w+)\((?P<args>.*)\) = (?P<result>-?\d+)\S*.* <(?P<took>[\d.]+)>$"
)
_STRING = re.compile(r'(?:"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?|<((?:\\x[0-9a-f]{2})+)>)')


@dataclass(frozen=True)
class Call:
    """One system call that succeeded.

    Attributes:
        began_us, done_us: when, Unix µs.
        thread: number of the thread.
        name: one of CALLS.
        paths: the files that it names or goes to, in order.
        data: the written bytes.
        flags: the text of its other arguments.
        result: what it returned.
    """

    began_us: int
    done_us: int
    thread: int
    name: str
    paths: tuple[str, ...]
    data: bytes
    flags: str
    result: int

    @property
    def is_sync(self) -> bool:
        """Whether it makes something durable."""
        return self.name in ("fsync", "fdatasync")

    @property
    def wakes(self) -> bool:
        """Whether it tells another thread that something has come (see `broker.inbox`)."""
        return self.name == "write" and any("eventfd" in path for path in self.paths)


def available() -> bool:
    """Whether there is an strace, and this machine lets it trace."""
    if shutil.which("strace") is None:
        return False
    tried = ["strace", "-f", "--seccomp-bpf", "-o", os.devnull, "true"]
    return subprocess.run(tried, capture_output=True, timeout=_TRY_S, check=False).returncode == 0


def attachable() -> bool:
    """Whether an strace may trace a process that it has not started (see ptrace_scope of the Yama module)."""
    if not available():
        return False
    with subprocess.Popen(["sleep", str(_TRY_S)]) as other:
        tried = ["strace", "-o", os.devnull, "-p", str(other.pid)]
        with subprocess.Popen(tried, stderr=subprocess.PIPE, text=True) as strace:
            assert strace.stderr is not None
            said = strace.stderr.readline()
            strace.kill()
        other.kill()
    return "attached" in said


def command(record: Path, *what: str) -> list[str]:
    """Return the command that runs `what` and keeps its record in files that begin with `record`.

    It is strace that ends when `what` has ended, and that heeds no SIGTERM: see `pid_of`.
    """
    options = ["-ff", "--seccomp-bpf", "-y", "-T", "-ttt", "-xx", "-s", str(_BYTES_MAX)]
    return ["strace", *options, "-e", f"trace={','.join(CALLS)}", "-o", str(record), *what]


def pid_of(record: Path) -> int:
    """Return the process that is being recorded: its threads came later."""
    return min(int(file.suffix[1:]) for file in record.parent.glob(f"{record.name}.*"))


def read(record: Path, folder: Path) -> list[Call]:
    """Return all calls that concern files of a folder, or wake another thread, in the order in which they began."""
    calls: list[Call] = []
    for file in record.parent.glob(f"{record.name}.*"):
        with file.open(encoding="ascii") as lines:
            calls += _concerning(lines, str(folder), int(file.suffix[1:]))
    return sorted(calls, key=lambda call: call.began_us)


def _concerning(lines: Iterable[str], folder: str, thread: int) -> Iterator[Call]:
    needle, wake = _hex(folder), _hex("eventfd")
    for line in lines:
        if needle in line or wake in line:
            found = _LINE.match(line.rstrip())
            if found is not None and int(found["result"]) >= 0:
                yield _call(found, thread)


def _hex(text: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in text.encode())


def _call(found: re.Match[str], thread: int) -> Call:
    name, arguments = found["name"], found["args"]
    strings = [
        (bytes.fromhex((literal or path or "").replace("\\x", "")), bool(path), bool(cut))
        for literal, cut, path in _STRING.findall(arguments)
    ]
    writes = name in ("write", "writev", "pwrite64")
    data = b"".join(text for text, is_path, _ in strings if writes and not is_path)
    if any(cut for *_, cut in strings):
        raise ValueError(f"a {name} of more than {_BYTES_MAX} bytes was recorded in part")
    paths = tuple(text.decode() for text, is_path, _ in strings if is_path or not writes)
    began_us = int(found["at"].replace(".", ""))
    took_us = int(found["took"].replace(".", ""))
    return Call(
        began_us,
        began_us + took_us,
        thread,
        name,
        paths,
        data,
        _STRING.sub("", arguments),
        int(found["result"]),
    )
