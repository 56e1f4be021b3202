"""What both faces need to run a handler over messages: its result, its reasons, the signals that end it."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from dueq import limits
from dueq.client.message import BaseMessage
from dueq.errors import InvalidRequest
from dueq_codecs.records import REASON_BYTES_MAX

LOOK_S: Final = 0.25
"""A signal only leaves a note, since it may interrupt whoever holds a lock; the note is read this often."""
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_notes: Final[list[Callable[[], None]]] = []
"""Of all runs in the main thread, where several may go on in one loop."""
_before: Final[dict[signal.Signals, Any]] = {}
"""The handlers that were there when the first of them began."""


class Handled(NamedTuple):
    """What became of the messages of a run.

    Attributes:
        handled: their handler returned.
        failed: their handler raised something.
        released: given back unfinished when the time to drain was over.
    """

    handled: int
    failed: int
    released: int


class Work:
    """One message in the hands of a handler."""

    __slots__ = ("begun_us", "extend_us", "message", "name_us")

    def __init__(self, message: BaseMessage, now_us: int, lease_us: int) -> None:
        self.message = message
        self.begun_us = now_us
        self.extend_us = now_us + int(message.lease * 1e6) - lease_us // 2
        self.name_us = now_us + limits.HANDLER_SLOW_MS * 1000


def check_callable(handler: object) -> None:
    """Refuse what nobody can call.

    Raises:
        InvalidRequest: the handler is no function or the like, or one of which nothing runs when it is called.
    """
    if not callable(handler):
        raise InvalidRequest(f"a handler is a function that takes a message, not {handler!r:.80}")
    for called in (handler, type(handler).__call__):
        flags: int = getattr(getattr(called, "__code__", None), "co_flags", 0)
        if flags & inspect.CO_ITERABLE_COROUTINE:  # what types.coroutine returns is awaited
            continue
        if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
            name = getattr(handler, "__qualname__", repr(handler))
            raise InvalidRequest(f"{name} is a generator function: to call it runs nothing of it")


def refuse_tasks(handler: Callable[..., object]) -> None:
    """Refuse what a thread cannot call.

    Raises:
        InvalidRequest: the handler is a coroutine function.
    """
    if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__):
        name = getattr(handler, "__qualname__", repr(handler))
        raise InvalidRequest(f"{name} is a coroutine function: threads cannot run it, AsyncClient can")


def refuse_unrun(result: object) -> None:
    """Refuse what a handler has returned in place of doing it: a message would be acked that nobody has worked on.

    Raises:
        InvalidRequest: it is something to be awaited, or a generator.
    """
    if inspect.iscoroutine(result):
        name = result.__qualname__
        result.close()
        raise InvalidRequest(
            f"the handler has returned a coroutine of {name}: threads cannot run it, AsyncClient can"
        )
    done = isinstance(result, asyncio.Future) and result.done()
    if inspect.isawaitable(result) and not done:
        raise InvalidRequest(f"the handler has returned {result!r:.80}, which nobody awaits")
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise InvalidRequest(f"the handler has returned {result!r:.80}, of which nothing has run")


def reason_of(error: BaseException) -> str:
    """Return an exception's type and message, as long as a reason may be."""
    try:
        said = str(error)
    except Exception:  # its own __str__ is broken
        said = ""
    text = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return text.encode(errors="replace")[:REASON_BYTES_MAX].decode(errors="ignore")


@contextmanager
def ending_signals(note: Callable[[], None]) -> Iterator[float | None]:
    """Call `note` at SIGTERM and SIGINT; nothing in other threads than the main one.

    Yields:
        How often somebody must look for a note, seconds; None: there will be none.
    """
    if threading.current_thread() is not threading.main_thread():
        yield None
        return
    _notes.append(note)
    if len(_notes) == 1:
        for number in _SIGNALS:
            _before[number] = signal.getsignal(number)
            signal.signal(number, _note_all)
    try:
        yield LOOK_S
    finally:
        if note in _notes:  # in a forked process there is none
            _notes.remove(note)
            if not _notes:
                _put_back()


def _put_back() -> None:
    for number, old in _before.items():
        signal.signal(number, signal.SIG_DFL if old is None else old)


def _leave_behind() -> None:
    """In a forked process, such as a worker of multiprocessing, nobody looks for notes: a signal must end it."""
    if _notes:
        _notes.clear()
        _put_back()


os.register_at_fork(after_in_child=_leave_behind)


def _note_all(_number: int, _frame: object) -> None:
    for note in list(_notes):
        note()
