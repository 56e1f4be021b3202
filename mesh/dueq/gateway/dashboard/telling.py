"""The events that bring pages up to date: the whole view at first, after that the changes.

Pages that show the same share an event, however many they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from dueq.gateway.dashboard.delta import changes
from dueq.gateway.dashboard.snapshot import Document
from dueq.gateway.dashboard.state import State
from dueq.gateway.dashboard.views import View

_SHORT: Final = 4096
"""Bytes of changes that are not compared with the whole."""


@dataclass(slots=True)
class _Made:
    """A view as one look has made it.

    Attributes:
        document: the data of the page.
        whole: the event that has all of it; empty until somebody needs it.
        change: the event for a page that has the document of the look before; empty likewise.
    """

    document: Document
    whole: bytes = b""
    change: bytes = b""


@dataclass(slots=True)
class Shown:
    """Each view as the last look and the one before it have made it."""

    _number: int = 0
    _before: int = 0
    _made: dict[View, _Made] = field(default_factory=dict)
    _old: dict[View, _Made] = field(default_factory=dict)

    def told(self, view: View, state: State, acts: Iterable[Document], had: int) -> bytes:
        """Return the event for a page.

        Args:
            view: what it shows.
            state: after the look that it is told of.
            acts: what was done from pages.
            had: number of the look that it was told of last; 0: of none.
        """
        number = state.sight.number
        if self._number != number:
            self._before, self._old = self._number, self._made
            self._number, self._made = number, {}
        made = self._made.get(view)
        if made is None:
            made = self._made[view] = _Made(view.document(state, acts))
        old = self._old.get(view) if had and had == self._before else None
        if old is None:
            return self._whole(made)
        if not made.change:
            change = _event("change", list(changes(old.document, made.document)))
            longer = len(change) > _SHORT and len(change) > len(self._whole(made))
            made.change = made.whole if longer else change
        return made.change

    @staticmethod
    def _whole(made: _Made) -> bytes:
        if not made.whole:
            made.whole = _event("view", made.document)
        return made.whole


def _event(name: str, data: Any) -> bytes:
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return f"event: {name}\ndata: {text}\n\n".encode()
