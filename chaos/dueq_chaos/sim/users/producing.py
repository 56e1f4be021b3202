"""A user of a simulated SDK client that schedules, moves, changes and cancels.

It acts as the SDK's synchronous face does for a program, and notes in the history what it was told.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from dueq import ids
from dueq.client import calls
from dueq.client.arguments import Payload
from dueq.client.core import PartsCall
from dueq.client.core.ports import effects, events
from dueq.client.core.ports.shared_body import SharedBody
from dueq.errors import DueqError, OutcomeUnknown
from dueq_chaos.sim.environment.sdk import SimClient
from dueq_chaos.sim.judging.history import History, MessageKey, name_of
from dueq_chaos.sim.users.headings import headings_of
from dueq_chaos.sim.users.keyed import kept, kept_rows
from dueq_chaos.sim.users.naming import Named, misanswered
from dueq_codecs.records import Outcome

_TIMEOUT_US = 20_000_000


def _key_of(text: str) -> tuple[MessageKey, int]:
    found = ids.from_text(text)
    return (found.uid, found.sequence, found.row), found.first


class ProducingUser:
    """Calls `schedule_many`, `move_many`, `change_many`, `cancel_many`; repeats what failed while there is patience.

    Attributes:
        patience: how often a failed call is repeated.
        again_us: how long that is put off.
        retry_timeout_us: how long a repetition of a `schedule` may take; None: as long as the call before.
    """

    def __init__(self, client: SimClient, history: History) -> None:
        self.client, self.history = client, history
        self.patience = 2
        self.again_us = (1_000, 1_500_000)
        self.retry_timeout_us: int | None = None
        self._windows: dict[bytes, float] = {}

    def schedule(
        self, topic: str, payloads: list[bytes], dues_ms: list[int], timeout_us: int = _TIMEOUT_US,
        ranks: list[int] | None = None, headed: bool = False, groups: list[str | None] | None = None,
        shared: SharedBody | None = None, more: dict[str, Any] | None = None,
        unique: list[str | None] | None = None, on_duplicate: str | None = None,
    ) -> None:  # fmt: skip
        """Schedule rows; noted one by one when they are answered.

        With a shared body, payloads are their keys. `more` is what else is said of them.
        """
        for payload in payloads:
            self.history.unacknowledged[payload] = None
        headers = [headings_of(payload) for payload in payloads] if headed else None
        self.history.headed.update(dict.fromkeys(payloads if headed else ()))
        given: list[Payload] = [*payloads]
        keys: list[str | None] | None = None
        if shared is not None:
            self.history.shared.update(dict.fromkeys(payloads, shared.data))
            given, keys = [shared] * len(payloads), [payload.decode() for payload in payloads]
        elif unique is not None:
            keys = unique
            self.history.keys |= {payload: key for payload, key in zip(payloads, unique, strict=True) if key}
        call = calls.schedule_many(
            topic,
            given,
            dues_ms,
            lambda: self.client.world.wall_us,
            ranks=ranks,
            headers=headers,
            groups=groups,
            keys=keys,
            **(more or {}),
            on_duplicate=on_duplicate,
        )
        self._windows.update(zip(payloads, (more or {}).get("window", ()), strict=False))
        rows = list(zip(payloads, dues_ms, ranks or [0] * len(payloads), strict=True))
        answer = partial(self._scheduled, rows, timeout_us, self.patience)
        self.client.call(call.build, timeout_us, answer)

    def _scheduled(
        self, rows: list[tuple[bytes, int, int]], timeout_us: int, patience: int, value: PartsCall | None,
        failed: effects.Failed | None,
    ) -> None:  # fmt: skip
        if failed is None:
            assert value is not None
            results: list[Any] = list(value.found())
        elif failed.repeat is not None and len(failed.repeat.parts):
            results = failed.repeat.mixed()
            if patience:
                timeout_us = self.retry_timeout_us or timeout_us
                again = partial(self._scheduled, rows, timeout_us, patience - 1)
                self._again(failed.repeat, timeout_us, again)
        else:
            results = [failed.error] * len(rows)
        final = failed is None or failed.repeat is None or not patience
        answered = value if failed is None else failed.repeat
        others = kept_rows(answered) if answered is not None else ()
        for at, ((payload, due, rank), result) in enumerate(zip(rows, results, strict=True)):
            if at in others:
                kept(self.history, payload, str(result))
            elif isinstance(result, str):
                self._inserted(payload, due, rank, result)
            elif final and not isinstance(result, OutcomeUnknown):
                self.history.unacknowledged.pop(payload, None)
                self.history.refused[payload] = repr(result)

    def _inserted(self, payload: bytes, due: int, rank: int, text: str) -> None:
        if payload not in self.history.unacknowledged:
            return  # noted already, by an earlier attempt of the call
        key, first = _key_of(text)
        self.history.unacknowledged.pop(payload)
        if payload in self._windows:
            chosen, width_ms = self.history.due_of(key), int(self._windows.pop(payload) * 1000)
            if not due <= chosen <= due + width_ms or first < chosen:
                self.history.misanswered(
                    f"{name_of(key)}: due {due} within {width_ms} ms is {chosen}, its id {first}"
                )
            due = chosen
        self.history.inserted(key, payload, due, first, rank)
        of_rank = f" of rank {rank}" if rank else ""
        self.client.world.tell(self.client.name, f"scheduled {name_of(key)} due {due}{of_rank}")

    def _again(self, call: PartsCall, timeout_us: int, answer: Any) -> None:
        """Repeat what failed, after a while."""
        client = self.client
        life = client.life
        client.waiting += 1

        def repeat() -> None:
            if client.life == life:
                client.waiting -= 1
                if client.core is not None:
                    client.call(lambda n, at: events.Repeat(n, at, call), timeout_us, answer)

        client.world.after(client.world.random.randint(*self.again_us), repeat)

    def close_body(self, topic: str, body: SharedBody) -> None:
        """Let a shared body go with the last of its messages."""
        call = calls.end_body(topic, body)
        self.client.call(call.build, _TIMEOUT_US, lambda value, failed: None)

    def alter(
        self, topic: str, keys: list[MessageKey], dues_ms: list[int] | None, ranks: list[int] | None = None
    ) -> None:
        """Move messages, or give them other ranks; without dues and ranks cancel them."""
        named = [Named(self.history.text_of(key), key) for key in keys]
        self.alter_named(topic, named, dues_ms, ranks=ranks)

    def alter_named(
        self, topic: str, names: list[Named], dues_ms: list[int] | None, timeout_us: int = _TIMEOUT_US,
        ranks: list[int] | None = None,
    ) -> None:  # fmt: skip
        """Move, change or cancel what these names say, wrong ones and repeated ones among them."""
        history, asked_us = self.history, self.client.world.wall_us
        texts = [name.text for name in names]
        if ranks is not None:
            call, what = calls.change(topic, texts, ranks), "change"
        elif dues_ms is not None:
            call, what = calls.move(topic, texts, dues_ms, lambda: 0), "move"
        else:
            call, what = calls.cancel(topic, texts), "cancel"
        for at, (_, key) in enumerate(names):
            if key is None:
                continue
            message = history.messages[key]
            message.changing = True
            if ranks is not None:
                message.maybe_ranks.append(ranks[at])
            elif dues_ms is not None:
                message.maybe_dues.append(dues_ms[at])
            else:
                message.cancel_asked = True
        self.client.world.tell(self.client.name, f"asks to {what} {', '.join(map(str, names))}")
        answer = partial(self._altered, names, dues_ms, ranks, asked_us, self.patience)
        self.client.call(call.build, timeout_us, answer)

    def _altered(
        self, names: list[Named], dues_ms: list[int] | None, ranks: list[int] | None, asked_us: int, patience: int,
        value: PartsCall | None, failed: effects.Failed | None,
    ) -> None:  # fmt: skip
        if failed is None:
            assert value is not None
            results: list[Any] = list(value.outcomes())
        elif failed.repeat is not None and patience:
            again = partial(self._altered, names, dues_ms, ranks, asked_us, patience - 1)
            self._again(failed.repeat, _TIMEOUT_US, again)
            return
        elif failed.repeat is not None and len(failed.repeat.parts):
            results = failed.repeat.mixed()
        else:
            results = [failed.error] * len(names)
        for at, ((_, key), result) in enumerate(zip(names, results, strict=True)):
            due = None if dues_ms is None else dues_ms[at]
            rank = None if ranks is None else ranks[at]
            if key is not None:
                self._note_change(key, due, rank, result, asked_us)
        for text in misanswered(names, results, dues_ms is None and ranks is None):
            self.history.misanswered(text)

    def _note_change(
        self, key: MessageKey, due: int | None, rank: int | None, result: Outcome | DueqError, asked_us: int
    ) -> None:
        message, now_us = self.history.messages[key], self.client.world.wall_us
        self.client.world.tell(self.client.name, f"changed {name_of(key)}: {result!r}")
        message.changing = False
        if isinstance(result, OutcomeUnknown) or result is Outcome.UNKNOWN:
            return  # it may have happened: what was noted as possible stays possible
        if rank is not None:
            message.maybe_ranks.remove(rank)
            if result is Outcome.DONE:
                self.history.ranked(key, rank, now_us, asked_us)
        elif due is not None:
            message.maybe_dues.remove(due)
            if result is Outcome.DONE:
                self.history.moved(key, due, now_us, asked_us)
        else:
            message.cancel_asked = False
            if result is Outcome.DONE:
                self.history.cancelled(key, asked_us, now_us)
