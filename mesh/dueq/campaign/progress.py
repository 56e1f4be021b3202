"""A bar that shows how many messages the mesh has, while others load them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from dueq.errors import DueqError

if TYPE_CHECKING:
    from dueq import Client

_LOOK_S: Final = 1.0


@contextmanager
def loading_bar(client: Client, topic: str, job_id: str, messages: int, console: Console) -> Iterator[None]:
    """Show a bar while the block runs; it asks the mesh, so that it is about commits, not about Spark's tasks.

    Args:
        client: to ask with.
        topic, job_id: what is loaded.
        messages: how many there will be.
        console: where to draw; nothing is drawn if it is no terminal.
    """
    if not console.is_terminal:
        yield
        return

    def left() -> int | None:
        info = client.job(topic, job_id)
        return None if info is None or info.state == "aborted" else info.messages

    with _bar("loading", messages, console) as show, _watching(lambda: show(left() or 0)):
        yield
        show(messages)


@contextmanager
def _bar(what: str, total: int, console: Console) -> Iterator[Callable[[int], None]]:
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn(),
        console=console, transient=True,
    )  # fmt: skip
    with bar:
        task = bar.add_task(what, total=max(total, 1))
        yield lambda done: bar.update(task, completed=min(done, total))


@contextmanager
def withdrawing_bar(messages: int, console: Console) -> Iterator[Callable[[int], None]]:
    """Show a bar of the withdrawn messages. The block calls the function that it gets with how many are left."""
    if not console.is_terminal:
        yield lambda left: None
        return
    with _bar("withdrawing", messages, console) as show:
        yield lambda left: show(messages - left)


@contextmanager
def _watching(look: Callable[[], None]) -> Iterator[None]:
    """Look once a second in a thread of its own; that the mesh has no time for it now is no reason to fail."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_LOOK_S):
            try:
                look()
            except DueqError:
                continue

    thread = threading.Thread(target=watch, name="campaign-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
