"""Changes of one message, by its id or by its unique key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dueq.client import message_state
from dueq.client.calls import Call, Steps
from dueq.client.unique import one_of
from dueq.errors import MessageNotFound
from dueq_codecs.records import Outcome

_LOOKS_MAX: Final = 4
"""A key may name another message between the look and the change, but hardly so often."""


def done(
    topic: str,
    message_id: str | None,
    key: str | None,
    group: str | None,
    change: Callable[[str], Call[list[Outcome]]],
) -> Steps[None]:
    """Change the one message that an id or a key names."""
    one_of(message_id, key)
    if message_id is not None:
        yield from message_state.done(change(message_id), topic, message_id)
        return
    for looks in range(_LOOKS_MAX):
        found = yield from message_state.get_by_key(topic, key, group, payload=False, linearizable=True)
        try:
            yield from message_state.done(change(found.id), topic, found.id)
        except MessageNotFound:
            if looks == _LOOKS_MAX - 1:
                raise
            continue
        return
