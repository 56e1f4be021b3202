"""How users name messages, rightly, wrongly and twice in one request, and what they may be answered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final, NamedTuple

from dueq import ids, limits
from dueq_chaos.sim.judging.history import History, MessageKey, name_of
from dueq_codecs.records import Outcome

_NO_SEQUENCE: Final = 1 << 30
_NO_ROW: Final = 65_000


class Named(NamedTuple):
    """A message id, and its message; None: it belongs to no message, and changes nothing."""

    text: str
    key: MessageKey | None

    def __str__(self) -> str:
        return name_of(self.key) if self.key is not None else f"{self.text} (wrong)"


def wrong_name(random: Random, history: History, key: MessageKey, uids: Sequence[int]) -> Named:
    """Return an id of no message, made from an id of a message."""
    uid, sequence, row = key
    first = history.messages[key].first
    choices: list[Callable[[], ids.MessageId]] = [
        lambda: ids.MessageId(first + random.choice([-1, 1, 1_000]), *key),
        lambda: ids.MessageId(first, uid, sequence + _NO_SEQUENCE, row),
        lambda: ids.MessageId(first, uid, sequence, _NO_ROW),
        lambda: ids.MessageId(first + 7, random.choice(uids), sequence, row),
    ]
    wrong = random.choice(choices)()
    other = history.messages.get((wrong.uid, wrong.sequence, wrong.row))
    if other is not None and other.first == wrong.first:  # of another partition, by chance
        wrong = choices[1]()
    return Named(ids.to_text(wrong), None)


def finished_name(random: Random, history: History) -> Named | None:
    """Return the id of a message that is known to be gone, if there is one."""
    gone = [
        key
        for key, message in history.messages.items()
        if message.acked_at_us is not None or message.cancelled_at_us is not None
    ]
    return Named(history.text_of(random.choice(gone)), None) if gone else None


def misanswered(names: Sequence[Named], results: Sequence[Any], cancelling: bool) -> list[str]:
    """Return what is wrong with the answers to a move or cancel, as far as it follows from them alone.

    A name that is nobody's is NOT_FOUND. Rows of one request take effect one after the other. After a cancel the
    message is gone, after a move it is as before, and a change that was refused once is refused again.
    """
    wrong = [
        f"{name}: answered {result!r}"
        for name, result in zip(names, results, strict=True)
        if name.key is None
        and isinstance(result, Outcome)
        and result not in (Outcome.NOT_FOUND, Outcome.UNKNOWN)
    ]
    if len(names) > limits.REQUEST_ROWS_MAX:
        return wrong
    before: dict[MessageKey, Outcome] = {}
    for name, result in zip(names, results, strict=True):
        if name.key is None or not isinstance(result, Outcome) or result is Outcome.UNKNOWN:
            continue
        earlier = before.get(name.key)
        if earlier is not None:
            expected = Outcome.NOT_FOUND if cancelling and earlier is Outcome.DONE else earlier
            if result is not expected:
                wrong.append(f"{name}: named twice in one request, answered {earlier!r} and then {result!r}")
        before[name.key] = result
    return wrong
