"""Pulls by a name: of all that use one name, the last one goes on.

The last one is the one with the largest `life`; or, where one of them says none, the one that came last. A name's
messages are brought to every pull by it. So an earlier pull that asks again must not get the messages that the last one
works on. It asks again when another pull has followed it, and the answer that said so was lost. A stream's next
question is a new pull, but it has the stream's `life`.

Lives are instants, and the clocks of two clients differ a little. So a pull that has ended keeps off only those that
are clearly older than it.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from dueq.core.delivery.departed import Departed

PULL_NAMES_MAX: Final = 4_096
"""Names whose last pull is remembered."""
KEPT_US: Final = 60_000_000
"""How long after its end."""
SLACK: Final = 100_000 << 12
"""How much older a life is that is clearly older: 100 ms, in the unit of lives (a µs shifted by 12 bits)."""
_ALWAYS: Final = (1 << 64) - 1
"""No question of a pull that another has followed is a new one."""


class _Last(NamedTuple):
    pull: bytes
    life: int
    heard_us: int
    latest: int = 0
    """The largest life that has come by the name."""


class PullNames:
    """The names by which a topic's messages are pulled at this leader."""

    def __init__(self) -> None:
        self._last: OrderedDict[bytes, _Last] = OrderedDict()
        self._followed = Departed()

    def is_followed(self, name: bytes, pull: bytes, life: int, open_life: int, now_us: int) -> bool:
        """Whether another has followed a pull that is not open.

        Args:
            name: its name.
            pull: its id.
            life: which it says.
            open_life: that of the open one of this name; 0: there is none, or it says none.
            now_us: the instant (mono).
        """
        last = self._last.get(name, _Last(b"", 0, 0))
        lately = last.life if last.heard_us >= now_us - KEPT_US else 0
        is_older = 0 < life < max(open_life, lately - SLACK)
        if is_older or self._followed.has_ended(pull, _ALWAYS, now_us):
            self._followed.note(pull, _ALWAYS, now_us)
            return True
        return False

    def has_later(self, name: bytes, life: int) -> bool:
        """Whether a pull with a larger life has come by its name, as far as anybody remembers."""
        last = self._last.get(name)
        return last is not None and 0 < life < last.latest

    def begins(self, name: bytes, pull: bytes, life: int, now_us: int) -> None:
        """A pull begins: another one of its name is over, unless that one is the later one and this frame was late."""
        last = self._last.pop(name, None)
        if last is not None and last.pull != pull and not 0 < life < last.life:
            self._followed.note(last.pull, _ALWAYS, now_us)
        self._last[name] = _Last(pull, life, now_us, life if last is None else max(life, last.latest))
        if len(self._last) > PULL_NAMES_MAX:
            self._last.popitem(last=False)

    def ends(self, name: bytes, pull: bytes, now_us: int) -> None:
        """A pull has ended."""
        last = self._last.get(name)
        if last is not None and last.pull == pull:
            self._last[name] = last._replace(heard_us=now_us)
