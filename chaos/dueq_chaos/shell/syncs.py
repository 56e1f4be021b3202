"""Whether a broker tells its loop that something is on the disk before it is: judged from its system calls."""

from __future__ import annotations

from collections.abc import Iterable

from dueq_chaos.shell.traced import Call


def judge(calls: Iterable[Call]) -> list[str]:
    """Return what is wrong.

    A thread that has written to a log of LevelDB's must have synced it before it wakes another thread, and payloads
    must be synced before records are written.

    Args:
        calls: of one process, in order.
    """
    wrong: list[str] = []
    unsynced: dict[int, dict[str, Call]] = {}
    for call in calls:
        mine = unsynced.setdefault(call.thread, {})
        if call.wakes:
            wrong += [f"{call.began_us}: said, and {path} was not synced" for path in mine]
        elif call.is_sync:
            mine.pop(call.paths[0], None)
        elif call.name == "write" and call.paths[0].endswith(".log"):
            if "/timeline/" in call.paths[0]:
                wrong += [
                    f"{call.began_us}: records were written, and {path} was not synced"
                    for path in mine
                    if "/payload/" in path
                ]
            mine[call.paths[0]] = call
    return wrong


def groups(calls: Iterable[Call]) -> int:
    """Return how often records were synced."""
    return sum(
        call.is_sync and "/timeline/" in call.paths[0] and call.paths[0].endswith(".log") for call in calls
    )
